package conformance

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/sqllock/sqllock"
)

var semaphorePromises = []promise{
	{sentence: "as many callers as a name has permits hold it, each with a slot and a token of its own", test: testPermits, needs: needLeases},
	{sentence: "whoever locks a name waits for its permits, and readers and holders of permits exclude each other", test: testPermitsExclude, needs: needLeases},
	{sentence: "a semaphore of one permit excludes as a lock does, and its tokens rise", test: testOnePermit, needs: needLeases},
	{sentence: "a permit of a semaphore of one is a lock: it has slot 0, excludes locks, waits in their queue and takes part in deadlocks", test: testPermitAsLock, needs: needTable | needLeases},
	{sentence: "callers that wait for permits and for locks of a name are served in the order in which they came", test: testPermitOrder, needs: needLeases},
	{sentence: "the first caller says how many permits a name has, and another number is refused with both until Resize", test: testPermitsMismatch, needs: needLeases},
	{sentence: "whoever is first writes how many permits a name has, also while others have the name, and however many are first", test: testPermitsFirst, needs: needTable | needLeases},
	{sentence: "more permits are granted at once, and with fewer nobody loses one", test: testResize, needs: needLeases},
	{sentence: "a Resize beside callers at random never grants a permit too many", test: testResizeContention, needs: needLeases},
	{sentence: "a permit is renewed, and the permit of a caller that crashed is free after its TTL", test: testPermitCrash, needs: needLeases},
	{sentence: "ForceUnlock takes all permits of a name, and each holder is told", test: testForcePermits, needs: needLeases},
	{sentence: "a guarded permit is not granted again before the transaction has ended, and the others go on", test: testPermitGuarded, needs: needTable | needLeases},
	{sentence: "Guard of a permit that was lost is fenced", test: testPermitFenced, needs: needTable | needLeases},
	{sentence: "Inspect and List say how many permits a name has and how many are held", test: testInspectPermits, needs: needLeases},
	{sentence: "Inspect shows who holds each permit, and who shares a name: the first ten", test: testInspectHolders, needs: needLeases},
	{sentence: "hooks tell of a permit that it is one, and of its slot", test: testHookPermit, needs: needLeases},
	{sentence: "a sequencer of a permit is current while the permit is held, whatever becomes of other slots", test: testPermitSequencer, needs: needLeases},
	{sentence: "a checker remembers the tokens of each slot apart, and asks the database for those that it does not know", test: testPermitChecker, needs: needLeases | needHandle},
	{sentence: "a permit does not re-enter and is not re-entered", test: testPermitReentry, needs: needLeases},
	{sentence: "a wait for a second permit is in a deadlock only if each holder of a permit waits so", test: testPermitDeadlock, needs: needTable | needLeases},
	{sentence: "a call for a permit that gives up leaves nothing behind", test: testPermitGivesUp, needs: needLeases},
	{sentence: "what is no semaphore is refused before any SQL", test: testSemaphoreRefused, needs: needLeases},
	{sentence: "callers at random: never more than there are permits, and tokens rise from term to term of a slot", test: testPermitContention, needs: needLeases},
	{sentence: "a semaphore is not supported where sessions keep the locks", test: testSemaphoreUnsupported, needs: needSessions},
}

// semaphore returns a semaphore of a name.
func (e *env) semaphore(l *sqllock.Locker, name string, permits int) *sqllock.Semaphore {
	e.Helper()
	s, err := l.Semaphore(name, permits, nil)
	if (s == nil) == (err == nil) {
		e.Fatalf("want either a semaphore or an error, got %v and %v", s, err)
	}
	if err != nil {
		e.Fatalf("Semaphore: %v", err)
	}
	return s
}

// permit acquires a permit that is free, or becomes free soon.
func (e *env) permit(s *sqllock.Semaphore, opts ...sqllock.LockOption) *sqllock.Lease {
	e.Helper()
	lease, err := s.Acquire(e.ctx(), opts...)
	e.oneOf(lease, err)
	if err != nil {
		e.Fatalf("Acquire: %v", err)
	}
	return lease
}

// tryPermit acquires a permit that is free.
func (e *env) tryPermit(s *sqllock.Semaphore) *sqllock.Lease {
	e.Helper()
	lease, err := s.TryAcquire(e.ctx())
	e.oneOf(lease, err)
	if err != nil {
		e.Fatalf("TryAcquire: %v", err)
	}
	return lease
}

// noPermit tries to acquire a permit where none is free.
func (e *env) noPermit(s *sqllock.Semaphore) *sqllock.HeldError {
	e.Helper()
	lease, err := s.TryAcquire(e.ctx())
	e.oneOf(lease, err)
	var held *sqllock.HeldError
	if !errors.As(err, &held) || !errors.Is(err, sqllock.ErrHeld) || held.Name != s.Name() {
		e.Fatalf("TryAcquire where no permit is free: want a *HeldError, got %v, %v", lease, err)
	}
	return held
}

// acquiring calls Acquire on a goroutine of its own.
func acquiring(ctx context.Context, s *sqllock.Semaphore) <-chan result {
	ch := make(chan result, 1)
	go func() {
		lease, err := s.Acquire(ctx)
		ch <- result{lease, err}
	}()
	return ch
}

