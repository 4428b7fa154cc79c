package sqllock_test

import (
	"context"
	"encoding/base64"
	"errors"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sqllock/sqllock"
	"github.com/sqllock/sqllock/internal/testdb"
)

// detached is what Detach returns for a name.
func (b *bench) detached(name string) string {
	b.t.Helper()
	handover, err := b.lock(name).Detach(b.t.Context())
	if err != nil {
		b.t.Fatalf("Detach(%q): %v", name, err)
	}
	return handover
}

// wantNoHandover checks that a Detach has failed.
func wantNoHandover(t *testing.T, handover string, err, want error) {
	t.Helper()
	if handover != "" || !errors.Is(err, want) {
		t.Errorf("Detach: a text of %d bytes, and %v, want %v", len(handover), err, want)
	}
}

func TestADetachWhoseReplyWasLostIsSentAgainWithTheSameSecret(t *testing.T) {
	endBench(t, func(db *fake, b *bench, lease *sqllock.Lease) {
		db.set(func(f *fake) { f.after = once("detach", errNoReply) })
		handover, err := lease.Detach(b.t.Context())
		if err != nil || db.count("detach") != 2 {
			t.Fatalf("Detach: %v, after %d statements", err, db.count("detach"))
		}
		next, err := b.Adopt(b.t.Context(), handover)
		if err != nil {
			t.Fatal(err)
		}
		b.unlock(next)
	})
}

func TestADetachOfUnknownOutcomeEndsTheLeaseAndFreesTheName(t *testing.T) {
	for what, arrives := range map[string]bool{"it was done": true, "it was not done": false} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				db := newFake()
				var lost int
				b := newBench(t, db, &sqllock.UniqueOptions{TTL: ttl, Hooks: &sqllock.Hooks{Lost: func(sqllock.LostEvent) { lost++ }}})
				lease := b.lock("a")
				db.set(func(f *fake) {
					if arrives {
						f.after = failing("detach", errNoReply)
					} else {
						f.before = failing("detach", errNoReply)
					}
				})
				handover, err := lease.Detach(t.Context())
				wantNoHandover(t, handover, err, sqllock.ErrUnknown)
				if cause := context.Cause(lease.Context()); cause != sqllock.ErrDetached || lease.Remaining() != 0 {
					t.Errorf("the context ended because of %v, %v remain", cause, lease.Remaining())
				}
				synctest.Wait()
				time.Sleep(time.Second)
				if db.held("a") {
					t.Error("the name is held")
				}
				b.unlock(b.lock("a"))
				b.close()
				if lost > 0 {
					t.Error("the hooks call it a loss")
				}
			})
		})
	}
}

func TestADetachThatFailsForCertainLeavesTheLeaseAsItWas(t *testing.T) {
	for what, fault := range map[string]error{"a deadlock": errDeadlock, "no connection": errDown, "a refusal": errDenied} {
		t.Run(what, func(t *testing.T) {
			endBench(t, func(db *fake, b *bench, lease *sqllock.Lease) {
				db.set(func(f *fake) { f.before = failing("detach", fault) })
				handover, err := lease.Detach(b.t.Context())
				wantNoHandover(t, handover, err, fault)
				time.Sleep(2 * ttl)
				inner := lease
				if err := lease.Context().Err(); err != nil {
					t.Fatalf("the lease has ended: %v", context.Cause(lease.Context()))
				}
				if inner, err = b.Lock(lease.Context(), "a"); err != nil || inner.Token() != lease.Token() {
					t.Fatalf("re-entry: %v, %v", inner, err)
				}
				b.unlock(inner)
				db.set(func(f *fake) { f.before = nil })
				if _, err := lease.Detach(b.t.Context()); err != nil {
					t.Error(err)
				}
			})
		})
	}
}

func TestADetachIsNotLongerThanTwoStatements(t *testing.T) {
	endBench(t, func(db *fake, b *bench, lease *sqllock.Lease) {
		db.set(func(f *fake) { f.before = failing("detach", errDeadlock) })
		began := time.Now()
		_, err := lease.Detach(b.t.Context())
		if took := time.Since(began); err == nil || took > ttl*2/3+time.Second {
			t.Errorf("Detach took %v: %v", took, err)
		}
		began = time.Now()
		ctx, cancel := context.WithTimeout(b.t.Context(), time.Second)
		defer cancel()
		_, err = lease.Detach(ctx)
		if took := time.Since(began); err == nil || took > 2*time.Second {
			t.Errorf("with a deadline Detach took %v: %v", took, err)
		}
		b.unlock(lease)
	})
}

