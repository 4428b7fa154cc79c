package migratelock_test

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/golang-migrate/migrate/v4/database"
	"github.com/golang-migrate/migrate/v4/database/pgx/v5"
	"github.com/golang-migrate/migrate/v4/database/stub"
	databasetesting "github.com/golang-migrate/migrate/v4/database/testing"

	"github.com/sqllock/sqllock"
	migratelock "github.com/sqllock/sqllock/golangmigrate"
	"github.com/sqllock/sqllock/internal/testdb"
	"github.com/sqllock/sqllock/locktest"
)

func newDriver(t *testing.T, inner database.Driver, locks *sqllock.Locker, opts ...sqllock.LockOption) *migratelock.Driver {
	t.Helper()
	d, err := migratelock.New(inner, locks, lockName, opts...)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// newStub returns a driver that keeps in memory what it is asked for.
func newStub(t *testing.T) *stub.Stub {
	t.Helper()
	d, err := new(stub.Stub).Open("stub://")
	if err != nil {
		t.Fatal(err)
	}
	return d.(*stub.Stub)
}

func TestTheDriverPassesTheTestsOfGolangMigrateOnPostgres(t *testing.T) {
	t.Parallel()
	d := testdb.New(t, testdb.Postgres)
	locks := postgresLocks(t, d)
	inner, err := pgx.WithInstance(d.Open(t), &pgx.Config{})
	if err != nil {
		t.Fatal(err)
	}
	driver := newDriver(t, inner, locks)
	databasetesting.Test(t, driver, []byte(`SELECT 1`))
	if err := driver.Close(); err != nil {
		t.Error(err)
	}
	m, err := newMigrate(d.Open(t), locks, nil)
	if err != nil {
		t.Fatal(err)
	}
	databasetesting.TestMigrate(t, m)
	closeMigrate(t, m)
}

func TestLockReportsThatAnotherProcessMigrates(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := locktest.NewDatabase(t)
		first, second := newDriver(t, newStub(t), d.Locker(nil)), newDriver(t, newStub(t), d.Locker(nil))
		if err := first.Lock(); err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		if err := second.Lock(); !errors.Is(err, database.ErrLocked) || !errors.Is(err, sqllock.ErrHeld) {
			t.Errorf("beside a holder: %v", err)
		}
		if took := time.Since(began); took < 13*time.Second || took >= 15*time.Second {
			t.Errorf("it waited for %v, and golang-migrate for 15 s", took)
		}
		if err := first.Lock(); !errors.Is(err, database.ErrLocked) {
			t.Errorf("a second Lock: %v", err)
		}
		time.Sleep(2 * time.Minute) // its lease is renewed
		if err := first.Unlock(); err != nil {
			t.Error(err)
		}
		if err := errors.Join(second.Lock(), second.Unlock()); err != nil {
			t.Error(err)
		}
		for _, free := range []*migratelock.Driver{first, second} {
			if err := free.Unlock(); !errors.Is(err, database.ErrNotLocked) || free.Lease() != nil {
				t.Errorf("Unlock of what is not locked: %v", err)
			}
		}
	})
}

func TestAnotherWaitReplacesTheDefault(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := locktest.NewDatabase(t)
		first, second := newDriver(t, newStub(t), d.Locker(nil)), newDriver(t, newStub(t), d.Locker(nil), sqllock.Wait(time.Hour))
		if err := first.Lock(); err != nil {
			t.Fatal(err)
		}
		time.AfterFunc(time.Minute, func() {
			if err := first.Unlock(); err != nil {
				t.Error(err)
			}
		})
		if err := errors.Join(second.Lock(), second.Unlock()); err != nil {
			t.Error(err)
		}
	})
}

// slow is a driver whose migrations call a function.
type slow struct {
	*stub.Stub
	run func()
}

func (s *slow) Run(migration io.Reader) error {
	s.run()
	return s.Stub.Run(migration)
}

