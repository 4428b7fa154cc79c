//go:build linux

package client

import (
	"context"
	"database/sql"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/sqllock/sqllock"
	"github.com/sqllock/sqllock/faults/internal/history"
)

// bound limits a call of a register. A call that takes longer is abandoned, and may
// arrive late.
const bound = 2 * time.Second

// worker locks one name at a time.
type worker struct {
	*client
	number  int
	rng     *rand.Rand
	callers int // of requestTogether so far, whose numbers are higher than those of workers
}

func newWorker(c *client, number int) *worker {
	return &worker{client: c, number: number, callers: c.cfg.Workers, rng: rand.New(rand.NewPCG(c.cfg.Seed, uint64(number)))}
}

// run works until the client is stopped. It finishes what it has begun: a worker that
// waits continues to wait until it is served.
func (w *worker) run() {
	if w.cfg.Use == Options {
		w.runOptions()
		return
	}
	for w.ctx.Err() == nil {
		if hs := w.acquire(); len(hs) > 0 {
			w.workUnder(hs)
		}
		time.Sleep(time.Duration(w.rng.IntN(5)) * time.Millisecond)
	}
}

// workUnder works under what one call has acquired, and unlocks it.
func (w *worker) workUnder(hs []*held) {
	if hs[0].shared {
		w.share(hs[0])
	} else {
		w.workExclusive(hs)
	}
	_ = w.unlock(history.Unlock, hs[0], hs...)
}

// share reads the fenced register twice: no client may write while the name is shared.
func (w *worker) share(h *held) {
	w.read(h)
	time.Sleep(time.Duration(w.rng.IntN(15)) * time.Millisecond)
	w.read(h)
	w.look(h)
}

func (w *worker) workExclusive(hs []*held) {
	h := hs[w.rng.IntN(len(hs))]
	dice := w.rng.IntN(10)
	switch w.orders.Aimed() {
	case "":
	case history.Guarded:
		dice = 4
	default:
		dice = 7
	}
	switch dice {
	case 0, 1, 8, 9: // as fast as can be, but permits show more while others are held
		if h.permit {
			time.Sleep(min(h.took, w.cfg.TTL))
		}
	case 2:
		w.fenced(h)
	case 3, 4:
		if w.cfg.Work == nil { // a guard is of the database of the locks
			w.guarded(hs, dice == 3)
		}
	case 5:
		w.inspect(h)
		if !h.permit && len(hs) == 1 {
			w.enter(h)
		}
	default:
		w.plain(h)
	}
}

// enter re-enters the lease in the context, works, and unlocks.
func (w *worker) enter(h *held) {
	var inner *sqllock.Lease
	err := w.call(h.event(history.Enter), func(e *history.Event) (err error) {
		ctx, cancel := context.WithTimeout(h.Context(), bound)
		defer cancel()
		if inner, err = w.locks.Lock(ctx, h.name); err != nil {
			e.Lost = errors.Is(err, sqllock.ErrLost)
			return err
		}
		e.Token, e.Owner = inner.Token(), inner.Owner()
		return nil
	})
	if err != nil {
		return
	}
	w.fenced(h)
	_ = w.unlock(history.Leave, inner, h)
	w.look(h)
}

// unlock ends leases. The context is one that has ended: Unlock must not mind.
func (w *worker) unlock(op string, under interface{ Unlock(context.Context) error }, hs ...*held) error {
	ended, end := context.WithCancel(context.Background())
	end()
	events := make([]history.Event, len(hs))
	for i, h := range hs {
		events[i] = h.event(op)
	}
	return w.callAll(events, func(events []history.Event) error {
		err := under.Unlock(ended)
		for i := range events {
			events[i].Lost = errors.Is(err, sqllock.ErrLost)
		}
		return err
	})
}

func (w *worker) read(h *held) (n int64, err error) {
	ctx, cancel := context.WithTimeout(h.Context(), bound)
	defer cancel()
	err = w.call(h.event(history.Read), func(e *history.Event) (err error) {
		n, err = w.work.Read(ctx, h.line())
		e.N = n
		return err
	})
	return n, err
}

