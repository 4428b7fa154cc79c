// Package clock measures the time that leases are trusted for.
package clock

import (
	"math/rand/v2"
	"time"
)

// Clock tells how much time has passed. It never steps. Where the operating system
// offers such a clock, it also runs while the machine is suspended: a holder that was
// suspended must know that its lease ran on.
type Clock interface {
	// Now returns the time since an arbitrary but fixed moment.
	Now() time.Duration
}

// Func makes a Clock of a function.
type Func func() time.Duration

// Now calls f.
func (f Func) Now() time.Duration { return f() }

// Trust returns how long a holder may rely on a lease of the given TTL, counted from
// before the request. The margin covers rounding, and clocks whose rates differ by up to
// one per cent.
func Trust(ttl time.Duration) time.Duration {
	return ttl - ttl/100 - 2*time.Millisecond
}

// Source is a database that brings a clock of its own, in tests.
type Source interface {
	Clock() Clock
}

// Of returns the clock by which leases in a database are trusted: the system's, unless the
// database brings its own.
func Of(database any) Clock {
	if s, ok := database.(Source); ok {
		return s.Clock()
	}
	return System{}
}

// Spread draws a random duration from 0 on that is less than n, to keep those apart who would
// otherwise do the same at the same time.
type Spread func(n time.Duration) time.Duration

// SpreadOf returns what spreads the pauses of those who use a database: chance, unless the
// database brings a Spread of its own, in tests.
func SpreadOf(database any) Spread {
	if s, ok := database.(interface{ Spread() Spread }); ok {
		return s.Spread()
	}
	return rand.N[time.Duration]
}