func TestNothingIsChangedAfterALoss(t *testing.T) {
	t.Parallel()
	d := locktest.NewDatabase(t)
	inner := newStub(t)
	driver := newDriver(t, &slow{inner, func() { d.Lose(lockName) }}, d.Locker(nil))
	if err := errors.Join(driver.Lock(), driver.SetVersion(1, true), driver.Run(strings.NewReader("first"))); err != nil {
		t.Fatal(err)
	}
	for what, err := range map[string]error{
		"SetVersion": driver.SetVersion(1, false),
		"Run":        driver.Run(strings.NewReader("second")),
		"Drop":       driver.Drop(),
	} {
		if !errors.Is(err, sqllock.ErrLost) {
			t.Errorf("%s: %v", what, err)
		}
	}
	if !inner.EqualSequence([]string{"first"}) || inner.CurrentVersion != 1 || !inner.IsDirty {
		t.Errorf("%+v", inner)
	}
	if err := driver.Unlock(); err != nil { // or golang-migrate would not lock again
		t.Errorf("Unlock: %v", err)
	}
	if err := errors.Join(driver.Lock(), driver.SetVersion(1, false), driver.Unlock()); err != nil {
		t.Error(err)
	}
}

// closed is a driver that notes that it was closed.
type closed struct {
	*stub.Stub
	err error
	n   int
}

func (c *closed) Close() error {
	c.n++
	return c.err
}

func TestCloseGivesTheLockBack(t *testing.T) {
	t.Parallel()
	locks := locktest.New(t, nil)
	failure := errors.New("a failure of the inner driver")
	inner := &closed{Stub: newStub(t)}
	driver := newDriver(t, inner, locks)
	if err := errors.Join(driver.Lock(), driver.Close()); err != nil || inner.n != 1 {
		t.Errorf("%v, and the inner driver was closed %d times", err, inner.n)
	}
	lease, err := locks.TryLock(t.Context(), lockName)
	if err != nil {
		t.Fatal(err)
	}
	if err := lease.Unlock(t.Context()); err != nil {
		t.Error(err)
	}
	inner.err = failure
	if err := driver.Close(); !errors.Is(err, failure) {
		t.Errorf("Close: %v", err)
	}
}

func TestOpenOpensTheInnerDriverUnderTheSameLock(t *testing.T) {
	t.Parallel()
	locks := locktest.New(t, nil)
	opened, err := newDriver(t, newStub(t), locks).Open("stub://elsewhere")
	if err != nil {
		t.Fatal(err)
	}
	if inner := opened.(*migratelock.Driver).Driver.(*stub.Stub); inner.Url != "stub://elsewhere" {
		t.Errorf("the inner driver is of %q", inner.Url)
	}
	if err := opened.Lock(); err != nil {
		t.Fatal(err)
	}
	if _, err := locks.TryLock(t.Context(), lockName); !errors.Is(err, sqllock.ErrHeld) {
		t.Errorf("the lock is not held: %v", err)
	}
	if err := opened.Close(); err != nil {
		t.Error(err)
	}
}

func TestInvalidArgumentsAreRefused(t *testing.T) {
	t.Parallel()
	locks := locktest.New(t, nil)
	inner := newStub(t)
	for what, c := range map[string]struct {
		inner database.Driver
		locks *sqllock.Locker
		name  string
		opts  []sqllock.LockOption
		want  error
	}{
		"no driver":           {nil, locks, lockName, nil, sqllock.ErrInvalidOption},
		"no locks":            {inner, nil, lockName, nil, sqllock.ErrInvalidOption},
		"a nil option":        {inner, locks, lockName, []sqllock.LockOption{nil}, sqllock.ErrInvalidOption},
		"a Wait below 0":      {inner, locks, lockName, []sqllock.LockOption{sqllock.Wait(-1)}, sqllock.ErrInvalidOption},
		"a TTL that is small": {inner, locks, lockName, []sqllock.LockOption{sqllock.TTL(1)}, sqllock.ErrInvalidOption},
		"no name":             {inner, locks, "", nil, sqllock.ErrInvalidName},
	} {
		if d, err := migratelock.New(c.inner, c.locks, c.name, c.opts...); d != nil || !errors.Is(err, c.want) {
			t.Errorf("%s: %v", what, err)
		}
	}
	if err := errors.Join(locks.Close(context.Background())); err != nil {
		t.Error(err)
	}
	if err := newDriver(t, inner, locks).Lock(); !errors.Is(err, sqllock.ErrClosed) {
		t.Errorf("with locks that are closed: %v", err)
	}
}
