package sqllock

import (
	"container/list"
	"context"
	"fmt"
	"math"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/sqllock/sqllock/driver"
)

// Sequencer says in which term of a name a request is made. The receiver of the request
// checks it with [Locker.CheckSequencer], with a [SequencerChecker], or by comparing
// tokens. A Sequencer is a claim and not a secret: anybody can make one up, and it does
// not identify its sender.
//
// When you check a Sequencer, check its Name and Shared too. A current term proves nothing
// if it belongs to another name, or if it is shared and the request changes the resource.
// A Sequencer does not contain the mode and the database. The Locker that checks it
// determines them, and the sender cannot choose them.
type Sequencer struct {
	Name   string
	Shared bool
	Token  int64
}

// Sequencer returns the sequencer of the lease's term. It is the same for the whole life of
// the lease. Sequencer also returns it when the lease has ended: the receiver finds out
// whether it is current. It does not block.
func (l *Lease) Sequencer() Sequencer {
	return Sequencer{Name: l.Name(), Shared: l.Shared(), Token: l.Token()}
}

// The parts of a sequencer's text.
const (
	sequencerTag       = "sqllock1"
	sequencerShared    = "shared"
	sequencerExclusive = "exclusive"

	// maxToken is the highest possible token, see [Lease.Token].
	maxToken = 1<<53 - 1
	// maxSequencer is the length of the longest text: all 255 bytes of the name are escaped.
	maxSequencer = len(sequencerTag) + 3*255 + len(sequencerExclusive) + len("9007199254740991") + 3
)

// String returns the sequencer as one line of printable ASCII without spaces, of at most
// 801 bytes, fit for an HTTP header. It has four parts with colons between them: the tag of
// the format, the name, "exclusive" or "shared", and the token. For example:
//
//	sqllock1:invoice/42:exclusive:1763751135004561
//
// In the name, letters and digits of ASCII and - . _ ~ / stand for themselves. Any other
// byte is a percent sign and two hexadecimal digits in upper case.
func (s Sequencer) String() string {
	var b strings.Builder
	b.WriteString(sequencerTag)
	b.WriteByte(':')
	for i := range len(s.Name) {
		if c := s.Name[i]; isPlain(c) {
			b.WriteByte(c)
		} else {
			fmt.Fprintf(&b, "%%%02X", c)
		}
	}
	fmt.Fprintf(&b, ":%s:%d", s.access(), s.Token)
	return b.String()
}

func (s Sequencer) access() string {
	if s.Shared {
		return sequencerShared
	}
	return sequencerExclusive
}

// isPlain reports whether a byte of a name stands for itself.
func isPlain(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || strings.IndexByte("-._~/", c) >= 0
}

// ParseSequencer reads the text that [Sequencer.String] writes. It accepts no other text:
// each sequencer has exactly one. The error is an [ErrInvalidSequencer] that quotes the
// text and says what is wrong. It is an [ErrInvalidName] too if the name is wrong.
func ParseSequencer(text string) (Sequencer, error) {
	s, err := parseSequencer(text)
	if err != nil {
		return Sequencer{}, fmt.Errorf("%w: %s: %w", ErrInvalidSequencer, quoteShort(text), err)
	}
	return s, nil
}

func parseSequencer(text string) (s Sequencer, err error) {
	if len(text) > maxSequencer {
		return s, fmt.Errorf("%d bytes are too long, %d are allowed", len(text), maxSequencer)
	}
	parts := strings.Split(text, ":")
	if parts[0] != sequencerTag {
		return s, fmt.Errorf("it must begin with %q", sequencerTag+":")
	}
	if len(parts) != 4 {
		return s, fmt.Errorf("it has %d parts with colons between them, and must have 4", len(parts))
	}
	if s.Name, err = unescapeName(parts[1]); err != nil {
		return s, err
	}
	switch parts[2] {
	case sequencerShared:
		s.Shared = true
	case sequencerExclusive:
	default:
		return s, fmt.Errorf("the third part is %q, and must be %q or %q", parts[2], sequencerExclusive, sequencerShared)
	}
	// String never writes a number like "+7", "007" or "7_0".
	if s.Token, err = strconv.ParseInt(parts[3], 10, 64); err != nil || strconv.FormatInt(s.Token, 10) != parts[3] {
		return s, fmt.Errorf("the token %q must be decimal digits without leading zeros", parts[3])
	}
	return s, s.check()
}

// unescapeName reads a name in which the bytes that need it, and no others, are escaped.
func unescapeName(text string) (string, error) {
	name := make([]byte, 0, len(text))
	for i := 0; i < len(text); i++ {
		c := text[i]
		switch {
		case isPlain(c):
		case c != '%':
			return "", fmt.Errorf("%q in the name must be escaped as %%%02X", c, c)
		default:
			digits := text[i+1 : min(i+3, len(text))]
			n, err := strconv.ParseUint(digits, 16, 8)
			if err != nil || digits != fmt.Sprintf("%02X", n) {
				return "", fmt.Errorf("%q in the name must be a percent sign and two hexadecimal digits in upper case", "%"+digits)
			}
			if c = byte(n); isPlain(c) {
				return "", fmt.Errorf("%q in the name must not be escaped: it stands for %q", "%"+digits, c)
			}
			i += 2
		}
		name = append(name, c)
	}
	return string(name), nil
}

// check says what is wrong with a sequencer, which may have been made by hand.
func (s Sequencer) check() error {
	if err := driver.CheckName(s.Name); err != nil {
		return err
	}
	if s.Token < 1 || s.Token > maxToken {
		return fmt.Errorf("the token %d must be from 1 to %d", s.Token, int64(maxToken))
	}
	return nil
}

