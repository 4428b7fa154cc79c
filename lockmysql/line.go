package lockmysql

import (
	"context"
	"database/sql"
	"errors"
	"time"

	"github.com/sqllock/sqllock/internal/sqlconn"
)

// line is a connection that holds locks. Its settings make the server end it when it has
// been silent for too long.
//
// Nobody learns that the connection is broken before it is used: go-sql-driver reads
// nothing meanwhile. So who holds something asks within each second.
type line struct {
	*sqlconn.Session
	pid  int64
	host host
	set  string // puts settings back to was
	was  []any
}

// closeTimeout bounds how long a connection may take to get its settings back.
const closeTimeout = time.Second

// openLine takes a connection out of the pool.
func (s *sessions) openLine(ctx context.Context) (*line, error) {
	l := new(line)
	var err error
	answered := func(_ context.Context, err error) bool { return isAnswer(err) }
	l.Session, err = s.base.pool.Session(ctx, answered, func(c *sqlconn.Session) error {
		return c.Do(ctx, func(ctx context.Context, conn *sql.Conn) error { return l.prepare(ctx, s, conn) })
	})
	if err != nil {
		return nil, err
	}
	return l, nil
}

// prepare changes the settings of a connection.
func (l *line) prepare(ctx context.Context, s *sessions, conn *sql.Conn) error {
	names := settingsMySQL
	if s.base.mariaDB {
		names = settingsMariaDB
	}
	values := make([]int64, len(names))
	into := l.host.into(&l.pid)
	for i := range values {
		into = append(into, &values[i])
	}
	if err := conn.QueryRowContext(ctx, s.texts["settings"]).Scan(into...); err != nil {
		return err
	}
	if !l.host.writable {
		return errDemoted
	}
	silence := make([]any, len(names))
	l.set, l.was = querySet(names), make([]any, len(names))
	for i, name := range names {
		l.was[i] = values[i]
		silence[i] = seconds(s.ttl)
		if name == "innodb_lock_wait_timeout" {
			silence[i] = 1
		}
	}
	_, err := conn.ExecContext(ctx, l.set, silence...)
	return err
}

// seconds is a TTL as the server counts it: it may end a session later than that,
// but not earlier.
func seconds(ttl time.Duration) int64 { return int64((ttl + time.Second - 1) / time.Second) }

// do calls fn with the connection, see [sqlconn.Session.Do].
func (l *line) do(ctx context.Context, fn func(context.Context, session) error) error {
	return l.Do(ctx, func(ctx context.Context, conn *sql.Conn) error { return fn(ctx, session{Conn: conn}) })
}

// ask is do for a statement that answers with a row.
func (l *line) ask(ctx context.Context, text string, args []any, into ...any) error {
	return l.do(ctx, func(ctx context.Context, c session) error {
		return c.QueryRowContext(ctx, text, args...).Scan(into...)
	})
}

func (l *line) exec(ctx context.Context, text string, args ...any) error {
	return l.do(ctx, func(ctx context.Context, c session) error {
		_, err := c.ExecContext(ctx, text, args...)
		return err
	})
}

// isAnswer reports that the server has refused or undone a statement and goes on to
// serve the connection.
func isAnswer(err error) bool {
	switch numberOf(err) {
	case 0:
		return err == errLocked
	case 1053, 1927, errInactive: // and then it closes it
		return false
	case 1290, 1792, 1836: // it is read-only: another connection may reach the primary
		return false
	}
	return true
}

// errInactive is ER_CLIENT_INTERACTION_TIMEOUT of MySQL: the server has ended a
// session that was silent, before the statement arrived.
const errInactive = 4031

// close gives the connection back as it was, if clean says that it holds nothing, or
// ends it. let gives back what it has for itself.
func (l *line) close(clean bool, let func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
	defer cancel()
	if clean && !l.Over() && let(ctx) == nil && l.exec(ctx, l.set, l.was...) == nil {
		return l.Close()
	}
	l.End()
	return nil
}

var errInDoubt = errors.New("lockmysql: the connection holds what it should not")
