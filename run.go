package sqllock

import (
	"context"
	"errors"

	"github.com/sqllock/sqllock/driver"
)

// Run campaigns, calls fn while the candidate leads, frees the name when fn has returned,
// and campaigns again, until ctx ends. What a leader says is the Value of the options;
// fn may change it with [Election.Proclaim].
//
// fn's context ends with ctx or with the term, whichever is first, and carries the lease,
// which fn also gets: for its token, and for [Lease.Guard]. When it ends fn has to return:
// the name of a term that is lost goes to somebody else, whether fn has returned or not,
// but Run does not campaign before. If fn returns nil while the candidate leads, it resigns
// and stands in line anew. If fn panics or ends its goroutine the name is freed, and that
// goes on.
//
// Run returns what ended it: an error that wraps ctx's, what Campaign returns if the
// database refuses or the Locker is closed, or an error that fn has returned while the
// candidate led and ctx had not ended. What fn returns after the term was lost says nothing
// and is dropped. Run returns [ErrCampaigning] while a Campaign or a Run of this Election
// is under way, and [ErrLeading] while it leads.
func (e *Election) Run(ctx context.Context, fn func(ctx context.Context, lease *Lease) error) error {
	if fn == nil {
		return driver.NilError("function")
	}
	if err := driver.CheckContext(ctx); err != nil {
		return err
	}
	if err := e.startRun(); err != nil {
		return err
	}
	defer e.endRun()
	for {
		err := e.campaign(ctx, e.value, true)
		switch {
		case errors.Is(err, ErrLost): // granted too late to be used
			continue
		case err != nil:
			return err
		}
		if err := e.serve(ctx, fn); err != nil {
			return err
		}
	}
}

func (e *Election) startRun() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	switch {
	case e.busy || e.running:
		return ErrCampaigning
	case e.lease != nil && e.lease.Remaining() > 0:
		return ErrLeading
	}
	e.running = true
	return nil
}

func (e *Election) endRun() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.running = false
}

// serve is one term of Run. An error ends it.
func (e *Election) serve(ctx context.Context, fn func(context.Context, *Lease) error) error {
	e.mu.Lock()
	lease := e.lease
	e.mu.Unlock()
	if lease == nil { // somebody has resigned in the meantime
		return nil
	}
	bound, cancel := lease.Bind(ctx)
	defer cancel()
	defer func() { _ = e.Resign(ctx) }() // also when fn panics; what it could not free is freed in the background
	if err := fn(bound, lease); err != nil && ctx.Err() == nil && lease.Remaining() > 0 {
		return err
	}
	return nil
}
