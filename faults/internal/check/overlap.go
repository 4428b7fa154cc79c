package check

import "slices"

// overlaps looks for two clients that held at the same time, by their looks or by the
// promise of Remaining.
func overlaps(r *run) []Failure {
	var found []Failure
	for _, leases := range r.names {
		found = append(found, r.collide(Overlap, leases, (*lease).believed)...)
		found = append(found, r.collide(Remaining, leases, r.claimed)...)
		found = append(found, r.tooMany(Overlap, leases, (*lease).believed)...)
		found = append(found, r.tooMany(Remaining, leases, r.claimed)...)
	}
	return found
}

// claimed is the time that a lease claims, until its process dies. In the session modes
// the death of the process releases its names. In unique mode it does not.
func (r *run) claimed(l *lease) int64 {
	until := l.claimed()
	if r.rules.Sessions {
		until = min(until, r.killed(l.proc))
	}
	return until
}

// collide looks for leases that were acquired before the end of another one. They come
// in the order in which they were.
func (r *run) collide(check string, leases []*lease, end func(*lease) int64) []Failure {
	type held struct {
		*lease
		end int64
	}
	var found []Failure
	var open []held
	for _, l := range leases {
		open = slices.DeleteFunc(open, func(h held) bool { return h.end <= l.ret })
		this := held{l, end(l)}
		for _, h := range open {
			if this.end > l.ret && excludes(h.lease, l) && !r.excused(h.lease) && !r.excused(l) {
				found = append(found, fail(check, l.ret,
					"%q: %s got it with token %d (at %d), %.1f ms before the end of %s with token %d (acquired at %d)",
					l.name, l.id, l.token, l.ret, float64(min(h.end, this.end)-l.ret)/1e6, h.id, h.token, h.ret))
			}
		}
		open = append(open, this)
	}
	return found
}

// tooMany looks for more permits that were held at the same time than there are. The leases come in
// the order in which they were acquired.
func (r *run) tooMany(check string, leases []*lease, end func(*lease) int64) []Failure {
	var found []Failure
	eachPermit(leases, end, func(l *lease, held int) {
		if held > r.rules.Permits && !r.excused(l) {
			found = append(found, fail(check, l.ret, "%q: %s got slot %d with token %d (at %d), and now %d have a permit of %d",
				l.name, l.id, l.slot, l.token, l.ret, held, r.rules.Permits))
		}
	})
	return found
}

// eachPermit says of each permit how many were held, with it, when it was acquired.
func eachPermit(leases []*lease, end func(*lease) int64, tell func(l *lease, held int)) {
	var open []*lease
	for _, l := range leases {
		if !l.permit {
			continue
		}
		open = slices.DeleteFunc(open, func(other *lease) bool { return end(other) <= l.ret })
		if end(l) > l.ret {
			open = append(open, l)
		}
		tell(l, len(open))
	}
}
