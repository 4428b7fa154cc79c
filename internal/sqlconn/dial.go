package sqlconn

import (
	"context"
	"database/sql"
	"time"
)

// firstDialWait is how long calls wait for an abandoned opening before one of them
// begins another. The wait doubles with each opening that is abandoned in its turn: one
// that hangs for good does not keep the pool from being used, and on a frozen network
// their number grows by one each time the outage has doubled.
const firstDialWait = 10 * time.Second

// dial is a call of DB.Conn of a driver that may go on when its context has ended.
type dial struct {
	began  time.Time
	wait   time.Duration
	beside *dial // the abandoned one beside which it was begun, or nil
	fresh  bool  // it was begun when no connection was idle
	tried  bool  // another opening is under way beside it; guarded by Pool.mu
	done   chan struct{}

	// The rest is set when done is closed.
	conn *sql.Conn
	err  error
}

// openLate takes a connection of the pool, or opens one. It returns soon after ctx has
// ended. The driver goes on then in the background, and the pool gets the connection when
// it has come. Until then calls use idle connections only.
func (p *Pool) openLate(ctx context.Context) (*sql.Conn, error) {
	d := p.beginDial()
	for ; d == nil; d = p.beginDial() {
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(again):
		}
	}
	go func() {
		defer close(d.done)
		d.conn, d.err = p.DB.Conn(ctx)
	}()
	select {
	case <-d.done:
		return p.endDial(d)
	case <-ctx.Done():
	}
	select {
	case <-d.done:
		return p.endDial(d)
	case <-time.After(grace):
		p.abandon(d)
		return nil, ctx.Err()
	}
}

// beginDial returns nil while an opening that was abandoned is to be waited for.
func (p *Pool) beginDial() *dial {
	p.mu.Lock()
	defer p.mu.Unlock()
	d := &dial{began: time.Now(), wait: firstDialWait, done: make(chan struct{})}
	if p.abandoned == nil {
		return d
	}
	idle := p.DB.Stats().Idle > 0
	if p.abandoned.tried || !idle && time.Since(p.abandoned.began) < p.abandoned.wait {
		return nil
	}
	p.abandoned.tried = true // one at a time: the idle connection may be gone already
	d.wait, d.beside, d.fresh = 2*p.abandoned.wait, p.abandoned, !idle
	return d
}

// endDial returns what a dial that is done has found.
func (p *Pool) endDial(d *dial) (*sql.Conn, error) {
	if d.beside != nil {
		p.mu.Lock()
		defer p.mu.Unlock()
		d.beside.tried = false
		if d.err == nil && d.fresh && p.abandoned == d.beside {
			p.abandoned = nil // others can be opened
		}
	}
	return d.conn, d.err
}

// abandon leaves an opening to itself. Its connection goes to the pool.
func (p *Pool) abandon(d *dial) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.abandoned == nil || p.abandoned == d.beside {
		p.abandoned = d
	}
	if d.beside != nil {
		d.beside.tried = false
		d.beside = nil
	}
	go func() {
		if <-d.done; d.err == nil {
			_ = d.conn.Close()
		}
		p.mu.Lock()
		defer p.mu.Unlock()
		if p.abandoned == d {
			p.abandoned = nil
		}
	}()
}
