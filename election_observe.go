package sqllock

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"iter"
	"time"

	"github.com/sqllock/sqllock/driver"
)

// Term is what the database says of who leads.
type Term struct {
	Name     string
	Identity string // of the leader; of who holds the name without an [Election] it is the Owner
	Label    string // of its Locker

	// Token is the number of the term, higher than that of every earlier one, and the
	// fencing token of the leader's writes. It is 0 if nobody leads; then Identity,
	// Label, Since and Value are zero too.
	Token int64

	Since time.Time // on the clock of the database
	Value []byte    // what the leader has to say
}

// Vacant reports that nobody leads.
func (t Term) Vacant() bool { return t.Token == 0 }

// newTerm is the term that a name is in. Who shares a name leads nothing.
func termOfInfo(i *Info) Term {
	if i.State != StateHeld || i.Readers > 0 {
		return Term{Name: i.Name}
	}
	return Term{Name: i.Name, Identity: i.Owner, Label: i.Label, Token: i.Token, Since: i.Since, Value: i.Value}
}

// same reports whether nothing has changed that is told.
func (t *Term) equal(u *Term) bool { return t.Token == u.Token && bytes.Equal(t.Value, u.Value) }

// Leader asks the database who leads, be it this candidate. A leader that has died is
// told until its lease has expired. It returns [ErrNoLeader] if nobody leads,
// [ErrClosed], or the error of the database.
func (e *Election) Leader(ctx context.Context) (Term, error) {
	info, err := e.locker.Inspect(ctx, e.name)
	if err != nil {
		return Term{}, err
	}
	term := termOfInfo(&info)
	if term.Vacant() {
		return Term{}, fmt.Errorf("%w of %q", ErrNoLeader, e.name)
	}
	return term, nil
}

// Observe returns an iterator over the terms of the name: the one that it is in now, and
// then each change that it sees, in their order, of the leader or of what it says. While
// nobody leads it yields a term that is Vacant. A term that is shorter than the pause
// between two looks may be missed; the last state never is.
//
// It looks at the database as [Locker.Watch] does, with pauses of RetryMax at the longest,
// goes on when that has been away, and ends, with an error, as that does: when ctx ends,
// when the Locker is closed, or when the database refuses.
func (e *Election) Observe(ctx context.Context) iter.Seq2[Term, error] {
	return func(yield func(Term, error) bool) {
		var last Term
		first := true
		for info, err := range e.locker.Watch(ctx, e.name) {
			if err != nil {
				yield(Term{}, err)
				return
			}
			term := termOfInfo(&info)
			if !first && term.equal(&last) {
				continue
			}
			first, last = false, term
			if !yield(term, nil) {
				return
			}
		}
	}
}

// Proclaim changes what the leader says, and keeps the term. value is at most 64 KiB and
// may be empty. It waits for a row that somebody has locked, as long as ctx allows; on
// SQLite, and in the session modes on MySQL and MariaDB, a transaction that guards the term
// is in the way, so that it must not be called within one.
//
// It returns [ErrNotLeader] if the candidate does not lead, [ErrInvalidOption] if the value is
// too long, both before any SQL; a [*LostError] if the term is over; or the error of the
// database, after which the value may have been changed or not. Of two at the same time
// either may be the last.
func (e *Election) Proclaim(ctx context.Context, value []byte) error {
	if err := driver.CheckContext(ctx); err != nil {
		return err
	}
	if err := e.checkValue(value); err != nil {
		return err
	}
	lease, err := e.Lease()
	if err != nil {
		return err
	}
	t, done := lease.term, false
	err = e.locker.retry(ctx, func(ctx context.Context) (err error) {
		done, err = e.locker.mode.Proclaim(ctx, t.proclaimRequest(value))
		return err
	})
	switch {
	case err != nil:
		return operatorError("proclaim", e.name, err)
	case done:
		return nil
	}
	return e.termEndError(ctx, lease)
}

// overthrown tells why the database does not know a term.
func (e *Election) termEndError(ctx context.Context, lease *Lease) error {
	t := lease.term
	reason, err := e.locker.endReason(ctx, t)
	if err == nil && reason != 0 {
		t.lose(reason, nil)
	}
	if lost := t.lostError(); lost != nil {
		return lost
	}
	if lease.Remaining() <= 0 { // it was resigned from meanwhile
		return ErrNotLeader
	}
	return operatorError("proclaim", e.name, errors.Join(errUnknownTerm, err))
}

// errUnknownTerm says that a term was not found by the statement that looked for it.
var errUnknownTerm = errors.New("the database did not know the term")
