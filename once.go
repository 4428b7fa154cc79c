package sqllock

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/sqllock/sqllock/driver"
)

// TimeKey returns the key of a time, such as the time for which a job is scheduled. It is
// the time in UTC with six digits after the second, and what is finer is cut off. Of keys
// that are times, the database remembers the highest after [ReaperOptions].KeyRetention
// too: all keys of the name up to that one stay complete.
func TimeKey(t time.Time) string { return driver.TimeKey(t) }

// Once runs fn to its end in one process for each name and key, until the completion is
// older than [ReaperOptions].KeyRetention. It reports whether it called fn. If the key is
// complete, it returns false and nil.
//
// Once waits for name as [Locker.Lock] does, with the same options, and looks then whether
// the key was completed meanwhile. So runs of one name never overlap, whatever their keys. A
// key that is complete already waits for nothing. [Wait] and [Tries] bound the wait for name,
// and not the look at the key before it, which ctx alone bounds while the database is busy. Once
// does not re-enter a lease that ctx carries, and an owner in ctx does not apply: call it
// without a lock on name.
//
// The key becomes complete in one of two ways:
//
//   - Call [Run.InTx] in fn, and write in its transaction. The completion is committed with
//     what the transaction writes, and the transaction is guarded as by [Lease.Guard]. So
//     what fn writes there is written exactly once, whatever crashes.
//   - Otherwise Once records the completion when fn has returned nil, if the lease is still
//     the current one. If the process crashes between the two, or the database cannot be
//     reached until the lease is over, fn runs again.
//
// The key is not complete, and the next call for it runs fn again, if fn returns an error,
// panics, or loses its lease, unless InTx has committed before. What InTx has committed is
// complete, whatever fn returns afterwards.
//
// The context of fn is that of [Locker.Do]. Once returns
//
//   - the errors of Lock;
//   - the error of fn;
//   - a [*LostError], if the lease was lost before the completion could be recorded;
//   - what Unlock returns, joined with the other error;
//   - [ErrInvalidName] before any SQL, if the key is not 1 to 255 bytes of valid UTF-8
//     without NUL;
//   - [ErrUnsupported] in the modes for update and advisory, and of a quorum.
func (l *Locker) Once(
	ctx context.Context, name, key string, fn func(ctx context.Context, run *Run) error, opts ...LockOption,
) (ran bool, err error) {
	if fn == nil {
		return false, driver.NilError("function")
	}
	if err := l.checkOnce(ctx, name, key, opts); err != nil {
		return false, err
	}
	state, err := l.lookKey(ctx, name, key)
	if err != nil || state.Complete {
		return false, err
	}
	lease, err := l.Lock(WithoutOwner(ctx), name, opts...)
	if err != nil {
		return false, err
	}
	err = lease.run(ctx, func(ctx context.Context, lease *Lease) error {
		run, err := l.startRun(ctx, lease, key)
		if run == nil {
			return err
		}
		ran = true
		return run.do(ctx, fn)
	})
	return ran, err
}

// checkOnce checks the arguments of Once.
func (l *Locker) checkOnce(ctx context.Context, name, key string, opts []LockOption) error {
	if _, err := l.lockOptions(opts, false); err != nil {
		return err
	}
	if err := checkCall(ctx, name); err != nil {
		return err
	}
	if l.mode.keys == nil {
		return fmt.Errorf("%w: run %q once: this mode cannot; use NewUnique", ErrUnsupported, name)
	}
	return driver.CheckKey(key)
}

// lookKey reads what is known of a key.
func (l *Locker) lookKey(ctx context.Context, name, key string) (state driver.KeyState, err error) {
	err = l.retryRepeatable(ctx, func(ctx context.Context) (err error) {
		state, err = l.mode.keys.LookKey(ctx, name, key, false)
		return err
	})
	if err != nil {
		err = onceError(name, key, err)
	}
	return state, err
}

// startRun counts an attempt. With neither a run nor an error the key is complete. The
// request may be repeated: an attempt may be counted twice.
func (l *Locker) startRun(ctx context.Context, lease *Lease, key string) (*Run, error) {
	r := &Run{lease: lease, key: key}
	var state driver.KeyState
	err := l.retryRepeatable(ctx, func(ctx context.Context) (err error) {
		state, err = l.mode.keys.StartKey(ctx, r.request())
		return err
	})
	switch {
	case err != nil:
		return nil, onceError(lease.Name(), key, lease.explain(ctx, err))
	case state.Complete:
		return nil, nil
	case !state.Current:
		return nil, r.lostError(ctx)
	}
	r.begun = state.Attempt
	return r, nil
}

