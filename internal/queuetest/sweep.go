package queuetest

import (
	"testing"
	"time"

	"github.com/sqllock/sqllock/driver"
)

// sweepTests are about readers that do not release.
var sweepTests = map[string]func(*testing.T, *suite, string){
	"a crashed reader is found although a later one has released": func(t *testing.T, s *suite, name string) {
		short, long := s.take(t, reader(name)), reader(name)
		long.TTL = time.Hour
		s.release(t, true, s.take(t, long).release())
		s.expire(t, short)
		if c := s.count(t, name); c.holding != 1 || c.live != 0 {
			t.Fatalf("%+v", c)
		}
		w := s.take(t, writer(name))
		if w.Version <= short.Version || w.Crashed.Acq != short.Acq || w.Crashed.Owner != short.Owner || !w.Crashed.Shared {
			t.Errorf("%+v", w.AcquireResult)
		}
		if crashed := s.crashed(t, name); len(crashed) > 0 {
			t.Errorf("the crash was reported again: %+v", crashed)
		}
		if c := s.count(t, name); c != (count{}) {
			t.Errorf("%+v", c)
		}
		s.release(t, false, short.release())
		s.renew(t, driver.Renewed, w.renew(minute))
	},

	"a loser learns when the last live reader expires": func(t *testing.T, s *suite, name string) {
		crashed, a, long := s.take(t, reader(name)), s.take(t, reader(name)), reader(name)
		long.TTL = time.Hour
		s.release(t, true, s.take(t, long).release())
		s.expire(t, crashed)
		s.leavesNoTrace(t, name, func() {
			r := s.lose(t, writer(name))
			if left := time.Duration(r.Holder.Until-r.Now) * time.Microsecond; left > minute || !r.Holder.Shared || r.Crashed != (driver.Holder{}) {
				t.Errorf("%v left, %+v", left, r)
			}
		})
		s.renew(t, driver.Renewed, a.renew(2*minute))
		s.leavesNoTrace(t, name, func() { s.lose(t, writer(name)) })
		s.release(t, true, a.release())
		if w := s.take(t, writer(name)); w.Crashed.Acq != crashed.Acq {
			t.Errorf("%+v", w)
		}
	},

	"a sweep reports each expired reader once": func(t *testing.T, s *suite, name string) {
		a, b := s.take(t, reader(name)), s.take(t, reader(name))
		s.leavesNoTrace(t, name, func() {
			if crashed := s.crashed(t, name); len(crashed) > 0 {
				t.Errorf("nobody has crashed: %+v", crashed)
			}
		})
		s.expire(t, a)
		crashed := s.crashed(t, name)
		if len(crashed) != 1 {
			t.Fatalf("%+v", crashed)
		}
		if h := crashed[0]; h.Acq != a.Acq || h.Owner != a.Owner || h.Label == "" || h.Version != a.Version || h.Since == 0 || h.Until <= h.Since-minute.Microseconds() || !h.Shared {
			t.Errorf("the result names %+v", h)
		}
		s.counts(t, name, 1)
		s.release(t, false, a.release())
		s.renew(t, driver.Gone, a.renew(minute))
		s.counts(t, name, 1)
		s.expire(t, b)
		if crashed := s.crashed(t, name); len(crashed) != 1 || crashed[0].Acq != b.Acq {
			t.Errorf("the result names %+v", crashed)
		}
		if crashed := s.crashed(t, name); len(crashed) > 0 {
			t.Errorf("the crash was reported again: %+v", crashed)
		}
		if r := s.look(t, name); r.Held() || r.Ended != driver.EndedExpired || r.Holder.Until > r.Now || r.Holder.Until < a.Now-minute.Microseconds() {
			t.Errorf("%+v", r)
		}
		if c := s.count(t, name); c != (count{}) {
			t.Errorf("%+v", c)
		}
		if w := s.take(t, writer(name)); w.Crashed != (driver.Holder{}) {
			t.Errorf("the crash was reported again: %+v", w.Crashed)
		}
	},

	"a sweep deletes a name whose readers expired long ago": func(t *testing.T, s *suite, name string) {
		a := s.take(t, reader(name))
		s.exec(t, `UPDATE {lock} SET version = 1 WHERE name = '`+name+`'`)
		s.exec(t, `UPDATE {claim} SET token = 1, expires_at = 1 WHERE name = '`+name+`'`)
		crashed := append(s.crashed(t, name), s.crashed(t, name)...)
		if len(crashed) != 1 || crashed[0].Acq != a.Acq {
			t.Errorf("the result names %+v", crashed)
		}
		if r := s.look(t, name); r.Holder.Version != 0 {
			t.Errorf("%+v", r)
		}
		if left := s.dump(t, name); left != "" {
			t.Errorf("left over: %s", left)
		}
		b := s.take(t, reader(name))
		s.exec(t, `UPDATE {lock} SET version = 1 WHERE name = '`+name+`'`)
		s.exec(t, `UPDATE {claim} SET token = 1 WHERE name = '`+name+`'`)
		s.leavesNoTrace(t, name, func() { s.crashed(t, name) }) // it is held
		b.Version = 1
		s.release(t, true, b.release())
	},
}
