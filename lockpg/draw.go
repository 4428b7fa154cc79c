package lockpg

import (
	"context"
	"database/sql"
	"math/rand/v2"
	"time"

	"github.com/sqllock/sqllock/driver"
)

// drawing is how a token is drawn for whoever has the lock of a name.
type drawing struct {
	req     *driver.AcquireRequest
	named   bool  // who holds the name is written down
	pid     int64 // of the session, if named
	started int64
	run     runner
	lift    int64 // the key under which the sequence is lifted, in advisory mode
}

// draw draws a token. It is not granted while something other than a holder keeps the
// name.
func (s *sessions) draw(ctx context.Context, d *drawing) (res driver.AcquireResult, err error) {
	err = retry(ctx, d.req.Shared, func() (bool, error) {
		var gate int64
		res, gate, err = s.drawOnce(ctx, d)
		return res.Granted || gate > res.Now || res.Crashed.Acq != driver.ID{}, err
	})
	return res, err
}

// Bounds of asking again for what somebody else has, who may have it for a moment
// only, as those do who are granted a lock to share it, each for as long as a flush
// takes. A guard has it for longer.
const (
	drawTries    = 5
	readersWait  = 500 * time.Millisecond
	longestPause = 32 * time.Millisecond
)

// retry calls f, with pauses, until it is done: a few times, or for a while if others
// may be in the way who flush what they write.
func retry(ctx context.Context, flushing bool, f func() (done bool, err error)) error {
	end := time.Now().Add(readersWait)
	for try := 1; ; try++ {
		done, err := f()
		if done || err != nil || !flushing && try == drawTries || time.Now().After(end) {
			return err
		}
		pause := min(longestPause, time.Millisecond<<try)
		select {
		case <-time.After(pause/2 + rand.N(pause)):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (s *sessions) drawOnce(ctx context.Context, d *drawing) (res driver.AcquireResult, gate int64, err error) {
	args := []any{
		d.req.Name, d.req.Acq.String(), d.req.Owner, s.client.Instance.String(), s.client.Label, d.req.Delay.Microseconds(),
		d.req.MinHold.Microseconds(), bytea(d.req.Value), d.pid, d.started, d.named, s.lockKey(d.req.Name), d.lift,
	}
	err = d.run(ctx, s.texts["draw"], args, func(rows *sql.Rows) error {
		var crashed bool
		var h nullHolder
		res = driver.AcquireResult{}
		if err := rows.Scan(h.into(&res.Granted, &res.Version, &crashed, &gate, &res.Now)...); err != nil {
			return err
		}
		was, err := h.holder()
		if err != nil {
			return err
		}
		if crashed {
			res.Crashed = was
			res.Crashed.Until = res.Now
		}
		switch {
		case res.Granted:
			res.Remaining = s.ttl
		case gate > res.Now:
			res.Version, res.Holder = 0, driver.Holder{Until: gate}
		default:
			res.Version = 0
		}
		return nil
	})
	return res, gate, err
}
