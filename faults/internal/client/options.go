//go:build linux

package client

import (
	"context"
	"database/sql"
	"errors"
	"strconv"
	"time"

	"github.com/sqllock/sqllock"
	"github.com/sqllock/sqllock/faults/internal/history"
)

// runOptions works as run does, with calls of all kinds and options.
func (w *worker) runOptions() {
	for i := 0; w.ctx.Err() == nil; i++ {
		if w.number == 0 && i%3 == 2 {
			w.requestTogether()
			continue
		}
		w.serve(w.draw())
		time.Sleep(time.Duration(w.rng.IntN(5)) * time.Millisecond)
	}
}

// serve makes a call, and works under what it acquires.
func (w *worker) serve(c *choice) {
	switch c.kind {
	case history.Once:
		w.once(c)
	case history.Election:
		w.campaign(c)
	case history.Adopted:
		w.adopt(c)
	default:
		ctx, cancel := w.callContext(c)
		defer cancel()
		w.useAndEnd(c, w.acquireWith(ctx, c))
	}
}

// useAndEnd works under what a call has acquired, and ends it.
func (w *worker) useAndEnd(c *choice, hs []*held) {
	if len(hs) == 0 {
		return
	}
	for _, h := range hs {
		w.look(h)
		w.watch(h)
	}
	if hs[0].shared {
		w.share(hs[0])
		if w.rng.IntN(6) == 0 || isLong(hs[0].name) && w.rng.IntN(2) == 0 {
			w.keepLong()
			w.read(hs[0])
			w.look(hs[0])
		}
	} else {
		w.workWith(hs)
	}
	w.end(c, hs)
}

// workWith is workExclusive without guarded writes, which are an end of their own.
func (w *worker) workWith(hs []*held) {
	h := hs[w.rng.IntN(len(hs))]
	if at := w.orders.Aimed(); at != "" && at != history.Guarded {
		w.plain(h)
		return
	}
	switch w.rng.IntN(w.cfg.Short) {
	default:
		w.keepLong()
	case 4, 5, 6, 7, 8, 9, 10: // as fast as can be
	case 0:
		w.fenced(h)
	case 1:
		w.plain(h)
	case 2:
		w.inspect(h)
	case 3:
		time.Sleep(time.Duration(w.rng.IntN(40)) * time.Millisecond)
	}
}

// keepLong holds a lease for so long that it may have to be renewed.
func (w *worker) keepLong() { time.Sleep(time.Duration(w.rng.Int64N(int64(w.cfg.Longest)))) }

// of writes an event of a lease as the call that acquires it.
func (c *choice) of(h *held) history.Event {
	e := h.event(history.Lock)
	o := c.options
	e.ID, e.Shared, e.Reason, e.Kind, e.Options = h.id, h.shared, c.how, c.kind, &o
	return e
}

// acquireWith acquires one name, several, or a permit.
func (w *worker) acquireWith(ctx context.Context, c *choice) []*held {
	if c.kind == history.Together {
		return w.acquireSeveral(ctx, c)
	}
	h := &held{id: w.id(), name: c.names[0], shared: c.kind == history.Shared, permit: c.kind == history.Permit}
	began := time.Now()
	err := w.call(c.of(h), func(e *history.Event) error {
		lease, err := w.lock(h, c.how)(ctx, c.opts...)
		if err != nil {
			return noteRefusal(err, e)
		}
		h.took = time.Since(began)
		h.has(lease, e)
		if h.permit {
			w.permitted.Store(h.name, true)
		}
		return nil
	})
	if err != nil {
		return nil
	}
	return []*held{h}
}

// has notes a lease.
func (h *held) has(lease *sqllock.Lease, e *history.Event) {
	h.owner, h.slot, h.lease = lease.Owner(), lease.Slot(), lease
	h.granted(lease, lease.Token(), e)
}

func (w *worker) acquireSeveral(ctx context.Context, c *choice) []*held {
	how := c.how
	if c.how == waits {
		c.how = all
	}
	shared := w.rng.IntN(4) == 0 && c.options.MinHold == 0 && c.options.Value == ""
	hs, events := make([]*held, len(c.names)), make([]history.Event, len(c.names))
	for i, name := range c.names {
		hs[i] = &held{id: w.id(), name: name, shared: shared}
		events[i] = c.of(hs[i])
	}
	if w.takeAll(events, hs, func() (*sqllock.Leases, error) { return w.lockAll(shared, how)(ctx, c.names, c.opts...) }) != nil {
		return nil
	}
	if shared {
		c.ending = history.Plainly
	}
	return hs
}