func testPermits(e *env) {
	const n = 3
	a, b := e.locker(&Options{TTL: long}), e.locker(&Options{TTL: long})
	name := e.name("k")
	sems := []*sqllock.Semaphore{e.semaphore(a, name, n), e.semaphore(b, name, n)}
	held := make(map[int]*sqllock.Lease)
	last := int64(0)
	for i := range n {
		lease := e.permit(sems[i%2])
		if other := held[lease.Slot()]; other != nil || lease.Slot() < 0 || lease.Slot() >= n {
			e.Errorf("permit %d has slot %d, as %v has", i, lease.Slot(), other)
		}
		if lease.Token() <= last {
			e.Errorf("token %d follows token %d", lease.Token(), last)
		}
		if !lease.Permit() || lease.Shared() || lease.Name() != name {
			e.Errorf("the lease of a permit: permit %v, shared %v, name %q", lease.Permit(), lease.Shared(), lease.Name())
		}
		held[lease.Slot()], last = lease, lease.Token()
	}
	for _, s := range sems {
		if h := e.noPermit(s); !h.Permit || h.Shared {
			e.Errorf("TryAcquire beside permits is told of another holder: %+v", h)
		}
	}
	former := held[1]
	e.unlock(former)
	e.wantError("second Unlock", former.Unlock(e.ctx()), sqllock.ErrNotHeld)
	e.wantError("the cause", context.Cause(former.Context()), sqllock.ErrUnlocked)
	next := e.tryPermit(sems[1])
	if next.Slot() != 1 || next.Token() <= last {
		e.Errorf("the next permit has slot %d and token %d, after slot 1 and token %d", next.Slot(), next.Token(), last)
	}
	e.noPermit(sems[0])
	held[1] = next
	for _, lease := range held {
		e.live(lease)
		e.unlock(lease)
	}
	e.unlock(e.try(a, name))
}

func testPermitsExclude(e *env) {
	a, b := e.locker(&Options{TTL: long}), e.locker(&Options{TTL: long, RetryMax: 50 * time.Millisecond})
	name := e.name("k")
	s, t := e.semaphore(a, name, 2), e.semaphore(b, name, 2)
	one, two := e.permit(s), e.permit(t)
	writing, reading := locking(e.ctx(), b, name), rlocking(e.ctx(), a, e.name("another"))
	e.unlock(e.granted(reading))
	silent(e, writing, "a lock was granted beside two permits")
	if lease, err := a.TryRLock(e.ctx(), name); !errors.Is(err, sqllock.ErrHeld) {
		e.Fatalf("TryRLock beside permits: %v, %v", lease, err)
	}
	e.unlock(one)
	silent(e, writing, "a lock was granted beside a permit")
	e.unlock(two)
	writer := e.granted(writing)
	if h := e.noPermit(s); h.Permit {
		e.Errorf("TryAcquire beside a lock is told of permits: %+v", h)
	}
	waiting := acquiring(e.ctx(), s)
	silent(e, waiting, "a permit was granted beside a lock")
	e.unlock(writer)
	permit := e.granted(waiting)
	if permit.Token() <= writer.Token() || writer.Token() <= two.Token() {
		e.Errorf("tokens %d, %d and %d follow each other", two.Token(), writer.Token(), permit.Token())
	}
	reading = rlocking(e.ctx(), b, name)
	silent(e, reading, "a reader got in beside a permit")
	e.unlock(permit)
	reader := e.granted(reading)
	if h := e.noPermit(s); h.Permit || !h.Shared {
		e.Errorf("TryAcquire beside a reader is told of another holder: %+v", h)
	}
	waiting = acquiring(e.ctx(), t)
	silent(e, waiting, "a permit was granted beside a reader")
	e.unlock(reader)
	e.unlock(e.granted(waiting))
}

func testPermitOrder(e *env) {
	a, b := e.locker(&Options{TTL: long}), e.locker(&Options{TTL: long})
	name := e.name("k")
	s, t := e.semaphore(a, name, 2), e.semaphore(b, name, 2)
	one, two := e.permit(s), e.permit(t)
	first := acquiring(e.ctx(), t)
	e.waitForQueue(name, 1)
	second := locking(e.ctx(), a, name)
	e.waitForQueue(name, 2)
	third := acquiring(e.ctx(), s)
	e.waitForQueue(name, 3)
	fourth := acquiring(e.ctx(), t)
	e.waitForQueue(name, 4)
	reading := rlocking(e.ctx(), b, name)
	e.waitForQueue(name, 5)
	last := acquiring(e.ctx(), s)
	e.waitForQueue(name, 6)
	e.noPermit(s)
	e.unlock(one)
	permit := e.granted(first)
	silent(e, third, "a permit was granted before a lock that was asked for before")
	e.unlock(two)
	silent(e, second, "a lock was granted beside a permit")
	e.noPermit(t) // one is free, but somebody waits
	e.unlock(permit)
	writer := e.granted(second)
	silent(e, third, "a permit was granted beside a lock")
	e.unlock(writer)
	permit, two = e.granted(third), e.granted(fourth)
	silent(e, reading, "a reader got in beside permits")
	e.unlock(permit)
	silent(e, last, "a permit was granted before a reader that came before")
	e.unlock(two)
	reader := e.granted(reading)
	silent(e, last, "a permit was granted beside a reader")
	e.unlock(reader)
	e.unlock(e.granted(last))
}

