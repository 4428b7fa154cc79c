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
	"github.com/sqllock/sqllock/internal/clock"
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

	minRetry            = time.Millisecond
	maxStatementTimeout = 5 * time.Second
	maxValue            = 64 << 10

	// forever replaces any longer time. It can be doubled, and added to the clock.
	forever = never / 4
)

// UniqueOptions are the options of [NewUnique]. The zero value of each field means its
// default.
//
// The table prefix and, on Postgres, the schema are options of the database, because
// migrations need them too: see lockpg.TablePrefix, lockpg.Schema, lockmysql.TablePrefix
// and locksqlite.TablePrefix.
type UniqueOptions struct {
	// TTL is for how long the database keeps a name for a holder that does not renew its
	// lease; from 100 ms to 24 h, default 30 s. Leases are renewed every third of the TTL.
	// The option [TTL] overrides it for one call.
	TTL time.Duration

	// Label tells people who holds a lock; at most 255 bytes of UTF-8, default
	// "host/program/pid". It has no other effect.
	Label string

	// RetryMin and RetryMax bound the pause between two requests of a waiter that has no
	// claim in the database (see Barging and [Tries]) or whose request has failed. The
	// pause starts at RetryMin, at least 1 ms, default 10 ms, doubles up to RetryMax, and is
	// spread at random over its upper half. The default of RetryMax is 500 ms, or RetryMin if
	// that is longer. A waiter also sends a request when the holder's lease expires.
	//
	// While waiters have claims and the database does not push, the Locker polls all of
	// their names with one statement: RetryMin/2 after a new waiter has come, and then with
	// pauses that double up to RetryMax. While names change hands, the pauses become half
	// as long each time, down to RetryMin/20 or four times as long as a poll takes, but not
	// longer than RetryMin/2 for that.
	RetryMin, RetryMax time.Duration

	// StatementTimeout bounds each statement; at least 10 ms. The default is a third of
	// the lease's TTL, and at most 5 s. A renewal takes at most 5 s, also if StatementTimeout
	// is longer. A statement that cleans up after a request without a reply takes at most 5 s,
	// and a third of the time for which the database keeps what it cleans up, whatever
	// StatementTimeout is.
	StatementTimeout time.Duration

	// Logger gets warnings and errors: leases in jeopardy and lost leases, clock jumps,
	// and problems of the database or the pool. At level info it gets crashed holders, at
	// level debug each grant and each Unlock. By default, messages of level warn and above
	// go to the current [slog.Default]; slog.New(slog.DiscardHandler) silences them. A
	// handler that blocks delays only further messages and hooks.
	Logger *slog.Logger

	// Hooks are called when something happens to a lease. The default is none.
	Hooks *Hooks

	// Reaper says how the table is cleaned up. By default it is cleaned up in the
	// background.
	Reaper *ReaperOptions

	// MaxBatch is how many grants, or releases, one statement carries at most; from 1 to
	// 10,000, default 512. Requests that arrive while a statement of their kind is in flight
	// are sent together when it is back. MaxBatch does not bound renewals, of which one
	// statement carries up to 10,000, nor polls, what cleans up, and LockAll.
	MaxBatch int

	// MaxInFlight is how many statements of one kind are in flight at most; default 4.
	// Grants and releases each use up to so many connections of the pool. The Locker sends
	// a second statement when the first has taken 20 ms. So a statement that waits for a
	// row delays others by at most that time, and a near database gets fewer and larger
	// statements, which is faster.
	MaxInFlight int

	// Barging lets waiters acquire a name in any order, with pauses from RetryMin to
	// RetryMax, without a claim in the database. The throughput is higher where many
	// callers want one name, but there is no order. A barging waiter never takes a name
	// before a waiter that has a claim.
	Barging bool
}

