// Package sqllock takes locks in the SQL database that an application already
// uses: Postgres, MySQL or MariaDB, or an embedded SQLite.
//
// A [Locker] locks names in one mode on one database. The same name in two modes is two
// locks. There are three modes:
//   - unique, see [NewUnique]: a lock is a row with an owner and an expiry, which the
//     Locker renews while the lock is held;
//   - for update, see [NewForUpdate]: a lock is a row that an open transaction has locked;
//   - advisory, see [NewAdvisory]: a lock is an advisory lock of a database session.
//
// [NewQuorum] keeps a name on a majority of several databases, as unique mode does on one.
//
// In every mode:
//   - when a holder crashes, the name becomes free within a time that its TTL bounds;
//   - a holder that can no longer prove that it holds the name learns of it through the
//     context of its [Lease]: in unique mode before the name can go to somebody else; in the
//     other two within a second after the server has ended its session, and before anybody
//     else gets the name if the network was silent. Two calls of unique mode end a term before
//     its holder learns of it: [Locker.ForceUnlock], and [Election.Campaign] of a candidate with
//     the same Identity;
//   - every term has a fencing token, which a protected resource can check: it is higher
//     than those of all earlier exclusive terms of the name. Leases that re-enter a term
//     share its token.
//
// Advisory mode on PostgreSQL 12 and 13 breaks the first of these promises: a holder that is
// paused, or whose host is gone, keeps its names for longer than the TTL. NewAdvisory refuses
// these versions unless [AdvisoryOptions].AllowSilentHolders accepts that.
//
// In the modes for update and advisory, the server frees a name when it ends the session,
// before the holder can learn of it. There, use the token or a [LockDelay].
//
// A lease cannot stop a holder that does not look: a process can be paused between its
// last look at the context and its write. If such a late write would do harm, the write
// must carry the token.
//
// A nil context, function or transaction is an [ErrInvalidOption] before any SQL, also where the
// documentation of a method does not name it; Unlock, Resign and Close do their work without a
// context all the same. The methods of a nil or zero Lease, Leases, Run or Semaphore return errors
// or zero values. Those of a nil or zero Locker, Election, SequencerChecker or Reaper panic.
package sqllock

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"sync"
	"time"

	"github.com/sqllock/sqllock/driver"
	"github.com/sqllock/sqllock/internal/batch"
	"github.com/sqllock/sqllock/internal/clock"
)

// Locker locks names in one mode, on one database or on several (see [NewQuorum]). It is safe
// for concurrent use. Call [Locker.Close] when you are done with it.
type Locker struct {
	id     driver.ID
	cfg    config
	mode   mode
	clock  clock.Clock
	queue  *queue
	keeper *keeper

	grants   *batch.Batcher[driver.AcquireRequest, driver.AcquireResult]
	releases *batch.Batcher[driver.ReleaseRequest, driver.ReleaseResult]
	claims   *claims

	cleanup    *cleanup
	events     *events
	inflight   *inflight
	deadlines  deadlines // of Unlocks
	reaper     *Reaper
	reaperDone sync.WaitGroup // the reaper in the background
	stopReaper context.CancelFunc

	base context.Context // of every statement; ends when Close gives up waiting
	stop context.CancelFunc
}

func newLocker(id driver.ID, cfg config, m mode, c clock.Clock) *Locker {
	events := m.events
	if events == nil {
		events = newEvents(cfg.logger, cfg.hooks)
	}
	if cfg.hooks.Statement != nil {
		m.backend = &hookedBackend{m.backend, events, c}
	}
	l := &Locker{
		id:         id,
		cfg:        cfg,
		mode:       m,
		clock:      c,
		queue:      newQueue(),
		events:     events,
		inflight:   newInflight(),
		stopReaper: func() {},
	}
	l.base, l.stop = context.WithCancel(context.Background())
	l.keeper = newKeeper(m, c, &l.cfg, l.events)
	l.newBatchers()
	l.claims = newClaims(l)
	l.cleanup = newCleanup(m, m.sessions != nil, c, l.events, l.claims.recheck)
	if m.sessions != nil {
		m.sessions.OnEnd(l.sessionEnded)
	}
	l.reaper = &Reaper{locker: l, opts: cfg.reaper}
	if !cfg.reaper.Off {
		ctx, cancel := context.WithCancel(l.base)
		l.stopReaper = cancel
		l.reaperDone.Go(func() { _ = l.reaper.Run(ctx) })
	}
	return l
}

