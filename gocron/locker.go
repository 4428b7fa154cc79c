package gocronlock

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/go-co-op/gocron/v2"

	"github.com/sqllock/sqllock"
	"github.com/sqllock/sqllock/driver"
)

// DefaultMinHold is for how long a job that was started is not started anywhere else,
// even if it is done before.
const DefaultMinHold = 5 * time.Second

// Locker is a gocron.Locker, for gocron.WithDistributedLocker and
// gocron.WithDistributedJobLocker: a job that is due in several processes runs in the one
// that locks its name first. It is safe for concurrent use. Make one with [NewLocker].
type Locker struct {
	locks  *sqllock.Locker
	prefix string
	opts   []sqllock.LockOption

	mu   sync.Mutex
	runs map[string]*run // by the name of the job
}

var _ gocron.Locker = (*Locker)(nil)

// NewLocker returns a Locker that locks jobs with locks, of any mode. The name of a lock is
// prefix and the name of the job: so "jobs/" keeps them apart from other locks. Processes
// that share jobs must use one prefix and one mode. Give jobs names, with gocron.WithName:
// what they are called otherwise changes with the code.
//
// Options are those of [sqllock.Locker.TryLock]. MinHold, which is [DefaultMinHold] unless
// it is given, must be longer than the clocks of the processes differ and jobs start late, or
// a fast job runs once more where it is due later; and shorter than the time between two
// runs, or those in between run nowhere. Give jobs that are due more often a Locker
// of their own. MinHold(0) frees the name when the job is done. The lease is renewed for
// as long as the job runs.
//
// NewLocker runs no SQL. It returns [sqllock.ErrInvalidOption] if locks is nil, or an option
// is out of bounds or does not apply, and [sqllock.ErrInvalidName] if no name can begin with
// the prefix.
func NewLocker(locks *sqllock.Locker, prefix string, opts ...sqllock.LockOption) (*Locker, error) {
	if locks == nil {
		return nil, fmt.Errorf("gocronlock: %w", driver.NilError("*sqllock.Locker"))
	}
	if err := driver.CheckName(prefix + "x"); err != nil {
		return nil, fmt.Errorf("gocronlock: the prefix: %w", err)
	}
	opts = append([]sqllock.LockOption{sqllock.MinHold(DefaultMinHold)}, opts...)
	// Gocron drops errors. TryLock refuses options first, then names, and both before any
	// SQL: so one that has no name tells whether the options are right.
	if _, err := locks.TryLock(context.Background(), "", opts...); !errors.Is(err, sqllock.ErrInvalidName) {
		return nil, fmt.Errorf("gocronlock: %w", err)
	}
	return &Locker{locks: locks, prefix: prefix, opts: opts, runs: make(map[string]*run)}, nil
}

// Lock implements gocron.Locker. It does not wait: if the job runs elsewhere, or has run
// there just now, it returns a [*sqllock.HeldError], and otherwise the errors of
// [sqllock.Locker.TryLock]. It returns [sqllock.ErrHeld] if an earlier run of the job in
// this process has not ended, be its lease lost. After an error gocron skips the run, and
// tells nobody but a listener of gocron.AfterLockError.
//
// A lease that ctx carries is not re-entered.
func (l *Locker) Lock(ctx context.Context, key string) (gocron.Lock, error) {
	if err := driver.CheckContext(ctx); err != nil {
		return nil, fmt.Errorf("gocronlock: %w", err)
	}
	r := &run{locker: l, key: key}
	if !l.enter(r) {
		return nil, fmt.Errorf("gocronlock: a run of %q in this process has not ended: %w", key, sqllock.ErrHeld)
	}
	lease, err := l.locks.TryLock(sqllock.WithoutOwner(ctx), l.prefix+key, l.opts...)
	if err != nil {
		l.leave(r)
		return nil, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	r.lease = lease
	return r, nil
}

// Lease returns the lease under which the job of that name runs now in this process: the
// job can bind its context to it, take its token, or guard a transaction with it. The lease
// may be lost; it is not to be unlocked. If the job does not run, or runs without
// this Locker, the error is [sqllock.ErrNotHeld].
func (l *Locker) Lease(key string) (*sqllock.Lease, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if r := l.runs[key]; r != nil && r.lease != nil {
		return r.lease, nil
	}
	return nil, fmt.Errorf("gocronlock: no job %q runs here: %w", key, sqllock.ErrNotHeld)
}

// run is a job that runs, or may be about to. It is what gocron has to unlock.
type run struct {
	locker *Locker
	key    string
	lease  *sqllock.Lease // nil as long as it is asked for; locker.mu guards it until then
}

var _ gocron.Lock = (*run)(nil)

// Unlock implements gocron.Lock: it frees the name, unless MinHold keeps it, also when the
// context has ended, as that of a job has whose scheduler was shut down. Its errors are those
// of [sqllock.Lease.Unlock]; gocron drops them. The hook Lost of the Locker tells of a loss.
func (r *run) Unlock(ctx context.Context) error {
	defer r.locker.leave(r)
	return r.lease.Unlock(ctx)
}

// enter notes a run, unless there is one of the same job.
func (l *Locker) enter(r *run) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.runs[r.key] != nil {
		return false
	}
	l.runs[r.key] = r
	return true
}

// leave forgets a run, unless there is a later one by now.
func (l *Locker) leave(r *run) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.runs[r.key] == r {
		delete(l.runs, r.key)
	}
}
