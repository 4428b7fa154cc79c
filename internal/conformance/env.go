package conformance

import (
	"context"
	"crypto/rand"
	"database/sql"
	"encoding/hex"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sqllock/sqllock"
)

const (
	// timeLimit is how long something may take that takes no time by itself. A
	// test that waits this long has failed; the machine may be slow.
	timeLimit = time.Minute
	// long is a TTL in which nothing is renewed and nothing expires during a test.
	long = time.Minute
	// poolSize is how many connections the handle of a test may open, and largePool how
	// many where each lock takes one.
	poolSize  = 16
	largePool = 64
)

// env is what one test works with.
type env struct {
	*testing.T
	h   *Harness
	dsn string
	db  *sql.DB // opened when first asked for
}

func newEnv(t *testing.T, h *Harness) *env { return &env{T: t, h: h} }

// source returns the DSN of the test's database.
func (e *env) source() string {
	e.Helper()
	if e.dsn == "" {
		e.dsn = e.h.DSN(e.T)
	}
	return e.dsn
}

// fresh makes the test's database one of its own. It comes before everything
// else that a test does.
func (e *env) fresh() {
	e.Helper()
	e.dsn = e.h.Fresh(e.T)
}

// handle returns the handle that the Lockers of the test share.
func (e *env) handle() *sql.DB {
	e.Helper()
	if e.db == nil {
		e.db, _ = e.open(e.source(), e.poolLimit())
	}
	return e.db
}

// poolLimit is how many connections a handle needs through which dozens of names are
// held or waited for.
func (e *env) poolLimit() int {
	if s := e.h.Sessions; s != nil && s.Alone {
		return largePool
	}
	return poolSize
}

// open opens a handle of its own; conns is how many connections it may open for each database that
// keeps names.
func (e *env) open(dsn string, conns int) (*sql.DB, *recorder) {
	e.Helper()
	db, recorder, err := openRecorded(e.h, dsn)
	if err != nil {
		e.Fatal(err)
	}
	conns *= max(e.h.Nodes, 1)
	db.SetMaxOpenConns(conns)
	db.SetMaxIdleConns(conns)
	e.Cleanup(func() { _ = db.Close() })
	return db, recorder
}

// ctx returns a context for calls that should succeed.
func (e *env) ctx() context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), timeLimit)
	e.Cleanup(cancel)
	return ctx
}

// shortest is the shortest TTL of a lease that has to be renewed in time beside what other
// tests, and others on this machine, do. Tests wait for it, but they wait together.
const shortest = 5 * time.Second

// ttl is d, or more if the mode or a machine that is slow needs it.
func (e *env) ttl(d time.Duration) time.Duration {
	return max(d, e.h.MinTTL, shortest, min(100*e.h.pace, 10*time.Second).Round(100*time.Millisecond))
}

// timeout is a StatementTimeout of d, or more if a slow machine needs it.
func (e *env) timeout(d time.Duration) time.Duration {
	return max(d, min(5*e.h.pace, 2*time.Second).Round(10*time.Millisecond))
}

// locker returns a Locker on the test's handle. The test must leave nothing held. If its TTL is
// long or longer, its statements may take longer than the default: a busy machine may let one wait for seconds.
func (e *env) locker(o *Options) *sqllock.Locker {
	e.Helper()
	if o != nil && o.TTL >= long && o.StatementTimeout == 0 {
		longer := *o
		longer.StatementTimeout = long / 3
		o = &longer
	}
	return e.lockerOn(e.handle(), o)
}

func (e *env) lockerOn(db *sql.DB, o *Options) *sqllock.Locker {
	e.Helper()
	l := e.looseLocker(db, o)
	e.Cleanup(func() {
		limit := timeLimit
		if e.Failed() { // and so may not have unlocked
			limit = time.Millisecond
		}
		ctx, cancel := context.WithTimeout(context.Background(), limit)
		defer cancel()
		if err := l.Close(ctx); err != nil && !e.Failed() {
			e.Errorf("Close at the end of the test: %v", err)
		}
	})
	return l
}

// looseLocker returns a Locker that the test closes itself.
func (e *env) looseLocker(db *sql.DB, o *Options) *sqllock.Locker {
	e.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), timeLimit)
	defer cancel()
	l, err := e.h.New(ctx, db, o)
	if err != nil {
		e.Fatalf("New: %v", err)
	}
	if l == nil {
		e.Fatal("New returned neither a Locker nor an error")
	}
	e.Cleanup(func() {
		if _, err := l.TryLock(ctx, "closed"); !e.Failed() && !errors.Is(err, sqllock.ErrClosed) {
			e.Errorf("the test has not closed its Locker: %v", err)
		}
	})
	return l
}

// abandon ends a Locker as a crash would, from the database's point of view: what
// it holds is renewed no more.
func (e *env) abandon(l *sqllock.Locker) {
	e.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Millisecond)
	defer cancel()
	_ = l.Close(ctx)
}

