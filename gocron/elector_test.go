package gocronlock_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/sqllock/sqllock"
	gocronlock "github.com/sqllock/sqllock/gocron"
	"github.com/sqllock/sqllock/internal/testdb"
)

const electionName = "scheduler"

func newElection(t *testing.T, locks *sqllock.Locker) *sqllock.Election {
	t.Helper()
	election, err := locks.Election(electionName, nil)
	if err != nil {
		t.Fatal(err)
	}
	return election
}

// newElector returns an Elector that is closed at the end of the test.
func newElector(t *testing.T, election *sqllock.Election, opts ...gocronlock.ElectorOption) *gocronlock.Elector {
	t.Helper()
	e, err := gocronlock.NewElector(election, opts...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { closeElector(t, e) })
	return e
}

func closeElector(t *testing.T, e *gocronlock.Elector) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), testTimeout)
	defer cancel()
	if err := e.Close(ctx); err != nil {
		t.Error(err)
	}
}

// leads waits until gocron would run jobs.
func leads(t *testing.T, e *gocronlock.Elector) {
	t.Helper()
	eventually(t, "IsLeader returns nil", func() bool {
		err := e.IsLeader(t.Context())
		if err != nil && !errors.Is(err, sqllock.ErrNotLeader) {
			t.Errorf("IsLeader returns %v", err)
		}
		return err == nil
	})
}

func TestASecondElectorLeadsWhenTheFirstIsClosed(t *testing.T) {
	each(t, func(t *testing.T, p pair, d *testdb.Database) {
		o := sqllock.UniqueOptions{TTL: long, RetryMax: 50 * time.Millisecond}
		first := newElector(t, newElection(t, newLocks(t, p, d, o)), gocronlock.Settle(0))
		leads(t, first)
		second := newElector(t, newElection(t, newLocks(t, p, d, o)), gocronlock.Settle(0))
		time.Sleep(200 * time.Millisecond)
		if err := second.IsLeader(t.Context()); !errors.Is(err, sqllock.ErrNotLeader) {
			t.Errorf("beside a leader: %v", err)
		}
		closeElector(t, first)
		if err := first.IsLeader(t.Context()); !errors.Is(err, sqllock.ErrNotLeader) {
			t.Errorf("after Close: %v", err)
		}
		leads(t, second)
		closeElector(t, first)
	})
}

func TestALeaderCampaignsAgainAfterALoss(t *testing.T) {
	each(t, func(t *testing.T, p pair, d *testdb.Database) {
		locks := newLocks(t, p, d, sqllock.UniqueOptions{TTL: long, RetryMax: 50 * time.Millisecond})
		election := newElection(t, locks)
		e := newElector(t, election, gocronlock.Settle(0))
		leads(t, e)
		lease, err := election.Lease()
		if err != nil {
			t.Fatal(err)
		}
		if _, err := locks.ForceUnlock(t.Context(), electionName); err != nil {
			t.Fatal(err)
		}
		eventually(t, "another term begins", func() bool {
			next, err := election.Lease()
			return err == nil && next.Token() > lease.Token() && e.IsLeader(t.Context()) == nil
		})
		if err := election.Resign(t.Context()); err != nil { // with nobody else there
			t.Fatal(err)
		}
		leads(t, e)
	})
}

func TestANewLeaderStartsNoJobBeforeItHasSettled(t *testing.T) {
	t.Parallel()
	const settle = time.Second
	p := pair{unique, testdb.SQLite}
	locks := newLocks(t, p, testdb.New(t, p.engine), sqllock.UniqueOptions{TTL: long})
	for _, opts := range [][]gocronlock.ElectorOption{nil, {gocronlock.Settle(settle)}} {
		election := newElection(t, locks)
		begun := time.Now()
		e := newElector(t, election, opts...)
		eventually(t, "the candidate leads", election.IsLeader)
		if err := e.IsLeader(t.Context()); !errors.Is(err, sqllock.ErrNotLeader) {
			t.Errorf("as soon as it leads: %v", err)
		}
		leads(t, e)
		if took := time.Since(begun); took < settle {
			t.Errorf("it settled within %v", took)
		}
		closeElector(t, e)
	}
}

