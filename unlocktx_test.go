package sqllock_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sqllock/sqllock"
	"github.com/sqllock/sqllock/driver"
)

// ending is a GuardFunc that answers with statuses, the last of them again and again. It does
// what the transaction does when do is called.
func ending(do func(), statuses ...driver.GuardStatus) driver.GuardFunc {
	return func(_ context.Context, _ driver.GuardStore, req driver.GuardRequest) (driver.GuardStatus, error) {
		if !req.Ends {
			return 0, errDenied
		}
		status := statuses[0]
		if len(statuses) > 1 {
			statuses = statuses[1:]
		}
		do()
		return status, nil
	}
}

func noEffect() {}

// commitEnd does what the commit of a transaction does that has ended a term.
func (f *fake) commitEnd(name string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.rows[name].release(f.now(), 0)
}

// endBench is a bench with a lease, and the database under both.
func endBench(t *testing.T, test func(db *fake, b *bench, lease *sqllock.Lease)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		db := newFake()
		b := newBench(t, db, &sqllock.UniqueOptions{TTL: ttl})
		defer b.close()
		test(db, b, b.lock("a"))
	})
}

// unlockInTx commits the end of a term, which takes a time.
func (b *bench) unlockInTx(lease *sqllock.Lease, status driver.GuardStatus, takes time.Duration) error {
	return lease.UnlockInTxBy(b.t.Context(), ending(noEffect, status), func(context.Context) error {
		b.db.commitEnd(lease.Name())
		time.Sleep(takes) // until the reply comes
		return nil
	})
}

func TestAnUnlockInTxForWhichNobodyWaitsNeedsNoFurtherStatement(t *testing.T) {
	endBench(t, func(db *fake, b *bench, lease *sqllock.Lease) {
		if err := b.unlockInTx(lease, driver.Guarded, 0); err != nil {
			t.Fatal(err)
		}
		if n := db.count("release") + db.count("abandon") + db.count("look"); n != 0 {
			t.Errorf("%d statements after the commit", n)
		}
		if err := context.Cause(lease.Context()); !errors.Is(err, sqllock.ErrUnlocked) {
			t.Errorf("the context ended because of %v", err)
		}
	})
}

func TestAnUnlockInTxServesThoseWhoWait(t *testing.T) {
	for what, fault := range map[string]error{"at once": nil, "in the background": errNoReply} {
		t.Run(what, func(t *testing.T) {
			endBench(t, func(db *fake, b *bench, lease *sqllock.Lease) {
				got := make(chan *sqllock.Lease, 1)
				go func() { got <- b.lock("a") }()
				synctest.Wait()
				if fault != nil {
					db.set(func(f *fake) { f.before = failing("release", fault) })
				}
				began := time.Now()
				if err := b.unlockInTx(lease, driver.Awaited, 0); err != nil {
					t.Fatal(err)
				}
				next := <-got
				if n := db.count("release"); fault == nil && n != 1 {
					t.Errorf("%d releases served the queue", n)
				}
				if took := time.Since(began); took > time.Second {
					t.Errorf("the waiter was served after %v", took)
				}
				db.set(func(f *fake) { f.before = nil })
				b.unlock(next)
			})
		})
	}
}

// A context that ended then would break the connection of the commit, whose outcome
// nobody would know.
func TestARenewalThatOvertakesTheReplyToACommitEndsNoContext(t *testing.T) {
	endBench(t, func(db *fake, b *bench, lease *sqllock.Lease) {
		before := db.count("renew")
		err := lease.UnlockInTxBy(b.t.Context(), ending(noEffect, driver.Guarded), func(context.Context) error {
			db.commitEnd("a")
			time.Sleep(ttl * 3 / 4)
			if err := lease.Context().Err(); err != nil {
				t.Errorf("the context ended during the commit: %v", context.Cause(lease.Context()))
			}
			return nil
		})
		if err != nil {
			t.Error(err)
		}
		if db.count("renew") == before {
			t.Error("there was no renewal")
		}
	})
}

