package queuetest

import (
	"fmt"
	"testing"
	"time"

	"github.com/sqllock/sqllock/driver"
)

// sharedTermTests are about who holds a name together, and with which version.
var sharedTermTests = map[string]func(*testing.T, *suite, string){
	"readers hold a name together and keep writers off": func(t *testing.T, s *suite, name string) {
		a := s.take(t, reader(name))
		b := s.take(t, reader(name))
		if a.Version != b.Version || a.Found || b.Found || a.Remaining != minute || b.Remaining != minute {
			t.Errorf("%+v and %+v", a.AcquireResult, b.AcquireResult)
		}
		s.counts(t, name, 2)
		c := s.count(t, name)
		s.leavesNoTrace(t, name, func() {
			want := driver.Holder{Version: a.Version, Since: s.since(t, a), Until: c.last, Shared: true}
			if h := s.lose(t, writer(name)).Holder; h != want {
				t.Errorf("the result names %+v, want %+v", h, want)
			}
		})
		s.release(t, true, a.release())
		s.counts(t, name, 1)
		s.lose(t, writer(name))
		s.release(t, true, b.release())
		s.counts(t, name, 0)
		if r := s.look(t, name); r.Held() || r.Ended != driver.EndedReleased || r.Holder.Until < b.Now || r.Holder.Until > r.Now || r.Gate > r.Now {
			t.Errorf("released: %+v", r)
		}
		s.take(t, writer(name))
	},

	"many readers of one name enter and leave in one statement": func(t *testing.T, s *suite, name string) {
		const n = 20
		earlier := s.take(t, reader(name))
		enter := func(reqs []driver.AcquireRequest, version int64) (leave []driver.ReleaseRequest) {
			t.Helper()
			for i, r := range s.grants(t, reqs...) {
				if !r.Granted || r.Found != (reqs[i].Acq == earlier.Acq) || version != 0 && r.Version != version || r.Remaining > reqs[i].TTL ||
					r.Remaining < reqs[i].TTL-10*time.Second {
					t.Errorf("%+v", r)
				}
				version = r.Version
				leave = append(leave, held{reqs[i], r}.release())
			}
			return leave
		}
		readers := func(n int) (reqs []driver.AcquireRequest) {
			for i := range n {
				r := reader(name)
				r.TTL += time.Duration(i) * time.Second
				reqs = append(reqs, r)
			}
			return reqs
		}
		leave := enter(append(readers(n-1), earlier.AcquireRequest), earlier.Version) // one is repeated
		s.counts(t, name, n)
		s.lose(t, writer(name))
		s.release(t, true, leave[:n/2]...)
		s.counts(t, name, n-n/2)
		s.release(t, true, leave[n/2:]...)
		s.counts(t, name, 0)
		s.release(t, false, leave[:3]...)

		w := s.take(t, writer(name)) // an expired writer gives way, and is reported once
		s.expire(t, w)
		crashes := 0
		reqs := readers(n)
		for i, r := range s.grants(t, reqs...) {
			if !r.Granted || r.Version <= w.Version {
				t.Errorf("%+v", r)
			}
			if r.Crashed.Acq == w.Acq {
				crashes++
			}
			leave[i] = held{reqs[i], r}.release()
		}
		if crashes != 1 {
			t.Errorf("one crash is reported %d times", crashes)
		}
		s.counts(t, name, n)
		s.release(t, true, leave...)
		s.counts(t, name, 0)

		leave = enter(readers(n), 0) // a term that begins, of a name that has a row
		s.counts(t, name, n)
		s.release(t, true, leave...)
		leave = nil
		var fresh []driver.AcquireRequest
		for _, new := range []string{name + "/1", name + "/2"} {
			for range 3 {
				fresh = append(fresh, reader(new))
			}
		}
		for i, r := range s.grants(t, fresh...) {
			leave = append(leave, held{fresh[i], r}.release())
		}
		s.counts(t, name+"/1", 3)
		s.counts(t, name+"/2", 3)
		s.release(t, true, leave...)
	},

	"a writer keeps readers off": func(t *testing.T, s *suite, name string) {
		w := s.take(t, writer(name))
		s.leavesNoTrace(t, name, func() {
			r := s.lose(t, reader(name))
			if want := (driver.Holder{Acq: w.Acq, Owner: w.Owner, Label: r.Holder.Label, Version: w.Version, Since: w.Now, Until: w.Now + minute.Microseconds()}); r.Holder.Acq != want.Acq ||
				r.Holder.Owner != want.Owner || r.Holder.Version != want.Version || r.Holder.Shared {
				t.Errorf("the result names %+v, want %+v", r.Holder, want)
			}
		})
		s.release(t, true, w.release())
		s.take(t, reader(name))
	},

	"versions rise from term to term and are one in a shared one": func(t *testing.T, s *suite, name string) {
		last := int64(0)
		for range 3 {
			a, b := s.take(t, reader(name)), s.take(t, reader(name))
			s.release(t, true, a.release())
			c := s.take(t, reader(name))
			if a.Version <= last || b.Version != a.Version || c.Version != a.Version {
				t.Errorf("%d, %d and %d after %d", a.Version, b.Version, c.Version, last)
			}
			s.release(t, true, b.release(), c.release())
			w := s.take(t, writer(name))
			if w.Version <= a.Version {
				t.Errorf("the writer's %d after the readers' %d", w.Version, a.Version)
			}
			s.release(t, true, w.release())
			d := s.take(t, reader(name))
			s.release(t, true, d.release())
			last = d.Version
			if last <= w.Version {
				t.Errorf("a reader's %d after the writer's %d", last, w.Version)
			}
			// A clock that went back must not lower it.
			s.exec(t, `UPDATE {lock} SET version = version + 3600000000 WHERE name = '`+name+`'`)
			last += 3_600_000_000
		}
	},

	"readers that expired before a writer came leave nothing that could come back": func(t *testing.T, s *suite, name string) {
		for names := range 2 {
			var reqs []driver.AcquireRequest
			for i := range names + 1 {
				reqs = append(reqs, writer(fmt.Sprintf("%s-%d-%d", name, names, i)))
			}
			for i := range reqs {
				s.expire(t, s.take(t, reader(reqs[i].Name)))
			}
			for i, r := range s.grants(t, reqs...) {
				if !r.Granted {
					t.Fatalf("%+v", r)
				}
				w := held{reqs[i], r}
				s.counts(t, w.Name, 0)
				s.release(t, true, w.release())
				b := s.take(t, reader(w.Name))
				if b.Version <= w.Version {
					t.Errorf("a reader's %d after the writer's %d, of %d names", b.Version, w.Version, len(reqs))
				}
			}
		}
	},

	"a minimum hold time keeps readers off, beside other readers too": func(t *testing.T, s *suite, name string) {
		a, b := s.take(t, reader(name)), s.take(t, reader(name))
		r := a.release()
		r.MinHold = 30 * time.Second
		s.release(t, true, r)
		s.leavesNoTrace(t, name, func() {
			r := s.lose(t, reader(name))
			if left := time.Duration(r.Holder.Until-r.Now) * time.Microsecond; left < 20*time.Second || left > 30*time.Second ||
				r.Holder != (driver.Holder{Until: r.Holder.Until}) {
				t.Errorf("%+v", r)
			}
		})
		if r := s.look(t, name); r.Gate <= r.Now || r.Readers != 1 {
			t.Errorf("%+v", r)
		}
		s.exec(t, `UPDATE {lock} SET not_before = 1 WHERE name = '`+name+`'`)
		s.take(t, reader(name))
		s.release(t, true, b.release())
	},

	"a reader takes over from a writer that has expired": func(t *testing.T, s *suite, name string) {
		w := s.take(t, writer(name))
		s.expire(t, w)
		was := s.look(t, name).Holder
		a := s.take(t, reader(name))
		if a.Crashed != was || a.Crashed.Acq != w.Acq || a.Version <= w.Version {
			t.Errorf("%+v after %+v", a.AcquireResult, was)
		}
		if b := s.take(t, reader(name)); b.Crashed != (driver.Holder{}) || b.Version != a.Version {
			t.Errorf("the second: %+v", b.AcquireResult)
		}
		s.counts(t, name, 2)
		s.renew(t, driver.Gone, w.renew(minute))
		s.release(t, false, w.release())
		if r := s.look(t, name); r.Holder.Acq != (driver.ID{}) || r.Holder.Owner != "" || r.Holds != 0 {
			t.Errorf("%+v", r)
		}
	},

	"a writer takes over from readers that have expired": func(t *testing.T, s *suite, name string) {
		a, b := s.take(t, reader(name)), s.take(t, reader(name))
		s.expire(t, a)
		s.expire(t, b)
		w := s.take(t, writer(name))
		if w.Version <= a.Version {
			t.Errorf("%d after %d", w.Version, a.Version)
		}
		if c := w.Crashed; c.Acq != a.Acq && c.Acq != b.Acq || !c.Shared || c.Version != a.Version || c.Until > w.Now {
			t.Errorf("the result names %+v", c)
		}
		s.leavesNoTrace(t, name, func() { s.renew(t, driver.Gone, a.renew(time.Hour), b.renew(time.Hour)) })
		s.counts(t, name, 0)
		s.renew(t, driver.Renewed, w.renew(minute))
		s.release(t, true, w.release())
	},

	"a repeated request of a reader finds its lease": func(t *testing.T, s *suite, name string) {
		a := s.take(t, reader(name))
		b := s.take(t, reader(name))
		time.Sleep(5 * time.Millisecond)
		s.leavesNoTrace(t, name, func() {
			again := s.takeAgain(t, a.AcquireRequest)
			if !again.Found || again.Version != a.Version || again.Remaining >= minute || again.Remaining < minute/2 {
				t.Errorf("%+v", again.AcquireResult)
			}
		})
		// What it had is over: it is granted anew, and counted once.
		s.expire(t, a)
		again := s.takeAgain(t, a.AcquireRequest)
		if again.Found || again.Version != b.Version || again.Remaining != minute {
			t.Errorf("after its expiry: %+v", again.AcquireResult)
		}
		s.counts(t, name, 2)
		s.release(t, true, again.release(), b.release())
		s.counts(t, name, 0)
		// And once more, of a term that was succeeded.
		c := s.take(t, reader(name))
		s.expire(t, c)
		w := s.take(t, writer(name))
		s.release(t, true, w.release())
		if again := s.takeAgain(t, c.AcquireRequest); again.Found || again.Version <= w.Version {
			t.Errorf("after another's term: %+v", again.AcquireResult)
		}
		s.counts(t, name, 1)
	},
}