// invalid wraps the error of check.
func (s Sequencer) invalid() error {
	if err := s.check(); err != nil {
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
// one term, which is current while one of them reads.
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
	v, err := l.checkNow(ctx, s)
	return v.state, err
}

// verdict is what one query says about a sequencer.
type verdict struct {
	state SequencerState
	// floor is the token below which all tokens of the name are stale, or 0. It comes from
	// the row and never from the sequencer, which anybody can make up.
	floor int64
	// left is the time from the query until a current term expires unless it is renewed.
	left time.Duration
}

func (l *Locker) checkNow(ctx context.Context, s Sequencer) (verdict, error) {
	row, err := l.readRow(ctx, s.Name)
	if err != nil {
		return verdict{}, operatorError("check a sequencer of", s.Name, err)
	}
	return verdictOf(&row, s, l.mode.sessions != nil), nil
}

// verdictOf compares a sequencer with the row of its name.
//
// In unique mode, the tokens of all terms of a name rise. In sessions only those of
// exclusive terms do: readers have tokens of their own, several at a time. The row may have
// the token of a reader, and then names no holder.
func verdictOf(r *driver.Row, s Sequencer, sessions bool) verdict {
	last, held := r.Holder.Version, stateOf(r) == StateHeld
	nameless := sessions && r.Holder.Acq == driver.ID{}
	v := verdict{left: math.MaxInt64}
	switch {
	case last == 0, nameless: // other readers may have lower tokens
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
	// 10,000. The checker forgets the least recently checked name first, and asks the
	// database when that name comes again.
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
	locks    *Locker
	maxAge   time.Duration
	maxNames int

	mu      sync.Mutex
	terms   map[string]*list.Element // of *knownTerm, by name
	recent  *list.List               // the last one checked in front
	pending map[Sequencer]*pendingCheck
}

// knownTerm is what the database has said about a name.
type knownTerm struct {
	name    string
	floor   int64         // all lower tokens are stale
	current Sequencer     // was current when the database was asked last
	until   time.Duration // when the database must be asked again, on the Locker's clock
}

// pendingCheck is a query that is in flight. The other fields are set before done is closed.
type pendingCheck struct {
	done       chan struct{}
	state      SequencerState
	err        error
	callerLeft bool // the caller that sent the query did not wait for the result
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
	c := &SequencerChecker{
		locks: l, maxAge: orDefault(o.MaxAge, DefaultSequencerAge), maxNames: o.MaxNames,
		terms: make(map[string]*list.Element), recent: list.New(), pending: make(map[Sequencer]*pendingCheck),
	}
	if c.maxNames == 0 {
		c.maxNames = DefaultSequencerNames
	}
	if c.maxAge < 0 || c.maxAge > MaxTTL {
		return nil, fmt.Errorf("%w: MaxAge %v: must be positive and at most %v", ErrInvalidOption, c.maxAge, MaxTTL)
	}
	if c.maxNames < 1 {
		return nil, fmt.Errorf("%w: MaxNames %d: must be positive", ErrInvalidOption, c.maxNames)
	}
	return c, nil
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
	for {
		state, a, first := c.recall(s)
		switch {
		case a == nil:
			return state, nil
		case first:
			return c.query(ctx, s, a)
		}
		select {
		case <-a.done:
		case <-ctx.Done():
			return SequencerUnknown, operatorError("check a sequencer of", s.Name, endOf(ctx))
		}
		switch {
		case a.callerLeft, a.state == SequencerCurrent: // ask again; or recall the result, unless it is too old
		default:
			return a.state, a.err
		}
	}
}

// recall returns the state if it is remembered, or else the pending check. If first, the
// caller sends the query.
func (c *SequencerChecker) recall(s Sequencer) (state SequencerState, a *pendingCheck, first bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if at := c.terms[s.Name]; at != nil {
		c.recent.MoveToFront(at)
		switch t := at.Value.(*knownTerm); {
		case s.Token < t.floor:
			return SequencerStale, nil, false
		case s == t.current && c.locks.clock.Now() < t.until:
			return SequencerCurrent, nil, false
		}
	}
	if a := c.pending[s]; a != nil {
		return 0, a, false
	}
	a = &pendingCheck{done: make(chan struct{})}
	c.pending[s] = a
	return 0, a, true
}

// query asks the database, for all callers that check the same sequencer meanwhile.
func (c *SequencerChecker) query(ctx context.Context, s Sequencer, a *pendingCheck) (SequencerState, error) {
	defer func() {
		c.mu.Lock()
		delete(c.pending, s)
		c.mu.Unlock()
		close(a.done)
	}()
	began := c.locks.clock.Now()
	v, err := c.locks.checkNow(ctx, s)
	if err != nil {
		a.err, a.callerLeft = err, ctx.Err() != nil
		return SequencerUnknown, err
	}
	a.state = c.remember(s, v, began)
	return a.state, nil
}

// remember keeps a verdict, and returns the state that it means beside the verdicts that
// came after the query began.
func (c *SequencerChecker) remember(s Sequencer, v verdict, began time.Duration) SequencerState {
	c.mu.Lock()
	defer c.mu.Unlock()
	at := c.terms[s.Name]
	if at == nil {
		if v.floor == 0 { // there is nothing to remember
			return v.state
		}
		at = c.recent.PushFront(&knownTerm{name: s.Name})
		c.terms[s.Name] = at
		if c.recent.Len() > c.maxNames {
			delete(c.terms, c.recent.Remove(c.recent.Back()).(*knownTerm).name)
		}
	}
	t := at.Value.(*knownTerm)
	t.floor = max(t.floor, v.floor)
	switch {
	case s.Token < t.floor:
		return SequencerStale
	case v.state == SequencerCurrent:
		t.current, t.until = s, began+min(c.maxAge, v.left)
	}
	return v.state
}
