package conformance

import (
	"bytes"
	"context"
	"encoding/hex"
	"errors"
	"math"
	"sync/atomic"
	"time"

	"github.com/sqllock/sqllock"
	"github.com/sqllock/sqllock/internal/netproxy"
)

// Replies that get lost. The TTL is long throughout: what is free in time was
// freed, and did not expire.
var replyPromises = []promise{
	{sentence: "Lock whose reply is lost finds out that it holds", test: testLockReplyLost, needs: needNetwork},
	{sentence: "Lock whose replies are all lost leaves no ghost behind", test: testLockRepliesLost, needs: needNetwork},
	{sentence: "TryLock whose reply is lost returns an error and leaves no ghost behind", test: testTryLockReplyLost, needs: needNetwork},
	{sentence: "Unlock whose reply is lost frees the name", test: testUnlockReplyLost, needs: needNetwork},
	{sentence: "a renewal whose reply is lost costs nothing", test: testRenewalReplyLost, needs: needNetwork | needLeases},
	{sentence: "Lock that hung in the network ends with its context, and its late packet takes nothing", test: testLatePacket, needs: needNetwork},
	{sentence: "a statement that hung in the network and was repeated takes the name once", test: testLateDuplicate, needs: needNetwork},
}

// proxied returns a proxy before the test's database and a Locker behind it.
func (e *env) proxied(o *Options) (*netproxy.Proxy, *sqllock.Locker) {
	e.Helper()
	n := e.h.Network
	p := netproxy.New(e.T, n.Address(e.source()))
	db, _ := e.open(n.Via(e.source(), p.Addr()), poolSize)
	return p, e.lockerOn(db, o)
}

// mentions reports whether data to a server is about a name: whether it holds the
// name as it is, or as hexadecimal digits. That is a statement with its
// parameters; where statements are prepared first, it is the execution.
func mentions(b []byte, name string) bool {
	return bytes.Contains(b, []byte(name)) || bytes.Contains(b, []byte(hex.EncodeToString([]byte(name))))
}

// requests has the proxy do an action to the requests about a name from number
// first to number last. It returns how many there were.
func requests(p *netproxy.Proxy, name string, first, last int64, action func(conn int) netproxy.Action) *atomic.Int64 {
	return pieces(p, func(b []byte) bool { return mentions(b, name) }, first, last, action)
}

// pieces is requests for all data that something is true of.
func pieces(p *netproxy.Proxy, is func(b []byte) bool, first, last int64, action func(conn int) netproxy.Action) *atomic.Int64 {
	var seen atomic.Int64
	p.OnUp(func(conn int, b []byte) netproxy.Action {
		if is(b) {
			if n := seen.Add(1); first <= n && n <= last {
				return action(conn)
			}
		}
		return netproxy.Pass
	})
	return &seen
}

func loseReply(int) netproxy.Action { return netproxy.CutAfterReply }

// eachRequest repeats a test for the first request of what it tests, the second,
// and so on, as long as there are so many; once with a name that was never
// locked, once with one that was. test reports how many requests it saw.
func (e *env) eachRequest(l *sqllock.Locker, test func(name string, n int64) (seen int64)) {
	e.Helper()
	for _, used := range []bool{false, true} {
		n := int64(1)
		for ; ; n++ {
			name := e.name("k")
			if used {
				e.unlock(e.lock(l, name))
			} else {
				e.warm(l) // so that a connection is open and has prepared what it can
			}
			if seen := test(name, n); seen < n {
				break
			}
		}
		if n == 1 {
			e.Error("no request was seen")
		}
		e.Logf("requests: %d, the name was locked before: %v", n-1, used)
	}
}

// warm has a Locker use a connection, so that what it does next is one exchange.
func (e *env) warm(l *sqllock.Locker) {
	e.Helper()
	e.unlock(e.lock(l, e.name("warm")))
}

func testLockReplyLost(e *env) {
	p, l := e.proxied(&Options{TTL: long})
	other := e.locker(&Options{TTL: long})
	e.eachRequest(l, func(name string, n int64) int64 {
		seen := requests(p, name, n, n, loseReply)
		lease := e.lock(l, name)
		p.OnUp(nil)
		e.live(lease)
		e.wantHeld(other, name)
		e.unlock(lease)
		e.wantFree(other, name, timeLimit/2)
		return seen.Load()
	})
}

func testLockRepliesLost(e *env) {
	p, l := e.proxied(&Options{TTL: long})
	other := e.locker(&Options{TTL: long})
	e.eachRequest(l, func(name string, n int64) int64 {
		seen := requests(p, name, n, math.MaxInt64, loseReply)
		ctx, cancel := context.WithTimeout(context.Background(), 500*time.Millisecond)
		defer cancel()
		lease, err := l.Lock(ctx, name)
		p.OnUp(nil)
		e.oneOf(lease, err)
		if err == nil { // it was done with before its n-th request
			e.unlock(lease)
			return 0
		}
		e.wantError("Lock", err, context.DeadlineExceeded)
		e.wantFree(other, name, timeLimit/2)
		e.unlock(e.lock(l, name))
		return min(seen.Load(), 3) // it repeats itself
	})
}

