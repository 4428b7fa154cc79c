package session

import (
	"context"
	"fmt"

	"github.com/sqllock/sqllock/driver"
)

// sessionConn is an open session.
type sessionConn struct {
	session driver.Session
	free    chan struct{} // has an element while nobody uses the session
	closed  chan struct{} // closed when the session is taken out of use
	users   int           // locks of it, requested or held; guarded by Backend.mu

	// base is the context of every statement on the session. If it is cancelled during a
	// statement, the session ends and frees all that it holds.
	base   context.Context
	cancel context.CancelFunc
}

// connLimit bounds how many sessions are open at a time, and how many of them wait in the
// database.
type connLimit struct {
	open        chan struct{}
	waitingInDB chan struct{}
}

func newConnLimit(n int) *connLimit {
	return &connLimit{make(chan struct{}, n), make(chan struct{}, max(1, n/2))}
}

func (l *connLimit) enter(ctx context.Context) error {
	select {
	case l.open <- struct{}{}:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("%w: all %d sessions of the Locker are in use: %w", driver.ErrNoConnection, cap(l.open), ctx.Err())
	}
}

func (l *connLimit) leave() { <-l.open }

// tryWaitInDB reports whether one more session may wait in the database.
func (l *connLimit) tryWaitInDB() bool {
	select {
	case l.waitingInDB <- struct{}{}:
		return true
	default:
		return false
	}
}

func (l *connLimit) leaveDB() { <-l.waitingInDB }

// do runs f when nobody else uses the session. It returns when f has returned. If ctx ends
// while f runs, do returns and f goes on. If ctx ends before f has begun, do calls never
// instead of f.
func (b *Backend) do(ctx context.Context, c *sessionConn, f func(context.Context) error, never func()) error {
	select {
	case <-c.free:
	case <-c.closed:
		never()
		return errBusySession
	case <-ctx.Done():
		never()
		return fmt.Errorf("%w: %w", errBusySession, ctx.Err())
	}
	done := make(chan error, 1)
	go func() { // whoever closes the session waits until it is free
		defer func() { c.free <- struct{}{} }()
		ctx, cancel := context.WithTimeout(c.base, b.opts.TTL)
		defer cancel()
		done <- f(ctx)
	}()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return fmt.Errorf("%w: %w", ErrUnanswered, ctx.Err())
	}
}

// connFor returns the session to request n more locks of.
func (b *Backend) connFor(ctx context.Context, n int) (*sessionConn, error) {
	if b.limit != nil {
		if err := b.limit.enter(ctx); err != nil {
			return nil, err
		}
		c, err := b.open(ctx, n)
		if err != nil {
			b.limit.leave()
		}
		return c, err
	}
	if c := b.useShared(n); c != nil {
		return c, nil
	}
	return b.openShared(ctx, n)
}

// useShared notes n more users of the shared session. It returns nil if there is none.
func (b *Backend) useShared(n int) *sessionConn {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.sharedConn != nil {
		b.sharedConn.users += n
	}
	return b.sharedConn
}

// openShared opens the shared session, unless another caller has opened it meanwhile.
func (b *Backend) openShared(ctx context.Context, n int) (*sessionConn, error) {
	select {
	case b.opening <- struct{}{}:
	case <-ctx.Done():
		return nil, fmt.Errorf("%w: %w", driver.ErrNoConnection, ctx.Err())
	}
	defer func() { <-b.opening }()
	if c := b.useShared(n); c != nil {
		return c, nil
	}
	c, err := b.open(ctx, n)
	if err == nil {
		b.mu.Lock()
		if _, ok := b.conns[c]; ok {
			b.sharedConn = c
		}
		b.mu.Unlock()
	}
	return c, err
}

// open opens a session for n locks, and watches for its end.
func (b *Backend) open(ctx context.Context, n int) (*sessionConn, error) {
	s, err := b.store.Session(ctx)
	if err != nil {
		return nil, err
	}
	c := &sessionConn{session: s, free: make(chan struct{}, 1), closed: make(chan struct{}), users: n}
	c.base, c.cancel = context.WithCancel(context.Background())
	c.free <- struct{}{}
	b.mu.Lock()
	if b.closed {
		b.mu.Unlock()
		c.cancel()
		_ = s.Close()
		return nil, b.opts.ErrClosed
	}
	b.conns[c] = struct{}{}
	b.wg.Go(func() {
		select {
		case <-s.Gone():
			b.connEnded(c)
		case <-c.closed:
		case <-b.base.Done():
		}
	})
	b.mu.Unlock()
	return c, nil
}

// connEnded reports all locks of a session that has ended.
func (b *Backend) connEnded(c *sessionConn) {
	b.mu.Lock()
	if !b.remove(c) {
		b.mu.Unlock()
		return
	}
	acqs := make(map[driver.ID]struct{})
	for _, l := range b.locks {
		if l.conn == c {
			acqs[l.acq] = struct{}{}
			b.forgetLocked(l)
		}
	}
	onEnd := b.onEnd
	b.mu.Unlock()
	onEnd(acqs)
	<-c.free // a statement that is in flight fails now
	b.closeConn(c)
}

// closeConn closes a session that was removed. Only then may another one be opened, when
// the connection is back in the pool. The caller has the session to itself, and keeps it.
func (b *Backend) closeConn(c *sessionConn) {
	c.cancel()
	_ = c.session.Close()
	if b.limit != nil {
		b.limit.leave()
	}
}

// remove takes a session out of use, so that the caller can close it. It reports false if
// that was done before. The caller holds mu.
func (b *Backend) remove(c *sessionConn) bool {
	if _, ok := b.conns[c]; !ok {
		return false
	}
	delete(b.conns, c)
	close(c.closed)
	if b.sharedConn == c {
		b.sharedConn = nil
	}
	return true
}

// unuse notes that a session has n users less. It closes a session that was opened for one
// lock. The caller has the session to itself, or has not begun to use it.
func (b *Backend) unuse(c *sessionConn, n int) {
	b.mu.Lock()
	c.users -= n
	last := b.limit != nil && c.users == 0 && b.remove(c)
	b.mu.Unlock()
	if last {
		b.closeConn(c)
	}
}

// expire closes a session whose locks have expired, unless that was done before.
func (b *Backend) expire(c *sessionConn) {
	b.mu.Lock()
	removed := b.remove(c)
	b.mu.Unlock()
	if removed {
		<-c.free // a late Unlock may use it
		b.closeConn(c)
	}
}
