package sqllock

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sqllock/sqllock/driver"
)

var _ driver.Guardable = (*Leases)(nil)

// Leases are the leases of several names that one call of [Locker.LockAll] has acquired. They
// end together: with the first loss, and with Unlock. Each of them is renewed by itself. A
// Leases is safe for concurrent use.
//
// No caller holds a nil *Leases or the zero Leases: Unlock, Guard and InTx return
// [ErrNotHeld], Context and Bind return contexts that have ended with that cause, and the
// other methods return zero values.
type Leases struct {
	locker   *Locker
	leases   []*Lease // sorted by name
	ctx      leasesContext
	stops    []func() bool // of what ends ctx with a lease
	unlocked atomic.Bool
}

// newLeases makes Leases whose context carries the values of ctx.
func newLeases(ctx context.Context, l *Locker, leases []*Lease) *Leases {
	slices.SortFunc(leases, func(a, b *Lease) int { return strings.Compare(a.term.name, b.term.name) })
	inner, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	ls := &Leases{locker: l, leases: leases}
	ls.ctx = leasesContext{Context: inner, cancel: cancel, leases: ls}
	for _, lease := range leases {
		stop := context.AfterFunc(lease.ctx.Context, func() { cancel(context.Cause(lease.ctx.Context)) })
		ls.stops = append(ls.stops, stop)
	}
	return ls
}

// isZero reports whether the leases are nil or zero.
func (ls *Leases) isZero() bool { return ls == nil || ls.locker == nil }

// find returns the lease of a name, or nil.
func (ls *Leases) find(name string) *Lease {
	i, ok := slices.BinarySearchFunc(ls.leases, name, func(lease *Lease, name string) int { return strings.Compare(lease.term.name, name) })
	if !ok {
		return nil
	}
	return ls.leases[i]
}

// Names returns the locked names, each once, in the order of their bytes.
func (ls *Leases) Names() []string {
	if ls.isZero() {
		return nil
	}
	names := make([]string, len(ls.leases))
	for i, lease := range ls.leases {
		names[i] = lease.term.name
	}
	return names
}

// Token returns the fencing token of a name, see [Lease.Token]. It returns 0 for a name that
// is not one of Names.
func (ls *Leases) Token(name string) int64 {
	if ls.isZero() {
		return 0
	}
	return ls.find(name).Token()
}

// Remaining returns for how long all leases are valid unless they are renewed: the least of
// what [Lease.Remaining] returns for each. It returns 0 if one was lost, and after Unlock.
func (ls *Leases) Remaining() time.Duration {
	if ls.isZero() {
		return 0
	}
	left := never
	for _, lease := range ls.leases {
		left = min(left, lease.Remaining())
	}
	return left
}

// Context returns a context that ends with the first of the leases to end: with cause
// [*LostError] when one is lost, [ErrUnlocked] when they are unlocked, and [ErrClosed] when
// the Locker is being closed. It carries the values of the context that was passed to LockAll,
// but not its cancellation or deadline. A Lock of one of the names with this context re-enters
// its lease. Its Err method reads the clock, as that of [Lease.Context] does.
func (ls *Leases) Context() context.Context {
	if ls.isZero() {
		return notHeld
	}
	return &ls.ctx
}

// Bind returns a context that ends with ctx or with the first of the leases, whichever is
// first. It carries the values of ctx and the leases. You must call the CancelFunc when you
// are done with it. If ctx is nil, the context that Bind returns has ended, with a cause that
// is [ErrInvalidOption].
func (ls *Leases) Bind(ctx context.Context) (context.Context, context.CancelFunc) {
	err := driver.CheckContext(ctx)
	if err != nil {
		ctx = context.Background()
	} else if ls.isZero() {
		err = ErrNotHeld
	}
	inner, cancel := context.WithCancelCause(ctx)
	if err != nil {
		cancel(err)
		return inner, func() {}
	}
	bound := &leasesContext{Context: inner, cancel: cancel, leases: ls}
	stop := context.AfterFunc(ls.ctx.Context, bound.check)
	bound.check()
	return bound, func() {
		stop()
		cancel(context.Canceled)
	}
}

