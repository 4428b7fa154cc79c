package lockpg_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/sqllock/sqllock"
	"github.com/sqllock/sqllock/internal/testdb"
	"github.com/sqllock/sqllock/lockpg"
)

// outageFor returns the outage that a test is for, and the TTL with which no lease is lost in it: one
// and a half times the outage, and 5 s. On a machine that is slow a promotion takes longer, too.
func outageFor(setUp time.Duration) (longest, ttl time.Duration) {
	longest = setUp + 3*time.Second
	return longest, longest*3/2 + 5*time.Second
}

const failOverWait = 2 * time.Minute

// failOver is a primary with a synchronous standby, and Lockers that know both.
type failOver struct {
	primary, standby *testdb.Server
	longest, ttl     time.Duration // see outageFor

	lockers []*sqllock.Locker
	leases  []*sqllock.Lease
	losses  atomic.Int64
	pools   []*pgxpool.Pool
	idle    context.CancelFunc // ends the queries of the application
}

// In each pool of the Lockers the application wants more connections than there are, for queries
// that take longer than the test.
const (
	failOverPool  = 4
	failOverCalls = 5
	// The Lockers of one kind of pool renew at different times, so that one of them is about to
	// when the primary goes.
	failOverLockers = 3
	failOverLeases  = 10 // of each Locker
)

func startFailOver(t *testing.T) *failOver {
	t.Helper()
	f := new(failOver)
	t.Cleanup(func() { // when no host is frozen any more: Close waits for connections that are being opened
		for _, pool := range f.pools {
			pool.Close()
		}
	})
	f.primary = dedicated(t)
	began := time.Now()
	f.standby = f.primary.Standby()
	f.longest, f.ttl = outageFor(time.Since(began))
	db := f.open(t, "connect_timeout=2")
	migrate(t, db)
	mustExec(t, db, `CREATE TABLE work (name text PRIMARY KEY, token bigint)`)

	ctx, idle := context.WithCancel(context.Background())
	var calls sync.WaitGroup
	f.idle = func() {
		idle()
		calls.Wait()
	}
	t.Cleanup(f.idle)
	began = time.Now()
	for i := range failOverLockers {
		time.Sleep(time.Until(began.Add(time.Duration(i) * f.ttl / 3 / failOverLockers)))
		db := f.open(t, "connect_timeout=2")
		db.SetMaxOpenConns(failOverPool)
		f.lock(t, lockpg.DB(db))
		pool := f.pool(t)
		f.lock(t, lockpg.Pool(pool))
		for range failOverCalls {
			calls.Go(func() {
				keepBusy(ctx, func() error {
					_, err := db.ExecContext(ctx, `SELECT pg_sleep(600)`)
					return err
				})
			})
			calls.Go(func() {
				keepBusy(ctx, func() error {
					_, err := pool.Exec(ctx, `SELECT pg_sleep(600)`)
					return err
				})
			})
		}
	}
	return f
}

// keepBusy makes calls until ctx ends.
func keepBusy(ctx context.Context, call func() error) {
	for ctx.Err() == nil {
		if call() != nil {
			time.Sleep(10 * time.Millisecond)
		}
	}
}

func (f *failOver) dsn(params string) string {
	return fmt.Sprintf("postgres://postgres@%s,%s/postgres?sslmode=disable&target_session_attrs=read-write&%s",
		f.primary.Addr(), f.standby.Addr(), params)
}

func (f *failOver) open(t *testing.T, params string) *sql.DB {
	t.Helper()
	db, err := sql.Open("pgx", f.dsn(params))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	return db
}

// pool has no connect_timeout: pgxpool gives each host two minutes.
func (f *failOver) pool(t *testing.T) *pgxpool.Pool {
	t.Helper()
	pool, err := pgxpool.New(t.Context(), f.dsn(fmt.Sprintf("pool_max_conns=%d", failOverPool)))
	if err != nil {
		t.Fatal(err)
	}
	f.pools = append(f.pools, pool)
	return pool
}

