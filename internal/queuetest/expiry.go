package queuetest

import (
	"testing"
	"time"

	"github.com/sqllock/sqllock/driver"
)

// expiryTests are about minimum hold times, and about holders and waiters that have expired.
var expiryTests = map[string]func(*testing.T, *suite, string){
	"the first waiter gets the name when the minimum hold time is over": func(t *testing.T, s *suite, name string) {
		first, a, b := s.take(t, writer(name)), writer(name), writer(name)
		enqueue(t, s.store, a, b)
		const hold = 5 * time.Second // the release comes sooner, also on a busy machine
		r := first.release()
		r.MinHold = hold
		if next := free(t, s.store, r); len(next) > 0 {
			t.Fatalf("%+v", next)
		}
		until := first.Now + hold.Microseconds()
		near := func(at int64) bool { return at >= until-100_000 && at <= until+100_000 }
		for began := time.Now(); ; time.Sleep(hold / 40) {
			late := enqueue(t, s.other, b)[0]
			r := enqueue(t, s.store, a)[0]
			if late.Granted || r.Granted && r.Now < until-100_000 {
				t.Fatalf("%+v and %+v, kept until %d", r, late, until)
			}
			if r.Granted {
				break
			}
			if r.Now < until && (r.Holder != driver.Holder{Until: r.Holder.Until} || !near(r.Holder.Until)) {
				t.Fatalf("the result names %+v, kept until %d", r.Holder, until)
			}
			if time.Since(began) > 10*hold {
				t.Fatalf("%+v, kept until %d", r, until)
			}
		}
	},

	"the first waiter takes over from an expired holder": func(t *testing.T, s *suite, name string) {
		first, a, b := s.take(t, writer(name)), writer(name), writer(name)
		enqueue(t, s.store, a)
		enqueue(t, s.other, b)
		s.expire(t, first)
		h := enter(t, s.store, a)
		if h.Version <= first.Version || h.Crashed.Acq != first.Acq || h.Crashed.Owner != first.Owner || h.Crashed.Version != first.Version {
			t.Errorf("%+v after %+v", h.AcquireResult, first.AcquireResult)
		}
		if res, err := s.store.Release(t.Context(), []driver.ReleaseRequest{first.release()}); err != nil || res[0].Freed {
			t.Errorf("%+v, %v", res, err)
		}
		if r := has(t, s.store, a, minute); r.Crashed != (driver.Holder{}) {
			t.Errorf("the crash was reported again: %+v", r.Crashed)
		}
		end(t, s.store, h)
		has(t, s.other, b, handed)
	},

	"expired claims do not keep the next waiter from a take-over": func(t *testing.T, s *suite, name string) {
		first, a, b, c := s.take(t, writer(name)), writer(name), writer(name), writer(name)
		enqueue(t, s.open(t), a)
		enqueue(t, s.store, b, c)
		s.expire(t, first)
		s.die(t, a)
		enter(t, s.store, b)
		if n := s.claims(t, name); n != 2 {
			t.Errorf("%d claims are left", n)
		}
	},

	"whoever waits hands the name of an expired holder to the first": func(t *testing.T, s *suite, name string) {
		first, a, b := s.take(t, writer(name)), writer(name), writer(name)
		enqueue(t, s.store, a)
		enqueue(t, s.other, b)
		s.expire(t, first)
		if r := wait(t, s.other, b, 0); r.Holder.Acq != a.Acq || r.Crashed.Acq != first.Acq {
			t.Errorf("%+v", r)
		}
		if h := has(t, s.store, a, handed); h.Crashed != (driver.Holder{}) {
			t.Errorf("the crash was reported again: %+v", h.Crashed)
		}
	},

	"a reader takes over, and a writer waits behind it": func(t *testing.T, s *suite, name string) {
		first, a, w := s.take(t, writer(name)), reader(name), writer(name)
		enqueue(t, s.store, a, w)
		s.expire(t, first)
		h := enter(t, s.store, a)
		if h.Crashed.Acq != first.Acq || h.Version <= first.Version {
			t.Errorf("%+v", h)
		}
		if r := wait(t, s.store, w, 0); !r.Holder.Shared {
			t.Errorf("the result names %+v", r.Holder)
		}
		s.lose(t, reader(name))
		pass(t, s.store, h, w)
	},

	"the first waiter takes over from expired readers": func(t *testing.T, s *suite, name string) {
		a, w := enter(t, s.store, reader(name)), writer(name)
		b := enter(t, s.store, reader(name))
		wait(t, s.store, w, 0)
		s.expire(t, a)
		s.leavesNoTrace(t, name, func() {
			if r := wait(t, s.store, w, 0); !r.Holder.Shared {
				t.Errorf("%+v", r)
			}
		})
		s.expire(t, b)
		h := enter(t, s.store, w)
		if h.Version <= a.Version || h.Crashed.Acq != a.Acq && h.Crashed.Acq != b.Acq || !h.Crashed.Shared {
			t.Errorf("%+v", h)
		}
	},

	"a queue is not shown as a minimum hold time": func(t *testing.T, s *suite, name string) {
		first, a := s.take(t, writer(name)), writer(name)
		wait(t, s.open(t), a, 0)
		if r := s.look(t, name); r.Gate > r.Now || r.Holder.Acq != first.Acq {
			t.Errorf("%+v", r)
		}
		s.die(t, a)
		end(t, s.store, first)
		s.sweep(t)
		page, err := s.store.Read(t.Context(), driver.ReadRequest{List: driver.ListRequest{After: name[:len(name)-1], Limit: 1, Free: true}})
		if err != nil || len(page.Rows) != 1 || page.Rows[0].Name != name || page.Rows[0].Gate > page.Rows[0].Now {
			t.Errorf("%+v, %v", page, err)
		}
	},
}
