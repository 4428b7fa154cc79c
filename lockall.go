package sqllock

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/sqllock/sqllock/driver"
)

// maxNames is how many names one call of LockAll takes at most.
const maxNames = 1000

// maxRestarts is how often a call of LockAll that has lost a lease while it waited begins again.
const maxRestarts = 10

// LockAll waits until it holds all of names, and returns their leases. It returns either all
// leases or none. There are 1 to 1,000 names, in any order; a name that stands there twice
// is locked once. [UniqueOptions].MaxBatch does not limit them. LockAll needs unique mode.
//
// If all names are free, LockAll acquires them with one statement. SQLite and MariaDB read their
// rows before, with another one; MySQL takes a transaction. Otherwise it acquires the names in the
// order of their bytes: it takes those before the first that is held, waits for that one in its
// queue as Lock does, and goes on. So calls of LockAll never deadlock with each other, nor with
// callers that lock one name after the other in that order. If other callers lock in another
// order, or ctx carries leases, LockAll returns [ErrDeadlock] as Lock does. While LockAll waits
// for a name, it holds those before it. So one slow holder can keep many callers waiting, each of
// whom keeps others from names that the slow holder does not have: hold the names for a short
// time only.
//
// If LockAll loses a lease while it waits for another name, it frees all names and begins
// again, up to 10 times. After that it returns the [*LostError].
//
// ctx, and the option [Wait], bound the whole call. [Tries] is refused. The other options
// apply to each lease; [MaxHold] counts from when that name was granted. If ctx carries a
// lease for one of the names, or an owner that holds it, LockAll re-enters that lease, as
// Lock does.
//
// The errors are those of Lock, and:
//   - [ErrInvalidOption] for no names, or more than 1,000;
//   - [ErrUnsupported] in the modes for update and advisory, and of a quorum.
//
// After an error this call holds nothing, as with Lock. A [MinHold] keeps no name then.
func (l *Locker) LockAll(ctx context.Context, names []string, opts ...LockOption) (*Leases, error) {
	return l.lockAll(ctx, names, false, true, opts)
}

// TryLockAll is LockAll without waiting. If another caller holds one of the names, it returns
// a [*HeldError] that says which and who, of the first such name in the order of their bytes.
// It then has written nothing. If all names are free, one statement acquires them, see LockAll.
func (l *Locker) TryLockAll(ctx context.Context, names []string, opts ...LockOption) (*Leases, error) {
	return l.lockAll(ctx, names, false, false, opts)
}

// RLockAll is LockAll for shared leases, see [Locker.RLock]. It takes a transaction of a few
// statements where LockAll takes one statement.
func (l *Locker) RLockAll(ctx context.Context, names []string, opts ...LockOption) (*Leases, error) {
	return l.lockAll(ctx, names, true, true, opts)
}

// TryRLockAll is RLockAll without waiting, see TryLockAll.
func (l *Locker) TryRLockAll(ctx context.Context, names []string, opts ...LockOption) (*Leases, error) {
	return l.lockAll(ctx, names, true, false, opts)
}

func (l *Locker) lockAll(ctx context.Context, names []string, shared, waits bool, opts []LockOption) (*Leases, error) {
	if !l.mode.queues {
		return nil, fmt.Errorf("%w: lock %d names together: only unique mode can", ErrUnsupported, len(names))
	}
	o, err := l.allOptions(opts, shared, waits)
	if err != nil {
		return nil, err
	}
	names, owner, err := checkNames(ctx, names)
	if err != nil {
		return nil, err
	}
	if !l.inflight.begin() {
		return nil, ErrClosed
	}
	defer l.inflight.done()
	if o.hasWait {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, o.wait, errWaitOver)
		defer cancel()
	}
	for restarts := 0; ; restarts++ {
		a := &allAcquisition{locker: l, names: names, owner: owner, opts: o}
		leases, lost, err := a.acquire(ctx, waits)
		switch {
		case err == nil:
			return leases, nil
		case lost == nil:
			return nil, err
		case restarts == maxRestarts:
			return nil, fmt.Errorf("sqllock: lock %d names: lost one while waiting for another, %d times: %w", len(names), restarts+1, lost)
		}
	}
}