func TestALostReplyToACommitIsResolvedByUnlock(t *testing.T) {
	for what, commits := range map[string]bool{"committed": true, "rolled back": false} {
		t.Run(what, func(t *testing.T) {
			endBench(t, func(db *fake, b *bench, lease *sqllock.Lease) {
				err := lease.UnlockInTxBy(b.t.Context(), ending(noEffect, driver.Guarded), func(context.Context) error {
					if commits {
						db.commitEnd("a")
					}
					return errNoReply
				})
				if !errors.Is(err, errNoReply) {
					t.Errorf("UnlockInTx = %v", err)
				}
				b.unlock(lease)
				if db.held("a") {
					t.Error("the name is held")
				}
			})
		})
	}
}

// A renewal that was sent before the transaction ended the term says nothing of what became
// of the transaction.
func TestARenewalThatIsAnsweredLateMakesNoLeaseStay(t *testing.T) {
	endBench(t, func(db *fake, b *bench, lease *sqllock.Lease) {
		db.set(func(f *fake) { f.after = after("renew", ttl/6) })
		for db.count("renew") == 0 {
			time.Sleep(ttl / 100)
		}
		if err := lease.UnlockTxBy(b.t.Context(), ending(noEffect, driver.Guarded)); err != nil {
			t.Fatal(err)
		}
		time.Sleep(ttl / 6)
		db.commitEnd("a")
		<-lease.Context().Done()
		if err := context.Cause(lease.Context()); !errors.Is(err, sqllock.ErrUnlocked) {
			t.Errorf("the context ended because of %v, want ErrUnlocked", err)
		}
		b.unlock(lease)
	})
}

// Whoever asks for the name of its own lease while nobody knows whether that has ended waits, and
// re-enters it if it has not.
func TestALeaseThatStaysLetsItsOwnerInAgain(t *testing.T) {
	ends := map[string]func(b *bench, lease *sqllock.Lease){
		"a rollback": func(b *bench, lease *sqllock.Lease) {
			if err := lease.UnlockTxBy(b.t.Context(), ending(noEffect, driver.Guarded)); err != nil {
				b.t.Fatal(err)
			}
		},
		"a detach that fails": func(b *bench, lease *sqllock.Lease) {
			b.db.set(func(f *fake) {
				f.before = func(ctx context.Context, kind string) error {
					if kind != "detach" {
						return nil
					}
					time.Sleep(time.Second)
					return errDenied
				}
			})
			go func() { _, _ = lease.Detach(b.t.Context()) }()
			synctest.Wait()
		},
	}
	for what, end := range ends {
		for _, opts := range [][]sqllock.LockOption{nil, {sqllock.Tries(100)}} {
			t.Run(fmt.Sprint(what, " ", len(opts)), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					b := newBench(t, newFake(), &sqllock.UniqueOptions{TTL: ttl})
					defer b.close()
					owner, leave := context.WithTimeout(sqllock.WithOwner(t.Context(), "x"), ttl)
					defer leave()
					lease, err := b.Lock(owner, "a")
					if err != nil {
						t.Fatal(err)
					}
					end(b, lease)
					again, err := b.Lock(owner, "a", opts...)
					if err != nil || again.Token() != lease.Token() {
						t.Fatalf("Lock = %v, %v; want the lease again", again, err)
					}
					b.unlock(again)
					b.unlock(lease)
				})
			})
		}
	}
}

func TestALeaseThatIsLeavingIsLostAtItsDeadline(t *testing.T) {
	endBench(t, func(db *fake, b *bench, lease *sqllock.Lease) {
		if err := lease.UnlockTxBy(b.t.Context(), ending(noEffect, driver.Guarded)); err != nil {
			t.Fatal(err)
		}
		db.set(func(f *fake) { f.before = failing("renew", errDown) })
		<-lease.Context().Done()
		if err := context.Cause(lease.Context()); !errors.Is(err, sqllock.ErrLost) {
			t.Errorf("the context ended because of %v, want ErrLost", err)
		}
		if err := lease.Unlock(b.t.Context()); !errors.Is(err, sqllock.ErrLost) {
			t.Errorf("Unlock = %v, want ErrLost", err)
		}
	})
}

