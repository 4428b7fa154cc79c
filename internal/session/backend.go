// Package session implements the modes whose locks are kept by sessions of the database.
package session

import (
	"context"
	"database/sql"
	"errors"
	"sync"
	"time"

	"github.com/sqllock/sqllock/driver"
)

// Options configure a [Backend].
type Options struct {
	TTL   time.Duration // the server ends a session that has been silent for so long
	Label string        // says to people who holds a lock

	// MaxConns is the number of sessions that may be open at a time, each for one lock. If
	// it is 0, one session holds all locks.
	MaxConns int

	// ErrClosed is returned after Close.
	ErrClosed error
}

// Backend runs the statements of a mode that keeps locks in sessions of the database: each
// lock in a session of its own (for update), or all locks in one (advisory). When a session
// ends, its locks end with it. It is safe for concurrent use.
//
// A caller never cuts a statement on a session short, but it may stop waiting for it. To
// cancel the statement would end the session, and all locks that it holds.
type Backend struct {
	store driver.SessionStore
	opts  Options
	limit *connLimit // nil if one session holds all locks

	base   context.Context // ends when the Backend is closed
	cancel context.CancelFunc
	wg     sync.WaitGroup // of goroutines that watch sessions

	opening chan struct{} // has an element while the shared session is opened

	mu         sync.Mutex
	locks      map[driver.ID]*sessionLock
	keys       map[string]*keyLocks
	conns      map[*sessionConn]struct{}
	sharedConn *sessionConn // holds all locks, if one session does
	onEnd      func(map[driver.ID]struct{})
	closed     bool
}

// New returns a Backend on a store, which it closes. Call Close when done with it.
func New(store driver.SessionStore, o Options) *Backend {
	b := &Backend{
		store: store, opts: o,
		opening: make(chan struct{}, 1),
		locks:   make(map[driver.ID]*sessionLock),
		keys:    make(map[string]*keyLocks),
		conns:   make(map[*sessionConn]struct{}),
		onEnd:   func(map[driver.ID]struct{}) {},
	}
	if o.MaxConns > 0 {
		b.limit = newConnLimit(o.MaxConns)
	}
	b.base, b.cancel = context.WithCancel(context.Background())
	return b
}

var (
	// ErrUnanswered says that a statement was still in flight when its time was over.
	// Classify takes it for driver.Unclear.
	ErrUnanswered = errors.New("sqllock: the database has not answered")
	// errBusySession says that other callers used the session for too long.
	errBusySession = errors.New("sqllock: the session is in use")
	// errRequesting says that an earlier request of the acquisition is in flight.
	errRequesting = errors.New("sqllock: an earlier request is under way")
)

// Classify says what an error of a method means.
func (b *Backend) Classify(err error) driver.Fault {
	switch {
	case errors.Is(err, ErrUnanswered):
		return driver.Unclear
	case errors.Is(err, errBusySession), errors.Is(err, errRequesting):
		return driver.Again
	case errors.Is(err, driver.ErrTooManyLocks):
		return driver.Refused
	}
	return b.store.Classify(err)
}

// OnEnd has f called when a session has ended, with the acquisitions that it held, until
// the Backend is closed.
func (b *Backend) OnEnd(f func(acqs map[driver.ID]struct{})) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.onEnd = f
}

// Holds reports whether an acquisition is held, as far as this process knows.
func (b *Backend) Holds(acq driver.ID) bool {
	l, _ := b.held(acq)
	return l != nil
}

// Session tells the session that holds an acquisition from others. It is nil if none does, as far as
// this process knows.
func (b *Backend) Session(acq driver.ID) any {
	if _, c := b.held(acq); c != nil {
		return c
	}
	return nil
}

// Release implements the method of [driver.Store].
func (b *Backend) Release(ctx context.Context, reqs []driver.ReleaseRequest) ([]driver.ReleaseResult, error) {
	res := make([]driver.ReleaseResult, len(reqs))
	if len(reqs) > 0 && reqs[0].Version == 0 {
		return res, b.withdraw(ctx, reqs)
	}
	at := make(map[*sessionConn][]int)
	locks := make([]*sessionLock, len(reqs))
	for i := range reqs {
		l, c := b.held(reqs[i].Acq)
		if l != nil && l.token == reqs[i].Version {
			at[c], locks[i] = append(at[c], i), l
		}
	}
	for c, indexes := range at {
		freed := make([]bool, len(indexes))
		err := b.do(ctx, c, func(ctx context.Context) (err error) {
			freed, err = b.release(ctx, c, reqs, locks, indexes)
			return err
		}, func() {})
		if err != nil {
			return nil, err
		}
		for k, i := range indexes {
			res[i].Freed = freed[k]
		}
	}
	return res, nil
}

