package sqllock

import (
	"bytes"
	"fmt"
	"slices"
	"time"

	"github.com/sqllock/sqllock/driver"
)

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
func (c *config) lockOptions(opts []LockOption, shared bool) (lockOptions, error) {
	o := lockOptions{shared: shared, ttl: c.ttl, maxHold: c.maxHold, hasMaxHold: c.maxHold > 0}
	if slices.ContainsFunc(opts, func(opt LockOption) bool { return opt == nil }) {
		return o, driver.NilError("LockOption")
	}
	if len(opts) > 0 {
		o = o.with(opts)
	}
	if c.sessions && o.ttl != c.ttl {
		return o, fmt.Errorf("%w: TTL(%v): in this mode the TTL is one for the whole Locker, %v", ErrInvalidOption, o.ttl, c.ttl)
	}
	switch {
	case shared && (o.minHold != 0 || len(o.value) > 0):
		return o, fmt.Errorf("%w: MinHold and Value do not apply to a lease that is shared", ErrInvalidOption)
	case shared && c.sessions && o.lockDelay != 0:
		return o, fmt.Errorf("%w: LockDelay does not apply to a lease that is shared, in a mode that keeps locks in sessions", ErrInvalidOption)
	}
	if err := validateTTL(o.ttl); err != nil {
		return o, err
	}
	if err := o.validateHold(); err != nil {
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
func (c *config) tryOptions(opts []LockOption, shared bool) (lockOptions, error) {
	o, err := c.lockOptions(opts, shared)
	if err == nil && (o.hasWait || o.hasTries) {
		err = fmt.Errorf("%w: Wait and Tries do not apply to a call that does not wait", ErrInvalidOption)
	}
	return o, err
}

func (o *lockOptions) validateHold() error {
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
func (o *lockOptions) trusted() time.Duration {
	if o.hasMaxHold {
		return min(o.ttl, o.maxHold)
	}
	return o.ttl
}

// kept is how long the database keeps the name after a grant.
func (o *lockOptions) kept() time.Duration {
	return max(o.trusted(), o.minHold) + o.lockDelay
}
