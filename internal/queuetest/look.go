package queuetest

import (
	"slices"
	"testing"

	"github.com/sqllock/sqllock/driver"
)

// lookTests are about what others see of readers, and about their revocation.
var lookTests = map[string]func(*testing.T, *suite, string){
	"readers are seen and listed": func(t *testing.T, s *suite, name string) {
		a, b := s.take(t, reader(name)), s.take(t, reader(name))
		c := s.count(t, name)
		want := driver.Row{Name: name, Holder: driver.Holder{Version: a.Version, Since: s.since(t, a), Until: c.last, Shared: true}, Readers: 2}
		r := s.look(t, name)
		if r.Holder != want.Holder || r.Readers != 2 || r.Gate > r.Now || !r.Held() {
			t.Errorf("%+v, want %+v", r, want)
		}
		listed := func() (rows []driver.Row) {
			page, err := s.store.Read(t.Context(), driver.ReadRequest{List: driver.ListRequest{Limit: 10_000}})
			if err != nil {
				t.Fatal(err)
			}
			return slices.DeleteFunc(page.Rows, func(r driver.Row) bool { return r.Name != name })
		}
		if rows := listed(); len(rows) != 1 || rows[0].Holder != want.Holder || rows[0].Readers != 2 {
			t.Errorf("listed: %+v, want %+v", rows, want)
		}
		s.release(t, true, a.release(), b.release())
		if rows := listed(); len(rows) != 0 {
			t.Errorf("listed though released: %+v", rows)
		}
		d := s.take(t, reader(name))
		s.expire(t, d)
		if r := s.look(t, name); r.Readers != 0 || r.Held() || r.Holder.Shared {
			t.Errorf("expired: %+v", r)
		}
		if rows := listed(); len(rows) != 0 {
			t.Errorf("listed though expired: %+v", rows)
		}
	},

	"a revocation ends readers": func(t *testing.T, s *suite, name string) {
		a, b := s.take(t, reader(name)), s.take(t, reader(name))
		s.expire(t, s.take(t, reader(name))) // this one does not count
		until := s.count(t, name).last
		res, err := s.store.Revoke(t.Context(), []driver.RevokeRequest{{Name: name}})
		if err != nil || !res[0].Revoked || res[0].Row.Readers != 2 || !res[0].Row.Holder.Shared || res[0].Row.Holder.Until != until {
			t.Fatalf("%+v, %v", res, err)
		}
		r := s.look(t, name)
		if c := s.count(t, name); r.Held() || r.Ended != driver.EndedRevoked || r.Revoked != a.Version || r.Holder.Version <= a.Version || c != (count{}) {
			t.Errorf("%+v, %+v", r, c)
		}
		s.renew(t, driver.Revoked, a.renew(minute), b.renew(minute))
		s.release(t, false, a.release())
		c := s.take(t, reader(name))
		if c.Version <= r.Holder.Version {
			t.Errorf("%d after %d", c.Version, r.Holder.Version)
		}
		s.release(t, false, b.release())
		abandon(t, s.store, b.AcquireRequest)
		s.renew(t, driver.Revoked, b.renew(minute))
		s.counts(t, name, 1)
		s.release(t, true, c.release())
		if res, err := s.store.Revoke(t.Context(), []driver.RevokeRequest{{Name: name}}); err != nil || res[0].Revoked {
			t.Errorf("of nothing: %+v, %v", res, err)
		}
	},
}
