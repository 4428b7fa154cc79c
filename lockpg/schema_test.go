package lockpg_test

import (
	"context"
	"database/sql"
	"errors"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/sqllock/sqllock"
	"github.com/sqllock/sqllock/internal/testdb"
	"github.com/sqllock/sqllock/lockpg"
	"github.com/sqllock/sqllock/migrations"
)

// locker is what the tests of this file use of the Lockers of all modes.
type locker interface {
	Lock(ctx context.Context, name string, opts ...sqllock.LockOption) (*sqllock.Lease, error)
	TryLock(ctx context.Context, name string, opts ...sqllock.LockOption) (*sqllock.Lease, error)
	Close(ctx context.Context) error
}

// modes are the constructors of the modes.
var modes = map[string]func(context.Context, *lockpg.Database) (locker, error){
	"unique": func(ctx context.Context, db *lockpg.Database) (locker, error) {
		return sqllock.NewUnique(ctx, db, nil)
	},
	"for update": func(ctx context.Context, db *lockpg.Database) (locker, error) {
		return sqllock.NewForUpdate(ctx, db, nil)
	},
	"advisory": func(ctx context.Context, db *lockpg.Database) (locker, error) {
		return sqllock.NewAdvisory(ctx, db, &sqllock.AdvisoryOptions{AllowSilentHolders: true})
	},
}

func inEachMode(t *testing.T, fn func(t *testing.T, open func(*lockpg.Database) (locker, error))) {
	for mode, constructor := range modes {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			fn(t, func(db *lockpg.Database) (locker, error) {
				locks, err := constructor(t.Context(), db)
				if err == nil {
					t.Cleanup(func() { // also of a test that has failed and holds something
						ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), time.Second)
						defer cancel()
						_ = locks.Close(ctx)
					})
				}
				return locks, err
			})
		})
	}
}

// exclude checks that two Lockers exclude each other, and that what one frees the other
// gets, also when it has waited for it.
func exclude(t *testing.T, a, b locker) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	held, err := a.Lock(ctx, "name")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := b.TryLock(ctx, "name"); !errors.Is(err, sqllock.ErrHeld) {
		t.Fatalf("TryLock of a name that the other Locker holds = %v, want ErrHeld", err)
	}
	freed := make(chan error, 1)
	time.AfterFunc(200*time.Millisecond, func() { freed <- held.Unlock(ctx) })
	next, err := b.Lock(ctx, "name")
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(<-freed, next.Unlock(t.Context())); err != nil {
		t.Error(err)
	}
}

// in is a handle whose sessions have a search_path.
func in(t *testing.T, database *testdb.Database, path string) *sql.DB {
	t.Helper()
	return database.Open(t, "search_path="+path)
}

func TestLockersOfOneSchemaExcludeEachOtherWhateverTheirSearchPathsFind(t *testing.T) {
	t.Parallel()
	inEachMode(t, func(t *testing.T, open func(*lockpg.Database) (locker, error)) {
		database := shared(t)
		mustExec(t, database.Open(t), `CREATE SCHEMA locks; CREATE SCHEMA other`)
		// The tables are made without Schema, and for other once more, in the same way.
		migrate(t, in(t, database, "locks"))
		migrate(t, in(t, database, "other"))
		a, err := open(lockpg.DB(in(t, database, "locks"), lockpg.Schema("locks")))
		if err != nil {
			t.Fatal(err)
		}
		for _, path := range []string{"other", "pg_catalog"} {
			b, err := open(lockpg.DB(in(t, database, path), lockpg.Schema("locks")))
			if err != nil {
				t.Fatalf("search_path %s: %v", path, err)
			}
			exclude(t, a, b)
		}
		if n := get[int](t, database.Open(t), `SELECT (SELECT count(*) FROM other.sqllock_lock) + (SELECT count(*) FROM other.sqllock_term WHERE name <> '')`); n != 0 {
			t.Errorf("%d rows in the tables of another schema", n)
		}
	})
}