// While Detach waits for its reply, the row is the lease's no more.
func TestARenewalThatOvertakesTheReplyToADetachEndsNothing(t *testing.T) {
	endBench(t, func(db *fake, b *bench, lease *sqllock.Lease) {
		before := db.count("renew")
		db.set(func(f *fake) {
			f.after = func(ctx context.Context, kind string) error {
				if kind == "detach" {
					time.Sleep(ttl * 3 / 4)
					if err := lease.Context().Err(); err != nil {
						t.Errorf("the context has ended: %v", context.Cause(lease.Context()))
					}
				}
				return nil
			}
		})
		if _, err := lease.Detach(b.t.Context()); err != nil {
			t.Fatal(err)
		}
		if db.count("renew") == before {
			t.Error("there was no renewal")
		}
		if cause := context.Cause(lease.Context()); cause != sqllock.ErrDetached {
			t.Errorf("the context ended because of %v", cause)
		}
	})
}

func TestAnUnlockDuringADetachFreesTheName(t *testing.T) {
	endBench(t, func(db *fake, b *bench, lease *sqllock.Lease) {
		db.set(func(f *fake) {
			f.after = func(_ context.Context, kind string) error {
				if kind == "detach" {
					time.Sleep(time.Second)
				}
				return nil
			}
		})
		done := make(chan error, 1)
		go func() {
			handover, err := lease.Detach(b.t.Context())
			wantNoHandover(t, handover, err, sqllock.ErrNotHeld)
			done <- err
		}()
		time.Sleep(time.Millisecond)
		inner, err := b.TryLock(lease.Context(), "a")
		if err == nil {
			t.Errorf("a lease that is being detached was re-entered: %v", inner)
		}
		b.unlock(lease)
		<-done
		time.Sleep(time.Second)
		if db.held("a") {
			t.Error("the name is held")
		}
	})
}

func TestADetachOfALeaseThatTheDatabaseDoesNotKnowIsALoss(t *testing.T) {
	endBench(t, func(db *fake, b *bench, lease *sqllock.Lease) {
		db.set(func(f *fake) { f.rows["a"].release(f.now(), 0) })
		handover, err := lease.Detach(b.t.Context())
		wantNoHandover(t, handover, err, sqllock.ErrLost)
		wantReason(t, err, sqllock.LostTaken)
		wantReason(t, lease.Unlock(b.t.Context()), sqllock.LostTaken)
	})
}

func TestAnAdoptWhoseReplyWasLostIsFoundAndConfirmed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := newFake()
		b := newBench(t, db, &sqllock.UniqueOptions{TTL: ttl})
		defer b.close()
		handover := b.detached("a")
		db.set(func(f *fake) { f.after = once("adopt", errNoReply) })
		lease, err := b.Adopt(t.Context(), handover)
		if err != nil || db.count("adopt") != 2 || db.count("renew alone") != 1 {
			t.Fatalf("Adopt: %v, after %d statements and %d renewals", err, db.count("adopt"), db.count("renew alone"))
		}
		b.unlock(lease)
		time.Sleep(time.Second)
		if db.held("a") {
			t.Error("the name is held")
		}
	})
}

func TestAnAdoptKeepsTryingUntilItsContextEnds(t *testing.T) {
	for what, fault := range map[string]error{"no reply": errNoReply, "no connection": errDown, "a guard": errDeadlock} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				db := newFake()
				b := newBench(t, db, &sqllock.UniqueOptions{TTL: ttl})
				defer b.close()
				handover := b.detached("a")
				db.set(func(f *fake) { f.before = failing("adopt", fault) })
				ctx, cancel := context.WithTimeout(t.Context(), ttl/2)
				defer cancel()
				began := time.Now()
				if lease, err := b.Adopt(ctx, handover); lease != nil || !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), fault.Error()) {
					t.Errorf("Adopt: %v, %v", lease, err)
				}
				if took := time.Since(began); took < ttl/2 || took > ttl/2+time.Second {
					t.Errorf("it took %v", took)
				}
				db.set(func(f *fake) { f.before = nil })
				lease, err := b.Adopt(t.Context(), handover)
				if err != nil {
					t.Fatal(err)
				}
				b.unlock(lease)
			})
		})
	}
}

func TestANameThatIsDetachedIsFreeAfterItsTTL(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := newFake()
		b := newBench(t, db, &sqllock.UniqueOptions{TTL: ttl})
		defer b.close()
		handover := b.detached("a")
		renewals := db.count("renew")
		time.Sleep(ttl - time.Millisecond)
		if !db.held("a") || db.count("renew") != renewals {
			t.Errorf("held: %v, %d renewals", db.held("a"), db.count("renew")-renewals)
		}
		time.Sleep(time.Millisecond)
		if _, err := b.Adopt(t.Context(), handover); !errors.Is(err, sqllock.ErrNotHeld) {
			t.Errorf("Adopt: %v", err)
		}
		b.unlock(b.lock("a"))
	})
}

