package lockmysql_test

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/sqllock/sqllock/driver"
	"github.com/sqllock/sqllock/internal/testdb"
)

// What is unusual is left to a visit, which the generated steps compare with the state machine.
func TestPermitsOfNamesThatNobodyHoldsTakeOneBlock(t *testing.T) {
	t.Parallel()
	eachServer(t, func(t *testing.T, f *fixture) {
		s, db := f.store(t, "interpolateParams=true")
		for _, n := range []int{1, 100} {
			count := func(what string, want int, do func()) {
				t.Helper()
				before := questions(t, db)
				do()
				if got := questions(t, db) - before - 1; got != want && f.Engine() == testdb.MariaDB { // MySQL has no blocks
					t.Errorf("%s of %d: %d statements, want %d", what, n, got, want)
				}
			}
			reqs, rivals := permits(n), permits(n)
			last := take(t, s, reqs...) // which makes the rows
			release(t, s, permitReleases(reqs, last)...)
			var res []driver.AcquireResult
			count("permits that are free", min(n, 2), // of one there is no look: it was just freed
				func() { res = take(t, s, rivals...) })
			for i := range res {
				if res[i].Slot != 0 || res[i].Version <= last[i].Version || res[i].Remaining != minute {
					t.Errorf("%+v follows %+v", res[i], last[i])
				}
			}
			if second := take(t, s, permits(n)...); second[0].Slot != 1 || second[0].Version <= res[0].Version {
				t.Errorf("%+v follows %+v", second[0], res[0])
			}
			count("the end of permits beside others", 1, func() {
				for i, freed := range release(t, s, permitReleases(rivals, res)...) {
					if !freed {
						t.Errorf("%q was not freed", rivals[i].Name)
					}
				}
			})
			if again := release(t, s, permitReleases(rivals, res)...); again[0] {
				t.Error("a term was ended twice")
			}
		}
	})
}

// permits are requests of names that have two permits.
func permits(n int) []driver.AcquireRequest {
	reqs := requests(n, fmt.Sprintf("permits %d %%03d", n))
	for i := range reqs {
		reqs[i].Permits = 2
	}
	return reqs
}

func permitReleases(reqs []driver.AcquireRequest, res []driver.AcquireResult) []driver.ReleaseRequest {
	out := releases(reqs, res)
	for i := range out {
		out[i].Shared, out[i].Permit = true, true
	}
	return out
}

// A name that looks free may be taken before the block begins, and a term may end twice at once.
func TestCallersThatSeeTheSameFreePermitHoldItOneByOne(t *testing.T) {
	t.Parallel()
	eachServer(t, func(t *testing.T, f *fixture) {
		const callers, rounds = 8, 40
		stores := make([]driver.Store, callers)
		for i := range stores {
			stores[i], _ = f.store(t)
		}
		first := request("one")
		first.Permits = 1
		release(t, stores[0], permitReleases([]driver.AcquireRequest{first}, take(t, stores[0], first))...) // there is a row
		var holding, granted atomic.Int64
		var wg sync.WaitGroup
		for i := range stores {
			wg.Go(func() {
				for range rounds {
					req := request("one")
					req.Permits = 1
					res, err := stores[i].Acquire(t.Context(), []driver.AcquireRequest{req})
					if err != nil || !res[0].Granted { // somebody else has it, or the row is locked
						continue
					}
					granted.Add(1)
					if n := holding.Add(1); n > 1 {
						t.Errorf("%d hold one permit", n)
					}
					holding.Add(-1)
					ends := permitReleases([]driver.AcquireRequest{req}, res)
					if freed := release(t, stores[i], ends...); len(freed) > 0 && !freed[0] {
						t.Error("a permit that is held is not freed")
					}
				}
			})
		}
		wg.Wait()
		if granted.Load() == 0 {
			t.Error("nobody got the permit")
		}
		t.Logf("%d of %d attempts got the permit", granted.Load(), callers*rounds)
	})
}
