package sqllock

import (
	"bytes"
	"cmp"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/sqllock/sqllock/driver"
)

// Bounds and defaults of the options.
const (
	DefaultTTL      = 30 * time.Second
	MinTTL          = 100 * time.Millisecond
	MaxTTL          = 24 * time.Hour
	DefaultRetryMin = 10 * time.Millisecond
	DefaultRetryMax = 500 * time.Millisecond

	DefaultMaxBatch    = 512
	DefaultMaxInFlight = 4

	maxStatementTimeout = 5 * time.Second
	maxValue            = 64 << 10

	// forever stands for any longer time: it can be doubled, and added to the clock.
	forever = never / 4
)

// UniqueOptions are the options of [NewUnique]. The zero value of each field
// means its default.
//
// The table prefix and, on Postgres, the schema are options of the database,
// because migrations need them too: lockpg.TablePrefix, lockpg.Schema and their
// kin.
type UniqueOptions struct {
	// TTL is for how long the database keeps a name for a holder that it does not
	// hear of; from 100 ms to 24 h, default 30 s. Leases are renewed every third
	// of it. [TTL] overrides it for one call.
	TTL time.Duration

	// Label says to people who holds a lock: at most 255 bytes of UTF-8. The
	// default is "host/program/pid". It decides nothing.
	Label string

	// RetryMin and RetryMax bound the pause between two attempts of a waiter that does
	// not stand in line (see Barging and [Tries]), or whose request has failed. The
	// pause starts at RetryMin, default 10 ms, doubles up to RetryMax, default
	// 500 ms, and is spread at random over its upper half. A waiter looks again
	// when the holder's lease expires, even if its pause is not over.
	//
	// While waiters stand in line and the database does not tell whose turn it is, the
	// Locker looks at all of their names with one statement: RetryMin/2 after it has
	// seen a change, or somebody has come, then with pauses that double up to RetryMax.
	RetryMin, RetryMax time.Duration

	// StatementTimeout bounds every single statement; at least 10 ms. The default
	// is a third of the lease's TTL, and 5 s at most.
	StatementTimeout time.Duration

	// Logger gets what should not stay unknown: leases in jeopardy and lost,
	// clock jumps, doubts about the database or the pool; at info level crashed
	// holders, and at debug level who acquires and unlocks what. The default is what
	// [slog.Default] returns at the time, for messages at level warn and above only;
	// slog.New(slog.DiscardHandler) silences them. A handler that blocks delays nothing
	// but further messages and hooks.
	Logger *slog.Logger

	// Hooks are called when something happens to a lease. The default is none.
	Hooks *Hooks

	// Reaper says how the table is cleaned up. By default it is, in the
	// background.
	Reaper *ReaperOptions

	// MaxBatch is how many requests one statement carries at most; from 1 to 10,000,
	// default 512. Requests that come while a statement of their kind is under way
	// leave together as soon as it is back.
	MaxBatch int

	// MaxInFlight is how many statements of a kind are under way at most, so for how
	// many connections of the pool the grants and the releases may compete each;
	// default 4. The second leaves when the first has taken 20 ms: one that waits for
	// a row holds up nobody else for longer, while a database that is near gets
	// fewer and larger statements, which is faster.
	MaxInFlight int

	// Barging lets waiters take a name in whatever order they come to ask for it,
	// with pauses from RetryMin to RetryMax, instead of standing in line in the
	// database: there is more throughput where many fight for one name, and no order.
	// A waiter that barges gets in the way of nobody who stands in line.
	Barging bool
}

// config is what a Locker of any mode is configured with, defaults applied.
type config struct {
	ttl              time.Duration
	label            string
	retryMin         time.Duration
	retryMax         time.Duration
	statementTimeout time.Duration // 0: by TTL
	logger           *slog.Logger  // nil: slog.Default, from level warn
	hooks            Hooks
	reaper           ReaperOptions

	batch       int // requests in a statement, at most
	maxInFlight int // statements of one kind under way, at most
	barging     bool

	maxHold time.Duration // by default; 0: no bound
}

func (o *UniqueOptions) config() (config, error) {
	if o == nil {
		o = &UniqueOptions{}
	}
	c := config{
		ttl:              orDefault(o.TTL, DefaultTTL),
		label:            o.Label,
		retryMin:         min(orDefault(o.RetryMin, DefaultRetryMin), forever),
		retryMax:         min(orDefault(o.RetryMax, max(DefaultRetryMax, o.RetryMin)), forever),
		statementTimeout: min(o.StatementTimeout, forever),
		logger:           o.Logger,
		batch:            cmp.Or(o.MaxBatch, DefaultMaxBatch),
		maxInFlight:      cmp.Or(o.MaxInFlight, DefaultMaxInFlight),
		barging:          o.Barging,
	}
	if o.Hooks != nil {
		c.hooks = *o.Hooks
	}
	if c.label == "" {
		c.label = defaultLabel()
	}
	var err error
	if c.reaper, err = o.Reaper.config(); err != nil {
		return c, err
	}
	return c, c.validate()
}

