//go:build linux

package client

import (
	"context"
	"database/sql"
	"errors"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/sqllock/sqllock"
	"github.com/sqllock/sqllock/faults/internal/history"
)

// What the clients use.
const (
	Locks   = "locks"   // of one name at a time; in unique mode also permits of a semaphore
	Permits = "permits" // of semaphores alone
	LockAll = "lockall" // of several names at a time, and of one
	Options = "options" // of all kinds of acquisitions, with options of all kinds
)

// acquired is what one call acquires: a lease, or the leases of several names.
type acquired interface {
	Context() context.Context
	Remaining() time.Duration
	Unlock(ctx context.Context) error
	Guard(ctx context.Context, tx *sql.Tx) error
	InTx(ctx context.Context, opts *sql.TxOptions, fn func(context.Context, *sql.Tx) error) error
}

// held is a name that is held, with the id of its lease in the history.
type held struct {
	acquired
	id, name, owner string
	token           int64
	shared, permit  bool
	slot            int
	took            time.Duration // to acquire it

	// With options:
	lease  *sqllock.Lease              // if it is one
	unlock func(context.Context) error // if it is not Unlock
}

// event returns an event of the lease.
func (h *held) event(op string) history.Event {
	return history.Event{Op: op, Lease: h.id, Name: h.name, Permit: h.permit, Slot: h.slot}
}

// line names the registers that the lease protects.
func (h *held) line() string {
	e := h.event("")
	return e.Line()
}

// granted notes what a call has got, in its event too.
func (h *held) granted(by acquired, token int64, e *history.Event) {
	h.acquired, h.token = by, token
	e.Token, e.Owner, e.Slot = token, h.owner, h.slot
	e.Age = int64(time.Since(time.UnixMicro(token)))
}

// The kinds of calls.
const (
	waits  = "wait"    // for one name
	all    = "all"     // for several
	try    = "try"     // without waiting
	giveUp = "give up" // early
	adopts = "adopt"   // what was detached
)

// acquire makes one call, of whatever kind. It returns nothing if that was given up, was in vain
// or failed.
func (w *worker) acquire() (hs []*held) {
	name, permit := w.choose()
	kind := waits
	switch w.rng.IntN(10) {
	case 0:
		kind = try
	case 1:
		kind = giveUp
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	if kind == giveUp {
		ctx, cancel = context.WithTimeout(ctx, time.Duration(w.rng.IntN(100))*time.Millisecond)
		defer cancel()
	}
	opts := []sqllock.LockOption{sqllock.LockDelay(w.cfg.Delays[name])}
	shared := !permit && w.rng.IntN(5) == 0
	if w.cfg.Use == LockAll && w.rng.IntN(2) == 0 {
		hs = w.acquireAll(ctx, kind, shared, w.options(name), opts)
	} else {
		hs = w.acquireOne(ctx, kind, &held{id: w.id(), name: name, shared: shared, permit: permit}, w.options(name), opts)
	}
	for _, h := range hs {
		w.look(h)
		w.watch(h)
	}
	return hs
}

// choose returns the name of the next call, and whether that is one for a permit. Where there are
// names and semaphores, a quarter of the calls are for permits: so many that these are scarce.
func (w *worker) choose() (name string, permit bool) {
	permit = len(w.cfg.Names) == 0 || len(w.cfg.Semaphores) > 0 && w.rng.IntN(4) == 0
	among := w.cfg.Names
	if permit {
		among = w.cfg.Semaphores
	}
	return among[w.rng.IntN(len(among))], permit
}

// acquireOne acquires one name, or one of its permits.
func (w *worker) acquireOne(ctx context.Context, kind string, h *held, o *history.Options, opts []sqllock.LockOption) []*held {
	e := h.event(history.Lock)
	e.ID, e.Shared, e.Reason, e.Options = h.id, h.shared, kind, o
	began := time.Now()
	err := w.call(e, func(e *history.Event) error {
		lease, err := w.lock(h, kind)(ctx, opts...)
		if err != nil {
			return noteRefusal(err, e)
		}
		h.owner, h.slot, h.took = lease.Owner(), lease.Slot(), time.Since(began)
		h.granted(lease, lease.Token(), e)
		return nil
	})
	if err != nil {
		return nil
	}
	return []*held{h}
}

// lock is the method of the library that acquires such a lease.
func (w *worker) lock(h *held, kind string) func(context.Context, ...sqllock.LockOption) (*sqllock.Lease, error) {
	if h.permit {
		if kind == try {
			return w.semaphores[h.name].TryAcquire
		}
		return w.semaphores[h.name].Acquire
	}
	lock := w.locks.Lock
	switch {
	case h.shared && kind == try:
		lock = w.locks.TryRLock
	case h.shared:
		lock = w.locks.RLock
	case kind == try:
		lock = w.locks.TryLock
	}
	return func(ctx context.Context, opts ...sqllock.LockOption) (*sqllock.Lease, error) {
		return lock(ctx, h.name, opts...)
	}
}

// mostNames is how many names are acquired together at most.
const mostNames = 4

// acquireAll acquires several names together. In the history each of them is a lease.
func (w *worker) acquireAll(ctx context.Context, kind string, shared bool, o *history.Options, opts []sqllock.LockOption) []*held {
	names := some(w.cfg.Names, 2+w.rng.IntN(mostNames-1), w.rng)
	if kind == waits {
		kind = all
	}
	hs, events := make([]*held, len(names)), make([]history.Event, len(names))
	for i, name := range names {
		hs[i] = &held{id: w.id(), name: name, shared: shared}
		events[i] = hs[i].event(history.Lock)
		events[i].ID, events[i].Shared, events[i].Reason, events[i].Options = hs[i].id, shared, kind, o
	}
	if w.takeAll(events, hs, func() (*sqllock.Leases, error) { return w.lockAll(shared, kind)(ctx, names, opts...) }) != nil {
		return nil
	}
	return hs
}

// takeAll acquires the names of hs together, and notes what became of that.
func (w *worker) takeAll(events []history.Event, hs []*held, acquire func() (*sqllock.Leases, error)) error {
	return w.callAll(events, func(events []history.Event) error {
		leases, err := acquire()
		for i, h := range hs {
			if err != nil {
				_ = noteRefusal(err, &events[i])
			} else {
				h.granted(leases, leases.Token(h.name), &events[i])
			}
		}
		return err
	})
}

// lockAll is the method of the library that acquires several names.
func (w *worker) lockAll(shared bool, kind string) func(context.Context, []string, ...sqllock.LockOption) (*sqllock.Leases, error) {
	switch {
	case shared && kind == try:
		return w.locks.TryRLockAll
	case shared:
		return w.locks.RLockAll
	case kind == try:
		return w.locks.TryLockAll
	}
	return w.locks.LockAll
}

// noteRefusal notes in an event why a call has acquired nothing.
func noteRefusal(err error, e *history.Event) error {
	e.Refuse, e.Cycle = errors.Is(err, sqllock.ErrHeld), errors.Is(err, sqllock.ErrDeadlock)
	return err
}

// some returns n of the names, in any order.
func some(names []string, n int, rng *rand.Rand) []string {
	names = slices.Clone(names)
	rng.Shuffle(len(names), func(i, k int) { names[i], names[k] = names[k], names[i] })
	return names[:n]
}

// options returns the options of a call for a name. They are not noted in the modes whose sessions
// keep the locks: what they promise there, the checks do not know.
func (w *worker) options(name string) *history.Options {
	if w.cfg.Mode != Unique {
		return nil
	}
	return &history.Options{TTL: int64(w.cfg.TTL), Delay: int64(w.cfg.Delays[name])}
}
