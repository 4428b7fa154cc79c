package gocronlock_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-co-op/gocron/v2"
	"github.com/google/uuid"

	"github.com/sqllock/sqllock"
	gocronlock "github.com/sqllock/sqllock/gocron"
	"github.com/sqllock/sqllock/internal/testdb"
)

const often = 20 * time.Millisecond

func TestASchedulerWithAnElectorRunsJobsWhileItLeads(t *testing.T) {
	each(t, func(t *testing.T, p pair, d *testdb.Database) {
		locks := newLocks(t, p, d, sqllock.UniqueOptions{TTL: long, RetryMax: 50 * time.Millisecond})
		before, err := locks.Lock(t.Context(), electionName) // somebody else leads
		if err != nil {
			t.Fatal(err)
		}
		e := newElector(t, newElection(t, locks), gocronlock.Settle(0))
		var ran, ranBefore atomic.Int32
		var freed atomic.Bool
		s := newScheduler(t, gocron.WithDistributedElector(e))
		newJob(t, s, often, "job", func() {
			ran.Add(1)
			if !freed.Load() {
				ranBefore.Add(1)
			}
		})
		s.Start()
		time.Sleep(10 * often)
		freed.Store(true)
		if err := before.Unlock(t.Context()); err != nil {
			t.Fatal(err)
		}
		eventually(t, "the job has run", func() bool { return ran.Load() > 0 })
		closeElector(t, e)
		time.Sleep(5 * often) // for what had begun
		n := ran.Load()
		time.Sleep(10 * often)
		if ranBefore.Load() != 0 || ran.Load() != n {
			t.Errorf("the job ran %d times before it led and %d times after", ranBefore.Load(), ran.Load()-n)
		}
	})
}

func TestAJobThatRunsElsewhereIsSkippedAndReportedToTheListener(t *testing.T) {
	each(t, func(t *testing.T, p pair, d *testdb.Database) {
		a, b := twoLockers(t, p, d, sqllock.MinHold(0))
		lock := mustLock(t, a, "job")
		var ran atomic.Int32
		refused := make(chan error, 100)
		s := newScheduler(t, gocron.WithDistributedLocker(b))
		newJob(t, s, often, "job", func() { ran.Add(1) },
			gocron.WithEventListeners(gocron.AfterLockError(func(_ uuid.UUID, _ string, err error) {
				select {
				case refused <- err:
				default:
				}
			})))
		s.Start()
		if err := receive(t, "the listener is told", refused); !errors.Is(err, sqllock.ErrHeld) {
			t.Error(err)
		}
		if n := ran.Load(); n != 0 {
			t.Errorf("it ran %d times beside another", n)
		}
		if err := lock.Unlock(t.Context()); err != nil {
			t.Fatal(err)
		}
		eventually(t, "the job runs", func() bool { return ran.Load() > 0 })
	})
}

func TestAJobCanBindItsContextToItsLease(t *testing.T) {
	each(t, func(t *testing.T, p pair, d *testdb.Database) {
		lost := make(chan sqllock.LostEvent, 1)
		locks := newLocks(t, p, d, sqllock.UniqueOptions{TTL: long,
			Hooks: &sqllock.Hooks{Lost: func(e sqllock.LostEvent) { lost <- e }}})
		l := newLocker(t, locks)
		begun, ended := make(chan struct{}, 10), make(chan error, 10) // a scheduler that is late may run it twice
		s := newScheduler(t, gocron.WithDistributedLocker(l))
		newJob(t, s, often, "job", func(ctx context.Context) {
			lease, err := l.Lease("job")
			if err != nil {
				ended <- err
				return
			}
			ctx, cancel := lease.Bind(ctx)
			defer cancel()
			begun <- struct{}{}
			<-ctx.Done()
			ended <- context.Cause(ctx)
		}, gocron.WithLimitedRuns(1))
		s.Start()
		receive(t, "the job begins", begun)
		if _, err := locks.ForceUnlock(t.Context(), prefix+"job"); err != nil {
			t.Fatal(err)
		}
		if err := receive(t, "the job ends", ended); !errors.Is(err, sqllock.ErrLost) {
			t.Error(err)
		}
		if e := receive(t, "the hook is called", lost); e.Name != prefix+"job" {
			t.Errorf("of %q", e.Name)
		}
	})
}

func TestShutdownEndsTheContextOfAJobAndReleasesItsName(t *testing.T) {
	each(t, func(t *testing.T, p pair, d *testdb.Database) {
		a, b := twoLockers(t, p, d, sqllock.MinHold(0))
		begun, ending := make(chan struct{}), make(chan struct{})
		s := newScheduler(t, gocron.WithDistributedLocker(a))
		newJob(t, s, often, "job", func(ctx context.Context) {
			begun <- struct{}{}
			<-ctx.Done()
			<-ending
		}, gocron.WithSingletonMode(gocron.LimitModeReschedule))
		s.Start()
		receive(t, "the job begins", begun)
		down := make(chan error)
		go func() { down <- s.Shutdown() }()
		time.Sleep(100 * time.Millisecond)
		wantHeld(t, "while it ends", b, "job")
		close(ending)
		if err := receive(t, "Shutdown returns", down); err != nil {
			t.Error(err)
		}
		if err := mustLock(t, b, "job").Unlock(t.Context()); err != nil {
			t.Error(err)
		}
	})
}
