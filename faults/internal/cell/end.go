//go:build linux

package cell

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/sqllock/sqllock/faults/internal/check"
	"github.com/sqllock/sqllock/faults/internal/fleet"
	"github.com/sqllock/sqllock/faults/internal/history"
)

// orderTimeout is how long the search for an order may take for each name.
const orderTimeout = 10 * time.Second

// drain lets the clients end in order.
func (s *site) drain() (found []check.Failure, err error) {
	for _, c := range s.fleet {
		if err := c.Drain(); errors.Is(err, fleet.ErrEnded) {
			return []check.Failure{exited(err)}, nil
		} else if err != nil {
			return nil, fmt.Errorf("client %s: %w", c.Proc(), err)
		}
	}
	began := time.Now()
	for _, c := range s.fleet {
		for !c.HasEnded() && s.mayWait(began) {
			time.Sleep(20 * time.Millisecond)
		}
		if err := c.Ended(time.Millisecond); errors.Is(err, fleet.ErrEnded) {
			found = append(found, exited(err))
		} else if err != nil {
			found = append(found, check.Failure{Check: check.Waiting, T: history.Now(), What: err.Error()})
		}
	}
	return found, nil
}

// mayWait reports whether clients that were ordered to end when it began may need more
// time. Each of them may wait for the lease of a dead client and then hold the name for a
// while. A server with many new connections must answer first.
func (s *site) mayWait(began time.Time) bool {
	sinceSlow := time.Since(began)
	if slow := s.slow.Load(); slow > 0 {
		sinceSlow = min(sinceSlow, time.Duration(history.Now()-slow))
	}
	return sinceSlow < s.grace()+15*time.Second && time.Since(began) < 3*time.Minute
}

// end judges the whole history.
func (s *site) end(ctx context.Context, r *Result) error {
	if err := s.readChanges(ctx); err != nil {
		return err
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
	found, unordered := check.Ended(s.events, final, rules, orderTimeout)
	r.Failures = append(append(r.Failures, found...), left...)
	r.Lines, r.Unordered = len(s.lines()), unordered
	r.Replayed = check.Again(s.events, rules)
	r.Failures = append(r.Failures, r.TooLittle(rules, check.Count(s.events, rules).Acquisitions)...)
	if s.Strict {
		r.Failures = append(r.Failures, r.Unexplained...)
	}
	r.Unprotected = check.Unprotected(final)
	r.Failures = append(r.Failures, s.tooLittle()...)
	return nil
}
