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

// DefaultMinHold is the time after the start of a job during which no other process
// starts it, even if the job is done earlier.
const DefaultMinHold = 5 * time.Second

// Locker is a gocron.Locker, for gocron.WithDistributedLocker and
// gocron.WithDistributedJobLocker. If a job is due in several processes, it runs in the
// process that locks its name first. Make a Locker with [NewLocker]. It is safe for
// concurrent use.
type Locker struct {
	locks  *sqllock.Locker
	prefix string
	opts   []sqllock.LockOption

	mu   sync.Mutex
	runs map[string]*run // by the name of the job
}

var _ gocron.Locker = (*Locker)(nil)

// NewLocker returns a Locker that locks jobs with locks, which may have any mode. The name
// of a lock is the prefix and the name of the job. A prefix such as "jobs/" keeps these
// locks apart from others. Processes that share jobs must use the same prefix and the same
// mode. Name each job with gocron.WithName: gocron's default names change with the code.
//
// The options are those of [sqllock.Locker.TryLock]. The default of MinHold is
// [DefaultMinHold] here. Choose a MinHold with these bounds:
//
//   - It must be longer than the difference of the clocks plus the delay of job starts.
//     Otherwise a fast job runs again in a process where it is due later.
//   - It must be shorter than the time between two runs. Otherwise the runs in between are
//     skipped. If a job is due more often than others, give it its own Locker.
//
// MinHold(0) releases the name when the job is done. The lease is renewed while the job
// runs.
//
// NewLocker runs no SQL. It returns [sqllock.ErrInvalidOption] if locks is nil, if an option
// is out of bounds, or if an option does not apply. It returns [sqllock.ErrInvalidName] if
// no valid name can begin with the prefix.
func NewLocker(locks *sqllock.Locker, prefix string, opts ...sqllock.LockOption) (*Locker, error) {
	if locks == nil {
		return nil, fmt.Errorf("gocronlock: %w", driver.NilError("*sqllock.Locker"))
	}
	if err := driver.CheckName(prefix + "x"); err != nil {
		return nil, fmt.Errorf("gocronlock: the prefix: %w", err)
	}
	opts = append([]sqllock.LockOption{sqllock.MinHold(DefaultMinHold)}, opts...)
	// Validate the options here, because gocron drops the errors of Lock. TryLock checks the
	// options first, then the name, and both before any SQL.
	if _, err := locks.TryLock(context.Background(), "", opts...); !errors.Is(err, sqllock.ErrInvalidName) {
		return nil, fmt.Errorf("gocronlock: %w", err)
	}
	return &Locker{locks: locks, prefix: prefix, opts: opts, runs: make(map[string]*run)}, nil
}

// Lock implements gocron.Locker. It does not wait. It returns a [*sqllock.HeldError] if the
// job runs in another process, or has run there within MinHold. It returns
// [sqllock.ErrHeld] if an earlier run in this process has not ended, even if that run has
// lost its lease. Other errors are those of [sqllock.Locker.TryLock]. After an error gocron
// skips the run. It reports the error only to a listener of gocron.AfterLockError.
//
// Lock does not re-enter a lease in ctx.
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

// Lease returns the lease of the job that runs now in this process under the given name.
// The job can bind its context to the lease, use its token, or guard a transaction with it.
// The lease may be lost. Do not unlock it. Lease returns [sqllock.ErrNotHeld] if the job
// does not run in this process, or if it runs without this Locker.
func (l *Locker) Lease(key string) (*sqllock.Lease, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if r := l.runs[key]; r != nil && r.lease != nil {
		return r.lease, nil
	}
	return nil, fmt.Errorf("gocronlock: no job %q runs here: %w", key, sqllock.ErrNotHeld)
}

// A run is a job that runs or is about to run. Gocron unlocks it.
type run struct {
	locker *Locker
	key    string
	lease  *sqllock.Lease // nil until TryLock has returned; locker.mu guards it until then
}

var _ gocron.Lock = (*run)(nil)

// Unlock implements gocron.Lock. It releases the name, or leaves it held until MinHold is
// over. It works with a context that has ended, because gocron ends the context of a job
// on shutdown. The errors are those of [sqllock.Lease.Unlock]. Gocron drops them; the hook
// Lost of the sqllock.Locker reports a loss.
func (r *run) Unlock(ctx context.Context) error {
	defer r.locker.leave(r)
	return r.lease.Unlock(ctx)
}

// enter adds a run. It returns false if the same job runs already.
func (l *Locker) enter(r *run) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.runs[r.key] != nil {
		return false
	}
	l.runs[r.key] = r
	return true
}

// leave removes a run, unless a later run of the job has replaced it.
func (l *Locker) leave(r *run) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.runs[r.key] == r {
		delete(l.runs, r.key)
	}
}
