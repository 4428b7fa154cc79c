package rowstore

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/sqllock/sqllock/driver"
	"github.com/sqllock/sqllock/internal/claim"
)

// beat keeps the waiting claims of a Locker alive: its row in the table waiter lasts until a
// time, and the claims live as long as the row.
type beat struct {
	sending chan struct{} // is taken by the one that sends it, who has the fields below
	until   time.Time
	read    time.Time // when the claims were last read back

	mu    sync.Mutex
	known map[driver.ID]struct{} // acquisitions that were asked for
}

func newBeat() *beat {
	return &beat{sending: make(chan struct{}, 1), known: make(map[driver.ID]struct{})}
}

// orphanLives is for how many lives of the Locker a claim must have waited before it is asked
// whether anybody wants it.
const orphanLives = 3

// keepAlive makes the row of the Locker last for at least two thirds of life from now. From
// time to time it reads the claims of the Locker back, and takes those out of the queue that nobody
// wants any more: their requests came late, or could not be withdrawn. It returns which requests
// are new, and which were made before.
func (s *rows) keepAlive(ctx context.Context, life time.Duration, reqs []driver.AcquireRequest) (fresh, known []int, err error) {
	fresh, known = s.beat.note(reqs)
	return fresh, known, s.send(ctx, life, time.Now())
}

// send sends the beat if it is due.
func (s *rows) send(ctx context.Context, life time.Duration, now time.Time) error {
	b := s.beat
	select {
	case b.sending <- struct{}{}:
		defer func() { <-b.sending }()
	case <-ctx.Done():
		return ctx.Err()
	}
	// The monotonic clock of Go does not run while the machine sleeps, and the other one can be set.
	if left := min(b.until.Sub(now), b.until.Round(0).Sub(now.Round(0))); left >= life*2/3 {
		return nil
	}
	err := s.engine.Run(ctx, Statement{Name: "beat", Args: []any{s.client.Instance.String(), life.Microseconds()}})
	if err != nil {
		return err
	}
	b.until = now.Add(life)
	if b.read.IsZero() {
		b.read = now
	}
	if now.Sub(b.read) < life {
		return nil
	}
	b.read = now
	return s.forgetOrphans(ctx, life)
}

// note notes that claims are asked for. It returns the requests that are new, and the others.
func (b *beat) note(reqs []driver.AcquireRequest) (fresh, known []int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for i := range reqs {
		if _, ok := b.known[reqs[i].Acq]; ok {
			known = append(known, i)
		} else {
			fresh = append(fresh, i)
		}
		b.known[reqs[i].Acq] = struct{}{}
	}
	return fresh, known
}

// forgetOrphans takes claims of this Locker out of the queue that nobody wants. How long ago they
// were asked for says nothing: while the database cannot be reached, nobody can ask.
func (s *rows) forgetOrphans(ctx context.Context, life time.Duration) error {
	wants := s.client.Wants
	if wants == nil {
		return nil
	}
	s.beat.prune(wants)
	var waiting []driver.ReleaseRequest
	err := s.engine.Run(ctx, Statement{Name: "claims_of_locker",
		Args: []any{s.client.Instance.String(), (orphanLives * life).Microseconds()},
		Scan: func(scan Scanner) error {
			var r driver.ReleaseRequest
			err := scan(&r.Name, id{&r.Acq})
			waiting = append(waiting, r)
			return err
		}})
	if err != nil {
		return err
	}
	orphans := slices.DeleteFunc(waiting, func(r driver.ReleaseRequest) bool { return wants(r.Acq) })
	e, of := ending(orphans)
	e.decide = func(w *view, visit *claim.Visit) error {
		for _, i := range of[w.name] {
			visit.Forget(orphans[i].Acq)
		}
		return nil
	}
	return s.lookAndVisit(ctx, e)
}

// prune drops the acquisitions that nobody wants.
func (b *beat) prune(wants func(driver.ID) bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	maps.DeleteFunc(b.known, func(acq driver.ID, _ struct{}) bool { return !wants(acq) })
}
