package locksqlite_test

import (
	"context"
	"database/sql"
	sqldriver "database/sql/driver"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	_ "github.com/go-sql-driver/mysql"
	_ "github.com/jackc/pgx/v5/stdlib"

	"github.com/sqllock/sqllock/driver"
	"github.com/sqllock/sqllock/locksqlite"
	"github.com/sqllock/sqllock/migrations"
)

func tryOpen(t *testing.T, d *locksqlite.Database) (driver.Info, error) {
	t.Helper()
	s, err := d.OpenUnique(t.Context(), driver.Client{})
	if err != nil {
		if s != nil {
			t.Error("a store together with an error")
		}
		return driver.Info{}, err
	}
	defer func() { _ = s.Close() }()
	return s.Info(), nil
}

func wantError(t *testing.T, err, kind error, words ...string) {
	t.Helper()
	if !errors.Is(err, kind) {
		t.Errorf("%v, want %v", err, kind)
		return
	}
	for _, word := range words {
		if !strings.Contains(err.Error(), word) {
			t.Errorf("%q does not tell of %q", err, word)
		}
	}
}

func TestABadHandleOrOptionIsToldBeforeAnySQL(t *testing.T) {
	db := open(t, filepath.Join(t.TempDir(), "locks.db"))
	for name, d := range map[string]*locksqlite.Database{
		"nil":          locksqlite.DB(nil),
		"empty prefix": locksqlite.DB(db, locksqlite.TablePrefix("")),
		"bad prefix":   locksqlite.DB(db, locksqlite.TablePrefix(`x"; DROP TABLE y; --`)),
		"long prefix":  locksqlite.DB(db, locksqlite.TablePrefix(strings.Repeat("x", 32))),
	} {
		t.Run(name, func(t *testing.T) {
			_, err := tryOpen(t, d)
			wantError(t, err, driver.ErrInvalidOption)
			_, err = d.Migration()
			wantError(t, err, driver.ErrInvalidOption)
		})
	}
	if n := db.Stats().OpenConnections; n != 0 {
		t.Errorf("%d connections were opened", n)
	}
	_ = db.Close()
	_, err := tryOpen(t, locksqlite.DB(db))
	wantError(t, err, driver.ErrInvalidOption, "closed")
}

func TestAHandleOfAnotherProductIsNamed(t *testing.T) {
	for version, words := range map[string][]string{
		"PostgreSQL 17.2 on x86_64-pc-linux-gnu": {"PostgreSQL", "lockpg"},
		"10.11.6-MariaDB-0+deb12u1":              {"MariaDB", "lockmysql"},
		"9.7.0":                                  {"MySQL", "lockmysql"},
	} {
		db := sql.OpenDB(product(version))
		_, err := tryOpen(t, locksqlite.DB(db))
		wantError(t, err, driver.ErrInvalidOption, words...)
		_ = db.Close()
	}
}

func TestAHandleOfAnotherProductsDriverIsRefusedBeforeAnySQL(t *testing.T) {
	for _, name := range []string{"pgx", "mysql"} {
		db, err := sql.Open(name, map[string]string{"pgx": "postgres://127.0.0.1:1/none", "mysql": "tcp(127.0.0.1:1)/none"}[name])
		if err != nil {
			t.Fatal(err)
		}
		d := locksqlite.DB(db)
		_, err = tryOpen(t, d)
		wantError(t, err, driver.ErrInvalidOption, "not a driver of SQLite")
		wantError(t, migrations.Up(t.Context(), d), driver.ErrInvalidOption, "not a driver of SQLite")
		_ = db.Close()
	}
}

func TestMissingOldAndNewTablesAreRefused(t *testing.T) {
	db := open(t, filepath.Join(t.TempDir(), "locks.db"))
	d := locksqlite.DB(db)
	_, err := tryOpen(t, d)
	wantError(t, err, driver.ErrSchema, "sqllock_lock", "migrations.Up", "sqllock migrate up")
	if err := migrations.Up(t.Context(), d); err != nil {
		t.Fatal(err)
	}
	_, err = tryOpen(t, locksqlite.DB(db, locksqlite.TablePrefix("other_")))
	wantError(t, err, driver.ErrSchema, "other_lock")

	exec(t, db, `UPDATE sqllock_meta SET schema_version = schema_version + 1`)
	if _, err := tryOpen(t, d); err != nil {
		t.Errorf("newer but compatible: %v", err)
	}
	exec(t, db, `UPDATE sqllock_meta SET compatible_from = schema_version`)
	_, err = tryOpen(t, d)
	wantError(t, err, driver.ErrSchema)
	exec(t, db, `UPDATE sqllock_meta SET schema_version = 20250101000000, compatible_from = 0`)
	_, err = tryOpen(t, d)
	wantError(t, err, driver.ErrSchema, "older")
	exec(t, db, `DELETE FROM sqllock_meta`)
	_, err = tryOpen(t, d)
	wantError(t, err, driver.ErrSchema, "empty")
}

