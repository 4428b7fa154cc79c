package sqllock

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/sqllock/sqllock/driver"
)

// RequestResign asks the current leader to resign, and waits until its term is over, or
// detached, see [Lease.Detach]. The leader learns of it if its option ResignOnRequest is set,
// within a third of its TTL and a second at most: the context of its lease ends with cause
// [ErrResignRequested], and the leader is to call [Election.Resign], or to return from the
// function of [Election.Run]. Nothing ends by force: a leader that does not listen, or does not
// want to, leads on.
//
// ctx is how long to wait. If the leader still leads when ctx ends, the error is
// [ErrResignRefused] and names the leader; it also wraps the error of ctx. Without a deadline
// RequestResign can wait for ever. The request stays with the term, so a leader can follow it
// later; it does not pass to the next term.
//
// A candidate that leads may ask itself. RequestResign returns [ErrNoLeader] if the name has no
// leader, [ErrUnsupported] in the modes for update and advisory and of a quorum, before any
// SQL, [ErrClosed], or the error of the database.
func (e *Election) RequestResign(ctx context.Context) error {
	if err := driver.CheckContext(ctx); err != nil {
		return err
	}
	l := e.locker
	if l.mode.quorum {
		return fmt.Errorf("%w: request that the leader of %q resigns: a quorum keeps the lock", ErrUnsupported, e.name)
	}
	if l.mode.sessions != nil {
		return fmt.Errorf("%w: request that the leader of %q resigns: a session keeps the lock", ErrUnsupported, e.name)
	}
	term, err := e.Leader(ctx)
	if err != nil {
		return err
	}
	requested := false
	for pause := newBackoff(&l.cfg); ; {
		row, err := l.requestEnd(ctx, e.name, term.Token)
		switch {
		case err == nil && (stateOf(&row) != StateHeld || row.Holder.Version != term.Token):
			return nil
		case err == nil:
			requested = requested || row.Asked == term.Token
		case ctx.Err() == nil && (errors.Is(err, ErrClosed) || l.mode.Classify(err) == driver.Refused):
			return operatorError("request resign", e.name, err)
		}
		if end := l.sleep(ctx, nil, pause.next()); end != nil {
			return refusedError(&term, requested, end, err)
		}
	}
}

// refusedError is the error of a RequestResign that has waited in vain.
func refusedError(t *Term, requested bool, end, err error) error {
	switch {
	case errors.Is(end, ErrClosed):
		return ErrClosed
	case !requested && err != nil:
		return operatorError("request resign", t.Name, fmt.Errorf("%w; the database: %w", end, err))
	}
	return fmt.Errorf("%w: %q is led by %q (label %q, token %d): %w", ErrResignRefused, t.Name, t.Identity, t.Label, t.Token, end)
}

// requestEnd asks the holder of a term to end it, unless that was done before, and returns the row
// as it was. It can be repeated.
func (l *Locker) requestEnd(ctx context.Context, name string, token int64) (row driver.Row, err error) {
	err = l.retryRepeatable(ctx, func(ctx context.Context) error {
		res, err := l.mode.Revoke(ctx, []driver.RevokeRequest{{Name: name, Version: token, Politely: true}})
		if err == nil {
			row = res[0].Row
		}
		return err
	})
	return row, err
}

// maxResignInterval is the longest time between two looks at whether a leader was asked to
// resign.
const maxResignInterval = time.Second

// listen ends the context of a leader's lease when it is asked to resign, until the lease
// ends. Close waits for it.
func (e *Election) listen(lease *Lease) {
	l := e.locker
	l.inflight.add()
	go func() {
		defer l.inflight.done()
		ctx := lease.Context()
		for l.sleep(ctx, nil, min(e.opts.trustedTTL()/3, maxResignInterval)) == nil {
			if version, err := l.lastRequest(ctx, e.name); err == nil && version == lease.Token() {
				lease.term.cancelContexts(ErrResignRequested)
				return
			}
		}
	}()
}

// lastRequest returns the version of the last term whose holder was asked to end it.
func (l *Locker) lastRequest(ctx context.Context, name string) (version int64, err error) {
	err = l.retryRepeatable(ctx, func(ctx context.Context) error {
		res, err := l.mode.Read(ctx, driver.ReadRequest{Names: []string{name}, Asked: true})
		if err == nil {
			version = res.Rows[0].Asked
		}
		return err
	})
	return version, err
}

// resignRequested reports that a lease's context has ended because its holder was asked to resign.
func (l *Lease) resignRequested() bool { return context.Cause(l.ctx.Context) == ErrResignRequested }
