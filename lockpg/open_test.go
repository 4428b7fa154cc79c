package lockpg_test

import (
	"context"
	"database/sql"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/sqllock/sqllock"
	"github.com/sqllock/sqllock/driver"
	"github.com/sqllock/sqllock/internal/netproxy"
	"github.com/sqllock/sqllock/lockpg"
	"github.com/sqllock/sqllock/migrations"
)

// refused checks that a Locker cannot be made, for a reason of the given kind
// whose text contains all of texts.
func refused(t *testing.T, database *lockpg.Database, kind error, texts ...string) {
	t.Helper()
	locks, err := sqllock.NewUnique(t.Context(), database, nil)
	if locks != nil || !errors.Is(err, kind) {
		t.Errorf("NewUnique = %v, %v; want %v", locks, err, kind)
		return
	}
	for _, text := range texts {
		if !strings.Contains(err.Error(), text) {
			t.Errorf("the error %q does not say %q", err, text)
		}
	}
}

func TestBadHandlesAndOptionsAreRefusedBeforeAnySQL(t *testing.T) {
	t.Parallel()
	refused(t, lockpg.DB(nil), sqllock.ErrInvalidOption, "nil")
	refused(t, lockpg.Pool(nil), sqllock.ErrInvalidOption, "nil")
	connector, err := mysql.NewConnector(mysql.NewConfig())
	if err != nil {
		t.Fatal(err)
	}
	other := sql.OpenDB(connector)
	defer func() { _ = other.Close() }()
	refused(t, lockpg.DB(other), sqllock.ErrInvalidOption, "mysql")
	unused, err := sql.Open("pgx", "postgres://127.0.0.1:1/none")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = unused.Close() }()
	for _, bad := range []string{"", "1a", "a-b", `a"b`, "a b", "ü", strings.Repeat("a", 32)} {
		refused(t, lockpg.DB(unused, lockpg.TablePrefix(bad)), sqllock.ErrInvalidOption, "table prefix")
		refused(t, lockpg.DB(unused, lockpg.Schema(bad)), sqllock.ErrInvalidOption, "schema")
	}
	if n := unused.Stats().OpenConnections; n != 0 {
		t.Errorf("%d connections were opened", n)
	}
}

func TestAClosedHandleIsRefused(t *testing.T) {
	t.Parallel()
	server := shared(t)
	db, err := sql.Open("pgx", server.DSN())
	if err != nil {
		t.Fatal(err)
	}
	_ = db.Close()
	refused(t, lockpg.DB(db), sqllock.ErrInvalidOption, "closed")
	pool, err := pgxpool.New(t.Context(), server.DSN())
	if err != nil {
		t.Fatal(err)
	}
	pool.Close()
	refused(t, lockpg.Pool(pool), sqllock.ErrInvalidOption, "closed")
}

func TestTablesThatAreMissingOrOfAnotherVersionAreRefused(t *testing.T) {
	t.Parallel()
	db := shared(t).Open(t)
	refused(t, lockpg.DB(db), sqllock.ErrSchema, "migrations.Up", "sqllock migrate up")
	migrate(t, db)
	mustExec(t, db, `UPDATE sqllock_meta SET schema_version = 1`)
	refused(t, lockpg.DB(db), sqllock.ErrSchema, "older", "sqllock migrate up")
	mustExec(t, db, `UPDATE sqllock_meta SET schema_version = $1::bigint + 1, compatible_from = $1::bigint + 1`, lockpg.SchemaVersion)
	refused(t, lockpg.DB(db), sqllock.ErrSchema, "upgrade")
	mustExec(t, db, `UPDATE sqllock_meta SET compatible_from = $1`, lockpg.SchemaVersion)
	open(t, db) // newer tables that this library can work with
}

func TestAServerThatCannotKeepThePromisesIsRefused(t *testing.T) {
	t.Parallel()
	db := migrated(t)
	mustExec(t, db, `ALTER TABLE sqllock_lock SET UNLOGGED`)
	refused(t, lockpg.DB(db), sqllock.ErrUnsupported, "unlogged")
	mustExec(t, db, `ALTER TABLE sqllock_lock SET LOGGED`)
	readOnly := withTables(t)
	ro, err := sql.Open("pgx", readOnly.DSN()+"&default_transaction_read_only=on")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = ro.Close() }()
	refused(t, lockpg.DB(ro), sqllock.ErrUnsupported, "read-only")
}

