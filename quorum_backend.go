package sqllock

import (
	"bytes"
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
	pruneAt int                                 // how many terms there are when those are forgotten whose rows have expired
	terms   map[driver.ID]*quorumTerm           // by the acquisition of the Locker
	byID    map[driver.ID]*quorumTerm           // by that of the rows
	crashes map[driver.ID]map[int]driver.Holder // by node: expired terms that it has ended
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
	versions []int64         // by node; 0: it does not keep the name for the term, as far as known
	stored   []int64         // by node: the last of versions that was not 0
	doubtful []bool          // by node: it may keep the name although versions does not say so
	healFrom []time.Duration // by node: it is not asked for the term again before
	freed    []quorum.Reply
	gone     bool   // a node that was asked to free the name did not keep it for the term
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

// SetValue changes the value of a term on all nodes that keep it. In the order of bytes the values of
// a term rise, so that a node which sets one late does not go back to it.
func (q *quorumBackend) SetValue(ctx context.Context, req driver.SetValueRequest) (bool, error) {
	t := q.term(req.Acq)
	if t == nil {
		return false, nil
	}
	q.mu.Lock()
	t.value.seq, t.value.text = t.value.seq+1, req.Value
	t.req.Value = t.value.bytes()
	versions := slices.Clone(t.versions)
	q.mu.Unlock()
	call, replies := q.newCall(), make([]quorum.Reply, len(q.nodes))
	for i, n := range q.nodes {
		if replies[i] = quorum.No; versions[i] == 0 {
			continue
		}
		replies[i] = quorum.Missing
		mine, done := req, false
		mine.Rising = true
		mine.Acq, mine.Version = t.req.Acq, versions[i]
		call.send(n, func(ctx context.Context, s driver.NodeStore) (err error) {
			for mine.Value = q.newest(t); ; mine.Value = q.newest(t) {
				done, err = s.SetValue(ctx, mine)
				if err != nil || done || bytes.Equal(mine.Value, q.newest(t)) {
					return err
				} // else another call may have been quicker
			}
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

// newest returns the last value of a term, as nodes keep it.
func (q *quorumBackend) newest(t *quorumTerm) []byte {
	q.mu.Lock()
	defer q.mu.Unlock()
	return t.req.Value
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
	late := false // what a node answers after that is told at once
	for i, n := range q.nodes {
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
					if late {
						q.noteCrash(i, c.Name, c.Holder)
					} else if h, ok := q.endedByQuorum(i, c.Holder); ok {
						all.Crashed = append(all.Crashed, driver.Crash{Name: c.Name, Holder: h})
					}
				}
				last(&res)
			}
		})
	}
	err := call.wait(ctx, func() bool { return false })
	late = true
	if err == nil && up < q.need {
		err = q.unavailable("sweep", call.failed)
	}
	if err != nil {
		for _, c := range all.Crashed { // what a call with an error returns is dropped
			q.log.crashed(newCrashedEvent(c.Name, c.Holder))
		}
		return driver.SweepResult{}, err
	}
	return all, nil
}

// maxCrashes is of how many terms it is known at most that some nodes have ended them.
const maxCrashes = 10_000

// endedByQuorum notes that node i has ended an expired term, in a sweep or for the next holder. It
// returns the term when a quorum has ended it with this node. A node that had lost sight of the
// holder, and has the term again since, does not count: it has expired there a TTL before the others.
func (q *quorumBackend) endedByQuorum(i int, h driver.Holder) (driver.Holder, bool) {
	_, offset := q.nodes[i].opened()
	mine := h
	mine.Until -= offset.Microseconds() // it is compared with that of other clocks
	q.mu.Lock()
	defer q.mu.Unlock()
	all := q.crashes[h.Acq]
	if all == nil {
		if len(q.crashes) >= maxCrashes {
			clear(q.crashes)
		}
		all = make(map[int]driver.Holder)
		q.crashes[h.Acq] = all
	}
	known, ttl := len(all) >= q.need, q.ttl.Microseconds()
	for k, other := range all {
		switch {
		case other.Until <= mine.Until-ttl:
			delete(all, k)
		case mine.Until <= other.Until-ttl:
			return h, false
		}
	}
	if all[i] = mine; len(all) == len(q.nodes) {
		delete(q.crashes, h.Acq)
	}
	if known || len(all) != q.need {
		return h, false
	}
	for _, other := range all {
		h.Version, h.Until = min(h.Version, other.Version), min(h.Until, other.Until+offset.Microseconds())
	}
	q.translateLocked(&h)
	return h, true
}

// noteCrash reports a holder whose expired term a node has ended for the next holder, if a quorum
// has ended it now. The nodes can have done it for requests that were lost, and for a sweep.
func (q *quorumBackend) noteCrash(i int, name string, h driver.Holder) {
	if h.Acq == (driver.ID{}) {
		return
	}
	if h, ok := q.endedByQuorum(i, h); ok {
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
