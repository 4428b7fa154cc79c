package schedule

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/sqllock/sqllock"
)

// locker is a Locker of a schedule.
type locker struct {
	*sqllock.Locker
	db      *database
	ttl     time.Duration
	timeout time.Duration // of statements; 0: by the TTL
	slowest time.Duration // RetryMax
	givesUp time.Duration // when Close does not wait any longer for those who unlock; 0: it was not called
}

// caller is a goroutine that does something with a Locker.
type caller struct {
	*locker
	w    *world
	name string
	rnd  *rand.Rand
	left []*held // that it has not given back
}

func (c *caller) chance(of int) bool { return c.rnd.IntN(of) == 0 }

// run does some steps.
func (c *caller) run(steps int) {
	for range steps {
		c.w.sleep(between(c.rnd, time.Microsecond, c.w.ttl/2))
		if c.db.rolls(c.w.style.sleeps) {
			d := between(c.rnd, time.Millisecond, 2*c.w.ttl)
			c.w.note("%s: its machine sleeps for %v", c.name, d)
			c.db.sleepsFor(d)
		}
		c.step()
	}
	for _, h := range c.left {
		c.unlock(h)
	}
}

func (c *caller) step() {
	switch n := c.rnd.IntN(100); {
	case n < 60:
		c.lockOne()
	case n < 70:
		c.lockAll()
	case n < 78:
		c.do()
	case n < 85:
		c.adopt()
	case n < 91:
		c.forceUnlock()
	case n < 94:
		c.look()
	case n < 98:
		c.resize()
	default:
		c.closeEarly()
	}
}

func (c *caller) any() string { return c.w.names[c.rnd.IntN(len(c.w.names))] }

// context returns a context of a call, and until when the call lasts at most.
func (c *caller) context() (context.Context, context.CancelFunc, time.Duration) {
	d := between(c.rnd, 5*time.Millisecond, 4*c.w.ttl)
	if c.chance(20) {
		d = 1
	}
	if c.chance(3) { // it is cancelled
		ctx, cancel := context.WithCancel(context.Background())
		wait := c.w.freeSlot(d)
		t := time.AfterFunc(wait, cancel)
		return ctx, func() { t.Stop(); cancel() }, c.w.now() + wait
	}
	wait := c.w.freeSlot(d)
	ctx, cancel := context.WithTimeout(context.Background(), wait)
	return ctx, cancel, c.w.now() + wait
}

// A call that does not wait for a name waits for a statement or two of its own, and behind those of
// others: a Locker has only so many in flight.
const (
	never     = time.Duration(1<<62 - 1)
	unwaiting = 15 * time.Second
)

// soon is for how long a call may last after its context has ended.
const soon = 30 * time.Millisecond

// inTime runs a call and checks that it returns in time.
func (c *caller) inTime(what string, until time.Duration, call func() error) error {
	c.w.note("%s: %s", c.name, what)
	err := call()
	if now := c.w.now(); now > until {
		c.w.fail("%s: %s returns %v too late", c.name, what, now-until)
	}
	c.w.note("%s: %s: %s", c.name, what, short(err))
	return err
}

// statement is how long a statement for a TTL may take.
func (c *caller) statement(ttl time.Duration) time.Duration {
	if c.timeout != 0 {
		return c.timeout
	}
	return min(ttl/3, 5*time.Second)
}

const (
	limitedOwner = "limited " // begins the owner of a lease with a MaxHold
	sharedOwner  = "owner "   // begins that of callers who re-enter each other's leases
)

// terms are what a call asks of its leases.
type terms struct {
	opts                             []sqllock.LockOption
	ttl, maxHold, minHold, lockDelay time.Duration
}