// campaign leads, and resigns.
func (w *worker) campaign(c *choice) {
	h := &held{id: w.id(), name: c.names[0]}
	election, err := w.locks.Election(h.name, &sqllock.ElectionOptions{TTL: time.Duration(c.options.TTL), LockDelay: time.Duration(c.options.Delay)})
	if err != nil {
		panic("bug: " + err.Error())
	}
	if c.how == try { // there is no such campaign
		c.how = giveUp
	}
	ctx, cancel := w.callContext(c)
	defer cancel()
	err = w.call(c.of(h), func(e *history.Event) error {
		if err := election.Campaign(ctx, []byte(c.options.Value)); err != nil {
			return noteRefusal(err, e)
		}
		lease, err := election.Lease()
		if err != nil { // lost already
			return err
		}
		h.has(lease, e)
		return nil
	})
	if err != nil {
		_ = election.Resign(context.Background())
		return
	}
	h.unlock = election.Resign
	w.useAndEnd(c, []*held{h})
}

// once completes a key, as several do at the same time.
func (w *worker) once(c *choice) {
	if c.how == try {
		c.how = giveUp
	}
	h := &held{id: w.id(), name: c.names[0]}
	key := w.key()
	ctx, cancel := w.callContext(c)
	defer cancel()
	call := c.of(h)
	call.Key = key
	begun := w.begin(call)
	record := h.event(history.OnceEnds)
	record.Key = key
	_ = w.call(record, func(e *history.Event) error {
		var unlocking history.Event
		ran, err := w.locks.Once(ctx, h.name, key, func(_ context.Context, run *sqllock.Run) error {
			h.has(run.Lease(), &begun)
			w.finish(begun, nil)
			w.look(h)
			w.watch(h)
			err := w.complete(c, h, run)
			unlocking = h.event(history.Unlock)
			unlocking.How = c.ending
			unlocking = w.begin(unlocking)
			return err
		}, c.opts...)
		if unlocking.ID != "" {
			unlocking.Lost = errors.Is(err, sqllock.ErrLost)
			w.finish(unlocking, err)
		} else {
			w.finish(begun, errors.Join(err, errors.New("the key was not run")))
		}
		e.OK = ran
		return err
	})
}

// complete does what a key is for: a guarded write that completes it, or nothing at all, which is
// recorded when it has returned.
func (w *worker) complete(c *choice, h *held, run *sqllock.Run) error {
	if c.ending != history.AfterGuard {
		w.workWith([]*held{h})
		return nil
	}
	e := h.write(history.Guarded, w.id())
	e.Key = run.Key()
	return w.callAll([]history.Event{e}, func(events []history.Event) error {
		err := w.inTx(run.InTx, []*held{h}, events)
		events[0].OK = err == nil
		return err
	})
}

// inTx writes to the guarded registers with in, and notes what became of that.
func (w *worker) inTx(in inTx, hs []*held, events []history.Event) error {
	ctx, cancel := context.WithTimeout(context.Background(), 2*bound)
	defer cancel()
	began := false
	err := in(ctx, w.isolation(hs[0]), func(ctx context.Context, tx *sql.Tx) error {
		began = true
		return w.addAll(ctx, tx, hs, events)
	})
	for i := range events {
		e := &events[i]
		e.OK = err == nil
		e.Refuse = !began || errors.Is(err, sqllock.ErrFenced)
		e.Lost = errors.Is(err, sqllock.ErrLost) || errors.Is(err, sqllock.ErrFenced)
	}
	return err
}

type inTx func(ctx context.Context, opts *sql.TxOptions, fn func(context.Context, *sql.Tx) error) error

// perKey is for how long one key is wanted, by all processes of a cell.
const perKey = time.Second

// key returns the key that is wanted now, or the one before.
func (w *worker) key() string {
	return "key " + strconv.FormatInt(history.Now()/int64(perKey)-int64(w.rng.IntN(2)), 10)
}
