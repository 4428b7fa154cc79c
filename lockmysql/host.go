package lockmysql

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/sqllock/sqllock/driver"
)

// host is the server that a connection reaches, as it says itself. A term has one
// server: the session that keeps the lock, the connection that draws the token and the
// application's transaction are all on it, and it may be written to. A demoted primary
// answers for ever, and its replicas have the same rows.
type host struct {
	name     [4]string // by which servers are told apart
	writable bool
}

// into takes the columns of the statement server. MariaDB has no id of a server that is
// sure to be its own.
func (h *host) into(more ...any) []any {
	return append([]any{&h.writable, &h.name[0], &h.name[1], &h.name[2], &h.name[3]}, more...)
}

// Another connection may reach the right server.
var (
	errDemoted     = &unusableError{errors.New("lockmysql: the server is read-only; locks need the primary")}
	errOtherServer = &unusableError{errors.New("lockmysql: the lock and its token would be of two servers")}

	errReadOnlyTx = fmt.Errorf("%w: the server of the transaction is read-only; locks need the primary", driver.ErrUnsupported)
)

// setHost looks where a new connection leads that is to be kept. Before the store is
// open that is left to inspect.
func (s *sessions) setHost(ctx context.Context, conn *sql.Conn) error {
	var h host
	if err := conn.QueryRowContext(ctx, s.texts["server"]).Scan(h.into()...); err != nil {
		return err
	}
	if s.base.database != "" && !h.writable {
		return errDemoted
	}
	s.host.Store(&h)
	return nil
}

// onServer is onControl for what must be done on the server h. If the connection that
// is kept reaches another one, it is replaced.
func (s *sessions) onServer(ctx context.Context, h *host, fn func(context.Context, session) error) error {
	return s.onControl(ctx, func(ctx context.Context, c session) error {
		if s.host.Load().name != h.name {
			return errOtherServer
		}
		return fn(ctx, c)
	})
}