// lock adds a Locker that holds leases.
func (f *failOver) lock(t *testing.T, d *lockpg.Database) {
	t.Helper()
	l, err := sqllock.NewUnique(t.Context(), d, &sqllock.UniqueOptions{
		TTL: f.ttl, Reaper: &sqllock.ReaperOptions{Off: true}, Logger: slog.New(slog.DiscardHandler),
		Hooks: &sqllock.Hooks{Lost: func(sqllock.LostEvent) { f.losses.Add(1) }},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { closeSoon(l) })
	f.lockers = append(f.lockers, l)
	for i := range failOverLeases {
		f.leases = append(f.leases, mustLock(t, l, fmt.Sprintf("held/%d/%d", len(f.lockers), i)))
	}
}

func mustLock(t *testing.T, l *sqllock.Locker, name string) *sqllock.Lease {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), failOverWait)
	defer cancel()
	lease, err := l.Lock(ctx, name)
	if err != nil {
		t.Fatalf("Lock of %q: %v", name, err)
	}
	return lease
}

func mustUnlock(t *testing.T, lease *sqllock.Lease) {
	t.Helper()
	if err := lease.Unlock(t.Context()); err != nil {
		t.Errorf("Unlock of %q: %v", lease.Name(), err)
	}
}

// promote ends the primary and promotes the standby.
func (f *failOver) promote(t *testing.T, end func()) {
	t.Helper()
	began := time.Now()
	end()
	time.Sleep(time.Second)
	f.standby.Promote()
	if outage := time.Since(began); outage > f.longest {
		t.Fatalf("the outage was %v, and the test is for %v", outage, f.longest)
	}
}

// renewed waits until the standby has seen a renewal of each lease, and checks that none is lost.
func (f *failOver) renewed(t *testing.T, db *sql.DB) {
	t.Helper()
	from := get[int64](t, db, `SELECT (extract(epoch FROM clock_timestamp()) * 1e6)::bigint`)
	eventually(t, "all leases are renewed", failOverWait, func() bool {
		if f.losses.Load() > 0 {
			t.Fatalf("%d leases of %d are lost", f.losses.Load(), len(f.leases))
		}
		return get[int](t, db, `SELECT count(*) FROM sqllock_lock WHERE name LIKE 'held/%' AND expires_at > $1`,
			from+f.ttl.Microseconds()) == len(f.leases)
	})
	for _, lease := range f.leases {
		if err := lease.Context().Err(); err != nil {
			t.Errorf("the lease of %q: %v", lease.Name(), context.Cause(lease.Context()))
		}
	}
}

// waiting has two Lockers wait for a name that another one holds. The function that it returns
// unlocks it and checks that they are served.
func (f *failOver) waiting(t *testing.T, name string) (serve func()) {
	t.Helper()
	holder := mustLock(t, f.lockers[0], name)
	served := make(chan *sqllock.Lease, 2)
	waiters := []*sqllock.Locker{f.lockers[2], f.lockers[3]} // through a handle, and through a pool
	db := f.open(t, "connect_timeout=2")
	for i, l := range waiters {
		go func() {
			lease, err := l.Lock(t.Context(), name)
			if err != nil && t.Context().Err() == nil {
				t.Errorf("Lock of %q: %v", name, err)
			}
			served <- lease
		}()
		eventually(t, "the call waits", failOverWait, func() bool {
			return get[int](t, db, `SELECT count(*) FROM sqllock_claim WHERE name = $1`, name) == i+1
		})
	}
	return func() {
		t.Helper()
		token := holder.Token()
		mustUnlock(t, holder)
		for range waiters {
			select {
			case lease := <-served:
				if lease == nil {
					t.FailNow()
				}
				if lease.Token() <= token {
					t.Errorf("token %d after %d", lease.Token(), token)
				}
				token = lease.Token()
				mustUnlock(t, lease)
			case <-time.After(failOverWait):
				t.Fatal("a waiter is not served")
			}
		}
	}
}

// writes checks that a lease from before the fail-over guards a write on the new primary.
func (f *failOver) writes(t *testing.T, lease *sqllock.Lease, there *sql.DB) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), failOverWait)
	defer cancel()
	var err error
	for ctx.Err() == nil {
		if err = lease.InTx(ctx, nil, func(ctx context.Context, tx *sql.Tx) error {
			_, err := tx.ExecContext(ctx, `INSERT INTO work VALUES ($1, $2)`, lease.Name(), lease.Token())
			return err
		}); err == nil {
			break
		}
	}
	if err != nil {
		t.Fatalf("InTx: %v", err)
	}
	if got := get[int64](t, there, `SELECT token FROM work WHERE name = $1`, lease.Name()); got != lease.Token() {
		t.Errorf("%d was written, want %d", got, lease.Token())
	}
}