// allOptions applies the options of a call that locks several names.
func (l *Locker) allOptions(opts []LockOption, shared, waits bool) (lockOptions, error) {
	if !waits {
		return l.tryOptions(opts, shared)
	}
	o, err := l.lockOptions(opts, shared)
	if err == nil && o.hasTries {
		err = fmt.Errorf("%w: Tries(%d): does not apply to a call that locks several names", ErrInvalidOption, o.tries)
	}
	return o, err
}

// checkNames checks the arguments of a call that locks several names. It returns the names
// sorted and distinct, and the explicit owner that ctx carries, or "".
func checkNames(ctx context.Context, names []string) (sorted []string, owner string, err error) {
	if n := len(names); n == 0 || n > maxNames {
		return nil, "", fmt.Errorf("%w: %d names: must be from 1 to %d", ErrInvalidOption, n, maxNames)
	}
	for _, name := range names {
		if err := checkCall(ctx, name); err != nil {
			return nil, "", err
		}
	}
	sorted = slices.Clone(names)
	slices.Sort(sorted)
	owner, err = ownerFrom(ctx)
	return slices.Compact(sorted), owner, err
}

// allAcquisition is one attempt of a call to get all of its names.
type allAcquisition struct {
	locker *Locker
	names  []string // sorted and distinct
	owner  string   // explicit owner, or ""
	opts   lockOptions
	leases []*Lease       // so far
	left   []*acquisition // of the names without a lease, in their order
}

// acquire gets all names, or frees those that it has got. It returns the loss of a lease if
// that has ended it and another attempt may do better.
func (a *allAcquisition) acquire(ctx context.Context, waits bool) (_ *Leases, lost *LostError, err error) {
	done := false
	defer func() {
		if !done { // also if a driver panics
			a.free(ctx)
			a.noteFailed(err)
		}
	}()
	if err := a.reenter(ctx); err != nil {
		return nil, nil, err
	}
	if waits {
		lost, err = a.wait(ctx)
	} else {
		err = a.try(ctx)
	}
	if err != nil {
		return nil, lost, err
	}
	done = true
	return newLeases(ctx, a.locker, a.leases), nil, nil
}

// noteFailed reports that the wait for a name has ended with an error.
func (a *allAcquisition) noteFailed(err error) {
	for _, one := range a.left {
		if one.waits {
			one.noteFailed(err)
		}
	}
}

// reenter re-enters the leases that ctx carries, or whose owner it carries.
func (a *allAcquisition) reenter(ctx context.Context) error {
	for _, name := range a.names {
		lease, err := a.locker.reenter(ctx, name, a.opts.shared)
		if err != nil {
			return err
		}
		if lease == nil && a.owner != "" {
			if t := a.locker.queue.ownedBy(name, a.owner); t != nil {
				if lease, err = t.reenter(ctx, a.opts.shared); errors.Is(err, ErrUpgrade) {
					return err
				}
			}
		}
		if lease != nil {
			a.leases = append(a.leases, lease)
		} else {
			a.left = append(a.left, a.locker.newAcquisition(name, a.owner, a.opts))
		}
	}
	return nil
}

// try sends a request for all names. It sends it again for up to the time of one statement,
// while the database says that this helps.
func (a *allAcquisition) try(ctx context.Context) error {
	l := a.locker
	backoff := newBackoff(&l.cfg)
	until := l.clock.Now() + l.cfg.timeout(a.opts.ttl)
	for len(a.left) > 0 {
		held, err := a.request(ctx, len(a.left))
		switch {
		case err == nil && held < 0:
			return a.begin(ctx, len(a.left))
		case err == nil:
			one := a.left[held]
			return one.skip(newHeldError(one.req.Name, one.holder))
		case l.mode.Classify(err) != driver.Again || l.clock.Now() >= until:
			return a.error(err)
		}
		if err := l.sleep(ctx, nil, backoff.next()); err != nil {
			return a.error(err)
		}
	}
	return nil
}

