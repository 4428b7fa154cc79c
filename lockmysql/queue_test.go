package lockmysql_test

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/sqllock/sqllock/driver"
	"github.com/sqllock/sqllock/internal/queuetest"
	"github.com/sqllock/sqllock/lockmysql"
)

func waiter(name string) driver.AcquireRequest {
	r := request(name)
	r.Life, r.Handed = minute, 5*time.Second
	return r
}

func sharing(name string) driver.AcquireRequest {
	w := waiter(name)
	w.Shared = true
	return w
}

func line(t *testing.T, s driver.Store, reqs ...driver.AcquireRequest) []driver.AcquireResult {
	t.Helper()
	res, err := patiently(func() ([]driver.AcquireResult, error) { return s.Acquire(t.Context(), reqs) })
	if err != nil || len(res) != len(reqs) {
		t.Fatalf("Acquire = %+v, %v", res, err)
	}
	return res
}

func abandon(t *testing.T, s driver.Store, r driver.AcquireRequest) {
	t.Helper()
	if _, err := s.Release(t.Context(), []driver.ReleaseRequest{{Name: r.Name, Acq: r.Acq, Shared: r.Shared}}); err != nil {
		t.Fatal(err)
	}
}

// next is Release of one lease, and whose turn it is then.
func next(t *testing.T, s driver.Store, req driver.ReleaseRequest) []driver.ID {
	t.Helper()
	res, err := patiently(func() ([]driver.ReleaseResult, error) { return s.Release(t.Context(), []driver.ReleaseRequest{req}) })
	if err != nil || !res[0].Freed {
		t.Fatalf("Release = %+v, %v", res, err)
	}
	ids := []driver.ID{}
	for _, n := range res[0].Next {
		ids = append(ids, n.Acq)
	}
	return ids
}

// lease is what releases a grant.
func lease(r driver.AcquireRequest, version int64) driver.ReleaseRequest {
	return driver.ReleaseRequest{Name: r.Name, Acq: r.Acq, Version: version, Shared: r.Shared}
}

// queue is all that those who wait do.
func queue(t *testing.T, s driver.Store, name string) {
	t.Helper()
	first, a, b, c := request(name), waiter(name), sharing(name), waiter(name)
	version := take(t, s, first)[0].Version
	line(t, s, a, b, c)
	line(t, s, a, b, c)
	if got := next(t, s, lease(first, version)); !slices.Equal(got, []driver.ID{a.Acq}) {
		t.Errorf("%v, want %v", got, a.Acq)
	}
	abandon(t, s, a)
	r := line(t, s, b)[0]
	if !r.Granted || r.Version <= version {
		t.Errorf("%+v", r)
	}
	revoke(t, s, name)
	if r := line(t, s, c)[0]; !r.Granted {
		t.Errorf("%+v", r)
	}
	abandon(t, s, c)
	if res, err := s.Read(t.Context(), driver.ReadRequest{Waiters: true}); err != nil || len(res.Waiters) > 0 {
		t.Error(res.Waiters, err)
	}
	sweep(t, s, time.Hour)
}

func TestStatementsInLine(t *testing.T) {
	t.Parallel()
	eachServer(t, func(t *testing.T, f *fixture) {
		s, db := f.store(t, "interpolateParams=true")
		for _, n := range []int{1, 100} {
			first := requests(n, "%03d")
			var a, b []driver.AcquireRequest
			for _, r := range first {
				a, b = append(a, waiter(r.Name)), append(b, waiter(r.Name))
			}
			expect := func(what string, want int, do func()) {
				t.Helper()
				before := questions(t, db)
				do()
				if got := questions(t, db) - before - 1; got != want {
					t.Errorf("%s of %d: %d statements, want %d", what, n, got, want)
				}
			}
			held := releases(first, take(t, s, first...))
			all := make([]driver.ReleaseRequest, n)
			for i := range all {
				all[i] = driver.ReleaseRequest{Name: a[i].Name, Acq: newID(), Shared: i%2 == 1}
			}
			expect("nothing to abandon", 1, func() { _, _ = s.Release(t.Context(), all) })
			// Statements and the transaction around them. The first is behind a beat.
			beat, large := 2-min(n, 2), min(n-1, 1)
			expect("entry", f.inBlocks(7+beat, 2+2*large), func() { line(t, s, a...) })
			expect("entry of the second", f.inBlocks(9, 1+4*large), func() { line(t, s, b...) })
			// The rows, the claims in two ways, and the rows once more: one may have been served
			// meanwhile.
			expect("nothing to abandon, again", f.inBlocks(4, 2), func() { _, _ = s.Release(t.Context(), all) })
			expect("staying", f.inBlocks(3, 2+large), func() { line(t, s, slices.Concat(a, b)...) })
			for i := range held {
				held[i].Awaited = true
			}
			var res []driver.ReleaseResult
			expect("hand-over", f.inBlocks(8, 1+3*large), func() { res, _ = s.Release(t.Context(), held) })
			for i := range held {
				if len(res) != n || len(res[i].Next) != 1 {
					t.Fatalf("%+v", res)
				}
				held[i] = driver.ReleaseRequest{Name: held[i].Name, Acq: res[i].Next[0].Acq, Version: res[i].Next[0].Version}
			}
			// And what was tried plainly.
			expect("hand-over that nobody expected", f.inBlocks(9, 2+3*large), func() { res, _ = s.Release(t.Context(), held) })
			for i := range res {
				if len(res) != n || len(res[i].Next) != 1 || res[i].Next[0].Acq != b[i].Acq {
					t.Fatalf("%+v", res)
				}
			}
			for i := range b {
				abandon(t, s, b[i])
			}
		}
	})
}

