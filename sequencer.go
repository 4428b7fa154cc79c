package sqllock

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/sqllock/sqllock/driver"
	"github.com/sqllock/sqllock/internal/sequencer"
)

// Sequencer says in which term of a name a request is made. The receiver of the request
// checks it with [Locker.CheckSequencer], with a [SequencerChecker], or by comparing
// tokens. A Sequencer is a claim and not a secret: anybody can make one up, and it does
// not identify its sender.
//
// When you check a Sequencer, check its Name, Shared and Permit too. A current term proves
// nothing if it belongs to another name, or if others hold the name too and the request changes
// the resource.
// A Sequencer does not contain the mode and the database. The Locker that checks it
// determines them, and the sender cannot choose them.
type Sequencer struct {
	Name   string
	Shared bool
	Permit bool // of a [Semaphore]
	Slot   int  // of the permit: tokens rise in each slot apart
	Token  int64
}

// Sequencer returns the sequencer of the lease's term. It is the same for the whole life of
// the lease. Sequencer also returns it when the lease has ended: the receiver finds out
// whether it is current. It does not block.
func (l *Lease) Sequencer() Sequencer {
	return Sequencer{Name: l.Name(), Shared: l.Shared(), Permit: l.Permit(), Slot: l.Slot(), Token: l.Token()}
}

// String returns the sequencer as one line of printable ASCII without spaces, of at most
// 803 bytes, fit for an HTTP header. It has four parts with colons between them: the tag of
// the format, the name, "exclusive", "shared" or "permit-" with the slot, and the token. For
// example:
//
//	sqllock1:invoice/42:exclusive:1763751135004561
//
// In the name, letters and digits of ASCII and - . _ ~ / stand for themselves. Any other
// byte is a percent sign and two hexadecimal digits in upper case.
func (s Sequencer) String() string { return sequencer.Term(s).String() }

// ParseSequencer reads the text that [Sequencer.String] writes. It accepts no other text:
// each sequencer has exactly one. The error is an [ErrInvalidSequencer] that quotes the
// text and says what is wrong. It is an [ErrInvalidName] too if the name is wrong.
func ParseSequencer(text string) (Sequencer, error) {
	t, err := sequencer.Parse(text)
	if err != nil {
		return Sequencer{}, fmt.Errorf("%w: %s: %w", ErrInvalidSequencer, quoteShort(text), err)
	}
	return Sequencer(t), nil
}

// invalid says what is wrong with a sequencer, which may have been made by hand.
func (s Sequencer) invalid() error {
	if err := sequencer.Term(s).Check(); err != nil {
		return fmt.Errorf("%w: %s: %w", ErrInvalidSequencer, quoteShort(s.String()), err)
	}
	return nil
}

// quoteShort quotes the beginning of a text from an untrusted sender.
func quoteShort(s string) string {
	const enough = 96
	if len(s) <= enough {
		return strconv.QuoteToASCII(s)
	}
	return strconv.QuoteToASCII(s[:enough]) + "…"
}

// SequencerState is what the database knows about a sequencer.
type SequencerState uint8

// The states of a sequencer. Only SequencerCurrent is a reason to carry out a request.
const (
	// SequencerUnknown: the database cannot tell. The name was never locked, or was purged;
	// or the database knows only earlier terms of it, or was not told of the term.
	SequencerUnknown SequencerState = iota
	// SequencerCurrent: the name was held in this term when the database was asked.
	SequencerCurrent
	// SequencerStale: the name was not held in this term and never will be. A later term
	// has begun, or this one has ended, or it never existed.
	SequencerStale
)

// The states are converted from those of package sequencer: this does not compile if
// they differ.
var _ = [1]struct{}{}[max(
	SequencerUnknown^SequencerState(sequencer.Unknown),
	SequencerCurrent^SequencerState(sequencer.Current),
	SequencerStale^SequencerState(sequencer.Stale),
)]

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

// CheckSequencer asks the database whether the term of a sequencer is the current term of
// its name, in the Locker's mode. It runs one query, as [Locker.Inspect] does, and waits
// for no lock.
//
// A term is current if it is held and has not expired. It is also current when the holder
// does not trust it any more, for example during a [LockDelay]. All readers of a name share
// one term, which is current while one of them reads. Each
// permit has a term of its own.
//
// In the modes that keep locks in sessions, the database does not record readers. There, a
// shared sequencer is never current, and it is stale only while an exclusive holder is
// known. In advisory mode on Postgres, a holder is known about one second after the grant,
// or at once if it has a [Value]. A term that ended earlier is never known. The tokens of
// LockTx, TryLockTx, RLockTx and TryRLockTx belong to transactions, which the tables do not
// record: a sequencer made of such a token is not current.
//
// A term that was current may have ended when CheckSequencer returns. A resource that must
// never accept a late write has to remember the highest token and compare.
//
// CheckSequencer returns [ErrInvalidSequencer], before any SQL, if there can be no such
// sequencer, [ErrClosed], or the error of the database. The state is unknown then.
func (l *Locker) CheckSequencer(ctx context.Context, s Sequencer) (SequencerState, error) {
	if err := driver.CheckContext(ctx); err != nil {
		return SequencerUnknown, err
	}
	if err := s.invalid(); err != nil {
		return SequencerUnknown, err
	}
	v, err := l.checkNow(ctx, sequencer.Term(s))
	return SequencerState(v.State), err
}