func (c *config) validate() error {
	if err := validateTTL(c.ttl); err != nil {
		return err
	}
	if err := driver.CheckText(c.label); err != nil {
		return fmt.Errorf("%w: Label %q: %w", ErrInvalidOption, c.label, err)
	}
	if c.retryMin < 0 || c.retryMax < c.retryMin {
		return fmt.Errorf("%w: RetryMin %v and RetryMax %v: must be positive and in this order",
			ErrInvalidOption, c.retryMin, c.retryMax)
	}
	if c.batch < 1 || c.batch > maxBatch {
		return fmt.Errorf("%w: MaxBatch %d: must be from 1 to %d", ErrInvalidOption, c.batch, maxBatch)
	}
	if c.maxInFlight < 1 {
		return fmt.Errorf("%w: MaxInFlight %d: must be positive", ErrInvalidOption, c.maxInFlight)
	}
	if c.statementTimeout != 0 && c.statementTimeout < 10*time.Millisecond {
		return fmt.Errorf("%w: StatementTimeout %v: must be at least 10ms", ErrInvalidOption, c.statementTimeout)
	}
	return nil
}

// timeout is how long one statement for a lease of the given TTL may take.
func (c *config) timeout(ttl time.Duration) time.Duration {
	if c.statementTimeout != 0 {
		return c.statementTimeout
	}
	return min(ttl/3, maxStatementTimeout)
}

func validateTTL(ttl time.Duration) error {
	if ttl < MinTTL || ttl > MaxTTL {
		return fmt.Errorf("%w: TTL %v: must be from %v to %v", ErrInvalidOption, ttl, MinTTL, MaxTTL)
	}
	return nil
}

func defaultLabel() string {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	label := fmt.Sprintf("%s/%s/%d", host, filepath.Base(os.Args[0]), os.Getpid())
	if driver.CheckText(label) != nil { // a program may be named anything
		label = fmt.Sprintf("%d", os.Getpid())
	}
	return label
}

func orDefault(d, def time.Duration) time.Duration {
	if d == 0 {
		return def
	}
	return d
}

// LockOption is an option of one call of Lock, TryLock, Do or TryDo.
type LockOption func(*lockOptions)

type lockOptions struct {
	shared   bool
	ttl      time.Duration
	wait     time.Duration
	tries    int
	hasWait  bool
	hasTries bool

	minHold    time.Duration
	maxHold    time.Duration
	hasMaxHold bool
	lockDelay  time.Duration
	value      []byte
}

// TTL overrides the Locker's TTL for one lease; from 100 ms to 24 h. It does not
// apply to the modes that keep locks in sessions, whose TTL is one per Locker. A
// call that
// re-enters a lease leaves that lease as it is, whatever its options.
func TTL(d time.Duration) LockOption {
	return func(o *lockOptions) { o.ttl = d }
}

// Wait bounds how long Lock waits while somebody else holds the name, or the
// database cannot be reached. When it is over, Lock returns an [ErrHeld], or the
// last error of the database. Wait must be positive; the default is to wait
// until the context ends. It does not apply to TryLock.
func Wait(d time.Duration) LockOption {
	return func(o *lockOptions) { o.wait, o.hasWait = d, true }
}

// Tries bounds how often Lock asks the database. When n attempts have not got
// the name, Lock returns an [ErrHeld], or the last error of the database. Tries
// must be positive; the default is no bound. While this process holds the name
// itself no attempts are made, and none are counted. Who counts its tries does not
// stand in line: it asks with pauses, and does not get the name while others wait for
// it in line. It does not apply to TryLock.
func Tries(n int) LockOption {
	return func(o *lockOptions) { o.tries, o.hasTries = n, true }
}

// MinHold keeps the name from others for this time from the grant on, even if it
// is unlocked or lost before: of a job that takes a moment, started at the same
// time on hosts whose clocks differ a little, only the first runs. At most 24 h,
// default 0: a name is free when it is unlocked. The lease itself ends with Unlock.
func MinHold(d time.Duration) LockOption {
	return func(o *lockOptions) { o.minHold = d }
}

