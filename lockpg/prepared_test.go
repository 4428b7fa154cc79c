package lockpg_test

import (
	"context"
	"database/sql"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/sqllock/sqllock/driver"
	"github.com/sqllock/sqllock/lockpg"
)

// countPrepared counts the prepared statements of the library in the session of a handle with one
// connection.
func countPrepared(t *testing.T, db *sql.DB) int {
	t.Helper()
	return get[int](t, db, `SELECT count(*)::int FROM pg_prepared_statements WHERE name LIKE 'sqllock\_%'`)
}

// cycleOn grants and frees a name, waits for it, and hands it over.
func cycleOn(t *testing.T, store driver.Store, name string) {
	t.Helper()
	v := grant(t, store, request(name, 1, time.Minute))[0].Version
	line(t, store, waiter(name, 2))
	isNext(t, let(t, store, releasing(name, 1, v))[0], 2, v)
	look(t, store, name)
	abandon(t, store, name, 2)
}

func abandon(t *testing.T, store driver.Store, name string, id int) {
	t.Helper()
	if _, err := store.Release(t.Context(), []driver.ReleaseRequest{{Name: name, Acq: acq(id)}}); err != nil {
		t.Fatal(err)
	}
}

func TestStatementsThatSomebodyHasDeallocatedArePreparedAgain(t *testing.T) {
	t.Parallel()
	db := migrated(t)
	db.SetMaxOpenConns(1)
	store := open(t, db)
	cycleOn(t, store, "k")
	if countPrepared(t, db) == 0 {
		t.Fatal("nothing was prepared")
	}
	for _, forget := range []string{`DISCARD ALL`, `DEALLOCATE ALL`} {
		mustExec(t, db, forget)
		cycleOn(t, store, "k")
	}
}

// A migration can change the columns of a result that is prepared.
func TestAStatementWhoseResultHasChangedIsPreparedAgain(t *testing.T) {
	t.Parallel()
	db := migrated(t)
	db.SetMaxOpenConns(1)
	store := open(t, db)
	cycleOn(t, store, "k")
	mustExec(t, db, `DROP VIEW sqllock_locks`)
	mustExec(t, db, `ALTER TABLE sqllock_lock ALTER COLUMN holds TYPE bigint`)
	cycleOn(t, store, "k")
}

// traced notes that it was called.
type traced struct{ queries int }

func (tr *traced) TraceQueryStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceQueryStartData) context.Context {
	return ctx
}
func (tr *traced) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

func (tr *traced) TraceBatchStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceBatchStartData) context.Context {
	return ctx
}
func (tr *traced) TraceBatchQuery(context.Context, *pgx.Conn, pgx.TraceBatchQueryData) { tr.queries++ }
func (tr *traced) TraceBatchEnd(context.Context, *pgx.Conn, pgx.TraceBatchEndData)     {}

func TestAnApplicationThatTracesStatementsOrSendsThemItsOwnWayGetsItsWay(t *testing.T) {
	t.Parallel()
	database := withTables(t)
	for name, change := range map[string]func(*pgx.ConnConfig, *traced){
		"a tracer":            func(c *pgx.ConnConfig, tr *traced) { c.Tracer = tr },
		"exec":                func(c *pgx.ConnConfig, _ *traced) { c.DefaultQueryExecMode = pgx.QueryExecModeExec },
		"the simple protocol": func(c *pgx.ConnConfig, _ *traced) { c.DefaultQueryExecMode = pgx.QueryExecModeSimpleProtocol },
		"descriptions only":   func(c *pgx.ConnConfig, _ *traced) { c.DefaultQueryExecMode = pgx.QueryExecModeCacheDescribe },
	} {
		t.Run(name, func(t *testing.T) {
			config, err := pgx.ParseConfig(database.DSN())
			if err != nil {
				t.Fatal(err)
			}
			var tr traced
			change(config, &tr)
			db := stdlib.OpenDB(*config)
			defer func() { _ = db.Close() }()
			db.SetMaxOpenConns(1)
			store, err := lockpg.DB(db).OpenUnique(t.Context(), driver.Client{Instance: driver.ID{1}, Label: "test"})
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = store.Close() }()
			cycleOn(t, store, "k "+name)
			if n := countPrepared(t, db); n != 0 {
				t.Errorf("%d statements were prepared", n)
			}
			if config.Tracer != nil && tr.queries == 0 {
				t.Error("the tracer was not called")
			}
		})
	}
}
