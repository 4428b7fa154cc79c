package sqllock_test

import (
	"context"
	"database/sql"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sqllock/sqllock"
	"github.com/sqllock/sqllock/driver"
	"github.com/sqllock/sqllock/internal/testdb"
	"github.com/sqllock/sqllock/lockmysql"
	"github.com/sqllock/sqllock/lockpg"
)

// idling is a pool whose connections the server ends.
type idlePool struct {
	params []string
	killed bool // an operator has them ended; else the server does by itself
	forces bool // ForceUnlock knows then that nothing was done
}

var idlings = map[string]map[string]idlePool{
	testdb.Postgres: {
		"idle_session_timeout": {params: []string{"idle_session_timeout=1s"}, forces: true},
		"pg_terminate_backend": {killed: true},
	},
	testdb.MariaDB: {
		"wait_timeout":                        {params: []string{"wait_timeout=1"}, forces: true},
		"wait_timeout without checks of life": {params: []string{"wait_timeout=1", "checkConnLiveness=false"}},
	},
}

// awaitEnd waits until the server has ended sessions.
func awaitEnd(t *testing.T, e *engine, admin *sql.DB, ids []string) {
	t.Helper()
	query := `SELECT pid FROM pg_stat_activity`
	if e.name != testdb.Postgres {
		query = `SELECT id FROM information_schema.processlist`
	}
	for began := time.Now(); slices.ContainsFunc(firstColumn(t, admin, query), func(id string) bool { return slices.Contains(ids, id) }); time.Sleep(10 * time.Millisecond) {
		if time.Since(began) > time.Minute {
			t.Fatal("the server has not ended the sessions")
		}
	}
}

// lockerOf returns a Locker of a mode.
func lockerOf(t *testing.T, e *engine, mode string, db *sql.DB) *sqllock.Locker {
	t.Helper()
	var d interface {
		driver.UniqueDatabase
		driver.ForUpdateDatabase
		driver.AdvisoryDatabase
	} = lockpg.DB(db)
	if e.name != testdb.Postgres {
		d = lockmysql.DB(db)
	}
	var l *sqllock.Locker
	var err error
	switch reaper := (&sqllock.ReaperOptions{Off: true}); mode {
	case "unique":
		l, err = sqllock.NewUnique(t.Context(), d, &sqllock.UniqueOptions{Reaper: reaper})
	case "for update":
		l, err = sqllock.NewForUpdate(t.Context(), d, &sqllock.ForUpdateOptions{Reaper: reaper})
	case "advisory":
		l, err = sqllock.NewAdvisory(t.Context(), d, &sqllock.AdvisoryOptions{Reaper: reaper})
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = closeAtOnce(l) })
	return l
}

// calls are calls of operators about a name that is free.
var calls = map[string]func(context.Context, *sqllock.Locker) error{
	"Inspect": func(ctx context.Context, l *sqllock.Locker) error {
		_, err := l.Inspect(ctx, "k")
		return err
	},
	"List": func(ctx context.Context, l *sqllock.Locker) error {
		for _, err := range l.List(ctx) {
			return err
		}
		return nil
	},
	"ForceUnlock": func(ctx context.Context, l *sqllock.Locker) error {
		if _, err := l.ForceUnlock(ctx, "k"); !errors.Is(err, sqllock.ErrNotHeld) {
			return errors.Join(errors.New("want ErrNotHeld"), err)
		}
		return nil
	},
}

func TestOperatorCallsWorkOnAPoolWhoseConnectionsTheServerHasEnded(t *testing.T) {
	onEachServer(t, func(t *testing.T, e *engine, d *testdb.Database) {
		for what, i := range idlings[e.name] {
			for _, mode := range []string{"unique", "for update", "advisory"} {
				for call, send := range calls {
					if call == "ForceUnlock" && !i.forces {
						continue
					}
					t.Run(what+"/"+mode+"/"+call, func(t *testing.T) {
						t.Parallel()
						admin, db := d.Open(t), d.Open(t, i.params...)
						t.Cleanup(func() { db.SetMaxIdleConns(-1) }) // else it complains of those that have ended
						l := lockerOf(t, e, mode, db)
						ids := idle(t, e, db)
						for _, id := range ids {
							if i.killed {
								firstColumn(t, admin, `SELECT pg_terminate_backend(`+id+`)`)
							}
						}
						awaitEnd(t, e, admin, ids)
						if err := send(t.Context(), l); err != nil {
							t.Error(err)
						}
					})
				}
			}
		}
	})
}

// idle leaves two connections in the pool that have just been used.
func idle(t *testing.T, e *engine, db *sql.DB) (ids []string) {
	t.Helper()
	query := `SELECT CAST(pg_backend_pid() AS text)`
	if e.name != testdb.Postgres {
		query = `SELECT CONNECTION_ID()`
	}
	for range 2 {
		conn, err := db.Conn(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = conn.Close() }()
		var id string
		if err := conn.QueryRowContext(t.Context(), query).Scan(&id); err != nil {
			t.Fatal(err)
		}
		ids = append(ids, id)
	}
	return ids
}

func TestALookThatGetsNoReplyIsRepeatedAFewTimes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := newFake()
		b := newBench(t, db, nil)
		defer b.close()
		for _, kind := range []string{"look", "list"} {
			send := func(ctx context.Context) (err error) {
				if kind == "look" {
					_, err = b.Inspect(ctx, "a")
					return err
				}
				for _, err = range b.List(ctx) {
				}
				return err
			}
			db.set(func(f *fake) { f.after = failing(kind, errNoReply) })
			n := db.count(kind)
			if err := send(t.Context()); !errors.Is(err, errNoReply) || db.count(kind)-n != 4 {
				t.Errorf("%s on connections that break = %v after %d statements", kind, err, db.count(kind)-n)
			}
			db.set(func(f *fake) { f.after = nil })
		}
	})
}
