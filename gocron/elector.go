package gocronlock

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/go-co-op/gocron/v2"

	"github.com/sqllock/sqllock"
	"github.com/sqllock/sqllock/driver"
)

// DefaultSettle is the time during which a new leader starts no job.
const DefaultSettle = time.Second

// retry is the pause after a campaign that failed.
const retry = time.Second

// Elector is a gocron.Elector, for gocron.WithDistributedElector. Of the processes with an
// election of the same name, one at a time runs jobs. Make an Elector with [NewElector] and
// close it with Close. It is safe for concurrent use.
type Elector struct {
	election *sqllock.Election
	settle   time.Duration
	cancel   context.CancelFunc
	done     chan struct{} // closed when the campaign is over

	term   atomic.Pointer[term]  // the last term, nil before the first
	failed atomic.Pointer[error] // why it does not campaign, nil while it does
}

var _ gocron.Elector = (*Elector)(nil)

// A term is a time during which an Elector leads.
type term struct {
	lease *sqllock.Lease
	began time.Time
}

// An ElectorOption is an option of [NewElector].
type ElectorOption func(*Elector)

// Settle sets the time during which a new leader starts no job. It must be at least 0. The
// default is [DefaultSettle].
//
// Choose more than the difference of the clocks plus the delay of job starts. Otherwise a
// job that the former leader ran just before it resigned can run again, if the clock of the
// new leader is behind. Jobs that are due within the time are skipped.
func Settle(d time.Duration) ElectorOption {
	return func(e *Elector) { e.settle = d }
}

// NewElector returns an Elector that campaigns in the background with
// [sqllock.Election.Run]. The campaign ends with Close, or when the Locker of the election
// is closed. After an error of the database, the Elector campaigns again one second later.
//
// Do not call Campaign or Run of the election yourself. You can use its other methods:
// Resign hands over to the next leader, and a job can bind its context to Lease.
//
// NewElector itself runs no SQL. It returns [sqllock.ErrInvalidOption] if the election is
// nil or an option is out of bounds.
func NewElector(election *sqllock.Election, opts ...ElectorOption) (*Elector, error) {
	if election == nil {
		return nil, fmt.Errorf("gocronlock: %w", driver.NilError("*sqllock.Election"))
	}
	e := &Elector{election: election, settle: DefaultSettle, done: make(chan struct{})}
	for _, opt := range opts {
		if opt == nil {
			return nil, fmt.Errorf("gocronlock: %w", driver.NilError("ElectorOption"))
		}
		opt(e)
	}
	if e.settle < 0 {
		return nil, fmt.Errorf("gocronlock: %w: Settle(%v): must not be negative", sqllock.ErrInvalidOption, e.settle)
	}
	var ctx context.Context
	ctx, e.cancel = context.WithCancel(context.Background())
	go e.campaign(ctx)
	return e, nil
}

// IsLeader implements gocron.Elector. It returns nil if this process has led for longer than
// Settle and the deadline of its lease has not passed. Otherwise the error wraps
// [sqllock.ErrNotLeader] and, if the campaign has failed, the cause. IsLeader does not use
// the database and does not block.
func (e *Elector) IsLeader(context.Context) error {
	t := e.term.Load()
	if t == nil || t.lease.Remaining() <= 0 {
		return e.notLeader()
	}
	if led := time.Since(t.began); led < e.settle {
		return fmt.Errorf("gocronlock: %w of %q: it leads for %v, and begins after %v", sqllock.ErrNotLeader, e.election.Name(), led, e.settle)
	}
	return nil
}

func (e *Elector) notLeader() error {
	if failed := e.failed.Load(); failed != nil {
		return fmt.Errorf("gocronlock: %w of %q: it does not campaign: %w", sqllock.ErrNotLeader, e.election.Name(), *failed)
	}
	return fmt.Errorf("gocronlock: %w of %q", sqllock.ErrNotLeader, e.election.Name())
}

// Close ends the campaign. If this process leads, Close resigns, so that the next process
// leads at once.
//
// Close waits for that until ctx ends. If ctx has ended before the call, Close waits too,
// but no longer than one statement can take. If the database does not answer, the release
// continues in the background while the Locker of the election is open. Close does not wait
// for running jobs, so shut the scheduler down first. You can call Close again.
//
// Close returns the cause of ctx if ctx ends too early. It treats a nil ctx as one that has
// ended, and returns [sqllock.ErrInvalidOption].
func (e *Elector) Close(ctx context.Context) error {
	e.cancel()
	if err := driver.CheckContext(ctx); err != nil || ctx.Err() != nil {
		<-e.done
		return err
	}
	select {
	case <-e.done:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("gocronlock: close: the campaign for %q is not over yet: %w", e.election.Name(), context.Cause(ctx))
	}
}

func (e *Elector) campaign(ctx context.Context) {
	defer close(e.done)
	for {
		err := e.election.Run(ctx, e.lead)
		if ctx.Err() != nil {
			return
		}
		e.failed.Store(&err)
		if errors.Is(err, sqllock.ErrClosed) {
			return
		}
		select {
		case <-time.After(retry):
			e.failed.Store(nil)
		case <-ctx.Done():
			return
		}
	}
}

// lead runs for the length of one term.
func (e *Elector) lead(ctx context.Context, lease *sqllock.Lease) error {
	e.term.Store(&term{lease, time.Now()})
	<-ctx.Done()
	return nil
}
