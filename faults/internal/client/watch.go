//go:build linux

package client

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/sqllock/sqllock"
	"github.com/sqllock/sqllock/faults/internal/history"
)

// every is how often a lease is looked at while it is held.
const every = 20 * time.Millisecond

// watch looks at a lease until its context has ended, and writes down when that was.
func (w *worker) watch(h *held) {
	done := h.Context().Done()
	w.watchers.Go(func() {
		for tick := time.NewTicker(every); ; {
			select {
			case <-done:
				tick.Stop()
				w.done(h)
				return
			case <-tick.C:
				w.look(h)
			}
		}
	})
}

// done writes the end of a lease's context. If the lease was lost, it looks at the lease
// again: the loss must be final.
func (w *worker) done(h *held) {
	e := h.event(history.Done)
	e.T, e.Late = history.Now(), w.lag.worst()
	cause := context.Cause(h.Context())
	var lost *sqllock.LostError
	switch {
	case errors.As(cause, &lost):
		e.Lost, e.Reason = true, lost.Reason.String()
	case cause != nil:
		e.Err = cause.Error()
	}
	w.say(e)
	if e.Lost {
		w.look(h)
	}
}

// look asks a lease whether it is held, as one does before a write. Both ways to ask
// must say the same, unless the answer changes in between.
func (w *worker) look(h *held) bool {
	e := h.event(history.Look)
	e.T = history.Now()
	e.Left = int64(h.Remaining())
	e.OK = h.Context().Err() == nil
	e.Until = history.Now()
	w.say(e)
	return e.OK
}

// lag measures by how much this process oversleeps, because delays of the machine are not
// failures of the library.
type lag struct{ last, before, began atomic.Int64 }

const lagSleep = 5 * time.Millisecond

// measure works until ctx ends.
func (l *lag) measure(ctx context.Context) {
	for i := 0; ctx.Err() == nil; i++ {
		if i%100 == 0 { // forget what is older than a second
			l.before.Store(l.last.Swap(0))
		}
		l.began.Store(history.Now())
		time.Sleep(lagSleep)
		l.last.Store(max(l.last.Load(), l.now()))
	}
}

// now returns by how much the present nap is too long.
func (l *lag) now() int64 { return max(0, history.Now()-l.began.Load()-int64(lagSleep)) }

// worst returns the longest of the last half second or so.
func (l *lag) worst() int64 { return max(l.last.Load(), l.before.Load(), l.now()) }