// A name is bytes for the library. A session with another encoding than UTF8 would have the server
// turn them into those of another name.
func TestASessionThatConvertsNamesIsRefused(t *testing.T) {
	t.Parallel()
	d := shared(t)
	if err := migrations.Up(t.Context(), lockpg.DB(d.Open(t))); err != nil {
		t.Fatal(err)
	}
	inEachMode(t, func(t *testing.T, open func(*lockpg.Database) (locker, error)) {
		for encoding, works := range map[string]bool{"UTF8": true, "SQL_ASCII": true, "LATIN1": false} {
			_, err := open(lockpg.DB(d.Open(t, "client_encoding="+encoding)))
			switch {
			case works && err != nil:
				t.Errorf("client_encoding %s: %v", encoding, err)
			case !works && (!errors.Is(err, sqllock.ErrUnsupported) || !strings.Contains(err.Error(), encoding)):
				t.Errorf("client_encoding %s: %v, want ErrUnsupported that names it", encoding, err)
			}
		}
	})
}

// An id that is absent travels as the word NULL in an array, where the driver does not know arrays.
func TestASessionThatReadsNullInAnArrayAsATextIsRefused(t *testing.T) {
	t.Parallel()
	d := shared(t)
	if err := migrations.Up(t.Context(), lockpg.DB(d.Open(t))); err != nil {
		t.Fatal(err)
	}
	inEachMode(t, func(t *testing.T, open func(*lockpg.Database) (locker, error)) {
		for setting, works := range map[string]bool{"on": true, "off": false} {
			_, err := open(lockpg.DB(d.Open(t, "array_nulls="+setting)))
			switch {
			case works && err != nil:
				t.Errorf("array_nulls %s: %v", setting, err)
			case !works && (!errors.Is(err, sqllock.ErrUnsupported) || !strings.Contains(err.Error(), "array_nulls")):
				t.Errorf("array_nulls %s: %v, want ErrUnsupported that names it", setting, err)
			}
		}
	})
}