func TestAnElectorReportsDatabaseErrorsAndTriesAgain(t *testing.T) {
	t.Parallel()
	p := pair{unique, testdb.SQLite}
	d := testdb.New(t, p.engine)
	locks := newLocks(t, p, d, sqllock.UniqueOptions{TTL: long, Reaper: &sqllock.ReaperOptions{Off: true}})
	db := d.Open(t)
	rename := func(from, to string) {
		t.Helper()
		if _, err := db.ExecContext(t.Context(), `ALTER TABLE `+from+` RENAME TO `+to); err != nil {
			t.Fatal(err)
		}
	}
	rename("sqllock_lock", "elsewhere")
	e := newElector(t, newElection(t, locks), gocronlock.Settle(0))
	eventually(t, "IsLeader says why it does not campaign", func() bool {
		err := e.IsLeader(t.Context())
		if !errors.Is(err, sqllock.ErrNotLeader) {
			t.Errorf("IsLeader returns %v", err)
		}
		return err != nil && errors.Unwrap(err) == nil // there are two errors
	})
	rename("elsewhere", "sqllock_lock")
	leads(t, e)
}

func TestAnElectorReportsThatItsLockerIsClosed(t *testing.T) {
	t.Parallel()
	p := pair{unique, testdb.SQLite}
	locks := newLocks(t, p, testdb.New(t, p.engine), sqllock.UniqueOptions{TTL: long})
	e := newElector(t, newElection(t, locks), gocronlock.Settle(0))
	leads(t, e)
	if err := locks.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	eventually(t, "IsLeader says that the Locker is closed", func() bool {
		err := e.IsLeader(t.Context())
		if !errors.Is(err, sqllock.ErrNotLeader) {
			t.Errorf("IsLeader returns %v", err)
		}
		return errors.Is(err, sqllock.ErrClosed)
	})
}

func TestCloseOfAnElectorWaitsNoLongerThanItsContext(t *testing.T) {
	t.Parallel()
	p := pair{unique, testdb.SQLite}
	d := testdb.New(t, p.engine)
	locks := newLocks(t, p, d, sqllock.UniqueOptions{TTL: long})
	e := newElector(t, newElection(t, locks), gocronlock.Settle(0))
	leads(t, e)
	db := d.Open(t)
	conn, err := db.Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	if _, err := conn.ExecContext(t.Context(), `BEGIN IMMEDIATE`); err != nil { // nobody else can write
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if err := e.Close(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Error(err)
	}
	if _, err := conn.ExecContext(t.Context(), `ROLLBACK`); err != nil {
		t.Fatal(err)
	}
	closeElector(t, e)
}

func TestCloseWithAnEndedContextHandsOver(t *testing.T) {
	each(t, func(t *testing.T, p pair, d *testdb.Database) {
		o := sqllock.UniqueOptions{TTL: long, RetryMax: 50 * time.Millisecond}
		ctx, cancel := context.WithCancel(t.Context())
		locks := newLocks(t, p, d, o)
		e, err := gocronlock.NewElector(newElection(t, locks), gocronlock.Settle(0))
		if err != nil {
			t.Fatal(err)
		}
		leads(t, e)
		cancel()
		if err := errors.Join(e.Close(ctx), locks.Close(ctx)); err != nil { // as a program does that a signal ends
			t.Error(err)
		}
		next := newElection(t, newLocks(t, p, d, o))
		within, cancel := context.WithTimeout(t.Context(), long/2)
		defer cancel()
		if err := next.Campaign(within, nil); err != nil {
			t.Errorf("the next one does not lead: %v", err)
		}
		_ = next.Resign(t.Context())
	})
}

func TestNilArgumentsAreRefused(t *testing.T) {
	p := pair{unique, testdb.SQLite}
	locks := newLocks(t, p, testdb.New(t, p.engine), sqllock.UniqueOptions{TTL: long})
	var nobody context.Context
	if e, err := gocronlock.NewElector(newElection(t, locks), nil); e != nil || !errors.Is(err, sqllock.ErrInvalidOption) {
		t.Errorf("NewElector with an option that is nil: %v", err)
	}
	if l, err := gocronlock.NewLocker(locks, "jobs/", nil); l != nil || !errors.Is(err, sqllock.ErrInvalidOption) {
		t.Errorf("NewLocker with an option that is nil: %v", err)
	}
	l, err := gocronlock.NewLocker(locks, "jobs/")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := l.Lock(nobody, "a"); !errors.Is(err, sqllock.ErrInvalidOption) {
		t.Errorf("Lock without a context: %v", err)
	}
	e := newElector(t, newElection(t, locks), gocronlock.Settle(0))
	leads(t, e)
	if err := e.Close(nobody); !errors.Is(err, sqllock.ErrInvalidOption) {
		t.Errorf("Close without a context: %v", err)
	}
	if err := e.IsLeader(nobody); !errors.Is(err, sqllock.ErrNotLeader) {
		t.Errorf("after Close: %v", err)
	}
}
