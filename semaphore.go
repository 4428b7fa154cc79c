package sqllock

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"

	"github.com/sqllock/sqllock/driver"
)

// MaxPermits is the highest number of permits that a name can have. Each grant and each release
// reads who holds the name: the more permits are held at a time, the slower they are.
const MaxPermits = driver.MaxPermits

// Semaphore lets a number of holders have a name at the same time. Make one with
// [Locker.Semaphore]. It is safe for concurrent use, starts no goroutine, and needs no Close.
type Semaphore struct {
	locker   *Locker
	name     string
	permits  atomic.Int64
	defaults []LockOption
	resizing chan struct{} // is taken while a Resize is under way
}

// SemaphoreOptions are the options of [Locker.Semaphore]. The zero value of each field means
// its default.
type SemaphoreOptions struct {
	// Defaults apply to each Acquire, TryAcquire and Do, before the options of the call. [Wait]
	// and [Tries] among them do not apply to TryAcquire, which does not wait. The default is
	// none.
	Defaults []LockOption
}

// Semaphore returns a semaphore of name with a number of permits, from 1 to [MaxPermits]. Each
// of them can be held by one caller, in any process. Options may be nil. Semaphore runs no SQL.
//
// The first caller that asks for a permit of name writes their number to the database. From
// then on, a semaphore with another number gets a [*PermitsError], until [Semaphore.Resize]
// changes it. The number is forgotten with the row of the name, when the name was free for
// longer than [ReaperOptions].Retention.
//
// Callers of Lock, RLock and Acquire wait for name in one queue. Whoever locks name waits until
// no permit is held, and readers and holders of permits exclude each other.
//
// Semaphore returns [ErrInvalidName], [ErrInvalidOption] if permits or an option is out of
// bounds, and [ErrUnsupported] in the modes for update and advisory, and of a quorum.
func (l *Locker) Semaphore(name string, permits int, opts *SemaphoreOptions) (*Semaphore, error) {
	if err := driver.CheckName(name); err != nil {
		return nil, err
	}
	if err := validatePermits(permits); err != nil {
		return nil, err
	}
	s := &Semaphore{locker: l, name: name, resizing: make(chan struct{}, 1)}
	if opts != nil {
		s.defaults = slices.Clone(opts.Defaults)
	}
	s.permits.Store(int64(permits))
	if _, err := s.options(nil, false); err != nil {
		return nil, err
	}
	if l.mode.permits == nil {
		return nil, fmt.Errorf("%w: a semaphore of %q: this mode has none; use NewUnique", ErrUnsupported, name)
	}
	return s, nil
}

func validatePermits(n int) error {
	if n < 1 || n > MaxPermits {
		return fmt.Errorf("%w: %d permits: must be from 1 to %d", ErrInvalidOption, n, MaxPermits)
	}
	return nil
}

// options applies the options of a call.
func (s *Semaphore) options(opts []LockOption, try bool) (lockOptions, error) {
	apply, defaults := s.locker.lockOptions, s.defaults
	if try {
		apply = s.locker.tryOptions
		if len(defaults) > 0 {
			defaults = append(slices.Clip(defaults), withoutWait)
		}
	}
	o, err := apply(slices.Concat(defaults, opts), false)
	if err == nil {
		err = o.refuseTogether("a permit")
	}
	return o, err
}

// withoutWait drops the options of calls that wait.
func withoutWait(o *lockOptions) { o.wait, o.hasWait, o.tries, o.hasTries = 0, false, 0, false }

// Name returns the name.
func (s *Semaphore) Name() string {
	if s == nil {
		return ""
	}
	return s.name
}

// Permits returns how many permits the name has, as far as this Semaphore knows: the number it
// was made with, or that of its last Resize.
func (s *Semaphore) Permits() int {
	if s == nil {
		return 0
	}
	return int(s.permits.Load())
}

