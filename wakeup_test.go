package sqllock_test

import (
	"context"
	"database/sql"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/sqllock/sqllock"
	"github.com/sqllock/sqllock/driver"
	"github.com/sqllock/sqllock/internal/testdb"
	"github.com/sqllock/sqllock/internal/testlog"
	"github.com/sqllock/sqllock/lockpg"
)

// pushed returns the median of how long hand-overs from one Locker to the other take.
// Neither looks by itself; a ticket is asked for again after a second and a half.
func pushed(t *testing.T, db *sql.DB, from, to *sqllock.Locker) time.Duration {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var took []time.Duration
	for range 9 {
		lease, err := from.Lock(ctx, "pushed")
		if err != nil {
			t.Fatal(err)
		}
		got := make(chan *sqllock.Lease, 1)
		go func() {
			lease, err := to.Lock(ctx, "pushed")
			if err != nil {
				t.Error(err)
			}
			got <- lease
		}()
		for n := 0; n == 0; time.Sleep(time.Millisecond) {
			if err := db.QueryRowContext(ctx, `SELECT count(*) FROM sqllock_claim WHERE state = 0`).Scan(&n); err != nil {
				t.Fatal(err)
			}
		}
		start := time.Now()
		if err := lease.Unlock(ctx); err != nil {
			t.Fatal(err)
		}
		next := <-got
		took = append(took, time.Since(start))
		if next == nil {
			t.FailNow()
		}
		if err := next.Unlock(ctx); err != nil {
			t.Fatal(err)
		}
	}
	slices.Sort(took)
	return took[len(took)/2]
}

func TestPostgresPushesGrantsToWaiters(t *testing.T) {
	onEngines(t, func(name string) bool { return name == testdb.Postgres }, func(t *testing.T, _ *engine, d *testdb.Database) {
		db := d.Open(t)
		pool, err := pgxpool.New(t.Context(), d.DSN())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(pool.Close)
		never := sqllock.UniqueOptions{RetryMin: time.Hour, RetryMax: time.Hour}
		through := map[string]*sqllock.Locker{
			"database/sql": newLocks(t, lockpg.DB(db), never),
			"pgxpool":      newLocks(t, lockpg.Pool(pool), never),
		}
		const quick = 700 * time.Millisecond // on a machine that is busy
		for what, to := range through {
			for other, from := range through {
				if took := pushed(t, db, from, to); took > quick {
					t.Errorf("from a Locker on %s to one on %s: %v", other, what, took)
				}
			}
		}
		if n := listening(t, db); n != 2 {
			t.Errorf("two Lockers listen on %d connections", n)
		}
		// What listens is ended: it comes back by itself.
		if _, err := db.ExecContext(t.Context(), `SELECT pg_terminate_backend(pid) FROM pg_stat_activity
			WHERE datname = current_database() AND pid <> pg_backend_pid() AND `+listens); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		if took := pushed(t, db, through["pgxpool"], through["database/sql"]); took > quick {
			t.Errorf("after the connection that listened was ended: %v", took)
		}
	})
}

// listens says that a session was last used to listen, or to ask whether it still does.
const listens = `(query LIKE 'LISTEN %' OR query = '-- ping')`

func listening(t *testing.T, db *sql.DB) (n int) {
	t.Helper()
	if err := db.QueryRowContext(t.Context(), `SELECT count(*) FROM pg_stat_activity
		WHERE datname = current_database() AND pid <> pg_backend_pid() AND `+listens).Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

// telling is a database that tells waiters of their turn, when tell is called.
type pushBench struct {
	*fake
	tell atomic.Value // func(driver.ID)
}

func (s *pushBench) Listen(ctx context.Context, heard func(driver.ID)) error {
	s.tell.Store(heard)
	heard(driver.ID{})
	<-ctx.Done()
	return ctx.Err()
}

// newTelling makes a Locker that neither looks nor asks soon by itself, and a plain one.
func newPushBench(t *testing.T) (*pushBench, *bench, *bench) {
	t.Helper()
	db := &pushBench{fake: newFake()}
	slow := &sqllock.UniqueOptions{RetryMin: time.Second, RetryMax: time.Second}
	return db, newBenchOn(t, db, db.fake, slow), newBench(t, db.fake, nil)
}

func TestAWaiterThatGetsAPushDoesNotPoll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db, b, other := newPushBench(t)
		defer b.close()
		defer other.close()
		lease := other.lock("a")
		next := queuedWaiter(t, b, t.Context(), "a")
		time.Sleep(5 * time.Second)
		looks := db.count("look")
		time.Sleep(time.Minute)
		if n := db.count("look") - looks; n != 0 {
			t.Errorf("it looked %d times in a minute", n)
		}
		other.unlock(lease)
		db.tell.Load().(func(driver.ID))(db.row("a").acq)
		b.unlock(<-next)
	})
}

// noPushBench is a database that cannot tell waiters of their turn.
type noPushBench struct {
	*fake
	listens atomic.Int32 // how often it was asked to
}

func (s *noPushBench) Listen(context.Context, func(driver.ID)) error {
	s.listens.Add(1)
	return driver.ErrUnsupported
}

func TestThatTheDatabaseCannotPushIsLoggedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log testlog.Text
		db := &noPushBench{fake: newFake()}
		logger := slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))
		b, other := newBenchOn(t, db, db.fake, &sqllock.UniqueOptions{Logger: logger}), newBench(t, db.fake, nil)
		defer other.close()
		for range 2 {
			lease := other.lock("a")
			next := queuedWaiter(t, b, t.Context(), "a")
			time.Sleep(time.Minute)
			other.unlock(lease)
			b.unlock(<-next)
			time.Sleep(time.Minute) // nobody waits
		}
		b.close()
		if n, tries := strings.Count(log.String(), "cannot push"), db.listens.Load(); n != 1 || tries != 1 {
			t.Errorf("it was logged %d times, after %d tries to listen:\n%s", n, tries, log.String())
		}
	})
}

func TestAReaderGetsAPush(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db, b, other := newPushBench(t)
		defer b.close()
		defer other.close()
		lease := other.lock("a")
		got := make(chan *sqllock.Lease, 1)
		go func() {
			reader, err := b.RLock(t.Context(), "a")
			if err != nil {
				t.Errorf("RLock: %v", err)
			}
			got <- reader
		}()
		time.Sleep(10 * time.Second)
		other.unlock(lease)
		began := time.Now()
		for acq := range db.row("a").readers {
			db.tell.Load().(func(driver.ID))(acq)
		}
		b.unlock(<-got)
		if took := time.Since(began); took > 10*time.Millisecond {
			t.Errorf("it took %v", took)
		}
	})
}

// The turn of a waiter comes by the release of its own Locker, or of another one.
func TestMaxHoldOfAWaiterBeginsWithItsGrant(t *testing.T) {
	for what, own := range map[string]bool{"own": true, "another": false} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				db := newFake()
				b := newBench(t, db, nil)
				defer b.close()
				holder := b
				if !own {
					holder = newBench(t, db, nil)
					defer holder.close()
				}
				time.Sleep(time.Hour) // the clock of the process says more than a MaxHold
				lease := holder.lock("a")
				got := make(chan *sqllock.Lease)
				go func() { got <- b.lock("a", sqllock.MaxHold(20*time.Second)) }()
				time.Sleep(30 * time.Second)
				holder.unlock(lease)
				next := <-got
				began := time.Now()
				<-next.Context().Done()
				if held := time.Since(began); held < 15*time.Second || held > 20*time.Second {
					t.Errorf("it was held for %v", held)
				}
				var lost *sqllock.LostError
				if !errors.As(context.Cause(next.Context()), &lost) || lost.Reason != sqllock.LostMaxHold {
					t.Errorf("it ended because of %v", context.Cause(next.Context()))
				}
				_ = next.Unlock(t.Context())
			})
		})
	}
}

func TestAHandOverDoesNotWaitForARequestThatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const ttl = 30 * time.Second
		db := newFake()
		b := newBench(t, db, &sqllock.UniqueOptions{TTL: ttl, StatementTimeout: 3 * ttl})
		defer b.close()
		lease := b.lock("a")
		next := queuedWaiter(t, b, t.Context(), "a")
		hang := after("line", 2*ttl)
		db.set(func(f *fake) { f.before = hang })
		time.Sleep(3 * time.Second) // the ticket is prolonged meanwhile
		began := time.Now()
		b.unlock(lease)
		second := <-next
		if second == nil {
			return
		}
		if took := time.Since(began); took > 100*time.Millisecond {
			t.Errorf("the name was handed over after %v", took)
		}
		time.Sleep(ttl)
		if err := context.Cause(second.Context()); err != nil {
			t.Errorf("the lease ended: %v", err)
		}
		b.unlock(second)
		time.Sleep(ttl + time.Second) // the request arrives, and nobody wants what it gets
		if db.held("a") {
			t.Error("the name is held by nobody")
		}
	})
}

// A Locker that polls waits behind terms of another. It polls about as often as the name changes
// hands. But it pauses for four times as long as a poll takes, or RetryMin/2 if that is less.
func TestThePollIsAboutAsQuickAsANameChangesHands(t *testing.T) {
	const term = 10 * time.Millisecond
	for what, c := range map[string]struct {
		took        time.Duration // of a poll
		least, most int           // polls in a second
	}{
		"a poll that takes no time":     {0, 50, 200},
		"a poll that takes as long":     {term, 15, 20},
		"a poll that takes a long time": {100 * time.Millisecond, 5, 7},
	} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				db := newFake()
				other := newBench(t, db, &sqllock.UniqueOptions{TTL: time.Hour})
				defer other.close()
				b := newBench(t, db, &sqllock.UniqueOptions{TTL: time.Hour, RetryMin: 100 * time.Millisecond, RetryMax: 2 * time.Second})
				defer b.close()
				first := other.lock("a")
				var waiting []<-chan *sqllock.Lease
				for range 300 {
					waiting = append(waiting, queuedWaiter(t, other, t.Context(), "a"))
				}
				last := queuedWaiter(t, b, t.Context(), "a")
				db.set(func(f *fake) { f.before = after("look", c.took) })
				time.Sleep(10 * time.Second) // the pauses grow
				// The Locker of the terms does not poll in the moment between two of them.
				time.Sleep(term / 3)
				other.unlock(first)
				began, looks := time.Now(), 0
				for _, next := range waiting {
					if time.Since(began) > time.Second && looks == 0 {
						looks = db.count("look")
					}
					lease := <-next
					time.Sleep(term)
					other.unlock(lease)
				}
				if n := (db.count("look") - looks) / 2; n < c.least || n > c.most {
					t.Errorf("%d polls in a second, want %d to %d", n, c.least, c.most)
				}
				b.unlock(<-last)
			})
		})
	}
}