func TestForeignTablesEarlierInTheSearchPathAreNotUsed(t *testing.T) {
	t.Parallel()
	inEachMode(t, func(t *testing.T, open func(*lockpg.Database) (locker, error)) {
		database := withTables(t)
		db := database.Open(t)
		mustExec(t, db, `CREATE SCHEMA foreigners;
			CREATE TABLE foreigners.sqllock_lock (id integer);
			CREATE TABLE foreigners.sqllock_claim (id integer);
			CREATE TABLE foreigners.sqllock_waiter (id integer);
			CREATE TABLE foreigners.sqllock_done (id integer);
			CREATE TABLE foreigners.sqllock_term (id integer);
			CREATE TABLE foreigners.sqllock_pin (id integer);
			CREATE SEQUENCE foreigners.sqllock_token`)
		a, err := open(lockpg.DB(in(t, database, "foreigners,public")))
		if err != nil {
			t.Fatal(err)
		}
		b, err := open(lockpg.DB(db))
		if err != nil {
			t.Fatal(err)
		}
		exclude(t, a, b)
		mustExec(t, db, `CREATE TABLE foreigners.sqllock_meta (id integer)`)
		if _, err := open(lockpg.DB(in(t, database, "foreigners,public"))); !errors.Is(err, sqllock.ErrSchema) {
			t.Errorf("with a table of metadata that is not ours: %v, want ErrSchema", err)
		}
	})
}

func TestASearchPathThatChangesAfterTheConstructorDoesNotMatter(t *testing.T) {
	t.Parallel()
	inEachMode(t, func(t *testing.T, open func(*lockpg.Database) (locker, error)) {
		database := shared(t)
		db := database.Open(t)
		const path = `"Lo""c'k\1 s"` // any name that a schema can have
		mustExec(t, db, `CREATE SCHEMA `+path)
		mustExec(t, db, `ALTER DATABASE `+get[string](t, db, `SELECT quote_ident(current_database())`)+` SET search_path = `+path)
		db = database.Open(t)
		migrate(t, db)
		a, err := open(lockpg.DB(db))
		if err != nil {
			t.Fatal(err)
		}
		b, err := open(lockpg.DB(database.Open(t)))
		if err != nil {
			t.Fatal(err)
		}
		db.SetMaxIdleConns(2)
		conns := make([]*sql.Conn, 2) // those that a uses next
		for i := range conns {
			if conns[i], err = db.Conn(t.Context()); err != nil {
				t.Fatal(err)
			}
			if _, err := conns[i].ExecContext(t.Context(), `SET search_path = pg_catalog`); err != nil {
				t.Fatal(err)
			}
		}
		for _, conn := range conns {
			_ = conn.Close()
		}
		exclude(t, a, b)
	})
}

func TestASchemaThatWasRenamedIsRefusedUntilItsFunctionsAreBound(t *testing.T) {
	t.Parallel()
	inEachMode(t, func(t *testing.T, open func(*lockpg.Database) (locker, error)) {
		database := shared(t)
		db := database.Open(t)
		if err := migrations.Up(t.Context(), lockpg.DB(db, lockpg.Schema("locks"))); err != nil {
			t.Fatal(err)
		}
		mustExec(t, db, `ALTER SCHEMA locks RENAME TO moved`)
		if err := migrations.Up(t.Context(), lockpg.DB(db, lockpg.Schema("locks"))); err != nil { // what the functions would find
			t.Fatal(err)
		}
		moved := lockpg.DB(db, lockpg.Schema("moved"))
		if !strings.HasSuffix(t.Name(), "advisory") { // it has no functions
			if _, err := open(moved); err != nil {
				t.Fatal(err)
			}
			return
		}
		_, err := open(moved)
		if !errors.Is(err, sqllock.ErrSchema) || !strings.Contains(err.Error(), "ALTER SCHEMA") {
			t.Fatalf("after ALTER SCHEMA … RENAME: %v, want ErrSchema", err)
		}
		mustExec(t, db, regexp.MustCompile(`SELECT .*?\)`).FindString(err.Error()))
		a, err := open(moved)
		if err != nil {
			t.Fatal(err)
		}
		b, err := open(lockpg.DB(in(t, database, "moved")))
		if err != nil {
			t.Fatal(err)
		}
		exclude(t, a, b)
		if _, err := open(lockpg.DB(db, lockpg.Schema("locks"))); err != nil {
			t.Errorf("the other schema: %v", err)
		}
	})
}