// Unlock gives all leases back. It cancels their context, and frees those names for which
// nobody waits with one statement; the others are handed to their next waiters. It is bounded
// as [Lease.Unlock] is, works with a context that has ended, and returns nil, or the joined
// errors of the leases: each is one that Lease.Unlock returns. A second Unlock returns
// [ErrNotHeld].
func (ls *Leases) Unlock(ctx context.Context) error {
	if ls.isZero() || ls.unlocked.Swap(true) {
		return ErrNotHeld
	}
	ls.ctx.check() // a loss comes first
	bound := newUnlockBound(ctx, ls.leases[0].term.timeout)
	ls.ctx.cancel(ErrUnlocked)
	for _, stop := range ls.stops {
		stop()
	}
	return join(driver.CheckContext(ctx), ls.locker.unlockAll(bound, ls.leases))
}

// Guard is [Lease.Guard] for all leases: one statement in tx makes sure that each of them is the
// current one until tx ends. Its errors name the first lease that is not.
func (ls *Leases) Guard(ctx context.Context, tx *sql.Tx) error {
	if tx == nil {
		return driver.NilError("*sql.Tx")
	}
	return ls.GuardBy(ctx, guardIn(tx))
}

// GuardBy guards the leases with f. It is for packages that know other kinds of
// transactions, such as lockpg, and implements [driver.Guardable].
func (ls *Leases) GuardBy(ctx context.Context, f driver.GuardFunc) error {
	if f == nil {
		return driver.NilError("function")
	}
	if err := driver.CheckContext(ctx); err != nil {
		return err
	}
	if ls.isZero() {
		return ErrNotHeld
	}
	if err := ls.each((*term).guard); err != nil {
		return err
	}
	var req driver.GuardRequest
	for i, lease := range ls.leases {
		t := lease.term
		if i == 0 {
			req = driver.GuardRequest{Name: t.name, Acq: t.acq, Version: t.token}
		} else {
			req.Others = append(req.Others, driver.Term{Name: t.name, Acq: t.acq, Version: t.token})
		}
	}
	status, err := ls.locker.mode.Guard(ctx, f, req)
	switch {
	case err != nil:
		return fmt.Errorf("sqllock: guard %d names: %w", len(ls.leases), err)
	case status == driver.Guarded:
		return ls.each((*term).guard) // one may have been unlocked meanwhile
	case status == driver.Foreign:
		return fmt.Errorf("%w: guard %d names: the transaction is one of another database", ErrInvalidOption, len(ls.leases))
	}
	return ls.fencedError(ctx)
}

// each calls a method of the term of each lease, until one fails.
func (ls *Leases) each(method func(*term, *Lease) error) error {
	for _, lease := range ls.leases {
		if err := method(lease.term, lease); err != nil {
			return err
		}
	}
	return nil
}

// fencedError asks the database, outside of the transaction, which term is over.
func (ls *Leases) fencedError(ctx context.Context) error {
	var rows []driver.Row
	err := ls.locker.withTimeout(ctx, ls.leases[0].term.timeout, func(ctx context.Context) (err error) {
		rows, err = ls.locker.mode.readRows(ctx, ls.Names())
		return err
	})
	for i := range rows {
		t := ls.leases[i].term
		if h := &rows[i].Holder; h.Acq != t.acq || h.Version != t.token {
			return t.fencedError(ctx)
		}
	}
	if err != nil {
		return fmt.Errorf("%w: one of %d names, as the transaction sees them", ErrFenced, len(ls.leases))
	}
	return fmt.Errorf("%w: %d names: the transaction sees the tables as they were before the leases were granted", ErrFenced, len(ls.leases))
}

// InTx is [Lease.InTx] for all leases: it begins a transaction on the Locker's handle, guards
// the leases in it with one statement, calls fn, and commits. The transaction and fn's context
// end with ctx or with the first of the leases to end.
func (ls *Leases) InTx(ctx context.Context, opts *sql.TxOptions, fn func(ctx context.Context, tx *sql.Tx) error) error {
	if fn == nil {
		return driver.NilError("function")
	}
	if err := driver.CheckContext(ctx); err != nil {
		return err
	}
	if ls.isZero() {
		return ErrNotHeld
	}
	if err := ls.each((*term).guardable); err != nil {
		return err
	}
	bound, cancel := ls.Bind(ctx)
	defer cancel()
	tx, err := ls.locker.mode.Begin(bound, opts)
	if err != nil {
		return fmt.Errorf("sqllock: begin a transaction under %d names: %w", len(ls.leases), explain(bound, err))
	}
	defer func() { _ = tx.Rollback() }() // does nothing after a commit
	if err := ls.Guard(bound, tx); err != nil {
		return explain(bound, err)
	}
	if err := fn(bound, tx); err != nil {
		return explain(bound, err)
	}
	if err := tx.Commit(); err != nil {
		return fmt.Errorf("sqllock: commit under %d names: %w", len(ls.leases), explain(bound, err))
	}
	return nil
}

