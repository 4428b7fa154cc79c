package otellock_test

import (
	"context"
	"database/sql"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/sqllock/sqllock"
	"github.com/sqllock/sqllock/internal/testdb"
	"github.com/sqllock/sqllock/locksqlite"
	"github.com/sqllock/sqllock/migrations"
)

func TestMain(m *testing.M) { testdb.Main(m) }

const (
	testTimeout = time.Minute
	ttl         = 20 * time.Second // what is in jeopardy has two thirds of it to recover
	timeout     = 3 * time.Second  // of calls that give up
)

// worker is a Locker that does what the metrics are about.
type worker struct {
	t      *testing.T
	db     *sql.DB
	locks  *sqllock.Locker
	events chan string // what the hooks that the work waits for have told

	least  map[string]time.Duration // that the sums of some durations are, by metric and attributes
	tokens []string                 // of all leases, each behind its name
}

// newWorker returns a worker whose Locker has hooks. Close the Locker to have all events.
func newWorker(t *testing.T, hooks sqllock.Hooks) *worker {
	t.Helper()
	w := &worker{t: t, db: testdb.New(t, testdb.SQLite).Open(t), events: make(chan string, 10_000), least: make(map[string]time.Duration)}
	if err := migrations.Up(t.Context(), locksqlite.DB(w.db)); err != nil {
		t.Fatal(err)
	}
	hooks.Waiting = then(hooks.Waiting, func(ev sqllock.WaitingEvent) { w.events <- "waits for " + ev.Name })
	hooks.Jeopardy = then(hooks.Jeopardy, func(ev sqllock.JeopardyEvent) { w.events <- "jeopardy of " + ev.Name })
	hooks.Renewed = then(hooks.Renewed, func(ev sqllock.RenewedEvent) { w.events <- "renewed " + ev.Name })
	var err error
	w.locks, err = sqllock.NewUnique(t.Context(), locksqlite.DB(w.db), &sqllock.UniqueOptions{
		TTL: ttl, Hooks: &hooks, Logger: slog.New(slog.DiscardHandler), Reaper: &sqllock.ReaperOptions{Off: true},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = w.locks.Close(context.Background()) })
	return w
}

// then calls one hook, if it is set, and another.
func then[E any](first, second func(E)) func(E) {
	return func(ev E) {
		if first != nil {
			first(ev)
		}
		second(ev)
	}
}

// hear waits until the hooks have told something n times.
func (w *worker) hear(what string, n int) {
	w.t.Helper()
	for end := time.After(testTimeout); n > 0; {
		select {
		case got := <-w.events:
			if got == what {
				n--
			}
		case <-end:
			w.t.Fatalf("never: %s", what)
		}
	}
}

// has notes a lease.
func (w *worker) has(lease *sqllock.Lease, err error) *sqllock.Lease {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
	w.tokens = append(w.tokens, fmt.Sprint(lease.Name(), " ", lease.Token()))
	return lease
}

func (w *worker) lock(name string, opts ...sqllock.LockOption) *sqllock.Lease {
	w.t.Helper()
	return w.has(w.locks.Lock(context.Background(), name, opts...))
}

func (w *worker) atLeast(metric string, d time.Duration) { w.least[metric] += max(0, d) }

func unlock(t *testing.T, lease *sqllock.Lease) {
	t.Helper()
	if err := lease.Unlock(context.Background()); err != nil {
		t.Fatal(err)
	}
}