// hang begins a guarded transaction that waits for an answer when the primary is frozen. The
// function that it returns checks that its term ends with MaxHold, and that it has written nothing.
func (f *failOver) hang(t *testing.T) (ended func(there *sql.DB)) {
	t.Helper()
	l, err := sqllock.NewUnique(t.Context(), lockpg.DB(f.open(t, "connect_timeout=2")), &sqllock.UniqueOptions{
		TTL: f.ttl, Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { closeSoon(l) })
	lease, err := l.TryLock(t.Context(), "hung", sqllock.MaxHold(f.longest+5*time.Second))
	if err != nil {
		t.Fatal(err)
	}
	wrote, result := make(chan struct{}), make(chan error, 1)
	go func() {
		result <- lease.InTx(context.Background(), nil, func(ctx context.Context, tx *sql.Tx) error {
			if _, err := tx.ExecContext(ctx, `INSERT INTO work VALUES ('hung', 1)`); err != nil {
				return err
			}
			close(wrote)
			_, err := tx.ExecContext(ctx, `SELECT pg_sleep(600)`)
			return err
		})
	}()
	select {
	case <-wrote:
	case err := <-result:
		t.Fatalf("InTx before the primary is frozen: %v", err)
	}
	return func(there *sql.DB) {
		t.Helper()
		if next := mustLock(t, f.lockers[1], "hung"); next.Token() <= lease.Token() {
			t.Errorf("token %d after %d", next.Token(), lease.Token())
		}
		var lost *sqllock.LostError
		select {
		case err := <-result:
			if !errors.As(err, &lost) || lost.Reason != sqllock.LostMaxHold {
				t.Errorf("want the loss by MaxHold, got %v", err)
			}
		case <-time.After(failOverWait):
			t.Error("InTx does not return")
		}
		if get[int](t, there, `SELECT count(*) FROM work WHERE name = 'hung'`) > 0 {
			t.Error("the transaction that hung was committed")
		}
	}
}

// closeSoon leaves to expire what is held.
func closeSoon(l *sqllock.Locker) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Millisecond)
	defer cancel()
	_ = l.Close(ctx)
}

// listens checks that a waiter of the Locker is told by the new primary, and not only when it asks.
func listens(t *testing.T, there *sql.DB) {
	t.Helper()
	eventually(t, "a Locker listens", failOverWait, func() bool {
		return get[int](t, there, `SELECT count(*) FROM pg_stat_activity WHERE query LIKE 'LISTEN "sqllock_%'`) > 0
	})
}

func TestAFailOverThatLosesNothingCostsNoLeaseOnAServerOfItsOwn(t *testing.T) {
	t.Parallel()
	for how, end := range map[string]func(*testdb.Server){"killed": (*testdb.Server).Kill, "frozen": (*testdb.Server).Pause} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			f := startFailOver(t)
			serve, hung := f.waiting(t, "queue"), f.hang(t)
			f.promote(t, func() { end(f.primary) })
			there := f.standby.Open(t)
			f.renewed(t, there)
			serve()
			for i, l := range f.lockers {
				lease := mustLock(t, l, fmt.Sprint("new/", i))
				mustUnlock(t, lease)
			}
			f.idle()
			f.writes(t, f.leases[0], there) // through a handle with a connect_timeout
			serve = f.waiting(t, "again")
			listens(t, there)
			serve()
			if how == "frozen" {
				hung(there)
				f.primary.Resume()
				grantsNothing(t, f.primary)
				f.renewed(t, there)
			}
		})
	}
}

// grantsNothing checks that a former primary, which has no standby any more, acknowledges no commit.
func grantsNothing(t *testing.T, former *testdb.Server) {
	t.Helper()
	l, err := sqllock.NewUnique(t.Context(), lockpg.DB(former.Open(t)), &sqllock.UniqueOptions{TTL: 3 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	defer closeSoon(l)
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	if lease, err := l.Lock(ctx, "split"); err == nil {
		t.Errorf("the former primary has granted %q with token %d", lease.Name(), lease.Token())
	} else if !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Lock on the former primary: %v", err)
	}
}
