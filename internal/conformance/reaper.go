package conformance

import (
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sqllock/sqllock"
)

var reapPromises = []promise{
	{sentence: "one Locker tells of a crash, the next holder's or a reaper's", test: testCrashReportedOnce},
	{sentence: "the reaper in the background finds what nobody asks for", test: testReapInBackground},
	{sentence: "what is held, kept or locked by somebody is not reaped", test: testReapSpares},
	{sentence: "tokens rise across a purge in the middle of a contended run", test: testPurgeInTheMiddle},
}

// crashes collects what the hook Crashed tells.
type crashes struct {
	mu     sync.Mutex
	events map[string][]sqllock.CrashedEvent // by name
}

func (c *crashes) hooks() *sqllock.Hooks {
	c.events = make(map[string][]sqllock.CrashedEvent)
	return &sqllock.Hooks{Crashed: func(ev sqllock.CrashedEvent) {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.events[ev.Name] = append(c.events[ev.Name], ev)
	}}
}

func (c *crashes) of(name string) []sqllock.CrashedEvent {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.events[name]
}

func testCrashReportedOnce(e *env) {
	e.fresh()
	var c crashes
	hooks := c.hooks()
	crashing := e.looseLocker(e.handle(), &Options{TTL: long, Label: "it crashed"})
	const names = 20
	leases := make([]*sqllock.Lease, names)
	for i := range leases {
		leases[i] = e.lock(crashing, e.name(fmt.Sprint(i)), noted)
	}
	e.crash(crashing, leases...)
	var wg sync.WaitGroup
	var lockers []*sqllock.Locker
	for k := range 4 {
		l := e.looseLocker(e.handle(), &Options{TTL: long, Hooks: hooks})
		lockers = append(lockers, l)
		wg.Go(func() {
			if k%2 == 0 {
				e.reap(l)
				return
			}
			for _, lease := range leases {
				if next, err := l.Lock(e.ctx(), lease.Name()); err != nil {
					e.Errorf("Lock: %v", err)
				} else if err := next.Unlock(e.ctx()); err != nil {
					e.Errorf("Unlock: %v", err)
				}
			}
		})
	}
	wg.Wait()
	for _, l := range lockers {
		if err := l.Close(e.ctx()); err != nil { // after it all hooks have been called
			e.Errorf("Close: %v", err)
		}
	}
	e.wantCrashes(&c, leases)
}

// wantCrashes checks that the crash of each lease was reported once.
func (e *env) wantCrashes(c *crashes, leases []*sqllock.Lease) {
	e.Helper()
	for _, lease := range leases {
		if events := c.of(lease.Name()); len(events) != 1 || events[0].Token != lease.Token() || events[0].Owner != lease.Owner() ||
			events[0].Label != "it crashed" || !e.inSessions() && !events[0].Expired.Equal(time.UnixMicro(1)) {
			e.Errorf("the crash of %s with token %d was reported as %+v", lease.Name(), lease.Token(), events)
		}
	}
}

// reap returns the number of rows that a pass has purged.
func (e *env) reap(l *sqllock.Locker) (purged int) {
	rep, err := l.Reaper().Reap(e.ctx())
	if err != nil {
		e.Errorf("Reap: %v", err)
	}
	return rep.Purged
}

func testReapInBackground(e *env) {
	e.fresh()
	var c crashes
	ttl := e.ttl(500 * time.Millisecond)
	l := e.locker(&Options{TTL: long, Hooks: c.hooks(), Reaper: &sqllock.ReaperOptions{Interval: 50 * time.Millisecond}})
	crashing := e.looseLocker(e.handle(), &Options{TTL: ttl})
	lease := e.lock(crashing, e.name("k"), noted)
	held := e.lock(l, e.name("held"))
	e.abandon(crashing)
	e.eventually(ttl+timeLimit, "the crash is reported", func() bool { return len(c.of(lease.Name())) > 0 })
	e.live(held)
	e.unlock(held)
	if info := e.inspect(l, lease.Name()); info.State != sqllock.StateExpired || info.Owner != "" {
		e.Errorf("afterwards the name is %+v", info)
	}
}