// config is the configuration of a Locker of any mode, with defaults applied.
type config struct {
	ttl              time.Duration
	label            string
	retryMin         time.Duration
	retryMax         time.Duration
	statementTimeout time.Duration // 0: by TTL
	logger           *slog.Logger  // nil: slog.Default, from level warn
	hooks            Hooks
	reaper           ReaperOptions

	batch       int // the most requests in one statement
	maxInFlight int // the most statements of one kind in flight
	barging     bool

	maxHold time.Duration // by default; 0: no bound

	spread clock.Spread // of pauses
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
		spread:           clock.SpreadOf(nil),
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
	if c.retryMin < minRetry {
		return fmt.Errorf("%w: RetryMin %v: must be at least %v", ErrInvalidOption, c.retryMin, minRetry)
	}
	if c.retryMax < c.retryMin {
		return fmt.Errorf("%w: RetryMax %v: must be at least RetryMin, %v", ErrInvalidOption, c.retryMax, c.retryMin)
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

// timeout returns how long one statement for a lease of the given TTL may take.
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
	if driver.CheckText(label) != nil { // a program can have any name
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

// LockOption is an option of one call of Lock, RLock, TryLock, TryRLock, LockAll or one of its
// twins, Do, TryDo, Once or Adopt, and of the methods of a [Semaphore].
type LockOption func(*lockOptions)

type lockOptions struct {
	shared   bool
	permits  int // how many the name has, if one of them is wanted
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

// TTL overrides the Locker's TTL for one lease; from 100 ms to 24 h. In the modes for update
// and advisory, which have one TTL per Locker, another one is refused with [ErrInvalidOption].
// A call that re-enters a lease does not change that lease, whatever its options.
func TTL(d time.Duration) LockOption {
	return func(o *lockOptions) { o.ttl = d }
}

// Wait bounds how long Lock waits while another caller holds the name or the database
// cannot be reached. After that time Lock returns an [ErrHeld], or the last error of the
// database. If the database has not answered the first request by then, the error is
// [context.DeadlineExceeded], although the context of the call has not ended. Wait must be
// positive; the default is to wait until the context ends. TryLock and its twins refuse it
// with [ErrInvalidOption].
func Wait(d time.Duration) LockOption {
	return func(o *lockOptions) { o.wait, o.hasWait = d, true }
}

// Tries bounds how many requests Lock sends. If n requests have not acquired the name,
// Lock returns an [ErrHeld], or the last error of the database. Tries must be positive;
// the default is no bound. While this Locker holds the name itself, it sends no requests
// and counts none. A waiter with Tries has no claim in the database: it sends requests
// with pauses, and does not get the name while other waiters have claims. TryLock and
// LockAll, and their twins, refuse it with [ErrInvalidOption].
func Tries(n int) LockOption {
	return func(o *lockOptions) { o.tries, o.hasTries = n, true }
}

// MinHold keeps the name from other callers for this time from the grant on, even if the
// lease is unlocked or lost before. If hosts whose clocks differ a little start the same
// short job, only the first one runs it. At most 24 h, default 0: a name is free when it
// is unlocked. The lease itself ends with Unlock.
func MinHold(d time.Duration) LockOption {
	return func(o *lockOptions) { o.minHold = d }
}

// MaxHold ends the lease this time after the grant at the latest. The lease is not renewed
// beyond that, and the holder learns of it as of any loss, with reason [LostMaxHold]. At
// least 100 ms. The default is no bound, and in for-update mode
// [ForUpdateOptions].MaxHold, which is 1 h by default.
func MaxHold(d time.Duration) LockOption {
	return func(o *lockOptions) { o.maxHold, o.hasMaxHold = min(d, forever), true }
}

// LockDelay makes the database keep the name for this much longer than the holder trusts
// its lease. Writes of a holder that has lost its lease can then arrive before the next
// holder starts. After an Unlock of a held lease the name is free at once. At most 24 h,
// default 0.
func LockDelay(d time.Duration) LockOption {
	return func(o *lockOptions) { o.lockDelay = d }
}

// Value is a text of the holder that [Locker.Inspect] returns; at most 64 KiB, which are
// copied. It is kept while the name is held. The default is none.
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
	case shared && sessions && o.lockDelay != 0:
		return o, fmt.Errorf("%w: LockDelay(%v): does not apply to a lease that is shared, in a mode that keeps locks in sessions",
			ErrInvalidOption, o.lockDelay)
	case shared:
		if err := o.refuseTogether("a lease that is shared"); err != nil {
			return o, err
		}
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

// refuseTogether refuses the options that do not apply to what is held together with others.
func (o *lockOptions) refuseTogether(what string) error {
	switch {
	case o.minHold != 0:
		return fmt.Errorf("%w: MinHold(%v): does not apply to %s", ErrInvalidOption, o.minHold, what)
	case len(o.value) > 0:
		return fmt.Errorf("%w: Value of %d bytes: does not apply to %s", ErrInvalidOption, len(o.value), what)
	}
	return nil
}

// with returns o with opts applied. Call it only if there are options: it allocates o.
func (o lockOptions) with(opts []LockOption) lockOptions {
	for _, opt := range opts {
		opt(&o)
	}
	return o
}

// tryOptions applies the options of a call that does not wait.
func (l *Locker) tryOptions(opts []LockOption, shared bool) (lockOptions, error) {
	o, err := l.lockOptions(opts, shared)
	if err == nil {
		err = o.refuseWait()
	}
	return o, err
}

// refuseWait refuses the options of calls that wait.
func (o *lockOptions) refuseWait() error {
	switch {
	case o.hasWait:
		return fmt.Errorf("%w: Wait(%v): does not apply to a call that does not wait", ErrInvalidOption, o.wait)
	case o.hasTries:
		return fmt.Errorf("%w: Tries(%d): does not apply to a call that does not wait", ErrInvalidOption, o.tries)
	}
	return nil
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

// trustedTTL returns for how long the holder trusts a grant.
func (o *lockOptions) trustedTTL() time.Duration {
	if o.hasMaxHold {
		return min(o.ttl, o.maxHold)
	}
	return o.ttl
}

// together reports that the name is wanted together with others: shared, or with a permit.
func (o *lockOptions) together() bool { return o.shared || o.permits != 0 }

// rowTTL returns for how long the database keeps the name after a grant.
func (o *lockOptions) rowTTL() time.Duration {
	return max(o.trustedTTL(), o.minHold) + o.lockDelay
}
