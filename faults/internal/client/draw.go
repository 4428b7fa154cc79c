//go:build linux

package client

import (
	"context"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/sqllock/sqllock"
	"github.com/sqllock/sqllock/faults/internal/history"
)

// A user is a kind of user of the library: what options its Locker has, and how often its calls have
// options of their own.
type user struct {
	name   string
	locker sqllock.UniqueOptions
	often  float64 // each option of a call
}

// users are those of a cell with options, one after the other.
var users = []user{
	{"defaults", sqllock.UniqueOptions{TTL: time.Second}, 0.3},
	{"careful", sqllock.UniqueOptions{TTL: 3 * time.Second, StatementTimeout: 500 * time.Millisecond, MaxBatch: 4}, 0.5},
	{"barging", sqllock.UniqueOptions{TTL: 2 * time.Second, Barging: true, MaxInFlight: 1, RetryMin: 5 * time.Millisecond}, 0.3},
}

// Users is how many kinds of users there are.
var Users = len(users)

// UserNames are their names.
func UserNames() (names []string) {
	for _, u := range users {
		names = append(names, u.name)
	}
	return names
}

// Bounds of what is drawn. Who wants a long lease gives up early, because a process that is killed
// may leave one.
const (
	LongestTTL     = 30 * time.Second
	LongTTL        = 10 * time.Second // those from here on are for the long names alone
	MostWaitedIn   = 5 * time.Second  // the longest of the others
	LongestDelay   = 300 * time.Millisecond
	LongestMinHold = time.Second // MinHold
)

var (
	ttls         = []time.Duration{time.Second, 1500 * time.Millisecond, 2 * time.Second, 3 * time.Second, MostWaitedIn}
	longTTLs     = []time.Duration{LongTTL, LongestTTL}
	minHoldTimes = []time.Duration{100 * time.Millisecond, 400 * time.Millisecond, LongestMinHold}
	maxHoldTimes = []time.Duration{150 * time.Millisecond, 400 * time.Millisecond, 2500 * time.Millisecond}
	delays       = []time.Duration{80 * time.Millisecond, LongestDelay}
)

// OutageTTLs are the TTLs of which an outage takes half.
func OutageTTLs() []time.Duration { return ttls }

// choice is what a call wants, and how what it acquires is to end.
type choice struct {
	kind, how string // of package history, and of this one
	names     []string
	options   history.Options
	opts      []sqllock.LockOption
	ending    string
}

// draw decides on the next call.
func (w *worker) draw() *choice {
	c := &choice{how: waits, kind: drawKind(w.rng)}
	switch w.rng.IntN(10) {
	case 0:
		c.how = try
	case 1:
		c.how = giveUp
	}
	c.names = w.drawNames(c.kind)
	if isLong(c.names[0]) {
		c.how = giveUp
	}
	w.drawOptions(c)
	w.drawEnding(c)
	return c
}

func drawKind(rng *rand.Rand) string {
	switch n := rng.IntN(20); {
	case n < 4:
		return history.Exclusive
	case n < 7:
		return history.Shared
	case n < 10:
		return history.Permit
	case n < 12:
		return history.Together
	case n < 14:
		return history.Once
	case n < 16:
		return history.Election
	}
	return history.Adopted
}

// isLong reports that leases of a name, or permits, may have the longest TTLs.
func isLong(name string) bool { return strings.HasPrefix(name, "long ") }

// drawNames returns the names of a call: one or several, of which either all are long or none is.
func (w *worker) drawNames(kind string) []string {
	among, n := w.cfg.Names, 1
	switch kind {
	case history.Permit:
		among = w.cfg.Semaphores
	case history.Together:
		n = 2 + w.rng.IntN(2)
	}
	long := w.rng.IntN(4) == 0
	among = slices.DeleteFunc(slices.Clone(among), func(name string) bool { return isLong(name) != long })
	if kind == history.Once && !long { // so that several want one key
		among = among[:2]
	}
	return some(among, min(n, len(among)), w.rng)
}

// drawOptions decides on the options that the call may have.
func (w *worker) drawOptions(c *choice) {
	u := &users[w.cfg.User]
	o := history.Options{TTL: int64(u.locker.TTL), User: u.name}
	has := func() bool { return w.rng.Float64() < u.often }
	alone := c.kind != history.Shared && c.kind != history.Permit
	if isLong(c.names[0]) && w.rng.IntN(2) == 0 {
		o.TTL = int64(one(longTTLs, w.rng))
	} else if has() {
		o.TTL = int64(one(ttls, w.rng))
	}
	if has() && alone && c.kind != history.Election {
		o.MinHold = int64(one(minHoldTimes, w.rng))
	}
	if has() && c.kind != history.Election {
		o.MaxHold = int64(one(maxHoldTimes, w.rng))
	}
	if has() {
		o.Delay = int64(one(delays, w.rng))
	}
	if has() && alone {
		o.Value = w.cfg.Proc + " " + strconv.Itoa(w.rng.IntN(1000))
	}
	c.options, c.opts = o, nil
	if time.Duration(o.TTL) != u.locker.TTL {
		c.opts = append(c.opts, sqllock.TTL(time.Duration(o.TTL)))
	}
	if o.MinHold != 0 {
		c.opts = append(c.opts, sqllock.MinHold(time.Duration(o.MinHold)))
	}
	if o.MaxHold != 0 {
		c.opts = append(c.opts, sqllock.MaxHold(time.Duration(o.MaxHold)))
	}
	if o.Delay != 0 {
		c.opts = append(c.opts, sqllock.LockDelay(time.Duration(o.Delay)))
	}
	if o.Value != "" {
		c.opts = append(c.opts, sqllock.Value([]byte(o.Value)))
	}
}

// drawEnding decides how what the call acquires is to end, of what is possible for it.
func (w *worker) drawEnding(c *choice) {
	c.ending = one(history.EndingsOf(c.kind), w.rng)
	if c.options.MaxHold != 0 && w.rng.IntN(3) == 0 && c.kind != history.Once {
		c.ending = history.BeyondMaxHold
	}
	if w.orders.Aimed() == history.Guarded && c.kind != history.Shared {
		c.ending = history.AfterGuard
	}
}

func one[T any](list []T, rng *rand.Rand) T { return list[rng.IntN(len(list))] }

// callContext returns the context of the call.
func (w *worker) callContext(c *choice) (context.Context, context.CancelFunc) {
	if c.how != giveUp {
		return context.WithCancel(context.Background())
	}
	return context.WithTimeout(context.Background(), time.Duration(w.rng.IntN(300))*time.Millisecond)
}
