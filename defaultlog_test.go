package sqllock_test

import (
	"context"
	"log"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sqllock/sqllock"
	"github.com/sqllock/sqllock/internal/testdb"
)

// defaultLog makes what slog.Default is told visible, at every level, until the test ends.
// The test must not be parallel to others.
func defaultLog(t *testing.T) *complaints {
	t.Helper()
	said, before, output, flags := new(complaints), slog.Default(), log.Writer(), log.Flags()
	slog.SetDefault(slog.New(slog.NewTextHandler(said, &slog.HandlerOptions{Level: slog.LevelDebug})))
	t.Cleanup(func() {
		slog.SetDefault(before)
		log.SetOutput(output) // which SetDefault changes and does not change back
		log.SetFlags(flags)
	})
	return said
}

// losing has a lease lost without a Logger of its own, after the database's clock jumped.
func losing(t *testing.T, opts *sqllock.UniqueOptions) (text string) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		db := newFake()
		b := newBench(t, db, opts)
		said := defaultLog(t) // set later than the Locker was made
		b.unlock(b.lock("unlocked"))
		lease := b.lock("lost")
		time.Sleep(ttl)
		db.set(func(f *fake) { f.skew += time.Second })
		time.Sleep(ttl)
		db.set(func(f *fake) { f.before = failing("renew", errDown) })
		<-lease.Context().Done()
		db.set(func(f *fake) { f.before = nil })
		b.close()
		text = said.String()
	})
	return text
}

func TestWhatShouldNotStayUnknownIsToldToTheDefaultLoggerIfThereIsNoOther(t *testing.T) {
	text := losing(t, &sqllock.UniqueOptions{TTL: ttl})
	for _, said := range []string{
		`level=ERROR msg="sqllock: lost" name=lost`,
		`level=WARN msg="sqllock: the clock of the database jumped"`,
		`level=WARN msg="sqllock: a renewal failed, the lease is in jeopardy" name=lost`,
	} {
		if strings.Count(text, said) != 1 {
			t.Errorf("want %s once, logged:\n%s", said, text)
		}
	}
	if strings.Contains(text, "level=INFO") || strings.Contains(text, "level=DEBUG") {
		t.Errorf("what is routine was logged:\n%s", text)
	}
}

func TestADiscardHandlerSilencesWhatShouldNotStayUnknown(t *testing.T) {
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
	const said = `level=WARN msg="sqllock: the pool has one connection`
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
			if got := strings.Count(log.String(), said); got != c.want {
				t.Errorf("told %d times, want %d; logged:\n%s", got, c.want, log)
			}
		}
	})
}
