package monitor

import (
	"context"

	"github.com/sqllock/sqllock"
)

// Counted reads all names anew, and returns how much was counted since the reading before.
func (s *Sampler) Counted(ctx context.Context) (grants, handOvers float64, err error) {
	before := s.last
	if err := s.read(ctx); err != nil || !s.last.Rates {
		return 0, 0, err
	}
	since := s.last.at.Sub(before.at).Seconds()
	return s.last.Grants * since, s.last.HandOvers * since, nil
}

// Losses are those that are seen in what a name looks like, time after time.
func Losses(seen []sqllock.Info) (what []string) {
	var was sampled
	for i := range seen {
		if l, ok := was.loss(&seen[i]); ok {
			what = append(what, l.What)
		}
		was = was.remember(&seen[i])
	}
	return what
}
