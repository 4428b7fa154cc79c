package sqllock

import (
	"container/list"
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/sqllock/sqllock/driver"
)

// Defaults of [SequencerCheckerOptions].
const (
	DefaultSequencerAge   = time.Second
	DefaultSequencerNames = 10_000
)

// SequencerCheckerOptions are the options of [NewSequencerChecker]. The zero value of
// each field means its default.
type SequencerCheckerOptions struct {
	// MaxAge is for how long a sequencer that the database has called current is
	// taken for that without asking again; positive, 24 h at most, default 1 s. The
	// time counts from before the question, on a clock that nobody sets.
	MaxAge time.Duration

	// MaxNames is of how many names the checker remembers the highest term; default
	// 10,000. Those that nobody has asked for longest are forgotten first, and asked
	// for in the database when they come again.
	MaxNames int
}

// SequencerChecker is [Locker.CheckSequencer] for a server that sees many requests: it
// remembers the highest term of each name that the database has told it of.
//
//   - A sequencer with a lower token is stale, without any SQL. So once Check has
//     returned that a term is current, no call of it says so of an earlier term of that
//     name, as long as the name is remembered, and whatever the database has forgotten
//     since.
//   - One that was current is current again for MaxAge, without any SQL, but not for
//     longer than its lease was to last without a renewal.
//   - Of everything else the database is asked, for all who ask for the same at a time
//     once. What is unknown is not remembered.
//
// What it does not say is that the term is current while the request is carried
// out. It may have ended, by up to MaxAge before the check and at any time after it; and
// another server with a checker of its own may have seen a later term that this one has
// not. The strict way is a resource that keeps the highest token with its data and
// compares it in the moment of the write, as lockpg.Fence and its kin do. The checker
// then adds what tokens do not show: that a term has ended of which the resource has not
// seen the successor.
//
// It is safe for concurrent use, starts nothing and needs no Close. It must not be used
// after its Locker was closed.
type SequencerChecker struct {
	locks  *Locker
	maxAge time.Duration
	most   int

	mu     sync.Mutex
	terms  map[string]*list.Element // of *knownTerm, by name
	recent *list.List               // the one asked for last in front
	asking map[Sequencer]*asking
}

// knownTerm is what the database has said of a name.
type knownTerm struct {
	name    string
	floor   int64         // all lower tokens are stale
	current Sequencer     // was current when the database was asked last
	until   time.Duration // for how long it need not be asked again, on the Locker's clock
}

// asking is a question to the database that is under way. What it says is set before
// done is closed.
type asking struct {
	done  chan struct{}
	state SequencerState
	err   error
	left  bool // who has asked did not wait for the answer
}

// NewSequencerChecker returns a checker of the sequencers of the names that l locks.
// Options may be nil. It runs no SQL, and returns [ErrInvalidOption] if an option is out
// of bounds.
func NewSequencerChecker(l *Locker, o *SequencerCheckerOptions) (*SequencerChecker, error) {
	if l == nil {
		return nil, driver.NilError("*Locker")
	}
	if o == nil {
		o = &SequencerCheckerOptions{}
	}
	c := &SequencerChecker{
		locks: l, maxAge: orDefault(o.MaxAge, DefaultSequencerAge), most: o.MaxNames,
		terms: make(map[string]*list.Element), recent: list.New(), asking: make(map[Sequencer]*asking),
	}
	if c.most == 0 {
		c.most = DefaultSequencerNames
	}
	if c.maxAge < 0 || c.maxAge > MaxTTL {
		return nil, fmt.Errorf("%w: MaxAge %v: must be positive and at most %v", ErrInvalidOption, c.maxAge, MaxTTL)
	}
	if c.most < 1 {
		return nil, fmt.Errorf("%w: MaxNames %d: must be positive", ErrInvalidOption, c.most)
	}
	return c, nil
}

// Check is [Locker.CheckSequencer] with a memory: see [SequencerChecker] for what that
// promises, and there for what the states mean and which errors are returned. It waits
// for the database if it has to ask, as long as ctx allows.
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
			return c.ask(ctx, s, a)
		}
		select {
		case <-a.done:
		case <-ctx.Done():
			return SequencerUnknown, operatorError("check a sequencer of", s.Name, endOf(ctx))
		}
		switch {
		case a.left, a.state == SequencerCurrent: // ask oneself; or recall it, if it is not too old already
		default:
			return a.state, a.err
		}
	}
}

// recall returns what need not be asked for, or else the question that is under way; if
// it is the first, for the caller to ask.
func (c *SequencerChecker) recall(s Sequencer) (state SequencerState, a *asking, first bool) {
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
	if a := c.asking[s]; a != nil {
		return 0, a, false
	}
	a = &asking{done: make(chan struct{})}
	c.asking[s] = a
	return 0, a, true
}

// ask asks the database, for all who want to know the same meanwhile.
func (c *SequencerChecker) ask(ctx context.Context, s Sequencer, a *asking) (SequencerState, error) {
	defer func() {
		c.mu.Lock()
		delete(c.asking, s)
		c.mu.Unlock()
		close(a.done)
	}()
	began := c.locks.clock.Now()
	v, err := c.locks.judge(ctx, s)
	if err != nil {
		a.err, a.left = err, ctx.Err() != nil
		return SequencerUnknown, err
	}
	a.state = c.learn(s, v, began)
	return a.state, nil
}

// learn notes an answer, and returns what it means beside what others have been told
// since the database was asked.
func (c *SequencerChecker) learn(s Sequencer, v verdict, began time.Duration) SequencerState {
	c.mu.Lock()
	defer c.mu.Unlock()
	at := c.terms[s.Name]
	if at == nil {
		if v.floor == 0 { // nothing is known that could be kept
			return v.state
		}
		at = c.recent.PushFront(&knownTerm{name: s.Name})
		c.terms[s.Name] = at
		if c.recent.Len() > c.most {
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
