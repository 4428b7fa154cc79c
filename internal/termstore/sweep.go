package termstore

import (
	"context"
	"time"

	"github.com/sqllock/sqllock/driver"
	"github.com/sqllock/sqllock/internal/rowstore"
)

// Sweep implements [driver.SessionStore]. A look finds what there is to do. It purges first:
// a failure after terms have been ended would hide who has crashed.
func (s *Store) Sweep(ctx context.Context, req driver.SweepRequest) (res driver.SweepResult, err error) {
	terms, err := s.page(ctx, req.After, req.Limit)
	if err != nil {
		return res, err
	}
	res.Seen, res.More = len(terms), len(terms) == req.Limit
	var idle []string
	var dead []*Term
	for i := range terms {
		t := &terms[i]
		switch {
		case t.Held() && !t.Alive:
			dead = append(dead, t)
		case t.idle(req.Retention):
			idle = append(idle, t.Name)
		}
		res.Last = t.Name
	}
	if idle != nil {
		if res.Purged, err = s.purge(ctx, idle, req.Retention); err != nil {
			return driver.SweepResult{}, err
		}
	}
	for _, t := range dead {
		ended, now, _, err := s.EndTerm(ctx, s.Pool, t)
		switch {
		case err != nil && len(res.Crashed) > 0: // who is told of must not be forgotten
			return res, nil
		case err != nil:
			return driver.SweepResult{}, err
		case ended:
			res.Crashed = append(res.Crashed, driver.Crash{Name: t.Name, Holder: t.Crashed(now)})
		}
	}
	return res, nil
}

// purge deletes rows that have been idle for so long.
func (s *Store) purge(ctx context.Context, names []string, retention time.Duration) (int, error) {
	batch, age := []rowstore.Column{names}, []any{retention.Microseconds()}
	if s.Pins {
		if _, _, err := s.Pool.Write(ctx, Statement{Name: "purge_pins", Batch: batch}); err != nil {
			return 0, err
		}
	}
	n, _, err := s.Pool.Write(ctx, Statement{Name: "purge", Batch: batch, Args: age})
	return int(n), err
}

// SweepDue implements [driver.SessionStore]. It reads before it writes: a statement that changes
// nothing leaves a trace all the same.
func (s *Store) SweepDue(ctx context.Context, every time.Duration) (bool, error) {
	due, exists, age := true, false, []any{every.Microseconds()}
	err := s.Pool.Read(ctx, Statement{Name: "find_sweep", Args: age}, func(scan rowstore.Scanner) error {
		exists = true
		return scan(&due)
	})
	if err == nil && !exists {
		_, _, err = s.Pool.Write(ctx, Statement{Name: "make_rows", Batch: []rowstore.Column{[]string{""}}})
	}
	if err != nil || !due {
		return false, err
	}
	n, _, err := s.Pool.Write(ctx, Statement{Name: "sweep_due", Args: age})
	return n > 0, err
}

// SweepPause implements [driver.SessionStore].
func (s *Store) SweepPause(ctx context.Context, pause time.Duration) error {
	_, _, err := s.Pool.Write(ctx, Statement{Name: "sweep_pause", Args: []any{pause.Microseconds()}})
	return err
}
