package conformance

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/sqllock/sqllock"
)

var sharedPromises = []promise{
	{sentence: "readers have a name together, in one Locker and in several", test: testReaders},
	{sentence: "a writer waits for every reader, and readers wait for the writer", test: testReadersAndWriters},
	{sentence: "TryLock beside readers and TryRLock beside a writer say who is in the way", test: testTryShared},
	{sentence: "the Unlock of one reader lets no writer in while another reads", test: testOneReaderLeaves},
	{sentence: "the token of a reader is higher than those of earlier writers and lower than those of later ones", test: testSharedTokens},
	{sentence: "readers are renewed as writers are", test: testReaderRenewed},
	{sentence: "a reader that crashed is in the way until its TTL is over, and the others for as long as they read", test: testDeadReader},
	{sentence: "readers of two processes have a name together, and one that is killed is in nobody's way", test: testReaderProcesses},
	{sentence: "readers that keep coming do not starve a writer of their process", test: testWriterNotStarved},
	{sentence: "ForceUnlock takes a name from all of its readers, and each is told", test: testForceReaders, needs: needLeases},
	{sentence: "all readers of a session that ends are lost, and a writer gets in at once", test: testReadersSession, needs: needSessions},
	{sentence: "Inspect and List say how many readers there are", test: testInspectReaders},
	{sentence: "readers and writers at random: never a writer beside anybody, and tokens rise from term to term", test: testReaderWriterContention},
}

// rlock shares a name that is free or shared, or becomes so soon.
func (e *env) rlock(l *sqllock.Locker, name string) *sqllock.Lease {
	e.Helper()
	return e.rlockWith(e.ctx(), l, name)
}

func (e *env) rlockWith(ctx context.Context, l *sqllock.Locker, name string) *sqllock.Lease {
	e.Helper()
	lease, err := l.RLock(ctx, name)
	e.oneOf(lease, err)
	if err != nil {
		e.Fatalf("RLock: %v", err)
	}
	return lease
}

// tryShared shares a name that is free or shared.
func (e *env) tryShared(l *sqllock.Locker, name string) *sqllock.Lease {
	e.Helper()
	lease, err := l.TryRLock(e.ctx(), name)
	e.oneOf(lease, err)
	if err != nil {
		e.Fatalf("TryRLock: %v", err)
	}
	return lease
}

// rlocking calls RLock on a goroutine of its own.
func rlocking(ctx context.Context, l *sqllock.Locker, name string) <-chan result {
	ch := make(chan result, 1)
	go func() {
		lease, err := l.RLock(ctx, name)
		ch <- result{lease, err}
	}()
	return ch
}

// wantWriter tries to share a name that somebody holds alone.
func (e *env) wantWriter(l *sqllock.Locker, name string) {
	e.Helper()
	lease, err := l.TryRLock(e.ctx(), name)
	e.oneOf(lease, err)
	var held *sqllock.HeldError
	if !errors.As(err, &held) || !errors.Is(err, sqllock.ErrHeld) || held.Shared || held.Name != name {
		e.Fatalf("TryRLock of a name that somebody holds alone: want a *HeldError that says so, got %v, %+v", lease, err)
	}
}

func testReaders(e *env) {
	a, b := e.locker(&Options{TTL: long}), e.locker(&Options{TTL: long})
	name := e.name("k")
	readers := []*sqllock.Lease{e.rlock(a, name), e.rlock(b, name), e.tryShared(a, name), e.tryShared(b, name), e.rlock(a, name)}
	owners := make(map[string]bool)
	for _, lease := range readers {
		e.live(lease)
		if owners[lease.Owner()] = true; !lease.Shared() || lease.Name() != name || lease.Token() <= 0 {
			e.Errorf("the lease of a reader: shared %v, name %q, token %d", lease.Shared(), lease.Name(), lease.Token())
		}
	}
	if len(owners) != len(readers) {
		e.Errorf("%d readers have %d owners", len(readers), len(owners))
	}
	for _, lease := range readers {
		e.unlock(lease)
		e.wantError("the cause", context.Cause(lease.Context()), sqllock.ErrUnlocked)
		e.wantError("second Unlock", lease.Unlock(e.ctx()), sqllock.ErrNotHeld)
	}
	writer := e.try(b, name)
	if writer.Shared() {
		e.Error("the lease of a writer says that it is shared")
	}
	e.unlock(writer)
}

