package sqllock

import (
	"context"
	"slices"
	"time"

	"github.com/sqllock/sqllock/driver"
	"github.com/sqllock/sqllock/internal/quorum"
)

// Release frees terms on all nodes. What does not answer is released in the background.
func (q *quorumBackend) Release(ctx context.Context, reqs []driver.ReleaseRequest) ([]driver.ReleaseResult, error) {
	if len(reqs) > 0 && reqs[0].To != (driver.ID{}) {
		return nil, errQuorumTx
	}
	r := &quorumRelease{call: q.newCall(), q: q, reqs: reqs, terms: make([]*quorumTerm, len(reqs))}
	for k := range reqs {
		r.terms[k] = q.term(reqs[k].Acq)
	}
	for i := range q.nodes {
		r.send(i)
	}
	defer r.call.finish()
	if err := r.call.wait(ctx, r.decided); err != nil {
		return nil, err
	}
	return r.result()
}

// quorumRelease is one call of Release.
type quorumRelease struct {
	call  *quorumCall
	q     *quorumBackend
	reqs  []driver.ReleaseRequest
	terms []*quorumTerm // nil where there is none
}

// send releases on one node what it keeps.
func (r *quorumRelease) send(i int) {
	var reqs []driver.ReleaseRequest
	var terms []*quorumTerm
	n := r.q.nodes[i]
	r.q.mu.Lock()
	for k, t := range r.terms {
		if t == nil || t.freed[i] == quorum.Yes {
			continue
		}
		t.ended = true // what is granted from now on is released
		if !t.answered[i] {
			t.freed[i] = quorum.Missing
			r.sendAfterGrant(i, t, r.reqs[k])
			continue
		}
		if t.freed[i] = quorum.No; t.doubtful[i] {
			t.freed[i] = quorum.Unknown
		}
		if t.doubtful[i] || t.versions[i] != 0 && r.reqs[k].Version == 0 {
			n.releaseLater(t, r.reqs[k].MinHold, max(t.req.TTL, r.q.ttl))
		}
		if t.versions[i] != 0 {
			reqs, terms = append(reqs, t.release(i, r.reqs[k])), append(terms, t)
			t.freed[i] = quorum.Missing
			t.retried[i] = t.retried[i] || t.freeing[i] // the earlier one may free it, and answer later
			t.freeing[i] = true
		}
	}
	r.q.mu.Unlock()
	if len(reqs) == 0 {
		return
	}
	var res []driver.ReleaseResult
	r.call.send(n, func(ctx context.Context, s driver.NodeStore) (err error) {
		res, err = s.Release(ctx, reqs)
		return err
	}, func(err error) {
		r.q.mu.Lock()
		defer r.q.mu.Unlock()
		for m, t := range terms {
			t.freeing[i] = false
			r.note(i, t, reqs[m].MinHold, err == nil && res[m].Freed, err)
		}
	})
}

// release is the request that releases on one node what it keeps.
func (t *quorumTerm) release(i int, req driver.ReleaseRequest) driver.ReleaseRequest {
	req.Acq, req.Version, req.Guarded, req.Awaited, req.Settle = t.req.Acq, t.versions[i], false, false, false
	return req
}

// sendAfterGrant releases a name on a node that was not needed to grant it, and has not answered
// yet: as soon as it has. The caller holds the lock of the backend.
func (r *quorumRelease) sendAfterGrant(i int, t *quorumTerm, req driver.ReleaseRequest) {
	answered := t.awaited[i]
	if answered == nil {
		answered = make(chan struct{})
		if t.awaited == nil {
			t.awaited = make(map[int]chan struct{})
		}
		t.awaited[i] = answered
	}
	keeps, freed := false, false
	r.call.send(r.q.nodes[i], func(ctx context.Context, s driver.NodeStore) error {
		select {
		case <-answered:
		case <-ctx.Done():
			return ctx.Err()
		}
		r.q.mu.Lock()
		req := t.release(i, req)
		if keeps = req.Version != 0; keeps {
			t.retried[i] = t.retried[i] || t.freeing[i]
			t.freeing[i] = true
		}
		r.q.mu.Unlock()
		if !keeps { // it has refused the name, or its reply is lost
			return nil
		}
		res, err := s.Release(ctx, []driver.ReleaseRequest{req})
		freed = err == nil && res[0].Freed
		return err
	}, func(err error) {
		r.q.mu.Lock()
		defer r.q.mu.Unlock()
		if t.freeing[i] = t.freeing[i] && !keeps; keeps || err != nil {
			r.note(i, t, req.MinHold, freed, err)
		} else if t.freed[i] == quorum.Missing {
			t.freed[i] = quorum.No
		}
	})
}

// note notes what a node has answered about a term; the caller holds the lock of the backend.
func (r *quorumRelease) note(i int, t *quorumTerm, minHold time.Duration, freed bool, err error) {
	switch {
	case t.freed[i] == quorum.Yes: // by another release
	case err != nil:
		t.freed[i], t.retried[i] = quorum.Unknown, true
		r.q.nodes[i].releaseLater(t, minHold, max(t.req.TTL, r.q.ttl))
	case freed || t.retried[i]:
		t.freed[i] = quorum.Yes
	default:
		t.freed[i], t.gone = quorum.No, true
	}
}

func (r *quorumRelease) decided() bool {
	r.q.mu.Lock()
	defer r.q.mu.Unlock()
	return !slices.ContainsFunc(r.terms, func(t *quorumTerm) bool {
		return t != nil && quorum.Judge(t.freed, r.q.need) == quorum.Pending
	})
}

func (r *quorumRelease) result() ([]driver.ReleaseResult, error) {
	res := make([]driver.ReleaseResult, len(r.reqs))
	uncertain := false
	for k, t := range r.terms {
		if t == nil {
			continue
		}
		r.q.mu.Lock()
		verdict := quorum.Judge(t.freed, r.q.need)
		some := slices.Contains(t.freed, quorum.Yes) && !t.gone
		r.q.mu.Unlock()
		// The nodes that have not answered may have the term still. They release it in the background.
		res[k].Freed = verdict == quorum.Confirmed || verdict == quorum.Uncertain && some
		if res[k].Freed || r.reqs[k].Version == 0 {
			r.q.forget(t)
		}
		uncertain = uncertain || verdict == quorum.Uncertain && !some && r.reqs[k].Version != 0
	}
	if uncertain {
		return nil, r.q.unavailable("release", r.call.failed)
	}
	return res, nil
}