var (
	run    = func() string { var b [4]byte; _, _ = rand.Read(b[:]); return hex.EncodeToString(b[:]) }()
	serial atomic.Int64
)

// name returns a name that ends in s and that no other test and no other run uses.
func (e *env) name(s string) string {
	return fmt.Sprintf("%s/%d/%s", run, serial.Add(1), s)
}

// lock locks a name that is free, or becomes free soon.
func (e *env) lock(l *sqllock.Locker, name string, opts ...sqllock.LockOption) *sqllock.Lease {
	e.Helper()
	return e.lockWith(e.ctx(), l, name, opts...)
}

func (e *env) lockWith(ctx context.Context, l *sqllock.Locker, name string, opts ...sqllock.LockOption) *sqllock.Lease {
	e.Helper()
	lease, err := l.Lock(ctx, name, opts...)
	e.oneOf(lease, err)
	if err != nil {
		e.Fatalf("Lock: %v", err)
	}
	return lease
}

// try locks a name that is free.
func (e *env) try(l *sqllock.Locker, name string) *sqllock.Lease {
	e.Helper()
	lease, err := l.TryLock(e.ctx(), name)
	e.oneOf(lease, err)
	if err != nil {
		e.Fatalf("TryLock: %v", err)
	}
	return lease
}

// wantHeld tries to lock a name that somebody holds.
func (e *env) wantHeld(l *sqllock.Locker, name string) *sqllock.HeldError {
	e.Helper()
	return e.wantHeldWith(e.ctx(), l, name)
}

func (e *env) wantHeldWith(ctx context.Context, l *sqllock.Locker, name string) *sqllock.HeldError {
	e.Helper()
	lease, err := l.TryLock(ctx, name)
	e.oneOf(lease, err)
	var held *sqllock.HeldError
	if !errors.As(err, &held) || !errors.Is(err, sqllock.ErrHeld) {
		e.Fatalf("TryLock of a held name: want a *HeldError that is an ErrHeld, got %v, %v", lease, err)
	}
	return held
}

// oneOf checks that a call returned a lease or an error.
func (e *env) oneOf(lease *sqllock.Lease, err error) {
	e.Helper()
	if (lease == nil) == (err == nil) {
		e.Fatalf("want either a lease or an error, got %v and %v", lease, err)
	}
}

// unlock unlocks a lease that is held.
func (e *env) unlock(lease *sqllock.Lease) {
	e.Helper()
	if err := lease.Unlock(context.Background()); err != nil {
		e.Fatalf("Unlock: %v", err)
	}
}

// wantFree checks that a name becomes free for l within d, and leaves it free.
func (e *env) wantFree(l *sqllock.Locker, name string, d time.Duration) {
	e.Helper()
	e.eventually(d, "the name is free", func() bool {
		lease, err := l.TryLock(e.ctx(), name)
		e.oneOf(lease, err)
		if err == nil {
			e.unlock(lease)
		} else if !errors.Is(err, sqllock.ErrHeld) {
			e.Fatalf("TryLock: %v", err)
		}
		return err == nil
	})
}

// live checks that a lease is held by all that its holder can see.
func (e *env) live(lease *sqllock.Lease) {
	e.Helper()
	ctx := lease.Context()
	if err, cause, left := ctx.Err(), context.Cause(ctx), lease.Remaining(); err != nil || cause != nil || left <= 0 {
		e.Fatalf("the lease is over: Err %v, cause %v, Remaining %v", err, cause, left)
	}
}

// wantError checks that err is target.
func (e *env) wantError(what string, err, target error) {
	e.Helper()
	if !errors.Is(err, target) {
		e.Errorf("%s: want %v, got %v", what, target, err)
	}
}

// wantLost checks that err is a LostError, and returns it.
func (e *env) wantLost(what string, err error) *sqllock.LostError {
	e.Helper()
	var lost *sqllock.LostError
	if !errors.As(err, &lost) || !errors.Is(err, sqllock.ErrLost) {
		e.Fatalf("%s: want a *LostError that is an ErrLost, got %v", what, err)
	}
	return lost
}

// eventually waits until cond holds, for d and the slack at most.
func (e *env) eventually(d time.Duration, what string, cond func() bool) {
	e.Helper()
	for end := time.Now().Add(d); !cond(); time.Sleep(5 * time.Millisecond) {
		if now := time.Now(); now.After(end) && now.After(end.Add(slack())) {
			e.Fatalf("waited %v in vain until %s", d, what)
		}
	}
}

// sendsNothing checks that a call sends no statement. Sometimes a Locker looks at its sessions.
func (e *env) sendsNothing(sent *recorder, call func()) {
	e.Helper()
	e.eventually(timeLimit, "a call that is not supported has sent no statement", func() bool {
		before := sent.statements.Load()
		call()
		return sent.statements.Load() == before
	})
}

// receive waits for a value.
func receive[T any](e *env, ch <-chan T, what string) T {
	e.Helper()
	return receiveWithin(e, ch, timeLimit, what)
}