// fenced announces its token, reads, and writes the successor of what it read.
func (w *worker) fenced(h *held) {
	ctx, cancel := context.WithTimeout(h.Context(), bound)
	defer cancel()
	announced := false
	e := h.event(history.Announce)
	e.Token = h.token
	err := w.call(e, func(e *history.Event) (err error) {
		announced, err = w.work.Announce(ctx, h.line(), h.token)
		e.OK = announced
		return err
	})
	w.look(h)
	if err != nil || !announced {
		return
	}
	n, err := w.read(h)
	if err != nil {
		return
	}
	e = h.write(history.Fenced, w.id())
	e.N = n + 1
	_ = w.call(e, func(e *history.Event) (err error) {
		e.OK, err = w.work.Write(ctx, e.ID, h.line(), h.token, n+1)
		return err
	})
	w.look(h)
}

// write returns the event of a write.
func (h *held) write(op, id string) history.Event {
	e := h.event(op)
	e.ID, e.Token = id, h.token
	return e
}

// guarded adds to the guarded registers, taking its time between reading and writing:
// with InTx, which ends with the leases, or in a transaction that knows nothing of them.
func (w *worker) guarded(hs []*held, inTx bool) {
	in := hs[0].InTx
	if !inTx {
		in = func(ctx context.Context, opts *sql.TxOptions, fn func(context.Context, *sql.Tx) error) error {
			return w.guard(ctx, hs[0], opts, fn)
		}
	}
	events := make([]history.Event, len(hs))
	for i, h := range hs {
		events[i] = h.write(history.Guarded, w.id())
	}
	_ = w.callAll(events, func(events []history.Event) error { return w.inTx(in, hs, events) })
}

// addAll adds to the guarded register of each lease.
func (w *worker) addAll(ctx context.Context, tx *sql.Tx, hs []*held, events []history.Event) (err error) {
	for i, h := range hs {
		e := &events[i]
		e.N, err = w.work.Add(ctx, tx, e.ID, h.line(), h.token, func() { w.pause(10*time.Millisecond, history.Guarded) })
		if err != nil {
			return err
		}
	}
	return nil
}

// isolation is what docs/semaphore.md recommends for the guard of a permit.
func (w *worker) isolation(h *held) *sql.TxOptions {
	if h.permit && (w.cfg.Database == "mariadb" || w.cfg.Database == "galera") {
		return &sql.TxOptions{Isolation: sql.LevelReadCommitted}
	}
	return nil
}

// guard calls fn in a transaction that guards the leases, and commits.
func (w *worker) guard(ctx context.Context, h *held, opts *sql.TxOptions, fn func(context.Context, *sql.Tx) error) error {
	tx, err := w.locksDB.BeginTx(ctx, opts)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }()
	if err := h.Guard(ctx, tx); err != nil {
		return err
	}
	if err := fn(ctx, tx); err != nil {
		return err
	}
	return tx.Commit()
}

// plain shows a wrong use: it looks at the lease, waits, and writes. The write is not
// bound to the lease.
func (w *worker) plain(h *held) {
	if !w.look(h) {
		return
	}
	w.pause(20*time.Millisecond, history.Plain)
	_ = w.call(h.write(history.Plain, w.id()), func(e *history.Event) error {
		ctx, cancel := context.WithTimeout(context.Background(), bound)
		defer cancel()
		err := w.work.Plain(ctx, e.ID, h.line(), h.token)
		e.OK = err == nil
		return err
	})
}

// pause takes up to d, and stops the process here if an order says so.
func (w *worker) pause(d time.Duration, at string) {
	time.Sleep(time.Duration(w.rng.Int64N(int64(d))))
	w.orders.Reach(at)
}

// inspect compares the holder in the database with this worker.
func (w *worker) inspect(h *held) {
	ctx, cancel := context.WithTimeout(h.Context(), bound)
	defer cancel()
	_ = w.call(h.event(history.Inspect), func(e *history.Event) error {
		info, err := w.locks.Inspect(ctx, h.name)
		if err != nil {
			return err
		}
		e.Token, e.Owner, e.Start, e.Reason = info.Token, info.Owner, info.Since.UnixMicro(), info.State.String()
		if w.cfg.Use == Options {
			e.Options = &history.Options{Value: string(info.Value)}
		}
		for _, other := range info.Holders {
			if other.Slot == h.slot {
				e.Token, e.Owner, e.Start = other.Token, other.Owner, other.Since.UnixMicro()
			}
		}
		return nil
	})
}
