package sqllock

import "time"

// clock tells how much time has passed. It neither steps nor stops while the
// machine is suspended, where the operating system offers such a clock: a
// holder that slept must know that its lease went on.
type clock interface {
	// now returns the time since an arbitrary but fixed moment.
	now() time.Duration
}

// trust is how long a holder may rely on a lease of the given TTL, counted from
// before the request. The margin covers clocks that run at rates up to one per
// cent apart, and rounding.
func trust(ttl time.Duration) time.Duration {
	return ttl - ttl/100 - 2*time.Millisecond
}