func testPermitsMismatch(e *env) {
	a, b := e.locker(&Options{TTL: long}), e.locker(&Options{TTL: long})
	name := e.name("k")
	s, t := e.semaphore(a, name, 3), e.semaphore(b, name, 5)
	wrong := func(what string, err error) {
		e.Helper()
		var p *sqllock.PermitsError
		if !errors.As(err, &p) || !errors.Is(err, sqllock.ErrPermits) || *p != (sqllock.PermitsError{Name: name, Permits: 3, Requested: 5}) {
			e.Errorf("%s with another number of permits: %v", what, err)
		}
	}
	lease := e.permit(s)
	_, err := t.TryAcquire(e.ctx())
	wrong("TryAcquire", err)
	_, err = t.Acquire(e.ctx())
	wrong("Acquire", err)
	e.unlock(lease)
	_, err = t.Acquire(e.ctx()) // whether any is held
	wrong("Acquire of a name that is free", err)
	if err := t.Resize(e.ctx(), 5); err != nil || t.Permits() != 5 {
		e.Fatalf("Resize: %v, %d permits", err, t.Permits())
	}
	e.unlock(e.tryPermit(t))
	var p *sqllock.PermitsError
	if _, err := s.Acquire(e.ctx()); !errors.As(err, &p) || p.Permits != 5 || p.Requested != 3 {
		e.Errorf("Acquire with the former number: %v", err)
	}
	unused := e.semaphore(a, e.name("unused"), 2)
	if err := unused.Resize(e.ctx(), 7); err != nil {
		e.Fatalf("Resize of a name that nobody has used: %v", err)
	}
	if _, err := a.Reaper().Reap(e.ctx()); err != nil {
		e.Fatalf("Reap: %v", err)
	}
	if _, err := e.semaphore(b, unused.Name(), 2).TryAcquire(e.ctx()); !errors.As(err, &p) || p.Permits != 7 {
		e.Errorf("the former number of a name that nobody has used, after a cleanup: %v", err)
	}
	e.unlock(e.permit(unused))
}

func testPermitsFirst(e *env) {
	a, b := e.locker(&Options{TTL: long}), e.locker(&Options{TTL: long})
	name := e.name("held")
	writer := e.lock(a, name)
	waiting := acquiring(e.ctx(), e.semaphore(a, name, 3))
	e.waitForQueue(name, 1)
	var p *sqllock.PermitsError
	if _, err := e.semaphore(b, name, 5).Acquire(e.ctx()); !errors.As(err, &p) || p.Permits != 3 || p.Requested != 5 {
		e.Errorf("Acquire of 5 permits beside a lock, behind one of 3: %v", err)
	}
	e.unlock(writer)
	e.unlock(e.granted(waiting))
	for range 5 {
		e.manyAreFirst([]*sqllock.Locker{a, b}, e.name("new"))
	}
}

// manyAreFirst has callers ask for a new name with different numbers of permits at the same time:
// one number is that of the name, and all others are refused with it.
func (e *env) manyAreFirst(lockers []*sqllock.Locker, name string) {
	e.Helper()
	const most = 6
	errs := make([]error, 2*most)
	var wg sync.WaitGroup
	for i := range errs {
		s := e.semaphore(lockers[i%2], name, 1+i/2)
		wg.Go(func() {
			lease, err := s.Acquire(e.ctx())
			if err == nil {
				err = lease.Unlock(e.ctx())
			}
			errs[i] = err
		})
	}
	wg.Wait()
	n := e.inspect(lockers[0], name).Permits
	if n < 1 || n > most {
		e.Fatalf("%d permits", n)
	}
	for i, err := range errs {
		var p *sqllock.PermitsError
		refused := errors.As(err, &p) && *p == sqllock.PermitsError{Name: name, Permits: n, Requested: 1 + i/2}
		if own := 1+i/2 == n; own && err != nil || !own && !refused {
			e.Errorf("Acquire of %d permits where there are %d: %v", 1+i/2, n, err)
		}
	}
}

func testResize(e *env) {
	a, b := e.locker(&Options{TTL: long}), e.locker(&Options{TTL: long, RetryMax: 50 * time.Millisecond})
	name := e.name("k")
	s, t := e.semaphore(a, name, 1), e.semaphore(b, name, 1)
	held := []*sqllock.Lease{e.permit(s)}
	waiting := []<-chan result{acquiring(e.ctx(), t), acquiring(e.ctx(), s), acquiring(e.ctx(), t)}
	e.waitForQueue(name, 3)
	for _, bad := range []int{0, -1, sqllock.MaxPermits + 1} {
		e.wantError("Resize out of bounds", s.Resize(e.ctx(), bad), sqllock.ErrInvalidOption)
	}
	if err := s.Resize(e.ctx(), 4); err != nil {
		e.Fatalf("Resize: %v", err)
	}
	for _, ch := range waiting { // who waits keeps its place, whatever number it has asked for
		held = append(held, e.granted(ch))
	}
	if err := t.Resize(e.ctx(), 2); err != nil {
		e.Fatalf("Resize: %v", err)
	}
	for _, lease := range held {
		e.live(lease)
	}
	for _, lease := range held[2:] {
		e.noPermit(t)
		e.unlock(lease)
	}
	e.noPermit(t)
	e.unlock(held[0])
	next := e.tryPermit(t)
	if next.Slot() >= 2 {
		e.Errorf("of 2 permits, slot %d was granted", next.Slot())
	}
	e.unlock(next)
	e.unlock(held[1])
}

