package conformance

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/sqllock/sqllock"
)

// sessionPromises are about locks that a session of the database keeps, and how it
// may end.
var sessionPromises = []promise{
	{sentence: "a session that the server ends is a loss that is told within two seconds, and once", test: testSessionKilled, needs: needSessions},
	{sentence: "a session that the server ends is a loss that is told within two seconds, through the driver itself too", test: testSessionKilledPlain, needs: needSessions},
	{sentence: "LockDelay: the successor of a session that was ended waits for it, once", test: testSessionDelay, needs: needSessions},
	{sentence: "no token is handed out twice, however many sessions are ended on the way", test: testSessionTokens, needs: needSessions},
}

// sessionFaultPromises are about what else may end a session, or seem to.
var sessionFaultPromises = []promise{
	{sentence: "a connection that breaks is a loss that is told within two seconds, and the Locker goes on", test: testSessionReset, needs: needSessions | needNetwork},
	{sentence: "a process that is killed frees its names at once", test: testSessionProcessKilled, needs: needSessions},
	{sentence: "when a process is paused, the next waiter gets the name within the TTL and two seconds", test: testSessionProcessPaused, needs: needSessions | needSignals | needSilenceEnds},
	{sentence: "a slow network costs no lease", test: testSessionSlow, needs: needSessions | needNetwork},
	{sentence: "a restart of the server is a loss that is told, and tokens go on rising", test: testSessionRestart, needs: needSessions | needServer},
}

// lossReportedWithin is how soon the end of a session is reported: the session is asked every
// second. The rest is for a machine that is busy.
const lossReportedWithin = 2 * time.Second

func testSessionKilled(e *env) {
	e.fresh()
	e.sessionKilled(e.handle())
}

// testSessionKilledPlain has no recorder between the library and the driver, through
// which the library could not see the socket.
func testSessionKilledPlain(e *env) {
	e.fresh()
	db, err := e.h.OpenDB(e.source())
	if err != nil {
		e.Fatal(err)
	}
	db.SetMaxOpenConns(e.poolLimit())
	e.Cleanup(func() { _ = db.Close() })
	e.sessionKilled(db)
}

// sessionKilled ends the session of five names, and checks how the holder and the next
// ones hear of it.
func (e *env) sessionKilled(db *sql.DB) {
	e.Helper()
	var j journal
	l := e.looseLocker(db, &Options{TTL: long, Hooks: j.hooks()})
	var leases []*sqllock.Lease
	for range 5 {
		leases = append(leases, e.lock(l, e.name("k")))
	}
	inner := e.lockWith(leases[0].Context(), l, leases[0].Name())
	other, next := e.killSessionOf(leases)
	for _, lease := range append(leases, inner) {
		for what, err := range map[string]error{"the context": context.Cause(lease.Context()), "Unlock": lease.Unlock(e.ctx())} {
			if lost := e.wantLost(what, err); lost.Reason != sqllock.LostSession || lost.Token != lease.Token() {
				e.Errorf("%s says %+v, want the reason %q", what, lost, sqllock.LostSession)
			}
		}
	}
	for _, lease := range next {
		e.live(lease)
		e.unlock(lease)
	}
	again := e.lock(l, leases[0].Name()) // nobody has told the Locker to start again
	e.live(again)
	e.wantHeld(other, again.Name())
	e.unlock(again)
	if err := l.Close(e.ctx()); err != nil { // after it all hooks have been called
		e.Errorf("Close: %v", err)
	}
	for _, lease := range leases {
		want, n := fmt.Sprintf("lost %s %d %s", lease.Name(), lease.Token(), sqllock.LostSession), 0
		for _, entry := range j.read() {
			if entry == want {
				n++
			}
		}
		if n != 1 {
			e.Errorf("%q was reported %d times: %q", want, n, j.read())
		}
	}
}

// killSessionOf ends the session of leases, and checks that another Locker gets their
// names and that their holder hears of it, both soon.
func (e *env) killSessionOf(leases []*sqllock.Lease) (other *sqllock.Locker, next []*sqllock.Lease) {
	e.Helper()
	killed := time.Now()
	e.kill()
	reported := make(chan time.Duration, len(leases))
	for _, lease := range leases {
		go func() {
			<-lease.Context().Done()
			reported <- time.Since(killed)
		}()
	}
	other = e.locker(&Options{TTL: long})
	for _, lease := range leases {
		free := e.lock(other, lease.Name())
		if free.Token() <= lease.Token() {
			e.Errorf("token %d follows token %d", free.Token(), lease.Token())
		}
		next = append(next, free)
	}
	if took := time.Since(killed); took > lossReportedWithin+e.ttl(time.Second)+slack() {
		e.Errorf("somebody else had the names %v after their session was ended", took)
	}
	for range leases {
		if took := receive(e, reported, "the loss is reported"); took > lossReportedWithin+slack() {
			e.Errorf("it was reported %v after the session was ended", took)
		}
	}
	return other, next
}

func testSessionReset(e *env) {
	p, l := e.proxied(&Options{TTL: long})
	other := e.locker(&Options{TTL: long})
	beside := e.lock(other, e.name("beside"))
	for range 3 {
		lease := e.lock(l, e.name("k"))
		e.wantHeld(other, lease.Name())
		p.Reset()
		broken := time.Now()
		next := e.lock(other, lease.Name())
		receive(e, lease.Context().Done(), "the loss is reported")
		if took := time.Since(broken); took > lossReportedWithin+slack() {
			e.Errorf("it was reported %v after the connection broke", took)
		}
		if lost := e.wantLost("Unlock", lease.Unlock(e.ctx())); lost.Reason != sqllock.LostSession {
			e.Errorf("the reason is: %s", lost.Reason)
		}
		e.live(next)
		e.unlock(next)
	}
	e.live(beside)
	e.unlock(beside)
}