func testReadersAndWriters(e *env) {
	a, b := e.locker(&Options{TTL: long, RetryMax: 50 * time.Millisecond}), e.locker(&Options{TTL: long, RetryMax: 50 * time.Millisecond})
	name := e.name("k")
	one, two := e.rlock(a, name), e.rlock(b, name)
	writing := locking(e.ctx(), a, name)
	silent(e, writing, "a writer got in beside two readers")
	e.unlock(two)
	silent(e, writing, "a writer got in beside a reader of its own Locker")
	e.unlock(one)
	writer := e.granted(writing)

	reading := []<-chan result{rlocking(e.ctx(), a, name), rlocking(e.ctx(), b, name)}
	for _, ch := range reading {
		silent(e, ch, "a reader got in beside a writer")
	}
	e.unlock(writer)
	one, two = e.granted(reading[0]), e.granted(reading[1]) // at the same time
	e.unlock(one)
	writing = locking(e.ctx(), a, name)
	silent(e, writing, "a writer got in beside a reader of another Locker")
	e.live(two)
	e.unlock(two)
	e.unlock(e.granted(writing))
}

func testTryShared(e *env) {
	a, b := e.locker(&Options{TTL: long, Label: "in the way"}), e.locker(&Options{TTL: long})
	name := e.name("k")
	one, two := e.rlock(a, name), e.rlock(a, name)
	e.unlock(one) // the first of them does not speak for all
	for what, l := range map[string]*sqllock.Locker{"the same Locker": a, "another Locker": b} {
		if held := e.wantHeld(l, name); !held.Shared && (l == a || !e.inSessions()) {
			e.Errorf("%s is told of a writer where there is a reader: %+v", what, held)
		}
		e.wantError("Lock with Wait beside a reader", e.waitInVain(l, name), sqllock.ErrHeld)
	}
	e.unlock(two)
	writer := e.lock(a, name)
	e.wantWriter(a, name)
	e.wantWriter(b, name)
	e.live(writer)
	e.unlock(writer)
}

// waitInVain calls Lock with a short Wait, or a longer one if the database has not answered by
// then, and returns its error.
func (e *env) waitInVain(l *sqllock.Locker, name string) (err error) {
	e.Helper()
	for wait := 200 * time.Millisecond; wait < timeLimit; wait *= 4 {
		var lease *sqllock.Lease
		lease, err = l.Lock(e.ctx(), name, sqllock.Wait(wait))
		e.oneOf(lease, err)
		if err == nil || errors.Is(err, sqllock.ErrHeld) {
			break
		}
	}
	return err
}

func testOneReaderLeaves(e *env) {
	a, b := e.locker(&Options{TTL: long}), e.locker(&Options{TTL: long})
	for what, l := range map[string]*sqllock.Locker{"one Locker": a, "two Lockers": b} {
		name := e.name("k")
		readers := []*sqllock.Lease{e.rlock(a, name), e.rlock(l, name), e.rlock(a, name)}
		for i, lease := range readers {
			for who, try := range map[string]*sqllock.Locker{"the first Locker": a, "the second Locker": b} {
				if writer, err := try.TryLock(e.ctx(), name); !errors.Is(err, sqllock.ErrHeld) {
					e.Fatalf("in %s, with %d readers left, %s got %v, %v", what, len(readers)-i, who, writer, err)
				}
			}
			e.live(lease)
			e.unlock(lease)
		}
		e.unlock(e.try(b, name))
		e.unlock(e.try(a, name))
	}
}

func testSharedTokens(e *env) {
	a, b := e.locker(&Options{TTL: long}), e.locker(&Options{TTL: long})
	name := e.name("k")
	var last int64 // of the terms before
	for range 3 {
		readers := []*sqllock.Lease{e.rlock(a, name), e.rlock(b, name), e.rlock(a, name)}
		top := last
		for _, lease := range readers {
			if lease.Token() <= last {
				e.Errorf("the reader's token %d follows token %d of a writer", lease.Token(), last)
			}
			top = max(top, lease.Token())
			e.unlock(lease)
		}
		for _, l := range []*sqllock.Locker{a, b} {
			writer := e.lock(l, name)
			if writer.Token() <= top {
				e.Errorf("the writer's token %d follows token %d", writer.Token(), top)
			}
			top = writer.Token()
			e.unlock(writer)
		}
		last = top
	}
}