// newBatchers makes the batchers of grants and releases.
func (l *Locker) newBatchers() {
	grants := batch.Options[driver.AcquireRequest, driver.AcquireResult]{
		Send:        l.sendGrants,
		SortKey:     func(r *driver.AcquireRequest) string { return r.Name },
		DistinctKey: func(r *driver.AcquireRequest) string { return l.batchKey(r.Name, r.Acq, r.Together()) },
		Late:        l.giveBackLate,
	}
	if l.mode.sessions == nil {
		grants.Follow = l.refuseFollower
	}
	l.grants = newBatcher(l, grants)
	l.releases = newBatcher(l, batch.Options[driver.ReleaseRequest, driver.ReleaseResult]{
		Send:        l.sendReleases,
		SortKey:     func(r *driver.ReleaseRequest) string { return r.Name },
		DistinctKey: func(r *driver.ReleaseRequest) string { return l.batchKey(r.Name, r.Acq, r.Shared) },
		// A caller that has left goes on to free the name, so that no late reply matters.
	})
}

// newBatcher completes the options of a batcher with what is the same for all batchers of
// a Locker.
func newBatcher[Q, R any](l *Locker, o batch.Options[Q, R]) *batch.Batcher[Q, R] {
	o.Splits, o.Clock, o.Base, o.Began, o.Ended = l.parts, l.clock, l.base, l.inflight.add, l.inflight.done
	o.MaxFast, o.MaxInFlight, o.MaxSize = 1, cmp.Or(o.MaxInFlight, l.cfg.maxInFlight), l.cfg.batch
	if l.mode.isolated {
		o.MaxFast, o.MaxInFlight, o.MaxSize = math.MaxInt, math.MaxInt, 1
	}
	return batch.New(o)
}

// Close ends the Locker. New calls, and calls that wait, return [ErrClosed]. Close cancels
// the contexts of the held leases with cause ErrClosed and waits for their holders to
// unlock them, for as long as ctx allows. Until then it renews the leases. A lease that is
// still held when ctx ends is not renewed any more: its name becomes free when the lease
// expires, never under the running code.
//
// Close always finishes the Unlocks in flight and the cleanup of requests whose outcome is
// unknown. It gives them the time of one statement, see [UniqueOptions].StatementTimeout,
// or until ctx ends if that is later. If ctx has ended already, the holders get the same
// time, because they may learn of the end of ctx only now. So "defer locks.Close(ctx)" is
// right in a program that a signal ends.
//
// Close returns nil, or the joined errors of what was left: they wrap the cause of ctx's end, or
// are the error with which the database refuses the cleanup, or that of closing the Locker's own
// connections. A nil ctx counts as one that has ended, and adds [ErrInvalidOption]. Close never
// closes the application's database handle. You can call it more than once.
func (l *Locker) Close(ctx context.Context) error {
	errs := []error{driver.CheckContext(ctx)}
	if ctx == nil {
		ctx = notHeld
	}
	l.inflight.close()
	l.stopReaper()
	l.cancelContexts()
	requests, cancel := atLeast(ctx, l.cfg.timeout(l.cfg.ttl))
	defer cancel()
	holders := ctx
	if ctx.Err() != nil {
		holders = requests
	}
	errs = append(errs, l.drain(holders, requests))
	l.stop() // what is still in flight ends now
	_ = l.inflight.wait(context.Background())
	l.cancelContexts() // of leases that were granted after ctx had ended
	l.reaperDone.Wait()
	l.keeper.close()
	l.claims.join()
	l.grants.Close()
	l.releases.Close()
	l.cleanup.close()
	errs = append(errs, l.mode.Close(), l.events.close(requests))
	return errors.Join(errs...)
}

// atLeast returns a context that ends with ctx, and with its cause, but not before d has
// passed. The caller must call the CancelFunc.
func atLeast(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	longer, end := context.WithCancelCause(context.WithoutCancel(ctx))
	done := make(chan struct{})
	go func() {
		defer close(done)
		if sleep(longer, d) != nil {
			return
		}
		select {
		case <-ctx.Done():
			end(context.Cause(ctx))
		case <-longer.Done():
		}
	}()
	return longer, func() {
		end(context.Canceled)
		<-done
	}
}

