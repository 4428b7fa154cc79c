package sqllock

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/sqllock/sqllock/driver"
	"github.com/sqllock/sqllock/internal/clock"
	"github.com/sqllock/sqllock/internal/quorum"
)

// QuorumOptions are the options of [NewQuorum]. The zero value of each field means its default.
type QuorumOptions struct {
	// FaultyNodes is how many databases may forget what they have stored: by a fail-over that
	// loses commits, a restored backup, a clock that is set forward. Default 0. A database that
	// restarts with its rows has forgotten nothing. Of N databases, ⌈(N+FaultyNodes+1)/2⌉ must
	// keep a name.
	FaultyNodes int

	// NodeTimeout bounds each statement on one database; at least 10 ms, at most a sixth of the
	// TTL. The default is a tenth of the TTL, and at most 1 s. The TTL is that of the Locker: a
	// lease with a shorter one, see the option [TTL], has the same NodeTimeout.
	NodeTimeout time.Duration

	// The others are those of [UniqueOptions]. StatementTimeout does not exist: an operation
	// takes two statements one after the other on each database.
	TTL                time.Duration
	Label              string
	RetryMin, RetryMax time.Duration
	Logger             *slog.Logger
	Hooks              *Hooks
	Reaper             *ReaperOptions // without KeyRetention, because there are no keys
	MaxBatch           int
	MaxInFlight        int
}

// maxSkew is how far the clocks of two databases may be apart when a Locker is constructed.
const maxSkew = time.Minute

// NewQuorum returns a Locker that keeps each name on a majority of several databases that know
// nothing of each other. It goes on while a minority of them is down. The databases can be of
// different products. Each needs the tables under a table prefix that only quorum Lockers use, see
// lockpg.TablePrefix, and all processes must use the same databases and the same FaultyNodes.
// Options may be nil.
//
// The databases are those of [NewUnique], from 2 to 9 of them; 3 or 5 make sense. NewQuorum checks
// each as NewUnique does, that no two are the same, and that their clocks are no more than a
// minute apart. As many as keep a name must be up. The others are checked when they come; one that
// is refused then is logged and not used. NewQuorum returns [ErrInvalidOption] before any SQL, or
// after it if two databases have the same tables, [ErrSchema] or [ErrUnsupported] if a database is
// refused, or the errors of those that are down.
//
// The Locker has the methods of unique mode for leases that are exclusive: Lock, TryLock, Do,
// elections, Inspect, List, Watch, ForceUnlock, sequencers. It returns [ErrUnsupported] for what
// one database cannot do for all: Guard, InTx, UnlockTx, RLock, LockAll, Detach, Adopt, Once, and
// semaphores. A candidate of an election with an Identity takes over no term. Use the token, which
// rises as in unique mode, and lockpg.Fence or its twins.
//
// Waiters of one Locker are served in order. Those of different Lockers compete: they request the
// name again after pauses of random length. Inspect and List count no waiters, and of a name that
// nobody holds the token can be one that no lease had.
func NewQuorum(ctx context.Context, dbs []driver.UniqueDatabase, opts *QuorumOptions) (*Locker, error) {
	if opts == nil {
		opts = &QuorumOptions{}
	}
	cfg, err := opts.config(dbs)
	if err != nil {
		return nil, err
	}
	if err := driver.CheckContext(ctx); err != nil {
		return nil, err
	}
	id := newID()
	q := &quorumBackend{
		nodes: make([]*quorumNode, len(dbs)), need: quorum.Need(len(dbs), opts.FaultyNodes), timeout: opts.nodeTimeout(cfg.ttl),
		ttl: cfg.ttl, clock: clock.System{}, log: newEvents(cfg.logger, cfg.hooks),
		terms: make(map[driver.ID]*quorumTerm), byID: make(map[driver.ID]*quorumTerm),
		crashes: make(map[driver.ID]map[int]driver.Holder),
	}
	q.ctx, q.cancel = context.WithCancel(context.Background())
	for i, db := range dbs {
		q.nodes[i] = newQuorumNode(q, i, db, driver.Client{Instance: id, Label: cfg.label})
	}
	if err := q.open(ctx); err != nil {
		return nil, errors.Join(openError(err), q.Close(), q.log.close(context.Background()))
	}
	m := mode{
		backend: q, capabilities: capabilities{quorum: true}, Classify: classifyQuorum, events: q.log,
		Guard: func(context.Context, driver.GuardFunc, driver.GuardRequest) (driver.GuardStatus, error) {
			return driver.Fenced, errQuorumTx
		},
	}
	return newLocker(id, cfg, m, clock.System{}), nil
}

// errQuorumTx is the error of everything that is done in a transaction of the application.
var errQuorumTx = fmt.Errorf("%w: a transaction of one database cannot guard a lease of a quorum; use the token", ErrUnsupported)