func testTryLockReplyLost(e *env) {
	p, l := e.proxied(&Options{TTL: long})
	other := e.locker(&Options{TTL: long})
	e.eachRequest(l, func(name string, n int64) int64 {
		seen := requests(p, name, n, n, loseReply)
		lease, err := l.TryLock(e.ctx(), name)
		p.OnUp(nil)
		e.oneOf(lease, err)
		switch {
		case err == nil: // it may have asked again
			e.live(lease)
			e.wantHeld(other, name)
			e.unlock(lease)
		case errors.Is(err, sqllock.ErrHeld):
			e.Errorf("TryLock of a free name: %v", err)
		}
		e.wantFree(other, name, timeLimit/2)
		return seen.Load()
	})
}

func testUnlockReplyLost(e *env) {
	p, l := e.proxied(&Options{TTL: long})
	other := e.locker(&Options{TTL: long})
	e.eachRequest(l, func(name string, n int64) int64 {
		lease := e.lock(l, name)
		// A session may let go without saying the name.
		seen := pieces(p, func(b []byte) bool { return e.inSessions() || mentions(b, name) }, n, n, loseReply)
		err := lease.Unlock(e.ctx())
		p.OnUp(nil)
		// A session that has ended may have done so before the Unlock.
		if !e.inSessions() && errors.Is(err, sqllock.ErrLost) || errors.Is(err, sqllock.ErrNotHeld) {
			e.Errorf("Unlock says what is not so: %v", err)
		}
		e.wantFree(other, name, timeLimit/2)
		e.wantError("second Unlock", lease.Unlock(e.ctx()), sqllock.ErrNotHeld)
		return seen.Load()
	})
}

func testRenewalReplyLost(e *env) {
	ttl := e.ttl(2 * time.Second)
	p, l := e.proxied(&Options{TTL: ttl})
	other := e.locker(&Options{TTL: long})
	lease := e.lock(l, e.name("k"))
	lost := requests(p, lease.Name(), 1, 3, loseReply)
	for end := time.Now().Add(2 * ttl); time.Now().Before(end); time.Sleep(ttl / 20) {
		e.live(lease)
		e.wantHeld(other, lease.Name())
	}
	if lost.Load() < 3 {
		e.Errorf("%d replies were lost, want 3", lost.Load())
	}
	e.unlock(lease)
}

// testLatePacket freezes a statement of Lock, lets Lock end, and thaws: then it
// arrives, from a client that is gone.
func testLatePacket(e *env) {
	timeout := e.timeout(500 * time.Millisecond)
	p, l := e.proxied(&Options{TTL: long, StatementTimeout: timeout})
	other := e.locker(&Options{TTL: long})
	e.eachRequest(l, func(name string, n int64) int64 {
		var frozen atomic.Bool
		requests(p, name, n, n, func(int) netproxy.Action {
			frozen.Store(true)
			p.Freeze()
			return netproxy.Pass
		})
		ctx, cancel := context.WithTimeout(context.Background(), max(300*time.Millisecond, 20*e.h.pace))
		defer cancel()
		start := time.Now()
		lease, err := l.Lock(ctx, name)
		e.oneOf(lease, err)
		if took := time.Since(start); took > 3*time.Second+slack() {
			e.Errorf("Lock took %v to hear of the end of its context", took)
		}
		p.OnUp(nil)
		if err == nil {
			e.unlock(lease)
			return 0
		}
		e.wantError("Lock", err, context.DeadlineExceeded)
		time.Sleep(2 * timeout) // the statement's own time-out is over too, the connection given up
		p.Thaw()
		if !frozen.Load() {
			e.Error("nothing was frozen")
		}
		e.wantFree(other, name, timeLimit)
		time.Sleep(500 * time.Millisecond) // and it stays free
		e.unlock(e.try(other, name))
		e.unlock(e.lock(l, e.name("for new connections"))) // which may take a while
		e.unlock(e.try(l, name))
		return n
	})
}

// testLateDuplicate freezes the connection that asks for a name, and no other:
// Lock asks again over a second one. When the first request arrives in the end,
// the name was unlocked again, and must stay so.
func testLateDuplicate(e *env) {
	ttl, timeout := long, e.timeout(300*time.Millisecond)
	if e.inSessions() { // a session is given up when it has not answered for the TTL
		ttl, timeout = e.ttl(2*time.Second), e.timeout(time.Second)
	}
	p, l := e.proxied(&Options{TTL: ttl, StatementTimeout: timeout})
	other := e.locker(&Options{TTL: long})
	e.eachRequest(l, func(name string, n int64) int64 {
		frozen, thaw := context.WithCancel(context.Background())
		defer thaw()
		seen := requests(p, name, n, n, func(int) netproxy.Action {
			<-frozen.Done()
			return netproxy.Pass
		})
		lease := e.lock(l, name)
		p.OnUp(nil)
		e.live(lease)
		e.wantHeld(other, name)
		e.unlock(lease)
		thaw()
		time.Sleep(100 * time.Millisecond) // it arrives
		e.wantFree(other, name, timeLimit/2)
		e.unlock(e.lock(l, name))
		if e.inSessions() { // each takes a TTL
			return min(seen.Load(), 2)
		}
		return seen.Load()
	})
}