func TestAnUnlockTxWaitsALittleForTheRow(t *testing.T) {
	endBench(t, func(_ *fake, b *bench, lease *sqllock.Lease) {
		began := time.Now()
		if err := lease.UnlockTxBy(b.t.Context(), ending(noEffect, driver.PassedOver)); !errors.Is(err, sqllock.ErrGuarded) {
			t.Errorf("UnlockTx = %v, want ErrGuarded", err)
		}
		if took := time.Since(began); took < time.Second || took > 2*time.Second {
			t.Errorf("it took %v", took)
		}
		if err := b.unlockInTx(lease, driver.Guarded, 0); err != nil { // nothing was ended before
			t.Error(err)
		}
	})
	endBench(t, func(db *fake, b *bench, lease *sqllock.Lease) {
		status := []driver.GuardStatus{driver.PassedOver, driver.PassedOver, driver.Guarded}
		if err := lease.UnlockTxBy(b.t.Context(), ending(noEffect, status...)); err != nil {
			t.Error(err)
		}
		db.commitEnd("a")
		b.unlock(lease)
	})
}

func TestWhatHappensToALeaseDuringAnUnlockTxIsNoticed(t *testing.T) {
	endBench(t, func(_ *fake, b *bench, lease *sqllock.Lease) {
		err := lease.UnlockTxBy(b.t.Context(), ending(func() { b.unlock(lease) }, driver.Guarded))
		if !errors.Is(err, sqllock.ErrNotHeld) {
			t.Errorf("UnlockTx of what is unlocked meanwhile = %v, want ErrNotHeld", err)
		}
	})
	endBench(t, func(_ *fake, b *bench, lease *sqllock.Lease) {
		var inner *sqllock.Lease
		err := lease.UnlockTxBy(b.t.Context(), ending(func() {
			var err error
			if inner, err = b.Lock(lease.Context(), "a"); err != nil {
				t.Fatal(err)
			}
		}, driver.Guarded))
		if !errors.Is(err, sqllock.ErrInvalidOption) {
			t.Errorf("UnlockTx of what is re-entered meanwhile = %v, want ErrInvalidOption", err)
		}
		b.unlock(inner)
		b.unlock(lease)
	})
	endBench(t, func(db *fake, b *bench, lease *sqllock.Lease) {
		err := lease.UnlockInTxBy(b.t.Context(), ending(noEffect, driver.Guarded), func(context.Context) error {
			db.commitEnd("a")
			b.unlock(lease)
			return nil
		})
		if err != nil {
			t.Errorf("UnlockInTx of what is unlocked during the commit = %v", err)
		}
		if err := lease.Unlock(b.t.Context()); !errors.Is(err, sqllock.ErrNotHeld) {
			t.Errorf("a second Unlock = %v, want ErrNotHeld", err)
		}
	})
}

// ForceUnlock has ended the term after the transaction was rolled back: that is a loss.
func TestALeaseThatIsLeavingAndRevokedIsLost(t *testing.T) {
	endBench(t, func(_ *fake, b *bench, lease *sqllock.Lease) {
		if err := lease.UnlockTxBy(b.t.Context(), ending(noEffect, driver.Guarded)); err != nil {
			t.Fatal(err)
		}
		if _, err := b.ForceUnlock(b.t.Context(), "a"); err != nil {
			t.Fatal(err)
		}
		<-lease.Context().Done()
		var lost *sqllock.LostError
		if err := context.Cause(lease.Context()); !errors.As(err, &lost) || lost.Reason != sqllock.LostRevoked {
			t.Errorf("the context ended because of %v, want LostRevoked", err)
		}
		_ = lease.Unlock(b.t.Context())
	})
}

// Until the caller unlocks, its Locker does not stand in the way of those who wait.
func TestThoseWhoWaitGetWhatATransactionHasLeft(t *testing.T) {
	endBench(t, func(db *fake, b *bench, lease *sqllock.Lease) {
		got := make(chan *sqllock.Lease, 1)
		go func() { got <- b.lock("a") }()
		synctest.Wait()
		if err := lease.UnlockTxBy(b.t.Context(), ending(noEffect, driver.Awaited)); err != nil {
			t.Fatal(err)
		}
		db.commitEnd("a")
		next := <-got
		b.unlock(lease)
		if next.Remaining() <= 0 {
			t.Error("the next lease is over")
		}
		b.unlock(next)
	})
}