func testPermitCrash(e *env) {
	ttl := e.ttl(2 * time.Second)
	crashing, l := e.looseLocker(e.handle(), &Options{TTL: ttl}), e.locker(&Options{TTL: ttl, RetryMax: 50 * time.Millisecond, StatementTimeout: long / 3})
	name := e.name("k")
	dead := e.permit(e.semaphore(crashing, name, 2))
	s := e.semaphore(l, name, 2)
	alive := e.permit(s)
	for end := time.Now().Add(ttl + ttl/2); time.Now().Before(end); time.Sleep(ttl / 20) {
		e.live(dead)
		e.live(alive)
		e.noPermit(s)
	}
	waiting := acquiring(e.ctx(), s)
	e.waitForQueue(name, 1)
	e.abandon(crashing)
	crashed := time.Now()
	next := e.granted(waiting)
	if took := time.Since(crashed); took > ttl+2*time.Second+slack() {
		e.Errorf("the permit was granted %v after its holder's crash, with a TTL of %v", took, ttl)
	}
	if next.Slot() != dead.Slot() || next.Token() <= dead.Token() {
		e.Errorf("slot %d and token %d follow slot %d and token %d", next.Slot(), next.Token(), dead.Slot(), dead.Token())
	}
	e.live(alive)
	e.unlock(alive)
	e.unlock(next)
}

func testForcePermits(e *env) {
	ttl := e.ttl(2 * time.Second)
	l, operator := e.locker(&Options{TTL: ttl}), e.locker(&Options{TTL: long})
	name := e.name("k")
	s, t := e.semaphore(l, name, 3), e.semaphore(operator, name, 3)
	held := []*sqllock.Lease{e.permit(s), e.permit(s), e.permit(t)}
	if _, err := operator.ForceUnlock(e.ctx(), name); err != nil {
		e.Fatalf("ForceUnlock: %v", err)
	}
	next := e.try(operator, name)
	for _, lease := range held {
		receive(e, lease.Context().Done(), "a holder is told")
		if lost := e.wantLost("the cause", context.Cause(lease.Context())); lost.Reason != sqllock.LostRevoked {
			e.Errorf("the reason is: %s", lost.Reason)
		}
		e.wantLost("Unlock", lease.Unlock(e.ctx()))
		if lease.Token() >= next.Token() {
			e.Errorf("token %d follows token %d", next.Token(), lease.Token())
		}
	}
	e.live(next)
	e.unlock(next)
	e.forceBusyPermits(l, operator)
}

// forceBusyPermits takes the permits of a name whose permits change hands all the time.
func (e *env) forceBusyPermits(l, operator *sqllock.Locker) {
	e.Helper()
	s := e.semaphore(l, e.name("busy"), 2)
	held := e.permit(s)
	ctx, stop := context.WithCancel(e.ctx())
	var changing sync.WaitGroup
	changing.Go(func() {
		for ctx.Err() == nil {
			if lease, err := s.Acquire(ctx); err == nil {
				_ = lease.Unlock(e.ctx())
			}
		}
	})
	time.Sleep(50 * time.Millisecond)
	_, err := operator.ForceUnlock(e.ctx(), s.Name())
	stop()
	changing.Wait()
	if err != nil {
		e.Fatalf("ForceUnlock of a name whose permits change hands: %v", err)
	}
	receive(e, held.Context().Done(), "a holder is told")
	_ = held.Unlock(e.ctx())
}

