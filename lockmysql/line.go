package lockmysql

import (
	"context"
	"database/sql"
	sqldriver "database/sql/driver"
	"errors"
	"sync"
	"time"

	"github.com/sqllock/sqllock/internal/sqlconn"
)

// line is a connection that holds locks. Its settings make the server end it when it
// has been silent for too long. One call runs at a time, but for over.
//
// Nobody learns that the connection is broken before it is used: go-sql-driver reads
// nothing meanwhile. So who holds something asks every second.
type line struct {
	conn *sqlconn.Reserved
	pid  int64
	host host
	set  string // puts settings back to was
	was  []any

	once sync.Once
	gone chan struct{} // closed when the connection is ended, or given back
}

// closeTimeout bounds how long a connection may take to get its settings back.
const closeTimeout = time.Second

// openLine takes a connection out of the pool.
func (s *sessions) openLine(ctx context.Context) (*line, error) {
	conn, err := s.base.pool.Reserve(ctx)
	if err != nil {
		return nil, err
	}
	names := settingsMySQL
	if s.mariaDB {
		names = settingsMariaDB
	}
	l := &line{conn: conn, set: querySet(names), was: make([]any, len(names)), gone: make(chan struct{})}
	err = conn.Do(ctx, func(ctx context.Context, conn *sql.Conn) error {
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
		for i, name := range names {
			l.was[i] = values[i]
			silence[i] = seconds(s.ttl)
			if name == "innodb_lock_wait_timeout" {
				silence[i] = 1
			}
		}
		_, err := conn.ExecContext(ctx, l.set, silence...)
		return err
	})
	if err != nil {
		_ = conn.Close() // which ends it
		return nil, err
	}
	return l, nil
}

// seconds is a TTL as the server counts it: it may end a session later than that,
// but not earlier.
func seconds(ttl time.Duration) int64 { return int64((ttl + time.Second - 1) / time.Second) }

// do calls fn with the connection. An error by which the server says that a
// statement did not run, or was undone, leaves the connection as it is. Any other
// ends it.
func (l *line) do(ctx context.Context, fn func(context.Context, session) error) error {
	if l.over() {
		return sql.ErrConnDone
	}
	var answer error
	err := l.conn.Do(ctx, func(ctx context.Context, conn *sql.Conn) error {
		err := fn(ctx, session{Conn: conn})
		if isAnswer(err) {
			answer = err
			return nil
		}
		return err
	})
	if err != nil {
		l.end()
		return err
	}
	return answer
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

// end ends the connection, if it is not ended: the server lets go as soon as it hears
// of it. It is called where do could be.
func (l *line) end() {
	l.once.Do(func() {
		_ = l.conn.Do(context.Background(), func(context.Context, *sql.Conn) error { return errInDoubt })
		_ = l.conn.Close()
		close(l.gone)
	})
}

func (l *line) over() bool {
	select {
	case <-l.gone:
		return true
	default:
		return false
	}
}

// close gives the connection back as it was, if clean says that it holds nothing, or
// ends it. let gives back what it has for itself.
func (l *line) close(clean bool, let func(context.Context) error) (err error) {
	ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
	defer cancel()
	if clean && !l.over() && let(ctx) == nil && l.exec(ctx, l.set, l.was...) == nil {
		l.once.Do(func() {
			err = l.conn.Close()
			close(l.gone)
		})
	}
	l.end()
	return err
}

var errInDoubt = errors.New("lockmysql: the connection holds what it should not")

// freshLine is openLine past connections that turn out to have died in the pool.
func (s *sessions) freshLine(ctx context.Context) (l *line, err error) {
	for range sqlconn.MaxStale {
		if l, err = s.openLine(ctx); !errors.Is(err, sqldriver.ErrBadConn) {
			break
		}
	}
	return l, err
}
