package lockmysql_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sqllock/sqllock/driver"
	"github.com/sqllock/sqllock/lockmysql"
)

func TestATakeOverTellsWhoCrashed(t *testing.T) {
	t.Parallel()
	eachServer(t, func(t *testing.T, f *fixture) {
		s, db := f.store(t)
		for _, n := range []int{1, 4} {
			reqs := requests(n, fmt.Sprintf("crash of %d, %%d", n))
			old := take(t, s, reqs...)
			next := slices.Clone(reqs)
			for i := range next {
				expire(t, db, next[i].Name)
				next[i].Acq = newID()
			}
			if n > 1 {
				next[3].Acq = reqs[3].Acq // asks again after it has expired
			}
			for i, r := range grant(t, s, next...) {
				want := driver.Holder{Acq: reqs[i].Acq, Owner: reqs[i].Owner, Label: "host/test/1", Version: old[i].Version, Since: old[i].Now, Until: 1}
				if i == 3 {
					want = driver.Holder{}
				}
				if !r.Granted || r.Crashed != want {
					t.Errorf("grant %d of %d: %+v, want %+v", i, n, r, want)
				}
			}
			if r := grant(t, s, next[0])[0]; !r.Granted || r.Crashed != (driver.Holder{}) {
				t.Errorf("the request repeated: %+v", r)
			}
		}
	})
}

func TestAGrantTellsNoCrashOfATermThatEndedMeanwhile(t *testing.T) {
	t.Parallel()
	eachServer(t, func(t *testing.T, f *fixture) {
		s, _ := f.store(t)
		other, db := f.store(t)
		for _, n := range []int{1, 3} {
			for _, swept := range []bool{true, false} { // or released by a late holder
				reqs := requests(n, fmt.Sprintf("of %d, %v, %%d", n, swept))
				free := releases(reqs, take(t, other, reqs...))
				for i := range reqs {
					expire(t, db, reqs[i].Name)
					reqs[i].Acq = newID()
				}
				res, err := lockmysql.With(t, s, func() {
					if !swept {
						release(t, other, free...)
					} else if told := sweep(t, other, time.Hour).Crashed; len(told) != n {
						t.Errorf("%+v", told)
					}
				}).Acquire(t.Context(), reqs)
				if err != nil {
					t.Fatal(err)
				}
				for _, r := range res {
					if r.Crashed != (driver.Holder{}) {
						t.Errorf("swept %v, told: %+v", swept, r)
					}
				}
				take(t, s, reqs...)
			}
		}
	})
}

func TestEachCrashIsToldOnceWhoeverComesFirst(t *testing.T) {
	t.Parallel()
	const names, takers = 300, 3
	eachServer(t, func(t *testing.T, f *fixture) {
		s := open(t, f.Open(t))
		reqs := requests(names, "%03d")
		take(t, s, reqs...)
		exec(t, f.Open(t), "UPDATE `sqllock_lock` SET expires_at = 1")
		var mu sync.Mutex
		told := make(map[driver.ID]int)
		tell := func(h driver.Holder) {
			mu.Lock()
			defer mu.Unlock()
			told[h.Acq]++
		}
		var bySweep atomic.Int64
		var wg sync.WaitGroup
		for _, level := range []string{"READ-UNCOMMITTED", "READ-COMMITTED", "REPEATABLE-READ", "SERIALIZABLE"} {
			sweeper := open(t, f.Open(t, f.isolation(t, level), "clientFoundRows=true"))
			wg.Go(func() {
				for req := (driver.SweepRequest{Limit: 5, Retention: time.Hour}); ; {
					res, err := sweeper.Sweep(context.Background(), req)
					if err != nil {
						t.Errorf("%s: %v", level, err)
						return
					}
					for _, c := range res.Crashed {
						bySweep.Add(1)
						tell(c.Holder)
					}
					if req.After = res.Last; !res.More {
						return
					}
				}
			})
		}
		for k := range takers {
			wg.Go(func() {
				for _, i := range rand.Perm(names / (k + 1)) { // in batches of one, two and three
					var batch []driver.AcquireRequest
					for n := range k + 1 {
						batch = append(batch, request(fmt.Sprintf("%03d", i*(k+1)+n)))
					}
					res, err := s.Acquire(context.Background(), batch)
					if err != nil {
						t.Error(err)
						return
					}
					for _, r := range res {
						if r.Crashed.Acq != (driver.ID{}) {
							tell(r.Crashed)
						}
					}
				}
			})
		}
		wg.Wait()
		for _, c := range sweep(t, s, time.Hour).Crashed { // what was locked whenever somebody came
			tell(c.Holder)
		}
		t.Logf("%d of %d were told by sweeps", bySweep.Load(), names)
		for _, r := range reqs {
			if n := told[r.Acq]; n != 1 {
				t.Errorf("the crash of %s was told %d times", r.Name, n)
			}
		}
		if len(told) != names {
			t.Errorf("%d crashes were told, %d happened", len(told), names)
		}
	})
}
