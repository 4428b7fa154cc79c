package sqllock_test

import (
	"context"
	"database/sql"
	"errors"
	"log"
	"log/slog"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/sqllock/sqllock"
	"github.com/sqllock/sqllock/internal/pairs"
	"github.com/sqllock/sqllock/internal/testdb"
	"github.com/sqllock/sqllock/internal/testlog"
	"github.com/sqllock/sqllock/lockpg"
)

const (
	secretOwner = "owner-that-nobody-reads"
	secretValue = "value-that-nobody-reads"
)

func TestOwnersAndValuesAreNotLoggedAtInfoLevelWhateverHappens(t *testing.T) {
	onEach(t, func(t *testing.T, e *engine, d *testdb.Database) {
		t.Parallel()
		var log testlog.Text
		ctx, cancel := context.WithTimeout(sqllock.WithOwner(t.Context(), secretOwner), time.Minute)
		defer cancel()
		const ttl = 12 * time.Second
		locker := func(db *sql.DB) *sqllock.Locker {
			return newLocks(t, e.open(db), sqllock.UniqueOptions{TTL: ttl, Logger: slog.New(slog.NewTextHandler(&log, nil))})
		}
		db := d.Open(t)
		l, other := locker(db), locker(db)
		lock := func(l *sqllock.Locker, name string) *sqllock.Lease {
			lease, err := l.Lock(ctx, name, sqllock.Value([]byte(secretValue)))
			if err != nil {
				t.Fatalf("Lock(%q): %v", name, err)
			}
			return lease
		}
		// Handed over, ended by force, deleted by hand, and crashed.
		first := lock(l, "handed over")
		next := make(chan *sqllock.Lease)
		go func() { next <- lock(other, "handed over") }()
		time.Sleep(50 * time.Millisecond)
		err := first.Unlock(ctx)
		err = errors.Join(err, (<-next).Unlock(ctx))
		forced, taken := lock(l, "forced"), lock(l, "taken")
		_, forcing := other.ForceUnlock(ctx, "forced")
		mustExec(t, db, `DELETE FROM sqllock_lock WHERE name = 'taken'`)
		if err = errors.Join(err, forcing); err != nil {
			t.Fatal(err)
		}
		for _, lease := range []*sqllock.Lease{forced, taken} {
			<-lease.Context().Done()
		}
		crashing := newLocks(t, e.open(db), sqllock.UniqueOptions{TTL: ttl})
		lock(crashing, "crashed")
		mustExec(t, db, `UPDATE sqllock_lock SET expires_at = 1 WHERE acq IS NOT NULL`)
		if _, err := l.Reaper().Reap(ctx); err != nil {
			t.Fatal(err)
		}
		if err := l.Close(ctx); err != nil {
			t.Fatal(err)
		}
		text := log.String()
		for _, logged := range []string{"name=forced", "name=taken", "name=crashed"} {
			if !strings.Contains(text, logged) {
				t.Errorf("the log does not say %q", logged)
			}
		}
		if strings.Contains(text, secretOwner) || strings.Contains(text, secretValue) {
			t.Errorf("an owner or a value was logged:\n%s", text)
		}
	})
}

func TestOwnersAndValuesAreNotLoggedAtInfoLevelWhenTheDatabaseIsGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log testlog.Text
		db := newFake()
		b := newBench(t, db, &sqllock.UniqueOptions{TTL: ttl, Logger: slog.New(slog.NewTextHandler(&log, nil))})
		lease, err := b.Lock(sqllock.WithOwner(t.Context(), secretOwner), "a", sqllock.Value([]byte(secretValue)))
		if err != nil {
			t.Fatal(err)
		}
		db.set(func(f *fake) { f.before = failing("renew", errDown) })
		<-lease.Context().Done()
		b.crash()
		synctest.Wait()
		text := log.String()
		if !strings.Contains(text, "in jeopardy") || !strings.Contains(text, "sqllock: lost") {
			t.Errorf("logged: %s", text)
		}
		if strings.Contains(text, secretOwner) || strings.Contains(text, secretValue) {
			t.Errorf("an owner or a value was logged:\n%s", text)
		}
	})
}

// wrongPassword returns the DSN of a database with a password that is not right.
func wrongPassword(t *testing.T, e *engine, d *testdb.Database, password string) string {
	t.Helper()
	if e.name != testdb.Postgres {
		cfg := pairs.Parsed(d.DSN())
		cfg.User, cfg.Passwd = "nobody_of_this_name", password
		return cfg.FormatDSN()
	}
	u, err := url.Parse(d.DSN())
	if err != nil {
		t.Fatal(err)
	}
	u.User = url.UserPassword("nobody_of_this_name", password)
	return u.String()
}

