//go:build linux && galera

package galera

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sqllock/sqllock"
)

func logTo(w io.Writer) *slog.Logger { return slog.New(slog.NewTextHandler(w, nil)) }

// watch sees the terms of a name, in one process.
type watch struct {
	mu                     sync.Mutex
	holder                 *sqllock.Lease
	token                  int64
	terms, overlaps, falls int
}

func (w *watch) enter(l *sqllock.Lease) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.holder != nil && w.holder.Remaining() > 0 && l.Remaining() > 0 {
		w.overlaps++
	}
	if l.Token() <= w.token {
		w.falls++
	}
	w.holder, w.token = l, l.Token()
	w.terms++
}

func (w *watch) leave() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.holder = nil
}

// Callers of all nodes compete for one name.
func TestOneNameHasOneHolderOnAllNodes(t *testing.T) {
	all := start(t)
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	var w watch
	var callers sync.WaitGroup
	for i := range 9 {
		callers.Go(func() {
			for ctx.Err() == nil {
				lease, err := all[i%3].locks.Lock(ctx, t.Name())
				if err != nil {
					if ctx.Err() == nil {
						t.Error(err)
					}
					return
				}
				w.enter(lease)
				time.Sleep(time.Millisecond)
				w.leave()
				if err := lease.Unlock(context.Background()); err != nil {
					t.Error(err)
				}
			}
		})
	}
	callers.Wait()
	t.Logf("%d terms", w.terms)
	if w.terms < 20 || w.overlaps > 0 || w.falls > 0 {
		t.Errorf("%d terms, %d overlap, %d tokens do not rise", w.terms, w.overlaps, w.falls)
	}
}

// Permits, too, are no more than there are.
func TestPermitsAreNoMoreThanThereAreOnAllNodes(t *testing.T) {
	const permits = 3
	all := start(t)
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	var held, terms, over atomic.Int64
	var callers sync.WaitGroup
	for i := range 9 {
		s, err := all[i%3].locks.Semaphore(t.Name(), permits, nil)
		if err != nil {
			t.Fatal(err)
		}
		callers.Go(func() {
			for ctx.Err() == nil {
				lease, err := s.Acquire(ctx)
				if err != nil {
					if ctx.Err() == nil {
						t.Error(err)
					}
					return
				}
				if held.Add(1) > permits {
					over.Add(1)
				}
				terms.Add(1)
				time.Sleep(time.Millisecond)
				held.Add(-1)
				if err := lease.Unlock(context.Background()); err != nil {
					t.Error(err)
				}
			}
		})
	}
	callers.Wait()
	t.Logf("%d permits", terms.Load())
	if terms.Load() < 50 || over.Load() > 0 {
		t.Errorf("%d permits, %d too many", terms.Load(), over.Load())
	}
}

// A key is completed once, whichever nodes ask for it.
func TestAKeyRunsOnceOnAllNodes(t *testing.T) {
	all := start(t)
	for round := range 20 {
		var ran atomic.Int64
		var callers sync.WaitGroup
		for _, n := range all {
			callers.Go(func() {
				_, err := n.locks.Once(t.Context(), t.Name(), fmt.Sprint(round), func(context.Context, *sqllock.Run) error {
					ran.Add(1)
					return nil
				})
				if err != nil {
					t.Errorf("round %d: %v", round, err)
				}
			})
		}
		callers.Wait()
		if ran.Load() != 1 {
			t.Errorf("round %d: it ran %d times", round, ran.Load())
		}
	}
}

// What was detached is adopted by one node.
func TestATermIsAdoptedOnceOnAllNodes(t *testing.T) {
	all := start(t)
	for round := range 20 {
		name := fmt.Sprint(t.Name(), round)
		lease := all[round%3].lock(t, name)
		handover, err := lease.Detach(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, n := range all {
			settle(t, n.db)
		}
		var adopted atomic.Int64
		var callers sync.WaitGroup
		for _, n := range all {
			callers.Go(func() {
				again, err := n.locks.Adopt(t.Context(), handover)
				switch {
				case err == nil:
					adopted.Add(1)
					if again.Token() <= lease.Token() {
						t.Errorf("round %d: the token went from %d to %d", round, lease.Token(), again.Token())
					}
					t.Cleanup(func() { _ = again.Unlock(context.Background()) })
				case !errors.Is(err, sqllock.ErrNotHeld) && !errors.Is(err, sqllock.ErrLost):
					t.Errorf("round %d: %v", round, err)
				}
			})
		}
		callers.Wait()
		if adopted.Load() != 1 {
			t.Errorf("round %d: %d have adopted the term", round, adopted.Load())
		}
	}
}

// All of some names are locked or none, in whatever order nodes ask.
func TestLockAllOnAllNodes(t *testing.T) {
	all := start(t)
	names := []string{t.Name() + " a", t.Name() + " b", t.Name() + " c"}
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	watches := make(map[string]*watch)
	for _, name := range names {
		watches[name] = &watch{}
	}
	var callers sync.WaitGroup
	for i := range 6 {
		callers.Go(func() {
			mine := []string{names[i%3], names[(i+1)%3]}
			for ctx.Err() == nil {
				leases, err := all[i%3].locks.LockAll(ctx, mine)
				if err != nil {
					if ctx.Err() == nil {
						t.Error(err)
					}
					return
				}
				for _, name := range mine {
					w := watches[name]
					w.mu.Lock()
					if token := leases.Token(name); token <= w.token {
						w.falls++
					} else {
						w.token = token
					}
					w.terms++
					w.mu.Unlock()
				}
				if err := leases.Unlock(context.Background()); err != nil {
					t.Error(err)
				}
			}
		})
	}
	callers.Wait()
	for name, w := range watches {
		if w.terms < 10 || w.falls > 0 {
			t.Errorf("%q: %d terms, %d tokens do not rise", name, w.terms, w.falls)
		}
	}
}
