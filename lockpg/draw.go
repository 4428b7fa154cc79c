package lockpg

import (
	"context"
	"database/sql"
	"time"

	"github.com/sqllock/sqllock/driver"
)

// drawing is how a token is drawn for whoever has the lock of a name.
type drawing struct {
	req     *driver.GrantRequest
	named   bool  // who holds the name is written down
	pid     int64 // of the session, if named
	started int64
	run     runner
	lift    []any // the key under which the sequence is lifted, in the mode advisory
}

// drawTries is how often draw looks at a row that somebody has locked, a moment
// apart: two who share a name may draw at the same time. A guard lasts longer.
const (
	drawTries = 5
	moment    = 2 * time.Millisecond
)

// draw draws a token. It is not granted while something other than a holder keeps the
// name.
func (s *sessions) draw(ctx context.Context, d *drawing) (res driver.GrantResult, err error) {
	for try := range drawTries {
		if try > 0 {
			if err := pause(ctx); err != nil {
				return res, err
			}
		}
		var gate int64
		if res, gate, err = s.drawOnce(ctx, d); err != nil || res.Granted || gate > res.Now || res.Crashed.Acq != (driver.ID{}) {
			return res, err
		}
	}
	return res, nil
}

func pause(ctx context.Context) error {
	select {
	case <-time.After(moment):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (s *sessions) drawOnce(ctx context.Context, d *drawing) (res driver.GrantResult, gate int64, err error) {
	args := append([]any{
		d.req.Name, d.req.Acq.String(), d.req.Owner, s.client.Instance.String(), s.client.Label, d.req.Delay.Microseconds(),
		d.req.MinHold.Microseconds(), bytea(d.req.Value), d.pid, d.started, d.named, s.lockKey(d.req.Name),
	}, d.lift...)
	err = d.run(ctx, s.q.draw, args, func(rows *sql.Rows) error {
		var crashed bool
		var h nullHolder
		res = driver.GrantResult{}
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