// terms draws the options of a call. It returns its context with an owner, if it has one.
func (c *caller) terms(ctx context.Context, alone bool) (context.Context, *terms) {
	o := &terms{ttl: c.ttl}
	add := func(of int, d *time.Duration, option func(time.Duration) sqllock.LockOption, least, most time.Duration) bool {
		if !c.chance(of) {
			return false
		}
		*d = between(c.rnd, least, most)
		o.opts = append(o.opts, option(*d))
		return true
	}
	add(3, &o.ttl, sqllock.TTL, sqllock.MinTTL, 3*c.w.ttl)
	add(6, &o.lockDelay, sqllock.LockDelay, time.Millisecond, c.w.ttl)
	if alone {
		add(6, &o.minHold, sqllock.MinHold, time.Millisecond, 2*c.w.ttl)
	}
	if alone && c.chance(6) {
		o.opts = append(o.opts, sqllock.Value([]byte("value")))
	}
	if add(6, &o.maxHold, sqllock.MaxHold, sqllock.MinTTL, 3*c.w.ttl) {
		ctx = sqllock.WithOwner(ctx, fmt.Sprint(limitedOwner, c.name, c.rnd.Int32()))
	} else if c.chance(6) {
		ctx = sqllock.WithOwner(ctx, sharedOwner+c.db.label)
	}
	return ctx, o
}

// lockOne gets one lease in one of many ways.
func (c *caller) lockOne() {
	ctx, cancel, until := c.context()
	defer cancel()
	kind := c.rnd.IntN(6)
	ctx, o := c.terms(ctx, kind < 2)
	name, began := c.any(), c.w.now()
	lock, what := c.method(kind, name)
	if kind%2 == 1 { // it does not wait
		until = min(until, c.w.now()+unwaiting)
	} else if c.chance(8) {
		o.opts = append(o.opts, sqllock.Tries(1+c.rnd.IntN(4)))
	} else if c.chance(4) {
		d := c.w.freeSlot(between(c.rnd, time.Millisecond, 2*c.w.ttl))
		o.opts, until = append(o.opts, sqllock.Wait(d)), min(until, c.w.now()+d)
	}
	var lease *sqllock.Lease
	err := c.inTime(what, until+soon, func() (err error) {
		lease, err = lock(ctx, o.opts...)
		return err
	})
	if wait := 2*c.slowest + time.Second; kind%2 == 0 && c.w.style.isQuiet() && errors.Is(err, context.DeadlineExceeded) &&
		c.w.now()-began > wait && c.w.wasFree(name) > wait {
		c.w.fail("%s: on a quiet day %s waits for a name that is free", c.name, what)
	}
	if (lease == nil) == (err == nil) {
		c.w.fail("%s: %s returns %v and %v", c.name, what, lease, err)
	}
	if err == nil {
		c.keep(c.w.begins(c, lease, o))
	}
}

// method is a way to get a lease.
func (c *caller) method(kind int, name string) (func(context.Context, ...sqllock.LockOption) (*sqllock.Lease, error), string) {
	of := func(f func(context.Context, string, ...sqllock.LockOption) (*sqllock.Lease, error)) func(context.Context, ...sqllock.LockOption) (*sqllock.Lease, error) {
		return func(ctx context.Context, opts ...sqllock.LockOption) (*sqllock.Lease, error) {
			return f(ctx, name, opts...)
		}
	}
	switch kind {
	case 0:
		return of(c.Lock), "Lock " + name
	case 1:
		return of(c.TryLock), "TryLock " + name
	case 2:
		return of(c.RLock), "RLock " + name
	case 3:
		return of(c.TryRLock), "TryRLock " + name
	}
	s, err := c.Semaphore(name, c.permits(), nil)
	if err != nil {
		c.w.fail("Semaphore: %v", err)
	}
	if kind == 4 {
		return s.Acquire, "Acquire " + name
	}
	return s.TryAcquire, "TryAcquire " + name
}

// permits is most often the same.
func (c *caller) permits() int {
	if c.chance(10) {
		return 1 + c.rnd.IntN(3)
	}
	return 2
}

// keep keeps a lease for a while, and then gives it back in some way.
func (c *caller) keep(h *held) {
	d := between(c.rnd, time.Microsecond, c.w.ttl/4)
	if c.chance(5) {
		d = between(c.rnd, c.w.ttl, 4*c.w.ttl)
	}
	c.w.sleep(d)
	switch n := c.rnd.IntN(20); {
	case n < 3:
		c.reenter(h)
	case n < 6 && !h.shared && !h.permit:
		c.detach(h)
		return
	case n < 7:
		c.nested(h)
	case n < 9: // later
		c.left = append(c.left, h)
		return
	}
	c.unlock(h)
}