func (l *Locker) checkNow(ctx context.Context, t sequencer.Term) (sequencer.Verdict, error) {
	var row driver.Row
	err := l.retryRepeatable(ctx, func(ctx context.Context) error {
		res, err := l.mode.Read(ctx, driver.ReadRequest{Names: []string{t.Name}, Slots: t.Permit})
		if err == nil {
			row = res.Rows[0]
		}
		return err
	})
	if err != nil {
		return sequencer.Verdict{}, operatorError("check a sequencer of", t.Name, err)
	}
	return sequencer.VerdictOf(&row, stateOf(&row) == StateHeld, t, l.mode.sessions != nil), nil
}

// Defaults of [SequencerCheckerOptions].
const (
	DefaultSequencerAge   = time.Second
	DefaultSequencerNames = 10_000
)

// SequencerCheckerOptions are the options of [NewSequencerChecker]. The zero value of
// each field means its default.
type SequencerCheckerOptions struct {
	// MaxAge is the time for which a sequencer that was current is called current without
	// asking the database again; positive, at most 24 h, default 1 s. It counts from before
	// the query, on a clock that is never set.
	MaxAge time.Duration

	// MaxNames is the number of names whose highest term the checker remembers; default
	// 10,000. Each slot of a [Semaphore] counts as a name of its own: a semaphore with 100
	// permits counts as up to 101 names. The checker forgets the least recently checked name
	// first, and asks the database when that name comes again.
	MaxNames int
}

// SequencerChecker is [Locker.CheckSequencer] for a server that gets many requests. It
// remembers the highest term of each name that the database has reported.
//
//   - A sequencer with a lower token is stale, without any SQL. When Check has called a
//     term current, no later call of Check calls an earlier term of that name current, while
//     the checker remembers the name, even if the database has forgotten it.
//   - A sequencer that was current is current again for MaxAge, without any SQL, but not
//     for longer than its lease lasts without a renewal.
//   - For all others the checker asks the database. Callers that ask for the same sequencer
//     at the same time share one query. The checker does not remember unknown sequencers.
//
// The checker cannot say that the term is current while you carry out the request. The term
// may have ended up to MaxAge before the check, or at any time after it. Another server with
// its own checker may have seen a later term. For strict safety, the resource keeps the
// highest token with its data and compares it at the moment of the write, as lockpg.Fence,
// lockmysql.Fence and locksqlite.Fence do. Then the checker adds what tokens do not show: a
// term that has ended and whose successor the resource has not seen.
//
// A SequencerChecker is safe for concurrent use. It starts no goroutine and needs no Close.
// Do not use it after its Locker was closed.
type SequencerChecker struct {
	cache *sequencer.Cache
}

// NewSequencerChecker returns a checker for the names that l locks. Options may be nil. It
// runs no SQL. It returns [ErrInvalidOption] if l is nil or an option is out of bounds.
func NewSequencerChecker(l *Locker, o *SequencerCheckerOptions) (*SequencerChecker, error) {
	if l == nil {
		return nil, driver.NilError("*Locker")
	}
	if o == nil {
		o = &SequencerCheckerOptions{}
	}
	maxAge, maxNames := orDefault(o.MaxAge, DefaultSequencerAge), o.MaxNames
	if maxNames == 0 {
		maxNames = DefaultSequencerNames
	}
	if maxAge < 0 || maxAge > MaxTTL {
		return nil, fmt.Errorf("%w: MaxAge %v: must be positive and at most %v", ErrInvalidOption, maxAge, MaxTTL)
	}
	if maxNames < 1 {
		return nil, fmt.Errorf("%w: MaxNames %d: must be positive", ErrInvalidOption, maxNames)
	}
	return &SequencerChecker{sequencer.NewCache(l.checkNow, l.clock.Now, maxAge, maxNames)}, nil
}

// Check is [Locker.CheckSequencer] with a memory, and returns the same states and errors.
// See [SequencerChecker] for what it promises. If Check has to ask the database, it waits
// until ctx ends.
func (c *SequencerChecker) Check(ctx context.Context, s Sequencer) (SequencerState, error) {
	if err := driver.CheckContext(ctx); err != nil {
		return SequencerUnknown, err
	}
	if err := s.invalid(); err != nil {
		return SequencerUnknown, err
	}
	state, err := c.cache.Check(ctx, sequencer.Term(s))
	if errors.Is(err, sequencer.ErrCallerLeft) {
		err = operatorError("check a sequencer of", s.Name, endOf(ctx))
	}
	return SequencerState(state), err
}
