package lockpg_test

import (
	"context"
	"database/sql"
	sqldriver "database/sql/driver"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/sqllock/sqllock"
	"github.com/sqllock/sqllock/driver"
	"github.com/sqllock/sqllock/internal/testdb"
	"github.com/sqllock/sqllock/lockpg"
	"github.com/sqllock/sqllock/migrations"
)

// refuses checks that a mode cannot be had, for a reason of the given kind whose text
// contains all of texts.
func (m sessionMode) refuses(t *testing.T, d *lockpg.Database, kind error, texts ...string) {
	t.Helper()
	s, err := m.open(d, t.Context(), driver.Client{Label: "test"}, driver.SessionOptions{TTL: sessionTTL})
	if s != nil || !errors.Is(err, kind) {
		t.Errorf("%s: %v, %v; want %v", m.name, s, err, kind)
		return
	}
	for _, text := range texts {
		if !strings.Contains(err.Error(), text) {
			t.Errorf("%s: the error %q does not say %q", m.name, err, text)
		}
	}
}

func TestAPoolOfLessThanThreeIsRefusedBeforeAnySQL(t *testing.T) {
	t.Parallel()
	for _, m := range sessionModes {
		m.refuses(t, lockpg.DB(nil), driver.ErrInvalidOption, "nil")
		for conns := range 3 {
			db, err := sql.Open("pgx", "postgres://127.0.0.1:1/none")
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = db.Close() }()
			if conns > 0 {
				db.SetMaxOpenConns(conns)
				m.refuses(t, lockpg.DB(db), driver.ErrInvalidOption, "at least 3 connections")
			}
			if n := db.Stats().OpenConnections; n != 0 {
				t.Errorf("%d connections were opened", n)
			}
		}
		config, err := pgxpool.ParseConfig("postgres://127.0.0.1:1/none?pool_max_conns=2")
		if err != nil {
			t.Fatal(err)
		}
		pool, err := pgxpool.NewWithConfig(t.Context(), config)
		if err != nil {
			t.Fatal(err)
		}
		defer pool.Close()
		m.refuses(t, lockpg.Pool(pool), driver.ErrInvalidOption, "at least 3 connections")
	}
}

func TestAServerThatCannotKeepLocksInSessionsIsRefused(t *testing.T) {
	t.Parallel()
	for _, m := range sessionModes {
		empty := shared(t)
		m.refuses(t, lockpg.DB(empty.Open(t)), driver.ErrSchema, "migrations.Up")
		d := withTables(t)
		db := d.Open(t)
		for version, words := range map[string][]string{
			"CockroachDB CCL v24.1.0 (x86_64-pc-linux-gnu)":                              {"CockroachDB", "not supported in any mode"},
			"PostgreSQL 11.2-YB-2.20.1.0-b0 on x86_64-pc-linux-gnu, compiled by clang":   {"YugabyteDB", "not supported in any mode"},
			"PostgreSQL 15.2-YB-2025.1.0.0-b0 on x86_64-pc-linux-gnu, compiled by clang": {"YugabyteDB", "NewUnique"},
			"PostgreSQL 8.0.2 on i686-pc-linux-gnu, compiled by GCC, Redshift 1.0.12103": {"Redshift", "not supported in any mode"},
		} {
			m.refuses(t, lockpg.DB(db, lockpg.Version(version)), driver.ErrUnsupported, words...)
		}
		for _, table := range []string{"sqllock_term", "sqllock_pin", "sqllock_lock"} {
			mustExec(t, db, `ALTER TABLE `+table+` SET UNLOGGED`)
			m.refuses(t, lockpg.DB(db), driver.ErrUnsupported, "unlogged")
			mustExec(t, db, `ALTER TABLE `+table+` SET LOGGED`)
		}
		ro := d.Open(t, "default_transaction_read_only=on")
		m.refuses(t, lockpg.DB(ro), driver.ErrUnsupported, "read-only")
		mustExec(t, db, `ALTER SEQUENCE sqllock_token RENAME TO hidden`)
		m.refuses(t, lockpg.DB(db), driver.ErrSchema, "sqllock_token")
		mustExec(t, db, `ALTER SEQUENCE hidden RENAME TO sqllock_token`)
		m.on(t, db, sessionTTL)
		if n := db.Stats().InUse; n != 1 {
			t.Errorf("%d connections are in use by a store that does nothing, want the one that is kept", n)
		}
	}
}

func TestWithoutFlushesSessionsAreRefusedUnlessAllowedOnAServerOfItsOwn(t *testing.T) {
	t.Parallel()
	db := dedicated(t, "-c", "fsync=off").Open(t)
	migrate(t, db)
	for _, m := range sessionModes {
		m.refuses(t, lockpg.DB(db), driver.ErrUnsupported, "fsync", "AllowUnsafeDurability")
		c := m.on(t, db, sessionTTL, lockpg.AllowUnsafeDurability())
		if w := c.Info().Warnings; len(w) != 1 || !strings.Contains(w[0], "fsync") {
			t.Errorf("warnings = %q", w)
		}
	}
}

