package queuetest

import (
	"database/sql"
	"fmt"
	"testing"

	"github.com/sqllock/sqllock/driver"
)

// endTermTests are about transactions of the application that end terms.
var endTermTests = map[string]func(*testing.T, *suite, string){
	"a transaction ends a term when it commits": func(t *testing.T, s *suite, name string) {
		w := s.take(t, writer(name))
		tx := s.ends(t, w, sql.LevelDefault, driver.Guarded)
		_ = tx.Rollback()
		s.renew(t, driver.Renewed, w.renew(minute))
		tx = s.ends(t, w, sql.LevelDefault, driver.Guarded)
		commit(t, tx)
		s.renew(t, driver.Gone, w.renew(minute))
		s.release(t, false, w.release())
		s.quiet(t, name)
	},

	"a transaction that ends a term serves nobody, and an awaited release after it does": func(t *testing.T, s *suite, name string) {
		w, a, b := s.take(t, writer(name)), writer(name), writer(name)
		wait(t, s.store, a, 0)
		wait(t, s.other, b, 1)
		commit(t, s.ends(t, w, sql.LevelDefault, driver.Awaited))
		if r := s.look(t, name); r.Held() || s.claims(t, name) != 2 {
			t.Errorf("%+v", r)
		}
		r := w.release()
		r.Awaited, r.Guarded = true, true
		res, err := s.store.Release(t.Context(), []driver.ReleaseRequest{r})
		if err != nil || res[0].Freed || len(res[0].Next) != 1 || res[0].Next[0].Acq != a.Acq || res[0].Next[0].Version <= w.Version {
			t.Fatalf("Release = %+v, %v", res, err)
		}
		h := has(t, s.store, a, minute)
		commit(t, s.ends(t, h, sql.LevelDefault, driver.Awaited))
		abandon(t, s.store, h.AcquireRequest) // an Unlock that does not know what became of the transaction
		h = has(t, s.other, b, handed)
		end(t, s.other, h)
		s.quiet(t, name)
	},

	"those who wait find a name that a transaction has left, by themselves": func(t *testing.T, s *suite, name string) {
		w, a := s.take(t, writer(name)), writer(name)
		wait(t, s.other, a, 0)
		commit(t, s.ends(t, w, sql.LevelDefault, driver.Awaited))
		r := enqueue(t, s.other, a)[0]
		if !r.Granted || r.Version <= w.Version || r.Crashed != (driver.Holder{}) {
			t.Fatalf("%+v", r)
		}
		end(t, s.other, held{a, r})
		s.quiet(t, name)
	},

	"a transaction ends no other term": func(t *testing.T, s *suite, name string) {
		w := s.take(t, writer(name))
		for what, h := range map[string]func(*held){
			"of another acquisition": func(h *held) { h.Acq = newID() },
			"with another token":     func(h *held) { h.Version++ },
			"of another name":        func(h *held) { h.Name += " not" },
		} {
			other := w
			h(&other)
			_ = s.ends(t, other, sql.LevelDefault, driver.Fenced).Rollback()
			if r := s.look(t, name); r.Holder.Acq != w.Acq {
				t.Errorf("%s: %+v", what, r)
			}
		}
		a := s.take(t, reader(name+"-shared"))
		_ = s.ends(t, a, sql.LevelDefault, driver.Fenced).Rollback()
		s.renew(t, driver.Renewed, w.renew(minute))
		s.release(t, true, w.release())
		s.release(t, true, a.release())
	},

	"a transaction keeps the name for its minimum hold time": func(t *testing.T, s *suite, name string) {
		w := s.take(t, writer(name))
		tx := s.beginLevel(t, sql.LevelDefault)
		req := w.endRequest()
		req.MinHold = hour
		if status, err := s.store.Guard(t.Context(), tx, req); status != driver.Guarded {
			t.Fatal(status, err)
		}
		commit(t, tx)
		if r := s.look(t, name); r.Held() || r.Gate < r.Now+(hour-minute).Microseconds() {
			t.Errorf("%+v", r)
		}
		s.lose(t, writer(name))
		if _, err := s.store.Revoke(t.Context(), []driver.RevokeRequest{{Name: name}}); err != nil {
			t.Error(err)
		}
	},
}

// endRequest asks to end a term in a transaction.
func (h held) endRequest() driver.GuardRequest {
	return driver.GuardRequest{Name: h.Name, Acq: h.Acq, Version: h.Version, Ends: true}
}

// ends begins a transaction, guards a term in it and ends it, and returns the transaction.
func (s *suite) ends(t *testing.T, h held, level sql.IsolationLevel, want driver.GuardStatus) *sql.Tx {
	t.Helper()
	tx := s.beginLevel(t, level)
	req := h.endRequest()
	if status, err := s.store.Guard(t.Context(), tx, req); err != nil || status != want {
		t.Fatalf("%s: %v, %v, want %v", h.Name, status, err, want)
	}
	return tx
}

func (s *suite) beginLevel(t *testing.T, level sql.IsolationLevel) *sql.Tx {
	t.Helper()
	tx, err := s.store.Begin(t.Context(), &sql.TxOptions{Isolation: level})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = tx.Rollback() })
	return tx
}

func commit(t *testing.T, tx *sql.Tx) {
	t.Helper()
	if err := tx.Commit(); err != nil {
		t.Fatal(err)
	}
}

// endTermRowTests are for databases that lock rows.
var endTermRowTests = map[string]func(*testing.T, *suite, string){
	"who ends a term in a transaction waits for nobody, and nobody parks behind him": func(t *testing.T, s *suite, name string) {
		for _, level := range []sql.IsolationLevel{sql.LevelRepeatableRead, sql.LevelSerializable} {
			w, beside := s.take(t, writer(fmt.Sprintf("%s-%s", name, level))), s.take(t, writer(fmt.Sprintf("%s-%s-beside", name, level)))
			tx := s.beginLevel(t, level)
			if status, err := s.store.Guard(t.Context(), tx, driver.GuardRequest{Name: w.Name, Acq: w.Acq, Version: w.Version}); status != driver.Guarded {
				t.Fatal(status, err)
			}
			s.soon(t, func() { _ = s.ends(t, w, level, driver.PassedOver).Rollback() })
			s.soon(t, func() {
				if status, err := s.store.Guard(t.Context(), tx, w.endRequest()); status != driver.Guarded {
					t.Fatal(status, err)
				}
			})
			s.soon(t, func() { _ = s.ends(t, w, level, driver.PassedOver).Rollback() })
			s.soon(t, func() {
				res, err := s.store.Renew(t.Context(), []driver.RenewRequest{w.renew(minute), beside.renew(minute)}, false)
				if err != nil || res.Status[0] != driver.Busy || res.Status[1] != driver.Renewed {
					t.Errorf("%v: Renew = %+v, %v", level, res, err)
				}
			})
			s.soon(t, func() { s.lose(t, writer(w.Name)) })
			s.soon(t, func() { end(t, s.store, s.take(t, writer(w.Name+"-new"))) })
			commit(t, tx)
			s.renew(t, driver.Gone, w.renew(minute))
			s.release(t, true, beside.release())
			s.quiet(t, w.Name)
		}
	},
}
