package check

import (
	"time"

	"github.com/sqllock/sqllock/faults/internal/history"
)

// scheduling is how late a context may end on a machine that has nothing else to do, and
// waking how late after a process was woken.
const (
	scheduling = 50e6
	waking     = 100e6
)

// deadlines looks for contexts that ended later than Remaining promised.
func deadlines(r *run) []Failure {
	answers := r.answers()
	var found []Failure
	for _, leases := range r.names {
		for _, l := range leases {
			if f, late := r.late(l); late {
				found = append(found, f)
			}
			if f, long := r.long(l); long && len(answers[r.acquired(l)]) == 0 {
				found = append(found, f)
			}
			if f, beyond := r.beyond(l); beyond {
				found = append(found, f)
			}
		}
	}
	return append(found, r.trusts(answers)...)
}

// late judges the last look before the end: a renewal that came later would have moved
// the deadline, and only if it is as fresh as this can none have come.
func (r *run) late(l *lease) (Failure, bool) {
	if l.done == nil || !l.done.Lost {
		return Failure{}, false
	}
	last := l.lastBefore(l.done.T)
	if last == nil {
		return Failure{}, false
	}
	deadline := last.Until + last.Left
	allowed := deadline + scheduling
	if woken := r.woken(l.proc, deadline, l.done.T); woken > 0 {
		allowed = max(allowed, woken+waking)
	} else if l.done.T-last.T > l.options.TTL/3 && last.Left > l.options.TTL/3 {
		return Failure{}, false // not fresh
	}
	allowed += 2 * l.done.Late // the delay of the timer, and the delay of the goroutine that waits for the context
	if l.done.T <= allowed {
		return Failure{}, false
	}
	return fail(Deadline, l.done.T, "%q: the context of %s ended %.1f ms after its deadline, with %.1f ms of scheduling",
		l.name, l.id, float64(l.done.T-deadline)/1e6, float64(l.done.Late)/1e6), true
}

// long checks the first look at a lease in a row. The row was granted when its token was
// drawn, at a time of the database's clock, and expires a TTL later. A client that did
// not wait got the row with its own request, without a renewal in between. If the reply to a first
// request was lost, a second one finds the grant and renews it; but not so soon, on a machine with
// nothing else to do. What the database has answered says more, where it is known.
func (r *run) long(l *lease) (Failure, bool) {
	if r.rules.Sessions || r.rules.Unsteady || l.kind != "try" || l.shared || len(l.looks) == 0 {
		return Failure{}, false
	}
	look, ttl := l.looks[0], l.options.Trusted()
	if l.age < 0 || look.T-l.ret+int64(l.age) > min(ttl, int64(r.rules.TTL))/4 || look.Left <= ttl-int64(l.age) {
		return Failure{}, false
	}
	return fail(Deadline, look.T, "%q: %s, whose token is %v old, says %v of %v remain",
		l.name, l.id, l.age, time.Duration(look.Left), time.Duration(ttl)), true
}

// beyond looks for a lease that is trusted beyond its MaxHold. That counts from before the grant.
func (r *run) beyond(l *lease) (Failure, bool) {
	if l.options.MaxHold == 0 {
		return Failure{}, false
	}
	for _, look := range l.looks {
		if over := look.T + look.Left - l.ret - l.options.MaxHold; look.OK && over > 0 {
			return fail(Deadline, look.T, "%q: %s is trusted for %.1f ms longer than its MaxHold of %v", l.name, l.id, float64(over)/1e6, time.Duration(l.options.MaxHold)), true
		}
	}
	return Failure{}, false
}

// lastBefore returns the last look that reported a held lease.
func (l *lease) lastBefore(t int64) *history.Event {
	for i := len(l.looks) - 1; i >= 0; i-- {
		if look := &l.looks[i]; look.T < t && look.OK && look.Left > 0 {
			return look
		}
	}
	return nil
}

// woken returns when a process was woken from a pause that was not over at from and
// had begun before to; 0 if there was none.
func (r *run) woken(proc string, from, to int64) int64 {
	var woken int64
	for _, f := range r.faults {
		if f.kind == Pause && f.hits(proc) && f.from < to && f.to > from {
			woken = max(woken, min(f.to, to))
		}
	}
	return woken
}

// losses looks for leases that contradict themselves.
func losses(r *run) []Failure {
	var found []Failure
	for _, leases := range r.names {
		for _, l := range leases {
			found = append(found, r.contradictions(l)...)
		}
	}
	return found
}

func (r *run) contradictions(l *lease) []Failure {
	var found []Failure
	lost := int64(never) // since when it is known
	if l.done != nil && l.done.Lost {
		lost = l.done.T
	}
	for _, look := range l.looks {
		if look.Until >= l.unlock {
			break // between the two questions the answer may have changed
		}
		switch {
		case look.OK && look.Left <= 0:
			found = append(found, fail(Loss, look.T, "%q: of %s Remaining says %d ns, and then Err says nothing", l.name, l.id, look.Left))
		case look.Left > l.options.Trusted():
			found = append(found, fail(Loss, look.T, "%q: of %s Remaining says %d ns, longer than the TTL", l.name, l.id, look.Left))
		case look.OK && look.T > lost:
			found = append(found, fail(Loss, look.T, "%q: %s was lost and is not any more", l.name, l.id))
		case !look.OK:
			lost = min(lost, look.Until)
		}
	}
	if l.unlockedWell && lost < l.unlock {
		found = append(found, fail(Loss, l.unlocked, "%q: Unlock of %s tells nothing of its loss", l.name, l.id))
	}
	return found
}