func testReaderRenewed(e *env) {
	ttl := e.ttl(2 * time.Second)
	l, other := e.locker(&Options{TTL: ttl}), e.locker(&Options{TTL: long})
	name := e.name("k")
	readers := []*sqllock.Lease{e.rlock(l, name), e.rlock(l, name), e.rlock(l, name)}
	watch := func() {
		for end := time.Now().Add(ttl + ttl/2); time.Now().Before(end); time.Sleep(ttl / 20) {
			for _, lease := range readers {
				e.live(lease)
			}
			e.wantHeld(other, name)
		}
	}
	watch()
	e.unlock(readers[0])
	readers = readers[1:]
	watch()
	for _, lease := range readers {
		e.unlock(lease)
	}
	e.unlock(e.try(other, name))
}

func testDeadReader(e *env) {
	ttl := e.ttl(2 * time.Second)
	crashing := e.looseLocker(e.handle(), &Options{TTL: ttl})
	l, writing := e.locker(&Options{TTL: ttl}), e.locker(&Options{TTL: long, RetryMax: 50 * time.Millisecond})
	lonely, common := e.name("lonely"), e.name("common")
	e.rlock(crashing, lonely)
	e.rlock(crashing, common)
	alive := e.rlock(l, common)
	waiting := map[string]<-chan result{
		lonely: locking(e.ctx(), writing, lonely),
		common: locking(e.ctx(), writing, common),
	}
	e.abandon(crashing)
	crashed := time.Now()
	writer := e.granted(waiting[lonely])
	if took := time.Since(crashed); took > ttl+2*time.Second+slack() {
		e.Errorf("a writer got in %v after the reader's crash, with a TTL of %v", took, ttl)
	}
	e.unlock(writer)
	time.Sleep(time.Until(crashed.Add(ttl + ttl/2)))
	silent(e, waiting[common], "a writer got in beside a reader that is alive")
	e.live(alive)
	e.unlock(alive)
	writer = e.granted(waiting[common])
	if writer.Token() <= alive.Token() {
		e.Errorf("token %d follows token %d", writer.Token(), alive.Token())
	}
	e.unlock(writer)
}

func testReaderProcesses(e *env) {
	ttl := e.ttl(2 * time.Second)
	l := e.locker(&Options{TTL: long, RetryMax: 50 * time.Millisecond})
	name := e.name("k")
	children := []*process{e.start(ttl, "the first"), e.start(ttl, "the second")}
	var last int64
	for i, p := range children {
		a := p.do(order{Do: []string{"rlock", "tryrlock"}[i], Name: name})
		if a.Err != "" {
			e.Fatalf("RLock in a child: %s", a.Err)
		}
		last = max(last, a.Token)
	}
	e.wantHeld(l, name)
	e.unlock(e.tryShared(l, name))
	if a := children[0].do(order{Do: "unlock", Name: name}); a.Err != "" {
		e.Errorf("Unlock in a child: %s", a.Err)
	}
	e.wantHeld(l, name)
	if err := children[1].cmd.Process.Kill(); err != nil {
		e.Fatal(err)
	}
	killed := time.Now()
	writer := e.lock(l, name)
	if took := time.Since(killed); took > ttl+2*time.Second+slack() {
		e.Errorf("a writer got in %v after the reader was killed, with a TTL of %v", took, ttl)
	}
	if writer.Token() <= last {
		e.Errorf("token %d follows token %d", writer.Token(), last)
	}
	if a := children[0].do(order{Do: "tryrlock", Name: name}); !a.Held {
		e.Errorf("TryRLock in a child beside a writer: %+v", a)
	}
	e.unlock(writer)
}

func testWriterNotStarved(e *env) {
	l := e.locker(&Options{TTL: long, RetryMax: 50 * time.Millisecond})
	name := e.name("k")
	first := e.rlock(l, name)
	writing := locking(e.ctx(), l, name)
	silent(e, writing, "a writer got in beside a reader")
	var reading []<-chan result
	for range 5 {
		reading = append(reading, rlocking(e.ctx(), l, name))
	}
	for _, ch := range reading {
		select {
		case r := <-ch:
			e.Fatalf("a reader got in before the writer that had come before it: %v, %v", r.lease, r.err)
		case <-time.After(20 * time.Millisecond):
		}
	}
	e.unlock(first)
	writer := e.granted(writing)
	e.unlock(writer)
	var readers []*sqllock.Lease
	for _, ch := range reading {
		readers = append(readers, e.granted(ch)) // all at the same time
	}
	for _, lease := range readers {
		e.unlock(lease)
	}
}

