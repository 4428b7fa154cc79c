package queuetest

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/sqllock/sqllock/driver"
)

// raceTests are about two calls at the same time, whichever is first.
var raceTests = map[string]func(*testing.T, *suite, string){
	"of two that want a free name one gets it": func(t *testing.T, s *suite, name string) {
		s.race(t, name, func(r *round) {
			a, b := writer(r.name), writer(r.name)
			one, two := r.grant(s.store, a), r.grant(s.other, b)
			r.run()
			if one.Granted == two.Granted {
				t.Errorf("%+v and %+v", one, two)
			}
		})
	},

	"a reader and a writer that come together exclude each other": func(t *testing.T, s *suite, name string) {
		s.race(t, name, func(r *round) {
			a, w := reader(r.name), writer(r.name)
			one, two := r.enqueue(s.store, a), r.grant(s.other, w)
			r.run()
			if one.Granted == two.Granted {
				t.Errorf("%+v and %+v", one, two)
			}
		})
	},

	"readers that come together share a term": func(t *testing.T, s *suite, name string) {
		s.race(t, name, func(r *round) {
			one, two := r.enqueue(s.store, reader(r.name)), r.grant(s.other, reader(r.name))
			r.run()
			if !one.Granted || !two.Granted || one.Version != two.Version {
				t.Errorf("%+v and %+v", one, two)
			}
		})
	},

	"a waiter that comes while the name is released gets it": func(t *testing.T, s *suite, name string) {
		for _, shared := range []bool{false, true} {
			s.race(t, name, func(r *round) {
				h, w := r.first(s.store, shared), writer(r.name)
				r.release(s.store, h)
				r.enqueue(s.other, w)
				r.run()
				r.checkHolder(w)
			})
		}
	},

	"the last of two readers that leave together hands the name over": func(t *testing.T, s *suite, name string) {
		s.race(t, name, func(r *round) {
			a, b, w := r.first(s.store, true), r.first(s.other, true), writer(r.name)
			wait(t, s.store, w, 0)
			r.release(s.store, a)
			r.release(s.other, b)
			r.run()
			r.checkHolder(w)
		})
	},

	"a waiter that leaves while the name is released does not keep it": func(t *testing.T, s *suite, name string) {
		s.race(t, name, func(r *round) {
			h, a, b := r.first(s.store, false), writer(r.name), writer(r.name)
			wait(t, s.other, a, 0)
			wait(t, s.store, b, 1)
			r.release(s.store, h)
			r.abandon(s.other, a)
			r.run()
			r.checkHolder(b)
		})
	},

	"a sweep and a waiter that meet at an expired holder serve the queue once": func(t *testing.T, s *suite, name string) {
		s.race(t, name, func(r *round) {
			h, a, b := r.first(s.store, false), writer(r.name), writer(r.name)
			wait(t, s.store, a, 0)
			wait(t, s.other, b, 1)
			s.expire(t, h)
			r.call(func(ctx context.Context) error {
				_, err := s.store.Sweep(ctx, driver.SweepRequest{After: r.name[:len(r.name)-1], Limit: 10, Retention: hour})
				return err
			})
			r.enqueue(s.other, b)
			r.run()
			r.checkHolder(a)
		})
	},
}

// rounds is how often two calls are made at the same time.
const rounds = 25

// round is two calls at the same time, about a name of their own.
type round struct {
	*suite
	t     *testing.T
	name  string
	calls []func()
}

func (s *suite) race(t *testing.T, name string, do func(r *round)) {
	t.Helper()
	for range rounds {
		do(&round{suite: s, t: t, name: fmt.Sprint(name, "-", newID())})
	}
}

// first is a lease of the name of the round.
func (r *round) first(store driver.Store, shared bool) held {
	r.t.Helper()
	req := writer(r.name)
	req.Shared = shared
	return enter(r.t, store, req)
}

// call adds a call to the round.
func (r *round) call(f func(context.Context) error) {
	rnd := rand.New(rand.NewPCG(uint64(len(r.calls)), 3))
	r.calls = append(r.calls, func() { r.retry(r.t, rnd, f) })
}

func (r *round) grant(store driver.Store, req driver.AcquireRequest) *driver.AcquireResult {
	var res driver.AcquireResult
	r.call(func(ctx context.Context) error {
		all, err := store.Acquire(ctx, []driver.AcquireRequest{atOnce(req)})
		if err == nil {
			res = all[0]
		}
		return err
	})
	return &res
}

func (r *round) enqueue(store driver.Store, req driver.AcquireRequest) *driver.AcquireResult {
	var res driver.AcquireResult
	r.call(func(ctx context.Context) error {
		all, err := store.Acquire(ctx, []driver.AcquireRequest{req})
		if err == nil {
			res = all[0]
		}
		return err
	})
	return &res
}

func (r *round) release(store driver.Store, h held) {
	r.call(func(ctx context.Context) error {
		_, err := store.Release(ctx, []driver.ReleaseRequest{h.release()})
		return err
	})
}

func (r *round) abandon(store driver.Store, req driver.AcquireRequest) {
	r.call(func(ctx context.Context) error {
		_, err := store.Release(ctx, []driver.ReleaseRequest{{Name: req.Name, Acq: req.Acq, Shared: req.Shared}})
		return err
	})
}

// run makes the calls.
func (r *round) run() {
	var wg sync.WaitGroup
	for _, call := range r.calls {
		wg.Go(call)
	}
	wg.Wait()
}

// checkHolder checks that a request holds the name, without asking for it again.
func (r *round) checkHolder(req driver.AcquireRequest) {
	r.t.Helper()
	if row := r.look(r.t, r.name); row.Holder.Acq != req.Acq {
		r.t.Errorf("%+v holds the name, want %v: %s", row.Holder, req.Acq, r.dump(r.t, r.name))
	}
}