// leasesContext ends with the first of its leases to end. It checks the clock whenever it is
// asked.
type leasesContext struct {
	context.Context // ends with the context that the leases were bound to, if any
	cancel          context.CancelCauseFunc
	leases          *Leases
}

// check ends the context if one of the leases is over.
func (c *leasesContext) check() {
	for _, lease := range c.leases.leases {
		lease.term.expire()
		if cause := context.Cause(lease.ctx.Context); cause != nil {
			c.leases.ctx.cancel(cause) // the first cause is that of all contexts
			break
		}
	}
	if cause := context.Cause(c.leases.ctx.Context); cause != nil {
		c.cancel(cause)
	}
}

func (c *leasesContext) Err() error {
	c.check()
	return c.Context.Err()
}

func (c *leasesContext) Value(key any) any {
	ls := c.leases
	switch k := key.(type) {
	case carriesKey:
		return true
	case carriedKey:
		acqs := slices.Clip(carriedBy(c.Context))
		for _, lease := range ls.leases {
			if !lease.unlocked.Load() && lease.term.remaining() > 0 {
				acqs = append(acqs, lease.term.acq)
			}
		}
		return acqs
	case leaseKey:
		if k.locker == ls.locker {
			if lease := ls.find(k.name); lease != nil && !lease.unlocked.Load() {
				return lease
			}
		}
	default:
		c.check() // context.Cause calls Value, and must not miss a loss
	}
	return c.Context.Value(key)
}

// unlockAll takes leases out of their terms. Of those that were the last it releases the
// names, with one statement as far as that does, and wakes the next waiters of this process.
func (l *Locker) unlockAll(bound unlockBound, leases []*Lease) error {
	l.inflight.add()
	defer l.inflight.done()
	var errs []error
	var together, apart []*term
	for _, lease := range leases {
		t := lease.term
		last, err := l.removeLease(lease)
		switch {
		case err != nil:
			errs = append(errs, err)
		case last && (t.unknown || t.isLeaving()):
			apart = append(apart, t)
		case last:
			together = append(together, t)
		}
	}
	ended := make([]error, len(together)+len(apart))
	var wg sync.WaitGroup
	for i, t := range apart {
		wg.Go(func() { ended[i] = l.endTerm(bound, t) })
	}
	l.endTogether(bound, together, ended[len(apart):])
	wg.Wait()
	for i, t := range append(apart, together...) {
		l.unlockedEvent(t, ended[i])
	}
	return errors.Join(append(errs, ended...)...)
}

// endTogether ends terms whose names one statement releases. Those that it does not release
// are released one by one.
func (l *Locker) endTogether(bound unlockBound, terms []*term, errs []error) {
	if len(terms) == 0 {
		return
	}
	base := l.base
	if base.Err() != nil { // Close gave up before
		base = context.Background()
	}
	wait := l.deadlines.borrow(base, bound.until, bound.early)
	defer l.deadlines.giveBack(wait)
	reqs := make([]driver.ReleaseRequest, len(terms))
	for i, t := range terms {
		reqs[i] = l.releaseRequest(t)
	}
	returned := false
	defer func() {
		if !returned { // the driver has panicked, see endTermBy
			for _, t := range terms {
				_ = l.endTermBy(t, func() error { l.cleanup.add(t.cleanupRequest()); return nil })
			}
		}
	}()
	var res []driver.ReleaseResult
	err := l.base.Err()
	if err == nil {
		send, cancel := context.WithTimeout(wait, terms[0].timeout)
		res, err = l.sendReleases(send, reqs)
		cancel()
	}
	returned = true
	var wg sync.WaitGroup
	for i, t := range terms {
		if err == nil && res[i].Freed {
			t.handedOver = res[i].HandedOver
			errs[i] = l.endTermBy(t, func() error { return nil })
			continue
		}
		wg.Go(func() { errs[i] = l.endTermBy(t, func() error { return l.retryRelease(wait, t, true, err) }) })
	}
	wg.Wait()
}
