package check

import (
	"slices"
	"time"

	"github.com/sqllock/sqllock/faults/internal/history"
)

// options looks for options that were not kept to: a name that was granted before the MinHold, the
// LockDelay or the detached term of another was over; a Value that another one replaced; a permit of
// a semaphore that has another number of them.
func options(r *run) []Failure {
	if !r.rules.certain() {
		return nil
	}
	var found []Failure
	adoptions := make(map[string]int64) // when the first call to adopt a term began
	for _, e := range r.events {
		switch {
		case e.Op != history.Lock:
		case !e.Ret && e.From != "" && adoptions[e.From] == 0:
			adoptions[e.From] = e.T
		case e.Ret && e.Reason == history.Mismatch && (e.Err == "" || e.OK):
			found = append(found, fail(Options, e.T, "%q: %s got the answer %q, and the semaphore has another number of permits", e.Name, e.ID, e.Err))
		}
	}
	for _, leases := range r.names {
		for i, l := range leases {
			for _, k := range r.keeps(l, adoptions[l.id]) {
				found = append(found, k.broken(l, leases[i+1:])...)
			}
		}
	}
	return append(found, r.values()...)
}

// promise is that a name is granted to nobody before a time.
type promise struct {
	option string
	until  int64
	all    bool // also to those who could hold beside the lease
}

// keeps returns what a lease keeps its name for. adoption is when somebody began to adopt its term,
// 0 if nobody has.
func (r *run) keeps(l *lease, adoption int64) (all []promise) {
	if o := &l.options; o.MinHold > 0 && !l.detached {
		all = append(all, promise{"MinHold", r.grantedAt(l) + o.MinHold, true})
	}
	if until, ok := r.delayed(l); ok {
		all = append(all, promise{"LockDelay", until, false})
	}
	if o := &l.options; l.detached && o.MaxHold == 0 {
		until := l.unlock + o.TTL
		if adoption != 0 {
			until = min(until, adoption)
		}
		all = append(all, promise{"the detached term", until, true})
	}
	for i := range all {
		all[i].until -= apart * 1000
	}
	return all
}

// delayed returns when the LockDelay of a lease is over that nobody has unlocked in time.
func (r *run) delayed(l *lease) (until int64, ok bool) {
	if l.options.Delay == 0 || !l.seen() || l.owner == "" { // of several leases together, one may be lost and another one not
		return 0, false
	}
	for _, look := range l.looks {
		if look.OK {
			until = max(until, look.T+look.Left)
		}
	}
	if l.unlock < until || l.done != nil && l.done.T < until-scheduling {
		return 0, false // it has ended otherwise
	}
	return until + l.options.Delay, true
}

// broken returns the grants that came before.
func (k promise) broken(l *lease, later []*lease) (found []Failure) {
	for _, next := range later {
		if next.ret >= k.until {
			break
		}
		if next.token > l.token && next.from != l.id && (k.all || excludes(l, next)) {
			found = append(found, fail(Options, next.ret, "%q: %s got it with token %d, %.1f ms before %s of %s with token %d was over",
				l.name, next.id, next.token, float64(k.until-next.ret)/1e6, k.option, l.id, l.token))
		}
	}
	return found
}

// values compares the Value that a holder reads with its own.
func (r *run) values() []Failure {
	var found []Failure
	for _, e := range r.events {
		l := r.leases[e.Lease]
		if e.Op != history.Inspect || !e.Ret || e.Err != "" || e.Options == nil || l == nil || l.permit || e.Owner != l.owner || e.Token != l.token {
			continue
		}
		if e.Options.Value != l.options.Value {
			found = append(found, fail(Options, e.T, "%q: the Value of %s is %q, and not %q", l.name, l.id, e.Options.Value, l.options.Value))
		}
	}
	return found
}

// short looks for leases that were lost although nothing had happened to their holders, but for one
// outage that took half of their TTL at most.
func short(r *run) []Failure {
	if !r.rules.certain() {
		return nil
	}
	var found []Failure
	for _, leases := range r.names {
		for _, l := range leases {
			if outage, ok := r.survivable(l); ok {
				found = append(found, fail(Loss, l.done.T, "%q: %s with a TTL of %v was lost through an outage of %v, and no other fault: %s",
					l.name, l.id, time.Duration(l.options.TTL), time.Duration(outage), l.done.Reason))
			}
		}
	}
	return found
}

// leastOwn is the TTL from which on a machine with other work to do keeps a lease through an
// outage. A process that stops in the middle of a transaction locks a row for up to the time of a
// statement, a third of its own TTL: leastWithOthers is the TTL that survives that, too.
const (
	leastOwn        = 2e9
	leastWithOthers = 5e9
)

// survivable reports that a lease was lost of which this is no explanation, and how long the outage was.
func (r *run) survivable(l *lease) (outage int64, ok bool) {
	ttl := l.options.TTL
	if l.done == nil || !l.done.Lost || !unanswered[l.done.Reason] || l.done.Late > scheduling || ttl < leastOwn || l.options.MaxHold != 0 {
		return 0, false
	}
	from, others := l.done.T-ttl, false
	for _, b := range r.busy {
		if b.from < l.done.T && b.to > from && !r.inOutage(b) {
			return 0, false
		}
	}
	for _, f := range r.faults {
		switch {
		case f.from >= l.done.T || f.to <= from:
		case !f.hits(l.proc):
			others = true
		case f.kind != Outage || outage != 0 || f.to == never:
			return 0, false
		default:
			outage = f.to - f.from
		}
	}
	if (others || outage == 0) && ttl < leastWithOthers {
		return 0, false
	}
	return outage, outage <= ttl/2
}

// inOutage reports that the server was slow because it stood still.
func (r *run) inOutage(b span) bool {
	return slices.ContainsFunc(r.faults, func(f *fault) bool {
		return f.kind == Outage && f.proc == "" && b.from < f.to && b.to > f.from && b.to < f.to+2*scheduling
	})
}

// unanswered are the reasons of losses that an outage can have.
var unanswered = map[string]bool{
	"not renewed before its deadline": true, "the database did not answer in time": true, "no connection to renew it was to be had in time": true,
}
