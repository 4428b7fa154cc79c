package sqllock_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sqllock/sqllock"
	"github.com/sqllock/sqllock/driver"
)

var me = &sqllock.ElectionOptions{Identity: "me", LockDelay: ttl}

func TestTheFirstCampaignResumesATermOfItsIdentityPastTheQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := newFake()
		old, b := newBench(t, db, &sqllock.UniqueOptions{TTL: ttl}), newBench(t, db, &sqllock.UniqueOptions{TTL: ttl})
		defer old.close()
		defer b.close()
		was := old.candidate("a", me)
		before := old.campaign(was, "old")
		waiting := queuedWaiter(t, old, t.Context(), "a")
		began := time.Now()
		e := b.candidate("a", me)
		lease := b.campaign(e, "new")
		if took := time.Since(began); took > 0 || lease.Token() <= before.Token() {
			t.Errorf("after %v token %d follows token %d", took, lease.Token(), before.Token())
		}
		if term, err := was.Leader(t.Context()); err != nil || term.Identity != "me" || term.Token != lease.Token() || string(term.Value) != "new" {
			t.Errorf("Leader = %+v, %v", term, err)
		}
		<-before.Context().Done()
		if took := time.Since(began); took > ttl/3 || was.IsLeader() {
			t.Errorf("the earlier incarnation was told %v later, with a TTL of %v", took, ttl)
		}
		var lost *sqllock.LostError
		if err := was.Resign(t.Context()); !errors.As(err, &lost) || lost.Reason != sqllock.LostTaken {
			t.Errorf("Resign of the earlier incarnation: %v", err)
		}
		b.term(e)
		b.resign(e)
		old.unlock(<-waiting) // who stood in line was passed once, and not forgotten
	})
}

func TestOfTwoWithOneIdentityTheSecondThrowsTheFirstOutOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := newFake()
		all := []*bench{newBench(t, db, &sqllock.UniqueOptions{TTL: ttl}), newBench(t, db, &sqllock.UniqueOptions{TTL: ttl})}
		ctx, cancel := context.WithCancel(t.Context())
		terms := make(chan int, 100)
		done := make(chan error, 2)
		for i, b := range all {
			defer b.close()
			e := b.candidate("a", me)
			go func() {
				done <- e.Run(ctx, func(ctx context.Context, _ *sqllock.Lease) error {
					terms <- i
					<-ctx.Done()
					return nil
				})
			}()
			time.Sleep(time.Second)
		}
		time.Sleep(100 * ttl)
		cancel()
		<-done
		<-done
		close(terms)
		var led []int
		for i := range terms {
			led = append(led, i)
		}
		if len(led) < 2 || led[0] != 0 || led[1] != 1 {
			t.Errorf("they led in the order %v, want the first and then the second", led)
		}
		if len(led) > 2 {
			t.Errorf("they threw each other out: %v", led)
		}
	})
}

func TestNothingIsResumedOfAnotherIdentityOrWithoutOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := newFake()
		b := newBench(t, db, &sqllock.UniqueOptions{TTL: ttl})
		defer b.close()
		holder := b.candidate("a", nil)
		b.campaign(holder, "")
		for what, o := range map[string]*sqllock.ElectionOptions{"another identity": me, "none": nil} {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			if err := b.candidate("a", o).Campaign(ctx, nil); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("a candidate with %s: %v", what, err)
			}
			cancel()
		}
		b.term(holder)
		if n := db.count("resume"); n != 0 {
			t.Errorf("%d statements that resume were sent", n)
		}
		b.resign(holder)
	})
}

func TestACandidateWithoutAnIdentityDoesNotLookForATermToResume(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := newFake()
		b := newBench(t, db, &sqllock.UniqueOptions{TTL: ttl, Reaper: &sqllock.ReaperOptions{Off: true}})
		defer b.close()
		e := b.candidate("a", nil)
		b.campaign(e, "")
		if n := db.statements(); n != 1 {
			t.Errorf("%d statements were sent for a name that is free", n)
		}
		b.resign(e)
	})
}

// resuming has somebody lead as me, and returns a candidate of the same identity.
func resuming(t *testing.T) (db *fake, b *bench, before *sqllock.Lease, e *sqllock.Election) {
	db = newFake()
	b = newBench(t, db, &sqllock.UniqueOptions{TTL: ttl})
	old := newBench(t, db, &sqllock.UniqueOptions{TTL: ttl})
	before = old.campaign(old.candidate("a", me), "")
	old.crash()
	return db, b, before, b.candidate("a", me)
}

func TestAResumptionWithoutAReplyIsFoundOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db, b, before, e := resuming(t)
		defer b.close()
		db.set(func(f *fake) { f.after = failing("resume", errNoReply) })
		began := time.Now()
		lease := b.campaign(e, "")
		if lease.Token() <= before.Token() || time.Since(began) > time.Second {
			t.Errorf("token %d follows token %d after %v", lease.Token(), before.Token(), time.Since(began))
		}
		if n := db.count("resume"); n != 1 {
			t.Errorf("it was asked for %d times", n)
		}
		time.Sleep(3 * ttl)
		b.term(e)
		b.resign(e)
		time.Sleep(3 * ttl) // until nothing can arrive late
	})
}

