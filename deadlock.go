package sqllock

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/sqllock/sqllock/driver"
)

// cycles looks for deadlocks while a waiter of this Locker holds something. Guarded by
// tickets.mu.
type cycles struct {
	next time.Duration
	busy bool
}

// A waiter that holds something is looked after when it has waited for a while, and
// then again and again: a cycle may close later, by somebody who came before.
const (
	firstCycleLook = 150 * time.Millisecond
	cycleLooks     = 300 * time.Millisecond
)

// look looks if it is time to, and returns when to do so again; the caller holds mu.
func (c *cycles) look(t *tickets, now time.Duration) (at time.Duration) {
	oldest := never
	for _, x := range t.all {
		if len(x.req.Carries) > 0 && x.told {
			oldest = min(oldest, x.entered)
		}
	}
	switch {
	case oldest == never, c.busy:
		return never
	case now < max(oldest+firstCycleLook, c.next):
		return max(oldest+firstCycleLook, c.next)
	}
	c.busy, c.next = true, now+cycleLooks
	t.l.gate.resume()
	t.wg.Go(func() {
		defer t.l.gate.leave()
		t.breakCycles()
	})
	return never
}

// breakCycles ends the waits of this Locker that are the youngest of a cycle.
func (t *tickets) breakCycles() {
	ctx, cancel := context.WithTimeout(t.l.base, t.l.cfg.timeout(t.l.cfg.ttl))
	defer cancel()
	waits, err := t.mode.waits(ctx)
	t.mu.Lock()
	defer t.mu.Unlock()
	t.cycles.busy = false
	t.kick()
	if err != nil { // the next look may get through
		return
	}
	for acq, x := range t.all {
		if cycle := findCycle(waits, acq); cycle != nil && youngest(cycle).Acq == acq {
			t.fail(x, fmt.Errorf("%w: %s", ErrDeadlock, describe(cycle)))
		}
	}
}

// findCycle returns the waits by which the one of acq waits for itself, that one
// first, or nil if it does not.
func findCycle(waits []driver.Wait, acq driver.ID) []driver.Wait {
	start := slices.IndexFunc(waits, func(w driver.Wait) bool { return w.Acq == acq })
	if start < 0 {
		return nil
	}
	seen := make([]bool, len(waits))
	var path []driver.Wait
	var visit func(i int) bool
	visit = func(i int) bool {
		path = append(path, waits[i])
		for j := range waits {
			switch {
			case !blocks(&waits[j], &waits[i]):
			case j == start:
				return true
			case !seen[j]:
				seen[j] = true
				if visit(j) {
					return true
				}
			}
		}
		path = path[:len(path)-1]
		return false
	}
	if visit(start) {
		return path
	}
	return nil
}

// blocks reports whether b carries what w waits for. Who stands before w in line waits
// for the same.
func blocks(b, w *driver.Wait) bool {
	return slices.ContainsFunc(w.Holders, func(holder driver.ID) bool { return slices.Contains(b.Carries, holder) })
}

func youngest(cycle []driver.Wait) driver.Wait {
	return slices.MaxFunc(cycle, func(a, b driver.Wait) int {
		return cmp.Or(cmp.Compare(a.Since, b.Since), bytes.Compare(a.Acq[:], b.Acq[:]))
	})
}

// describe says who waits for what.
func describe(cycle []driver.Wait) string {
	var b strings.Builder
	for i, w := range cycle {
		if i > 0 {
			b.WriteString(", ")
		}
		fmt.Fprintf(&b, "%q waits for %q", w.Label, w.Name)
	}
	b.WriteString(", which the first holds")
	return b.String()
}