func testPermitGuarded(e *env) {
	e.fresh()
	book := e.ledger()
	l, other := e.locker(&Options{TTL: sqllock.MaxTTL}), e.locker(&Options{TTL: long, RetryMax: 20 * time.Millisecond})
	name := e.name("k")
	s, t := e.semaphore(l, name, 2), e.semaphore(other, name, 2)
	e.wantUnsupported(e.permit(s)) // to end it in a transaction
	lease, beside := e.permit(s), e.permit(s)
	e.expirePermits(name) // they are anybody's now
	tx := e.begin(e.readCommitted())
	e.guard(lease, tx)
	waiting := []<-chan result{acquiring(e.ctx(), t), acquiring(e.ctx(), t)}
	if !e.h.Table.LocksRows { // the transaction keeps all others from writing
		time.Sleep(300 * time.Millisecond)
		book.write(tx, "guarded")
		if err := tx.Commit(); err != nil {
			e.Errorf("Commit: %v", err)
		}
		e.unlock(e.granted(waiting[0]))
		e.unlock(e.granted(waiting[1]))
		book.want("guarded;")
		e.wantLost("Unlock of the former holder", lease.Unlock(e.ctx()))
		e.wantLost("Unlock beside it", beside.Unlock(e.ctx()))
		return
	}
	var next, last *sqllock.Lease
	select {
	case r := <-waiting[0]:
		next, waiting = e.granted(only(r)), waiting[1:]
	case r := <-waiting[1]:
		next, waiting = e.granted(only(r)), waiting[:1]
	case <-time.After(timeLimit):
		e.Fatal("the permit beside the one that is guarded was not granted")
	}
	if next.Slot() != beside.Slot() {
		e.Errorf("slot %d was granted, and slot %d is guarded", next.Slot(), lease.Slot())
	}
	silent(e, waiting[0], "a permit was granted although a transaction guards it")
	book.write(tx, "guarded")
	if err := tx.Commit(); err != nil {
		e.Errorf("Commit: %v", err)
	}
	last = e.granted(waiting[0])
	if last.Slot() != lease.Slot() || last.Token() <= lease.Token() {
		e.Errorf("slot %d and token %d follow slot %d and token %d", last.Slot(), last.Token(), lease.Slot(), lease.Token())
	}
	book.want("guarded;")
	e.wantLost("Unlock of the former holder", lease.Unlock(e.ctx()))
	e.wantLost("Unlock beside it", beside.Unlock(e.ctx()))
	e.unlock(next)
	e.unlock(last)

	lease = e.permit(s)
	tx = e.begin(e.readCommitted())
	e.guard(lease, tx)
	e.wantError("Unlock while a transaction guards", lease.Unlock(e.ctx()), sqllock.ErrGuarded)
	beside = e.tryPermit(t)
	e.noPermit(t)
	_ = tx.Rollback()
	e.unlock(e.permit(t))
	e.unlock(beside)
}

// only is a channel that has one result.
func only(r result) <-chan result {
	ch := make(chan result, 1)
	ch <- r
	return ch
}

// expirePermits makes the permits of a name ones that have expired.
func (e *env) expirePermits(name string) {
	e.Helper()
	if err := e.h.Table.ExpireTogether(e.ctx(), e.handle(), name); err != nil {
		e.Fatalf("expire the permits of %q: %v", name, err)
	}
}

func testPermitFenced(e *env) {
	e.fresh()
	l, other := e.locker(&Options{TTL: sqllock.MaxTTL}), e.locker(&Options{TTL: long})
	name := e.name("k")
	lease := e.permit(e.semaphore(l, name, 2))
	e.expirePermits(name)
	s := e.semaphore(other, name, 2)
	next := e.tryPermit(s)
	if next.Slot() != lease.Slot() {
		e.Errorf("slot %d follows slot %d", next.Slot(), lease.Slot())
	}
	e.live(lease)
	tx := e.begin(sql.LevelDefault)
	e.wantError("Guard", lease.Guard(e.ctx(), tx), sqllock.ErrFenced)
	_ = tx.Rollback()
	e.wantLost("the cause", context.Cause(lease.Context()))
	if err := next.InTx(e.ctx(), nil, func(context.Context, *sql.Tx) error { return nil }); err != nil {
		e.Errorf("InTx: %v", err)
	}
	e.unlock(next)
}

func testInspectPermits(e *env) {
	l := e.locker(&Options{TTL: long})
	name := e.name("k")
	s := e.semaphore(l, name, 4)
	want := func(held int, state sqllock.State) {
		e.Helper()
		if i := e.inspect(l, name); i.Permits != 4 || i.PermitsHeld != held || i.Readers != 0 || i.State != state || i.Owner != "" {
			e.Errorf("Inspect with %d of 4 permits held: %+v", held, i)
		}
		if i := e.listed(l, name); (i != nil) != (held > 0) || i != nil && (i.Permits != 4 || i.PermitsHeld != held || i.State != state) {
			e.Errorf("List with %d of 4 permits held: %+v", held, i)
		}
	}
	one, two := e.permit(s), e.permit(s)
	want(2, sqllock.StateHeld)
	e.unlock(one)
	want(1, sqllock.StateHeld)
	e.unlock(two)
	want(0, sqllock.StateReleased)
	reader := e.rlock(l, name)
	if i := e.inspect(l, name); i.Readers != 1 || i.PermitsHeld != 0 {
		e.Errorf("Inspect of a name that is shared: %+v", i)
	}
	e.unlock(reader)
}

// testInspectHolders has callers of two Lockers hold a name together.
func testInspectHolders(e *env) {
	lockers := []*sqllock.Locker{e.locker(&Options{TTL: long, Label: "even"}), e.locker(&Options{TTL: long, Label: "odd"})}
	const n = 12
	permits, shared := e.name("permits"), e.name("shared")
	var held, readers []*sqllock.Lease
	for i := range n {
		held = append(held, e.permit(e.semaphore(lockers[i%2], permits, n+1)))
		readers = append(readers, e.rlock(lockers[i%2], shared))
	}
	e.seesHolders(lockers[0], permits, held, "even", "odd")
	e.unlock(held[3])
	held = slices.Delete(held, 3, 4)
	labels := []string{"even", "odd", "even", "even", "odd", "even", "odd", "even", "odd", "even"}
	e.seesHolders(lockers[0], permits, held, labels...)
	held = slices.Insert(held, 3, e.permit(e.semaphore(lockers[1], permits, n+1))) // the last to come
	e.seesHolders(lockers[0], permits, held, "even", "odd")
	e.seesHolders(lockers[0], shared, readers, "even", "odd")
	e.unlock(readers[0])
	readers = readers[1:]
	e.seesHolders(lockers[0], shared, readers, "odd", "even")
	for _, lease := range slices.Concat(held, readers) {
		e.unlock(lease)
	}
	e.seesHolders(lockers[0], permits, nil)
	e.seesHolders(lockers[0], shared, nil)
	lease := e.lock(lockers[0], shared)
	e.seesHolders(lockers[0], shared, nil) // Owner and Label say who
	e.unlock(lease)
}

