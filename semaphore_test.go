package sqllock_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sqllock/sqllock"
	"github.com/sqllock/sqllock/driver"
	"github.com/sqllock/sqllock/internal/testdb"
	"github.com/sqllock/sqllock/locktest"
	"github.com/sqllock/sqllock/migrations"
)

// fillPermits makes claims that hold out of the only one that there is, as if so many callers held
// permits of one name, and no permit but the last were free. {id} is an id that no other row has.
const fillPermits = `INSERT INTO t_claim (name, acq, state, kind, slot, seq, token, holds, ttl, handed, max_hold,
		since, expires_at, limit_at, delay, locker, owner, label)
	WITH d (i) AS (
		SELECT 0 UNION ALL SELECT 1 UNION ALL SELECT 2 UNION ALL SELECT 3 UNION ALL SELECT 4 UNION ALL
		SELECT 5 UNION ALL SELECT 6 UNION ALL SELECT 7 UNION ALL SELECT 8 UNION ALL SELECT 9
	), n (i) AS (SELECT a.i + 10 * b.i + 100 * c.i + 1000 * e.i FROM d a, d b, d c, d e)
	SELECT name, {id}, state, kind, i, seq + i, token + i, holds, ttl, handed, max_hold,
		since, expires_at, limit_at, delay, locker, owner, label
	FROM t_claim, n WHERE i BETWEEN 1 AND 9998`

var newIDs = map[string]string{
	testdb.Postgres: "md5(i::text)::uuid", testdb.MariaDB: "UNHEX(MD5(i))", testdb.MySQL: "UNHEX(LEFT(SHA2(i, 256), 32))", testdb.SQLite: "randomblob(16)",
}

func TestANameHasTenThousandPermitsAndNoMore(t *testing.T) {
	t.Parallel()
	for _, engine := range testdb.All() {
		t.Run(engine, func(t *testing.T) {
			t.Parallel()
			db := testdb.New(t, engine).Open(t)
			database := withPrefix(engine, db, "t_")
			if err := migrations.Up(t.Context(), database); err != nil {
				t.Fatal(err)
			}
			locks, err := sqllock.NewUnique(t.Context(), database, &sqllock.UniqueOptions{TTL: time.Hour, StatementTimeout: time.Minute})
			if err != nil {
				t.Fatal(err)
			}
			defer closeSoon(locks)
			haveAllPermits(t, engine, db, locks)
		})
	}
}

func haveAllPermits(t *testing.T, engine string, db *sql.DB, locks *sqllock.Locker) {
	t.Helper()
	s, err := locks.Semaphore("n", sqllock.MaxPermits, nil)
	if err != nil {
		t.Fatal(err)
	}
	acquire := func(slot int) *sqllock.Lease {
		t.Helper()
		began := time.Now()
		lease, err := s.TryAcquire(t.Context())
		if err != nil || lease.Slot() != slot {
			t.Fatalf("TryAcquire: %v, %v; want slot %d", lease, err, slot)
		}
		t.Logf("slot %d was granted in %v", slot, time.Since(began))
		return lease
	}
	first := acquire(0)
	for _, query := range []string{
		strings.ReplaceAll(fillPermits, "{id}", newIDs[engine]),
		fmt.Sprintf(`UPDATE t_lock SET holding = %d, seq = seq + 10000, version = version + 10000`, sqllock.MaxPermits-1),
	} {
		if _, err := db.ExecContext(t.Context(), query); err != nil {
			t.Fatal(err)
		}
	}
	last := acquire(sqllock.MaxPermits - 1)
	if info, err := locks.Inspect(t.Context(), "n"); err != nil || info.Permits != sqllock.MaxPermits || info.PermitsHeld != sqllock.MaxPermits || len(info.Holders) != 10 {
		t.Errorf("Inspect: %d of %d permits are held, %d holders are shown: %v", info.PermitsHeld, info.Permits, len(info.Holders), err)
	}
	if lease, err := s.TryAcquire(t.Context()); !errors.Is(err, sqllock.ErrHeld) {
		t.Fatalf("TryAcquire of one permit more: %v, %v", lease, err)
	}
	if err := first.Unlock(t.Context()); err != nil {
		t.Fatalf("Unlock: %v", err)
	}
	again := acquire(0)
	if again.Token() <= last.Token() {
		t.Errorf("token %d follows token %d", again.Token(), last.Token())
	}
	for _, lease := range []*sqllock.Lease{again, last} {
		if err := lease.Unlock(t.Context()); err != nil {
			t.Errorf("Unlock: %v", err)
		}
	}
}