// work does what the metrics are about, each at least once: grants, waits, hand-overs, calls
// that give up, renewals, jeopardy, a loss, a crashed holder and a statement that fails.
func (w *worker) work() {
	t, ctx := w.t, context.Background()
	t.Helper()
	kept := w.lock("in jeopardy")
	held := w.lock("k")
	since := time.Now()
	if _, err := w.locks.TryLock(ctx, "k"); err == nil {
		t.Fatal("the name is not held")
	}
	w.giveUp()
	awaitWaiters(t, w.locks, "k", 0)
	next := make(chan *sqllock.Lease)
	go func() {
		lease, err := w.locks.Lock(ctx, "k")
		if err != nil {
			t.Error(err)
		}
		next <- lease
	}()
	w.hear("waits for k", 1)
	waits := time.Now()
	time.Sleep(100 * time.Millisecond)
	w.atLeast("sqllock.wait.duration{sqllock.access=exclusive,sqllock.result=granted}", time.Since(waits))
	w.atLeast("sqllock.acquire.duration{sqllock.access=exclusive,sqllock.result=granted}", time.Since(waits))
	w.atLeast("sqllock.hold.duration{sqllock.access=exclusive}", time.Since(since))
	unlock(t, held)
	unlock(t, w.has(<-next, nil))
	unlock(t, w.has(w.locks.RLock(ctx, "r")))
	w.permit()

	lost := w.lock("lost")
	if _, err := w.locks.ForceUnlock(ctx, "lost"); err != nil {
		t.Fatal(err)
	}
	_ = lost.Unlock(ctx)
	w.crash()
	w.jeopardy(kept)
}

// permit takes a permit of a Semaphore.
func (w *worker) permit() {
	w.t.Helper()
	pool, err := w.locks.Semaphore("pool", 2, nil)
	if err != nil {
		w.t.Fatal(err)
	}
	unlock(w.t, w.has(pool.Acquire(context.Background())))
}

// crash has a holder crash, which the reaper finds.
func (w *worker) crash() {
	w.t.Helper()
	w.execute(`INSERT OR REPLACE INTO sqllock_lock (name, acq, locker, owner, label, version, holds, since, expires_at)
		VALUES ('crashed', randomblob(16), randomblob(16), 'o', 'l', 7, 1, 1700000000000000, 1700000001000000)`)
	if _, err := w.locks.Reaper().Reap(context.Background()); err != nil {
		w.t.Fatal(err)
	}
}

// jeopardy has a call and the renewals of a lease fail for a while.
func (w *worker) jeopardy(lease *sqllock.Lease) {
	w.t.Helper()
	w.execute(`ALTER TABLE sqllock_lock RENAME TO away`)
	if _, err := w.locks.TryLock(context.Background(), "refused"); err == nil {
		w.t.Fatal("there is no table")
	}
	w.hear("jeopardy of "+lease.Name(), 1)
	w.execute(`ALTER TABLE away RENAME TO sqllock_lock`)
	w.hear("renewed "+lease.Name(), 1)
	unlock(w.t, lease)
}

// giveUp waits for k in vain, in each way.
func (w *worker) giveUp() {
	t, background := w.t, context.Background()
	t.Helper()
	ctx, cancel := context.WithTimeout(background, timeout)
	defer cancel()
	deadline, _ := ctx.Deadline()
	canceled, cancelNow := context.WithCancel(background)
	defer cancelNow()
	var all sync.WaitGroup
	inVain := func(call func() error) {
		all.Go(func() {
			if call() == nil {
				t.Error("the name is not held")
			}
		})
	}
	inVain(func() error { _, err := w.locks.Lock(background, "k", sqllock.Wait(timeout)); return err })
	inVain(func() error { _, err := w.locks.Lock(ctx, "k"); return err })
	inVain(func() error { _, err := w.locks.LockAll(ctx, []string{"a", "k"}); return err })
	inVain(func() error { _, err := w.locks.Lock(canceled, "k"); return err })
	w.hear("waits for k", 4)
	for range 2 { // that wait until the deadline, after that time or before
		w.atLeast("sqllock.wait.duration{sqllock.access=exclusive,sqllock.result=timeout}", time.Until(deadline))
	}
	w.atLeast("sqllock.acquire.duration{sqllock.access=exclusive,sqllock.result=held}", timeout)
	cancelNow()
	all.Wait()
}

func awaitWaiters(t *testing.T, locks *sqllock.Locker, name string, n int) {
	t.Helper()
	for end := time.Now().Add(testTimeout); ; time.Sleep(5 * time.Millisecond) {
		info, err := locks.Inspect(context.Background(), name)
		if err == nil && info.Waiters == n {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("%d wait for %s, want %d: %v", info.Waiters, name, n, err)
		}
	}
}

func (w *worker) execute(statement string) {
	w.t.Helper()
	if _, err := w.db.ExecContext(context.Background(), statement); err != nil {
		w.t.Fatal(err)
	}
}
