package sqllock

import (
	"context"
	"slices"

	"github.com/sqllock/sqllock/driver"
	"github.com/sqllock/sqllock/internal/quorum"
)

// Renew extends terms on all nodes that keep them.
func (q *quorumBackend) Renew(ctx context.Context, reqs []driver.RenewRequest, wait bool) (driver.RenewResults, error) {
	r := &quorumRenewal{call: q.newCall(), q: q, reqs: reqs, terms: make([]*quorumTerm, len(reqs)),
		replies: make([][]quorum.Reply, len(reqs)), flags: make([]struct{ busy, revoked bool }, len(reqs))}
	for k := range reqs {
		r.terms[k] = q.term(reqs[k].Acq)
		r.replies[k] = make([]quorum.Reply, len(q.nodes))
	}
	for i := range q.nodes {
		r.send(i, wait)
	}
	defer r.call.finish()
	if err := r.call.wait(ctx, r.decided); err != nil {
		return driver.RenewResults{}, err
	}
	return r.result()
}

// quorumRenewal is one call of Renew.
type quorumRenewal struct {
	call    *quorumCall
	q       *quorumBackend
	reqs    []driver.RenewRequest
	terms   []*quorumTerm // nil where there is none
	replies [][]quorum.Reply
	flags   []struct{ busy, revoked bool }
}

// send renews on one node what it keeps.
func (r *quorumRenewal) send(i int, wait bool) {
	var reqs []driver.RenewRequest
	var which []int
	r.q.mu.Lock()
	for k, t := range r.terms {
		if t == nil || t.versions[i] == 0 {
			r.replies[k][i] = quorum.No
			continue
		}
		req := r.reqs[k]
		req.Acq, req.Version = t.req.Acq, t.versions[i]
		t.until = r.q.clock.Now() + req.TTL + r.q.timeout
		reqs, which = append(reqs, req), append(which, k)
	}
	r.q.mu.Unlock()
	if len(reqs) == 0 {
		return
	}
	var res driver.RenewResults
	before := r.q.clock.Now()
	r.call.send(r.q.nodes[i], func(ctx context.Context, s driver.NodeStore) (err error) {
		res, err = s.Renew(ctx, reqs, wait)
		return err
	}, func(err error) {
		if err == nil {
			r.q.nodes[i].observe(before, res.Now)
		}
		for n, k := range which {
			r.note(k, i, reqs[n].Version, &res, n, err)
		}
	})
}

// note notes the reply of node i about request k.
func (r *quorumRenewal) note(k, i int, version int64, res *driver.RenewResults, n int, err error) {
	reply := quorum.Unknown
	switch {
	case err != nil || res.Errs != nil && res.Errs[n] != nil:
	case res.Status[n] == driver.Renewed:
		reply = quorum.Yes
	case res.Status[n] == driver.Busy:
		r.flags[k].busy = true
	default:
		reply = quorum.No
		byForce := res.Status[n] == driver.Revoked
		r.flags[k].revoked = r.flags[k].revoked || byForce
		r.q.mu.Lock()
		if t := r.terms[k]; t.versions[i] == version {
			t.versions[i] = 0
			if byForce {
				t.healFrom[i] = r.q.clock.Now() + max(t.req.TTL, 2*r.q.timeout)
			}
		}
		r.q.mu.Unlock()
	}
	r.replies[k][i] = reply
}

func (r *quorumRenewal) decided() bool {
	return !slices.ContainsFunc(r.replies, func(replies []quorum.Reply) bool { return quorum.Judge(replies, r.q.need) == quorum.Pending })
}

func (r *quorumRenewal) result() (driver.RenewResults, error) {
	res := driver.RenewResults{Status: make([]driver.RenewStatus, len(r.reqs)), Errs: make([]error, len(r.reqs))}
	var confirmed []*quorumTerm
	for k := range r.reqs {
		switch quorum.Judge(r.replies[k], r.q.need) {
		case quorum.Confirmed:
			res.Status[k] = driver.Renewed
			confirmed = append(confirmed, r.terms[k])
		case quorum.Refused:
			res.Status[k] = driver.Gone
			if r.flags[k].revoked {
				res.Status[k] = driver.Revoked
			}
		default:
			if res.Status[k] = driver.Busy; !r.flags[k].busy {
				res.Errs[k] = r.q.unavailable("renew", r.call.failed)
			}
		}
	}
	r.q.heal(confirmed)
	return res, nil
}

// heal asks the nodes again that do not keep names for terms that go on. Each node is asked for
// one batch at a time. A node that has revoked a term is not asked for a TTL: who does that on one
// node after the other would find it again on the first.
func (q *quorumBackend) heal(terms []*quorumTerm) {
	q.mu.Lock()
	defer q.mu.Unlock()
	now := q.clock.Now()
	for i, n := range q.nodes {
		if n.healing {
			continue
		}
		var missing []*quorumTerm
		for _, t := range terms {
			if !t.ended && t.versions[i] == 0 && t.healFrom[i] <= now {
				t.doubtful[i] = true
				missing = append(missing, t)
			}
		}
		if len(missing) > 0 {
			n.healing = true
			q.background.Go(func() { q.healOn(n, missing) })
		}
	}
}

// healOn asks one node again. A node that grants a version below the token is raised to it.
func (q *quorumBackend) healOn(n *quorumNode, terms []*quorumTerm) {
	reqs := make([]driver.AcquireRequest, len(terms))
	q.mu.Lock()
	for k, t := range terms {
		reqs[k] = t.req
	}
	q.mu.Unlock()
	var res []driver.AcquireResult
	raised := make(map[driver.ID]bool)
	err := n.do(q.ctx, func(ctx context.Context, s driver.NodeStore) (err error) {
		if res, err = s.Acquire(ctx, reqs); err != nil {
			return err
		}
		return raiseLower(ctx, s, terms, res, raised)
	})
	q.mu.Lock()
	defer q.mu.Unlock()
	n.healing = false
	for k, t := range terms {
		switch {
		case t.ended:
			n.releaseLater(t, 0, t.req.TTL)
		case res == nil || err != nil && res[k].Granted && res[k].Version < t.token: // it is not known
		case !res[k].Granted:
			t.doubtful[n.index] = false
		case res[k].Version >= t.token:
			t.keeps(n.index, res[k].Version)
		case raised[t.req.Acq]:
			t.keeps(n.index, t.token)
		}
	}
}

// raiseLower raises those that were granted with a version below their token.
func raiseLower(ctx context.Context, s driver.NodeStore, terms []*quorumTerm, res []driver.AcquireResult, raised map[driver.ID]bool) error {
	var lower []driver.RaiseRequest
	for k, t := range terms {
		if res[k].Granted && res[k].Version < t.token {
			lower = append(lower, driver.RaiseRequest{Name: t.req.Name, Acq: t.req.Acq, Version: t.token})
		}
	}
	if len(lower) == 0 {
		return nil
	}
	done, err := s.Raise(ctx, lower)
	for k := range done {
		raised[lower[k].Acq] = done[k]
	}
	return err
}