// MaxHold ends the lease this time after the grant at the latest: it is not
// renewed beyond, and the holder is told as of any loss, with reason
// [LostMaxHold]. At least 100 ms; the default is no bound.
func MaxHold(d time.Duration) LockOption {
	return func(o *lockOptions) { o.maxHold, o.hasMaxHold = min(d, forever), true }
}

// LockDelay makes the database keep the name for this much longer than the holder
// trusts it, so that what a lost holder had under way can arrive before the next
// one starts. After an Unlock of a lease that was held the name is free at once.
// At most 24 h, default 0.
func LockDelay(d time.Duration) LockOption {
	return func(o *lockOptions) { o.lockDelay = d }
}

// Value is what the holder has to say to whoever inspects the name: at most 64
// KiB, which are copied. It is kept while the name is held. The default is none.
func Value(b []byte) LockOption {
	b = bytes.Clone(b)
	return func(o *lockOptions) { o.value = b }
}

// lockOptions applies the options of a call that waits.
func (l *Locker) lockOptions(opts []LockOption, shared bool) (lockOptions, error) {
	c, sessions := &l.cfg, l.mode.sessions != nil
	o := lockOptions{shared: shared, ttl: c.ttl, maxHold: c.maxHold, hasMaxHold: c.maxHold > 0}
	if slices.ContainsFunc(opts, func(opt LockOption) bool { return opt == nil }) {
		return o, driver.NilError("LockOption")
	}
	if len(opts) > 0 {
		o = o.with(opts)
	}
	if sessions && o.ttl != c.ttl {
		return o, fmt.Errorf("%w: TTL(%v): in this mode the TTL is one for the whole Locker, %v", ErrInvalidOption, o.ttl, c.ttl)
	}
	switch {
	case shared && (o.minHold != 0 || len(o.value) > 0):
		return o, fmt.Errorf("%w: MinHold and Value do not apply to a lease that is shared", ErrInvalidOption)
	case shared && sessions && o.lockDelay != 0:
		return o, fmt.Errorf("%w: LockDelay does not apply to a lease that is shared, in a mode that keeps locks in sessions", ErrInvalidOption)
	}
	if err := validateTTL(o.ttl); err != nil {
		return o, err
	}
	if err := o.validateTerm(); err != nil {
		return o, err
	}
	if o.hasWait && o.wait <= 0 {
		return o, fmt.Errorf("%w: Wait(%v): must be positive", ErrInvalidOption, o.wait)
	}
	if o.hasTries && o.tries <= 0 {
		return o, fmt.Errorf("%w: Tries(%d): must be positive", ErrInvalidOption, o.tries)
	}
	return o, nil
}

// with returns o with options applied. Without any this is not called: o would be
// allocated.
func (o lockOptions) with(opts []LockOption) lockOptions {
	for _, opt := range opts {
		opt(&o)
	}
	return o
}

// tryOptions applies the options of a call that does not wait.
func (l *Locker) tryOptions(opts []LockOption, shared bool) (lockOptions, error) {
	o, err := l.lockOptions(opts, shared)
	if err == nil && (o.hasWait || o.hasTries) {
		err = fmt.Errorf("%w: Wait and Tries do not apply to a call that does not wait", ErrInvalidOption)
	}
	return o, err
}

func (o *lockOptions) validateTerm() error {
	switch {
	case o.minHold < 0 || o.minHold > MaxTTL:
		return fmt.Errorf("%w: MinHold(%v): must be from 0 to %v", ErrInvalidOption, o.minHold, MaxTTL)
	case o.hasMaxHold && o.maxHold < MinTTL:
		return fmt.Errorf("%w: MaxHold(%v): must be at least %v", ErrInvalidOption, o.maxHold, MinTTL)
	case o.lockDelay < 0 || o.lockDelay > MaxTTL:
		return fmt.Errorf("%w: LockDelay(%v): must be from 0 to %v", ErrInvalidOption, o.lockDelay, MaxTTL)
	case len(o.value) > maxValue:
		return fmt.Errorf("%w: Value of %d bytes: %d are allowed", ErrInvalidOption, len(o.value), maxValue)
	}
	return nil
}

// trusted is how long the holder believes in a grant.
func (o *lockOptions) trustedTTL() time.Duration {
	if o.hasMaxHold {
		return min(o.ttl, o.maxHold)
	}
	return o.ttl
}

// kept is how long the database keeps the name after a grant.
func (o *lockOptions) rowTTL() time.Duration {
	return max(o.trustedTTL(), o.minHold) + o.lockDelay
}
