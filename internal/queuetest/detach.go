package queuetest

import (
	"testing"
	"time"

	"github.com/sqllock/sqllock/driver"
)

// detachTests are about terms that are given away, and adopted.
var detachTests = map[string]func(*testing.T, *suite, string){
	"a detached term is adopted past the queue, once, with a higher token": func(t *testing.T, s *suite, name string) {
		r := writer(name)
		r.Value = []byte("old")
		first, a, key := s.take(t, r), writer(name), newID()
		wait(t, s.store, a, 0)
		s.detach(t, first, key)
		s.leavesNoTrace(t, name, func() { s.detach(t, first, key) }) // its reply was lost
		row := s.look(t, name)
		if !row.Detached || row.Holder.Acq != key || row.Holder.Owner != "" || row.Holder.Label != "test" || row.Holder.Version != first.Version ||
			string(row.Value) != "old" {
			t.Errorf("%+v", row)
		}
		s.renew(t, driver.Gone, first.renew(minute))
		s.release(t, false, first.release())
		s.lose(t, writer(name))
		wait(t, s.store, a, 0)
		next := s.adopt(t, s.other, name, key)
		if row := s.look(t, name); row.Detached || row.Holder.Owner != next.Owner || row.Holder.Version != next.Version || next.Version <= first.Version ||
			len(row.Value) != 0 {
			t.Errorf("%+v after %+v", row, first.AcquireResult)
		}
		s.leavesNoTrace(t, name, func() {
			if again := adoption(t, s.store, next.AcquireRequest, key); !again.Granted || !again.Found || again.Version != next.Version {
				t.Errorf("repeated: %+v", again)
			}
			if other := adoption(t, s.store, writer(name), key); other.Granted || other.Version != 0 {
				t.Errorf("adopted twice: %+v", other)
			}
		})
		end(t, s.other, next)
		has(t, s.store, a, handed)
	},

	"only the term that is held is detached": func(t *testing.T, s *suite, name string) {
		first := s.take(t, writer(name))
		right := first.detach(newID())
		refused := func(what string, change func(*driver.ReleaseRequest)) {
			t.Helper()
			r := right
			change(&r)
			s.leavesNoTrace(t, name, func() { s.release(t, false, r) })
		}
		refused("another acquisition", func(r *driver.ReleaseRequest) { r.Acq = newID() })
		refused("another version", func(r *driver.ReleaseRequest) { r.Version++ })
		refused("a name that is not known", func(r *driver.ReleaseRequest) { r.Name += "x" })
		s.expire(t, first)
		refused("a term that has expired", func(*driver.ReleaseRequest) {})
		shared := s.take(t, reader(name+"2"))
		right = shared.detach(newID())
		refused("a reader", func(*driver.ReleaseRequest) {})
	},

	"only a detached term that goes on is adopted": func(t *testing.T, s *suite, name string) {
		first, key := s.take(t, writer(name)), newID()
		refused := func(name string, key driver.ID) {
			t.Helper()
			s.leavesNoTrace(t, name, func() {
				if res := adoption(t, s.other, writer(name), key); res.Granted || res.Version != 0 || res.Now == 0 {
					t.Errorf("%+v", res)
				}
			})
		}
		refused(name, key)
		refused(name+"x", key)
		s.detach(t, first, key)
		refused(name, newID())
		s.exec(t, `UPDATE {lock} SET expires_at = {now} - 1000 WHERE name = '`+name+`'`)
		refused(name, key)
	},

	"a detached term that nobody adopts expires without a crash, and the first waiter gets the name": func(t *testing.T, s *suite, name string) {
		for _, sweeps := range []bool{false, true} {
			first, a, key := s.take(t, writer(name)), writer(name), newID()
			wait(t, s.store, a, 0)
			s.detach(t, first, key)
			s.exec(t, `UPDATE {lock} SET expires_at = {now} - 1000 WHERE name = '`+name+`'`)
			if sweeps {
				if crashed := s.crashed(t, name); len(crashed) != 0 {
					t.Errorf("crashed: %+v", crashed)
				}
			}
			next := enqueue(t, s.store, a)[0]
			if !next.Granted || next.Version <= first.Version || next.Crashed != (driver.Holder{}) {
				t.Errorf("%+v after %+v", next, first.AcquireResult)
			}
			end(t, s.store, held{a, next})
		}
	},

	"a detached term is revoked, and withdrawn by its key": func(t *testing.T, s *suite, name string) {
		first, key := s.take(t, writer(name)), newID()
		s.detach(t, first, key)
		s.revoke(t, name, key)
		if res := adoption(t, s.other, writer(name), key); res.Granted {
			t.Errorf("%+v", res)
		}
		second, a := s.take(t, writer(name)), writer(name)
		wait(t, s.store, a, 0)
		s.detach(t, second, key)
		abandon(t, s.store, driver.AcquireRequest{Name: name, Acq: key})
		has(t, s.store, a, minute)
	},

	"a token rises with an adoption though the clock went back": func(t *testing.T, s *suite, name string) {
		first, key := s.take(t, writer(name)), newID()
		s.exec(t, `UPDATE {lock} SET version = {now} + 3600000000 WHERE name = '`+name+`'`)
		first.Version = s.look(t, name).Holder.Version
		s.detach(t, first, key)
		if next := s.adopt(t, s.other, name, key); next.Version != first.Version+1 {
			t.Errorf("%d after %d", next.Version, first.Version)
		}
	},
}

