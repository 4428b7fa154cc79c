package monitor

import "github.com/sqllock/sqllock"

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
