package sqllock_test

import (
	"context"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sqllock/sqllock"
	"github.com/sqllock/sqllock/internal/testdb"
)

// probe does with the victim all that can be done with a name.
type probe struct {
	*testing.T
	a, b *sqllock.Locker
}

// Calls that need not wait are given as long as a slow machine may take.
const (
	moment = 50 * time.Millisecond
	answer = 5 * time.Second
)

// within fails the test if f takes much longer than its context allows.
func (p *probe) within(bound time.Duration, what string, f func(ctx context.Context) error) error {
	p.Helper()
	const most = 20 * time.Second
	ctx, cancel := context.WithTimeout(p.Context(), bound)
	defer cancel()
	done := make(chan error, 1)
	go func() { done <- f(ctx) }()
	select {
	case err := <-done:
		p.Logf("%s: %v", what, err)
		return err
	case <-time.After(most):
		p.Fatalf("%s hangs", what)
		return nil
	}
}

// acquire lets both Lockers ask for the victim, who is not granted to both.
func (p *probe) acquire(what string, waits bool) {
	p.Helper()
	for _, how := range []struct {
		name  string
		bound time.Duration
		lock  func(l *sqllock.Locker, ctx context.Context, name string, opts ...sqllock.LockOption) (*sqllock.Lease, error)
	}{
		{"TryRLock", answer, (*sqllock.Locker).TryRLock},
		{"TryLock", answer, (*sqllock.Locker).TryLock},
		{"RLock", moment, (*sqllock.Locker).RLock},
		{"Lock", moment, (*sqllock.Locker).Lock},
	} {
		if how.bound == moment && !waits {
			continue
		}
		var lease *sqllock.Lease
		err := p.within(how.bound, what+how.name, func(ctx context.Context) (err error) { lease, err = how.lock(p.a, ctx, victim); return err })
		if err != nil {
			continue
		}
		_ = p.within(answer, "another's TryLock", func(ctx context.Context) error {
			second, err := p.b.TryLock(ctx, victim)
			if second != nil && lease.Remaining() > 0 {
				p.Errorf("%s%s: granted twice, with the tokens %d and %d", what, how.name, lease.Token(), second.Token())
			}
			if second != nil {
				return second.Unlock(ctx)
			}
			return err
		})
		_ = p.within(answer, "Unlock", lease.Unlock)
	}
}

// wait waits for the victim and holds something, so that it looks for circles.
func (p *probe) wait() {
	p.Helper()
	lease := mustTry(p.T, p.b, "held meanwhile")
	_ = p.within(4*moment, "Lock with a lease", func(ctx context.Context) error {
		ctx, cancel := lease.Bind(ctx)
		defer cancel()
		second, err := p.b.Lock(ctx, victim)
		if err == nil {
			err = second.Unlock(ctx)
		}
		return err
	})
	_ = p.within(answer, "Unlock", lease.Unlock)
}

// neighbours are not harmed: who is held is listed, who has crashed is cleaned up.
func (p *probe) neighbours() {
	p.Helper()
	var listed []string
	err := p.within(answer, "List", func(ctx context.Context) error {
		for info, err := range p.a.List(ctx) {
			if err != nil {
				return err
			}
			listed = append(listed, info.Name)
		}
		return nil
	})
	if err == nil && (!slices.Contains(listed, "a neighbour") || !slices.Contains(listed, "the next neighbour")) {
		p.Errorf("List yields %q", listed)
	}
	var crashed []string
	err = p.within(answer, "Reap", func(ctx context.Context) error {
		report, err := p.b.Reaper().Reap(ctx)
		for _, c := range report.Crashed {
			crashed = append(crashed, c.Name)
		}
		return err
	})
	if err == nil && !slices.Contains(crashed, "a neighbour") {
		p.Errorf("Reap finds %q", crashed)
	}
	if err := p.within(answer, "Lock of a neighbour", func(ctx context.Context) error { return p.a.Do(ctx, "a neighbour", nothing) }); err != nil {
		p.Errorf("a neighbour cannot be locked: %v", err)
	}
}

func nothing(context.Context, *sqllock.Lease) error { return nil }

func TestHostileRowsMakeNoPanicNoHangAndNoSecondHolder(t *testing.T) {
	onEach(t, func(t *testing.T, e *engine, d *testdb.Database) {
		t.Parallel()
		db := d.Open(t)
		o := sqllock.UniqueOptions{TTL: time.Hour, RetryMax: 20 * time.Millisecond}
		a, b := newLocks(t, e.open(db), o), newLocks(t, e.open(db), o)
		for _, what := range slices.Sorted(maps.Keys(hostile)) {
			if !isFor(e, what) {
				continue
			}
			t.Run(what, func(t *testing.T) {
				holder := newLocks(t, e.open(db), o)
				for _, name := range []string{victim, "a neighbour", "the next neighbour"} {
					// What is left of the case before is given back in the background.
					if _, err := holder.Lock(t.Context(), name, sqllock.Wait(answer)); err != nil {
						t.Fatal(err)
					}
				}
				mustExec(t, db, `UPDATE sqllock_lock SET expires_at = 1 WHERE name = 'a neighbour'`)
				spoil(t, e, db, hostile[what])
				p := &probe{t, a, b}
				p.acquire("", true)
				_ = p.within(answer, "Inspect", func(ctx context.Context) error { _, err := a.Inspect(ctx, victim); return err })
				if strings.Contains(what, "ticket") {
					p.wait()
				}
				p.neighbours()
				_ = p.within(5*moment, "ForceUnlock", func(ctx context.Context) error { _, err := a.ForceUnlock(ctx, victim); return err })
				p.acquire("after ForceUnlock ", false)
				for _, table := range []string{"lock", "holder", "ticket"} {
					mustExec(t, db, `DELETE FROM sqllock_`+table)
				}
			})
		}
	})
}
