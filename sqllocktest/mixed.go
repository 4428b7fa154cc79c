package sqllocktest

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/sqllock/sqllock"
)

// room is what readers and writers share and change. It is told of everybody who
// comes in, while he is in.
type room struct {
	mu      sync.Mutex
	readers int
	writers int
	wrote   int64 // the highest token of a writer
	read    int64 // the highest token of a reader
	visits  int
}

// enter notes that somebody is in. It returns what is wrong with that.
func (r *room) enter(lease *sqllock.Lease) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.visits++
	token := lease.Token()
	if lease.Shared() {
		r.readers++
		if r.writers > 0 {
			return fmt.Errorf("a reader is in beside %d writers", r.writers)
		}
		if token <= r.wrote {
			return fmt.Errorf("a reader with token %d follows a writer with token %d", token, r.wrote)
		}
		r.read = max(r.read, token)
		return nil
	}
	r.writers++
	if r.writers > 1 || r.readers > 0 {
		return fmt.Errorf("%d writers and %d readers are in", r.writers, r.readers)
	}
	if token <= r.wrote || token <= r.read {
		return fmt.Errorf("a writer with token %d follows writers up to %d and readers up to %d", token, r.wrote, r.read)
	}
	r.wrote = token
	return nil
}

func (r *room) leave(lease *sqllock.Lease) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if lease.Shared() {
		r.readers--
	} else {
		r.writers--
	}
}

// visit comes in once, as a reader or a writer.
func (r *room) visit(ctx context.Context, l *sqllock.Locker, name string, shared bool, stay time.Duration) error {
	lock := l.Lock
	if shared {
		lock = l.RLock
	}
	lease, err := lock(ctx, name)
	if err != nil {
		return err
	}
	wrong := r.enter(lease)
	time.Sleep(stay)
	if err := context.Cause(lease.Context()); err != nil && wrong == nil {
		wrong = fmt.Errorf("lost on the way: %w", err)
	}
	r.leave(lease)
	if err := lease.Unlock(ctx); err != nil {
		return err
	}
	return wrong
}

func testMixedCrowd(e *env) {
	const lockers, goroutines, names = 2, 8, 2
	rounds := 12
	if e.h.slow() {
		rounds = 4
	}
	prefix, rooms := e.name(""), [names]room{}
	ctx, cancel := context.WithTimeout(context.Background(), 3*patience)
	defer cancel()
	var wg sync.WaitGroup
	for range lockers {
		db, _ := e.open(e.source(), e.roomy()/2)
		l := e.lockerOn(db, &Options{TTL: long, RetryMax: 20 * time.Millisecond})
		for seed := range uint64(goroutines) {
			r := rand.New(rand.NewPCG(seed, uint64(rounds)))
			wg.Go(func() {
				for range rounds {
					k := r.IntN(names)
					stay := time.Duration(r.IntN(2000)) * time.Microsecond
					if err := rooms[k].visit(ctx, l, fmt.Sprint(prefix, k), r.IntN(4) > 0, stay); err != nil {
						e.Error(err)
						return
					}
				}
			})
		}
	}
	wg.Wait()
	visits := 0
	for i := range rooms {
		visits += rooms[i].visits
	}
	if want := lockers * goroutines * rounds; visits != want {
		e.Errorf("%d visits were counted, %d were made", visits, want)
	}
}
