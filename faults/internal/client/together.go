//go:build linux

package client

import (
	"context"
	"errors"
	"sync"

	"github.com/sqllock/sqllock"
	"github.com/sqllock/sqllock/faults/internal/history"
)

// requestTogether has several callers request all names and semaphores at the same time, so that
// their requests share statements. As a rule some of the names are in a rare state: guarded,
// detached, expired, kept by MinHold or LockDelay, waited for by the dead. Other callers request
// permits of semaphores that have another number of them, and must get an error.
func (w *worker) requestTogether() {
	start := make(chan struct{})
	var running sync.WaitGroup
	begin := func(do func(w *worker)) {
		w.callers++
		caller := newWorker(w.client, w.callers)
		running.Go(func() {
			<-start
			do(caller)
		})
	}
	for _, name := range some(w.cfg.Names, len(w.cfg.Names), w.rng) {
		kind := history.Exclusive
		if w.rng.IntN(4) == 0 {
			kind = history.Shared
		}
		begin(func(w *worker) { w.tryOne(kind, name) })
	}
	for _, name := range w.cfg.Semaphores {
		begin(func(w *worker) { w.tryOne(history.Permit, name) })
		begin(func(w *worker) { w.tryWrongly(name) })
	}
	close(start)
	running.Wait()
}

// tryOne requests one name, or a permit, without waiting.
func (w *worker) tryOne(kind, name string) {
	c := &choice{kind: kind, how: try, names: []string{name}}
	w.drawOptions(c)
	w.drawEnding(c)
	w.serve(c)
}

// tryWrongly requests a permit of a semaphore that has another number of permits, as is known when
// this process had one.
func (w *worker) tryWrongly(name string) {
	if _, known := w.permitted.Load(name); !known {
		return
	}
	c := &choice{kind: history.Permit, how: history.Mismatch, options: history.Options{TTL: int64(w.cfg.TTL), User: users[w.cfg.User].name}}
	h := &held{id: w.id(), name: name, permit: true}
	var lease *sqllock.Lease
	err := w.call(c.of(h), func(e *history.Event) (err error) {
		if lease, err = w.otherwise[name].TryAcquire(context.Background()); err != nil {
			e.Refuse, e.OK = errors.Is(err, sqllock.ErrPermits), errors.Is(err, sqllock.ErrHeld)
			return err
		}
		h.has(lease, e)
		return nil
	})
	if err == nil { // the checks tell
		w.release(history.Plainly, []*held{h})
	}
}