func TestAResumptionIsTriedUntilTheDatabaseHasAnswered(t *testing.T) {
	for what, err := range map[string]error{"a deadlock": errDeadlock, "no connection": errDown, "an unclear error": errNoReply} {
		for _, kind := range []string{"look", "resume"} {
			t.Run(what+" of the "+kind, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					db, b, before, e := resuming(t)
					defer b.close()
					db.set(func(f *fake) { f.before = failing(kind, err) })
					ctx, cancel := context.WithTimeout(t.Context(), time.Second)
					defer cancel()
					if err := e.Campaign(ctx, nil); !errors.Is(err, context.DeadlineExceeded) {
						t.Errorf("Campaign while the database does not answer: %v", err)
					}
					db.set(func(f *fake) { f.before = nil })
					if lease := b.campaign(e, ""); lease.Token() <= before.Token() || db.count("line") > 0 {
						t.Errorf("token %d follows token %d, and %d times it stood in line", lease.Token(), before.Token(), db.count("line"))
					}
					b.resign(e)
					time.Sleep(3 * ttl)
				})
			})
		}
	}
}

func TestADatabaseThatRefusesEndsTheCampaign(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db, b, _, e := resuming(t)
		defer b.close()
		db.set(func(f *fake) { f.before = failing("resume", errDenied) })
		if err := e.Campaign(t.Context(), nil); !errors.Is(err, errDenied) {
			t.Errorf("Campaign: %v", err)
		}
	})
}

func TestAResumptionThatNobodyWaitsForIsGivenBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db, b, _, e := resuming(t)
		defer b.close()
		db.set(func(f *fake) { f.before = after("resume", 2*time.Second) })
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := e.Campaign(ctx, nil); !errors.Is(err, context.DeadlineExceeded) || e.IsLeader() {
			t.Errorf("Campaign: %v", err)
		}
		time.Sleep(2 * time.Second)
		if db.count("resume") != 1 || db.held("a") {
			t.Errorf("after %d requests the name is held: %v", db.count("resume"), db.held("a"))
		}
		time.Sleep(3 * ttl)
	})
}

func TestOfTwoThatAreRestartedAtOnceTheSecondEndsNothing(t *testing.T) {
	// What the second is told of its first request. After an error it asks again.
	for what, err := range map[string]error{"the request comes late": nil, "it has to ask again": errDeadlock} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				db, b, before, e := resuming(t)
				defer b.close()
				other := newBench(t, db, &sqllock.UniqueOptions{TTL: ttl})
				defer other.close()
				twin := other.candidate("a", me)
				db.set(func(f *fake) {
					f.before = func(_ context.Context, kind string) error {
						if kind != "resume" {
							return nil
						}
						db.set(func(f *fake) { f.before = nil })
						other.campaign(twin, "") // which is quicker
						return err
					}
				})
				ctx, cancel := context.WithTimeout(t.Context(), 3*ttl)
				defer cancel()
				if err := e.Campaign(ctx, nil); !errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("Campaign of the second: %v, want that it waits", err)
				}
				if lease := other.term(twin); lease.Token() <= before.Token() {
					t.Errorf("token %d follows token %d", lease.Token(), before.Token())
				}
				other.resign(twin)
			})
		})
	}
}

func TestInTheModesOfSessionsTheEarlierIncarnationIsAskedToLetGo(t *testing.T) {
	onSessions(t, func(b *sessionBench) {
		defer b.close()
		holder := b.lock("a")
		b.db.set(func() {
			b.db.rows = map[string]driver.Row{"a": {Name: "a", Session: true, Holder: driver.Holder{Acq: driver.ID{1}, Owner: "me", Version: holder.Token()}}}
		})
		e, err := b.locks.Election("a", &sqllock.ElectionOptions{Identity: "me"})
		if err != nil {
			b.Fatal(err)
		}
		done := make(chan error, 1)
		go func() { done <- e.Campaign(b.Context(), nil) }()
		<-holder.Context().Done()
		var lost *sqllock.LostError
		if err := holder.Unlock(b.Context()); !errors.As(err, &lost) || lost.Reason != sqllock.LostRevoked {
			b.Errorf("Unlock of the earlier incarnation: %v", err)
		}
		if err := <-done; err != nil || !e.IsLeader() || !slices.Equal(b.db.requested["a"], []int64{holder.Token()}) {
			b.Errorf("Campaign: %v; the terms %d were to be ended, want %d", err, b.db.requested["a"], holder.Token())
		}
		if err := e.Resign(b.Context()); err != nil {
			b.Error(err)
		}
	})
}