func TestThePasswordOfAHandleIsInNoErrorAndInNoLog(t *testing.T) {
	const password = "pass-word-that-nobody-reads"
	onEachServer(t, func(t *testing.T, e *engine, d *testdb.Database) {
		var log testlog.Text
		opts := &sqllock.UniqueOptions{Logger: slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))}
		right := wrongPassword(t, e, d, password)
		away := strings.Replace(right, d.Addr(), "127.0.0.1:1", 1)
		if right == away {
			t.Fatalf("%s is not in the DSN", d.Addr())
		}
		for what, dsn := range map[string]string{"a wrong password": right, "nobody there": away} {
			db, err := sql.Open(e.harness.Driver, dsn)
			if err != nil {
				t.Fatal(err)
			}
			_, unique := sqllock.NewUnique(t.Context(), e.open(db), opts)
			errs := map[string]error{"NewUnique": unique, "Close": db.Close()}
			if e.name == testdb.Postgres {
				pool, err := pgxpool.New(t.Context(), dsn)
				if err != nil {
					t.Fatal(err)
				}
				_, errs["NewUnique of a pool"] = sqllock.NewUnique(t.Context(), lockpg.Pool(pool), opts)
				pool.Close()
			}
			if unique == nil {
				t.Errorf("%s: no error", what)
			}
			for call, err := range errs {
				if err != nil && strings.Contains(err.Error(), password) {
					t.Errorf("%s: %s: %v", what, call, err)
				}
			}
		}
		if strings.Contains(log.String(), password) {
			t.Errorf("logged: %s", log.String())
		}
	})
}

// defaultLog makes what slog.Default is told visible, at every level, until the test ends.
// The test must not be parallel to others.
func defaultLog(t *testing.T) *testlog.Text {
	t.Helper()
	logged, before, output, flags := new(testlog.Text), slog.Default(), log.Writer(), log.Flags()
	slog.SetDefault(slog.New(slog.NewTextHandler(logged, &slog.HandlerOptions{Level: slog.LevelDebug})))
	t.Cleanup(func() {
		slog.SetDefault(before)
		log.SetOutput(output) // which SetDefault changes and does not change back
		log.SetFlags(flags)
	})
	return logged
}

// losing has a lease lost without a Logger of its own, after the database's clock jumped.
func losing(t *testing.T, opts *sqllock.UniqueOptions) (text string) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		db := newFake()
		b := newBench(t, db, opts)
		logged := defaultLog(t) // set later than the Locker was made
		b.unlock(b.lock("unlocked"))
		lease := b.lock("lost")
		time.Sleep(ttl)
		db.set(func(f *fake) { f.skew += time.Second })
		time.Sleep(ttl)
		db.set(func(f *fake) { f.before = failing("renew", errDown) })
		<-lease.Context().Done()
		db.set(func(f *fake) { f.before = nil })
		b.close()
		text = logged.String()
	})
	return text
}

func TestWarningsGoToTheDefaultLoggerIfThereIsNoOther(t *testing.T) {
	text := losing(t, &sqllock.UniqueOptions{TTL: ttl})
	for _, logged := range []string{
		`level=ERROR msg="sqllock: lost" name=lost`,
		`level=WARN msg="sqllock: the clock of the database jumped"`,
		`level=WARN msg="sqllock: a renewal failed, the lease is in jeopardy" name=lost`,
	} {
		if strings.Count(text, logged) != 1 {
			t.Errorf("want %s once, logged:\n%s", logged, text)
		}
	}
	if strings.Contains(text, "level=INFO") || strings.Contains(text, "level=DEBUG") {
		t.Errorf("what is routine was logged:\n%s", text)
	}
}

func TestADiscardHandlerSilencesWarnings(t *testing.T) {
	if text := losing(t, &sqllock.UniqueOptions{TTL: ttl, Logger: slog.New(slog.DiscardHandler)}); text != "" {
		t.Errorf("logged:\n%s", text)
	}
}

func TestAHookDoesNotSilenceTheDefaultLogger(t *testing.T) {
	hooks := &sqllock.Hooks{Acquired: func(sqllock.AcquiredEvent) {}}
	if text := losing(t, &sqllock.UniqueOptions{TTL: ttl, Hooks: hooks}); !strings.Contains(text, `msg="sqllock: lost" name=lost`) {
		t.Errorf("logged:\n%s", text)
	}
}

func TestAPoolOfOneIsToldToTheDefaultLogger(t *testing.T) {
	const warning = `level=WARN msg="sqllock: the pool has one connection`
	onEngines(t, func(name string) bool { return name == testdb.SQLite }, func(t *testing.T, e *engine, d *testdb.Database) {
		for _, c := range []struct {
			logger *slog.Logger
			want   int
		}{{nil, 1}, {slog.New(slog.DiscardHandler), 0}} {
			db := d.Open(t)
			db.SetMaxOpenConns(1)
			log := defaultLog(t)
			l := newLocks(t, e.open(db), sqllock.UniqueOptions{Logger: c.logger})
			if err := l.Close(context.Background()); err != nil { // then all is told
				t.Fatal(err)
			}
			if got := strings.Count(log.String(), warning); got != c.want {
				t.Errorf("told %d times, want %d; logged:\n%s", got, c.want, log)
			}
		}
	})
}