// seesHolders checks that Inspect shows the first ten of those who hold a name together, whose
// labels follow each other in turn, and that List does not.
func (e *env) seesHolders(l *sqllock.Locker, name string, leases []*sqllock.Lease, labels ...string) {
	e.Helper()
	info := e.inspect(l, name)
	if len(info.Holders) != min(10, len(leases)) {
		e.Fatalf("of %d who hold %s: %+v", len(leases), name, info.Holders)
	}
	for i, h := range info.Holders {
		lease := leases[i]
		want := sqllock.Holder{Owner: lease.Owner(), Label: labels[i%len(labels)], Slot: lease.Slot(), Token: lease.Token(), Since: h.Since, Until: h.Until}
		if h != want || h.Since.After(info.Now) || info.Now.Sub(h.Since) > timeLimit || h.Until.Sub(info.Now) > long || !h.Until.After(info.Now) {
			e.Errorf("holder %d of %s: %+v, want %+v", i, name, h, want)
		}
	}
	if listed := e.listed(l, name); (listed != nil) != (info.State == sqllock.StateHeld) || listed != nil && listed.Holders != nil {
		e.Errorf("listed: %+v", listed)
	}
}

func testHookPermit(e *env) {
	skipped, waiting := make(chan sqllock.SkippedEvent, 2), make(chan sqllock.WaitingEvent, 2)
	acquired, unlocked := make(chan sqllock.AcquiredEvent, 2), make(chan sqllock.UnlockedEvent, 2)
	l := e.locker(&Options{TTL: long, Hooks: &sqllock.Hooks{
		Skipped:  func(ev sqllock.SkippedEvent) { skipped <- ev },
		Waiting:  func(ev sqllock.WaitingEvent) { waiting <- ev },
		Acquired: func(ev sqllock.AcquiredEvent) { acquired <- ev },
		Unlocked: func(ev sqllock.UnlockedEvent) { unlocked <- ev },
	}})
	name := e.name("k")
	other := e.semaphore(e.locker(&Options{TTL: long}), name, 2)
	one, two := e.permit(other), e.permit(other)
	s := e.semaphore(l, name, 2)
	e.noPermit(s)
	if ev := receive(e, skipped, "the hook Skipped is called"); !ev.Permit || ev.Shared {
		e.Errorf("skipped: %+v", ev)
	}
	next := acquiring(e.ctx(), s)
	if ev := receive(e, waiting, "the hook Waiting is called"); !ev.Permit || ev.Shared {
		e.Errorf("waiting: %+v", ev)
	}
	e.unlock(two)
	lease := e.granted(next)
	want := sqllock.LeaseInfo{Name: name, Owner: lease.Owner(), Token: lease.Token(), Permit: true, Slot: lease.Slot(), TTL: long}
	if ev := receive(e, acquired, "the hook Acquired is called"); ev.LeaseInfo != want || ev.Slot != 1 {
		e.Errorf("acquired: %+v, want %+v", ev, want)
	}
	e.unlock(lease)
	if ev := receive(e, unlocked, "the hook Unlocked is called"); ev.LeaseInfo != want {
		e.Errorf("unlocked: %+v, want %+v", ev, want)
	}
	e.unlock(one)
}

func testPermitSequencer(e *env) {
	l, other := e.locker(&Options{TTL: long}), e.locker(&Options{TTL: long})
	name := e.name("k")
	s := e.semaphore(l, name, 2)
	checker, err := sqllock.NewSequencerChecker(other, &sqllock.SequencerCheckerOptions{MaxAge: time.Microsecond})
	if err != nil {
		e.Fatal(err)
	}
	want := func(want sqllock.SequencerState, leases ...*sqllock.Lease) {
		e.Helper()
		for _, lease := range leases {
			parsed, err := sqllock.ParseSequencer(lease.Sequencer().String())
			if err != nil || parsed != lease.Sequencer() || parsed.Permit != lease.Permit() || parsed.Slot != lease.Slot() {
				e.Errorf("%v is read as %v, %v", lease.Sequencer(), parsed, err)
			}
			e.wantSequencer(other, parsed, want)
			if got, err := checker.Check(e.ctx(), parsed); got != want || err != nil {
				e.Errorf("the checker says that %v is %v, %v; want %v", parsed, got, err, want)
			}
		}
	}
	before := e.lock(l, name)
	want(sqllock.SequencerCurrent, before)
	e.unlock(before)
	zero, one := e.permit(s), e.permit(s)
	want(sqllock.SequencerCurrent, one, zero)
	want(sqllock.SequencerStale, before)
	for _, bad := range []sqllock.Sequencer{
		{Name: name, Token: one.Token()}, {Name: name, Shared: true, Token: one.Token()}, {Name: name, Permit: true, Token: one.Token()},
	} {
		e.wantSequencer(other, bad, sqllock.SequencerStale)
	}
	e.unlock(one)
	want(sqllock.SequencerStale, one)
	want(sqllock.SequencerCurrent, zero)
	next := e.permit(s)
	want(sqllock.SequencerCurrent, zero, next)
	want(sqllock.SequencerStale, one, before)
	e.unlock(zero)
	e.unlock(next)
	after := e.lock(l, name)
	want(sqllock.SequencerCurrent, after)
	want(sqllock.SequencerStale, zero, next, one, before)
	e.unlock(after)
}

