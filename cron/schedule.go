package cronlock

import (
	"fmt"
	"time"

	"github.com/robfig/cron/v3"

	"github.com/sqllock/sqllock"
)

// Every returns the schedule of the multiples of d since the zero time, which are the same in all
// processes. Those of cron.Every are not. It returns [sqllock.ErrInvalidOption] if d is not
// positive.
func Every(d time.Duration) (cron.Schedule, error) {
	if d <= 0 {
		return nil, fmt.Errorf("cronlock: %w: Every(%v): must be positive", sqllock.ErrInvalidOption, d)
	}
	return every(d), nil
}

type every time.Duration

var _ cron.Schedule = every(0)

// Next implements [cron.Schedule].
func (e every) Next(t time.Time) time.Time {
	d := time.Duration(e)
	return t.Truncate(d).Add(d)
}

const (
	// early is how much before its time a job may begin: a clock that is set in small steps can be
	// a little behind the timer.
	early = 100 * time.Millisecond
	// longestPause is how far back latest looks: two leap years can be eight years apart.
	longestPause = 9 * 366 * 24 * time.Hour
)

// latest returns the latest time of a schedule that is not after now, or the zero time. It looks
// back further and further, because a schedule only tells which time is next.
func latest(s cron.Schedule, now time.Time) (found time.Time) {
	for back := 2 * time.Second; found.IsZero() && back < 4*longestPause; back *= 4 {
		for next := s.Next(now.Add(-back)); !next.IsZero() && !next.After(now); next = s.Next(next) {
			found = next
		}
	}
	return found
}