// Acquire waits until it holds a permit, and returns its lease. It waits as [Locker.Lock] does,
// in the order of the queue, and returns the same errors. If the name has another number of
// permits, the error is a [*PermitsError], and Acquire does not wait.
//
// Acquire never re-enters: each call takes a permit of its own, whatever lease or owner ctx
// carries. The options [MinHold] and [Value] are refused with [ErrInvalidOption].
//
// The lease of a permit is one like any other: it has a token of its own, is renewed, and ends
// its context when it is lost. A permit that is not renewed is free after its TTL.
// [Lease.Guard] makes sure that the permit is not granted again before a transaction has ended.
// [Lease.Slot] tells the permits of a name apart.
func (s *Semaphore) Acquire(ctx context.Context, opts ...LockOption) (*Lease, error) {
	return s.acquire(ctx, opts, false, (*acquisition).wait)
}

// TryAcquire is Acquire without waiting. If no permit is free, it returns a [*HeldError]. If the
// database cannot be reached, it returns that error. The options [Wait] and [Tries] of the call
// are refused with [ErrInvalidOption]; those of [SemaphoreOptions].Defaults are dropped.
func (s *Semaphore) TryAcquire(ctx context.Context, opts ...LockOption) (*Lease, error) {
	return s.acquire(ctx, opts, true, (*acquisition).try)
}

// Do waits for a permit as Acquire does, and then runs fn while it holds it. See [Locker.Do]
// for the context of fn, for what Do returns, and for what happens if fn panics.
func (s *Semaphore) Do(ctx context.Context, fn func(ctx context.Context, lease *Lease) error, opts ...LockOption) error {
	if fn == nil {
		return driver.NilError("function")
	}
	lease, err := s.Acquire(ctx, opts...)
	if err != nil {
		return err
	}
	return lease.run(ctx, fn)
}

// acquire is Acquire and TryAcquire.
func (s *Semaphore) acquire(
	ctx context.Context, opts []LockOption, try bool, do func(*acquisition, context.Context) (*Lease, error),
) (*Lease, error) {
	if s == nil || s.locker == nil {
		return nil, driver.NilError("Semaphore")
	}
	l := s.locker
	o, err := s.options(opts, try)
	if err != nil {
		return nil, err
	}
	owner, err := checkLock(ctx, s.name)
	if err != nil {
		return nil, err
	}
	if !l.inflight.begin() {
		return nil, ErrClosed
	}
	defer l.inflight.done()
	if ctx.Err() != nil {
		return nil, lockError(s.name, endOf(ctx))
	}
	if o.hasWait {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, o.wait, errWaitOver)
		defer cancel()
	}
	for {
		o.permits = s.Permits()
		lease, err := do(l.newAcquisition(s.name, owner, o), ctx)
		if !errors.Is(err, ErrPermits) || !s.wasResized(ctx, o.permits) {
			return lease, err
		}
	}
}

// wasResized waits for a Resize that is under way, and reports whether the number of permits is
// another one than before.
func (s *Semaphore) wasResized(ctx context.Context, before int) bool {
	select {
	case s.resizing <- struct{}{}:
		<-s.resizing
	case <-ctx.Done():
	}
	return s.Permits() != before
}

// Resize changes how many permits the name has, in the database and in this Semaphore. Other
// Semaphores of the name get a [*PermitsError] from then on, until they are resized, too.
//
// If there are more permits, those who wait get them at once. If there are fewer than are held,
// nobody loses a permit: the next one is granted when fewer than permits are held. Callers that
// wait already keep their places, in all processes.
//
// Resize waits for a row that somebody has locked, and until ctx ends while the database is
// busy. It returns [ErrInvalidOption] before any SQL if permits is out of bounds, [ErrClosed],
// or the error of the database. After such an error either number may count: call Resize again.
func (s *Semaphore) Resize(ctx context.Context, permits int) error {
	if s == nil || s.locker == nil {
		return driver.NilError("Semaphore")
	}
	if err := driver.CheckContext(ctx); err != nil {
		return err
	}
	if err := validatePermits(permits); err != nil {
		return err
	}
	select {
	case s.resizing <- struct{}{}:
		defer func() { <-s.resizing }()
	case <-ctx.Done():
		return operatorError("resize", s.name, endOf(ctx))
	}
	l := s.locker
	err := l.retryRepeatable(ctx, func(ctx context.Context) error { return l.mode.permits.Resize(ctx, s.name, permits) })
	if err != nil {
		return operatorError("resize", s.name, err)
	}
	s.permits.Store(int64(permits))
	l.claims.recheck(s.name)
	return nil
}
