package check

import "github.com/sqllock/sqllock/faults/internal/history"

// clock converts between the clock of the history and that of the database, in µs, which is that of
// the machine.
type clock map[int64]int64 // by second: by how many µs the database is ahead at most

// clockOf compares the two clocks where an event has both times. A process may be interrupted after
// it has read the first and before it reads the second: the least difference is the right one.
func clockOf(events []history.Event) clock {
	c := make(clock)
	for _, e := range events {
		if e.Wall == 0 {
			continue
		}
		ahead, second := e.Wall-e.T/1000, e.T/1e9
		if least, ok := c[second]; !ok || ahead < least {
			c[second] = ahead
		}
	}
	return c
}

// ahead returns the difference at a time.
func (c clock) ahead(t int64) (ahead int64, ok bool) {
	for second := t/1e9 - 1; second <= t/1e9+1; second++ {
		if a, there := c[second]; there && (!ok || a < ahead) {
			ahead, ok = a, true
		}
	}
	return ahead, ok
}

// apart is by how much the clocks may be compared wrongly, in µs. That of SQLite has milliseconds only.
const apart = 3000

// wall returns the time of the database's clock, in µs.
func (c clock) wall(t int64) (wall int64, ok bool) {
	ahead, ok := c.ahead(t)
	return t/1000 + ahead, ok
}

// granted returns when a lease was granted, or the earliest time of that: the token of an exclusive
// lease, or of a permit, is that time on the clock of the database.
func (r *run) grantedAt(l *lease) int64 {
	ahead, ok := r.clock.ahead(l.ret)
	at := (l.token - ahead) * 1000
	if !ok || l.shared || at < l.call || at > l.ret {
		return l.call
	}
	return at
}
