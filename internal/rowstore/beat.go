package rowstore

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/sqllock/sqllock/driver"
)

// beat keeps the waiting claims of a Locker alive: its row in the table waiter lasts until a
// time, and the claims live as long as the row.
type beat struct {
	sending chan struct{} // is taken by the one that sends it, who has the fields below
	until   time.Time
	read    time.Time // when the claims were last read back

	mu    sync.Mutex
	known map[driver.ID]time.Time // claims that are asked for, and until when that counts
}

func newBeat() *beat {
	return &beat{sending: make(chan struct{}, 1), known: make(map[driver.ID]time.Time)}
}

// forgottenLives is for how many of its lives nobody must have asked for a claim before it is
// withdrawn.
const forgottenLives = 3

// keepAlive makes the row of the Locker last for at least two thirds of life from now. From
// time to time it reads the claims of the Locker back, and withdraws those that nobody asks
// for any more: their requests came late, or could not be withdrawn. It returns which requests
// are new, and which were made before.
func (s *rows) keepAlive(ctx context.Context, life time.Duration, reqs []driver.AcquireRequest) (fresh, known []int, err error) {
	now := time.Now()
	fresh, known = s.beat.note(reqs, now)
	return fresh, known, s.send(ctx, life, now)
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
	if b.until.Sub(now) >= life*2/3 {
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
	return s.withdrawForgotten(ctx, life)
}

// note notes that claims are asked for. It returns the requests that are new, and the others.
func (b *beat) note(reqs []driver.AcquireRequest, now time.Time) (fresh, known []int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for i := range reqs {
		if _, ok := b.known[reqs[i].Acq]; ok {
			known = append(known, i)
		} else {
			fresh = append(fresh, i)
		}
		b.known[reqs[i].Acq] = now.Add(forgottenLives * reqs[i].Life)
	}
	return fresh, known
}

// withdrawForgotten withdraws claims that wait although nobody asks for them.
func (s *rows) withdrawForgotten(ctx context.Context, life time.Duration) error {
	var waiting []driver.ReleaseRequest
	err := s.engine.Run(ctx, Statement{Name: "claims_of_locker",
		Args: []any{s.client.Instance.String(), (forgottenLives * life).Microseconds()},
		Scan: func(scan Scanner) error {
			var r driver.ReleaseRequest
			err := scan(&r.Name, id{&r.Acq})
			waiting = append(waiting, r)
			return err
		}})
	if err != nil {
		return err
	}
	return s.withdraw(ctx, s.beat.forgotten(waiting, time.Now()))
}

// forgotten returns those claims that nobody asks for.
func (b *beat) forgotten(claims []driver.ReleaseRequest, now time.Time) []driver.ReleaseRequest {
	b.mu.Lock()
	defer b.mu.Unlock()
	maps.DeleteFunc(b.known, func(_ driver.ID, until time.Time) bool { return until.Before(now) })
	return slices.DeleteFunc(claims, func(r driver.ReleaseRequest) bool {
		_, ok := b.known[r.Acq]
		return ok
	})
}
