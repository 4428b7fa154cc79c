package sqllock

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/sqllock/sqllock/driver"
	"github.com/sqllock/sqllock/internal/clock"
)

// quorumNode is one database of a quorum. It is opened again and again until it is up.
type quorumNode struct {
	q       *quorumBackend
	index   int
	db      driver.UniqueDatabase
	client  driver.Client
	cleanup *cleanup
	healing bool // a batch is under way; guarded by quorumBackend.mu

	jumps clock.JumpDetector

	mu      sync.Mutex
	store   driver.NodeStore // nil until it was opened
	offset  time.Duration    // of its clock from that of this process, at most
	opening bool
	lastErr error
	retryAt time.Duration
}

// nodeRetry is the pause before a node that is down is opened again.
const nodeRetry = 500 * time.Millisecond

// errNodeDown is the error of a node that has not been opened yet.
var errNodeDown = errors.New("it has not been reached yet")

func newQuorumNode(q *quorumBackend, index int, db driver.UniqueDatabase, client driver.Client) *quorumNode {
	n := &quorumNode{q: q, index: index, db: db, client: client}
	n.cleanup = newCleanup(mode{backend: nodeBackend{quorumBackend: q, node: n}, Classify: n.classify}, false, q.clock, q.log, func(string) {})
	return n
}

// classify tells what an error of do means.
func (n *quorumNode) classify(err error) driver.Fault {
	if errors.Is(err, errNodeDown) {
		return driver.Unreachable
	}
	return n.db.Classify(err)
}

// nodeBackend lets the cleanup release on one node.
type nodeBackend struct {
	*quorumBackend
	node *quorumNode
}

// Release releases by acq.
func (b nodeBackend) Release(ctx context.Context, reqs []driver.ReleaseRequest) (res []driver.ReleaseResult, err error) {
	err = b.node.do(ctx, func(ctx context.Context, s driver.NodeStore) error {
		res, err = s.Release(ctx, reqs)
		return err
	})
	return res, err
}

// open opens the node and compares it with those that are open.
func (n *quorumNode) open(ctx context.Context) error {
	store, err := n.db.OpenUnique(ctx, n.client)
	if err != nil {
		n.failed(err)
		return nodeError{n, err}
	}
	node, ok := store.(driver.NodeStore)
	if !ok {
		err = fmt.Errorf("%w: it cannot be a node of a quorum", ErrUnsupported)
	} else {
		err = n.join(ctx, node)
	}
	if err != nil {
		n.failed(err)
		return errors.Join(nodeError{n, err}, store.Close())
	}
	return nil
}

func (n *quorumNode) failed(err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.opening, n.lastErr, n.retryAt = false, err, n.q.clock.Now()+nodeRetry
}

// join checks that a node is another database than those that are open, and that its clock is not
// far from theirs.
func (n *quorumNode) join(ctx context.Context, store driver.NodeStore) error {
	before := n.q.clock.Now()
	res, err := store.Read(ctx, driver.ReadRequest{Names: []string{"sqllock"}})
	if err != nil {
		return err
	}
	offset := time.Duration(res.Rows[0].Now)*time.Microsecond - before
	after := n.q.clock.Now()
	tolerance := after - before
	n.q.joining.Lock()
	defer n.q.joining.Unlock()
	for _, other := range n.q.nodes {
		s, theirs := other.opened()
		switch {
		case s == nil || other == n:
		case s.Info().Database == store.Info().Database && s.Info().Database != "":
			return fmt.Errorf("%w: databases %d and %d have the same tables", ErrInvalidOption, other.index, n.index)
		case (offset - theirs).Abs() > maxSkew+tolerance:
			return fmt.Errorf("%w: the clocks of databases %d and %d are %v apart, more than %v",
				ErrUnsupported, other.index, n.index, (offset - theirs).Abs().Round(time.Second), maxSkew)
		}
	}
	_, _ = n.jumps.Observe(before, after, res.Rows[0].Now)
	n.mu.Lock()
	defer n.mu.Unlock()
	n.store, n.offset, n.opening, n.lastErr = store, offset, false, nil
	return nil
}

// state returns the store if it was opened, and otherwise why it was not.
func (n *quorumNode) state() (driver.NodeStore, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.store, n.lastErr
}

// observe notes what the clock of the node said after a moment of this process.
func (n *quorumNode) observe(before time.Duration, now int64) {
	if now == 0 {
		return
	}
	if jump, ok := n.jumps.Observe(before, n.q.clock.Now(), now); ok {
		n.q.log.clockJump(ClockJumpEvent{Jump: jump, Database: n.index})
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.offset = time.Duration(now)*time.Microsecond - before
}

func (n *quorumNode) opened() (driver.NodeStore, time.Duration) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.store, n.offset
}

// do calls f with the store, for the time of one statement. While the node is down it opens it in
// the background.
func (n *quorumNode) do(ctx context.Context, f func(context.Context, driver.NodeStore) error) error {
	n.mu.Lock()
	store, last := n.store, n.lastErr
	if store == nil && !n.opening && n.q.clock.Now() >= n.retryAt && n.q.ctx.Err() == nil {
		n.opening = true
		n.q.background.Go(n.reopen)
	}
	n.mu.Unlock()
	if store == nil {
		return errors.Join(errNodeDown, last)
	}
	ctx, cancel := context.WithTimeout(ctx, n.q.timeout)
	defer cancel()
	return f(ctx, store)
}

func (n *quorumNode) reopen() {
	_, before := n.state()
	ctx, cancel := context.WithTimeout(n.q.ctx, maxStatementTimeout)
	defer cancel()
	err := n.open(ctx)
	if _, now := n.state(); isVerdict(err) && (before == nil || before.Error() != now.Error()) { // told once
		n.q.noteRefused(err)
	}
}

// releaseLater releases an acquisition on this node in the background, until ttl is over. A term
// that was held may have a minimum hold time that goes on.
func (n *quorumNode) releaseLater(t *quorumTerm, minHold, ttl time.Duration) {
	n.cleanup.add(driver.ReleaseRequest{Name: t.req.Name, Acq: t.req.Acq, MinHold: minHold}, ttl)
}

func (n *quorumNode) close() error {
	n.cleanup.close()
	if s, _ := n.opened(); s != nil {
		return s.Close()
	}
	return nil
}