func onceError(name, key string, err error) error {
	if errors.Is(err, ErrClosed) {
		return ErrClosed
	}
	return fmt.Errorf("sqllock: run %q once for %q: %w", name, key, err)
}

// Run is one run of the function of [Locker.Once]. It is valid until the function returns,
// and safe for concurrent use.
type Run struct {
	lease *Lease
	key   string
	begun int // how often

	mu     sync.Mutex
	state  runState
	failed error // of the last InTx
}

type runState uint8

const (
	runPlain    runState = iota
	runInTx              // InTx is in progress
	runFailed            // the last InTx has failed
	runComplete          // InTx has completed the key
)

// Key returns the key.
func (r *Run) Key() string {
	if r == nil {
		return ""
	}
	return r.key
}

// Attempt returns how often the key was begun, this run included: 1, or more if earlier runs
// have failed or crashed. After a request without a reply it may have skipped a number.
func (r *Run) Attempt() int {
	if r == nil {
		return 0
	}
	return r.begun
}

// Lease returns the lease of the name, for its Context and its Token. Do not unlock it.
func (r *Run) Lease() *Lease {
	if r == nil {
		return nil
	}
	return r.lease
}

// InTx is [Lease.InTx] of the lease, and also completes the key in its transaction: either
// both are committed, what fn writes and the completion, or neither. Call it for the last
// step of the run. After it has failed you can call it again. If it has failed and the
// function of Once returns nil all the same, Once returns its error, and the key is not
// complete.
//
// If the commit got no reply, InTx finds out whether the transaction was committed, and
// returns nil if it was. It looks until ctx ends, and at least for the time of two
// statements. If it cannot find out, it returns an error. The next run of the key begins
// after the transaction has ended, and finds out.
//
// InTx returns the errors of Lease.InTx, and [ErrDone] if the key is complete already. It
// returns [ErrInvalidOption] while another InTx of the same run is in progress.
func (r *Run) InTx(ctx context.Context, opts *sql.TxOptions, fn func(ctx context.Context, tx *sql.Tx) error) error {
	if fn == nil {
		return driver.NilError("function")
	}
	if err := driver.CheckContext(ctx); err != nil {
		return err
	}
	if r == nil || r.lease == nil {
		return ErrNotHeld
	}
	if err := r.beginTx(); err != nil {
		return err
	}
	err, panicked := error(nil), true
	defer func() {
		if panicked {
			err = errPanicked
		}
		r.endTx(err)
	}()
	err = r.inTx(ctx, opts, fn)
	panicked = false
	return err
}

// errPanicked is the error of an InTx whose function has panicked or ended its goroutine.
var errPanicked = errors.New("sqllock: the function of InTx did not return")

func (r *Run) beginTx() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch r.state {
	case runInTx:
		return fmt.Errorf("%w: InTx of the run of %q is in progress", ErrInvalidOption, r.key)
	case runComplete:
		return fmt.Errorf("%w: %q", ErrDone, r.key)
	}
	r.state = runInTx
	return nil
}

func (r *Run) endTx(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.state, r.failed = runComplete, err
	if err != nil {
		r.state = runFailed
	}
}

// inTx completes the key first: it is the first to know that it is complete already. Before
// the commit it looks again. After a deadlock MySQL, and after some errors SQLite, has undone
// everything and goes on without a transaction.
func (r *Run) inTx(ctx context.Context, opts *sql.TxOptions, fn func(ctx context.Context, tx *sql.Tx) error) error {
	keys, name, committing := r.lease.term.locker.mode.keys, r.lease.Name(), false
	err := r.lease.InTx(ctx, opts, func(ctx context.Context, tx *sql.Tx) error {
		completed, err := keys.CompleteKeyTx(ctx, tx, name, r.key)
		switch {
		case err != nil:
			return onceError(name, r.key, err)
		case !completed:
			return r.notCompleted(ctx, tx)
		}
		if err := fn(ctx, tx); err != nil {
			return err
		}
		complete, err := keys.IsCompleteTx(ctx, tx, name, r.key)
		switch {
		case err != nil:
			return onceError(name, r.key, err)
		case !complete:
			return onceError(name, r.key, errRolledBack)
		}
		committing = true
		return nil
	})
	if err != nil && committing {
		return r.settle(ctx, err)
	}
	return err
}

