package sqllock

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"math"
	"time"

	"github.com/sqllock/sqllock/driver"
	"github.com/sqllock/sqllock/internal/quorum"
)

// quorumGrant is one call of Acquire: a round for each name, with the same statements.
type quorumGrant struct {
	q        *quorumBackend
	call     *quorumCall
	terms    []*quorumTerm // in the order of the requests
	began    time.Duration
	answered int // how many nodes have answered
}

// minWait is for how long a round at least waits for nodes that have not answered when a quorum
// has, and has not granted the name.
const minWait = 50 * time.Millisecond

// hurry bounds the rest of a round when a quorum of nodes has answered and somebody else has the
// name on one of them. Those who compete have the others from each other until their rounds end,
// so a round must not wait for a node that may be down.
func (g *quorumGrant) hurry() {
	if g.answered++; g.answered < g.q.need || g.call.limit != nil {
		return
	}
	for _, t := range g.terms {
		if t.round.Outcome() == quorum.Open && (t.round.Token() != 0 || len(t.refusals) == 0) {
			return
		}
	}
	g.call.limit = time.After(max(g.q.clock.Now()-g.began, minWait))
}

// Acquire asks all nodes for names. It returns as soon as each name is granted by a quorum and
// raised, or cannot be.
func (q *quorumBackend) Acquire(ctx context.Context, reqs []driver.AcquireRequest) ([]driver.AcquireResult, error) {
	g := &quorumGrant{q: q, call: q.newCall(), began: q.clock.Now(), terms: make([]*quorumTerm, len(reqs))}
	proposed := q.propose()
	for k := range reqs {
		r := &reqs[k]
		if r.Together() || r.All || r.Life > 0 || r.Resumes != 0 || r.Adopts != (driver.ID{}) {
			return nil, fmt.Errorf("%w: a quorum grants a name to one holder at a time", ErrUnsupported)
		}
		g.terms[k] = q.newTerm(r)
		g.terms[k].req.Floor = proposed
	}
	for i := range q.nodes {
		g.send(i)
	}
	defer g.call.finish()
	if err := g.call.wait(ctx, g.decided); err != nil {
		for _, t := range g.terms {
			g.lose(t)
		}
		return nil, err
	}
	return g.results()
}

// maxProposed is how far ahead of the clocks a proposal is at most. A row can be purged as much later.
const maxProposed = 250 * time.Millisecond

// propose returns the version that all nodes are asked to grant, so that no version has to be
// raised. It is one that none of them has yet: versions follow the clock of a node, so it is what
// the fastest of their clocks says when the last request arrives. A node whose version is above it
// draws one of its own.
func (q *quorumBackend) propose() int64 {
	var version time.Duration
	for _, n := range q.nodes {
		if s, offset := n.opened(); s != nil {
			version = max(version, q.clock.Now()+offset+min(q.timeout, maxProposed))
		}
	}
	return version.Microseconds()
}

func (q *quorumBackend) newTerm(r *driver.AcquireRequest) *quorumTerm {
	n := len(q.nodes)
	t := &quorumTerm{req: *r, acq: r.Acq, round: quorum.NewRound(n, q.need), remaining: make([]int64, n),
		versions: make([]int64, n), stored: make([]int64, n), doubtful: make([]bool, n), freed: make([]quorum.Reply, n),
		freeing: make([]bool, n), retried: make([]bool, n), answered: make([]bool, n),
		healFrom: make([]time.Duration, n)}
	t.req.Acq = roundID(r.Acq, q.rounds.Add(1))
	t.value = quorumValue{text: r.Value}
	t.req.Value = t.value.bytes()
	return t
}

// roundID returns the acquisition of the rows in a round of an acquisition of the Locker. All of
// one such acquisition begin with the same bytes.
func roundID(acq driver.ID, round uint32) driver.ID {
	binary.BigEndian.PutUint32(acq[len(acq)-4:], round)
	return acq
}

// isSameCall reports whether two acquisitions of rows are rounds of one call.
func isSameCall(a, b driver.ID) bool { return bytes.Equal(a[:len(a)-4], b[:len(b)-4]) }

// send asks one node for all names.
func (g *quorumGrant) send(i int) {
	reqs := make([]driver.AcquireRequest, len(g.terms))
	for k, t := range g.terms {
		reqs[k] = t.req
	}
	var res []driver.AcquireResult
	g.call.send(g.q.nodes[i], func(ctx context.Context, s driver.NodeStore) (err error) {
		res, err = s.Acquire(ctx, reqs)
		return err
	}, func(err error) {
		if err == nil {
			g.q.nodes[i].observe(g.began, res[0].Now)
		}
		for k, t := range g.terms {
			if err != nil {
				g.noReply(t, i)
			} else {
				g.note(t, i, &res[k])
			}
		}
		g.raise()
		g.settle()
		if err == nil {
			g.hurry()
		}
	})
}