// wait gets the names in their order. Those that are free are acquired together; it waits for
// one name at a time. It returns the loss of a lease that has ended the wait.
func (a *allAcquisition) wait(ctx context.Context) (*LostError, error) {
	watched := a.watch(ctx)
	defer watched.stop()
	for {
		err := a.takeFree(watched)
		if err == nil && len(a.left) == 0 {
			return nil, nil
		}
		var lease *Lease
		if err == nil {
			lease, err = a.left[0].waitInQueue(watched, newBackoff(&a.locker.cfg), 0)
		}
		if err != nil {
			return a.loss(ctx), err
		}
		a.left = a.left[1:]
		a.leases = append(a.leases, lease)
		watched.add(lease)
	}
}

// takeFree acquires, of the names that are left, as many as are free before the first that is
// not.
func (a *allAcquisition) takeFree(ctx *watchedContext) error {
	l := a.locker
	backoff := newBackoff(&l.cfg)
	for n := len(a.left); n > 0; {
		held, err := a.request(ctx, n)
		switch {
		case err == nil && held >= 0:
			n = held
			continue
		case err == nil:
			before := len(a.leases)
			err := a.begin(ctx, n)
			for _, lease := range a.leases[before:] {
				ctx.add(lease)
			}
			return err
		case ctx.Err() != nil:
			return a.left[0].waitError(endOf(ctx))
		case errors.Is(err, ErrClosed) || l.mode.Classify(err) == driver.Refused:
			return a.error(err)
		}
		if err := l.sleep(ctx, nil, backoff.next()); err != nil {
			return a.left[0].waitError(err)
		}
	}
	return nil
}

// begin begins the terms of the first n names that are left, whose requests were granted.
func (a *allAcquisition) begin(ctx context.Context, n int) error {
	granted := a.left[:n]
	a.left = a.left[n:]
	for i, one := range granted {
		lease, err := one.beginTerm(ctx, one.term)
		if err != nil {
			for _, other := range granted[i+1:] {
				a.locker.giveBack(other.req, other.unknown)
			}
			return err
		}
		a.leases = append(a.leases, lease)
	}
	return nil
}

// loss returns the loss of a lease, if one is lost and ctx has not ended.
func (a *allAcquisition) loss(ctx context.Context) *LostError {
	if ctx.Err() != nil {
		return nil
	}
	for _, lease := range a.leases {
		if lost := lease.term.lostError(); lost != nil {
			return lost
		}
	}
	return nil
}

// free gives back all that the attempt has, or may have. A minimum hold is for those who were
// told that they hold the name.
func (a *allAcquisition) free(ctx context.Context) {
	for _, lease := range a.leases {
		lease.term.notUsedBy(lease)
	}
	_ = a.locker.unlockAll(newUnlockBound(ctx, a.locker.cfg.timeout(a.opts.ttl)), a.leases)
	for _, other := range a.left {
		other.abandon()
	}
}

func (a *allAcquisition) error(err error) error {
	if errors.Is(err, ErrClosed) {
		return ErrClosed
	}
	return fmt.Errorf("sqllock: lock %d names from %q on: %w", len(a.left), a.left[0].req.Name, err)
}

// request sends a request for the first n names that are left, all of them or none. If they
// are granted, their terms wait for begin. Otherwise it returns the first name that is held,
// or an error.
//
// The end of ctx does not cancel the request. It goes on, and what it is granted is given
// back.
func (a *allAcquisition) request(ctx context.Context, n int) (held int, err error) {
	l := a.locker
	which := slices.Clone(a.left[:n])
	reqs := make([]driver.AcquireRequest, n)
	for i, one := range which {
		one.requests++
		reqs[i] = one.req
		reqs[i].All = true
	}
	sent := l.clock.Now()
	got := make(chan allReply, 1)
	l.inflight.add()
	go func() {
		defer l.inflight.done()
		got <- l.sendAll(reqs, l.cfg.timeout(a.opts.ttl))
	}()
	select {
	case r := <-got:
		return a.read(which, r)
	case <-ctx.Done():
		err = endOf(ctx)
	case <-l.inflight.closing:
		err = ErrClosed
	}
	for _, one := range which { // the request may still be granted
		if !one.unknown {
			one.unknown, one.unknownSince = true, sent
		}
	}
	return 0, err
}

