package queuetest

import (
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
		listed := func() driver.Row { return s.listed(t, name, driver.ListRequest{Limit: 10_000}) }
		if r := listed(); r.Holder != want.Holder || r.Readers != 2 {
			t.Errorf("listed: %+v, want %+v", r, want)
		}
		s.release(t, true, a.release(), b.release())
		if r := listed(); r.Name != "" {
			t.Errorf("listed though released: %+v", r)
		}
		d := s.take(t, reader(name))
		s.expire(t, d)
		if r := s.look(t, name); r.Readers != 0 || r.Held() || r.Holder.Shared {
			t.Errorf("expired: %+v", r)
		}
		if r := listed(); r.Name != "" {
			t.Errorf("listed though expired: %+v", r)
		}
	},

	"those who wait and live are counted, and the first of them are seen in their order": func(t *testing.T, s *suite, name string) {
		first, dead, forgotten := s.take(t, writer(name)), writer(name), reader(name)
		label := "another label"
		other := s.openFor(t, driver.Client{Instance: newID(), Label: label})
		wait(t, s.open(t), dead, 0)
		all := []driver.AcquireRequest{reader(name), writer(name), reader(name)}
		wait(t, other, all[0], 1)
		wait(t, s.store, all[1], 1)
		wait(t, s.open(t), forgotten, 1)
		wait(t, other, all[2], 1)
		s.die(t, dead, forgotten)
		want := []driver.Queued{{Label: label, Kind: driver.KindShared}, {Label: "test", Kind: driver.KindExclusive}, {Label: label, Kind: driver.KindShared}}
		for n := range 5 {
			s.seesQueue(t, name, n, want)
		}
		s.release(t, true, first.release()) // the first of them is handed the name
		s.seesQueue(t, name, 10, want[1:])
		abandon(t, other, all[0], all[2])
		abandon(t, s.store, all[1])
		s.seesQueue(t, name, 10, nil)
	},

	"a release says to how many waiters it hands the name over, whoever they are": func(t *testing.T, s *suite, name string) {
		first, a, b, last := s.take(t, writer(name)), reader(name), reader(name), writer(name)
		wait(t, s.store, a, 0)
		wait(t, s.other, b, 1)
		wait(t, s.other, last, 1)
		s.handsOver(t, first.release(), 2)
		s.handsOver(t, has(t, s.store, a, minute).release(), 0)
		s.handsOver(t, has(t, s.other, b, handed).release(), 1)
		s.handsOver(t, has(t, s.other, last, handed).release(), 0)
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

// handsOver releases, and checks to how many waiters that hands the name over.
func (s *suite) handsOver(t *testing.T, r driver.ReleaseRequest, want int) {
	t.Helper()
	res, err := s.store.Release(t.Context(), []driver.ReleaseRequest{r})
	if err != nil || !res[0].Freed || res[0].HandedOver != want {
		t.Errorf("%+v, %v, want that %d get the name", res, err, want)
	}
}

// seesQueue checks what is read of those who wait for a name: n of them at most are read, and
// a list counts them.
func (s *suite) seesQueue(t *testing.T, name string, n int, want []driver.Queued) {
	t.Helper()
	res, err := s.store.Read(t.Context(), driver.ReadRequest{Names: []string{name, name + " which nobody knows"}, Queue: n})
	if err != nil {
		t.Fatal(err)
	}
	r, last := res.Rows[0], int64(0)
	if n == 0 {
		want = nil // it is not read
	}
	if r.Waiters != len(want) || len(r.Queue) != min(n, len(want)) || res.Rows[1].Waiters > 0 {
		t.Errorf("%d wait, the first %d are %+v, want %+v", r.Waiters, n, r.Queue, want)
	}
	for i, q := range r.Queue {
		if q.Since < last || r.Now-q.Since > minute.Microseconds() || q.Label != want[i].Label || q.Kind != want[i].Kind {
			t.Errorf("at place %d is %+v, want %+v", i, q, want[i])
		}
		last = q.Since
	}
	for _, count := range []bool{false, true} {
		listed := s.listed(t, name, driver.ListRequest{Limit: 10_000, Count: count})
		if waiters := len(want); count && n > 0 && (listed.Waiters != waiters || listed.Queue != nil) || !count && listed.Waiters > 0 {
			t.Errorf("listed: %+v, want %d who wait", listed, waiters)
		}
	}
}

// listed is what a list says of a name, if anything.
func (s *suite) listed(t *testing.T, name string, req driver.ListRequest) (row driver.Row) {
	t.Helper()
	page, err := s.store.Read(t.Context(), driver.ReadRequest{List: req})
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range page.Rows {
		if r.Name == name {
			row = r
		}
	}
	return row
}
