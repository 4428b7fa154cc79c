package conformance

import (
	"fmt"
	"strings"
	"time"

	"github.com/sqllock/sqllock"
)

var waiterPromises = []promise{
	{sentence: "Inspect and List count the waiters of all Lockers, and Inspect shows the first ten in their order", test: testWaiters, needs: needTable | needOneDatabase},
	{sentence: "whoever waits for a permit is shown as such, and hooks tell who hands it over and how long that took", test: testPermitWaiter, needs: needTable | needLeases | needOneDatabase},
	{sentence: "Inspect and List know of no waiters where sessions keep the locks", test: testNoWaiters, needs: needSessions},
	{sentence: "hooks tell who waits and for how long, and who is skipped", test: testHookWaiting, needs: needOneDatabase},
	{sentence: "a hook tells that an Unlock has handed the name over, to whichever Locker", test: testHookHandedOver, needs: needTable | needOneDatabase},
	{sentence: "hooks tell which of several names a call waits for, and which it hands over", test: testHookAll, needs: needTable | needOneDatabase},
}

func testWaiters(e *env) {
	lockers := []*sqllock.Locker{e.locker(&Options{TTL: long, Label: "even"}), e.locker(&Options{TTL: long, Label: "odd"})}
	l := e.locker(&Options{TTL: long})
	lease := e.lock(l, e.name("k"))
	if info := e.inspect(l, lease.Name()); info.Waiters > 0 || info.Queue != nil {
		e.Errorf("before anybody waits: %+v", info)
	}
	const n = 12
	waiting := make([]<-chan result, n)
	for i := range waiting {
		if i%3 == 0 {
			waiting[i] = rlocking(e.ctx(), lockers[i%2], lease.Name())
			e.waitForQueue(lease.Name(), i+1)
		} else {
			waiting[i] = e.waitBehind(lockers[i%2], lease.Name(), i)
		}
	}
	info := e.inspect(l, lease.Name())
	if info.Waiters != n || len(info.Queue) != 10 || info.Owner != lease.Owner() {
		e.Fatalf("want %d waiters, of which 10 are shown: %+v", n, info)
	}
	last := info.Since
	for i, w := range info.Queue {
		label, kind := "even", sqllock.KindExclusive
		if i%2 == 1 {
			label = "odd"
		}
		if i%3 == 0 {
			kind = sqllock.KindShared
		}
		if w.Label != label || w.Kind != kind || w.Since.Before(last) || w.Since.After(info.Now) {
			e.Errorf("at place %d: %+v, want %s %s since %v", i, w, label, kind, last)
		}
		last = w.Since
	}
	if info := e.listed(l, lease.Name()); info == nil || info.Waiters != n || info.Queue != nil {
		e.Errorf("listed: %+v", info)
	}
	e.unlock(lease)
	for _, ch := range waiting {
		e.unlock(e.granted(ch))
	}
	if info := e.inspect(l, lease.Name()); info.Waiters > 0 {
		e.Errorf("in the end: %+v", info)
	}
}

