package check

import (
	"slices"
	"time"
)

// idles looks for names that were released and then idle although a client waited. If a
// release or a grant gets lost, the next waiter waits for an expiry, about a TTL. Only
// times without faults count.
func idles(r *run) []Failure {
	var found []Failure
	byName := r.waiters()
	margin := int64(r.rules.Grace)
	for name, leases := range r.names {
		over := int64(0) // when the last one was, as far as is known
		for i, l := range leases[:max(0, len(leases)-1)] {
			if l.unlockedWell {
				over = max(over, l.unlocked)
			} else { // it expires, or is freed in the background
				over = max(over, l.claimed()+margin)
			}
			next := leases[i+1]
			if next.ret-over < int64(r.rules.TTL)*4/5 || !r.faultFree(over-margin, next.ret) {
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