// release releases locks of one session, which the caller has to itself. If the session
// fails, it is closed, and that releases them too.
func (b *Backend) release(ctx context.Context, c *sessionConn, reqs []driver.ReleaseRequest, locks []*sessionLock, indexes []int) ([]bool, error) {
	freed := make([]bool, len(indexes))
	sent := make([]driver.ReleaseRequest, 0, len(indexes))
	at := make([]int, 0, len(indexes)) // in indexes, of what is sent
	for k, i := range indexes {
		l := locks[i]
		if !b.has(l) {
			// An earlier request has released it. By now the session may hold the lock again
			// for another caller.
			freed[k] = true
			continue
		}
		r := reqs[i]
		r.Name, r.Acq, r.Version, r.Shared = l.name, l.acq, l.token, l.shared
		sent, at = append(sent, r), append(at, k)
	}
	if len(sent) == 0 {
		return freed, nil
	}
	done, err := c.session.Release(ctx, sent)
	if err != nil {
		return nil, err
	}
	n := 0
	for j, k := range at {
		freed[k] = done[j]
		if b.forget(locks[indexes[k]]) {
			n++
		}
	}
	b.unuse(c, n)
	return freed, nil
}

// releaseOne is release for one lock.
func (b *Backend) releaseOne(ctx context.Context, c *sessionConn, l *sessionLock, req driver.ReleaseRequest) error {
	_, err := b.release(ctx, c, []driver.ReleaseRequest{req}, []*sessionLock{l}, []int{0})
	return err
}

// withdraw releases what acquisitions hold, if anything.
func (b *Backend) withdraw(ctx context.Context, reqs []driver.ReleaseRequest) error {
	var errs error
	for _, r := range reqs {
		l, c := b.abandon(r.Acq)
		switch {
		case l == nil:
			continue
		case c == nil: // the lock is released when the reply comes, if that succeeds
			errs = errors.Join(errs, errRequesting)
			continue
		}
		errs = errors.Join(errs, b.do(ctx, c, func(ctx context.Context) error {
			return b.releaseOne(ctx, c, l, driver.ReleaseRequest{MinHold: r.MinHold, Guarded: r.Guarded, Lost: r.Lost})
		}, func() {}))
	}
	return errs
}

// Guard runs f for a lease in the transaction of the application that f knows.
func (b *Backend) Guard(ctx context.Context, f driver.GuardFunc, req driver.GuardRequest) (driver.GuardStatus, error) {
	l, c := b.held(req.Acq)
	if l == nil {
		return driver.Fenced, nil
	}
	req.Session = c.session.ID()
	return f(ctx, b.store, req)
}

// Begin implements the method of [driver.GuardStore].
func (b *Backend) Begin(ctx context.Context, opts *sql.TxOptions) (*sql.Tx, error) {
	return b.store.Begin(ctx, opts)
}

// Read implements the method of [driver.Store]. There are no claims of waiters.
func (b *Backend) Read(ctx context.Context, req driver.ReadRequest) (res driver.ReadResult, err error) {
	if req.List.Limit > 0 {
		res.Page, err = b.store.List(ctx, req.List)
	} else {
		res.Rows, err = b.store.Look(ctx, req.Names)
	}
	return res, err
}

// Revoke implements the method of [driver.SessionStore].
func (b *Backend) Revoke(ctx context.Context, reqs []driver.RevokeRequest) ([]driver.RevokeResult, error) {
	return b.store.Revoke(ctx, reqs)
}

// SetValue implements the method of [driver.SessionStore].
func (b *Backend) SetValue(ctx context.Context, req driver.SetValueRequest) (bool, error) {
	return b.store.SetValue(ctx, req)
}

// Sweep implements the method of [driver.SessionStore].
func (b *Backend) Sweep(ctx context.Context, req driver.SweepRequest) (driver.SweepResult, error) {
	if req.Every > 0 {
		due, err := b.store.SweepDue(ctx, req.Every)
		return driver.SweepResult{Due: due}, err
	}
	if req.Pause > 0 {
		return driver.SweepResult{}, b.store.SweepPause(ctx, req.Pause)
	}
	return b.store.Sweep(ctx, req)
}

// CloseIdle closes the shared session if it holds nothing. It does not block. It reports
// false if the session is in use.
func (b *Backend) CloseIdle() bool {
	b.mu.Lock()
	c := b.sharedConn
	if c == nil {
		b.mu.Unlock()
		return true
	}
	select {
	case <-c.free:
	default:
		b.mu.Unlock()
		return false
	}
	idle := c.users == 0 && b.remove(c)
	b.mu.Unlock()
	if idle {
		b.closeConn(c)
	} else {
		c.free <- struct{}{}
	}
	return idle
}

// Close closes the sessions that hold nothing. A session that still holds a lock is left
// to the server, which ends it when it has been silent for the TTL: its holder may be
// running. A statement in flight on that session is not cancelled, because that would end
// the session now. A late Unlock still frees its name.
func (b *Backend) Close() error {
	b.mu.Lock()
	b.closed = true
	holding := make(map[*sessionConn]bool)
	for _, l := range b.locks {
		if l.conn != nil {
			holding[l.conn] = true
		}
	}
	var idle []*sessionConn
	for c := range b.conns {
		if !holding[c] {
			idle = append(idle, c)
			b.remove(c)
		}
	}
	b.mu.Unlock()
	b.cancel()
	for _, c := range idle {
		c.cancel()
	}
	b.wg.Wait()
	for _, c := range idle {
		<-c.free
		b.closeConn(c)
	}
	if len(holding) == 0 {
		return b.store.Close()
	}
	time.AfterFunc(b.opts.TTL, func() {
		for c := range holding {
			b.expire(c)
		}
		_ = b.store.Close()
	})
	return nil
}
