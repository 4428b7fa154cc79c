package queuetest

import (
	"slices"
	"testing"

	"github.com/sqllock/sqllock/driver"
)

// revokeTests are about terms that others end, and about sweeps of queues.
var revokeTests = map[string]func(*testing.T, *suite, string){
	"a name that is revoked goes to the first waiter": func(t *testing.T, s *suite, name string) {
		first, a, b := s.take(t, writer(name)), writer(name), writer(name)
		enqueue(t, s.store, a)
		enqueue(t, s.other, b)
		s.revoke(t, name, first.Acq)
		second := has(t, s.store, a, minute)
		if r := s.look(t, name); second.Version <= first.Version+1 || r.Revoked != first.Version || r.Holder.Acq != a.Acq {
			t.Errorf("%+v after %+v: %+v", second.AcquireResult, first.AcquireResult, r)
		}
		renew := driver.RenewRequest{Name: name, Acq: first.Acq, Version: first.Version, TTL: minute}
		if res, err := s.store.Renew(t.Context(), []driver.RenewRequest{renew}, false); err != nil || res.Status[0] != driver.Revoked {
			t.Errorf("%+v, %v", res, err)
		}
		s.revoke(t, name, a.Acq)
		has(t, s.other, b, handed)
		s.revoke(t, name, b.Acq)
		if r := s.look(t, name); r.Held() || r.Ended != driver.EndedRevoked {
			t.Errorf("%+v", r)
		}
		s.quiet(t, name)
	},

	"a name that is revoked from readers goes to the first waiter": func(t *testing.T, s *suite, name string) {
		a, b, w := enter(t, s.store, reader(name)), enter(t, s.other, reader(name)), writer(name)
		wait(t, s.store, w, 0)
		s.revoke(t, name, driver.ID{})
		h := has(t, s.store, w, minute)
		if h.Version <= a.Version+1 {
			t.Errorf("%d after %d", h.Version, a.Version)
		}
		for _, r := range []held{a, b} {
			if res, err := s.store.Release(t.Context(), []driver.ReleaseRequest{r.release()}); err != nil || res[0].Freed {
				t.Errorf("%+v, %v", res, err)
			}
		}
	},

	"a revocation ends a minimum hold time, and the first waiter gets the name": func(t *testing.T, s *suite, name string) {
		first, a := s.take(t, writer(name)), writer(name)
		wait(t, s.store, a, 0)
		r := first.release()
		r.MinHold = hour
		free(t, s.store, r)
		s.revoke(t, name, driver.ID{})
		has(t, s.store, a, minute)
	},

	"a term that its holder had released is not told that it was revoked": func(t *testing.T, s *suite, name string) {
		for _, waits := range []bool{false, true} {
			first := s.take(t, writer(name))
			r := first.release()
			r.MinHold = hour
			free(t, s.store, r)
			a := writer(name)
			if waits {
				wait(t, s.store, a, 0)
			}
			s.revoke(t, name, driver.ID{})
			if row := s.look(t, name); row.Revoked == first.Version {
				t.Errorf("with a waiter (%v): %+v after %+v", waits, row, first.AcquireResult)
			}
			if waits {
				has(t, s.store, a, minute)
			}
		}
	},

	"a request to revoke a term leaves the next one alone": func(t *testing.T, s *suite, name string) {
		old := s.take(t, writer(name))
		free(t, s.store, old.release())
		next := s.take(t, writer(name))
		s.leavesNoTrace(t, name, func() {
			res, err := s.store.Revoke(t.Context(), []driver.RevokeRequest{{Name: name, Version: old.Version}})
			if err != nil || res[0].Revoked || res[0].Row.Holder.Version != next.Version {
				t.Errorf("%+v, %v", res, err)
			}
		})
		res, err := s.store.Revoke(t.Context(), []driver.RevokeRequest{{Name: name, Version: next.Version}})
		if err != nil || !res[0].Revoked {
			t.Errorf("%+v, %v", res, err)
		}
	},

	"a name that only has waiters is not revoked": func(t *testing.T, s *suite, name string) {
		first, a, third := s.take(t, writer(name)), writer(name), s.open(t)
		wait(t, third, a, 0)
		s.die(t, a)
		end(t, s.store, first)
		s.leavesNoTrace(t, name, func() {
			if res, err := s.store.Revoke(t.Context(), []driver.RevokeRequest{{Name: name}}); err != nil || res[0].Revoked {
				t.Errorf("%+v, %v", res, err)
			}
		})
		enter(t, third, a)
	},

	"a sweep ends an expired holder, and the first waiter gets the name": func(t *testing.T, s *suite, name string) {
		first, a, b := s.take(t, writer(name)), writer(name), writer(name)
		enqueue(t, s.store, a, b)
		s.expire(t, first)
		crashed := func(c driver.Crash) bool { return c.Name == name && c.Holder.Acq == first.Acq }
		if res := s.sweep(t); !slices.ContainsFunc(res.Crashed, crashed) {
			t.Errorf("%+v", res)
		}
		if r := s.look(t, name); r.Holder.Acq != a.Acq || r.Holder.Version <= first.Version {
			t.Errorf("%+v", r)
		}
		wait(t, s.other, b, 0)
		if h := has(t, s.store, a, minute); h.Crashed != (driver.Holder{}) {
			t.Errorf("the crash was reported again: %+v", h.Crashed)
		}
	},

	"a sweep passes over the dead": func(t *testing.T, s *suite, name string) {
		first, a, b := s.take(t, writer(name)), writer(name), writer(name)
		enqueue(t, s.open(t), a)
		enqueue(t, s.store, b)
		s.expire(t, first)
		s.die(t, a)
		s.sweep(t)
		has(t, s.store, b, minute)
		if n := s.claims(t, name); n != 1 {
			t.Errorf("%d claims are left", n)
		}
	},

	"a sweep deletes claims whose Locker died long ago": func(t *testing.T, s *suite, name string) {
		s.take(t, writer(name))
		a, b, c := writer(name), writer(name), writer(name)
		enqueue(t, s.open(t), a)
		enqueue(t, s.open(t), b)
		enqueue(t, s.store, c)
		s.die(t, a, b)
		s.leavesNoTrace(t, name, func() { s.sweep(t) })
		s.forget(t, a)
		s.sweep(t)
		if n := s.claims(t, name); n != 2 {
			t.Errorf("%d claims are left", n)
		}
		s.leavesNoTrace(t, name, func() { s.sweep(t) })
	},

	"a sweep forgets Lockers that died long ago, and no other": func(t *testing.T, s *suite, name string) {
		first, a, b, c := s.take(t, writer(name)), writer(name), writer(name), writer(name)
		enqueue(t, s.store, a)
		enqueue(t, s.open(t), b)
		enqueue(t, s.open(t), c)
		s.die(t, b)
		s.forget(t, c)
		const lockers = `SELECT count(*) FROM {waiter} WHERE expires_at > {now} - 60000000`
		before := s.number(t, lockers)
		s.sweep(t)
		if all, now := s.number(t, `SELECT count(*) FROM {waiter}`), s.number(t, lockers); all != before || now != before {
			t.Errorf("%d Lockers are left, %d of them are not long dead; want %d", all, now, before)
		}
		pass(t, s.store, first, a)
	},

	"a sweep counts claims anew, and keeps a name that has some whatever its row says": func(t *testing.T, s *suite, name string) {
		first, a, b := s.take(t, writer(name)), writer(name), writer(name)
		enqueue(t, s.open(t), a)
		enqueue(t, s.open(t), b)
		s.die(t, a)
		s.forget(t, b)
		end(t, s.store, first)
		s.exec(t, `UPDATE {lock} SET waiting = 7, holding = 7 WHERE name = '`+name+`'`)
		s.sweep(t)
		s.consistent(t, name)
		s.exec(t, `UPDATE {lock} SET waiting = 0, version = 1, expires_at = 1 WHERE name = '`+name+`'`)
		s.leavesNoTrace(t, name, func() { s.sweep(t) })
		s.exec(t, `UPDATE {lock} SET waiting = 1 WHERE name = '`+name+`'`)
	},

	"a sweep keeps a name that has a waiter": func(t *testing.T, s *suite, name string) {
		first, a := s.take(t, writer(name)), writer(name)
		wait(t, s.open(t), a, 0)
		s.die(t, a)
		end(t, s.store, first)
		s.exec(t, `UPDATE {lock} SET version = 1, expires_at = 1 WHERE name = '`+name+`'`) // only the claim is left
		s.leavesNoTrace(t, name, func() { s.sweep(t) })
		s.forget(t, a)
		s.sweep(t)
		s.sweep(t)
		if r := s.look(t, name); r.Holder.Version != 0 || s.claims(t, name) != 0 {
			t.Errorf("%+v", r)
		}
		enter(t, s.store, a) // though the name is not known any more
	},
}

// revoke ends the term of a name that acq must hold, if acq is not zero.
func (s *suite) revoke(t *testing.T, name string, acq driver.ID) {
	t.Helper()
	res, err := s.store.Revoke(t.Context(), []driver.RevokeRequest{{Name: name}})
	if err != nil || len(res) != 1 || !res[0].Revoked || res[0].Row.Holder.Acq != acq {
		t.Fatalf("Revoke = %+v, %v", res, err)
	}
}