// drain waits for the calls in flight and for the holders.
func (l *Locker) drain(holders, requests context.Context) error {
	if err := l.inflight.wait(requests); err != nil {
		return fmt.Errorf("sqllock: close: statements are still under way: %w", err)
	}
	l.cancelContexts() // of leases that were granted while Close began
	var errs []error
	select {
	case <-l.keeper.drained():
	case <-holders.Done():
		if n := len(l.keeper.all()); n > 0 {
			errs = append(errs, fmt.Errorf("sqllock: close: %d leases are still held and will expire: %w", n, context.Cause(holders)))
		}
	}
	if err := l.inflight.wait(requests); err != nil {
		errs = append(errs, fmt.Errorf("sqllock: close: an Unlock is still under way: %w", err))
	}
	errs = append(errs, l.cleanup.drain(requests))
	return errors.Join(errs...)
}

// batchKey returns a key that differs for requests which can share a statement. Unless
// sessions keep the locks, those of one name can that hold it together.
func (l *Locker) batchKey(name string, acq driver.ID, together bool) string {
	if together && l.mode.sessions == nil {
		return string(acq[:]) + name
	}
	return name
}

// parts reports whether a part of a batch may get through that has failed with err.
func (l *Locker) parts(err error) bool {
	fault := l.mode.Classify(err)
	return fault == driver.Again || fault == driver.Refused
}

func (l *Locker) cancelContexts() {
	for _, t := range l.keeper.all() {
		t.cancelContexts(ErrClosed)
	}
}

// termLost is called once for each term that is lost.
func (l *Locker) termLost(t *term) {
	l.keeper.drop(t)
	l.queue.ended(t)
	if l.mode.sessions != nil {
		// The session may live, and would keep the name for as long as it does.
		r, kept := t.cleanupRequest()
		r.Lost = t.lost.Reason != LostRevoked
		l.cleanup.add(r, kept)
	}
	l.events.lost(LostEvent{LeaseInfo: t.info(), Err: t.lost, Held: l.clock.Now() - t.granted})
}

// termLeft is called once for each term that a transaction has ended, when that is known
// before the last Unlock.
func (l *Locker) termLeft(t *term) {
	l.keeper.drop(t)
	l.queue.ended(t)
	l.claims.recheck(t.name)
}

// sessionEnded is called with the acquisitions that ended with a session of the database.
func (l *Locker) sessionEnded(acqs map[driver.ID]struct{}) {
	for _, t := range l.keeper.all() {
		if _, ok := acqs[t.acq]; ok {
			t.lose(LostSession, nil)
		}
	}
}

// isVerdict reports whether a driver has checked the database and refused it.
func isVerdict(err error) bool {
	return errors.Is(err, ErrSchema) || errors.Is(err, ErrUnsupported) || errors.Is(err, ErrInvalidOption)
}

// openError keeps errors that callers test for, and wraps the others.
func openError(err error) error {
	if isVerdict(err) {
		return err
	}
	return fmt.Errorf("sqllock: open: %w", err)
}

// inflight counts the calls and statements in flight, so that Close can refuse new ones
// and wait for the others.
type inflight struct {
	mu      sync.Mutex
	n       int
	closed  bool
	idle    chan struct{} // closed when n becomes 0, if wait was called
	closing chan struct{} // closed by close
}

func newInflight() *inflight { return &inflight{closing: make(chan struct{})} }

// begin counts a new call, unless the Locker is closed.
func (f *inflight) begin() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.closed {
		f.n++
	}
	return !f.closed
}

// add counts work that belongs to a call in flight.
func (f *inflight) add() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.n++
}

func (f *inflight) done() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.n--
	if f.n == 0 && f.idle != nil {
		close(f.idle)
		f.idle = nil
	}
}

// close refuses new calls and tells those that wait.
func (f *inflight) close() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.closed {
		f.closed = true
		close(f.closing)
	}
}

// wait returns when nothing is in flight, or with the cause of ctx.
func (f *inflight) wait(ctx context.Context) error {
	f.mu.Lock()
	if f.n == 0 {
		f.mu.Unlock()
		return nil
	}
	if f.idle == nil {
		f.idle = make(chan struct{})
	}
	idle := f.idle
	f.mu.Unlock()
	select {
	case <-idle:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