// detachRowTests are for databases in which a guard locks a row.
var detachRowTests = map[string]func(*testing.T, *suite, string){
	"a guard keeps a term from being detached and adopted": func(t *testing.T, s *suite, name string) {
		first, key := s.take(t, writer(name)), newID()
		tx, err := s.store.Begin(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = tx.Rollback() }()
		if status, err := s.store.Guard(t.Context(), tx, driver.GuardRequest{Name: name, Acq: first.Acq, Version: first.Version}); status != driver.Guarded {
			t.Fatal(status, err)
		}
		guarded := first.detach(key)
		guarded.Guarded = true
		s.again(t, "Release that detaches", func() error {
			_, err := s.store.Release(t.Context(), []driver.ReleaseRequest{guarded})
			return err
		})
		s.detach(t, first, key) // by one that does not know of the guard
		adopter := writer(name)
		s.again(t, "Acquire that adopts", func() error {
			_, err := s.other.Acquire(t.Context(), []driver.AcquireRequest{adopts(adopter, key)})
			return err
		})
		if row := s.look(t, name); row.Holder.Version != first.Version || !row.Detached {
			t.Errorf("%+v", row)
		}
		_ = tx.Rollback()
		if res := adoption(t, s.other, adopter, key); !res.Granted || res.Version <= first.Version {
			t.Errorf("%+v", res)
		}
	},
}

// again checks that a call fails, as it does when it may succeed later.
func (s *suite) again(t *testing.T, what string, call func() error) {
	t.Helper()
	if err := call(); err == nil || s.Classify(err) != driver.Again {
		t.Errorf("%s of a term that is guarded: %v", what, err)
	}
}

// detach is the request that detaches a lease.
func (h held) detach(key driver.ID) driver.ReleaseRequest {
	r := h.release()
	r.Shared, r.To, r.TTL = false, key, minute
	return r
}

// detach detaches a lease.
func (s *suite) detach(t *testing.T, h held, key driver.ID) {
	t.Helper()
	s.release(t, true, h.detach(key))
}

func adopts(r driver.AcquireRequest, key driver.ID) driver.AcquireRequest {
	r = atOnce(r)
	r.Adopts = key
	return r
}

func adoption(t *testing.T, store driver.Store, r driver.AcquireRequest, key driver.ID) driver.AcquireResult {
	t.Helper()
	res, err := store.Acquire(t.Context(), []driver.AcquireRequest{adopts(r, key)})
	if err != nil || len(res) != 1 {
		t.Fatalf("Acquire = %+v, %v", res, err)
	}
	return res[0]
}

// adopt adopts a detached term.
func (s *suite) adopt(t *testing.T, store driver.Store, name string, key driver.ID) held {
	t.Helper()
	r := writer(name)
	res := adoption(t, store, r, key)
	if !res.Granted || res.Found || res.Version <= 0 || res.Remaining != time.Minute || res.Crashed != (driver.Holder{}) {
		t.Fatalf("Acquire that adopts = %+v", res)
	}
	return held{r, res}
}
