package rowstore

import (
	"context"
	"sync"
	"time"

	"github.com/sqllock/sqllock/driver"
)

// beat keeps the waiting claims of a Locker alive: its row in the table waiter lasts until a
// time, and the claims live as long as the row.
type beat struct {
	turn  chan struct{} // is taken by the one that sends it, who has the fields below
	until time.Time
	read  time.Time // when the claims were last read back

	mu    sync.Mutex
	asked map[driver.ID]time.Time // when a claim was last asked for
}

func newBeat() *beat {
	return &beat{turn: make(chan struct{}, 1), asked: make(map[driver.ID]time.Time)}
}

// forgottenLives is for how many lives nobody must have asked for a claim before it is withdrawn.
const forgottenLives = 3

// keepAlive makes the row of the Locker last for at least two thirds of life from now. From
// time to time it reads the claims of the Locker back, and withdraws those that nobody asks
// for any more: their requests came late, or could not be withdrawn. It returns which requests
// are new, and which were made before.
func (s *Store) keepAlive(ctx context.Context, life time.Duration, reqs []driver.TicketRequest) (fresh, known []int, err error) {
	now := time.Now()
	fresh, known = s.beat.ask(reqs, now)
	return fresh, known, s.send(ctx, life, now)
}

// send sends the beat if it is due.
func (s *Store) send(ctx context.Context, life time.Duration, now time.Time) error {
	b := s.beat
	select {
	case b.turn <- struct{}{}:
		defer func() { <-b.turn }()
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

// ask notes that claims are asked for. It returns the requests that are new, and the others.
func (b *beat) ask(reqs []driver.TicketRequest, now time.Time) (fresh, known []int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for i := range reqs {
		if _, ok := b.asked[reqs[i].Acq]; ok {
			known = append(known, i)
		} else {
			fresh = append(fresh, i)
		}
		b.asked[reqs[i].Acq] = now
	}
	return fresh, known
}

// withdrawForgotten withdraws claims that wait although nobody asks for them.
func (s *Store) withdrawForgotten(ctx context.Context, life time.Duration) error {
	age := forgottenLives * life
	known := s.beat.known(time.Now().Add(-age))
	var forgotten []driver.AbandonRequest
	err := s.engine.Run(ctx, Statement{Name: "claims_of_locker", Args: []any{s.client.Instance.String(), age.Microseconds()},
		Scan: func(scan Scanner) error {
			var r driver.AbandonRequest
			err := scan(&r.Name, id{&r.Acq})
			if !known[r.Acq] {
				forgotten = append(forgotten, r)
			}
			return err
		}})
	if err != nil || len(forgotten) == 0 {
		return err
	}
	return s.Abandon(ctx, forgotten)
}

// known returns the claims that were asked for since a time, and forgets the others.
func (b *beat) known(since time.Time) map[driver.ID]bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	known := make(map[driver.ID]bool, len(b.asked))
	for acq, at := range b.asked {
		if at.Before(since) {
			delete(b.asked, acq)
		} else {
			known[acq] = true
		}
	}
	return known
}
