package locktest

import (
	"context"
	"database/sql"
	"encoding/hex"
	"fmt"
	"net/url"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sqllock/sqllock"
	"github.com/sqllock/sqllock/driver"
	"github.com/sqllock/sqllock/internal/clock"
	"github.com/sqllock/sqllock/locksqlite"
	"github.com/sqllock/sqllock/migrations"
)

// Database is an SQLite database with the tables of sqllock, in a temporary file of one test. It is
// made by [NewDatabase], ends with the test, and is safe for concurrent use.
type Database struct {
	tb    testing.TB
	db    *sql.DB
	locks *locksqlite.Database
	began time.Time

	ahead atomic.Int64 // by how much the clocks were set forward
	down  atomic.Bool

	mu      sync.Mutex
	lockers map[string]*sqllock.Locker // by instance
}

// pragmas are those of a file that many read while one writes, and that nobody needs after a crash.
const pragmas = "_pragma=synchronous(off)&_pragma=journal_mode(wal)"

// NewDatabase returns a new Database. If it cannot be made, the test ends at once.
func NewDatabase(tb testing.TB) *Database {
	tb.Helper()
	d := &Database{tb: tb, began: time.Now(), lockers: make(map[string]*sqllock.Locker)}
	path := (&url.URL{Path: filepath.ToSlash(tb.TempDir())}).EscapedPath() // it has the name of the test
	d.db = sql.OpenDB(&connector{database: d, dsn: "file:" + path + "/locktest.db?" + pragmas})
	d.locks = locksqlite.DB(d.db)
	tb.Cleanup(func() {
		if err := d.db.Close(); err != nil {
			tb.Errorf("locktest: close SQLite: %v", err)
		}
	})
	if err := migrations.Up(context.Background(), d.locks); err != nil {
		tb.Fatalf("locktest: %v", err)
	}
	return d
}

// DB returns the handle of the database, for the tables that the code under test writes under a
// guard. It is closed at the end of the test. Do not close it.
func (d *Database) DB() *sql.DB { return d.db }

// Down makes the database unreachable: from now on each statement on it fails with [ErrDown],
// those of [Database.DB] too. An open transaction is rolled back when it ends. Leases become lost
// when they cannot be renewed in time, with reason [sqllock.LostUnreachable].
func (d *Database) Down() { d.down.Store(true) }

// Up ends what Down began. At the end of the test the database is up in any case.
func (d *Database) Up() { d.down.Store(false) }

// Advance sets the clocks of the database and of its Lockers forward by a time, as if the machine
// had been suspended: a lease that is held is lost if the time is longer than its TTL. Otherwise
// the Locker has that much less time to renew it. A [sqllock.MinHold], the retention of a key and
// the like go on as well.
//
// Lockers notice at once when they are called, and otherwise within 50 ms if they hold leases, or
// with the next request of a waiter. The time must not be negative. SQLite's own functions, such
// as datetime, do not tell the new time.
//
// To let a time pass in which leases are renewed, sleep in a bubble of [testing/synctest].
func (d *Database) Advance(by time.Duration) {
	d.tb.Helper()
	if by < 0 {
		d.tb.Errorf("locktest: Advance(%v): must not be negative", by)
		return
	}
	d.ahead.Add(int64(by))
}

// Lose makes every lease of a name lost, as [sqllock.Locker.ForceUnlock] does. When it returns,
// the Locker that held the name knows it: the context of the lease has ended, the reason is
// [sqllock.LostRevoked], and the name is free. If several Lockers hold a name together, shared
// or with permits, the others learn it when they next renew, within a third of the TTL.
//
// Lose waits for a transaction that guards the lease, for five seconds at most. It is an error of
// the test if nobody holds the name.
func (d *Database) Lose(name string) {
	d.tb.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
	defer cancel()
	locks, err := d.holder(ctx, name)
	if err == nil {
		_, err = locks.ForceUnlock(ctx, name)
	}
	if err != nil {
		d.tb.Errorf("locktest: Lose(%q): %v", name, err)
	}
}