// Whoever frees a name while somebody enters the line either finds him or is found
// out: the row says so as soon as it can be locked.
func TestAWaiterWhoEntersDuringAReleaseIsNotMissed(t *testing.T) {
	t.Parallel()
	eachServer(t, func(t *testing.T, f *fixture) {
		s, _ := f.store(t)
		for _, awaited := range []bool{false, true} {
			first, a := request("k"), waiter("k")
			r := lease(first, take(t, s, first)[0].Version)
			r.Awaited = awaited
			// As Line does, but slowly.
			copied := waiter("model")
			take(t, s, request("model"))
			line(t, s, copied)
			tx, err := f.Open(t).Begin()
			if err != nil {
				t.Fatal(err)
			}
			exec(t, tx, "UPDATE `sqllock_lock` SET seq = seq + 1, waiting = waiting + 1 WHERE name = 'k'")
			exec(t, tx, "INSERT INTO `sqllock_claim` SELECT 'k', state, (SELECT seq FROM `sqllock_lock` WHERE name = 'k'), ?, kind, slot, token, holds,"+
				" ttl, handed, max_hold, since, expires_at, limit_at, delay, locker, owner, label, value, carries FROM `sqllock_claim` WHERE name = 'model'", a.Acq[:])
			time.AfterFunc(20*time.Millisecond, func() { _ = tx.Commit() })
			if got := next(t, s, r); !slices.Equal(got, []driver.ID{a.Acq}) {
				t.Errorf("awaited %v: next are %v, want %v", awaited, got, a.Acq)
			}
			abandon(t, s, a)
			abandon(t, s, copied)
			revoke(t, s, "model")
		}
	})
}

// The first who waits may leave while the name is handed over. Then the next has it.
func TestNobodyWhoHasLeftIsHandedTheName(t *testing.T) {
	t.Parallel()
	eachServer(t, func(t *testing.T, f *fixture) {
		s, _ := f.store(t)
		other, _ := f.store(t)
		for round := range 200 {
			first, a, b := request("k"), waiter("k"), waiter("k")
			r := lease(first, take(t, s, first)[0].Version)
			r.Awaited = true
			line(t, other, a, b)
			var wg sync.WaitGroup
			wg.Go(func() { release(t, s, r) })
			wg.Go(func() { abandon(t, other, a) })
			wg.Wait()
			row := look(t, s, "k")[0]
			if row.Holder.Acq != b.Acq || row.Holder.Version <= r.Version {
				t.Fatalf("round %d: %+v, want %v to hold the name", round, row, b.Acq)
			}
			release(t, s, lease(b, row.Holder.Version))
		}
	})
}