func TestAClosedLockerDetachesAndAdoptsNothing(t *testing.T) {
	endBench(t, func(db *fake, b *bench, lease *sqllock.Lease) {
		handover := b.detached("b")
		ended, cancel := context.WithCancel(b.t.Context())
		cancel()
		_ = b.Close(ended)
		if _, err := b.Adopt(b.t.Context(), handover); !errors.Is(err, sqllock.ErrClosed) {
			t.Errorf("Adopt: %v", err)
		}
		if text, err := lease.Detach(b.t.Context()); text != "" || !errors.Is(err, sqllock.ErrClosed) || errors.Is(err, sqllock.ErrUnknown) {
			t.Errorf("Detach: %d bytes, %v", len(text), err)
		}
		_ = lease.Unlock(b.t.Context())
	})
}

func TestAHandoverFitsIntoAURL(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, newFake(), nil)
		defer b.close()
		seen := make(map[string]bool)
		for _, name := range []string{"a", "a b/c?d&e=ф", strings.Repeat("n", 255)} {
			handover := b.detached(name)
			if !regexp.MustCompile(`^[A-Za-z0-9_-]+$`).MatchString(handover) || len(handover) > 381 || seen[handover] {
				t.Errorf("%q", handover)
			}
			seen[handover] = true
			lease, err := b.Adopt(t.Context(), handover)
			if err != nil || lease.Name() != name {
				t.Fatalf("Adopt: %v, %v", lease, err)
			}
			again, err := lease.Detach(t.Context()) // the second secret is another one
			if err != nil || seen[again] {
				t.Errorf("Detach: %v", err)
			}
		}
	})
}

// forged is a text that Detach has not returned.
func forged(b []byte) string { return "sqllock1_" + base64.RawURLEncoding.EncodeToString(b) }

func FuzzAHandoverIsTakenOrRefusedWithoutShowingIt(f *testing.F) {
	for _, text := range []string{"", "sqllock1_", "sqllock1_AAAA", "sqllock2_AAAA", strings.Repeat("x", 1000), "sqllock1_====", "\x00\xff",
		forged(make([]byte, 24)), forged(make([]byte, 40)), forged([]byte(strings.Repeat("s", 300)))} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		synctest.Test(t, func(t *testing.T) {
			db := newFake()
			b := newBench(t, db, nil)
			defer b.close()
			lease, err := b.Adopt(t.Context(), text)
			if lease != nil || !errors.Is(err, sqllock.ErrInvalidOption) || db.count("adopt") > 0 {
				t.Fatalf("Adopt of %q: %v, %v", text, lease, err)
			}
			if len(text) > 12 && strings.Contains(err.Error(), text) || len(err.Error()) > 300 {
				t.Errorf("the error shows the text: %v", err)
			}
		})
	})
}

func TestAHandoverThatWasChangedIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := newFake()
		b := newBench(t, db, nil)
		defer b.close()
		handover := b.detached("a")
		for i := range handover {
			for _, changed := range []string{handover[:i], handover[:i] + handover[i+1:], handover[:i] + "x" + handover[i+1:], handover + handover[:i]} {
				if changed == handover {
					continue
				}
				if lease, err := b.Adopt(t.Context(), changed); lease != nil || !errors.Is(err, sqllock.ErrInvalidOption) {
					t.Errorf("Adopt of a changed text: %v, %v", lease, err)
				}
			}
		}
		if db.count("adopt") > 0 {
			t.Errorf("%d statements", db.count("adopt"))
		}
		lease, err := b.Adopt(t.Context(), handover)
		if err != nil {
			t.Fatal(err)
		}
		b.unlock(lease)
	})
}

func TestAHandoverOfOtherTablesIsRefused(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, e *engine, d *testdb.Database) {
		other := testdb.New(t, e.name)
		e.migrated(t, other)
		l, foreign := newLocks(t, e.open(d.Open(t)), sqllock.UniqueOptions{}), newLocks(t, e.open(other.Open(t)), sqllock.UniqueOptions{})
		second := newLocks(t, e.open(d.Open(t)), sqllock.UniqueOptions{})
		handover, err := mustTry(t, l, "a").Detach(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if lease, err := foreign.Adopt(t.Context(), handover); lease != nil || !errors.Is(err, sqllock.ErrInvalidOption) || !strings.Contains(err.Error(), "other tables") {
			t.Errorf("Adopt: %v, %v", lease, err)
		}
		if _, err := second.Adopt(t.Context(), handover); err != nil {
			t.Error(err)
		}
	})
}
