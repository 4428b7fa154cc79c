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

// exclusiveCalls are the calls that ask for a name alone.
func (b *bench) exclusiveCalls() map[string]func(context.Context) error {
	nothing := func(context.Context, *sqllock.Lease) error {
		b.t.Error("the function ran")
		return nil
	}
	return map[string]func(context.Context) error{
		"Lock": func(ctx context.Context) error {
			_, err := b.Lock(ctx, "a")
			return err
		},
		"TryLock": func(ctx context.Context) error {
			_, err := b.TryLock(ctx, "a")
			return err
		},
		"Do": func(ctx context.Context) error { return b.Do(ctx, "a", nothing) },
		"TryDo": func(ctx context.Context) error {
			_, err := b.TryDo(ctx, "a", nothing)
			return err
		},
	}
}

func TestAReaderCannotUpgrade(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := newFake()
		b := newBench(t, db, &sqllock.UniqueOptions{TTL: ttl})
		defer b.close()
		waiting, cancel := context.WithTimeout(t.Context(), testTimeout)
		defer cancel()
		job := sqllock.WithOwner(waiting, "job-7")
		for how, reader := range map[string]*sqllock.Lease{
			"by the lease's context": b.rlock(waiting, "a"),
			"by the owner":           b.rlock(job, "a"),
		} {
			ctx, cancel := context.WithTimeout(reader.Context(), testTimeout)
			defer cancel()
			if reader.Owner() == "job-7" {
				ctx = job
			}
			sent := db.count("grant")
			for call, f := range b.exclusiveCalls() {
				if err := f(ctx); !errors.Is(err, sqllock.ErrUpgrade) {
					t.Errorf("%s %s = %v, want ErrUpgrade", call, how, err)
				}
			}
			if n := db.count("grant") - sent; n != 0 {
				t.Errorf("%d requests were sent", n)
			}
			if err := context.Cause(reader.Context()); err != nil {
				t.Errorf("the reader was lost: %v", err)
			}
			b.unlock(reader)
		}
		// Who has given it up can.
		lease, err := b.TryLock(job, "a")
		if err != nil {
			t.Fatal(err)
		}
		b.unlock(lease)
	})
}

func TestAWaiterWhoseOwnerSharesTheNameMeanwhileIsToldAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, newFake(), &sqllock.UniqueOptions{TTL: ttl, Barging: true}) // else it would keep readers out
		defer b.close()
		job := sqllock.WithOwner(t.Context(), "job-7")
		other := b.rlock(t.Context(), "a")
		failed := make(chan error, 1)
		go func() {
			_, err := b.Lock(job, "a")
			failed <- err
		}()
		synctest.Wait()
		mine, err := b.TryRLock(job, "a") // which does not queue up
		if err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		select {
		case err := <-failed:
			if !errors.Is(err, sqllock.ErrUpgrade) {
				t.Errorf("Lock = %v, want ErrUpgrade", err)
			}
		default:
			t.Fatal("Lock waits for its own owner")
		}
		b.unlock(mine)
		b.unlock(other)
	})
}

func TestWithoutOwnerAReaderIsAStrangerToItself(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, newFake(), &sqllock.UniqueOptions{TTL: ttl})
		defer b.close()
		reader := b.rlock(sqllock.WithOwner(t.Context(), "job-7"), "a")
		if _, err := b.TryLock(sqllock.WithoutOwner(reader.Context()), "a"); !errors.Is(err, sqllock.ErrHeld) {
			t.Errorf("TryLock = %v, want ErrHeld", err)
		}
		b.unlock(reader)
	})
}

func TestRLockReentersWhatItsOwnerHolds(t *testing.T) {
	for what, lock := range map[string]func(*sqllock.Locker, context.Context, string, ...sqllock.LockOption) (*sqllock.Lease, error){
		"a shared lease":     (*sqllock.Locker).RLock,
		"an exclusive lease": (*sqllock.Locker).Lock,
	} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				db := newFake()
				b := newBench(t, db, &sqllock.UniqueOptions{TTL: ttl})
				defer b.close()
				job := sqllock.WithOwner(t.Context(), "job-7")
				outer, err := lock(b.Locker, job, "a")
				if err != nil {
					t.Fatal(err)
				}
				sent := db.count("grant")
				for how, ctx := range map[string]context.Context{"by context": sqllock.WithOwner(outer.Context(), "another"), "by owner": job} {
					inner := b.rlock(ctx, "a")
					tried, err := b.TryRLock(ctx, "a")
					if err != nil {
						t.Fatalf("TryRLock %s: %v", how, err)
					}
					for _, lease := range []*sqllock.Lease{inner, tried} {
						if lease.Token() != outer.Token() || lease.Shared() != outer.Shared() {
							t.Errorf("%s: token %d, shared %v in token %d, shared %v", how, lease.Token(), lease.Shared(), outer.Token(), outer.Shared())
						}
						b.unlock(lease)
					}
				}
				if n := db.count("grant") - sent; n != 0 || outer.Context().Err() != nil {
					t.Errorf("%d requests were sent, cause %v", n, context.Cause(outer.Context()))
				}
				b.unlock(outer)
				if db.held("a") || db.readers("a") != 0 {
					t.Error("the name is held after as many Unlocks as Locks")
				}
			})
		})
	}
}

// A writer that waits must not keep a reader from its own lease: it waits for that.
func TestAReaderReentersItsLeasePastAWriterThatWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, newFake(), &sqllock.UniqueOptions{TTL: ttl})
		defer b.close()
		job := sqllock.WithOwner(t.Context(), "job-7")
		reader := b.rlock(job, "a")
		writer := b.locking("a")
		synctest.Wait()
		began := time.Now()
		for _, ctx := range []context.Context{reader.Context(), job} {
			b.unlock(b.rlock(ctx, "a"))
		}
		if took := time.Since(began); took != 0 {
			t.Errorf("it took %v", took)
		}
		b.unlock(reader)
		b.unlock(writer())
	})
}

func TestASharedLeaseTakesNoMinHoldAndNoValueAndIsNotGuarded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := newFake()
		b := newBench(t, db, &sqllock.UniqueOptions{TTL: ttl})
		defer b.close()
		for _, opt := range []sqllock.LockOption{sqllock.MinHold(time.Second), sqllock.Value([]byte("v"))} {
			if _, err := b.RLock(t.Context(), "a", opt); !errors.Is(err, sqllock.ErrInvalidOption) {
				t.Errorf("RLock = %v", err)
			}
			if _, err := b.TryRLock(t.Context(), "a", opt); !errors.Is(err, sqllock.ErrInvalidOption) {
				t.Errorf("TryRLock = %v", err)
			}
		}
		if n := db.count("grant"); n != 0 {
			t.Errorf("%d requests were sent", n)
		}
		reader := b.rlock(t.Context(), "a")
		err := reader.GuardBy(t.Context(), func(context.Context, driver.GuardStore, driver.GuardRequest) (driver.GuardStatus, error) {
			return driver.Guarded, nil
		})
		if !errors.Is(err, sqllock.ErrUnsupported) {
			t.Errorf("Guard = %v, want ErrUnsupported", err)
		}
		b.unlock(reader)
	})
}
