package conformance

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/sqllock/sqllock"
)

var ownerPromises = []promise{
	{sentence: "WithOwner re-enters within a Locker", test: testOwnerReentry},
	{sentence: "WithOwner lets a waiter in that is the holder", test: testOwnerWaiter},
	{sentence: "WithOwner does not re-enter across Lockers", test: testOwnerOtherLocker},
	{sentence: "different owners exclude each other", test: testDifferentOwners},
	{sentence: "an owner's many goroutines hold one term together and no one else does", test: testOwnerContention},
}

func testOwnerReentry(e *env) {
	l, other := e.locker(&Options{TTL: long}), e.locker(&Options{TTL: long})
	name := e.name("k")
	ctx := sqllock.WithOwner(e.ctx(), "job-7")
	outer := e.lockWith(ctx, l, name)
	if outer.Owner() != "job-7" {
		e.Errorf("Owner is %q", outer.Owner())
	}
	inner := e.lockWith(ctx, l, name)
	tried, err := l.TryLock(ctx, name)
	e.oneOf(tried, err)
	if err != nil {
		e.Fatalf("TryLock: %v", err)
	}
	if inner.Token() != outer.Token() || tried.Token() != outer.Token() {
		e.Errorf("tokens %d and %d within %d", inner.Token(), tried.Token(), outer.Token())
	}
	if held := e.known(other, name); held.Owner != "job-7" {
		e.Errorf("the HeldError names the owner %q", held.Owner)
	}
	for _, lease := range []*sqllock.Lease{outer, tried, inner} {
		e.wantHeld(other, name)
		e.unlock(lease)
	}
	next := e.lockWith(ctx, l, name)
	if next.Token() <= outer.Token() {
		e.Errorf("after all were unlocked, token %d follows token %d", next.Token(), outer.Token())
	}
	e.unlock(next)
}

// testOwnerWaiter has a call wait, with another owner before it in the queue, for a
// name that its own owner gets only then.
func testOwnerWaiter(e *env) {
	a, b := e.locker(&Options{TTL: long}), e.locker(&Options{TTL: long, RetryMax: 20 * time.Millisecond})
	name := e.name("k")
	first := e.lock(a, name)
	ctx := sqllock.WithOwner(e.ctx(), "job-7")
	var waiting []<-chan result
	waiting = append(waiting, locking(ctx, b, name))
	e.waitsAs(name, 1)
	another := locking(e.ctx(), b, name)
	e.waitsAs(name, 2)
	waiting = append(waiting, locking(ctx, b, name))
	silent(e, another, "Lock returned while the name was held")
	e.unlock(first)
	one, two := e.granted(waiting[0]), e.granted(waiting[1])
	if one.Token() != two.Token() {
		e.Errorf("tokens %d and %d of one owner", one.Token(), two.Token())
	}
	e.unlock(one)
	silent(e, another, "another owner got in")
	e.unlock(two)
	e.unlock(e.granted(another))
}

func testOwnerOtherLocker(e *env) {
	a, b := e.locker(&Options{TTL: long}), e.locker(&Options{TTL: long})
	ctx := sqllock.WithOwner(e.ctx(), "job-7")
	lease := e.lockWith(ctx, a, e.name("k"))
	e.wantHeldWith(ctx, b, lease.Name())
	e.unlock(lease)
}

func testDifferentOwners(e *env) {
	l := e.locker(&Options{TTL: long})
	lease := e.lockWith(sqllock.WithOwner(e.ctx(), "job-7"), l, e.name("k"))
	e.wantHeldWith(sqllock.WithOwner(e.ctx(), "job-8"), l, lease.Name())
	e.wantHeldWith(sqllock.WithOwner(e.ctx(), "JOB-7"), l, lease.Name())
	e.wantHeldWith(sqllock.WithOwner(e.ctx(), "job-7 "), l, lease.Name())
	e.wantHeld(l, lease.Name())
	// A random owner is no explicit one: who knows it gains nothing.
	random := e.lock(l, e.name("random"))
	e.wantHeldWith(sqllock.WithOwner(e.ctx(), random.Owner()), l, random.Name())
	e.unlock(random)
	e.unlock(lease)
}

func testOwnerContention(e *env) {
	l := e.locker(&Options{TTL: long, RetryMax: 20 * time.Millisecond})
	name := e.name("k")
	var inside [2]atomic.Int64 // holders by owner
	var wg sync.WaitGroup
	for i := range 8 {
		ctx := sqllock.WithOwner(e.ctx(), []string{"red", "blue"}[i%2])
		wg.Go(func() {
			for range 5 {
				lease, err := l.Lock(ctx, name)
				if err != nil {
					e.Errorf("Lock: %v", err)
					return
				}
				inside[i%2].Add(1)
				time.Sleep(time.Millisecond)
				if n := inside[1-i%2].Load(); n != 0 {
					e.Errorf("%d of the other owner are in", n)
				}
				inside[i%2].Add(-1)
				if err := lease.Unlock(ctx); err != nil {
					e.Errorf("Unlock: %v", err)
				}
			}
		})
	}
	wg.Wait()
}
