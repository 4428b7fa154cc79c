package gooselock

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/sqllock/sqllock"
	"github.com/sqllock/sqllock/driver"
	"github.com/sqllock/sqllock/internal/sqlconn"
)

// SessionLock implements lock.SessionLocker, for goose.WithSessionLocker. It waits until it
// holds the name, as Lock does. Then it waits until the session of conn has an advisory
// lock of the server. A former holder keeps this lock until its session ends, even if its
// lease is lost. SessionLock changes nothing else in the session. On SQLite there is no
// such lock, because SQLite has one writer at a time.
//
// The advisory lock belongs to one database and one name. It needs a connection that always
// uses the same session, so it does not work through a pooler in transaction mode.
func (l *Locker) SessionLock(ctx context.Context, conn *sql.Conn) error {
	if conn == nil {
		return fmt.Errorf("gooselock: %w", driver.NilError("*sql.Conn"))
	}
	return l.lock(ctx, conn)
}

// SessionUnlock implements lock.SessionLocker. Its errors are those of Unlock. It also
// returns an error if the session no longer had its advisory lock. If it is unknown whether
// the session still has the lock, SessionUnlock closes the connection.
func (l *Locker) SessionUnlock(ctx context.Context, conn *sql.Conn) error {
	if conn == nil {
		return fmt.Errorf("gooselock: %w", driver.NilError("*sql.Conn"))
	}
	return l.unlock(ctx, conn)
}

// A pin is an advisory lock of the session that migrates. The zero value is no lock.
type pin struct {
	try, release string // queries that return 1 or 0
	args         []any
}

// A pair of numbers cannot collide with a lock of advisory mode or of goose: their keys are
// single numbers. GET_LOCK shares its names among all databases of a server.
const (
	pgTry        = `SELECT CAST(pg_try_advisory_lock($1, $2) AS int)`
	pgRelease    = `SELECT CAST(pg_advisory_unlock($1, $2) AS int)`
	mysqlTry     = `SELECT coalesce(GET_LOCK(concat('sqllock goose ', left(sha2(concat(coalesce(database(), ''), ?), 256), 32)), 0), 0)`
	mysqlRelease = `SELECT coalesce(RELEASE_LOCK(concat('sqllock goose ', left(sha2(concat(coalesce(database(), ''), ?), 256), 32))), 0)`
)

// The pauses between two tries double. A statement that waits in the server would hold up
// others.
const (
	firstPause = 20 * time.Millisecond
	lastPause  = 500 * time.Millisecond
)

// freeTimeout limits the statement that frees a session. The context that goose passes has
// no end.
const freeTimeout = 5 * time.Second

// errNotPinned means that a session no longer had its lock.
var errNotPinned = errors.New("the session that migrates had lost its lock: a migration may have let go of all locks, " +
	"or there is a pooler in transaction mode, through which only goose.WithLocker works")

// pinFor returns the pin for the server behind conn. It queries the server, because a
// driver can be wrapped.
func pinFor(ctx context.Context, conn *sql.Conn, name string) (pin, error) {
	var version string
	err := conn.QueryRowContext(ctx, `SELECT version()`).Scan(&version)
	hash := sha256.Sum256([]byte("sqllock goose " + name))
	switch {
	case err == nil && strings.HasPrefix(version, "PostgreSQL"):
		high, low := binary.BigEndian.Uint32(hash[:]), binary.BigEndian.Uint32(hash[4:])
		return pin{pgTry, pgRelease, []any{int32(high), int32(low)}}, nil
	case err == nil:
		return pin{mysqlTry, mysqlRelease, []any{" " + hex.EncodeToString(hash[:])}}, nil
	case conn.QueryRowContext(ctx, `SELECT sqlite_version()`).Scan(&version) == nil:
		return pin{}, nil
	}
	return pin{}, err
}

// pin locks the session of conn. It gives up when the lease is lost.
func (l *Locker) pin(ctx context.Context, lease *sqllock.Lease, conn *sql.Conn) (pin, error) {
	ctx, cancel := lease.Bind(ctx)
	defer cancel()
	p, err := pinFor(ctx, conn, l.name)
	if err == nil {
		err = p.wait(ctx, conn)
	}
	if err != nil {
		return pin{}, fmt.Errorf("gooselock: lock the session that migrates, for %q: %w", l.name, err)
	}
	return p, nil
}

// wait tries until it has the lock. After an error it is unknown whether the session has
// the lock, so wait closes the connection.
func (p *pin) wait(ctx context.Context, conn *sql.Conn) error {
	for pause := firstPause; p.try != ""; pause = min(2*pause, lastPause) {
		got, err := p.query(ctx, conn, p.try)
		if err != nil {
			sqlconn.Destroy(conn, nil)
			return err
		}
		if got {
			return nil
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return fmt.Errorf("the session of one that migrated before lives on in the server: %w", context.Cause(ctx))
		}
	}
	return nil
}

// free releases the lock of the session.
func (p *pin) free(ctx context.Context, conn *sql.Conn) error {
	if p.release == "" {
		return nil
	}
	if ctx == nil { // the unlock of the lease reports it
		ctx = context.Background()
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), freeTimeout)
	defer cancel()
	had, err := p.query(ctx, conn, p.release)
	switch {
	case err != nil:
		sqlconn.Destroy(conn, nil)
	case !had:
		err = errNotPinned
	default:
		return nil
	}
	return fmt.Errorf("gooselock: unlock the session that migrated: %w", err)
}

func (p *pin) query(ctx context.Context, conn *sql.Conn, query string) (yes bool, err error) {
	err = sqlconn.AfterTx(conn, func() error { return conn.QueryRowContext(ctx, query, p.args...).Scan(&yes) })
	return yes, err
}