// Expire ends every lease of a name in the database only, as when its holder is paused for longer
// than its TTL. The holder goes on to trust its lease until it next renews it, after a third of
// the TTL at most. Until then another Locker can acquire the name. So you can test that a guard,
// or whatever compares tokens, refuses the late write of a former holder.
//
// It is an error of the test if nobody holds the name.
func (d *Database) Expire(name string) {
	d.tb.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
	defer cancel()
	if err := d.expire(ctx, name); err != nil {
		d.tb.Errorf("locktest: Expire(%q): %v", name, err)
	}
}

// The default prefix is in these statements, because a Database has no other.
const (
	queryHolders = `SELECT lower(hex(locker)) FROM sqllock_lock WHERE name = ?1 AND acq IS NOT NULL
		UNION SELECT lower(hex(locker)) FROM sqllock_claim WHERE name = ?1 AND state = 1`
	queryHeldBy = `SELECT name FROM sqllock_lock WHERE acq IS NOT NULL AND lower(hex(locker)) = ?1
		UNION SELECT name FROM sqllock_claim WHERE state = 1 AND lower(hex(locker)) = ?1 ORDER BY name`
	queryExpire       = `UPDATE sqllock_lock SET expires_at = 1 WHERE name = ?1 AND acq IS NOT NULL`
	queryExpireClaims = `UPDATE sqllock_claim SET expires_at = 1 WHERE name = ?1 AND state = 1`
)

// expire is Expire.
func (d *Database) expire(ctx context.Context, name string) error {
	tx, err := d.db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }()
	var rows int64
	for _, text := range []string{queryExpire, queryExpireClaims} {
		res, err := tx.ExecContext(ctx, text, name)
		if err != nil {
			return err
		}
		n, err := res.RowsAffected()
		if err != nil {
			return err
		}
		rows += n
	}
	if rows == 0 {
		return sqllock.ErrNotHeld
	}
	return tx.Commit()
}

// holder returns a Locker that holds a name.
func (d *Database) holder(ctx context.Context, name string) (*sqllock.Locker, error) {
	instances, err := d.column(ctx, queryHolders, name)
	if err != nil {
		return nil, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, i := range instances {
		if locks := d.lockers[i]; locks != nil {
			return locks, nil
		}
	}
	return nil, sqllock.ErrNotHeld
}

// heldBy returns the names that a Locker holds, as text.
func (d *Database) heldBy(instance string) string {
	names, err := d.column(context.Background(), queryHeldBy, instance)
	switch {
	case err != nil:
		return err.Error()
	case len(names) == 0:
		return "names that it does not hold any more in the database"
	}
	return fmt.Sprintf("%q", names)
}

func (d *Database) column(ctx context.Context, query string, args ...any) (values []string, err error) {
	rows, err := d.db.QueryContext(ctx, query, args...)
	if err != nil {
		return nil, err
	}
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		var v string
		if err := rows.Scan(&v); err != nil {
			return nil, err
		}
		values = append(values, v)
	}
	return slices.Clip(values), rows.Err()
}

func (d *Database) add(instance string, locks *sqllock.Locker) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.lockers[instance] = locks
}

// now returns the time on the clock of the database.
func (d *Database) now() time.Time { return time.Now().Add(time.Duration(d.ahead.Load())).UTC() }

// target is what a Locker opens. It learns under which id, and brings the clock.
type target struct {
	*locksqlite.Database
	database *Database
	instance string
}

var (
	_ driver.UniqueDatabase = (*target)(nil)
	_ clock.Source          = (*target)(nil)
)

// OpenUnique implements [driver.UniqueDatabase].
func (t *target) OpenUnique(ctx context.Context, client driver.Client) (driver.Store, error) {
	t.instance = hex.EncodeToString(client.Instance[:])
	return t.Database.OpenUnique(ctx, client)
}

// Clock implements [clock.Source]. In a bubble of synctest its time is that of the bubble.
func (t *target) Clock() clock.Clock {
	return clock.Func(func() time.Duration {
		return time.Since(t.database.began) + time.Duration(t.database.ahead.Load())
	})
}
