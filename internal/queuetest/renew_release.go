package queuetest

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/sqllock/sqllock/driver"
)

// renewTests are about renewals and releases by readers.
var renewTests = map[string]func(*testing.T, *suite, string){
	"a renewal extends what is held and never shortens it": func(t *testing.T, s *suite, name string) {
		a, b := s.take(t, reader(name)), s.take(t, reader(name))
		s.renew(t, driver.Renewed, a.renew(time.Hour))
		if n := s.number(t, `SELECT holds FROM {claim} WHERE owner = '`+a.Owner+`'`); n != 2 {
			t.Errorf("%d holds", n)
		}
		c := s.count(t, name)
		if left := time.Duration(c.last-a.Now) * time.Microsecond; left < time.Hour || c.live != 2 {
			t.Errorf("%+v: %v", c, left)
		}
		s.renew(t, driver.Renewed, a.renew(time.Second), b.renew(time.Second))
		if d := s.count(t, name); d != c {
			t.Errorf("%+v, was %+v", d, c)
		}
		other := a.renew(time.Hour)
		other.Acq = newID()
		later := a.renew(time.Hour)
		later.Version++
		exclusive := a.renew(time.Hour)
		exclusive.Shared = false
		s.leavesNoTrace(t, name, func() {
			s.renew(t, driver.Gone, other)
			s.renew(t, driver.Gone, later)
			s.renew(t, driver.Gone, exclusive)
		})
	},

	"a renewal of a writer extends it, never shortens it, and writes how often it is held": func(t *testing.T, s *suite, name string) {
		a := s.take(t, writer(name))
		for _, ttl := range []time.Duration{time.Hour, time.Second} {
			s.renew(t, driver.Renewed, a.renew(ttl))
			if r := s.look(t, name); r.Holder.Until < a.Now+time.Hour.Microseconds() || r.Holds != 2 {
				t.Errorf("renewed for %v: %+v", ttl, r)
			}
		}
		other, later, shared := a.renew(time.Hour), a.renew(time.Hour), a.renew(time.Hour)
		other.Acq, shared.Shared = newID(), true
		later.Version++
		s.leavesNoTrace(t, name, func() {
			for _, r := range []driver.RenewRequest{other, later, shared} {
				s.renew(t, driver.Gone, r)
			}
		})
		s.expire(t, a)
		s.leavesNoTrace(t, name, func() { s.renew(t, driver.Gone, a.renew(time.Hour)) })
	},

	"of two readers only the expired one is gone": func(t *testing.T, s *suite, name string) {
		a, b := s.take(t, reader(name)), s.take(t, reader(name))
		s.expire(t, a)
		s.renew(t, driver.Gone, a.renew(time.Hour))
		res, err := s.store.Renew(t.Context(), []driver.RenewRequest{a.renew(time.Hour), b.renew(2 * minute)}, false)
		if err != nil || !slices.Equal(res.Status, []driver.RenewStatus{driver.Gone, driver.Renewed}) {
			t.Errorf("%+v, %v", res, err)
		}
		if c := s.count(t, name); c.live != 1 {
			t.Errorf("%+v", c)
		}
		s.release(t, true, b.release())
		s.release(t, true, a.release()) // nobody has ended it as yet
		s.counts(t, name, 0)
	},

	"a paused reader of a former term changes nothing": func(t *testing.T, s *suite, name string) {
		paused := s.take(t, reader(name))
		long := paused
		for range 2 {
			s.expire(t, paused)
			w := s.take(t, writer(name))
			s.renew(t, driver.Gone, paused.renew(time.Hour))
			s.renew(t, driver.Renewed, w.renew(minute))
			s.release(t, true, w.release())
			a, b := s.take(t, reader(name)), s.take(t, reader(name))
			before := s.count(t, name)
			s.renew(t, driver.Gone, paused.renew(time.Hour))
			if now := s.count(t, name); now != before {
				t.Errorf("%+v, was %+v", now, before)
			}
			s.release(t, false, paused.release())
			s.counts(t, name, 2)
			abandon(t, s.store, paused.AcquireRequest)
			s.counts(t, name, 2)
			s.lose(t, writer(name))
			s.release(t, true, a.release())
			s.lose(t, writer(name))
			s.counts(t, name, 1)
			paused = b
		}
		s.release(t, false, long.release())
	},

	"abandoning a reader of an old term leaves the new one": func(t *testing.T, s *suite, name string) {
		paused := s.take(t, reader(name))
		s.expire(t, paused)
		s.take(t, reader(name))
		abandon(t, s.store, paused.AcquireRequest)
		s.counts(t, name, 1)
	},

	"only a holder is counted out": func(t *testing.T, s *suite, name string) {
		a, b := s.take(t, reader(name)), s.take(t, reader(name))
		other, later := a.release(), a.release()
		other.Acq, later.Version = newID(), a.Version+1
		another := a
		another.Acq = newID()
		s.leavesNoTrace(t, name, func() {
			s.release(t, false, other)
			s.release(t, false, later)
			abandon(t, s.store, another.AcquireRequest)
		})
		s.release(t, true, a.release())
		s.release(t, false, a.release())
		abandon(t, s.store, a.AcquireRequest)
		s.counts(t, name, 1)
		abandon(t, s.store, b.AcquireRequest)
		s.counts(t, name, 0)
		s.take(t, writer(name))
	},

	"a minimum hold time outlasts a release by a reader": func(t *testing.T, s *suite, name string) {
		a := s.take(t, reader(name))
		r := a.release()
		r.MinHold = 30 * time.Second
		s.release(t, true, r)
		h := s.lose(t, writer(name))
		if want := (driver.Holder{Until: a.Now + r.MinHold.Microseconds()}); h.Holder.Until < want.Until-1_000_000 || h.Holder.Until > want.Until+1_000_000 {
			t.Errorf("%+v, want %+v", h.Holder, want)
		}
	},

	"a minimum hold time outlasts releases by writers": func(t *testing.T, s *suite, name string) {
		for _, n := range []int{1, 3} {
			var reqs []driver.AcquireRequest
			var releases []driver.ReleaseRequest
			for i := range n {
				reqs = append(reqs, writer(fmt.Sprintf("%s-%d-%d", name, n, i)))
				r := s.take(t, reqs[i]).release()
				r.MinHold = 30 * time.Second
				releases = append(releases, r)
			}
			s.release(t, true, releases...)
			for _, r := range reqs {
				h := s.lose(t, writer(r.Name))
				if left := time.Duration(h.Holder.Until-h.Now) * time.Microsecond; h.Holder != (driver.Holder{Until: h.Holder.Until}) ||
					left < 20*time.Second || left > 30*time.Second {
					t.Errorf("of %d: %+v", n, h)
				}
			}
		}
	},

	"a minimum hold time outlasts an abandonment": func(t *testing.T, s *suite, name string) {
		for i, req := range []driver.AcquireRequest{writer(name), reader(name + "2")} {
			a := s.take(t, req)
			r := driver.ReleaseRequest{Name: a.Name, Acq: a.Acq, Shared: a.Shared, MinHold: 30 * time.Second}
			if _, err := s.store.Release(t.Context(), []driver.ReleaseRequest{r}); err != nil {
				t.Fatal(err)
			}
			h := s.lose(t, writer(a.Name)).Holder
			if left := time.Duration(h.Until-a.Now) * time.Microsecond; h != (driver.Holder{Until: h.Until}) || left < 29*time.Second || left > 31*time.Second {
				t.Errorf("request %d: %+v", i, h)
			}
		}
	},

	"batches mix readers and writers of any number": func(t *testing.T, s *suite, name string) {
		reqs := []driver.AcquireRequest{reader(name + "1"), writer(name + "2"), reader(name + "3"), writer(name + "4"), reader(name + "5")}
		first := s.take(t, reader(name+"3"))
		rival := s.take(t, writer(name+"5"))
		res := s.grants(t, reqs...)
		var renewals []driver.RenewRequest
		var releases []driver.ReleaseRequest
		for i, r := range res {
			if r.Granted != (i != 4) || i == 2 && r.Version != first.Version || i == 4 && r.Holder.Acq != rival.Acq {
				t.Fatalf("grant %d: %+v", i, r)
			}
			if i == 2 {
				renewals, releases = append(renewals, first.renew(time.Hour)), append(releases, first.release())
			}
			r.Version = max(r.Version, 1) // also of what was not granted
			h := held{reqs[i], r}
			renewals, releases = append(renewals, h.renew(time.Hour)), append(releases, h.release())
		}
		got, err := s.store.Renew(t.Context(), renewals, false)
		for i, status := range got.Status {
			if want := map[bool]driver.RenewStatus{true: driver.Gone, false: driver.Renewed}[i == 5]; status != want || err != nil {
				t.Errorf("renewal %d: %v, %v", i, status, err)
			}
		}
		s.counts(t, name+"3", 2)
		freed, err := s.store.Release(t.Context(), releases)
		for i, r := range freed {
			if r.Freed != (i != 5) || err != nil {
				t.Errorf("release %d: %+v, %v", i, r, err)
			}
		}
		s.counts(t, name+"3", 0)
		a, b := s.take(t, reader(name+"1")), s.take(t, reader(name+"1"))
		w := s.take(t, writer(name+"2"))
		_, err = s.store.Release(t.Context(), []driver.ReleaseRequest{
			{Name: name + "1", Acq: a.Acq, Shared: true}, {Name: name + "1", Acq: b.Acq, Shared: true}, {Name: name + "2", Acq: w.Acq}})
		if err != nil || s.look(t, name+"1").Held() || s.look(t, name+"2").Held() {
			t.Errorf("abandoned: %v", err)
		}
	},
}