// A turn may come between a look and what follows from it.
func TestWhoseTurnComesMeanwhile(t *testing.T) {
	t.Parallel()
	eachServer(t, func(t *testing.T, f *fixture) {
		s, _ := f.store(t)
		other, _ := f.store(t)
		for _, shared := range []bool{false, true} {
			a := waiter("k")
			a.Shared = shared
			first := request("k")
			r := lease(first, take(t, other, first)[0].Version)
			line(t, s, a)
			if _, err := lockmysql.With(t, s, func() { next(t, other, r) }).Acquire(t.Context(), []driver.AcquireRequest{a}); err != nil {
				t.Error(err)
			}
			if res := line(t, s, a)[0]; !res.Granted || !res.Found {
				t.Errorf("shared %v: %+v", shared, res)
			}
			abandon(t, s, a)

			r = lease(first, take(t, other, first)[0].Version)
			line(t, s, a)
			gone := []driver.ReleaseRequest{{Name: "k", Acq: a.Acq, Shared: shared}}
			if _, err := lockmysql.With(t, s, func() { next(t, other, r) }).Release(t.Context(), gone); err != nil {
				t.Fatal(err)
			}
			if row := look(t, s, "k")[0]; row.Held() {
				t.Errorf("shared %v: who has left holds it: %+v", shared, row)
			}
		}
	})
}

// Between the look of a grant and its update the name may go to a reader, or be kept.
func TestAGrantSeesWhoCameAfterItsLook(t *testing.T) {
	t.Parallel()
	eachServer(t, func(t *testing.T, f *fixture) {
		s, _ := f.store(t)
		other, _ := f.store(t)
		came := map[string]func(reqs []driver.AcquireRequest){
			"a reader": func(reqs []driver.AcquireRequest) {
				for _, r := range reqs {
					line(t, other, sharing(r.Name))
				}
			},
			"a minimum hold time": func(reqs []driver.AcquireRequest) {
				for _, r := range releases(reqs, take(t, other, reqs...)) {
					r.MinHold = time.Minute
					release(t, other, r)
				}
			},
		}
		for who, comes := range came {
			for i, n := range []int{1, 3, 3} {
				reqs := requests(n, fmt.Sprintf("%s, %d, %%d", who, i))
				release(t, other, releases(reqs, take(t, other, reqs...))...) // so that the names have rows
				theirs := slices.Clone(reqs)
				for k := range reqs {
					reqs[k].Acq = newID()
					if i == 2 {
						reqs[k].Value = []byte("value")
					}
				}
				res, err := lockmysql.With(t, s, func() { comes(theirs) }).Acquire(t.Context(), reqs)
				if err != nil || slices.ContainsFunc(res, func(r driver.AcquireResult) bool { return r.Granted }) {
					t.Errorf("%s came to %d names: %+v, %v", who, n, res, err)
				}
			}
		}
	})
}

func TestALockedRowKeepsALineWaitingForASecond(t *testing.T) {
	eachServer(t, func(t *testing.T, f *fixture) {
		s, db := f.store(t)
		first, a := request("b"), waiter("b")
		r := lease(first, take(t, s, first)[0].Version)
		line(t, s, a)
		unlock := lockRow(t, f.Open(t), "b")
		r.Awaited = true
		queuetest.Within(t, 4*time.Second, func() {
			began := time.Now()
			if res := line(t, s, a)[0]; res.Granted || res.Ahead != 0 { // there is nothing to write in that row
				t.Errorf("%+v", res)
			}
			if _, err := s.Release(t.Context(), []driver.ReleaseRequest{r}); !errors.Is(err, lockmysql.ErrLocked) {
				t.Errorf("Release: %v", err)
			}
			if _, err := s.Release(t.Context(), []driver.ReleaseRequest{{Name: "b", Acq: a.Acq}}); !errors.Is(err, lockmysql.ErrLocked) {
				t.Errorf("Release: %v", err)
			}
			if took := time.Since(began); took < 900*time.Millisecond {
				t.Errorf("calls that wait for a second took %v", took)
			}
		})
		queuetest.Within(t, 2*time.Second, func() {
			_, err := s.Acquire(t.Context(), []driver.AcquireRequest{waiter("a"), waiter("b"), waiter("c")})
			if !errors.Is(err, lockmysql.ErrLocked) || lockmysql.Classify(err) != driver.Again {
				t.Errorf("Acquire: %v", err)
			}
		})
		if rows := look(t, s, "a", "c"); rows[0].Held() || rows[1].Held() {
			t.Errorf("%+v", rows)
		}
		time.AfterFunc(300*time.Millisecond, unlock)
		if res := line(t, s, waiter("b"))[0]; res.Ahead != 1 {
			t.Errorf("when the row is free again: %+v", res)
		}
		if got := next(t, s, r); !slices.Equal(got, []driver.ID{a.Acq}) {
			t.Errorf("next are %v", got)
		}
		if db.Stats().OpenConnections != 1 {
			t.Error("a locked row cost a connection")
		}
	})
}
