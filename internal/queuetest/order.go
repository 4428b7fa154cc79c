package queuetest

import (
	"fmt"
	"testing"

	"github.com/sqllock/sqllock/driver"
)

// orderTests are about who gets a name next.
var orderTests = map[string]func(*testing.T, *suite, string){
	"a name is handed over in the order of the queue, over two clients": func(t *testing.T, s *suite, name string) {
		first, a, b, c := s.take(t, writer(name)), writer(name), writer(name), writer(name)
		wait(t, s.store, a, 0)
		wait(t, s.other, b, 1)
		if r := wait(t, s.store, c, 1); r.Holder.Acq != first.Acq || r.Holder.Owner != first.Owner || r.Holder.Version != first.Version || r.Holder.Until <= r.Now {
			t.Errorf("the result names %+v", r.Holder)
		}
		second := pass(t, s.store, first, a)[0]
		if h := has(t, s.store, a, minute); h.Version != second.Version {
			t.Errorf("%+v, and the release reported %+v", h.AcquireResult, second.AcquireResult)
		}
		if r := wait(t, s.other, b, 0); r.Holder.Acq != a.Acq || r.Holder.Owner != a.Owner || r.Holder.Label == "" {
			t.Errorf("the result names %+v", r.Holder)
		}
		wait(t, s.store, c, 1)
		end(t, s.store, second) // the next is another's
		third := has(t, s.other, b, handed)
		if third.Version <= second.Version {
			t.Errorf("%d after %d", third.Version, second.Version)
		}
		wait(t, s.store, c, 0)
		end(t, s.other, third)
		fourth := has(t, s.store, c, handed)
		if fourth.Version <= third.Version {
			t.Errorf("%d after %d", fourth.Version, third.Version)
		}
		end(t, s.store, fourth)
		s.quiet(t, name)
	},

	"a release that knows of a waiter hands over too": func(t *testing.T, s *suite, name string) {
		first, a := s.take(t, writer(name)), writer(name)
		wait(t, s.store, a, 0)
		other, older := first.release(), first.release()
		other.Acq, older.Version, older.Awaited = newID(), first.Version-1, true
		for _, r := range []driver.ReleaseRequest{other, older} {
			s.leavesNoTrace(t, name, func() {
				if res, err := s.store.Release(t.Context(), []driver.ReleaseRequest{r}); err != nil || res[0].Freed || len(res[0].Next) > 0 {
					t.Errorf("%+v, %v", res, err)
				}
			})
		}
		r := first.release()
		r.Awaited = true
		next := free(t, s.store, r)
		if len(next) != 1 || next[0].Acq != a.Acq {
			t.Fatalf("%+v", next)
		}
		second := has(t, s.store, a, minute)
		r = second.release() // nobody waits any more, which the client need not know
		r.Awaited = true
		if next := free(t, s.store, r); len(next) > 0 {
			t.Fatalf("%+v", next)
		}
		s.quiet(t, name)
	},

	"a batch of releases hands over the names that have waiters": func(t *testing.T, s *suite, name string) {
		var releases []driver.ReleaseRequest
		var waiters []driver.AcquireRequest
		for i, suffix := range []string{"1", "2", "3", "4"} {
			r := s.take(t, writer(name+suffix)).release()
			r.Awaited = i == 3
			releases, waiters = append(releases, r), append(waiters, writer(name+suffix))
		}
		enqueue(t, s.store, waiters[1], waiters[3])
		releases[2].Version++
		res, err := s.store.Release(t.Context(), releases)
		if err != nil || len(res) != 4 {
			t.Fatal(res, err)
		}
		for i, r := range res {
			next := i == 1 || i == 3
			if r.Freed != (i != 2) || next != (len(r.Next) == 1) || next && r.Next[0].Acq != waiters[i].Acq {
				t.Errorf("release %d: %+v", i, r)
			}
		}
		if !s.look(t, releases[2].Name).Held() {
			t.Error("of another version")
		}
	},

	"of a batch of releases each name is judged by itself": func(t *testing.T, s *suite, name string) {
		for _, n := range []int{1, 3} {
			for _, kind := range []string{"plain", "value", "guarded"} {
				for _, special := range []string{"none", "waiter", "version", "acq", "gone"} {
					s.judge(t, fmt.Sprintf("%s-%d-%s-%s", name, n, kind, special), n, kind, special)
				}
			}
		}
	},

	"a waiter that leaves the queue delays nobody": func(t *testing.T, s *suite, name string) {
		first, a, b, c := s.take(t, writer(name)), writer(name), writer(name), writer(name)
		enqueue(t, s.store, a, b, c)
		s.leavesNoTrace(t, name, func() { abandon(t, s.store, writer(name)) })
		abandon(t, s.other, a)
		wait(t, s.store, b, 0)
		abandon(t, s.store, b)
		abandon(t, s.store, b) // it may be repeated
		wait(t, s.store, c, 0)
		second := pass(t, s.store, first, c)[0]
		d := writer(name)
		wait(t, s.store, d, 0)
		abandon(t, s.store, d)
		end(t, s.store, second)
		s.quiet(t, name)
	},

	"a waiter that leaves after the name was handed over hands it on": func(t *testing.T, s *suite, name string) {
		first, a, b, c := s.take(t, writer(name)), writer(name), writer(name), writer(name)
		wait(t, s.store, a, 0)
		wait(t, s.store, b, 1)
		wait(t, s.other, c, 1)
		second := pass(t, s.store, first, a)[0]
		abandon(t, s.store, a)
		third := has(t, s.store, b, minute)
		if third.Version <= second.Version {
			t.Errorf("%d after %d", third.Version, second.Version)
		}
		abandon(t, s.store, b)
		abandon(t, s.other, has(t, s.other, c, handed).AcquireRequest)
		s.quiet(t, name)
	},

	"a newcomer does not pass a claim that lives": func(t *testing.T, s *suite, name string) {
		for _, late := range []driver.AcquireRequest{writer(name), reader(name)} {
			first, a := s.take(t, writer(name)), writer(name)
			wait(t, s.other, a, 0)
			s.expire(t, first)
			if r := s.lose(t, late); r.Holder.Acq != a.Acq || r.Crashed.Acq != first.Acq { // a was served
				t.Errorf("%+v", r)
			}
			wait(t, s.store, late, 0)
			abandon(t, s.store, late)
			end(t, s.other, has(t, s.other, a, handed))
		}
	},
}

