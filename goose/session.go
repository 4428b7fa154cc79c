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

// SessionLock implements lock.SessionLocker, for goose.WithSessionLocker. It waits
// until it holds the name, as Lock does, and then until the session of conn has a
// lock of the server's own: one that a former holder lets go when its session ends,
// and not before. Of the session nothing else is changed. It has no such lock on
// SQLite, where one writes at a time anyway.
//
// Such a lock belongs to one database and one name, and needs a connection that leads
// to one session: no pooler in transaction mode.
func (l *Locker) SessionLock(ctx context.Context, conn *sql.Conn) error {
	if conn == nil {
		return fmt.Errorf("gooselock: %w", driver.NilError("*sql.Conn"))
	}
	return l.lock(ctx, conn)
}

// SessionUnlock implements lock.SessionLocker. Its errors are those of Unlock, and
// another if the session did not have its lock any more. It ends the connection if it
// is not known whether it has.
func (l *Locker) SessionUnlock(ctx context.Context, conn *sql.Conn) error {
	if conn == nil {
		return fmt.Errorf("gooselock: %w", driver.NilError("*sql.Conn"))
	}
	return l.unlock(ctx, conn)
}

// pin is a lock of the session that migrates. The zero value is none.
type pin struct {
	try, release string // answer 1 or 0
	args         []any
}

// Pairs of numbers cannot meet a lock of the mode advisory, whose keys are single, nor
// goose's own. GET_LOCK knows one name on all databases of a server.
const (
	pgTry        = `SELECT CAST(pg_try_advisory_lock($1, $2) AS int)`
	pgRelease    = `SELECT CAST(pg_advisory_unlock($1, $2) AS int)`
	mysqlTry     = `SELECT coalesce(GET_LOCK(concat('sqllock goose ', left(sha2(concat(coalesce(database(), ''), ?), 256), 32)), 0), 0)`
	mysqlRelease = `SELECT coalesce(RELEASE_LOCK(concat('sqllock goose ', left(sha2(concat(coalesce(database(), ''), ?), 256), 32))), 0)`
)

// The pauses between two tries double. A statement that waited in the server would be
// in the way of others.
const (
	firstPause = 20 * time.Millisecond
	lastPause  = 500 * time.Millisecond
)

// freeTimeout bounds the statement that frees a session, whose context goose has
// made endless.
const freeTimeout = 5 * time.Second

// errNotPinned says that a session did not have its lock any more.
var errNotPinned = errors.New("the session that migrates had lost its lock: a migration may have let go of all locks, " +
	"or there is a pooler in transaction mode, through which only goose.WithLocker works")

// pinFor returns the pin for what is at the other end of conn. Drivers can be wrapped:
// only the server itself knows.
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

// pin locks the session of conn, for as long as the lease lives.
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

// wait tries until it has the lock. After an error it is not known what the session
// has, so it is ended.
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

// free undoes wait.
func (p *pin) free(ctx context.Context, conn *sql.Conn) error {
	if p.release == "" {
		return nil
	}
	if ctx == nil { // the lease tells of it
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