// What a store keeps may end while it is idle.
func TestTheConnectionThatIsKeptIsReplacedWhenItHasEnded(t *testing.T) {
	t.Parallel()
	eachMode(t, func(t *testing.T, d *testdb.Database, m sessionMode) {
		c := m.client(t, d, supported(t, d, "idle_session_timeout=1s")...)
		for i := range 3 {
			r := noted("k")
			s, res := c.take(t, r)
			letGo(t, s, r, res)
			giveBack(t, s)
			if drawn, err := c.Draw(t.Context(), ask("drawn")); err != nil || !drawn.Granted {
				t.Errorf("%d: %+v, %v", i, drawn, err)
			}
			time.Sleep(1500 * time.Millisecond)
		}
	})
}

func TestALookIsServedWhileThePoolIsUsedUp(t *testing.T) {
	t.Parallel()
	eachMode(t, func(t *testing.T, d *testdb.Database, m sessionMode) {
		db := d.Open(t)
		db.SetMaxOpenConns(3)
		c := m.on(t, db, sessionTTL)
		r := noted("k")
		s, res := c.take(t, r)
		conn, err := db.Conn(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = conn.Close() }()
		if row := c.look(t, "k"); row.Holder.Acq != r.Acq || !row.Session {
			t.Errorf("%+v", row)
		}
		letGo(t, s, r, res)
	})
}

func TestSessionsKeepLocksInASchemaOfTheirOwnToo(t *testing.T) {
	t.Parallel()
	for _, m := range sessionModes {
		d := shared(t)
		db := d.Open(t)
		mustExec(t, db, `CREATE SCHEMA "Locks"`)
		opts := []lockpg.Option{lockpg.Schema("Locks"), lockpg.TablePrefix("Select_")}
		if err := migrations.Up(t.Context(), lockpg.DB(db, opts...)); err != nil {
			t.Fatal(err)
		}
		m.refuses(t, lockpg.DB(db), driver.ErrSchema)
		c := m.on(t, db, sessionTTL, opts...)
		for _, r := range []driver.AcquireRequest{ask("k"), noted("k"), askShared("k")} {
			s, res := c.take(t, r)
			if status := ping(t, s, r, res); status != driver.Renewed {
				t.Errorf("%s: %v", m.name, status)
			}
			tx := begin(t, db, sql.LevelDefault)
			if status := c.guard(t, tx, guardOf(s, r, res)); status != driver.Guarded && !r.Shared {
				t.Errorf("%s: %v", m.name, status)
			}
			_ = tx.Rollback()
			c.look(t, "k")
			c.revoke(t, "k")
			letGo(t, s, r, res)
			giveBack(t, s)
		}
		tx := begin(t, db, sql.LevelDefault)
		if status := tryTx(t, c, tx, "k", false); status != driver.TxTaken {
			t.Errorf("%s: %v", m.name, status)
		}
		if res, err := c.Draw(t.Context(), ask("k")); err != nil || !res.Granted {
			t.Errorf("%s: %+v, %v", m.name, res, err)
		}
		_ = tx.Rollback()
		if _, err := c.Sweep(t.Context(), driver.SweepRequest{Limit: 10}); err != nil {
			t.Error(err)
		}
		if _, err := c.List(t.Context(), driver.ListRequest{Limit: 10}); err != nil {
			t.Error(err)
		}
		if _, err := c.SweepDue(t.Context(), time.Hour); err != nil {
			t.Error(err)
		}
	}
}

// before14 connects to a server whose answers are those of one that does not know of
// idle_session_timeout.
type before14 struct{ hidden }

func (b before14) Connect(ctx context.Context) (sqldriver.Conn, error) {
	conn, err := b.hidden.Connect(ctx)
	return oldConn{conn}, err
}

type oldConn struct{ sqldriver.Conn }

func (c oldConn) Prepare(query string) (sqldriver.Stmt, error) {
	return c.Conn.Prepare(strings.ReplaceAll(query, "'idle_session_timeout'", "'sqllock.unknown'"))
}

func TestAServerThatEndsNoSilentSessionIsRefusedUnlessThatIsAccepted(t *testing.T) {
	d := withTables(t)
	db := sql.OpenDB(before14{hidden{d.DSN()}})
	t.Cleanup(func() { _ = db.Close() })
	advisory.refuses(t, lockpg.DB(db), driver.ErrUnsupported, "PostgreSQL 14", "idle_session_timeout", "AllowSilentHolders")
	l, err := sqllock.NewAdvisory(t.Context(), lockpg.DB(db), &sqllock.AdvisoryOptions{AllowSilentHolders: true})
	if err != nil {
		t.Fatal(err)
	}
	lease, err := l.TryLock(t.Context(), "k")
	if err != nil {
		t.Fatal(err)
	}
	if err := lease.Unlock(t.Context()); err != nil {
		t.Error(err)
	}
	if err := l.Close(t.Context()); err != nil {
		t.Error(err)
	}
	// For update ends the transaction of a silent holder in every version.
	forUpdate.on(t, db, sessionTTL)
}
