package sqllock_test

import (
	"context"
	"errors"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sqllock/sqllock"
)

// goroutine returns the number of the goroutine that calls it.
func goroutine() string {
	stack := make([]byte, 64)
	return strings.Fields(string(stack[:runtime.Stack(stack, false)]))[1]
}

// newQuietBench is newBench for a Locker that one caller has used already.
func newQuietBench(t *testing.T, db *fake) *bench {
	t.Helper()
	b := newBench(t, db, nil)
	b.unlock(b.lock("warm"))
	return b
}

func TestTheStatementsOfALoneCallerRunOnItsGoroutine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := newFake()
		b := newQuietBench(t, db)
		defer b.close()
		caller, ran := goroutine(), 0
		db.set(func(f *fake) {
			f.before = func(_ context.Context, kind string) error {
				if ran++; goroutine() != caller {
					t.Errorf("a statement of kind %s ran on another goroutine", kind)
				}
				return nil
			}
		})
		b.unlock(b.lock("a"))
		lease, err := b.TryRLock(t.Context(), "b")
		if err != nil {
			t.Fatal(err)
		}
		b.unlock(lease)
		if ran != 4 {
			t.Errorf("%d statements were sent, want 4", ran)
		}
	})
}

func TestALoneCallerThatIsCancelledLeavesNothing(t *testing.T) {
	for what, hung := range map[string]func(*fake){
		"before its statement runs": func(f *fake) { f.before = slowly("grant", time.Hour) },
		"after its statement ran":   func(f *fake) { f.after = slowly("grant", time.Hour) },
	} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				db := newFake()
				b := newQuietBench(t, db)
				defer b.close()
				for call, lock := range map[string]func(context.Context, string, ...sqllock.LockOption) (*sqllock.Lease, error){
					"Lock": b.Lock, "TryLock": b.TryLock, "RLock": b.RLock,
				} {
					b.unlock(b.lock("warm"))
					db.set(hung)
					why := errors.New("because of the test")
					ctx, cancel := context.WithCancelCause(t.Context())
					time.AfterFunc(time.Second, func() { cancel(why) })
					began := time.Now()
					if _, err := lock(ctx, "a"); !errors.Is(err, context.Canceled) || !errors.Is(err, why) {
						t.Errorf("%s = %v", call, err)
					}
					if took := time.Since(began); took != time.Second {
						t.Errorf("%s returned after %v", call, took)
					}
					db.set(func(f *fake) { f.before, f.after = nil, nil })
					time.Sleep(time.Second)
					if db.held("a") {
						t.Errorf("%s: the name is held by nobody", call)
					}
				}
			})
		})
	}
}

func TestALoneCallerHearsOfCloseDuringASlowStatement(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := newFake()
		b := newQuietBench(t, db)
		db.set(func(f *fake) { f.before = slowly("grant", time.Hour) })
		closed := make(chan error)
		time.AfterFunc(time.Second, func() { closed <- closeAtOnce(b.Locker) })
		began := time.Now()
		if _, err := b.Lock(t.Context(), "a"); !errors.Is(err, sqllock.ErrClosed) || time.Since(began) != time.Second {
			t.Errorf("Lock = %v after %v", err, time.Since(began))
		}
		if err := <-closed; err != nil {
			t.Errorf("Close = %v", err)
		}
	})
}

func TestAPanicOfADriverReachesItsCallerAndLeavesNothing(t *testing.T) {
	for _, kind := range []string{"grant", "release"} {
		t.Run(kind, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				db := newFake()
				b := newQuietBench(t, db)
				defer b.close()
				db.set(func(f *fake) {
					f.after = func(_ context.Context, k string) error {
						if k == kind {
							panic("a bug")
						}
						return nil
					}
				})
				func() {
					defer func() {
						if p := recover(); p != "a bug" {
							t.Errorf("recovered %v", p)
						}
					}()
					b.unlock(b.lock("a"))
				}()
				db.set(func(f *fake) { f.after = nil })
				time.Sleep(time.Second)
				if db.held("a") {
					t.Error("the name is held by nobody")
				}
				renewed := db.count("renew")
				b.unlock(b.lock("a"))
				time.Sleep(time.Hour)
				if n := db.count("renew"); n != renewed || b.QueueLen() != 0 {
					t.Errorf("%d renewals, %d names in memory", n-renewed, b.QueueLen())
				}
			})
		})
	}
}

func TestALoneCallerTakesLittleMemory(t *testing.T) {
	const most = 10 // of which the fake makes 2, and the race detector one
	db := newFake()
	b := newQuietBench(t, db)
	defer b.close()
	ctx := t.Context()
	n := testing.AllocsPerRun(1000, func() {
		lease, err := b.Lock(ctx, "a")
		if err == nil {
			err = lease.Unlock(ctx)
		}
		if err != nil {
			t.Fatal(err)
		}
	})
	if n > most {
		t.Errorf("Lock and Unlock allocate %v times, want %d at most", n, most)
	}
}
