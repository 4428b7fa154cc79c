package lockpg

import (
	"strconv"
	"time"
)

// silent is how the server finds out that the other side of a connection is gone
// whose host says nothing any more, in the units of its settings. It must not do so
// before the TTL is over.
type silent struct {
	userTimeout           string // milliseconds that what was sent may stay unconfirmed
	idle, interval, count string // of keepalives, in seconds
	check                 string // milliseconds between looks at the socket while a statement runs
}

// Bounds of what an operating system takes.
const (
	maxProbes = 100
	maxIdle   = 32767
)

// silence asks for probes at the end of the TTL, a second apart, so that a host that
// has vanished is noticed soon after it. Where the system bounds how many there are,
// or when they begin, they are further apart.
func silence(ttl time.Duration) silent {
	whole := int((ttl + time.Second - 1) / time.Second)
	idle := min(max((whole+2)/3, whole-maxProbes, 1), maxIdle)
	interval := max(1, (whole-idle+maxProbes-1)/maxProbes)
	count := max(1, (whole-idle)/interval+1)
	return silent{
		userTimeout: milliseconds(ttl), idle: strconv.Itoa(idle), interval: strconv.Itoa(interval), count: strconv.Itoa(count),
		check: milliseconds(max(min(ttl, longestWait), time.Millisecond)),
	}
}

// milliseconds rounds up.
func milliseconds(d time.Duration) string {
	return strconv.FormatInt(int64((d+time.Millisecond-1)/time.Millisecond), 10)
}
