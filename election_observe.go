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

// Term is what the database knows of the leader of a name.
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

// Vacant reports whether the name has no leader.
func (t Term) Vacant() bool { return t.Token == 0 }

// termOfInfo returns the term that a name is in. Readers and holders of permits lead nothing.
func termOfInfo(i *Info) Term {
	if i.State != StateHeld || i.Readers > 0 || i.PermitsHeld > 0 {
		return Term{Name: i.Name}
	}
	return Term{Name: i.Name, Identity: i.Owner, Label: i.Label, Token: i.Token, Since: i.Since, Value: i.Value}
}

// equal reports whether token and value are the same.
func (t *Term) equal(u *Term) bool { return t.Token == u.Token && bytes.Equal(t.Value, u.Value) }

// Leader asks the database for the leader, which may be this candidate. A leader that has
// crashed is returned until its lease has expired. Leader returns [ErrNoLeader] if the
// name has no leader, [ErrClosed], or the error of the database.
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

// Observe returns an iterator over the terms of the name: the current one, and then each
// change of the leader or its value that it sees, in order. While the name has no leader,
// it yields a term that is Vacant. A term that is shorter than the pause between two polls
// may be missed; the last state never is.
//
// Observe polls the database as [Locker.Watch] does, with pauses of at most RetryMax. It
// goes on after an outage. It ends with an error when ctx ends, when the Locker is closed,
// or when the database refuses.
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

// Proclaim changes the value of the leader during its term. value is at most 64 KiB and
// may be empty. Proclaim waits for a locked row as long as ctx allows. On SQLite, and in
// the modes for update and advisory on MySQL and MariaDB, a transaction that guards the
// term blocks Proclaim: do not call it within such a transaction.
//
// Proclaim returns [ErrNotLeader] if the candidate does not lead, [ErrInvalidOption] if
// the value is too long, both before any SQL; ErrNotLeader also if the candidate resigns
// meanwhile; a [*LostError] if the term is over; [ErrClosed]; or the error of the database,
// after which it is unknown whether the value was changed. Of two concurrent calls either may
// be the last.
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
		done, err = e.locker.mode.SetValue(ctx, t.valueRequest(value))
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

// termEndError returns why the database does not know a term.
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

// errUnknownTerm says that a statement did not find the term.
var errUnknownTerm = errors.New("the database did not know the term")
