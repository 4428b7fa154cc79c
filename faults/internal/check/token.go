package check

import (
	"cmp"
	"slices"

	"github.com/sqllock/sqllock/faults/internal/history"
)

// tokens looks for tokens that were drawn twice, and for tokens that are not higher than
// the tokens drawn before the call.
func tokens(r *run) []Failure {
	var found []Failure
	for _, leases := range r.names {
		found = append(found, repeated(leases)...)
		found = append(found, r.fallen(leases)...)
	}
	return found
}

// repeated looks for terms with the same token. Leases that share a term have the same
// token.
func repeated(leases []*lease) []Failure {
	var found []Failure
	first := make(map[int64]*lease)
	for _, l := range leases {
		if other := first[l.token]; other == nil {
			first[l.token] = l
		} else if !l.shared || !other.shared {
			found = append(found, fail(Token, l.ret, "%q: %s and %s both have %d", l.name, other.id, l.id, l.token))
		}
	}
	return found
}

// fallen compares each token with the highest ones that were known when Lock was called.
func (r *run) fallen(leases []*lease) []Failure {
	calls := slices.Clone(leases)
	slices.SortFunc(calls, func(a, b *lease) int { return cmp.Compare(a.call, b.call) })
	var found []Failure
	var highest, highestAlone int64
	next := 0
	for _, l := range calls {
		for ; next < len(leases) && leases[next].ret < l.call; next++ {
			highest = max(highest, leases[next].token)
			if !leases[next].shared {
				highestAlone = max(highestAlone, leases[next].token)
			}
		}
		low := l.token < highest || l.token <= highestAlone
		if !l.shared {
			low = l.token <= highest
		}
		if low && !r.revived(l) {
			found = append(found, fail(Token, l.ret, "%q: %s has %d, after %d was there", l.name, l.id, l.token, highest))
		}
	}
	return found
}

// reentries compares re-entered leases with the lease in the context.
func reentries(r *run) []Failure {
	var found []Failure
	for _, e := range r.events {
		l := r.leases[e.Lease]
		if e.Op != history.Enter || !e.Ret || e.Err != "" || l == nil {
			continue
		}
		if e.Token != l.token || e.Owner != l.owner {
			found = append(found, fail(Reentry, e.T, "%q: %s entered token %d of %q instead of %d", l.name, l.id, e.Token, e.Owner, l.token))
		}
	}
	return found
}