func testSessionProcessKilled(e *env) {
	l := e.locker(&Options{TTL: long})
	p := e.start(long, "the child")
	name := e.name("k")
	child := p.lock(name)
	waiting := locking(e.ctx(), l, name)
	silent(e, waiting, "Lock returned while a child held the name")
	if err := p.cmd.Process.Kill(); err != nil {
		e.Fatal(err)
	}
	killed := time.Now()
	lease := e.granted(waiting)
	if took := time.Since(killed); took > lossReportedWithin+slack() {
		e.Errorf("the name was free %v after its holder was killed", took)
	}
	if lease.Token() <= child.Token {
		e.Errorf("token %d follows token %d", lease.Token(), child.Token)
	}
	e.unlock(lease)
}

func testSessionProcessPaused(e *env) {
	ttl := e.ttl(2 * time.Second)
	l := e.locker(&Options{TTL: long})
	p := e.start(ttl, "the child")
	name := e.name("k")
	p.lock(name)
	p.pause()
	paused := time.Now()
	lease := e.lock(l, name)
	if took := time.Since(paused); took > ttl+2*time.Second+slack() || took < ttl/2 {
		e.Errorf("the next one had the name %v after its holder was paused, with a TTL of %v", took, ttl)
	}
	p.resume()
	if a := p.do(order{Do: "remaining", Name: name}); a.Remaining > 0 {
		e.Errorf("the holder that was paused trusts its lease for %v", a.Remaining)
	}
	if a := p.do(order{Do: "unlock", Name: name}); !a.Lost {
		e.Errorf("Unlock of the holder that was paused: %+v", a)
	}
	time.Sleep(200 * time.Millisecond) // what it does in the background
	e.wantHeld(l, name)
	e.live(lease)
	e.unlock(lease)
}

func testSessionSlow(e *env) {
	ttl := e.ttl(9 * time.Second)
	p, l := e.proxied(&Options{TTL: ttl})
	lease := e.lock(l, e.name("k"))
	p.Latency(ttl / 20) // each way
	for end := time.Now().Add(ttl + ttl/5); time.Now().Before(end); time.Sleep(ttl / 20) {
		e.live(lease)
	}
	p.Latency(0)
	e.unlock(lease)
}

// testSessionRestart stops the server as a crash does.
func testSessionRestart(e *env) {
	dsn, stop, start := e.h.Server.Start(e.T)
	e.dsn = dsn
	l := e.locker(&Options{TTL: long})
	name := e.name("k")
	var last int64
	for range 3 {
		lease := e.lock(l, name)
		if lease.Token() <= last {
			e.Fatalf("token %d follows token %d", lease.Token(), last)
		}
		last = lease.Token()
		stop() // just after the token was handed out
		receive(e, lease.Context().Done(), "the loss is reported")
		if lost := e.wantLost("the cause", context.Cause(lease.Context())); lost.Reason != sqllock.LostSession {
			e.Errorf("the reason is: %s", lost.Reason)
		}
		waiting := locking(e.ctx(), l, name)
		silent(e, waiting, "Lock returned without a server")
		start()
		next := e.granted(waiting)
		if next.Token() <= last {
			e.Errorf("after a crash of the server token %d follows token %d", next.Token(), last)
		}
		last = next.Token()
		e.wantLost("Unlock", lease.Unlock(e.ctx()))
		e.live(next)
		e.unlock(next)
	}
}

func testSessionDelay(e *env) {
	e.fresh()
	l, other := e.locker(&Options{TTL: long}), e.locker(&Options{TTL: long, RetryMax: 50 * time.Millisecond})
	const delay = 2 * time.Second
	lease := e.lock(l, e.name("k"), sqllock.LockDelay(delay))
	e.kill()
	killed := time.Now()
	next := e.lock(other, lease.Name())
	if took := time.Since(killed); took < delay-50*time.Millisecond {
		e.Errorf("the next one had the name %v after the session was ended, with a LockDelay of %v", took, delay)
	}
	if next.Token() <= lease.Token() {
		e.Errorf("token %d follows token %d", next.Token(), lease.Token())
	}
	e.wantLost("Unlock", lease.Unlock(e.ctx()))
	e.unlock(next)
	e.warm(l)
	e.unlock(e.try(l, lease.Name())) // it is waited for once, and not after an Unlock
}

func testSessionTokens(e *env) {
	e.fresh()
	lockers := []*sqllock.Locker{e.locker(&Options{TTL: long}), e.locker(&Options{TTL: long})}
	name := e.name("k")
	var last int64
	for i := range 8 {
		for k := range 6 {
			lease := e.lock(lockers[k%2], name)
			if lease.Token() <= last || lease.Token() >= 1<<53 {
				e.Fatalf("token %d follows token %d", lease.Token(), last)
			}
			last = lease.Token()
			if k == 5 && i%2 == 0 {
				break // it is held when its session is ended
			}
			e.unlock(lease)
		}
		e.kill()
	}
}

// wantRefusedPool checks that a constructor refuses a pool before any SQL.
func (e *env) wantRefusedPool(conns int) {
	e.Helper()
	db, recorder := e.open(e.source(), conns)
	l, err := e.h.New(e.ctx(), db, nil)
	if l != nil || !errors.Is(err, sqllock.ErrInvalidOption) || !strings.Contains(err.Error(), "3") {
		e.Errorf("a pool of %d connections: want ErrInvalidOption that says how many it takes, got %v, %v", conns, l, err)
	}
	if n := recorder.statements.Load(); n != 0 {
		e.Errorf("%d statements were sent", n)
	}
}