// notCompleted tells why a transaction could not complete the key. What it sees may be older than
// what it could not change.
func (r *Run) notCompleted(ctx context.Context, tx *sql.Tx) error {
	l, name := r.lease.term.locker, r.lease.Name()
	complete, err := l.mode.keys.IsCompleteTx(ctx, tx, name, r.key)
	if err == nil && !complete {
		err = l.withTimeout(ctx, r.lease.term.timeout, func(ctx context.Context) error {
			state, err := l.mode.keys.LookKey(ctx, name, r.key, false)
			if complete = state.Complete; err == nil && !complete {
				err = errForgotten
			}
			return err
		})
	}
	if err != nil {
		return onceError(name, r.key, err)
	}
	return fmt.Errorf("%w: %q", ErrDone, r.key)
}

// errForgotten is the error of a run that is longer than the retention of keys.
var errForgotten = errors.New("the run took longer than keys are kept, and the key was deleted: see ReaperOptions.KeyRetention")

// errRolledBack is the error of a transaction that goes on without what it has written.
var errRolledBack = errors.New("the database has undone the transaction after the error of a statement, such as a deadlock")

// settle finds out whether a commit that has failed was done.
func (r *Run) settle(ctx context.Context, failed error) error {
	var state driver.KeyState
	err := r.repeat(ctx, func(ctx context.Context, s driver.OnceStore) (err error) {
		state, err = s.LookKey(ctx, r.lease.Name(), r.key, true)
		return err
	})
	switch {
	case err != nil:
		return fmt.Errorf("%w; whether it was committed is not known: %w", failed, err)
	case state.Complete:
		return nil
	}
	return failed
}

// do calls fn, and records the completion unless InTx does that.
func (r *Run) do(ctx context.Context, fn func(context.Context, *Run) error) error {
	if err := fn(ctx, r); err != nil {
		return err
	}
	r.mu.Lock()
	state, failed := r.state, r.failed
	r.mu.Unlock()
	switch state {
	case runPlain:
		return r.record(ctx)
	case runInTx:
		return onceError(r.lease.Name(), r.key, errors.New("the function returned while its InTx is in progress"))
	}
	return failed
}

// record completes the key without a transaction of the application, while the lease is held: the
// row of a term that is over can stand for long.
func (r *Run) record(ctx context.Context) error {
	var state driver.KeyState
	sent := false
	err := r.repeat(ctx, func(ctx context.Context, s driver.OnceStore) (err error) {
		switch lost := r.lease.term.lostError() != nil; {
		case lost && !sent:
			return nil
		case lost: // an earlier request may have done it
			state, err = s.LookKey(ctx, r.lease.Name(), r.key, true)
			return err
		}
		sent = true
		state, err = s.CompleteKey(ctx, r.request())
		return err
	})
	switch {
	case err != nil:
		return onceError(r.lease.Name(), r.key, fmt.Errorf("it ran, and this was not recorded: %w", r.lease.explain(ctx, err)))
	case !state.Complete:
		return r.lostError(ctx)
	}
	return nil // also if an earlier request without a reply has done it
}

// repeat runs a statement until it has a reply: until ctx ends, and at least for the time
// of two statements. It also works while the Locker is being closed.
func (r *Run) repeat(ctx context.Context, f func(context.Context, driver.OnceStore) error) error {
	l, timeout := r.lease.term.locker, r.lease.term.timeout
	l.inflight.add()
	defer l.inflight.done()
	ctx, cancel := atLeast(ctx, 2*timeout)
	defer cancel()
	for pause := newBackoff(&l.cfg); ; {
		err := l.withTimeout(ctx, timeout, func(ctx context.Context) error {
			return f(ctx, l.mode.keys)
		})
		if err == nil || l.mode.Classify(err) == driver.Refused || l.base.Err() != nil || sleep(ctx, pause.next()) != nil {
			return err
		}
	}
}

func (r *Run) request() driver.KeyRequest {
	t := r.lease.term
	return driver.KeyRequest{Name: t.name, Key: r.key, Acq: t.acq, Version: t.token}
}

// lostError returns why the term is not the current one.
func (r *Run) lostError(ctx context.Context) error {
	t := r.lease.term
	reason, err := t.locker.endReason(ctx, t)
	if reason == 0 {
		reason = LostTaken
	}
	if err == nil {
		t.lose(reason, nil)
	}
	if lost := t.lostError(); lost != nil {
		return lost
	}
	return &LostError{Name: t.name, Token: t.token, Reason: reason, Err: err}
}