// judge releases n names in a batch, of which the last is special.
func (s *suite) judge(t *testing.T, name string, n int, kind, special string) {
	t.Helper()
	var leases []held
	var releases []driver.ReleaseRequest
	for i := range n {
		req := writer(fmt.Sprint(name, i))
		if kind == "value" {
			req.Value = []byte(kind)
		}
		leases = append(leases, s.take(t, req))
		r := leases[i].release()
		r.Guarded = kind == "guarded"
		releases = append(releases, r)
	}
	lease, last := leases[n-1], &releases[n-1]
	var holder driver.ID
	switch special {
	case "waiter":
		w := writer(lease.Name)
		wait(t, s.store, w, 0)
		holder = w.Acq
	case "version":
		last.Version--
		holder = lease.Acq
	case "acq":
		last.Acq = newID()
		holder = lease.Acq
	case "gone":
		end(t, s.store, lease)
	}
	res, err := s.store.Release(t.Context(), releases)
	if err != nil || len(res) != n {
		t.Fatalf("%s: %+v, %v", name, res, err)
	}
	for i, r := range res {
		freed := i < n-1 || special == "none" || special == "waiter"
		if r.Freed != freed || (len(r.Next) == 1) != (i == n-1 && special == "waiter") {
			t.Errorf("%s, release %d: %+v", name, i, r)
		}
	}
	if got := s.look(t, lease.Name).Holder.Acq; got != holder {
		t.Errorf("%s: %v holds the name, want %v", name, got, holder)
	}
}