func receiveWithin[T any](e *env, ch <-chan T, d time.Duration, what string) T {
	e.Helper()
	select {
	case v := <-ch:
		return v
	case <-time.After(d):
		e.Fatalf("waited %v in vain until %s", d, what)
		panic("unreachable")
	}
}

// silent checks that nothing comes for a while.
func silent[T any](e *env, ch <-chan T, what string) {
	e.Helper()
	select {
	case v := <-ch:
		e.Fatalf("%s: %v", what, v)
	case <-time.After(200 * time.Millisecond):
	}
}

// result is what Lock or TryLock returned.
type result struct {
	lease *sqllock.Lease
	err   error
}

// locking calls Lock on a goroutine of its own.
func locking(ctx context.Context, l *sqllock.Locker, name string, opts ...sqllock.LockOption) <-chan result {
	ch := make(chan result, 1)
	go func() {
		lease, err := l.Lock(ctx, name, opts...)
		ch <- result{lease, err}
	}()
	return ch
}

// granted waits for the lease of a call of locking.
func (e *env) granted(ch <-chan result) *sqllock.Lease {
	e.Helper()
	r := receive(e, ch, "Lock returns")
	e.oneOf(r.lease, r.err)
	if r.err != nil {
		e.Fatalf("Lock: %v", r.err)
	}
	return r.lease
}

// What tests of all pairs need to know of modes that keep locks in sessions.

// inSessions reports that locks are kept by sessions of the database.
func (e *env) inSessions() bool { return e.h.Sessions != nil }

// noted is an option with which it is known at once who holds. In advisory mode
// on Postgres a holder may write that down some time later.
var noted = sqllock.Value([]byte("noted"))

// known waits until l is told who holds a name that is held.
func (e *env) known(l *sqllock.Locker, name string) *sqllock.HeldError {
	e.Helper()
	held := e.wantHeld(l, name)
	if e.inSessions() {
		e.eventually(timeLimit, "it is known who holds the name", func() bool {
			held = e.wantHeld(l, name)
			return held.Label != ""
		})
	}
	return held
}

// losable makes sure that the test may make leases lost, which in sessions takes a
// database of its own. It comes before everything else that a test does.
func (e *env) losable() {
	e.Helper()
	if e.inSessions() {
		e.fresh()
	}
}

// kill has the server end all sessions.
func (e *env) kill() {
	e.Helper()
	db, _ := e.open(e.source(), 1)
	if err := e.h.Sessions.Kill(e.ctx(), db); err != nil {
		e.Fatalf("kill the sessions: %v", err)
	}
	_ = db.Close()
	if e.db != nil { // what is idle in the pool is dead
		e.db.SetMaxIdleConns(-1)
		e.db.SetMaxIdleConns(e.poolLimit())
	}
}

// over makes the leases of a test that is losable ones that have ended, each in a
// way that its holder does not hear of at once.
func (e *env) over(leases ...*sqllock.Lease) {
	e.Helper()
	if e.inSessions() {
		e.kill()
		return
	}
	for _, lease := range leases {
		e.expire(lease.Name())
	}
}

// wantReason checks why a lease of a test that is losable was lost.
func (e *env) wantReason(lost *sqllock.LostError) {
	e.Helper()
	want := sqllock.LostTaken
	if e.inSessions() {
		want = sqllock.LostSession
	}
	if lost.Reason != want {
		e.Errorf("want the reason %q, got %+v", want, lost)
	}
}

// gone checks that nobody is left who would take a name. Where waiters wait in the
// database, one that has given up may be on its way out for as long as one statement
// waits.
func (e *env) gone(l *sqllock.Locker, name string) {
	e.Helper()
	e.wantFree(l, name, lossReportedWithin)
}

// forced locks a name after a ForceUnlock. A holder whose session keeps the name says
// that it gives up just before it does.
func (e *env) forced(l *sqllock.Locker, name string) *sqllock.Lease {
	e.Helper()
	if !e.inSessions() {
		return e.try(l, name)
	}
	start := time.Now()
	lease := e.lock(l, name)
	if took := time.Since(start); took > lossReportedWithin+slack() {
		e.Errorf("the name was free %v after ForceUnlock", took)
	}
	return lease
}

// soon is a TTL after which an abandoned session has ended before the test has.
const soon = 2 * time.Second

// crash ends a Locker of a test that is losable, with all that it holds.
func (e *env) crash(l *sqllock.Locker, leases ...*sqllock.Lease) {
	e.Helper()
	e.over(leases...)
	if e.inSessions() {
		for _, lease := range leases {
			receive(e, lease.Context().Done(), "the holder hears of the end of its session")
		}
	}
	e.abandon(l)
}

// refusedGuard checks that Guard was refused, whoever found out first.
func (e *env) refusedGuard(what string, err error) {
	e.Helper()
	if !errors.Is(err, sqllock.ErrFenced) && !(e.inSessions() && errors.Is(err, sqllock.ErrLost)) {
		e.Errorf("%s: want ErrFenced, or ErrLost where the session was known to be gone; got %v", what, err)
	}
}
