package sqllock

import (
	"context"
	"database/sql"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sqllock/sqllock/driver"
	"github.com/sqllock/sqllock/internal/clock"
	"github.com/sqllock/sqllock/internal/quorum"
)

// quorumBackend keeps each name on a quorum of nodes. Package quorum has the rules. It is safe for
// concurrent use.
type quorumBackend struct {
	nodes   []*quorumNode
	need    int
	timeout time.Duration // of a statement on one node
	ttl     time.Duration
	clock   clock.Clock
	log     *events // of the Locker

	rounds     atomic.Uint32   // of acquisitions
	ctx        context.Context // of every statement; ends with Close
	cancel     context.CancelFunc
	background sync.WaitGroup
	joining    sync.Mutex // held while a node is compared with the others

	mu      sync.Mutex
	pruneAt int                           // how many terms there are when those are forgotten whose rows have expired
	terms   map[driver.ID]*quorumTerm     // by the acquisition of the Locker
	byID    map[driver.ID]*quorumTerm     // by that of the rows
	crashes map[driver.ID][]driver.Holder // expired terms that nodes have ended, but not a quorum of them
}

var _ backend = (*quorumBackend)(nil)

// quorumTerm is a term that the nodes keep, or an acquisition that is under way. The rows have an
// acquisition of their own: what is left of a round that was lost can then be released at any
// time. The fields of the second group are guarded by quorumBackend.mu.
type quorumTerm struct {
	req       driver.AcquireRequest // with the acquisition of the rows
	acq       driver.ID             // of the Locker
	round     quorum.Round          // of the goroutine that runs the round
	remaining []int64               // by node, microseconds
	refusals  []driver.Holder       // by those nodes that have refused
	now       int64                 // the clock of one of them

	answered []bool                // by node: to the request for the name
	awaited  map[int]chan struct{} // by node: closed when it answers; a release waits for that
	token    int64
	value    quorumValue
	versions []int64 // by node; 0: it does not keep the name for the term, as far as known
	stored   []int64 // by node: the last of versions that was not 0
	doubtful []bool  // by node: it may keep the name although versions does not say so
	freed    []quorum.Reply
	freeing  []bool // by node: a release is under way
	retried  []bool // by node: another release got no reply
	ended    bool
	until    time.Duration // when the rows have expired, unless they are renewed
}

// quorumCall is one operation on several nodes. Its functions run one after the other.
type quorumCall struct {
	q           *quorumBackend
	ctx         context.Context // of its statements
	done        chan func()
	outstanding int
	limit       <-chan time.Time // wait returns then, too; or nil
	failed      []nodeError
}

func (q *quorumBackend) newCall() *quorumCall {
	return &quorumCall{q: q, ctx: q.ctx, done: make(chan func())}
}

// send runs f on a node, and then calls done with its error.
func (c *quorumCall) send(n *quorumNode, f func(context.Context, driver.NodeStore) error, done func(error)) {
	c.outstanding++
	c.q.background.Go(func() {
		err := n.do(c.ctx, f)
		c.done <- func() {
			c.outstanding--
			if err != nil {
				c.failed = append(c.failed, nodeError{n, err})
			}
			done(err)
		}
	})
}

