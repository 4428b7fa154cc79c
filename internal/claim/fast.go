package claim

import (
	"math"

	"github.com/sqllock/sqllock/driver"
)

// The operations below look at one row only, so that a driver runs each of them as one
// statement: an UPDATE whose WHERE is the condition.

// Grant grants a name alone if nobody holds it or waits for it. It reports false, and
// changes nothing, if the name needs a [Visit].
func (r *Row) Grant(q *Request, now int64) bool {
	if r.Acq != (driver.ID{}) || r.Waiting != 0 || r.Holding != 0 || r.NotBefore > now || r.Version == math.MaxInt64 {
		return false
	}
	r.Version = max(r.Version+1, now, q.Floor)
	r.Party, r.Holds, r.Since, r.Ended = q.Party, 1, now, NotEnded
	r.Expires, r.Limit, r.Delay = now+q.TTL, 0, q.Delay
	if q.MaxHold > 0 {
		r.Limit = now + q.MaxHold + q.Delay
		r.Expires = min(r.Expires, r.Limit)
	}
	return true
}

// Free ends an exclusive term that nobody waits for and no transaction may guard. It
// reports false, and changes nothing, if the term is over or needs a [Visit].
func (r *Row) Free(acq driver.ID, token, minHold, now int64) bool {
	return r.Waiting == 0 && r.End(acq, token, minHold, now)
}

// End ends an exclusive term that no other transaction guards. It is for a transaction of
// the application, which may see the claims as they were long before: it asks nothing of
// them and changes no count. If somebody waits, the next visit serves the queue. End reports
// false, and changes nothing, if the term is over.
func (r *Row) End(acq driver.ID, token, minHold, now int64) bool {
	if r.Acq != acq || r.Version != token {
		return false
	}
	if kept := r.Since + minHold; minHold > 0 && kept > now { // Since lies ahead if the clock went back
		r.NotBefore = max(r.NotBefore, kept)
	}
	r.Party, r.Holds = Party{}, 0
	r.Expires, r.Limit, r.Delay = min(r.Expires, now), 0, 0
	r.Ended = Released
	return true
}

// Renew extends an exclusive term. It never shortens it, and never revives one that has
// expired.
func (r *Row) Renew(acq driver.ID, token, ttl int64, holds int, now int64) bool {
	if r.Acq != acq || r.Version != token || r.Expires <= now {
		return false
	}
	r.Expires, r.Holds = extended(r.Expires, now+ttl, r.Limit), holds
	return true
}

// Renew is [Row.Renew] for a claim that holds.
func (c *Claim) Renew(token, ttl int64, holds int, now int64) bool {
	if c.State != Holding || c.Token != token || c.Expires <= now {
		return false
	}
	c.Expires, c.Holds = extended(c.Expires, now+ttl, c.Limit), holds
	return true
}

// extended returns the later of two ends of a term, but none beyond its limit.
func extended(expires, to, limit int64) int64 {
	if limit != 0 {
		to = min(to, limit)
	}
	return max(expires, to)
}