func TestADatabaseInMemoryNeedsAPoolOfOne(t *testing.T) {
	for _, dsn := range []string{":memory:", "file::memory:?cache=shared", ""} {
		t.Run(dsn, func(t *testing.T) {
			db, err := sql.Open("sqlite", dsn)
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = db.Close() }()
			_, err = tryOpen(t, locksqlite.DB(db))
			wantError(t, err, driver.ErrUnsupported, "SetMaxOpenConns(1)")

			db.SetMaxOpenConns(1)
			d := locksqlite.DB(db)
			if err := migrations.Up(t.Context(), d); err != nil {
				t.Fatal(err)
			}
			info, err := tryOpen(t, d)
			if err != nil || info.MaxConns != 1 || len(info.Warnings) != 1 || !strings.Contains(info.Warnings[0], "this process") {
				t.Errorf("%+v, %v", info, err)
			}
		})
	}
}

func TestAReadOnlyDatabaseIsRefused(t *testing.T) {
	path := migrated(t)
	for _, param := range []string{"mode=ro", "_pragma=query_only(1)"} {
		db, err := sql.Open("sqlite", "file:"+path+"?"+param)
		if err != nil {
			t.Fatal(err)
		}
		_, err = tryOpen(t, locksqlite.DB(db))
		wantError(t, err, driver.ErrUnsupported, "read-only")
		_ = db.Close()
	}
}

// With a shared cache, a connection would read a grant of another that is not committed yet.
func TestConnectionsThatReadWhatIsNotCommittedAreRefused(t *testing.T) {
	path := migrated(t)
	for param, refused := range map[string]bool{
		"_pragma=read_uncommitted(1)":              true,
		"cache=shared&_pragma=read_uncommitted(1)": true,
		"_pragma=read_uncommitted(0)":              false,
	} {
		db, err := sql.Open("sqlite", "file:"+path+"?"+param)
		if err != nil {
			t.Fatal(err)
		}
		_, err = tryOpen(t, locksqlite.DB(db))
		if refused {
			wantError(t, err, driver.ErrUnsupported, "read_uncommitted")
		} else if err != nil {
			t.Errorf("%s: %v", param, err)
		}
		_ = db.Close()
	}
}

func TestADatabaseThatSomebodyWritesToCanBeOpened(t *testing.T) {
	path := migrated(t)
	defer hog(t, open(t, path))()
	if _, err := tryOpen(t, locksqlite.DB(open(t, path))); err != nil {
		t.Error(err)
	}
}

func TestInfoTellsTheVersionAndWarnsOfSlowAndFragileSettings(t *testing.T) {
	path := migrated(t)
	info, err := tryOpen(t, locksqlite.DB(open(t, path)))
	if err != nil || !strings.HasPrefix(info.Server, "SQLite 3.") || len(info.Warnings) != 0 || info.MaxConns != 0 {
		t.Errorf("%+v, %v", info, err)
	}
	path = filepath.Join(t.TempDir(), "locks.db")
	prepare(t, path, "delete")
	for pragma, word := range map[string]string{"journal_mode(delete)": "delete", "journal_mode(memory)": "damaged", "synchronous(0)": "synchronous"} {
		db, err := sql.Open("sqlite", "file:"+path+"?_pragma="+pragma)
		if err != nil {
			t.Fatal(err)
		}
		info, err := tryOpen(t, locksqlite.DB(db))
		if err != nil || !slices.ContainsFunc(info.Warnings, func(w string) bool { return strings.Contains(w, word) }) {
			t.Errorf("%s: %+v, %v", pragma, info, err)
		}
		_ = db.Close()
	}
}

func TestAPrefixCanHaveUpperCase(t *testing.T) {
	db := open(t, migrated(t, locksqlite.TablePrefix("App_Locks_")))
	for _, prefix := range []string{"App_Locks_", "APP_LOCKS_"} { // SQLite ignores case
		s := openStore(t, db, locksqlite.TablePrefix(prefix))
		if r := grant(t, s, ask(prefix))[0]; !r.Granted {
			t.Errorf("%s: %+v", prefix, r)
		}
	}
	_, err := tryOpen(t, locksqlite.DB(db))
	wantError(t, err, driver.ErrSchema)
}

// These are the shapes of errors in mattn/go-sqlite3 and ncruces/go-sqlite3.
type (
	fieldCode   struct{ Code, ExtendedCode int }
	methodCode  struct{ code uint8 }
	ncrucesCode uint8
)

func (e fieldCode) Error() string          { return "failed" }
func (e *methodCode) Error() string        { return "failed" }
func (e *methodCode) Code() ncrucesCode    { return ncrucesCode(e.code) }
func (e *methodCode) ExtendedCode() uint16 { return uint16(e.code) }
func wrapped(err error) error              { return fmt.Errorf("wrapped: %w", errors.Join(io.EOF, err)) }
func (e *methodCode) Is(target error) bool { return false }
func (e *methodCode) As(target any) bool   { return false }
func (e *methodCode) Temporary() bool      { return false }

