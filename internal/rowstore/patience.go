package rowstore

import (
	"context"
	"math/rand/v2"
	"time"
)

// Patience waits a little while a row is locked, as it is for a moment by everybody who was
// too late to take it.
type Patience struct {
	end   time.Time
	pause time.Duration
}

// NewPatience returns a Patience that lasts for d.
func NewPatience(d time.Duration) *Patience {
	return &Patience{end: time.Now().Add(d), pause: time.Millisecond}
}

// Wait pauses. It returns [ErrLocked] when the Patience is at its end, or ctx is.
func (p *Patience) Wait(ctx context.Context) error {
	pause := min(p.pause/2+rand.N(p.pause), time.Until(p.end)) // or those who met would meet again
	if pause <= 0 {
		return ErrLocked
	}
	p.pause = min(2*p.pause, 100*time.Millisecond)
	if Sleep(ctx, pause) != nil {
		return ErrLocked
	}
	return nil
}

// Sleep pauses for d, or until ctx ends, whose error it returns then.
func Sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
