package sqllock_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sqllock/sqllock"
	"github.com/sqllock/sqllock/driver"
)

// What has locked the row may be a renewal that is under way, or the end of a
// transaction.
func TestAnUnlockAfterAGuardWaitsALittleForTheRow(t *testing.T) {
	for what, c := range map[string]struct {
		locked time.Duration
		want   error
	}{
		"for a moment": {100 * time.Millisecond, nil},
		"for long":     {5 * time.Second, sqllock.ErrGuarded},
	} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				db := newFake()
				b := newBench(t, db, &sqllock.UniqueOptions{TTL: ttl})
				defer b.close()
				lease := b.lock("a")
				err := lease.GuardBy(t.Context(), func(context.Context, driver.GuardStore, driver.GuardRequest) (driver.GuardStatus, error) {
					return driver.Guarded, nil
				})
				if err != nil {
					t.Fatal(err)
				}
				db.set(func(f *fake) { f.poison["a"] = errDeadlock })
				time.AfterFunc(c.locked, func() { db.set(func(f *fake) { delete(f.poison, "a") }) })
				began := time.Now()
				if err := lease.Unlock(t.Context()); !errors.Is(err, c.want) {
					t.Errorf("Unlock = %v, want %v", err, c.want)
				}
				if took := time.Since(began); took > time.Second { // pauses grow
					t.Errorf("it took %v", took)
				}
			})
		})
	}
}

func TestAFencedLeaseIsLostAlsoIfTheDatabaseWantsToBeAskedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := newFake()
		b, other := newBench(t, db, &sqllock.UniqueOptions{TTL: time.Hour}), newBench(t, db, nil)
		defer b.close()
		defer other.close()
		lease := b.lock("a")
		if _, err := other.ForceUnlock(t.Context(), "a"); err != nil {
			t.Fatal(err)
		}
		db.set(func(f *fake) { f.after = once("look", errDeadlock) })
		err := lease.GuardBy(t.Context(), func(context.Context, driver.GuardStore, driver.GuardRequest) (driver.GuardStatus, error) {
			return driver.Fenced, nil
		})
		if !errors.Is(err, sqllock.ErrFenced) || !errors.Is(context.Cause(lease.Context()), sqllock.ErrLost) {
			t.Errorf("Guard: %v, and the context ended because of %v", err, context.Cause(lease.Context()))
		}
	})
}