// With a driver that is not pgx, a connection comes back to the pool inside a transaction that the
// application has left open. What a grant writes must be committed at once, without that transaction.
func TestATransactionThatTheApplicationHasLeftTakesNoGrantWithIt(t *testing.T) {
	t.Parallel()
	for state, left := range map[string][]string{
		"idle in transaction":           {"BEGIN", "CREATE TABLE work (v integer)"},
		"idle in transaction (aborted)": {"BEGIN", "CREATE TABLE work (v integer)", "SELECT 1/0"},
	} {
		t.Run(state, func(t *testing.T) {
			t.Parallel()
			database := withTables(t)
			db, other := hideDriver(t, database.DSN()), database.Open(t)
			db.SetMaxOpenConns(1) // so that the store gets this one
			store := open(t, db)
			conn, err := db.Conn(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			for _, statement := range left {
				_, _ = conn.ExecContext(t.Context(), statement) // one is to fail
			}
			if err := conn.Close(); err != nil {
				t.Fatal(err)
			}
			const sessions = `SELECT string_agg(state, ', ') FROM pg_stat_activity
				WHERE datname = current_database() AND backend_type = 'client backend' AND pid <> pg_backend_pid()`
			if got := get[string](t, other, sessions); got != state {
				t.Fatalf("the application's session is %q, want %q", got, state)
			}
			if r := grant(t, store, request("k", 1, time.Minute))[0]; !r.Granted {
				t.Errorf("%+v", r)
			}
			const seen = `SELECT concat_ws(' ', (SELECT count(*) FROM sqllock_lock WHERE acq IS NOT NULL), to_regclass('work') IS NULL)`
			if got := get[string](t, other, seen); got != "1 t" {
				t.Errorf("others see %q: how many grants, and that the application's table is not there; want 1 t", got)
			}
		})
	}
}

func TestWithoutFlushesNothingWorksUnlessAllowedOnAServerOfItsOwn(t *testing.T) {
	t.Parallel()
	db := dedicated(t, "-c", "fsync=off").Open(t)
	migrate(t, db)
	refused(t, lockpg.DB(db), sqllock.ErrUnsupported, "fsync", "AllowUnsafeDurability")
	store := open(t, db, lockpg.AllowUnsafeDurability())
	if w := store.Info().Warnings; len(w) != 1 || !strings.Contains(w[0], "fsync") {
		t.Errorf("warnings = %q", w)
	}
}

func TestAHotStandbyIsRefusedOnAServerOfItsOwn(t *testing.T) {
	t.Parallel()
	server := dedicated(t)
	db := server.Open(t)
	migrate(t, db)
	// With this file a server starts in recovery and waits for a primary for ever.
	signal := get[string](t, db, `SELECT current_setting('data_directory') || '/standby.signal'`)
	mustExec(t, db, `COPY (SELECT WHERE false) TO '`+signal+`'`)
	server.Restart()
	standby := server.Open(t)
	if !get[bool](t, standby, `SELECT pg_is_in_recovery()`) {
		t.Fatal("the test expects a standby")
	}
	refused(t, lockpg.DB(standby), sqllock.ErrUnsupported, "standby")
}

func TestSchemaAndPrefixAreQuoted(t *testing.T) {
	t.Parallel()
	db := shared(t).Open(t)
	mustExec(t, db, `CREATE SCHEMA "Locks"`)
	opts := []lockpg.Option{lockpg.Schema("Locks"), lockpg.TablePrefix("Select_")}
	if err := migrations.Up(t.Context(), lockpg.DB(db, opts...)); err != nil {
		t.Fatal(err)
	}
	grant(t, open(t, db, opts...), request("a", 1, time.Minute))
	if n := get[int](t, db, `SELECT count(*) FROM "Locks"."Select_lock"`); n != 1 {
		t.Errorf("%d rows", n)
	}
	refused(t, lockpg.DB(db), sqllock.ErrSchema)
}

func TestAPoolOfPgxServesAsWell(t *testing.T) {
	t.Parallel()
	server := withTables(t)
	config, err := pgxpool.ParseConfig(server.DSN())
	if err != nil {
		t.Fatal(err)
	}
	config.MaxConns = 2
	pool, err := pgxpool.NewWithConfig(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	const ttl = 10 * time.Second
	locks, err := sqllock.NewUnique(t.Context(), lockpg.Pool(pool), &sqllock.UniqueOptions{TTL: ttl})
	if err != nil {
		t.Fatal(err)
	}
	lease, err := locks.Lock(t.Context(), "a")
	if err != nil {
		t.Fatal(err)
	}
	// The application uses up the rest of its pool for longer than the TTL.
	conn, err := pool.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	time.Sleep(ttl * 3 / 2)
	if lease.Remaining() <= 0 {
		t.Errorf("lost: %v", context.Cause(lease.Context()))
	}
	if err := lease.Unlock(t.Context()); err != nil {
		t.Error(err)
	}
	conn.Release()
	if err := locks.Close(t.Context()); err != nil {
		t.Error(err)
	}
	// A pool of pgx takes back in the background what was closed.
	eventually(t, "all connections are given back", time.Minute, func() bool { return pool.Stat().AcquiredConns() == 0 })
	if err := pool.Ping(t.Context()); err != nil {
		t.Errorf("the application's pool after Close: %v", err)
	}
}

func TestUnderADefaultIsolationOfSerializableNothingFails(t *testing.T) {
	t.Parallel()
	server := withTables(t)
	db, err := sql.Open("pgx", server.DSN()+"&default_transaction_isolation=serializable")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = db.Close() }()
	db.SetMaxOpenConns(16)
	store := open(t, db)
	errs := make(chan error)
	for c := range 8 {
		go func() {
			for r := range 50 {
				req := request("hot", 1+c+8*r, time.Minute)
				res, err := store.Acquire(t.Context(), []driver.AcquireRequest{req})
				if err == nil && res[0].Granted {
					_, err = store.Release(t.Context(), []driver.ReleaseRequest{{Name: "hot", Acq: req.Acq, Version: res[0].Version}})
				}
				if err != nil {
					errs <- err
					return
				}
			}
			errs <- nil
		}()
	}
	for range 8 {
		if err := <-errs; err != nil {
			t.Error(err)
		}
	}
}

func TestALockAndAnUnlockAreTwoRoundTripsOnOneConnection(t *testing.T) {
	t.Parallel()
	database := withTables(t)
	proxy := netproxy.New(t, database.Addr())
	db := database.OpenVia(t, proxy.Addr())
	locks, err := sqllock.NewUnique(t.Context(), lockpg.DB(db), nil)
	if err != nil {
		t.Fatal(err)
	}
	cycle := func() {
		if err := locks.Do(t.Context(), "a", func(context.Context, *sqllock.Lease) error { return nil }); err != nil {
			t.Fatal(err)
		}
	}
	for range 10 { // they prepare the statements, and then change settings of the session
		cycle()
	}
	const cycles = 50
	before := proxy.RoundTrips()
	for range cycles {
		cycle()
	}
	if got := proxy.RoundTrips() - before; got != 2*cycles {
		t.Errorf("%d round trips in %d cycles, want two each", got, cycles)
	}
	if n := proxy.Conns(); n != 1 {
		t.Errorf("%d connections for one caller", n)
	}
	if err := locks.Close(t.Context()); err != nil {
		t.Error(err)
	}
}

// The notification goes in the same round trip. A lease that was guarded is released by a visit.
func TestAHandOverIsOneRoundTripAndAVisitIsTwo(t *testing.T) {
	t.Parallel()
	database := withTables(t)
	db := database.Open(t)
	proxy := netproxy.New(t, database.Addr())
	through := database.OpenVia(t, proxy.Addr())
	through.SetMaxOpenConns(1)
	store, other := open(t, through), openAs(t, lockpg.DB(db), 1)
	v := grant(t, store, request("a", 1, time.Minute))[0].Version
	// handOver returns how many round trips it takes.
	handOver := func(n int, guarded bool) int {
		line(t, other, waiter("a", n+1))
		before := proxy.RoundTrips()
		r := releasing("a", n, v)
		r.Awaited, r.Guarded = true, guarded
		let(t, store, r)
		trips := proxy.RoundTrips() - before
		v = line(t, other, waiter("a", n+1))[0].Version
		return trips
	}
	handOver(1, false) // prepares the statements
	handOver(2, true)
	if n := handOver(3, false); n != 1 {
		t.Errorf("%d round trips, want one", n)
	}
	if n := handOver(4, true); n != 2 {
		t.Errorf("%d round trips of a visit, want one until the decision, and one after it", n)
	}
}

func TestAConnectionInDoubtIsEndedAndNotGivenBackToAPool(t *testing.T) {
	t.Parallel()
	server := withTables(t)
	db := server.Open(t)
	pool, err := pgxpool.New(t.Context(), server.DSN())
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	store, err := lockpg.Pool(pool).OpenUnique(t.Context(), driver.Client{Label: "test"})
	if err != nil {
		t.Fatal(err)
	}
	grant(t, store, request("a", 1, time.Minute)) // reserves a connection
	mustExec(t, db, `DROP TABLE sqllock_lock CASCADE`)
	if _, err := store.Acquire(t.Context(), []driver.AcquireRequest{request("a", 1, time.Minute)}); classify(err) != driver.Refused {
		t.Fatalf("Acquire without a table = %v", err)
	}
	if !store.CloseIdle() {
		t.Error("the reserved connection is in use")
	}
	for began := time.Now(); pool.Stat().TotalConns() > 0; time.Sleep(time.Millisecond) {
		if time.Since(began) > 20*time.Second {
			t.Fatal("the connection is back in the pool")
		}
	}
	if err := store.Close(); err != nil {
		t.Error(err)
	}
}

func TestAServerThatEndsIdleSessionsCostsNoLock(t *testing.T) {
	t.Parallel()
	server := withTables(t)
	db := server.Open(t, supported(t, server, "idle_session_timeout=300ms")...)
	locks, err := sqllock.NewUnique(t.Context(), lockpg.DB(db), &sqllock.UniqueOptions{TTL: 10 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	held, err := locks.Lock(t.Context(), "a")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"b", "c"} {
		time.Sleep(time.Second) // the reserved connection dies meanwhile
		lease, err := locks.Lock(t.Context(), name)
		if err != nil {
			t.Fatal(err)
		}
		if err := lease.Unlock(t.Context()); err != nil {
			t.Error(err)
		}
	}
	if err := held.Unlock(t.Context()); err != nil {
		t.Error(err)
	}
	if err := locks.Close(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestAServerThatEndsIdleSessionsPutsNoLeaseInJeopardy(t *testing.T) {
	server := withTables(t)
	var told atomic.Value
	const ttl = 15 * time.Second
	locks, err := sqllock.NewUnique(t.Context(), lockpg.DB(server.Open(t, supported(t, server, "idle_session_timeout=300ms")...)), &sqllock.UniqueOptions{
		TTL: ttl, Reaper: &sqllock.ReaperOptions{Off: true},
		Hooks: &sqllock.Hooks{Jeopardy: func(e sqllock.JeopardyEvent) { told.Store(e.Err) }},
	})
	if err != nil {
		t.Fatal(err)
	}
	held, err := locks.Lock(t.Context(), "a")
	if err != nil {
		t.Fatal(err)
	}
	time.Sleep(ttl*2/3 + 300*time.Millisecond) // it is renewed twice, each time on a connection that was ended
	if err := told.Load(); err != nil {
		t.Errorf("jeopardy: %v", err)
	}
	if err := held.Unlock(t.Context()); err != nil {
		t.Error(err)
	}
	if err := locks.Close(t.Context()); err != nil {
		t.Error(err)
	}
}
