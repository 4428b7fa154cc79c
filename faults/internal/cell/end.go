//go:build linux

package cell

import (
	"context"
	"fmt"
	"time"

	"github.com/sqllock/sqllock/faults/internal/check"
	"github.com/sqllock/sqllock/faults/internal/history"
)

// patience is how long the search for an order may take for each name.
const patience = 10 * time.Second

// end lets the clients end in order, and judges the whole history.
func (s *site) end(ctx context.Context, r *Result) error {
	for _, c := range s.fleet {
		if err := c.Drain(); err != nil {
			return fmt.Errorf("client %s: %w", c.Proc(), err)
		}
	}
	// Each of those who wait may meet somebody who has gone, and holds a while himself.
	deadline := time.Now().Add(s.grace() + 15*time.Second)
	for _, c := range s.fleet {
		if err := c.Ended(time.Until(deadline)); err != nil {
			r.Failures = append(r.Failures, check.Failure{Check: check.Waiting, T: history.Now(), What: err.Error()})
		}
	}
	if err := s.read(); err != nil {
		return err
	}
	rules := s.rules()
	rules.Drained = true
	left, err := s.leftovers(ctx)
	if err != nil {
		return err
	}
	final, err := s.work.Final(ctx)
	if err != nil {
		return err
	}
	found, undecided := check.Ended(s.events, final, rules, patience)
	r.Failures = append(append(r.Failures, found...), left...)
	r.Undecided = undecided
	r.Unprotected = check.Unprotected(final)
	return nil
}
