package sqllock

import (
	"context"
	"fmt"
	"math"
	"time"

	"github.com/sqllock/sqllock/driver"
)

// SequencerState is what the database says of a sequencer.
type SequencerState uint8

// The states of a sequencer. Of the three, only one is a reason to do what is asked for.
const (
	// SequencerUnknown: the database cannot tell. It does not know the name, because
	// that was never locked or was purged, or only earlier terms of it; or it has
	// not been told of the term.
	SequencerUnknown SequencerState = iota
	// SequencerCurrent: somebody held the name in this very term when the database
	// was asked.
	SequencerCurrent
	// SequencerStale: nobody held the name in this term, nor ever will: a later term
	// has begun, or this one has ended, or it is one that cannot have been.
	SequencerStale
)

// String returns the state in one word.
func (s SequencerState) String() string {
	switch s {
	case SequencerUnknown:
		return "unknown"
	case SequencerCurrent:
		return "current"
	case SequencerStale:
		return "stale"
	}
	return fmt.Sprintf("SequencerState(%d)", uint8(s))
}

// CheckSequencer asks the database whether the term of a sequencer is the current one of
// its name, in the Locker's mode. It is one look, as that of [Locker.Inspect], and waits
// for no lock.
//
// The term is current if it is held and has not expired, be it that its holder does not
// trust it any more: during a [LockDelay] too. It is shared by all readers that it has,
// so it is current as long as one of them reads. In the modes that keep locks in
// sessions nobody writes down who shares a name: there, a shared sequencer is never
// known to be current, and stale only while it is known who has the name alone. In the
// mode advisory on Postgres a holder is known about a second after the grant, or at once
// if it has a [Value]; a term that ended before is never known. The tokens of LockTx and
// its kin belong to transactions, of which the tables know nothing: a sequencer that is
// made of one is not current.
//
// What was current may be over when CheckSequencer returns. A resource that must
// never take a late write has to remember the highest token, and compare.
//
// It returns [ErrInvalidSequencer] if there can be no such sequencer, before any SQL,
// [ErrClosed], or the error of the database; the state is unknown then.
func (l *Locker) CheckSequencer(ctx context.Context, s Sequencer) (SequencerState, error) {
	if err := driver.CheckContext(ctx); err != nil {
		return SequencerUnknown, err
	}
	if err := s.invalid(); err != nil {
		return SequencerUnknown, err
	}
	v, err := l.judge(ctx, s)
	return v.state, err
}

// verdict is what one look says of a sequencer.
type verdict struct {
	state SequencerState
	// floor is the token below which all of the name are stale, or 0. It is what the row
	// says, and never the claim: anybody can make one up.
	floor int64
	// left is when a current term expires unless it is renewed, from the look on.
	left time.Duration
}

func (l *Locker) judge(ctx context.Context, s Sequencer) (verdict, error) {
	row, err := l.readRow(ctx, s.Name)
	if err != nil {
		return verdict{}, operatorError("check a sequencer of", s.Name, err)
	}
	return verdictOf(&row, s, l.mode.sessions != nil), nil
}

// verdictOf compares a sequencer with the row of its name.
//
// In the unique mode the row has the one order of all terms. In sessions it has that of
// the exclusive ones: those who share a name have tokens of their own, several at a time,
// of which the row has some, and says nothing else of them. Such a row names nobody.
func verdictOf(r *driver.Row, s Sequencer, sessions bool) verdict {
	last, held := r.Holder.Version, stateOf(r) == StateHeld
	nameless := sessions && r.Holder.Acq == driver.ID{}
	v := verdict{left: math.MaxInt64}
	switch {
	case last == 0, nameless: // the last term may be a shared one, beside others with lower tokens
	case held:
		v.floor = last
	default:
		v.floor = last + 1
	}
	switch {
	case s.Token > last, nameless && s.Shared:
	case s.Token == last && held && s.Shared == r.Holder.Shared:
		v.state = SequencerCurrent
		if !r.Session {
			v.left = time.Duration(r.Holder.Until-r.Now) * time.Microsecond
		}
	default:
		v.state = SequencerStale
	}
	return v
}
