package conformance

import (
	"context"
	"database/sql"
	"time"

	"github.com/sqllock/sqllock"
)

var sequencerPromises = []promise{
	{sentence: "a sequencer is current while its term lasts, for every Locker, and stale from its end on", test: testSequencer},
	{sentence: "a sequencer is stale when its holder has crashed, whether anybody else has the name or not", test: testSequencerCrashed},
	{sentence: "a sequencer is stale after ForceUnlock", test: testSequencerForced},
	{sentence: "a holder's sequencer is unknown until the database knows of it, and then current", test: testSequencerNoted},
	{sentence: "a shared sequencer is stale for certain only, and where it can be known current while anybody reads", test: testSequencerShared, needs: needOneDatabase},
	{sentence: "a sequencer is unknown when its name was purged, and stale again when the name is held again", test: testSequencerPurged},
	{sentence: "a token of LockTx makes no sequencer that is current", test: testSequencerTx, needs: needTransactions},
	{sentence: "a checker that has seen a later term needs no database to refuse an earlier one", test: testSequencerChecker, needs: needHandle},
}

// wantSequencer checks what l says of a sequencer that has come as a text.
func (e *env) wantSequencer(l *sqllock.Locker, s sqllock.Sequencer, want sqllock.SequencerState) {
	e.Helper()
	if got := e.sequencer(l, s); got != want {
		e.Errorf("%v is %v, want %v; the name is %+v", s, got, want, e.inspect(l, s.Name))
	}
}

func (e *env) sequencer(l *sqllock.Locker, s sqllock.Sequencer) sqllock.SequencerState {
	e.Helper()
	read, err := sqllock.ParseSequencer(s.String())
	if err != nil || read != s {
		e.Fatalf("ParseSequencer(%q) = %+v, %v", s, read, err)
	}
	state, err := l.CheckSequencer(e.ctx(), read)
	if err != nil {
		e.Fatalf("CheckSequencer: %v", err)
	}
	return state
}

func testSequencer(e *env) {
	const current, stale, unknown = sqllock.SequencerCurrent, sqllock.SequencerStale, sqllock.SequencerUnknown
	holder, other := e.locker(&Options{TTL: long}), e.locker(&Options{TTL: long})
	name := e.name("ä : %\n")
	e.wantSequencer(other, sqllock.Sequencer{Name: name, Token: 7}, unknown)
	first := e.lock(holder, name, noted)
	for _, l := range []*sqllock.Locker{holder, other} {
		s := first.Sequencer()
		e.wantSequencer(l, s, current)
		s.Token++
		e.wantSequencer(l, s, unknown)
		s.Token -= 2
		e.wantSequencer(l, s, stale)
		s.Token, s.Shared = first.Token(), true
		e.wantSequencer(l, s, stale)
	}
	e.unlock(first)
	e.wantSequencer(other, first.Sequencer(), stale)
	second := e.lock(other, name, noted)
	e.wantSequencer(holder, first.Sequencer(), stale)
	e.wantSequencer(holder, second.Sequencer(), current)
	e.unlock(second)
	e.wantSequencer(holder, second.Sequencer(), stale)
}

func testSequencerCrashed(e *env) {
	e.losable()
	crashing, l := e.looseLocker(e.handle(), &Options{TTL: long}), e.locker(&Options{TTL: long})
	lease := e.lock(crashing, e.name("k"), noted)
	e.wantSequencer(l, lease.Sequencer(), sqllock.SequencerCurrent)
	e.crash(crashing, lease)
	e.wantSequencer(l, lease.Sequencer(), sqllock.SequencerStale)
	if _, err := l.Reaper().Reap(e.ctx()); err != nil {
		e.Fatalf("Reap: %v", err)
	}
	e.wantSequencer(l, lease.Sequencer(), sqllock.SequencerStale)
	next := e.lock(l, lease.Name(), noted)
	e.wantSequencer(l, lease.Sequencer(), sqllock.SequencerStale)
	e.wantSequencer(l, next.Sequencer(), sqllock.SequencerCurrent)
	e.unlock(next)
}

func testSequencerForced(e *env) {
	l := e.locker(&Options{TTL: long})
	lease := e.lock(l, e.name("k"), noted)
	if _, err := l.ForceUnlock(e.ctx(), lease.Name()); err != nil {
		e.Fatalf("ForceUnlock: %v", err)
	}
	e.wantSequencer(l, lease.Sequencer(), sqllock.SequencerStale)
	_ = lease.Unlock(e.ctx())
}