// unlock gives a lease back.
func (c *caller) unlock(h *held) {
	ctx, cancel, _ := c.context()
	defer cancel()
	c.w.ends(h)
	began := c.w.now()
	err := c.inTime("Unlock "+h.name, c.w.now()+2*c.statement(h.ttl)+soon, func() error { return h.unlock(ctx) })
	var lost *sqllock.LostError
	if errors.As(err, &lost) {
		c.w.lost++
	}
	if c.w.style.isQuiet() && (c.givesUp == 0 || began < c.givesUp-soon) && (errors.Is(err, sqllock.ErrClosed) || errors.Is(err, context.Canceled)) {
		c.w.fail("%s: on a quiet day Close does not wait for Unlock: %v", c.name, err)
	}
	if lost != nil && c.w.style.isQuiet() && lost.Reason != sqllock.LostMaxHold &&
		lost.Reason != sqllock.LostRevoked && !c.w.isRevoked(lost.Name, lost.Token) && !c.w.isClosed(c.locker) {
		c.w.fail("%s: on a quiet day its lease of %s is lost: %v", c.name, h.name, lost)
	}
}

// reenter locks a name that it has.
func (c *caller) reenter(h *held) {
	ctx, cancel := context.WithTimeout(h.ctx, c.w.ttl)
	defer cancel()
	lock, what := c.method(c.rnd.IntN(4), h.name)
	var lease *sqllock.Lease
	err := c.inTime("again "+what, c.w.now()+c.w.ttl+soon, func() (err error) {
		lease, err = lock(ctx)
		return err
	})
	if err != nil {
		return
	}
	if lease.Token() != h.token {
		c.w.fail("%s: %s again has token %d and had %d", c.name, h.name, lease.Token(), h.token)
	}
	again := c.w.begins(c, lease, &h.terms)
	c.w.sleep(between(c.rnd, time.Microsecond, c.w.ttl/4))
	if c.chance(2) {
		c.unlock(again)
		return
	}
	c.left = append(c.left, again)
}

// nested locks a name while it has another one.
func (c *caller) nested(h *held) {
	ctx, cancel := context.WithTimeout(h.ctx, 2*c.w.ttl)
	defer cancel()
	name := c.any()
	if name == h.name {
		return
	}
	var lease *sqllock.Lease
	err := c.inTime("nested Lock "+name, c.w.now()+2*c.w.ttl+soon, func() (err error) {
		lease, err = c.Lock(ctx, name)
		return err
	})
	if err == nil {
		c.keep(c.w.begins(c, lease, &terms{ttl: c.ttl}))
	}
}

// lockAll locks several names together.
func (c *caller) lockAll() {
	ctx, cancel, until := c.context()
	defer cancel()
	shared, waits := c.chance(3), c.chance(2)
	ctx, o := c.terms(ctx, !shared)
	names := slices.Clone(c.w.names[:1+c.rnd.IntN(len(c.w.names))])
	lock := map[[2]bool]func(context.Context, []string, ...sqllock.LockOption) (*sqllock.Leases, error){
		{false, false}: c.TryLockAll, {false, true}: c.LockAll, {true, false}: c.TryRLockAll, {true, true}: c.RLockAll,
	}[[2]bool{shared, waits}]
	if !waits {
		until = min(until, c.w.now()+unwaiting)
	}
	// After an error the names that it has got are freed, which takes the time of an Unlock.
	until += 2*c.statement(o.ttl) + soon
	var leases *sqllock.Leases
	what := fmt.Sprintf("lock %d names together, shared %v, waiting %v", len(names), shared, waits)
	err := c.inTime(what, until, func() (err error) {
		leases, err = lock(ctx, names, o.opts...)
		return err
	})
	if err != nil {
		return
	}
	var all []*held
	for _, name := range leases.Names() {
		h := &held{by: c, name: name, token: leases.Token(name), shared: shared, terms: *o, remaining: leases.Remaining,
			ctx: leases.Context(), unlock: leases.Unlock}
		c.w.has(h)
		all = append(all, h)
	}
	c.w.sleep(between(c.rnd, time.Microsecond, c.w.ttl))
	for _, h := range all {
		c.w.ends(h)
	}
	c.unlock(all[0])
}

