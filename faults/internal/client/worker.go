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
	number int
	rng    *rand.Rand
}

func newWorker(c *client, number int) *worker {
	return &worker{client: c, number: number, rng: rand.New(rand.NewPCG(c.cfg.Seed, uint64(number)))}
}

// run works until the client is stopped. It finishes what it has begun: a worker that
// waits continues to wait until it is served.
func (w *worker) run() {
	for w.ctx.Err() == nil {
		i := w.rng.IntN(len(w.cfg.Names))
		if lease := w.acquire(w.cfg.Names[i], w.cfg.Delays[i]); lease != nil {
			w.workUnder(lease)
		}
		time.Sleep(time.Duration(w.rng.IntN(5)) * time.Millisecond)
	}
}

// held is a lease with its id in the history.
type held struct {
	*sqllock.Lease
	id string
}

// acquire makes one call, of whatever kind. It returns nil if that was given up, was in
// vain or failed.
func (w *worker) acquire(name string, delay time.Duration) *held {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	opts := []sqllock.LockOption{sqllock.LockDelay(delay)}
	lock, kind := w.locks.Lock, "wait"
	shared := w.rng.IntN(5) == 0
	if shared {
		lock = w.locks.RLock
	}
	switch w.rng.IntN(10) {
	case 0:
		kind = "try"
		if lock = w.locks.TryLock; shared {
			lock = w.locks.TryRLock
		}
	case 1:
		kind = "give up"
		ctx, cancel = context.WithTimeout(ctx, time.Duration(w.rng.IntN(100))*time.Millisecond)
		defer cancel()
	}
	h := &held{id: w.id()}
	err := w.call(history.Event{Op: history.Lock, ID: h.id, Lease: h.id, Name: name, Shared: shared, Reason: kind},
		func(e *history.Event) (err error) {
			if h.Lease, err = lock(ctx, name, opts...); err != nil {
				e.Refuse = errors.Is(err, sqllock.ErrHeld)
				return err
			}
			e.Token, e.Owner = h.Token(), h.Owner()
			e.Age = int64(time.Since(time.UnixMicro(h.Token())))
			return nil
		})
	if err != nil {
		return nil
	}
	w.look(h)
	w.watch(h)
	return h
}

// workUnder works under a lease and unlocks it.
func (w *worker) workUnder(h *held) {
	if h.Shared() {
		w.share(h)
	} else {
		w.workExclusive(h)
	}
	_ = w.unlock(history.Unlock, h.id, h.Lease)
}

// share reads the fenced register twice: no client may write while the name is shared.
func (w *worker) share(h *held) {
	w.read(h)
	time.Sleep(time.Duration(w.rng.IntN(15)) * time.Millisecond)
	w.read(h)
	w.look(h)
}

func (w *worker) workExclusive(h *held) {
	dice := w.rng.IntN(10)
	switch w.orders.Aimed() {
	case "":
	case history.Guarded:
		dice = 4
	default:
		dice = 7
	}
	switch dice {
	case 0, 1, 8, 9: // as fast as can be
	case 2:
		w.fenced(h)
	case 3, 4:
		if w.cfg.Work == nil { // a guard is of the database of the locks
			w.guarded(h, dice == 3)
		}
	case 5:
		w.inspect(h)
		w.enter(h)
	default:
		w.plain(h)
	}
}

// enter re-enters the lease in the context, works, and unlocks.
func (w *worker) enter(h *held) {
	var inner *sqllock.Lease
	err := w.call(history.Event{Op: history.Enter, Lease: h.id, Name: h.Name()}, func(e *history.Event) (err error) {
		ctx, cancel := context.WithTimeout(h.Context(), bound)
		defer cancel()
		if inner, err = w.locks.Lock(ctx, h.Name()); err != nil {
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
	_ = w.unlock(history.Leave, h.id, inner)
	w.look(h)
}

// unlock ends a lease. The context is one that has ended: Unlock must not mind.
func (w *worker) unlock(op, id string, lease *sqllock.Lease) error {
	ended, end := context.WithCancel(context.Background())
	end()
	return w.call(history.Event{Op: op, Lease: id, Name: lease.Name()}, func(e *history.Event) error {
		err := lease.Unlock(ended)
		e.Lost = errors.Is(err, sqllock.ErrLost)
		return err
	})
}

func (w *worker) read(h *held) (n int64, err error) {
	ctx, cancel := context.WithTimeout(h.Context(), bound)
	defer cancel()
	err = w.call(history.Event{Op: history.Read, Lease: h.id, Name: h.Name()}, func(e *history.Event) (err error) {
		n, err = w.work.Read(ctx, h.Name())
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
	err := w.call(history.Event{Op: history.Announce, Lease: h.id, Name: h.Name(), Token: h.Token()}, func(e *history.Event) (err error) {
		announced, err = w.work.Announce(ctx, h.Name(), h.Token())
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
	id := w.id()
	_ = w.call(history.Event{Op: history.Fenced, ID: id, Lease: h.id, Name: h.Name(), Token: h.Token(), N: n + 1}, func(e *history.Event) (err error) {
		e.OK, err = w.work.Write(ctx, id, h.Name(), h.Token(), n+1)
		return err
	})
	w.look(h)
}

// guarded adds to the guarded register, taking its time between reading and writing:
// with InTx, which ends with the lease, or in a transaction that knows nothing of it.
func (w *worker) guarded(h *held, inTx bool) {
	id := w.id()
	in := h.InTx
	if !inTx {
		in = func(ctx context.Context, _ *sql.TxOptions, fn func(context.Context, *sql.Tx) error) error {
			return w.guard(ctx, h, fn)
		}
	}
	_ = w.call(history.Event{Op: history.Guarded, ID: id, Lease: h.id, Name: h.Name(), Token: h.Token()}, func(e *history.Event) error {
		ctx, cancel := context.WithTimeout(context.Background(), 2*bound)
		defer cancel()
		began := false
		err := in(ctx, nil, func(ctx context.Context, tx *sql.Tx) (err error) {
			began = true
			e.N, err = w.work.Add(ctx, tx, id, h.Name(), h.Token(), func() { w.pause(10*time.Millisecond, history.Guarded) })
			return err
		})
		e.OK = err == nil
		e.Refuse = !began || errors.Is(err, sqllock.ErrFenced)
		e.Lost = errors.Is(err, sqllock.ErrLost) || errors.Is(err, sqllock.ErrFenced)
		return err
	})
}

// guard calls fn in a transaction that guards the lease, and commits.
func (w *worker) guard(ctx context.Context, h *held, fn func(context.Context, *sql.Tx) error) error {
	tx, err := w.locksDB.BeginTx(ctx, nil)
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
	id := w.id()
	_ = w.call(history.Event{Op: history.Plain, ID: id, Lease: h.id, Name: h.Name(), Token: h.Token()}, func(e *history.Event) error {
		ctx, cancel := context.WithTimeout(context.Background(), bound)
		defer cancel()
		err := w.work.Plain(ctx, id, h.Name(), h.Token())
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
	_ = w.call(history.Event{Op: history.Inspect, Lease: h.id, Name: h.Name()}, func(e *history.Event) error {
		info, err := w.locks.Inspect(ctx, h.Name())
		if err == nil {
			e.Token, e.Owner, e.Start, e.Reason = info.Token, info.Owner, info.Since.UnixMicro(), info.State.String()
		}
		return err
	})
}
