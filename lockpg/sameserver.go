package lockpg

import (
	"context"
	"database/sql"
	"errors"

	"github.com/sqllock/sqllock/driver"
	"github.com/sqllock/sqllock/internal/termstore"
)

// A term is kept by one server. The session that has the lock, the connection that draws
// its token and the transaction of LockTx are on that server, and it takes writes: after
// a fail-over or a switchover some connections of a pool may still be those of the former
// primary.

var (
	// errNotPrimary says that a server does not take writes (any more).
	errNotPrimary = errors.New("sqllock: the server takes no writes: it is a standby, or default_transaction_read_only is on")
	// errOtherServer says that two connections are of two servers.
	errOtherServer = errors.New("sqllock: the connections of the handle reach more than one server: a fail-over is under way, or they should not")
)

// enter looks at the server of a new connection that is kept.
func (s *sessions) enter(ctx context.Context, conn *sql.Conn) error {
	if s.id == (driver.ID{}) { // it is not inspected yet
		return nil
	}
	return s.meet(ctx, conn)
}

// meet notes which server the connection that is kept is on.
func (s *sessions) meet(ctx context.Context, conn *sql.Conn) error {
	var at int64
	var writable bool
	err := queryOn(ctx, conn, s.texts["server"], nil, func(rows *sql.Rows) error { return rows.Scan(&at, &writable) })
	if err == nil && !writable {
		err = errNotPrimary
	}
	if err == nil {
		s.server.Store(at)
	}
	return err
}

// checkServer checks that the server of a connection takes writes, and that it is the one
// of the connection that is kept. If that is another one, the connection that is kept may
// be the one that is left behind: it is replaced, once.
func (s *sessions) checkServer(ctx context.Context, at int64, writable bool) error {
	switch {
	case !writable:
		return errNotPrimary
	case s.server.Load() == at:
		return nil
	}
	return s.queryKeptAt(at)(ctx, s.texts["server"], nil, ignore)
}

// revocations asks for what the Locker is to give up, on a session that is still on the
// server that the Locker works with.
func (s *sessions) revocations(ctx context.Context, run runner, at int64) (termstore.Revocations, error) {
	asked, err := s.Revocations(ctx, s.on(run))
	if err == nil && s.server.Load() != at {
		err = errOtherServer
	}
	return asked, err
}

// queryKeptAt is queryKept on one server alone: nothing is run on another.
func (s *sessions) queryKeptAt(at int64) runner {
	return func(ctx context.Context, query string, args []any, scan func(*sql.Rows) error) error {
		return s.onKept(ctx, func(ctx context.Context, _ *sql.Conn, run runner) error {
			if s.server.Load() != at {
				return errOtherServer
			}
			return run(ctx, query, args, scan)
		})
	}
}

// tryHere runs a statement in a transaction of the application, whose argument at is the
// server, and its result at which server that ran. It locks nothing on another: there it
// is run again if the connection that is kept was left behind.
func (s *sessions) tryHere(ctx context.Context, try func(at int64) (ran int64, err error)) (here bool, err error) {
	at := s.server.Load()
	ran, err := try(at)
	if err != nil || ran == at {
		return err == nil, err
	}
	if err := s.checkServer(ctx, ran, true); err != nil {
		if errors.Is(err, errOtherServer) {
			return false, nil
		}
		return false, err
	}
	again, err := try(ran)
	return err == nil && again == ran, err
}