// keeps notes that a node keeps the name for the term; the caller holds the lock of the backend.
func (t *quorumTerm) keeps(i int, version int64) {
	t.versions[i], t.stored[i], t.doubtful[i] = version, version, false
}

// noReply notes that it is not known what a node keeps for a term.
func (g *quorumGrant) noReply(t *quorumTerm, i int) {
	t.round.Refuse(i)
	g.q.mu.Lock()
	defer g.q.mu.Unlock()
	t.answer(i)
	if t.doubtful[i] = true; t.ended {
		g.q.nodes[i].releaseLater(t, 0, t.req.TTL)
	}
}

// answer notes that nothing is to come any more of the request for the name, and tells the release
// that waits for it; the caller holds the lock of the backend.
func (t *quorumTerm) answer(i int) (awaited bool) {
	t.answered[i] = true
	ch := t.awaited[i]
	if ch != nil {
		close(ch)
		delete(t.awaited, i)
	}
	return ch != nil
}

// note notes the reply of a node about one name.
func (g *quorumGrant) note(t *quorumTerm, i int, res *driver.AcquireResult) {
	g.q.noteCrash(i, t.req.Name, res.Crashed)
	g.q.mu.Lock()
	defer g.q.mu.Unlock()
	awaited := t.answer(i)
	if !res.Granted {
		t.round.Refuse(i)
		h := res.Holder
		h.Until -= res.Now // it becomes what remains: the clocks differ
		t.refusals, t.now = append(t.refusals, h), res.Now
		return
	}
	t.remaining[i], t.now = res.Remaining.Microseconds(), res.Now
	t.round.Grant(i, res.Version)
	if awaited {
		t.versions[i] = res.Version
		return
	}
	if t.doubtful[i] = true; t.ended {
		g.q.nodes[i].cleanup.addOnce(driver.ReleaseRequest{Name: t.req.Name, Acq: t.req.Acq}, t.req.TTL)
	}
}

// raise raises the versions that are too low, of all names with one statement for each node.
func (g *quorumGrant) raise() {
	byNode := make([][]*quorumTerm, len(g.q.nodes))
	for _, t := range g.terms {
		if g.isEnded(t) {
			continue
		}
		for _, i := range t.round.ToRaise() {
			byNode[i] = append(byNode[i], t)
		}
	}
	for i, terms := range byNode {
		if len(terms) > 0 {
			g.raiseOn(i, terms)
		}
	}
}

func (g *quorumGrant) isEnded(t *quorumTerm) bool {
	g.q.mu.Lock()
	defer g.q.mu.Unlock()
	return t.ended
}

func (g *quorumGrant) raiseOn(i int, terms []*quorumTerm) {
	reqs := make([]driver.RaiseRequest, len(terms))
	for k, t := range terms {
		reqs[k] = driver.RaiseRequest{Name: t.req.Name, Acq: t.req.Acq, Version: t.round.Token()}
	}
	var done []bool
	g.call.send(g.q.nodes[i], func(ctx context.Context, s driver.NodeStore) (err error) {
		done, err = s.Raise(ctx, reqs)
		return err
	}, func(err error) {
		for k, t := range terms {
			t.round.Raise(i, err == nil && done[k])
		}
		g.settle()
	})
}

// settle copies what the rounds know to the terms.
func (g *quorumGrant) settle() {
	g.q.mu.Lock()
	defer g.q.mu.Unlock()
	for _, t := range g.terms {
		if t.ended || t.round.Outcome() != quorum.Granted {
			continue
		}
		for i := range g.q.nodes {
			// A version that is known already may be that of a later request.
			if v := t.round.Version(i); v != 0 && t.versions[i] == 0 && t.doubtful[i] {
				t.keeps(i, v)
			}
		}
	}
}

func (g *quorumGrant) decided() bool {
	for _, t := range g.terms {
		switch t.round.Outcome() {
		case quorum.Open:
			return false
		case quorum.Lost:
			// A node that is down leaves open whether somebody has the name: the others tell.
			if len(t.refusals) > 0 && len(g.call.failed) > 0 && !g.isRefused(t) {
				return false
			}
		}
	}
	return true
}

// isRefused reports that so many nodes have refused a name that the others are no quorum.
func (g *quorumGrant) isRefused(t *quorumTerm) bool { return len(g.q.nodes)-len(t.refusals) < g.q.need }