// idle waits until what was used last can be purged by a reaper with a retention of a second. The
// databases of a quorum draw versions that are ahead of their clocks by up to a quarter of a second,
// and purge a row as much later, so that tokens rise.
func (e *env) idle() {
	pause := 1200 * time.Millisecond
	if e.h.Nodes > 1 {
		pause += 250 * time.Millisecond
	}
	time.Sleep(pause)
}

func testReapSpares(e *env) {
	e.fresh()
	l := e.locker(&Options{TTL: long, Reaper: &sqllock.ReaperOptions{Off: true, Retention: time.Second}})
	held := e.lock(l, e.name("held"), noted)
	kept := e.lock(l, e.name("kept"), sqllock.MinHold(time.Hour))
	e.unlock(kept)
	idle := e.lock(l, e.name("idle"), noted)
	e.unlock(idle)
	seen, spared := 4, true
	if t := e.h.Table; t != nil {
		crashing := e.looseLocker(e.handle(), &Options{TTL: long})
		pinned := e.lock(crashing, e.name("pinned"))
		e.abandon(crashing)
		e.expire(pinned.Name())
		if seen, spared = 5, t.LocksRows; spared {
			unpin := e.pin(pinned.Name())
			defer unpin()
		}
	}
	e.idle()
	used := e.lock(l, e.name("used just now"), noted)
	e.unlock(used)
	rep, err := l.Reaper().Reap(e.ctx())
	purged := 1
	if e.h.Nodes > 1 { // a database that grants a name when it was unlocked keeps it for no MinHold: the others do
		purged = min(max(rep.Purged, 1), 2)
	}
	if err != nil || rep.Purged != purged || rep.Seen != seen || spared && len(rep.Crashed) != 0 {
		e.Errorf("Reap = %+v, %v", rep, err)
	}
	e.wantState(l, held.Name(), sqllock.StateHeld)
	e.wantState(l, kept.Name(), sqllock.StateReleased)
	e.wantState(l, used.Name(), sqllock.StateReleased)
	e.wantState(l, idle.Name(), sqllock.StateUnknown)
	e.live(held)
	e.unlock(held)
}

// testPurgeInTheMiddle has several Lockers use a few names in bursts, so that the
// rows are idle for longer than the retention now and then, while reapers run.
func testPurgeInTheMiddle(e *env) {
	e.fresh()
	reaper := e.locker(&Options{TTL: long, Reaper: &sqllock.ReaperOptions{Off: true, Retention: time.Second}})
	names := []string{e.name("a"), e.name("b"), e.name("c")}
	last := make(map[string]*atomic.Int64) // the token of a name, set by whoever holds it
	for _, name := range names {
		last[name] = new(atomic.Int64)
	}
	var wg sync.WaitGroup
	var purged int
	for burst := range 3 {
		for range 4 {
			l := e.locker(&Options{TTL: long, RetryMax: 20 * time.Millisecond})
			wg.Go(func() {
				for i := range 15 {
					name := names[i%len(names)]
					e.lockAndCompare(l, name, last[name])
				}
			})
		}
		if burst > 0 { // in the middle of the burst that follows the idle time
			purged += e.reap(reaper)
		}
		wg.Wait()
		e.idle()
		if burst == 1 {
			purged += e.reap(reaper)
		}
	}
	if purged < len(names) {
		e.Errorf("%d rows were purged on the way, want at least %d: %s", purged, len(names), strings.Join(names, " "))
	}
}

// lockAndCompare locks a name once and compares its token with the last one.
func (e *env) lockAndCompare(l *sqllock.Locker, name string, last *atomic.Int64) {
	lease, err := l.Lock(e.ctx(), name, noted)
	if err != nil {
		e.Errorf("Lock: %v", err)
		return
	}
	if before := last.Swap(lease.Token()); lease.Token() <= before {
		e.Errorf("token %d of %s follows token %d", lease.Token(), name, before)
	}
	if err := lease.Unlock(e.ctx()); err != nil {
		e.Errorf("Unlock: %v", err)
	}
}