// do runs a function under a lease.
func (c *caller) do() {
	ctx, cancel, until := c.context()
	defer cancel()
	name := c.any()
	ctx, o := c.terms(ctx, true)
	work := between(c.rnd, time.Microsecond, c.w.ttl)
	until += work + 2*c.statement(o.ttl) + soon
	_ = c.inTime("Do "+name, until, func() error {
		return c.Do(ctx, name, func(ctx context.Context, lease *sqllock.Lease) error {
			h := c.w.begins(c, lease, o)
			err := c.w.pause(ctx, work)
			c.w.ends(h)
			return err
		}, o.opts...)
	})
}

// detach gives a lease away.
func (c *caller) detach(h *held) {
	ctx, cancel, until := c.context()
	defer cancel()
	if _, ok := ctx.Deadline(); !ok { // to cancel it has no effect
		until = never
	}
	until = min(until, c.w.now()+2*c.statement(h.ttl))
	c.w.ends(h)
	var text string
	err := c.inTime("Detach "+h.name, until+soon+c.slowest, func() (err error) {
		text, err = h.Detach(ctx)
		return err
	})
	switch {
	case err == nil:
		c.w.mu.Lock()
		h.keptUntil = 0 // whoever adopts it need not keep it
		c.w.handovers = append(c.w.handovers, text)
		c.w.mu.Unlock()
		if c.chance(2) {
			c.adopt()
		}
		return
	case !errors.Is(err, sqllock.ErrUnknown) && !errors.Is(err, sqllock.ErrNotHeld) && !errors.Is(err, sqllock.ErrLost):
		c.w.goesOn(h) // says the documentation of Detach
		c.w.sleep(between(c.rnd, time.Microsecond, c.w.ttl))
	}
	c.unlock(h)
}

// adopt takes over what somebody has given away.
func (c *caller) adopt() {
	c.w.mu.Lock()
	n := len(c.w.handovers)
	var text string
	if n > 0 {
		text = c.w.handovers[c.rnd.IntN(n)]
	}
	c.w.mu.Unlock()
	if n == 0 {
		return
	}
	ctx, cancel, until := c.context()
	defer cancel()
	ctx, o := c.terms(ctx, true)
	var lease *sqllock.Lease
	err := c.inTime("Adopt", until+soon, func() (err error) {
		lease, err = c.Adopt(ctx, text, o.opts...)
		return err
	})
	if err == nil {
		c.keep(c.w.begins(c, lease, o))
	}
}

func (c *caller) forceUnlock() {
	ctx, cancel, until := c.context()
	defer cancel()
	name := c.any()
	_ = c.inTime("ForceUnlock "+name, until+soon, func() error {
		_, err := c.ForceUnlock(ctx, name)
		return err
	})
}

func (c *caller) look() {
	ctx, cancel, until := c.context()
	defer cancel()
	name := c.any()
	_ = c.inTime("Inspect "+name, until+soon, func() error {
		_, err := c.Inspect(ctx, name)
		return err
	})
}

func (c *caller) resize() {
	ctx, cancel, until := c.context()
	defer cancel()
	name := c.any()
	s, err := c.Semaphore(name, 2, nil)
	if err != nil {
		c.w.fail("Semaphore: %v", err)
		return
	}
	_ = c.inTime("Resize "+name, until+soon, func() error { return s.Resize(ctx, 1+c.rnd.IntN(3)) })
}

// closeEarly closes the Locker while others work with it.
func (c *caller) closeEarly() {
	if !c.chance(4) {
		return
	}
	c.shut(between(c.rnd, time.Millisecond, 2*c.w.ttl))
}

// shut closes the Locker.
func (c *caller) shut(d time.Duration) {
	d = c.w.freeSlot(d)
	c.w.closes(c.locker)
	ctx, cancel := context.WithTimeout(context.Background(), d)
	defer cancel()
	if c.chance(5) {
		cancel()
		d = 0
	}
	// Unlocks in flight, and the cleanup, have the time of a statement.
	if until := c.w.now() + d; c.givesUp == 0 || until < c.givesUp {
		c.givesUp = until
	}
	until := c.w.now() + max(d, 5*time.Second, c.timeout) + soon
	_ = c.inTime("Close", until, func() error { return c.Close(ctx) })
}
