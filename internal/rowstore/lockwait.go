package rowstore

import (
	"context"
	"math/rand/v2"
	"time"
)

// LockWait pauses while a row is locked, as it is for a moment by everybody who was
// too late to take it.
type LockWait struct {
	end   time.Time
	pause time.Duration
}

// firstPause is about as long as a visit keeps a row.
const firstPause = 300 * time.Microsecond

// NewLockWait returns a LockWait that lasts for d.
func NewLockWait(d time.Duration) *LockWait {
	return &LockWait{end: time.Now().Add(d), pause: firstPause}
}

// Pause waits a little. It returns [ErrLocked] when the LockWait is at its end, or ctx is.
func (w *LockWait) Pause(ctx context.Context) error {
	pause := min(w.pause/2+rand.N(w.pause), time.Until(w.end)) // or those who met would meet again
	if pause <= 0 {
		return ErrLocked
	}
	w.pause = min(2*w.pause, 100*time.Millisecond)
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
