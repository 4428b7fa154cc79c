package sqlconn

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync"
)

// Session is a Source that holds locks on a connection of its own. One goroutine uses it at
// a time; the channel of Gone is everybody's.
type Session struct {
	conn     *Reserved
	answered func(ctx context.Context, err error) bool
	stop     func() // of the watch
	over     bool   // the connection was ended or given back

	once sync.Once
	gone chan struct{}
}

var _ Source = (*Session)(nil)

// errOver is returned by a session that has ended.
var errOver = fmt.Errorf("sqllock: the session has ended: %w", sql.ErrConnDone)

// errInDoubt has a connection ended.
var errInDoubt = errors.New("sqllock: the connection holds what it should not")

// Session takes a connection out of the pool and prepares it. One that has died in the pool
// is replaced. answered tells an error by which the server says that a statement did not run,
// or was undone, and that it goes on to serve the connection.
func (p *Pool) Session(ctx context.Context, answered func(context.Context, error) bool, prepare func(*Session) error) (*Session, error) {
	var err error
	for range MaxStale {
		conn, none := p.Reserve(ctx)
		if none != nil {
			return nil, none
		}
		s := &Session{conn: conn, answered: answered, stop: func() {}, gone: make(chan struct{})}
		if err = prepare(s); err == nil {
			return s, nil
		}
		s.End()
		if answered(ctx, err) || ctx.Err() != nil {
			break
		}
	}
	return nil, err
}

// Watch calls begin, which has tell called when the system says that the connection is
// closed, until stop is called. It may return nil.
func (s *Session) Watch(ctx context.Context, begin func(conn *sql.Conn, tell func()) (stop func())) {
	_ = s.conn.Do(ctx, func(_ context.Context, conn *sql.Conn) error {
		if stop := begin(conn, s.tell); stop != nil {
			s.stop = stop
		}
		return nil
	})
}

// Gone returns a channel that is closed when the session has ended, or was given back.
func (s *Session) Gone() <-chan struct{} { return s.gone }

func (s *Session) tell() { s.once.Do(func() { close(s.gone) }) }

// Over reports that the session was ended or given back.
func (s *Session) Over() bool { return s.over }

// Do implements Source. An error that the server has answered leaves the connection as it is,
// any other ends it.
func (s *Session) Do(ctx context.Context, fn func(context.Context, *sql.Conn) error) error {
	if s.over {
		return errOver
	}
	var answer error
	err := s.conn.Do(ctx, func(ctx context.Context, conn *sql.Conn) error {
		err := fn(ctx, conn)
		if err != nil && s.answered(ctx, err) {
			answer = err
			return nil
		}
		return err
	})
	if err != nil {
		_ = s.Close()
		return err
	}
	return answer
}

// End ends the connection, and with it all that it holds.
func (s *Session) End() {
	if !s.over {
		_ = s.conn.Do(context.Background(), func(context.Context, *sql.Conn) error { return errInDoubt })
		_ = s.Close()
	}
}

// Close implements Source: it gives the connection back to the pool, or ends it if it is in
// doubt. The watch goes first: the server hears of nothing while a descriptor is left.
func (s *Session) Close() error {
	if s.over {
		return nil
	}
	s.over = true
	s.stop()
	err := s.conn.Close()
	s.tell()
	return err
}
