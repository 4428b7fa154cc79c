package queuetest

import (
	"testing"

	"github.com/sqllock/sqllock/driver"
)

// readerTests are about readers and the queue.
var readerTests = map[string]func(*testing.T, *suite, string){
	"a writer that waits stops new readers": func(t *testing.T, s *suite, name string) {
		a, w, b := enter(t, s.store, reader(name)), writer(name), reader(name)
		if r := wait(t, s.store, w, 0); !r.Holder.Shared || r.Holder.Version != a.Version || r.Holder.Until <= r.Now || r.Holder.Acq != (driver.ID{}) {
			t.Errorf("the result names %+v", r.Holder)
		}
		s.lose(t, reader(name))
		wait(t, s.store, b, 1)
		second := pass(t, s.store, a, w)[0]
		third := pass(t, s.store, second, b)[0]
		if c := enter(t, s.other, reader(name)); c.Version != third.Version {
			t.Errorf("%d beside %d", c.Version, third.Version)
		}
	},

	"waiting readers are granted together, up to the next writer": func(t *testing.T, s *suite, name string) {
		first := s.take(t, writer(name))
		a, b, c, w, d := reader(name), reader(name), reader(name), writer(name), reader(name)
		dead, gone, third := writer(name), reader(name), s.open(t)
		enqueue(t, s.store, a)
		enqueue(t, third, dead, gone)
		wait(t, s.other, b, 1)
		enqueue(t, s.store, c, w, d)
		s.die(t, dead)
		wait(t, s.store, c, 1)
		next := pass(t, s.store, first, a, c)
		if h := has(t, s.other, b, handed); h.Version != next[0].Version {
			t.Errorf("%d beside %d", h.Version, next[0].Version)
		}
		s.counts(t, name, 3)
		if r := s.look(t, name); r.Readers != 3 || r.Holder.Version != next[0].Version || !r.Holder.Shared {
			t.Errorf("%+v", r)
		}
		wait(t, s.store, w, 0)
		wait(t, s.store, d, 1)
		end(t, s.store, next[0]) // the others stay
		end(t, s.other, has(t, s.other, b, handed))
		wait(t, s.store, w, 0)
		exclusive := pass(t, s.store, next[1], w)[0]
		last := pass(t, s.store, exclusive, d)[0]
		end(t, s.store, last)
		s.forget(t, dead)
		s.sweep(t)
		s.quiet(t, name)
	},

	"readers of one batch release together": func(t *testing.T, s *suite, name string) {
		a, b, w := enter(t, s.store, reader(name)), enter(t, s.store, reader(name)), writer(name)
		wait(t, s.store, w, 0)
		res, err := s.store.Release(t.Context(), []driver.ReleaseRequest{a.release(), b.release()})
		if err != nil || !res[0].Freed || !res[1].Freed {
			t.Fatal(res, err)
		}
		if next := append(res[0].Next, res[1].Next...); len(next) != 1 || next[0].Acq != w.Acq || next[0].Version <= a.Version {
			t.Errorf("%+v", next)
		}
		has(t, s.store, w, minute)
	},

	"waiting readers join others when the writer leaves the queue": func(t *testing.T, s *suite, name string) {
		a, w, b, c := enter(t, s.store, reader(name)), writer(name), reader(name), reader(name)
		enqueue(t, s.store, w, b)
		wait(t, s.other, c, 1)
		abandon(t, s.store, w)
		for _, h := range []held{has(t, s.store, b, minute), has(t, s.other, c, handed)} {
			if h.Version != a.Version {
				t.Errorf("%d beside %d", h.Version, a.Version)
			}
		}
		s.counts(t, name, 3)
		s.take(t, reader(name)) // the queue is empty
	},

	"waiting readers join others when the claim of the writer has expired": func(t *testing.T, s *suite, name string) {
		a, other := enter(t, s.store, reader(name)), enter(t, s.store, reader(name))
		w, b, c, third := writer(name), reader(name), reader(name), s.open(t)
		enqueue(t, third, w)
		enqueue(t, s.store, b, c)
		s.die(t, w)
		next := free(t, s.store, other.release())
		if len(next) != 2 || next[0].Version != a.Version || next[1].Version != a.Version {
			t.Errorf("%+v", next)
		}
		for _, r := range []driver.AcquireRequest{b, c} {
			if h := has(t, s.store, r, minute); h.Version != a.Version {
				t.Errorf("%d beside %d", h.Version, a.Version)
			}
		}
		d := reader(name)
		s.revive(t, w)
		wait(t, third, w, 0)
		wait(t, s.store, d, 1)
		s.die(t, w)
		if h := enqueue(t, s.store, d)[0]; !h.Granted || h.Version != a.Version {
			t.Errorf("%+v", h)
		}
	},

	"a waiting reader does not keep other readers off": func(t *testing.T, s *suite, name string) {
		first, a, b := s.take(t, writer(name)), reader(name), reader(name)
		wait(t, s.store, a, 0)
		wait(t, s.other, b, 1)
		s.expire(t, first)
		r := enqueue(t, s.other, b)[0]
		if !r.Granted || r.Version <= first.Version {
			t.Errorf("%+v", r)
		}
		if r2 := enqueue(t, s.store, a)[0]; !r2.Granted || r2.Version != r.Version {
			t.Errorf("%+v beside %+v", r2, r)
		}
		s.counts(t, name, 2)
		if n := s.claims(t, name); n != 0 {
			t.Errorf("%d claims are left", n)
		}
	},

	"a reader that gives up after it was let in leaves the others": func(t *testing.T, s *suite, name string) {
		first, a, b, w := s.take(t, writer(name)), reader(name), reader(name), writer(name)
		enqueue(t, s.store, a, b)
		wait(t, s.other, w, 1)
		next := pass(t, s.store, first, a, b)
		abandon(t, s.store, a)
		s.counts(t, name, 1)
		wait(t, s.other, w, 0)
		s.renew(t, driver.Renewed, next[1].renew(minute))
		abandon(t, s.store, b)
		has(t, s.other, w, handed)
	},

	"readers that have expired do not count": func(t *testing.T, s *suite, name string) {
		dead, a, w := enter(t, s.store, reader(name)), enter(t, s.store, reader(name)), writer(name)
		wait(t, s.store, w, 0)
		s.expire(t, dead)
		second := pass(t, s.store, a, w)[0]
		if res, err := s.store.Release(t.Context(), []driver.ReleaseRequest{dead.release()}); err != nil || res[0].Freed {
			t.Errorf("%+v, %v", res, err)
		}
		has(t, s.store, w, minute)
		b, c := reader(name), reader(name)
		enqueue(t, s.store, b, c)
		next := pass(t, s.store, second, b, c)
		abandon(t, s.store, dead.AcquireRequest)
		s.counts(t, name, 2)
		end(t, s.store, next[0])
		end(t, s.store, next[1])
	},

	"readers that have expired leave nothing behind": func(t *testing.T, s *suite, name string) {
		dead, a, w := enter(t, s.store, reader(name)), enter(t, s.store, reader(name)), writer(name)
		wait(t, s.store, w, 0)
		s.expire(t, dead)
		end(t, s.store, pass(t, s.store, a, w)[0])
		s.quiet(t, name)
	},

	"a reader that expires among others is counted out once": func(t *testing.T, s *suite, name string) {
		dead, a, w := enter(t, s.store, reader(name)), enter(t, s.store, reader(name)), writer(name)
		b := reader(name)
		enqueue(t, s.store, w, b)
		s.expire(t, dead)
		abandon(t, s.store, w) // b enters beside a
		has(t, s.store, b, minute)
		abandon(t, s.store, dead.AcquireRequest)
		end(t, s.store, a)
		wait(t, s.store, writer(name), 0) // b is still there
		if c := s.count(t, name); c.live != 1 {
			t.Errorf("%+v", c)
		}
	},
}
