package sqllock

import (
	"context"
	sqldriver "database/sql/driver"
	"errors"
	"sync/atomic"
	"time"

	"github.com/sqllock/sqllock/driver"
)

// lane is the connection that a Locker keeps for renewals while leases are held,
// so that an application which uses up its pool starves no lease. While it is
// idle, other statements may use it: a lock that the application takes and
// gives back with its last connection busy still works.
type lane struct {
	pool driver.LeaseStore
	turn chan struct{} // holds a token while the lane is idle

	urgent atomic.Int32 // renewals that wait for their turn

	// The rest belongs to whoever has the turn.
	own    driver.LeaseStore
	closed bool // nothing is reserved any more
}

// newLane returns nil if the pool is too small to reserve a connection of it.
func newLane(pool driver.LeaseStore) *lane {
	if pool.Info().MaxConns == 1 {
		return nil
	}
	l := &lane{pool: pool, turn: make(chan struct{}, 1)}
	l.turn <- struct{}{}
	return l
}

// first runs f before all who only share the lane. It reports false, and has not
// run f, if the lane did not get free before wait ended.
func (l *lane) first(wait, work context.Context, f func(driver.LeaseStore) error) (done bool, err error) {
	l.urgent.Add(1)
	select {
	case <-l.turn:
		l.urgent.Add(-1)
		return true, l.run(work, f)
	case <-wait.Done():
		l.urgent.Add(-1)
		return false, nil
	}
}

// share runs f when nobody more urgent wants the lane. It reports false, and has
// not run f, if that was not so before ctx ended.
func (l *lane) share(ctx context.Context, f func(driver.LeaseStore) error) (done bool, err error) {
	for {
		select {
		case <-l.turn:
		case <-ctx.Done():
			return false, nil
		}
		if l.urgent.Load() == 0 {
			return true, l.run(ctx, f)
		}
		l.turn <- struct{}{}
		if sleep(ctx, time.Millisecond) != nil {
			return false, nil
		}
	}
}

// tryShare is share without waiting.
func (l *lane) tryShare(ctx context.Context, f func(driver.LeaseStore) error) (done bool, err error) {
	if l.urgent.Load() > 0 {
		return false, nil
	}
	select {
	case <-l.turn:
		return true, l.run(ctx, f)
	default:
		return false, nil
	}
}

// run reserves the connection if there is none, and parts with it when it seems
// broken: the next call gets a fresh one. The caller has the turn.
func (l *lane) run(ctx context.Context, f func(driver.LeaseStore) error) error {
	defer func() { l.turn <- struct{}{} }()
	if l.closed {
		return f(l.pool)
	}
	if l.own == nil {
		own, err := l.pool.Reserve(ctx)
		if err != nil {
			return err
		}
		l.own = own
	}
	err := f(l.own)
	if errors.Is(err, sqldriver.ErrBadConn) { // it died while it was idle: nothing was sent
		l.give()
		own, rerr := l.pool.Reserve(ctx)
		if rerr != nil {
			return rerr
		}
		l.own = own
		err = f(l.own)
	}
	if err != nil {
		switch l.pool.Classify(err) {
		case driver.Unclear, driver.Unreachable:
			l.give()
		}
	}
	return err
}

// rest gives the connection back until the lane is used again, unless it is in
// use now.
func (l *lane) rest() (done bool) {
	select {
	case <-l.turn:
	default:
		return false
	}
	defer func() { l.turn <- struct{}{} }()
	l.give()
	return true
}

// close is rest for good.
func (l *lane) close() {
	<-l.turn
	defer func() { l.turn <- struct{}{} }()
	l.closed = true
	l.give()
}

func (l *lane) give() {
	if l.own != nil {
		_ = l.own.Close() // a connection in doubt is destroyed, there is nothing more to do
		l.own = nil
	}
}
