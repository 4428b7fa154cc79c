package queuetest

import (
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
		wait(t, s.store, a, 0)
		wait(t, s.other, b, 1)
		unlock := s.lock(t, `SELECT version FROM {lock} WHERE name = '`+name+`' FOR UPDATE`)
		for range 3 {
			s.soon(t, func() {
				s.lose(t, writer(name))
				s.lose(t, reader(name))
				wait(t, s.store, a, 0)
				wait(t, s.other, b, 1)
				abandon(t, s.store, writer(name))
			})
		}
		unlock()
		pass(t, s.store, first, a)
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
			if res, err := s.store.Revoke(t.Context(), []driver.RevokeRequest{{Name: name}}); s.store.Classify(err) != driver.Again || err == nil {
				t.Errorf("%+v, %v", res, err)
			}
		})
		unlock()
		s.release(t, true, a.release(), b.release())
	},
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

// soon checks that do waits for no lock. What waits for one does so each time; what the
// machine delays does not.
func (s *suite) soon(t *testing.T, do func()) {
	t.Helper()
	const most = 900 * time.Millisecond
	best := time.Hour
	for try := 0; try < 3 && best > most; try++ {
		began := time.Now()
		do()
		best = min(best, time.Since(began))
	}
	if best > most {
		t.Errorf("it took %v", best)
	}
}
