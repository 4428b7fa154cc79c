package linetest

import (
	"testing"

	"github.com/sqllock/sqllock/driver"
)

// sharing is about those who hold a name together.
var sharing = map[string]func(*testing.T, *suite, string){
	"a writer that waits stops new readers": func(t *testing.T, s *suite, name string) {
		a, w, b := enter(t, s.store, reader(name)), writer(name), reader(name)
		if r := wait(t, s.store, w, 0); !r.Holder.Shared || r.Holder.Version != a.Version || r.Holder.Until <= r.Now || r.Holder.Acq != (driver.ID{}) {
			t.Errorf("told of %+v", r.Holder)
		}
		s.lose(t, reader(name))
		wait(t, s.store, b, 1)
		second := pass(t, s.store, a, w)[0]
		third := pass(t, s.store, second, b)[0]
		if c := enter(t, s.other, reader(name)); c.Version != third.Version {
			t.Errorf("%d beside %d", c.Version, third.Version)
		}
	},

	"readers who wait enter together, up to the next writer": func(t *testing.T, s *suite, name string) {
		first := s.take(t, writer(name))
		a, b, c, w, d := reader(name), reader(name), reader(name), writer(name), reader(name)
		dead, gone := writer(name), reader(name)
		line(t, s.store, a, dead, gone)
		wait(t, s.other, b, 3)
		line(t, s.store, c, w, d)
		s.die(t, dead, gone)
		wait(t, s.store, c, 2)
		next := pass(t, s.store, first, a, c)
		if h := has(t, s.other, b, handed); h.Version != next[0].Version {
			t.Errorf("%d beside %d", h.Version, next[0].Version)
		}
		if counted, live := s.readers(t, name); counted != 3 || live != 3 {
			t.Errorf("%d counted, %d live", counted, live)
		}
		if r := s.look(t, name); r.Readers != 3 || r.Holder.Version != next[0].Version || !r.Holder.Shared {
			t.Errorf("%+v", r)
		}
		wait(t, s.store, w, 0)
		wait(t, s.store, d, 1)
		end(t, s.store, next[0]) // the others stay
		end(t, s.other, has(t, s.other, b, handed))
		wait(t, s.store, w, 0)
		alone := pass(t, s.store, next[1], w)[0]
		last := pass(t, s.store, alone, d)[0]
		end(t, s.store, last)
		s.quiet(t, name)
	},

	"readers of one batch let go together": func(t *testing.T, s *suite, name string) {
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

	"readers enter beside others when the writer leaves the line": func(t *testing.T, s *suite, name string) {
		a, w, b, c := enter(t, s.store, reader(name)), writer(name), reader(name), reader(name)
		line(t, s.store, w, b)
		wait(t, s.other, c, 2)
		abandon(t, s.store, w)
		for _, h := range []held{has(t, s.store, b, minute), has(t, s.other, c, handed)} {
			if h.Version != a.Version {
				t.Errorf("%d beside %d", h.Version, a.Version)
			}
		}
		if counted, live := s.readers(t, name); counted != 3 || live != 3 {
			t.Errorf("%d counted, %d live", counted, live)
		}
		s.take(t, reader(name)) // there is no line any more
	},

	"readers enter beside others when the writer has died": func(t *testing.T, s *suite, name string) {
		a, other := enter(t, s.store, reader(name)), enter(t, s.store, reader(name))
		w, b, c := writer(name), reader(name), reader(name)
		line(t, s.store, w, b, c)
		s.die(t, w)
		next := free(t, s.store, other.release())
		if len(next) != 2 || next[0].Version != a.Version || next[1].Version != a.Version {
			t.Errorf("%+v", next)
		}
		for _, r := range []driver.TicketRequest{b, c} {
			if h := has(t, s.store, r, minute); h.Version != a.Version {
				t.Errorf("%d beside %d", h.Version, a.Version)
			}
		}
		d := reader(name)
		wait(t, s.store, w, 0)
		wait(t, s.store, d, 1)
		s.die(t, w)
		if h := line(t, s.store, d)[0]; !h.Granted || h.Version != a.Version {
			t.Errorf("%+v", h)
		}
	},

	"who shares stands in the way of nobody who does": func(t *testing.T, s *suite, name string) {
		first, a, b := s.take(t, writer(name)), reader(name), reader(name)
		wait(t, s.store, a, 0)
		wait(t, s.other, b, 1)
		s.expire(t, first)
		r := line(t, s.other, b)[0]
		if !r.Granted || r.Version <= first.Version {
			t.Errorf("%+v", r)
		}
		if r2 := line(t, s.store, a)[0]; !r2.Granted || r2.Version != r.Version {
			t.Errorf("%+v beside %+v", r2, r)
		}
		if counted, live := s.readers(t, name); counted != 2 || live != 2 || s.tickets(t, name) != 0 {
			t.Errorf("%d counted, %d live", counted, live)
		}
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
		line(t, s.store, b, c)
		next := pass(t, s.store, second, b, c)
		abandon(t, s.store, dead.TicketRequest)
		if counted, live := s.readers(t, name); counted != 2 || live != 2 {
			t.Errorf("%d counted, %d live", counted, live)
		}
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

	"a reader that dies in a crowd is not counted out twice": func(t *testing.T, s *suite, name string) {
		dead, a, w := enter(t, s.store, reader(name)), enter(t, s.store, reader(name)), writer(name)
		b := reader(name)
		line(t, s.store, w, b)
		s.expire(t, dead)
		abandon(t, s.store, w) // b enters beside a
		has(t, s.store, b, minute)
		abandon(t, s.store, dead.TicketRequest)
		end(t, s.store, a)
		wait(t, s.store, writer(name), 0) // b is still there
		if _, live := s.readers(t, name); live != 1 {
			t.Errorf("%d live", live)
		}
	},
}