func (o *QuorumOptions) config(dbs []driver.UniqueDatabase) (config, error) {
	c, err := (&UniqueOptions{
		TTL: o.TTL, Label: o.Label, RetryMin: o.RetryMin, RetryMax: o.RetryMax, Logger: o.Logger, Hooks: o.Hooks,
		Reaper: o.Reaper, MaxBatch: o.MaxBatch, MaxInFlight: o.MaxInFlight, Barging: true,
	}).config()
	if err != nil {
		return c, err
	}
	n := len(dbs)
	switch {
	case n < 2 || n > quorum.MaxNodes:
		return c, fmt.Errorf("%w: %d databases: must be from 2 to %d", ErrInvalidOption, n, quorum.MaxNodes)
	case o.FaultyNodes < 0 || quorum.Need(n, o.FaultyNodes) > n:
		return c, fmt.Errorf("%w: FaultyNodes %d: must be from 0 to %d for %d databases", ErrInvalidOption, o.FaultyNodes, n-1, n)
	case o.NodeTimeout != 0 && (o.NodeTimeout < 10*time.Millisecond || o.NodeTimeout > c.ttl/6):
		return c, fmt.Errorf("%w: NodeTimeout %v: must be from 10ms to a sixth of the TTL, %v", ErrInvalidOption, o.NodeTimeout, c.ttl/6)
	}
	for i, db := range dbs {
		if db == nil {
			return c, driver.NilError(fmt.Sprintf("database %d", i))
		}
		if err := checkNode(db); err != nil {
			return c, fmt.Errorf("database %d: %w", i, err)
		}
	}
	return c, nil
}

func (o *QuorumOptions) nodeTimeout(ttl time.Duration) time.Duration {
	return cmp.Or(o.NodeTimeout, min(ttl/10, time.Second))
}

// checkNode refuses the tables that unique mode uses: its waiters have claims, which a quorum has
// not.
func checkNode(db driver.UniqueDatabase) error {
	m, ok := db.(driver.Migratable)
	if !ok {
		return nil
	}
	mig, err := m.Migration()
	if err != nil {
		return err
	}
	defer func() { _ = mig.Close() }()
	if mig.Prefix == driver.DefaultPrefix {
		return fmt.Errorf("%w: table prefix %q: a quorum needs tables of its own, under another prefix", ErrInvalidOption, mig.Prefix)
	}
	return nil
}

// openGrace is how long NewQuorum waits for further databases when enough of them are up.
const openGrace = time.Second

// open opens the nodes. It returns an error if one is refused, or if fewer are up than keep a name.
func (q *quorumBackend) open(ctx context.Context) error {
	errs := make(chan error, len(q.nodes))
	for _, n := range q.nodes {
		n.opening = true
		q.background.Go(func() {
			ctx, cancel := context.WithTimeout(q.ctx, maxStatementTimeout)
			defer cancel()
			errs <- n.open(ctx)
		})
	}
	var grace <-chan time.Time
	var down []error
	up := 0
	for up+len(down) < len(q.nodes) {
		select {
		case err := <-errs:
			switch {
			case isVerdict(err):
				return err
			case err != nil:
				down = append(down, err)
			default:
				up++
			}
		case <-grace:
			q.noteDown(down...)
			q.background.Go(func() { // the others are told of when they come
				for range len(q.nodes) - up - len(down) {
					if err := <-errs; err != nil {
						q.noteDown(err)
					}
				}
			})
			return nil
		case <-ctx.Done():
			return errors.Join(context.Cause(ctx), errors.Join(down...))
		}
		if up >= q.need && grace == nil {
			grace = time.After(openGrace)
		}
	}
	if up < q.need {
		return fmt.Errorf("%d of %d databases are up, %d are needed: %w", up, len(q.nodes), q.need, errors.Join(down...))
	}
	q.noteDown(down...)
	return nil
}

// noteDown tells of nodes that could not be opened.
func (q *quorumBackend) noteDown(errs ...error) {
	for _, err := range errs {
		switch {
		case q.ctx.Err() != nil: // Close has given up
		case isVerdict(err):
			q.noteRefused(err)
		default:
			q.log.note(slog.LevelWarn, "sqllock: a database of the quorum is down", "error", err)
		}
	}
}

func (q *quorumBackend) noteRefused(err error) {
	q.log.note(slog.LevelError, "sqllock: a database of the quorum is refused", "error", err)
}

// quorumError says that too few databases have answered. What the operation may have done is undone
// by the backend.
type quorumError struct {
	what  string
	fault driver.Fault
	errs  []error
}

func (e *quorumError) Error() string {
	return fmt.Sprintf("%s: too few databases have answered: %v", e.what, errors.Join(e.errs...))
}

func (e *quorumError) Unwrap() []error { return e.errs }

// classifyQuorum is the Classify of a quorum.
func classifyQuorum(err error) driver.Fault {
	var e *quorumError
	switch {
	case errors.As(err, &e):
		return e.fault
	case errors.Is(err, ErrUnsupported):
		return driver.Refused
	}
	return driver.Unreachable // the time was over
}

// unavailable makes the error of an operation that too few nodes have answered. It is refused if
// all that have failed refuse it, and worth another try if one of them says so.
func (q *quorumBackend) unavailable(what string, failed []nodeError) error {
	e := &quorumError{what: what, fault: driver.Unreachable}
	refused, again := len(failed) > 0, false
	for _, f := range failed {
		fault := f.node.classify(f.err)
		refused, again = refused && fault == driver.Refused, again || fault == driver.Again
		e.errs = append(e.errs, f)
	}
	switch {
	case refused:
		e.fault = driver.Refused
	case again:
		e.fault = driver.Again
	}
	return e
}

// nodeError is the error of one node.
type nodeError struct {
	node *quorumNode
	err  error
}

func (e nodeError) Error() string { return fmt.Sprintf("database %d: %v", e.node.index, e.err) }
func (e nodeError) Unwrap() error { return e.err }
