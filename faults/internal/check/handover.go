package check

import (
	"slices"
	"time"
)

// idles looks for names, or permits, that were released and then idle although a client
// waited. If a release or a grant gets lost, the next waiter waits for an expiry, about a
// TTL. Only times without faults count, and in which nobody waited for several names: such a
// call may have the name already.
func idles(r *run) []Failure {
	var found []Failure
	byName, several := r.waiters("wait"), r.waiters("all")
	margin := int64(r.rules.Grace)
	for name, leases := range r.names {
		last := latest{n: 1} // when the last ones were over, as far as is known
		for i, l := range leases[:max(0, len(leases)-1)] {
			if l.permit {
				last.n = r.rules.Permits
			}
			if l.unlockedWell {
				last.add(r.freeFrom(l))
			} else { // it expires, or is freed in the background
				last.add(l.claimed() + margin)
			}
			next, over := leases[i+1], max(l.ret, last.least())
			if next.ret-over < int64(r.rules.TTL)*4/5 || !r.faultFree(over-margin, next.ret) || during(several[name], over, next.ret) {
				continue
			}
			if w := waiter(byName[name], over-int64(100*time.Millisecond), next.ret); w != nil {
				found = append(found, fail(Waiting, next.ret, "%q: %s waited, and nobody had it for %.0f ms from %d on",
					name, w.ID, float64(next.ret-over)/1e6, over))
			}
		}
	}
	return found
}

// freeFrom returns when the name of a lease that was unlocked is free at the latest.
func (r *run) freeFrom(l *lease) int64 {
	from, o := l.unlocked, &l.options
	if o.MinHold > 0 {
		from = max(from, r.grantedAt(l)+o.MinHold)
	}
	if l.detached {
		from = max(from, l.unlocked+max(o.TTL, o.MinHold))
	}
	return from
}

// faultFree reports that no fault was active between two times, and the machine kept up.
func (r *run) faultFree(from, to int64) bool {
	return !r.anyFault(from, to) && !slices.ContainsFunc(r.busy, func(b span) bool { return b.from < to && b.to > from })
}

// anyFault reports that a fault was active between two times.
func (r *run) anyFault(from, to int64) bool {
	return slices.ContainsFunc(r.faults, func(f *fault) bool { return f.from < to && f.to > from })
}

// waiter returns a client that waited during the whole time, or nil.
func waiter(all []wait, from, to int64) *wait {
	for i := range all {
		if w := &all[i]; w.T <= from && w.ret >= to {
			return w
		}
	}
	return nil
}

// latest are the n latest times of many.
type latest struct {
	n     int
	times []int64 // in their order
}

func (l *latest) add(t int64) {
	i, _ := slices.BinarySearch(l.times, t)
	l.times = slices.Insert(l.times, i, t)
	if len(l.times) > l.n {
		l.times = l.times[1:]
	}
}

// least is the first of them, 0 if there are fewer.
func (l *latest) least() int64 {
	if len(l.times) < l.n {
		return 0
	}
	return l.times[0]
}

// during reports that one of the calls was under way at any time from one to another.
func during(calls []wait, from, to int64) bool {
	return slices.ContainsFunc(calls, func(w wait) bool { return w.T < to && w.ret > from })
}