func testPermitChecker(e *env) {
	db, recorder := e.open(e.source(), poolSize)
	l, holder := e.lockerOn(db, &Options{TTL: long}), e.locker(&Options{TTL: long})
	checker, err := sqllock.NewSequencerChecker(l, &sqllock.SequencerCheckerOptions{MaxAge: time.Hour})
	if err != nil {
		e.Fatal(err)
	}
	check := func(lease *sqllock.Lease, want sqllock.SequencerState, query bool) {
		e.Helper()
		before := recorder.statements.Load()
		got, err := checker.Check(e.ctx(), lease.Sequencer())
		if n := recorder.statements.Load() - before; got != want || err != nil || query != (n > 0) {
			e.Errorf("%v is %v, %v, by %d statements; want %v, and statements %v", lease.Sequencer(), got, err, n, want, query)
		}
	}
	s := e.semaphore(holder, e.name("k"), 2)
	zero, one := e.permit(s), e.permit(s)
	check(one, sqllock.SequencerCurrent, true)
	check(zero, sqllock.SequencerCurrent, true) // its token is lower, and of another slot
	check(one, sqllock.SequencerCurrent, false)
	check(zero, sqllock.SequencerCurrent, false)
	e.unlock(zero)
	next := e.permit(s)
	check(next, sqllock.SequencerCurrent, true)
	check(zero, sqllock.SequencerStale, false)
	check(one, sqllock.SequencerCurrent, false) // a higher token of another slot has ended nothing
	e.unlock(one)
	e.unlock(next)
}

func testPermitReentry(e *env) {
	l := e.locker(&Options{TTL: long})
	name := e.name("k")
	s := e.semaphore(l, name, 2)
	ctx := sqllock.WithOwner(e.ctx(), "owner")
	one, err := s.Acquire(ctx)
	if err != nil {
		e.Fatalf("Acquire: %v", err)
	}
	two, err := s.Acquire(sqllock.WithOwner(one.Context(), "owner"))
	if err != nil || two.Slot() == one.Slot() || two.Token() == one.Token() {
		e.Fatalf("Acquire under a permit: %v, %v", two, err)
	}
	if lease, err := s.TryAcquire(ctx); !errors.Is(err, sqllock.ErrHeld) {
		e.Errorf("TryAcquire of an owner that has all permits: %v, %v", lease, err)
	}
	for what, call := range map[string]func(context.Context, string, ...sqllock.LockOption) (*sqllock.Lease, error){
		"Lock": l.Lock, "TryLock": l.TryLock, "RLock": l.RLock, "TryRLock": l.TryRLock,
	} {
		_, err := call(one.Context(), name)
		e.wantError(what+" under a permit", err, sqllock.ErrUpgrade)
		_, err = call(ctx, name)
		e.wantError(what+" of an owner that has a permit", err, sqllock.ErrUpgrade)
	}
	e.unlock(one)
	e.unlock(two)
}

func testPermitGivesUp(e *env) {
	a, b := e.locker(&Options{TTL: long}), e.locker(&Options{TTL: long})
	name := e.name("k")
	s, t := e.semaphore(a, name, 1), e.semaphore(b, name, 1)
	lease := e.permit(s)
	ctx, cancel := context.WithCancel(e.ctx())
	waiting := acquiring(ctx, t)
	e.waitForQueue(name, 1)
	cancel()
	r := receive(e, waiting, "Acquire returns")
	e.oneOf(r.lease, r.err)
	e.wantError("Acquire whose context ends", r.err, context.Canceled)
	_, err := t.Acquire(e.ctx(), sqllock.Wait(2*time.Second))
	e.wantError("Acquire with Wait", err, sqllock.ErrHeld)
	_, err = t.Acquire(e.ctx(), sqllock.Tries(2))
	e.wantError("Acquire with Tries", err, sqllock.ErrHeld)
	e.unlock(lease)
	e.eventually(lossReportedWithin, "the permit is free", func() bool {
		lease, err := t.TryAcquire(e.ctx())
		if err == nil {
			e.unlock(lease)
		}
		return err == nil
	})
	ran := false
	if err := t.Do(e.ctx(), func(ctx context.Context, lease *sqllock.Lease) error {
		ran = lease.Permit() && ctx.Err() == nil
		e.noPermit(s)
		return nil
	}); err != nil || !ran {
		e.Errorf("Do: %v, ran %v", err, ran)
	}
	e.unlock(e.tryPermit(s))
}