func testPermitWaiter(e *env) {
	handed, waiting := make(chan sqllock.HandedOverEvent, 2), make(chan sqllock.WaitingEvent, 2)
	acquired := make(chan sqllock.AcquiredEvent, 2)
	holder := e.locker(&Options{TTL: long, Hooks: &sqllock.Hooks{
		HandedOver: func(ev sqllock.HandedOverEvent) { handed <- ev },
	}})
	l := e.locker(&Options{TTL: long, Label: "the waiter", Hooks: &sqllock.Hooks{
		Waiting:  func(ev sqllock.WaitingEvent) { waiting <- ev },
		Acquired: func(ev sqllock.AcquiredEvent) { acquired <- ev },
	}})
	name := e.name("k")
	lease := e.permit(e.semaphore(holder, name, 1))
	next := acquiring(e.ctx(), e.semaphore(l, name, 1))
	receive(e, waiting, "the hook Waiting is called")
	start := time.Now()
	e.waitForQueue(name, 1)
	info := e.inspect(holder, name)
	if info.Waiters != 1 || len(info.Queue) != 1 || info.PermitsHeld != 1 {
		e.Fatalf("want one waiter: %+v", info)
	}
	if w := info.Queue[0]; w.Kind != sqllock.KindPermit || w.Label != "the waiter" || w.Since.Before(info.Since) || w.Since.After(info.Now) {
		e.Errorf("who waits for a permit: %+v of %+v", w, info)
	}
	if info := e.listed(l, name); info == nil || info.Waiters != 1 || info.Queue != nil {
		e.Errorf("listed: %+v", info)
	}
	waited := time.Since(start)
	e.unlock(lease)
	permit := e.granted(next)
	want := sqllock.LeaseInfo{Name: name, Owner: lease.Owner(), Token: lease.Token(), Permit: true, TTL: long}
	if ev := receive(e, handed, "the hook HandedOver is called"); ev.LeaseInfo != want || ev.Waiters != 1 {
		e.Errorf("handed over: %+v, want %+v to 1", ev, want)
	}
	if ev := receive(e, acquired, "the hook Acquired is called"); !ev.Permit || ev.Token != permit.Token() || ev.Queued < waited-10*time.Millisecond || ev.Queued <= 0 || ev.Queued > ev.Waited {
		e.Errorf("acquired: %+v, want that it was in the queue for %v at least", ev, waited)
	}
	e.unlock(permit)
}

func testNoWaiters(e *env) {
	l, other := e.locker(&Options{TTL: long}), e.locker(&Options{TTL: long})
	lease := e.lock(l, e.name("k"), noted)
	waiting := locking(e.ctx(), other, lease.Name())
	silent(e, waiting, "Lock of a held name returned")
	inspected := e.inspect(l, lease.Name())
	for _, info := range []*sqllock.Info{&inspected, e.listed(l, lease.Name())} {
		if info == nil || info.State != sqllock.StateHeld || info.Waiters != 0 || info.Queue != nil {
			e.Errorf("of a name that somebody waits for: %+v", info)
		}
	}
	e.unlock(lease)
	e.unlock(e.granted(waiting))
}

func testHookWaiting(e *env) {
	var j journal
	hooks := j.hooks()
	waiting := make(chan sqllock.WaitingEvent, 10)
	acquired := make(chan sqllock.AcquiredEvent, 10)
	hooks.Waiting = func(ev sqllock.WaitingEvent) { waiting <- ev }
	hooks.Acquired = func(ev sqllock.AcquiredEvent) { acquired <- ev }
	hooks.Skipped = func(ev sqllock.SkippedEvent) { j.add("skipped %s %v", ev.Name, ev.Held) }
	holder, l := e.locker(&Options{TTL: long, Label: "the holder"}), e.looseLocker(e.handle(), &Options{TTL: long, Hooks: hooks})
	lease := e.lock(holder, e.name("k"), noted)
	skipped := e.wantHeld(l, lease.Name())
	next := locking(e.ctx(), l, lease.Name())
	ev := receive(e, waiting, "the hook Waiting is called")
	if ev.Name != lease.Name() || ev.Shared || ev.Held == nil || ev.Held.Owner != lease.Owner() || ev.Held.Label != "the holder" {
		e.Errorf("%+v of %+v", ev, ev.Held)
	}
	const gap = 300 * time.Millisecond
	time.Sleep(gap)
	e.unlock(lease)
	granted := e.granted(next)
	if ev := receive(e, acquired, "the hook Acquired is called"); ev.Token != granted.Token() || ev.Queued < gap-10*time.Millisecond || ev.Queued > ev.Waited {
		e.Errorf("%+v, want that it was in the queue for %v at least", ev, gap)
	}
	e.unlock(granted)
	e.unlock(e.lock(l, e.name("free")))
	if ev := receive(e, acquired, "the hook Acquired is called"); ev.Queued != 0 {
		e.Errorf("of a free name: %+v", ev)
	}
	if err := l.Close(e.ctx()); err != nil { // after it all hooks have been called
		e.Errorf("Close: %v", err)
	}
	if want := fmt.Sprintf("skipped %s %v", lease.Name(), skipped); j.count("skipped ") != 1 || !j.has(want) || len(waiting) > 0 {
		e.Errorf("want %q once and no other event of waiting, got %q and %d", want, j.read(), len(waiting))
	}
}