func testForceReaders(e *env) {
	ttl := e.ttl(2 * time.Second)
	l, operator := e.locker(&Options{TTL: ttl}), e.locker(&Options{TTL: long})
	name := e.name("k")
	readers := []*sqllock.Lease{e.rlock(l, name), e.rlock(l, name), e.rlock(operator, name)}
	if _, err := operator.ForceUnlock(e.ctx(), name); err != nil {
		e.Fatalf("ForceUnlock: %v", err)
	}
	writer := e.try(operator, name)
	for _, lease := range readers {
		receive(e, lease.Context().Done(), "a reader is told")
		if lost := e.wantLost("the cause", context.Cause(lease.Context())); lost.Reason != sqllock.LostRevoked {
			e.Errorf("the reason is: %s", lost.Reason)
		}
		e.wantLost("Unlock", lease.Unlock(e.ctx()))
	}
	e.live(writer)
	e.wantWriter(l, name) // what the readers gave back was theirs
	e.unlock(writer)
}

func testReadersSession(e *env) {
	e.losable()
	l, other := e.locker(&Options{TTL: long}), e.locker(&Options{TTL: long})
	name := e.name("k")
	readers := []*sqllock.Lease{e.rlock(l, name), e.rlock(l, name)}
	e.kill()
	killed := time.Now()
	writer := e.lock(other, name)
	for _, lease := range readers {
		receive(e, lease.Context().Done(), "a reader is told")
		e.wantReason(e.wantLost("the cause", context.Cause(lease.Context())))
		e.wantLost("Unlock", lease.Unlock(e.ctx()))
	}
	if took := time.Since(killed); took > 5*time.Second+slack() {
		e.Errorf("the loss was reported %v after the sessions had ended", took)
	}
	e.live(writer)
	e.unlock(writer)
	e.unlock(e.rlock(l, name))
}

func testInspectReaders(e *env) {
	a, b := e.locker(&Options{TTL: long, Label: "a"}), e.locker(&Options{TTL: long, Label: "b"})
	name := e.name("k")
	readers := []*sqllock.Lease{e.rlock(a, name), e.rlock(a, name), e.rlock(b, name)}
	for i, lease := range readers {
		if known := e.readersKnown(len(readers) - i); known > 0 {
			e.eventually(timeLimit, fmt.Sprintf("Inspect says that there are %d readers", known), func() bool {
				info := e.inspect(a, name)
				return info.Readers == known && info.State == sqllock.StateHeld && info.Owner == "" && info.Label == ""
			})
			e.eventually(timeLimit, "List says so too", func() bool { // which may hear of the name later
				listed := e.listed(b, name)
				return listed != nil && listed.Readers == known && listed.State == sqllock.StateHeld
			})
		}
		e.unlock(lease)
	}
	if info := e.inspect(b, name); info.Readers != 0 || info.State == sqllock.StateHeld {
		e.Errorf("of a free name: %+v", info)
	}
	if listed := e.listed(a, name); listed != nil {
		e.Errorf("List yields a free name: %+v", listed)
	}
	writer := e.lock(a, name, noted)
	if info := e.wantState(b, name, sqllock.StateHeld); info.Readers != 0 || info.Owner != writer.Owner() {
		e.Errorf("of a name with a writer: %+v", info)
	}
	e.unlock(writer)
}

// readersKnown is how many of testInspectReaders' readers the database knows of, the
// last of whom has a Locker of its own.
func (e *env) readersKnown(n int) int {
	switch s := e.h.Sessions; {
	case s == nil:
		return n
	case s.Alone:
		return 0
	}
	return min(n, 2) // it knows of Lockers
}

// listed is what List says of a name, nil if it does not yield it.
func (e *env) listed(l *sqllock.Locker, name string) (found *sqllock.Info) {
	e.Helper()
	for info, err := range l.List(e.ctx()) {
		if err != nil {
			e.Fatalf("List: %v", err)
		}
		if info.Name == name {
			found = &info
		}
	}
	return found
}