// testSequencerNoted has a holder without a Value, of whom a mode may be told later.
func testSequencerNoted(e *env) {
	l, other := e.locker(&Options{TTL: long}), e.locker(&Options{TTL: long})
	e.unlock(e.lock(l, e.name("k"), noted))
	lease := e.lock(l, e.name("k"))
	e.eventually(timeLimit, "the sequencer is current", func() bool {
		state := e.sequencer(other, lease.Sequencer())
		if state == sqllock.SequencerStale || state == sqllock.SequencerUnknown && !e.inSessions() {
			e.Errorf("a sequencer whose lease is held is %v", state)
		}
		return state == sqllock.SequencerCurrent
	})
	e.unlock(lease)
	e.wantSequencer(other, lease.Sequencer(), sqllock.SequencerStale)
}

// testSequencerShared has two Lockers read, whose readers have tokens of their own in
// the modes that keep locks in sessions.
func testSequencerShared(e *env) {
	held, over := sqllock.SequencerCurrent, sqllock.SequencerStale
	if e.inSessions() {
		held, over = sqllock.SequencerUnknown, sqllock.SequencerUnknown
	}
	a, b := e.locker(&Options{TTL: long}), e.locker(&Options{TTL: long})
	name := e.name("k")
	writer := e.lock(a, name, noted)
	e.unlock(writer)
	first, second := e.rlock(a, name), e.rlock(b, name)
	all := func(want sqllock.SequencerState, readers ...*sqllock.Lease) {
		e.Helper()
		for _, r := range readers {
			e.wantSequencer(a, r.Sequencer(), want)
			e.wantSequencer(b, r.Sequencer(), want)
		}
	}
	all(held, first, second)
	if !e.inSessions() {
		all(sqllock.SequencerStale, writer)
	}
	e.unlock(second)
	all(held, first)
	e.unlock(first)
	all(over, first, second)
	next := e.lock(b, name, noted)
	all(sqllock.SequencerStale, first, second, writer)
	all(sqllock.SequencerCurrent, next)
	e.unlock(next)
}

func testSequencerPurged(e *env) {
	e.fresh()
	l := e.locker(&Options{TTL: long, Reaper: &sqllock.ReaperOptions{Off: true, Retention: time.Second}})
	lease := e.lock(l, e.name("k"), noted)
	e.unlock(lease)
	e.idle()
	if rep, err := l.Reaper().Reap(e.ctx()); err != nil || rep.Purged != 1 {
		e.Fatalf("Reap = %+v, %v", rep, err)
	}
	e.wantSequencer(l, lease.Sequencer(), sqllock.SequencerUnknown)
	next := e.lock(l, lease.Name(), noted)
	e.wantSequencer(l, lease.Sequencer(), sqllock.SequencerStale)
	e.wantSequencer(l, next.Sequencer(), sqllock.SequencerCurrent)
	e.unlock(next)
}

func testSequencerTx(e *env) {
	l := e.locker(&Options{TTL: long})
	tx := e.begin(sql.LevelDefault)
	defer func() { _ = tx.Rollback() }()
	shared := false
	for _, lock := range []func(context.Context, *sql.Tx, string) (int64, error){l.LockTx, l.RLockTx} {
		s := sqllock.Sequencer{Name: e.name("k"), Shared: shared}
		shared = true
		var err error
		if s.Token, err = lock(e.ctx(), tx, s.Name); err != nil {
			e.Fatalf("lock in a transaction: %v", err)
		}
		if state := e.sequencer(l, s); state == sqllock.SequencerCurrent {
			e.Errorf("%v is %v", s, state)
		}
	}
}

func testSequencerChecker(e *env) {
	db, recorder := e.open(e.source(), poolSize)
	holder, l := e.locker(&Options{TTL: long}), e.lockerOn(db, &Options{TTL: long})
	checker, err := sqllock.NewSequencerChecker(l, &sqllock.SequencerCheckerOptions{MaxAge: time.Hour})
	if err != nil {
		e.Fatal(err)
	}
	check := func(s sqllock.Sequencer, want sqllock.SequencerState, query bool) {
		e.Helper()
		before := recorder.statements.Load()
		got, err := checker.Check(e.ctx(), s)
		if n := recorder.statements.Load() - before; got != want || err != nil || query != (n > 0) {
			e.Errorf("%v is %v, %v, by %d statements; want %v, and statements %v", s, got, err, n, want, query)
		}
	}
	former := e.lock(holder, e.name("k"), noted)
	check(former.Sequencer(), sqllock.SequencerCurrent, true)
	check(former.Sequencer(), sqllock.SequencerCurrent, false)
	e.unlock(former)
	next := e.lock(holder, former.Name(), noted)
	check(next.Sequencer(), sqllock.SequencerCurrent, true)
	check(former.Sequencer(), sqllock.SequencerStale, false)
	check(next.Sequencer(), sqllock.SequencerCurrent, false)
	e.unlock(next)
	later := e.lock(holder, former.Name(), noted)
	check(later.Sequencer(), sqllock.SequencerCurrent, true)
	check(next.Sequencer(), sqllock.SequencerStale, false)
	e.unlock(later)
}