// count returns how many entries begin with a text.
func (j *journal) count(prefix string) (n int) {
	for _, entry := range j.read() {
		if strings.HasPrefix(entry, prefix) {
			n++
		}
	}
	return n
}

func testHookHandedOver(e *env) {
	var j journal
	hooks := j.hooks()
	hooks.HandedOver = func(ev sqllock.HandedOverEvent) { j.add("handed over %s %d to %d", ev.Name, ev.Token, ev.Waiters) }
	l := e.looseLocker(e.handle(), &Options{TTL: long, Hooks: hooks})
	other := e.locker(&Options{TTL: long, RetryMin: long, RetryMax: long}) // it does not look before it is handed the name
	lease := e.lock(l, e.name("k"))
	book := e.ledger()
	var want []string
	waiting := []<-chan result{e.waitBehind(l, lease.Name(), 0), e.waitBehind(other, lease.Name(), 1)}
	for i, to := range waiting {
		want = append(want, fmt.Sprintf("handed over %s %d to 1", lease.Name(), lease.Token()))
		if i == 1 {
			e.unlockInTx(lease, book, "x")
		} else {
			e.unlock(lease)
		}
		lease = e.granted(to)
	}
	e.unlock(lease)
	e.unlock(e.lock(l, e.name("nobody waits")))
	if err := l.Close(e.ctx()); err != nil { // after it all hooks have been called
		e.Errorf("Close: %v", err)
	}
	for _, entry := range want {
		if !j.has(entry) {
			e.Errorf("%q is missing in %q", entry, j.read())
		}
	}
	if j.count("handed over ") != len(want) {
		e.Errorf("want %q, got %q", want, j.read())
	}
}

func testHookAll(e *env) {
	var j journal
	hooks := j.hooks()
	hooks.Waiting = func(ev sqllock.WaitingEvent) { j.add("waiting %s for %v", ev.Name, ev.Held) }
	hooks.Skipped = func(ev sqllock.SkippedEvent) { j.add("skipped %s %v", ev.Name, ev.Held) }
	hooks.HandedOver = func(ev sqllock.HandedOverEvent) { j.add("handed over %s to %d", ev.Name, ev.Waiters) }
	l, other := e.looseLocker(e.handle(), &Options{TTL: long, Hooks: hooks}), e.locker(&Options{TTL: long})
	names := []string{e.name("a"), e.name("b")}
	lease := e.lock(other, names[1])
	_, err := l.TryLockAll(e.ctx(), names)
	e.wantError("TryLockAll", err, sqllock.ErrHeld)
	held := err
	got := make(chan *sqllock.Leases, 1)
	go func() {
		leases, err := l.LockAll(e.ctx(), names)
		if err != nil {
			e.Errorf("LockAll: %v", err)
		}
		got <- leases
	}()
	e.waitForQueue(names[1], 1)
	e.unlock(lease)
	leases := receive(e, got, "LockAll returns")
	waiting := e.waitBehind(other, names[0], 0)
	if err := leases.Unlock(e.ctx()); err != nil {
		e.Errorf("Unlock: %v", err)
	}
	e.unlock(e.granted(waiting))
	if err := l.Close(e.ctx()); err != nil { // after it all hooks have been called
		e.Errorf("Close: %v", err)
	}
	for _, want := range []string{fmt.Sprintf("skipped %s %v", names[1], held), fmt.Sprintf("waiting %s for %v", names[1], held), "handed over " + names[0] + " to 1"} {
		if !j.has(want) {
			e.Errorf("%q is missing in %q", want, j.read())
		}
	}
	if n := j.count("waiting ") + j.count("skipped ") + j.count("handed over "); n != 3 {
		e.Errorf("want three events, got %q", j.read())
	}
}