func TestAFenceOfEachSlotRefusesThoseOfTheSlotAlone(t *testing.T) {
	for _, engine := range testdb.All() {
		t.Run(engine, func(t *testing.T) {
			db, fence := fencing(t, engine)
			locks, err := sqllock.NewUnique(t.Context(), withPrefix(engine, db, "t_"), nil)
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = locks.Close(t.Context()) }()
			s, err := locks.Semaphore("n", 2, nil)
			if err != nil {
				t.Fatal(err)
			}
			acquire := func() *sqllock.Lease {
				lease, err := s.Acquire(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				return lease
			}
			write := func(lease *sqllock.Lease, fenced bool) {
				t.Helper()
				err := fence(fmt.Sprintf("n/%d", lease.Slot()), lease.Token(), true)
				if errors.Is(err, sqllock.ErrFenced) != fenced || err != nil && !fenced {
					t.Errorf("a write of slot %d: %v, want that it is fenced: %v", lease.Slot(), err, fenced)
				}
			}
			zero, one := acquire(), acquire()
			write(one, false)
			write(zero, false) // a higher token of another slot ends nothing
			if err := zero.Unlock(t.Context()); err != nil {
				t.Fatal(err)
			}
			next := acquire()
			write(next, false)
			write(zero, true)
			write(one, false)
			for _, lease := range []*sqllock.Lease{next, one} {
				if err := lease.Unlock(t.Context()); err != nil {
					t.Error(err)
				}
			}
		})
	}
}

func TestWaitAndTriesAmongTheDefaultsAreDroppedForTryAcquire(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		locks := locktest.New(t, nil)
		for what, waits := range map[string]sqllock.LockOption{"Wait(1s)": sqllock.Wait(time.Second), "Tries(2)": sqllock.Tries(2)} {
			s, err := locks.Semaphore(what, 1, &sqllock.SemaphoreOptions{Defaults: []sqllock.LockOption{waits}})
			if err != nil {
				t.Fatal(err)
			}
			lease, err := s.TryAcquire(t.Context())
			if err != nil {
				t.Fatalf("TryAcquire with %s as a default: %v", what, err)
			}
			for call, err := range map[string]error{"TryAcquire": second(s.TryAcquire(t.Context())), "Acquire": second(s.Acquire(t.Context()))} {
				if !errors.Is(err, sqllock.ErrHeld) {
					t.Errorf("%s with %s as a default: %v, want ErrHeld", call, what, err)
				}
			}
			if _, err := s.TryAcquire(t.Context(), waits); !errors.Is(err, sqllock.ErrInvalidOption) || !strings.Contains(err.Error(), what) {
				t.Errorf("TryAcquire with %s: %v, want ErrInvalidOption that says so", what, err)
			}
			if err := lease.Unlock(t.Context()); err != nil {
				t.Error(err)
			}
		}
	})
}

// slowlyResized is a database whose reply to a Resize waits for answer.
type slowlyResized struct {
	driver.UniqueDatabase
	resized, answer chan struct{}
}

// slowlyResizedStore is its store.
type slowlyResizedStore struct {
	driver.Store
	driver.PermitStore
	db *slowlyResized
}

func (d *slowlyResized) OpenUnique(ctx context.Context, c driver.Client) (driver.Store, error) {
	s, err := d.UniqueDatabase.OpenUnique(ctx, c)
	if err != nil {
		return nil, err
	}
	return &slowlyResizedStore{s, s.(driver.PermitStore), d}, nil
}

func (s *slowlyResizedStore) Resize(ctx context.Context, name string, permits int) error {
	err := s.PermitStore.Resize(ctx, name, permits)
	close(s.db.resized)
	<-s.db.answer
	return err
}

func TestACallForAPermitWaitsForTheResizeThatIsUnderWay(t *testing.T) {
	t.Parallel()
	sqlite := withPrefix(testdb.SQLite, testdb.New(t, testdb.SQLite).Open(t), "t_")
	if err := migrations.Up(t.Context(), sqlite); err != nil {
		t.Fatal(err)
	}
	d := &slowlyResized{sqlite, make(chan struct{}), make(chan struct{})}
	locks, err := sqllock.NewUnique(t.Context(), d, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer closeSoon(locks)
	s, err := locks.Semaphore("n", 1, nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Acquire(t.Context()); err != nil { // it says how many permits there are
		t.Fatal(err)
	}
	resize, acquire := make(chan error, 1), make(chan error, 1)
	go func() { resize <- s.Resize(t.Context(), 2) }()
	<-d.resized
	go func() {
		_, err := s.TryAcquire(t.Context())
		acquire <- err
	}()
	select {
	case err := <-acquire:
		t.Errorf("TryAcquire while the reply to Resize is missing: %v", err)
		acquire <- nil
	case <-time.After(200 * time.Millisecond):
	}
	close(d.answer)
	if err := <-resize; err != nil {
		t.Errorf("Resize: %v", err)
	}
	if err := <-acquire; err != nil {
		t.Errorf("TryAcquire after Resize: %v", err)
	}
}
