package check

import (
	"time"

	"github.com/sqllock/sqllock/faults/internal/history"
)

// resumes is within which time after an outage a lease is renewed: the longest pause between two
// tries, and time for a busy machine.
const resumes = 2 * time.Second

// outages returns the times in which the server took no writes. Those between which nobody had the
// time to renew are one.
func (r *run) outages() (all []span) {
	open := false
	for _, e := range r.events {
		if e.Op != history.Outage {
			continue
		}
		last := len(all) - 1
		switch {
		case e.Ret && open:
			all[last].to, open = e.T, false
		case !e.Ret && last >= 0 && e.T-all[last].to < int64(resumes):
			all[last].to, open = never, true
		case !e.Ret:
			all, open = append(all, span{e.T, never}), true
		}
	}
	return all
}

// longestFor returns the longest outage that a TTL must be long enough for, see docs/operations.md.
func longestFor(ttl time.Duration) time.Duration { return (ttl - 5*time.Second) * 2 / 3 }

// keeps looks for leases that were lost in an outage for which their TTL was long enough.
func keeps(r *run) (found []Failure) {
	outages := r.outages()
	for _, e := range r.events {
		if e.Op != history.Kept || !e.Lost {
			continue
		}
		longest := time.Duration(0)
		for _, o := range outages {
			if to := min(o.to, e.T); o.from < e.T && to > e.T-e.N {
				longest = max(longest, time.Duration(to-o.from))
			}
		}
		if ttl := time.Duration(e.N); longest <= longestFor(ttl) {
			found = append(found, fail(Kept, e.T, "%q of %s: a lease with a TTL of %v was lost (%s), and no outage was longer than %v",
				e.Name, e.Proc, ttl, e.Reason, longest))
		}
	}
	return found
}
