package lockpg

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/sqllock/sqllock/driver"
	"github.com/sqllock/sqllock/internal/sqlconn"
)

var _ driver.Listener = (*store)(nil)

// Times of a connection that listens.
const (
	proofWait = time.Second     // for what was said on another connection to arrive
	silentFor = 5 * time.Second // then the server is asked whether it is there
	replyWait = 5 * time.Second
)

// proofPings is how many pings the server answers before a proof that has not arrived is taken for
// one that will not. This process or the server may have paused for longer than proofWait. What an
// idle server has to say arrives before its reply to the second ping.
const proofPings = 2

// Listen implements driver.Listener, through pgx only. The connection is ended in the
// end, so that nobody finds it listening in the pool.
func (s *store) Listen(ctx context.Context, heard func(driver.ID)) error {
	conn, err := s.reserve(ctx)
	if err != nil {
		return err
	}
	err = conn.Do(ctx, func(ctx context.Context, conn *sql.Conn) error {
		if toldPID(conn) == 0 {
			return fmt.Errorf("%w: notifications need the driver pgx", driver.ErrUnsupported)
		}
		// A pooler in transaction mode would leave the session that listens to others.
		if err := s.checkListen(ctx, conn); err != nil {
			return err
		}
		var err error
		raw := conn.Raw(func(c any) error {
			err = s.listenOn(ctx, c.(*stdlib.Conn).Conn(), heard)
			return nil
		})
		return errors.Join(raw, err)
	})
	_ = conn.Close()
	return err
}

// reserve takes a connection of the pool. One that does not answer must not take for ever: after a
// fail-over there may be others.
func (s *store) reserve(ctx context.Context) (*sqlconn.Reserved, error) {
	ctx, cancel := context.WithTimeout(ctx, replyWait)
	defer cancel()
	return s.pool.Reserve(ctx)
}

// checkListen looks for a pooler before anything is asked for that would stay with one
// of its connections.
func (s *store) checkListen(ctx context.Context, conn *sql.Conn) error {
	ctx, cancel := context.WithTimeout(ctx, replyWait)
	defer cancel()
	return checkDirect(ctx, conn, s.pool, s.sessionPooler)
}

// channel is what a client listens to.
func channel(instance driver.ID) string { return "sqllock_" + instance.String() }

// listenOn always returns an error. What another connection says has to arrive: else
// something stands between that does not let one listen.
func (s *store) listenOn(ctx context.Context, conn *pgx.Conn, heard func(driver.ID)) error {
	name := channel(s.engine.client.Instance)
	if _, err := conn.Exec(ctx, `LISTEN "`+name+`"`); err != nil {
		return err
	}
	if err := s.say(ctx, name); err != nil {
		return err
	}
	proven, pings := false, 0
	until := time.Now().Add(proofWait)
	for {
		said, err := waitFor(ctx, conn, name, until)
		switch {
		case err != nil:
			return err
		case said == nil && !proven && pings == proofPings:
			return fmt.Errorf("%w: a notification did not arrive: what stands between does not let one listen", driver.ErrUnsupported)
		case said == nil:
			if err := ping(ctx, conn); err != nil {
				return err
			}
			pings++
			until = time.Now().Add(proofWait)
		case *said == driver.ID{}:
			proven = true
			heard(*said)
		default:
			heard(*said)
		}
		if proven {
			until = time.Now().Add(silentFor)
		}
	}
}

// say sends the proof, on another connection of the pool.
func (s *store) say(ctx context.Context, name string) error {
	ctx, cancel := context.WithTimeout(ctx, replyWait)
	defer cancel()
	return s.pool.Do(ctx, func(ctx context.Context, conn *sql.Conn) error {
		return queryOn(ctx, conn, `SELECT pg_notify($1::text, '')`, []any{name}, ignore)
	})
}

// waitFor returns the next acquisition that was named on the channel, zero for the
// proof, or nil if there was none until then. The application may have used the
// connection to listen to other channels.
func waitFor(ctx context.Context, conn *pgx.Conn, name string, until time.Time) (*driver.ID, error) {
	slice, cancel := context.WithDeadline(ctx, until)
	defer cancel()
	for {
		said, err := conn.WaitForNotification(slice)
		switch {
		case ctx.Err() != nil:
			return nil, ctx.Err()
		case err != nil && slice.Err() != nil && !conn.IsClosed():
			return nil, nil
		case err != nil:
			return nil, err
		case said == nil || said.Channel != name: // nil if the application has a handler of its own
			continue
		case said.Payload == "":
			return &driver.ID{}, nil
		}
		if id, err := parseID(said.Payload); err == nil { // anybody may write to a channel
			return &id, nil
		}
	}
}

func ping(ctx context.Context, conn *pgx.Conn) error {
	ctx, cancel := context.WithTimeout(ctx, replyWait)
	defer cancel()
	return conn.Ping(ctx)
}