// wait returns when decided says so, when all nodes have answered, or when ctx ends. Call finish
// when done with the results.
func (c *quorumCall) wait(ctx context.Context, decided func() bool) error {
	for c.outstanding > 0 && !decided() {
		select {
		case f := <-c.done:
			f()
		case <-c.limit:
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return nil
}

// finish reads the answers that are late, in the background.
func (c *quorumCall) finish() {
	if c.outstanding == 0 {
		return
	}
	c.q.background.Go(func() {
		for c.outstanding > 0 {
			(<-c.done)()
		}
	})
}

// term returns the term of an acquisition of the Locker, or nil.
func (q *quorumBackend) term(acq driver.ID) *quorumTerm {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.terms[acq]
}

// forget ends what is known of a term. Late replies are released from now on.
func (q *quorumBackend) forget(t *quorumTerm) {
	q.mu.Lock()
	defer q.mu.Unlock()
	t.ended = true
	if q.terms[t.acq] == t {
		delete(q.terms, t.acq)
	}
	delete(q.byID, t.req.Acq)
}

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
		r.flags[k].revoked = r.flags[k].revoked || res.Status[n] == driver.Revoked
		r.q.mu.Lock()
		if t := r.terms[k]; t.versions[i] == version {
			t.versions[i] = 0
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
// one batch at a time.
func (q *quorumBackend) heal(terms []*quorumTerm) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for i, n := range q.nodes {
		if n.healing {
			continue
		}
		var missing []*quorumTerm
		for _, t := range terms {
			if !t.ended && t.versions[i] == 0 {
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
	for k, t := range terms {
		reqs[k] = t.req
	}
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
		t.freed[i] = quorum.No
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
		some := slices.Contains(t.freed, quorum.Yes)
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

// SetValue changes the value of a term on all nodes that keep it.
func (q *quorumBackend) SetValue(ctx context.Context, req driver.SetValueRequest) (bool, error) {
	t := q.term(req.Acq)
	if t == nil {
		return false, nil
	}
	q.mu.Lock()
	t.value.seq, t.value.text = t.value.seq+1, req.Value
	t.req.Value = t.value.bytes()
	req.Value = t.req.Value
	versions := slices.Clone(t.versions)
	q.mu.Unlock()
	call, replies := q.newCall(), make([]quorum.Reply, len(q.nodes))
	for i, n := range q.nodes {
		if replies[i] = quorum.No; versions[i] == 0 {
			continue
		}
		replies[i] = quorum.Missing
		mine, done := req, false
		mine.Acq, mine.Version = t.req.Acq, versions[i]
		call.send(n, func(ctx context.Context, s driver.NodeStore) (err error) {
			done, err = s.SetValue(ctx, mine)
			return err
		}, func(err error) { replies[i] = replyOf(done, err) })
	}
	defer call.finish()
	if err := call.wait(ctx, func() bool { return quorum.Judge(replies, q.need) != quorum.Pending }); err != nil {
		return false, err
	}
	switch quorum.Judge(replies, q.need) {
	case quorum.Confirmed:
		return true, nil
	case quorum.Refused:
		return false, nil
	}
	return false, q.unavailable("set the value", call.failed)
}

func replyOf(yes bool, err error) quorum.Reply {
	switch {
	case err != nil:
		return quorum.Unknown
	case yes:
		return quorum.Yes
	}
	return quorum.No
}

// Sweep cleans up on all nodes that are up. Each is looked at up to where the slowest has come. A
// term has crashed when a quorum of nodes has ended it, in this sweep or an earlier one.
func (q *quorumBackend) Sweep(ctx context.Context, req driver.SweepRequest) (driver.SweepResult, error) {
	call, up := q.newCall(), 0
	defer call.finish()
	var all driver.SweepResult
	last := func(r *driver.SweepResult) {
		if r.More && (!all.More || r.Last < all.Last) {
			all.More, all.Last = true, r.Last
		}
	}
	for _, n := range q.nodes {
		var res driver.SweepResult
		call.send(n, func(ctx context.Context, s driver.NodeStore) (err error) {
			res, err = s.Sweep(ctx, req)
			return err
		}, func(err error) {
			if err == nil {
				up++
				all.Due = all.Due || res.Due
				all.Purged, all.Seen = max(all.Purged, res.Purged), max(all.Seen, res.Seen)
				for _, c := range res.Crashed {
					if h, ok := q.endedByQuorum(c.Holder); ok {
						all.Crashed = append(all.Crashed, driver.Crash{Name: c.Name, Holder: h})
					}
				}
				last(&res)
			}
		})
	}
	if err := call.wait(ctx, func() bool { return false }); err != nil {
		return driver.SweepResult{}, err
	}
	if up < q.need {
		return driver.SweepResult{}, q.unavailable("sweep", call.failed)
	}
	return all, nil
}

// maxCrashes is of how many terms it is known at most that some nodes have ended them.
const maxCrashes = 10_000

// endedByQuorum notes that a node has ended an expired term, in a sweep or for the next holder. It
// returns the term when a quorum has ended it with this node.
func (q *quorumBackend) endedByQuorum(h driver.Holder) (driver.Holder, bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if _, known := q.crashes[h.Acq]; !known && len(q.crashes) >= maxCrashes {
		clear(q.crashes)
	}
	all := append(q.crashes[h.Acq], h)
	if q.crashes[h.Acq] = all; len(all) == len(q.nodes) {
		delete(q.crashes, h.Acq)
	}
	if len(all) != q.need {
		return h, false
	}
	for _, other := range all {
		h.Version, h.Until = min(h.Version, other.Version), min(h.Until, other.Until)
	}
	q.translateLocked(&h)
	return h, true
}

// noteCrash reports a holder whose expired term a node has ended for the next holder, if a quorum
// has ended it now. The nodes can have done it for requests that were lost, and for a sweep.
func (q *quorumBackend) noteCrash(name string, h driver.Holder) {
	if h.Acq == (driver.ID{}) {
		return
	}
	if h, ok := q.endedByQuorum(h); ok {
		q.log.crashed(newCrashedEvent(name, h))
	}
}

// Begin is not there.
func (q *quorumBackend) Begin(context.Context, *sql.TxOptions) (*sql.Tx, error) {
	return nil, errQuorumTx
}

// CloseIdle gives back the connections that are kept for renewals.
func (q *quorumBackend) CloseIdle() bool {
	all := true
	for _, n := range q.nodes {
		if s, _ := n.opened(); s != nil {
			all = s.CloseIdle() && all
		}
	}
	return all
}

// Close gives what is under way the time of one statement, also what is released in the
// background, ends the rest, and closes the nodes.
func (q *quorumBackend) Close() error {
	limit, end := context.WithTimeout(context.Background(), q.timeout)
	defer end()
	stop := context.AfterFunc(limit, q.cancel)
	defer stop()
	q.background.Wait()
	var released sync.WaitGroup
	for _, n := range q.nodes {
		released.Go(func() { _ = n.cleanup.drain(limit) })
	}
	released.Wait()
	q.cancel()
	q.background.Wait()
	var errs []error
	for _, n := range q.nodes {
		errs = append(errs, n.close())
	}
	return errors.Join(errs...)
}
