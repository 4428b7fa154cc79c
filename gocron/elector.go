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

// DefaultSettle is for how long a new leader starts no job.
const DefaultSettle = time.Second

// retry is the pause before the next campaign after one that the database refused.
const retry = time.Second

// Elector is a gocron.Elector, for gocron.WithDistributedElector: of the processes that
// have one of the same name, one at a time runs jobs. It is safe for concurrent use. Make
// one with [NewElector], and close it.
type Elector struct {
	election *sqllock.Election
	settle   time.Duration
	cancel   context.CancelFunc
	done     chan struct{} // closed when the campaign is over

	term   atomic.Pointer[term]  // the last one, nil before the first
	failed atomic.Pointer[error] // why it does not campaign, nil if it does
}

var _ gocron.Elector = (*Elector)(nil)

// term is the time for which an Elector leads.
type term struct {
	lease *sqllock.Lease
	began time.Time
}

// ElectorOption is an option of [NewElector].
type ElectorOption func(*Elector)

// Settle is for how long a new leader starts no job; from 0 on, default [DefaultSettle]. It
// should be more than the clocks of the processes differ, and more than jobs start late:
// otherwise what the leader before it has run just before it resigned could be due
// once more on a clock that is behind. What is due in that time runs nowhere.
func Settle(d time.Duration) ElectorOption {
	return func(e *Elector) { e.settle = d }
}

// NewElector returns an Elector that campaigns in the background from now on, with
// [sqllock.Election.Run], until Close or until the Locker of the election is closed. If
// the database refuses it campaigns again a second later. Nobody else may call Campaign or
// Run of the election; all else may be used: Resign hands over to the next, and Lease
// is for jobs, which can bind their context to it.
//
// NewElector runs no SQL itself. It returns [sqllock.ErrInvalidOption] if the election is
// nil or an option out of bounds.
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

// IsLeader implements gocron.Elector: it returns nil if this process leads, has done so for
// longer than Settle, and may believe it until a deadline that has not passed. Otherwise it
// returns an error that is [sqllock.ErrNotLeader] and also, where there is one, the reason
// why it does not campaign. It asks the memory and a clock, never the database.
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

// Close ends the campaign, resigns if it leads, so that the next one leads at once, and waits
// for that as long as ctx allows. With a ctx that has ended already it waits as well: a
// campaign ends at once, and to resign takes no longer than one statement may. What could
// not be said to the database is said in the background, while the Locker of the election is
// open. Jobs that run are not waited for: shut the scheduler down before. Close may be called
// again; its error is that of ctx, or [sqllock.ErrInvalidOption] if ctx is nil, which stands
// for one that has ended.
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

// lead is one term.
func (e *Elector) lead(ctx context.Context, lease *sqllock.Lease) error {
	e.term.Store(&term{lease, time.Now()})
	<-ctx.Done()
	return nil
}
