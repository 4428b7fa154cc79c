package queuetest

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/sqllock/sqllock/driver"
)

// lockedRowTests are for databases that lock rows. In others a transaction keeps everybody
// from writing anything.
var lockedRowTests = map[string]func(*testing.T, *suite, string){
	"a guard of an expired writer keeps readers off": func(t *testing.T, s *suite, name string) {
		w := s.take(t, writer(name))
		tx, err := s.store.Begin(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = tx.Rollback() }()
		if status, err := s.store.Guard(t.Context(), tx, driver.GuardRequest{Name: name, Acq: w.Acq, Version: w.Version}); status != driver.Guarded {
			t.Fatal(status, err)
		}
		s.expire(t, w)
		s.soon(t, func() { s.lose(t, reader(name)) })
		_ = tx.Rollback()
		s.take(t, reader(name))
	},

	"an attempt that loses, and a waiter that asks again, wait for no lock": func(t *testing.T, s *suite, name string) {
		first, a, b := s.take(t, writer(name)), writer(name), writer(name)
		s.take(t, writer(name+"2"))
		wait(t, s.store, a, 0)
		wait(t, s.other, b, 1)
		unlock := s.lock(t, `SELECT version FROM {lock} WHERE name IN ('`+name+`', '`+name+`2') FOR UPDATE`)
		for range 3 {
			s.soon(t, func() {
				s.lose(t, writer(name))
				s.lose(t, reader(name))
				for _, r := range s.grants(t, writer(name), writer(name+"2")) {
					if r.Granted {
						t.Errorf("%+v", r)
					}
				}
				wait(t, s.store, a, 0)
				wait(t, s.other, b, 1)
				abandon(t, s.store, writer(name))
			})
		}
		unlock()
		pass(t, s.store, first, a)
	},

	"a grant that meets a locked row sees who came meanwhile": func(t *testing.T, s *suite, name string) {
		for _, n := range []int{1, 3} {
			for _, waits := range []bool{false, true} {
				var reqs []driver.AcquireRequest
				for i := range n {
					reqs = append(reqs, writer(fmt.Sprintf("%s-%d-%v-%d", name, n, waits, i)))
					end(t, s.store, s.take(t, writer(reqs[i].Name)))
				}
				s.comeMeanwhile(t, reqs, waits)
			}
		}
	},

	"a reader whose claim is locked is alive although it has expired": func(t *testing.T, s *suite, name string) {
		a, w := s.take(t, reader(name)), writer(name)
		wait(t, s.store, w, 0)
		s.expire(t, a)
		unlock := s.lock(t, `SELECT token FROM {claim} WHERE name = '`+name+`' AND state = 1 FOR UPDATE`)
		s.soon(t, func() { s.lose(t, writer(name)) })
		s.soon(t, func() {
			if r := wait(t, s.store, w, 0); r.Crashed != (driver.Holder{}) {
				t.Errorf("%+v", r)
			}
		})
		s.soon(t, func() { s.crashed(t, name) })
		unlock()
		if h := enter(t, s.store, w); h.Crashed.Acq != a.Acq {
			t.Errorf("%+v", h)
		}
	},

	"a revocation does not end a reader whose claim is locked": func(t *testing.T, s *suite, name string) {
		a, b := s.take(t, reader(name)), s.take(t, reader(name))
		unlock := s.lock(t, `SELECT token FROM {claim} WHERE name = '`+name+`' AND state = 1 FOR UPDATE`)
		s.leavesNoTrace(t, name, func() {
			if res, err := s.store.Revoke(t.Context(), []driver.RevokeRequest{{Name: name}}); s.Classify(err) != driver.Again || err == nil {
				t.Errorf("%+v, %v", res, err)
			}
		})
		unlock()
		s.release(t, true, a.release(), b.release())
	},
}

// comeMeanwhile requests names whose rows are locked, by a transaction that ends with others
// who hold or wait for them.
func (s *suite) comeMeanwhile(t *testing.T, reqs []driver.AcquireRequest, waits bool) {
	t.Helper()
	var grants []driver.AcquireRequest
	var moves []string
	for _, r := range reqs {
		grants = append(grants, atOnce(r))
		moves = append(moves, s.claimElsewhere(t, r.Name, waits)...)
	}
	tx, err := s.DB.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback() }()
	for _, move := range moves {
		if _, err := tx.ExecContext(t.Context(), move); err != nil {
			t.Fatalf("%s: %v", move, err)
		}
	}
	var res []driver.AcquireResult
	var wg sync.WaitGroup
	wg.Go(func() {
		s.retry(t, rand.New(rand.NewPCG(1, 1)), func(ctx context.Context) (err error) {
			res, err = s.store.Acquire(ctx, grants)
			return err
		})
	})
	time.Sleep(100 * time.Millisecond)
	if err := tx.Commit(); err != nil {
		t.Fatal(err)
	}
	wg.Wait()
	for i, r := range res {
		if r.Granted {
			t.Errorf("request %d of %d was granted past one who is there (waiting: %v): %+v", i, len(reqs), waits, r)
		}
	}
}

// claimElsewhere makes a claim of another name. It returns the statements that move it to
// name.
func (s *suite) claimElsewhere(t *testing.T, name string, waits bool) (moves []string) {
	t.Helper()
	from, counter := name+"-from", "holding"
	if waits {
		counter = "waiting"
		s.take(t, writer(from))
		wait(t, s.other, writer(from), 0)
	} else {
		s.take(t, reader(from))
	}
	seq := s.number(t, `SELECT seq FROM {claim} WHERE name = '`+from+`'`)
	version := s.number(t, `SELECT version FROM {lock} WHERE name = '`+from+`'`)
	return []string{
		s.text(fmt.Sprintf(`UPDATE {lock} SET %s = 1, seq = %d, version = %d WHERE name = '%s'`, counter, seq, version, name)),
		s.text(fmt.Sprintf(`UPDATE {lock} SET %s = 0 WHERE name = '%s'`, counter, from)),
		s.text(fmt.Sprintf(`UPDATE {claim} SET name = '%s' WHERE name = '%s'`, name, from)),
	}
}

// lock runs a query in a transaction of its own. What the query has locked is free after
// unlock, or after the test. A MySQL server that logs statements locks nothing for an update
// in READ COMMITTED, so the isolation level is the default.
func (s *suite) lock(t *testing.T, query string) (unlock func()) {
	t.Helper()
	tx, err := s.DB.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	unlock = func() { _ = tx.Rollback() }
	t.Cleanup(unlock)
	rows, err := tx.QueryContext(t.Context(), s.text(query))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = rows.Close() }()
	if !rows.Next() {
		t.Fatalf("nothing is locked by %s: %v", query, rows.Err())
	}
	return unlock
}

// soon checks that do waits for no lock, for which a statement waits for a second.
func (s *suite) soon(t *testing.T, do func()) {
	t.Helper()
	Within(t, 900*time.Millisecond, do)
}

// Within checks that do takes at most so long. What waits for a lock does so each time; what the
// machine delays does not. So do is called again while it takes longer, and has to be something
// that can be repeated.
func Within(t *testing.T, most time.Duration, do func()) {
	t.Helper()
	BestWithin(t, most, func() time.Duration {
		began := time.Now()
		do()
		return time.Since(began)
	})
}

// BestWithin is Within for a part of what do does: do returns how long that took.
func BestWithin(t *testing.T, most time.Duration, do func() time.Duration) {
	t.Helper()
	best := time.Hour
	for try := 0; try < 5 && best > most; try++ {
		best = min(best, do())
	}
	if best > most {
		t.Errorf("it took %v, want at most %v", best, most)
	}
}