// results returns what the rounds have come to. It ends those that are lost.
func (g *quorumGrant) results() ([]driver.AcquireResult, error) {
	res := make([]driver.AcquireResult, len(g.terms))
	known, failed := false, false
	for k, t := range g.terms {
		switch {
		case t.round.Outcome() == quorum.Granted:
			res[k] = g.begin(t)
			known = true
		case g.isRefused(t):
			res[k].Holder, res[k].Now = g.holder(t), t.now
			known = true
		case len(g.call.failed) > 0:
			failed = true
		}
		if !res[k].Granted {
			g.lose(t)
		}
	}
	if failed && !known {
		return nil, g.q.unavailable("acquire", g.call.failed)
	}
	return res, nil // a name that is neither granted nor held by anybody is asked for again
}

// begin begins a term.
func (g *quorumGrant) begin(t *quorumTerm) driver.AcquireResult {
	var remaining []int64
	for i := range g.q.nodes {
		if t.round.Version(i) != 0 {
			remaining = append(remaining, t.remaining[i])
		}
	}
	g.settle()
	g.q.mu.Lock()
	defer g.q.mu.Unlock()
	g.q.pruneLocked()
	t.token, t.until = t.round.Token(), g.q.clock.Now()+t.req.TTL
	t.req.Floor = t.token // of a node that is asked again
	t.value.token = t.token
	t.req.Value = t.value.bytes()
	g.q.terms[t.acq], g.q.byID[t.req.Acq] = t, t
	return driver.AcquireResult{Granted: true, Version: t.token, Now: t.now, Remaining: time.Duration(quorum.Quorum(remaining, g.q.need)) * time.Microsecond}
}

// minPrune is how many terms are known before one is forgotten that was never released.
const minPrune = 1024

// pruneLocked forgets terms that were lost and never released; the caller holds mu.
func (q *quorumBackend) pruneLocked() {
	if len(q.terms) < max(q.pruneAt, minPrune) {
		return
	}
	now := q.clock.Now()
	for acq, t := range q.terms {
		if t.until < now {
			t.ended = true
			delete(q.terms, acq)
			delete(q.byID, t.req.Acq)
		}
	}
	q.pruneAt = 2 * len(q.terms)
}

// lose ends an acquisition, and releases it on all nodes. Those that have not answered yet release
// it when they do.
func (g *quorumGrant) lose(t *quorumTerm) {
	g.q.mu.Lock()
	defer g.q.mu.Unlock()
	t.ended = true
	for i, n := range g.q.nodes {
		switch {
		case !t.doubtful[i]:
		case t.remaining[i] != 0: // it has answered
			n.cleanup.addOnce(driver.ReleaseRequest{Name: t.req.Name, Acq: t.req.Acq}, t.req.TTL)
		default:
			n.releaseLater(t, 0, t.req.TTL)
		}
	}
}

// holder returns who holds a name that was refused, if one holder does, or until when the name is
// kept from everybody. What an earlier round of the same call has left on the nodes is nobody's:
// it is being released.
func (g *quorumGrant) holder(t *quorumTerm) driver.Holder {
	h, ok := g.q.common(t.refusals)
	if ok && isSameCall(h.Acq, t.req.Acq) {
		return driver.Holder{}
	}
	if ok {
		h.Until += t.now
		return h
	}
	var kept []int64
	for _, r := range t.refusals {
		if r.Acq == (driver.ID{}) && r.Until > 0 {
			kept = append(kept, r.Until)
		}
	}
	if left := g.q.atLeast(kept, len(g.q.nodes)-g.q.need+1); left > 0 {
		return driver.Holder{Until: t.now + left}
	}
	return driver.Holder{}
}

// common returns the holder that a quorum of the nodes has, with what a quorum says of it. If
// fewer nodes than a quorum have the same one, it reports false.
func (q *quorumBackend) common(holders []driver.Holder) (driver.Holder, bool) {
	for k := range holders {
		var versions, until []int64
		for _, h := range holders {
			if h.Acq == holders[k].Acq && h.Acq != (driver.ID{}) {
				versions, until = append(versions, h.Version), append(until, h.Until)
			}
		}
		// The replies of those that are late are missing.
		if len(versions) > len(q.nodes)-q.need {
			h := holders[k]
			h.Version, h.Until = quorum.Quorum(versions, min(len(versions), q.need)), quorum.Quorum(until, min(len(until), q.need))
			q.translate(&h)
			return h, true
		}
	}
	return driver.Holder{}, false
}

// translate gives a holder of this process the acquisition and the token that the Locker knows.
func (q *quorumBackend) translate(h *driver.Holder) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.translateLocked(h)
}

func (q *quorumBackend) translateLocked(h *driver.Holder) {
	if t := q.byID[h.Acq]; t != nil {
		h.Acq, h.Version = t.acq, t.token
	}
}

// atLeast is the value of which so many nodes have as much, or 0.
func (q *quorumBackend) atLeast(values []int64, nodes int) int64 {
	if v := quorum.Quorum(values, nodes); v != math.MinInt64 {
		return v
	}
	return 0
}
