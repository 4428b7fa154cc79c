package queuetest

import (
	"bytes"
	"slices"
	"testing"

	"github.com/sqllock/sqllock/driver"
)

// enqueueTests are about entering the queue, and about the list of waiters.
var enqueueTests = map[string]func(*testing.T, *suite, string){
	"a free name goes to the first request": func(t *testing.T, s *suite, name string) {
		a, b := writer(name), writer(name) // of a name that was never seen
		first := enter(t, s.store, a)
		if r := wait(t, s.other, b, 0); r.Holder.Acq != a.Acq || r.Holder.Owner != a.Owner || r.Holder.Version != first.Version {
			t.Errorf("the result names %+v", r.Holder)
		}
		end(t, s.store, first)
		second := has(t, s.other, b, handed)
		end(t, s.other, second)
		if third := enter(t, s.store, writer(name)); third.Version <= second.Version {
			t.Errorf("%d after %d", third.Version, second.Version)
		}
	},

	"the requests of one batch enter the queue in their order": func(t *testing.T, s *suite, name string) {
		var reqs []driver.AcquireRequest
		for range 4 {
			reqs = append(reqs, writer(name+"1"))
		}
		reqs = append(reqs, writer(name+"2"), writer(name+"3"), reader(name+"4"), reader(name+"4"), writer(name+"4"), reader(name+"4"))
		kept := s.take(t, writer(name+"3"))
		res := enqueue(t, s.store, reqs...)
		ahead := []int{-1, 0, 1, 1, -1, 0, -1, -1, 0, 1}
		for i, r := range res {
			if r.Granted != (ahead[i] < 0) || !r.Granted && r.Ahead != ahead[i] {
				t.Errorf("request %d: %+v", i, r)
			}
		}
		if h := res[1].Holder; h.Acq != reqs[0].Acq || h.Owner != reqs[0].Owner || h.Label == "" || h.Version != res[0].Version || h.Until <= res[1].Now {
			t.Errorf("the result names %+v", h)
		}
		if h := res[8].Holder; !h.Shared || h.Version != res[6].Version || res[6].Version != res[7].Version {
			t.Errorf("the result names %+v", h)
		}
		pass(t, s.store, kept, reqs[5])
		holder := held{reqs[0], res[0]}
		for _, next := range reqs[1:4] {
			holder = pass(t, s.store, holder, next)[0]
		}
	},

	"a large batch has its order": func(t *testing.T, s *suite, name string) {
		reqs := make([]driver.AcquireRequest, 600)
		for i := range reqs {
			reqs[i] = writer(name)
		}
		for range 2 {
			for i, r := range enqueue(t, s.store, reqs...) {
				if r.Granted != (i == 0) || i > 0 && r.Ahead != min(i-1, 1) {
					t.Fatalf("request %d: %+v", i, r)
				}
			}
		}
		abandon(t, s.store, reqs...)
		s.quiet(t, name)
	},

	"a repeated request has one claim and is granted once": func(t *testing.T, s *suite, name string) {
		first, a, b := s.take(t, writer(name)), writer(name), reader(name)
		for range 3 {
			wait(t, s.store, a, 0)
			wait(t, s.store, b, 1)
		}
		if n := s.claims(t, name); n != 2 {
			t.Errorf("%d claims", n)
		}
		second := pass(t, s.store, first, a)[0]
		s.leavesNoTrace(t, name, func() {
			for range 3 {
				if h := has(t, s.store, a, minute); h.Version != second.Version {
					t.Errorf("%+v", h)
				}
			}
			if r := s.grant(t, a); !r.Found || r.Version != second.Version {
				t.Errorf("%+v", r)
			}
		})
		third := pass(t, s.store, second, b)[0]
		s.leavesNoTrace(t, name, func() {
			if h := has(t, s.store, b, minute); h.Version != third.Version {
				t.Errorf("%+v", h)
			}
		})
		if n := s.claims(t, name); n != 0 {
			t.Errorf("%d claims", n)
		}
	},

	"a repeated request does not find a lease that has expired": func(t *testing.T, s *suite, name string) {
		for _, req := range []driver.AcquireRequest{writer(name), reader(name)} {
			h := enter(t, s.store, req)
			s.expire(t, h)
			again := enter(t, s.store, req)
			if again.Version <= h.Version || again.Crashed != (driver.Holder{}) {
				t.Errorf("%+v after %+v", again.AcquireResult, h.AcquireResult)
			}
			next := writer(name)
			wait(t, s.other, next, 0)
			s.expire(t, again)
			wait(t, s.store, req, 0)
			h = has(t, s.other, next, handed) // the repeated request has served it
			abandon(t, s.store, req)
			end(t, s.other, h)
		}
	},

	"the value of the waiter becomes that of the next term": func(t *testing.T, s *suite, name string) {
		first, a, b, c := writer(name), writer(name), writer(name), writer(name)
		first.Value, a.Value = []byte("first"), bytes.Repeat([]byte{0, 1, 0xff, '"'}, 5000)
		b.Carries = []driver.ID{newID()}
		h := enter(t, s.store, first)
		since := h.Now
		enqueue(t, s.store, a, b, c)
		for _, next := range []driver.AcquireRequest{first, a, b, c} {
			if r := s.look(t, name); !bytes.Equal(r.Value, next.Value) || r.Holds != 1 || r.Holder.Acq != next.Acq ||
				r.Holder.Owner != next.Owner || r.Holder.Label == "" || r.Holder.Version != h.Version || r.Holder.Since < since {
				t.Errorf("%+v", r)
			}
			if to := free(t, s.store, h.release()); len(to) > 0 {
				h.Acq, h.Version = to[0].Acq, to[0].Version
			}
		}
		s.quiet(t, name)
	},

	"Waits lists waiters that hold other names, and who holds the names that they wait for": func(t *testing.T, s *suite, name string) {
		exclusive := s.take(t, writer(name+"1"))
		r, q := enter(t, s.store, reader(name+"2")), enter(t, s.other, reader(name+"2"))
		dead := enter(t, s.store, reader(name+"2"))
		s.expire(t, dead)
		a, b, c, d := writer(name+"1"), writer(name+"2"), reader(name+"2"), reader(name+"1")
		third := s.open(t)
		a.Carries, b.Carries, d.Carries = []driver.ID{r.Acq, newID()}, []driver.ID{exclusive.Acq}, []driver.ID{newID()}
		enqueue(t, s.store, a, b, c)
		enqueue(t, third, d)
		check := func(req driver.AcquireRequest, holders ...driver.ID) {
			t.Helper()
			waits, err := s.waiters(t)
			waits = slices.DeleteFunc(waits, func(w driver.Waiter) bool { return w.Acq != req.Acq })
			if err != nil || len(waits) != 1 {
				t.Fatalf("%+v, %v", waits, err)
			}
			w := waits[0]
			slices.SortFunc(w.Holders, func(a, b driver.ID) int { return bytes.Compare(a[:], b[:]) })
			slices.SortFunc(holders, func(a, b driver.ID) int { return bytes.Compare(a[:], b[:]) })
			if w.Name != req.Name || w.Label == "" || w.Seq <= 0 || w.Since < exclusive.Now || (w.Kind == driver.KindShared) != req.Shared ||
				!slices.Equal(w.Carries, req.Carries) || !slices.Equal(w.Holders, holders) {
				t.Errorf("%+v, want %v", w, holders)
			}
		}
		none := func(reqs ...driver.AcquireRequest) {
			t.Helper()
			waits, err := s.waiters(t)
			for _, req := range reqs {
				if err != nil || slices.ContainsFunc(waits, func(w driver.Waiter) bool { return w.Acq == req.Acq }) {
					t.Errorf("%+v, %v", waits, err)
				}
			}
		}
		check(a, exclusive.Acq)
		check(b, r.Acq, q.Acq)
		check(d, exclusive.Acq)
		none(c)
		s.expire(t, exclusive)
		check(a)
		s.die(t, d)
		enter(t, s.store, a)
		none(a, d)
	},

	"sequence numbers of claims rise": func(t *testing.T, s *suite, name string) {
		h, last := s.take(t, writer(name)), int64(0)
		for range 3 {
			a := writer(name)
			a.Carries = []driver.ID{newID()}
			wait(t, s.store, a, 0)
			waits, err := s.waiters(t)
			at := slices.IndexFunc(waits, func(w driver.Waiter) bool { return w.Acq == a.Acq })
			if err != nil || at < 0 || waits[at].Seq <= last {
				t.Fatalf("%+v, %v, after %d", waits, err, last)
			}
			last = waits[at].Seq
			h = pass(t, s.store, h, a)[0]
		}
	},

	"an empty batch requests nothing": func(t *testing.T, s *suite, _ string) {
		if res, err := s.store.Acquire(t.Context(), nil); len(res) > 0 || err != nil {
			t.Error(res, err)
		}
	},
}