// allReply is the outcome of one request for several names.
type allReply struct {
	before, after time.Duration
	res           []driver.AcquireResult
	err           error
}

// sendAll runs the statement of one request for several names.
func (l *Locker) sendAll(reqs []driver.AcquireRequest, timeout time.Duration) (r allReply) {
	ctx, cancel := context.WithTimeout(l.base, timeout)
	defer cancel()
	defer l.keeper.noteUse()
	r.before = l.clock.Now()
	r.res, r.err = l.mode.Acquire(ctx, reqs)
	for i := range r.res {
		l.noteCrash(reqs[i].Name, r.res[i].Crashed)
	}
	if r.err == nil {
		r.err = l.renewFound(ctx, reqs, r.res)
	}
	r.after = l.clock.Now()
	return r
}

// renewFound renews grants of an earlier request whose reply was lost, see confirmGrant.
func (l *Locker) renewFound(ctx context.Context, reqs []driver.AcquireRequest, res []driver.AcquireResult) error {
	var found []int
	var renewals []driver.RenewRequest
	for i := range res {
		if q := &reqs[i]; res[i].Found {
			found = append(found, i)
			renewals = append(renewals, driver.RenewRequest{Name: q.Name, Acq: q.Acq, Version: res[i].Version, TTL: q.TTL, Holds: 1, Shared: q.Shared})
		}
	}
	if len(found) == 0 {
		return nil
	}
	renewed, err := l.mode.Renew(ctx, renewals, true)
	if err != nil {
		return err
	}
	for k, i := range found {
		if renewed.Status[k] != driver.Renewed {
			return errGrantOver
		}
		res[i].Remaining, res[i].Now = reqs[i].TTL, renewed.Now
	}
	return nil
}

// errGrantOver says that a grant of an earlier request, whose reply was lost, was over before
// it was known.
var errGrantOver = errors.New("a grant whose reply was lost is over")

// read notes the reply to a request. held is the first name that is held, or -1.
func (a *allAcquisition) read(which []*acquisition, r allReply) (held int, err error) {
	held = -1
	for i, one := range which {
		switch {
		case r.err != nil:
			_, _, _ = one.readReply(reply{Before: r.before, After: r.after, Err: r.err})
		case r.res[i].Granted, r.res[i].Refused:
			one.term, _, _ = one.readReply(reply{Before: r.before, After: r.after, Result: r.res[i]})
		}
		if r.err == nil && r.res[i].Refused && held < 0 {
			held = i
		}
	}
	return held, r.err
}

// watchedContext is the context of a wait by a caller that holds leases already. It carries
// them for the search for deadlocks, and ends when one of them does.
type watchedContext struct {
	context.Context
	cancel context.CancelCauseFunc
	acqs   []driver.ID
	stops  []func() bool
}

// watch returns a context that ends with ctx or the leases so far. The caller must stop it.
func (a *allAcquisition) watch(ctx context.Context) *watchedContext {
	inner, cancel := context.WithCancelCause(ctx)
	w := &watchedContext{Context: inner, cancel: cancel}
	for _, lease := range a.leases {
		w.add(lease)
	}
	return w
}

func (w *watchedContext) add(lease *Lease) {
	w.acqs = append(w.acqs, lease.term.acq)
	w.stops = append(w.stops, context.AfterFunc(lease.ctx.Context, func() { w.cancel(context.Cause(lease.ctx.Context)) }))
}

func (w *watchedContext) stop() {
	for _, stop := range w.stops {
		stop()
	}
	w.cancel(context.Canceled)
}

func (w *watchedContext) Value(key any) any {
	if _, ok := key.(carriedKey); ok {
		return append(slices.Clip(carriedBy(w.Context)), w.acqs...)
	}
	return w.Context.Value(key)
}