func TestErrorsOfEachDriverAreUnderstood(t *testing.T) {
	for _, c := range []struct {
		err  error
		want driver.Fault
	}{
		{fieldCode{Code: 5, ExtendedCode: 517}, driver.Again},
		{fieldCode{Code: 6}, driver.Again},
		{&methodCode{5}, driver.Again},
		{wrapped(&methodCode{5}), driver.Again},
		{wrapped(fieldCode{Code: 19}), driver.Refused},
		{&methodCode{9}, driver.Unclear},
		{&methodCode{10}, driver.Unclear},
		{&methodCode{14}, driver.Unreachable},
		{fieldCode{Code: 8}, driver.Refused},
		{errors.New("database is locked"), driver.Again},
		{errors.New("sqlite3: database table is locked: x"), driver.Again},
		{errors.New("no such table: x"), driver.Refused},
		{errors.New("something else"), driver.Unclear},
		{context.Canceled, driver.Unclear},
		{context.DeadlineExceeded, driver.Unclear},
		{fmt.Errorf("%w: %w", driver.ErrNoConnection, context.DeadlineExceeded), driver.Unreachable},
		{sqldriver.ErrBadConn, driver.Unreachable},
		{sql.ErrConnDone, driver.Unreachable},
		{nil, driver.Unclear},
	} {
		if got := classify(c.err); got != c.want {
			t.Errorf("%v: %d, want %d", c.err, got, c.want)
		}
	}
}

func TestRealErrorsAreUnderstood(t *testing.T) {
	path := migrated(t)
	db := open(t, path)
	s := openStore(t, db)
	exec(t, db, "ALTER TABLE sqllock_lock RENAME TO elsewhere")
	if _, err := s.Acquire(t.Context(), ask("k")); classify(err) != driver.Refused {
		t.Errorf("a missing table: %v is %d", err, classify(err))
	}
	exec(t, db, "ALTER TABLE elsewhere RENAME TO sqllock_lock")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := s.Acquire(ctx, ask("k")); !errors.Is(err, context.Canceled) || classify(err) != driver.Unclear {
		t.Errorf("a cancelled context: %v is %d", err, classify(err))
	}
	_ = db.Close()
	if _, err := s.Acquire(t.Context(), ask("k")); classify(err) != driver.Refused {
		t.Errorf("a closed handle: %v is %d", err, classify(err))
	}
}

// product is a database that knows no statement but SELECT version().
type product string

func (p product) Connect(context.Context) (sqldriver.Conn, error) { return p, nil }
func (p product) Driver() sqldriver.Driver                        { return nil }
func (p product) Close() error                                    { return nil }
func (p product) Begin() (sqldriver.Tx, error)                    { return nil, errors.New("unknown") }
func (p product) NumInput() int                                   { return 0 }
func (p product) Exec([]sqldriver.Value) (sqldriver.Result, error) {
	return nil, errors.New("unknown")
}
func (p product) Query([]sqldriver.Value) (sqldriver.Rows, error) {
	return &versionRow{version: string(p)}, nil
}
func (p product) Prepare(query string) (sqldriver.Stmt, error) {
	if query == "SELECT version()" {
		return p, nil
	}
	return nil, fmt.Errorf("unknown: %s", query)
}

type versionRow struct {
	version string
	read    bool
}

func (r *versionRow) Columns() []string { return []string{"version"} }
func (r *versionRow) Close() error      { return nil }
func (r *versionRow) Next(dest []sqldriver.Value) error {
	if r.read {
		return io.EOF
	}
	dest[0], r.read = r.version, true
	return nil
}

// What a grant writes must be committed at once, and not when the application ends a transaction that
// it has forgotten.
func TestAConnectionThatCameBackInsideATransactionIsNotUsed(t *testing.T) {
	for what, left := range map[string][]string{
		"a transaction that writes": {"BEGIN IMMEDIATE", "CREATE TABLE work (v INTEGER)"},
		"a transaction that reads":  {"BEGIN", "SELECT count(*) FROM sqllock_lock"},
	} {
		t.Run(what, func(t *testing.T) {
			path := migrated(t)
			db, other := open(t, path), open(t, path)
			s := openStore(t, db)
			conn, err := db.Conn(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			for _, statement := range left {
				exec(t, conn, statement)
			}
			_ = conn.Close()
			if what == "a transaction that reads" {
				exec(t, other, "CREATE TABLE other (v INTEGER)") // what it reads is old now
			}
			if r := grant(t, s, ask("k"))[0]; !r.Granted {
				t.Errorf("%+v", r)
			}
			var held, work int
			err = other.QueryRowContext(t.Context(), `SELECT (SELECT count(*) FROM sqllock_lock WHERE acq IS NOT NULL),
				(SELECT count(*) FROM sqlite_master WHERE name = 'work')`).Scan(&held, &work)
			if err != nil || held != 1 || work != 0 {
				t.Errorf("others see %d grants, and %d tables of the application's transaction, %v", held, work, err)
			}
			exec(t, other, "CREATE TABLE free (v INTEGER)")
		})
	}
}
