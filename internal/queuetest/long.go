package queuetest

import (
	"fmt"
	"testing"

	"github.com/sqllock/sqllock/driver"
)

// longTests are about queues of which a visit reads only a part.
var longTests = map[string]func(*testing.T, *suite, string){
	"a long queue of two clients is served in its order": func(t *testing.T, s *suite, name string) {
		const n, batch = 2000, 100
		holder, store := s.take(t, writer(name)), s.store
		reqs := make([]driver.AcquireRequest, n)
		for i := range reqs {
			reqs[i] = writer(name)
		}
		of := func(i int) driver.Store {
			if i/batch%2 == 0 {
				return s.store
			}
			return s.other
		}
		for i := 0; i < n; i += batch {
			enqueue(t, of(i), reqs[i:i+batch]...)
		}
		serve := func(from, to int) {
			t.Helper()
			for i := from; i < to; i++ {
				if of(i) == store {
					holder = pass(t, store, holder, reqs[i])[0]
					continue
				}
				end(t, store, holder)
				store = of(i)
				holder = has(t, store, reqs[i], handed)
			}
		}
		serve(0, batch+batch/5)
		abandon(t, s.store, reqs[batch+batch/5:n-batch]...)
		serve(n-batch, n)
		end(t, store, holder)
		s.quiet(t, name)
	},

	"a batch of releases hands over long queues, each in its order": func(t *testing.T, s *suite, name string) {
		const names, n = 3, 10
		third := s.open(t)
		var releases []driver.ReleaseRequest
		var reqs, dead []driver.AcquireRequest // the waiters of the first name, then those of the next
		for i := range names {
			key := fmt.Sprint(name, i)
			releases = append(releases, s.take(t, writer(key)).release())
			dead = append(dead, writer(key))
			for range n {
				reqs = append(reqs, writer(key))
			}
		}
		enqueue(t, third, dead...)
		enqueue(t, s.store, reqs...)
		s.die(t, dead...)
		for k := range n {
			res, err := s.store.Release(t.Context(), releases)
			if err != nil {
				t.Fatal(err)
			}
			for i, r := range res {
				want := reqs[i*n+k].Acq
				if len(r.Next) != 1 || r.Next[0].Acq != want {
					t.Fatalf("release %d of name %d: %+v, want %v", k, i, r, want)
				}
				releases[i].Acq, releases[i].Version = want, r.Next[0].Version
			}
		}
	},

	"all readers at the head of a long queue are granted together": func(t *testing.T, s *suite, name string) {
		const n = 600
		first, w := s.take(t, writer(name)), writer(name)
		reqs := make([]driver.AcquireRequest, n)
		for i := range reqs {
			reqs[i] = reader(name)
		}
		late := []driver.AcquireRequest{reader(name), reader(name)}
		enqueue(t, s.store, reqs[:n/2]...)
		enqueue(t, s.other, reqs[n/2:]...)
		wait(t, s.store, w, 1)
		enqueue(t, s.store, late...)
		if next := free(t, s.store, first.release()); len(next) != n/2 { // of this client
			t.Errorf("the release tells of %d readers", len(next))
		}
		s.counts(t, name, n)
		var releases []driver.ReleaseRequest
		for i, res := range [][]driver.AcquireResult{enqueue(t, s.store, reqs[:n/2]...), enqueue(t, s.other, reqs[n/2:]...)} {
			for j, r := range res {
				h := held{reqs[i*n/2+j], r}
				releases = append(releases, h.release())
				if !r.Granted || !r.Found || r.Version != res[0].Version || r.Version <= first.Version {
					t.Fatalf("reader %d: %+v", i*n/2+j, r)
				}
			}
		}
		wait(t, s.store, w, 0)
		s.release(t, true, releases...)
		next := pass(t, s.store, has(t, s.store, w, minute), late...)
		s.release(t, true, next[0].release(), next[1].release())
		s.quiet(t, name)
	},
}