func testSemaphoreRefused(e *env) {
	l := e.locker(&Options{TTL: long})
	for _, n := range []int{0, -1, sqllock.MaxPermits + 1} {
		s, err := l.Semaphore("k", n, nil)
		if e.wantError(fmt.Sprintf("a semaphore of %d permits", n), err, sqllock.ErrInvalidOption); s != nil {
			e.Errorf("a semaphore of %d permits: %v", n, s)
		}
	}
	_, err := l.Semaphore("", 1, nil)
	e.wantError("a semaphore without a name", err, sqllock.ErrInvalidName)
	_, err = l.Semaphore("k", 1, &sqllock.SemaphoreOptions{Defaults: []sqllock.LockOption{sqllock.MinHold(time.Second)}})
	e.wantError("a semaphore whose permits have a MinHold", err, sqllock.ErrInvalidOption)
	s := e.semaphore(l, e.name("k"), sqllock.MaxPermits)
	for what, opt := range map[string]sqllock.LockOption{
		"MinHold": sqllock.MinHold(time.Second), "Value": sqllock.Value([]byte("v")), "a TTL of 0": sqllock.TTL(time.Nanosecond), "no option": nil,
	} {
		_, err := s.Acquire(e.ctx(), opt)
		e.wantError("Acquire with "+what, err, sqllock.ErrInvalidOption)
	}
	var nobody context.Context
	_, err = s.Acquire(nobody)
	e.wantError("Acquire without a context", err, sqllock.ErrInvalidOption)
	e.wantError("Resize without a context", s.Resize(nobody, 2), sqllock.ErrInvalidOption)
	e.wantError("Do without a function", s.Do(e.ctx(), nil), sqllock.ErrInvalidOption)
	_, err = s.TryAcquire(e.ctx(), sqllock.Wait(time.Second))
	e.wantError("TryAcquire with Wait", err, sqllock.ErrInvalidOption)
	e.unlock(e.tryPermit(s))
}

func testSemaphoreUnsupported(e *env) {
	s, err := e.locker(&Options{TTL: long}).Semaphore(e.name("k"), 2, nil)
	if e.wantError("Semaphore", err, sqllock.ErrUnsupported); s != nil {
		e.Errorf("a semaphore beside an error: %v", s)
	}
}

func testPermitAsLock(e *env) {
	a, b := e.locker(&Options{TTL: long}), e.locker(&Options{TTL: long})
	name, other := e.name("a"), e.name("b")
	s, t := e.semaphore(a, name, 1), e.semaphore(b, name, 1)
	permit := e.permit(s)
	e.noPermit(t)
	e.wantHeld(b, name)
	waiting := []<-chan result{}
	for i := range 4 {
		if i%2 == 0 {
			waiting = append(waiting, locking(e.ctx(), b, name))
		} else {
			waiting = append(waiting, acquiring(e.ctx(), t))
		}
		e.waitForQueue(name, i+1)
	}
	last := permit
	for i, w := range waiting {
		for _, later := range waiting[i:] {
			if len(later) > 0 {
				e.Fatalf("waiter %d or a later one was granted beside the holder", i)
			}
		}
		e.unlock(last)
		lease := e.granted(w)
		if lease.Permit() != (i%2 == 1) || lease.Slot() != 0 || lease.Token() <= last.Token() {
			e.Errorf("place %d: permit %v, slot %d, token %d after %d", i, lease.Permit(), lease.Slot(), lease.Token(), last.Token())
		}
		e.noPermit(s)
		e.wantHeld(a, name)
		last = lease
	}
	e.unlock(last)

	permit = e.permit(s)
	lease := e.lock(b, other)
	older := make(chan result, 1)
	go func() {
		lease, err := a.Lock(permit.Context(), other)
		older <- result{lease, err}
	}()
	e.waitForQueue(other, 1)
	ctx, cancel := context.WithTimeout(lease.Context(), timeLimit)
	defer cancel()
	_, err := t.Acquire(ctx)
	e.wantError("Acquire that closes a cycle", err, sqllock.ErrDeadlock)
	e.unlock(lease)
	e.unlock(e.granted(older))
	e.unlock(permit)
}

func testPermitDeadlock(e *env) {
	a, b := e.locker(&Options{TTL: long}), e.locker(&Options{TTL: long})
	name := e.name("k")
	one, two := e.semaphore(a, name, 2), e.semaphore(b, name, 2)
	first, second := e.permit(one), e.permit(two)
	waits := acquiring(first.Context(), one)
	e.waitForQueue(name, 1)
	select {
	case r := <-waits:
		e.Fatalf("a second permit while another holder goes on: %v, %v", r.lease, r.err)
	case <-time.After(time.Second): // deadlocks are looked for after 150 ms
	}
	closes := acquiring(second.Context(), two)
	r := receive(e, closes, "the end of a deadlock")
	e.wantError("the last of two holders that want a second permit", r.err, sqllock.ErrDeadlock)
	e.unlock(second)
	e.unlock(e.granted(waits))
	e.unlock(first)
}
