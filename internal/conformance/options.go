package conformance

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/sqllock/sqllock"
)

var optionPromises = []promise{
	{sentence: "a TTL that is not positive, under 100 ms or over 24 h is refused before any SQL", test: testInvalidTTL},
	{sentence: "the TTL of one call applies to its lease", test: testCallTTL, needs: needLeases},
	{sentence: "a TTL of one call is refused before any SQL where the Locker has one TTL", test: testNoCallTTL, needs: needSessions},
	{sentence: "the shortest and the longest TTL work", test: testExtremeTTL},
	{sentence: "invalid options of a Locker are refused before any SQL", test: testInvalidOptions},
	{sentence: "options may be nil, and the TTL is 30 s then", test: testDefaults},
	{sentence: "Wait bounds the wait and ends it with a HeldError", test: testWait},
	{sentence: "Tries bounds the attempts and ends them with a HeldError", test: testTries, needs: needHandle},
	{sentence: "Wait and Tries that make no sense are refused before any SQL", test: testInvalidWait},
}

var badTTLs = []time.Duration{-1, -time.Second, 1, time.Millisecond, 100*time.Millisecond - 1,
	24*time.Hour + 1, math.MaxInt64, math.MinInt64}

func testInvalidTTL(e *env) {
	l, db, recorder := e.unused()
	before := recorder.statements.Load()
	for _, ttl := range append(badTTLs, 0) { // 0 is the default of a Locker, and nothing for a call
		for call, f := range calls {
			e.wantError(fmt.Sprint(call, " with TTL ", int64(ttl)), f(e.ctx(), l, "k", sqllock.TTL(ttl)), sqllock.ErrInvalidOption)
		}
	}
	for _, ttl := range badTTLs {
		e.refused(fmt.Sprint("TTL ", int64(ttl)), func() (*sqllock.Locker, error) {
			return e.h.New(e.ctx(), db, &Options{TTL: ttl})
		})
	}
	if n := recorder.statements.Load() - before; n != 0 {
		e.Errorf("%d statements were sent", n)
	}
}

// refused checks that a constructor refuses an option, and returns no Locker.
func (e *env) refused(what string, construct func() (*sqllock.Locker, error)) {
	e.Helper()
	l, err := construct()
	if l != nil || !errors.Is(err, sqllock.ErrInvalidOption) {
		e.Errorf("%s: want ErrInvalidOption and no Locker, got %v, %v", what, l, err)
	}
}

func testInvalidOptions(e *env) {
	_, db, recorder := e.unused()
	before := recorder.statements.Load()
	for what, o := range map[string]Options{
		"a label of 256 bytes":      {Label: strings.Repeat("x", 256)},
		"a label with NUL":          {Label: "a\x00b"},
		"a label of invalid UTF-8":  {Label: "\xff"},
		"RetryMin below 0":          {RetryMin: -1},
		"RetryMax below 0":          {RetryMax: -1},
		"RetryMax below RetryMin":   {RetryMin: time.Second, RetryMax: time.Millisecond},
		"StatementTimeout below 0":  {StatementTimeout: -1},
		"StatementTimeout of 1 ms":  {StatementTimeout: time.Millisecond},
		"StatementTimeout below 10": {StatementTimeout: 10*time.Millisecond - 1},
	} {
		e.refused(what, func() (*sqllock.Locker, error) { return e.h.New(e.ctx(), db, &o) })
	}
	if n := recorder.statements.Load() - before; n != 0 {
		e.Errorf("%d statements were sent", n)
	}
}

func testCallTTL(e *env) {
	l := e.locker(&Options{TTL: long})
	lease := e.lock(l, e.name("k"), sqllock.TTL(time.Hour))
	if left := lease.Remaining(); left > time.Hour || left < time.Hour-time.Hour/50-timeLimit {
		e.Errorf("Remaining is %v of a TTL of an hour", left)
	}
	e.unlock(lease)
}

func testNoCallTTL(e *env) {
	l, _, recorder := e.unused()
	before := recorder.statements.Load()
	for call, f := range calls {
		e.wantError(call, f(e.ctx(), l, "k", sqllock.TTL(time.Hour)), sqllock.ErrInvalidOption)
	}
	if n := recorder.statements.Load() - before; n != 0 {
		e.Errorf("%d statements were sent", n)
	}
}

func testExtremeTTL(e *env) {
	l := e.locker(&Options{TTL: e.ttl(sqllock.MaxTTL)})
	lease := e.lock(l, e.name("longest"), sqllock.MaxHold(2*sqllock.MaxTTL))
	if left := lease.Remaining(); left > sqllock.MaxTTL || left < sqllock.MaxTTL-sqllock.MaxTTL/50 {
		e.Errorf("Remaining is %v of a TTL of %v", left, sqllock.MaxTTL)
	}
	e.unlock(lease)

	// The shortest leaves little time for a slow machine, but it must work often.
	shortest := e.ttl(sqllock.MinTTL)
	s := e.locker(&Options{TTL: shortest})
	e.eventually(timeLimit, "a lease of the shortest TTL is unlocked in time", func() bool {
		lease, err := s.TryLock(e.ctx(), e.name("shortest"))
		e.oneOf(lease, err)
		return err == nil && lease.Remaining() <= shortest && lease.Unlock(context.Background()) == nil
	})
}

func testDefaults(e *env) {
	l := e.locker(nil)
	lease := e.lock(l, e.name("k"))
	if left := lease.Remaining(); left > 30*time.Second || left < 30*time.Second-timeLimit {
		e.Errorf("Remaining is %v", left)
	}
	if held := e.known(e.locker(nil), lease.Name()); held.Label == "" {
		e.Error("the default label is empty")
	}
	e.unlock(lease)
}

func testWait(e *env) {
	a, b := e.locker(&Options{TTL: long, Label: "in the way"}), e.locker(&Options{TTL: long})
	name := e.name("k")
	lease := e.lock(a, name, noted)
	for what, l := range map[string]*sqllock.Locker{"the same Locker": a, "another Locker": b} {
		const wait = 2 * time.Second
		start := time.Now()
		got, err := l.Lock(e.ctx(), name, sqllock.Wait(wait))
		e.oneOf(got, err)
		if took := time.Since(start); took < wait || took > timeLimit/2 {
			e.Errorf("%s: Lock with Wait(%v) took %v", what, wait, took)
		}
		var held *sqllock.HeldError
		if !errors.As(err, &held) || !errors.Is(err, sqllock.ErrHeld) || held.Label != "in the way" {
			e.Errorf("%s: want a HeldError with the label, got %v", what, err)
		}
		if errors.Is(err, context.DeadlineExceeded) {
			e.Errorf("%s: the caller's context has not ended, but the error says so: %v", what, err)
		}
	}
	e.unlock(lease)
	e.wantFree(b, name, timeLimit)
	e.unlock(e.lock(b, name, sqllock.Wait(timeLimit)))
}

func testTries(e *env) {
	db, recorder := e.open(e.source(), poolSize)
	a, b := e.locker(&Options{TTL: long, Label: "in the way"}), e.lockerOn(db, &Options{TTL: long, RetryMax: 20 * time.Millisecond})
	name := e.name("k")
	lease := e.lock(a, name, noted)
	e.wantHeld(b, name) // now there is a connection

	cost := func(f func()) int64 {
		before := recorder.statements.Load()
		f()
		return recorder.statements.Load() - before
	}
	one := cost(func() { e.wantHeld(b, name) })
	const tries = 4
	many := cost(func() {
		got, err := b.Lock(e.ctx(), name, sqllock.Tries(tries))
		e.oneOf(got, err)
		var held *sqllock.HeldError
		if !errors.As(err, &held) || held.Label != "in the way" {
			e.Errorf("want a HeldError with the label, got %v", err)
		}
	})
	least, most := tries*one, tries*one
	if s := e.h.Sessions; s != nil && s.Alone { // to wait in the database may cost statements, too
		most *= 2
	}
	if e.h.Nodes > 1 { // what goes on in the background when a round is decided is in the next count
		least, most = least/2, most*2
	}
	if many < least || many > most {
		e.Errorf("one attempt costs %d statements, %d attempts cost %d", one, tries, many)
	}
	e.unlock(lease)
	e.unlock(e.lock(b, name, sqllock.Tries(1)))
}

func testInvalidWait(e *env) {
	l, _, recorder := e.unused()
	before := recorder.statements.Load()
	for what, o := range map[string]sqllock.LockOption{
		"Wait(0)": sqllock.Wait(0), "Wait(-1s)": sqllock.Wait(-time.Second),
		"Tries(0)": sqllock.Tries(0), "Tries(-1)": sqllock.Tries(-1),
	} {
		for call, f := range calls {
			e.wantError(call+" with "+what, f(e.ctx(), l, "k", o), sqllock.ErrInvalidOption)
		}
	}
	for what, o := range map[string]sqllock.LockOption{"Wait": sqllock.Wait(time.Second), "Tries": sqllock.Tries(3)} {
		for _, call := range []string{"TryLock", "TryDo", "TryRLock"} {
			e.wantError(call+" with "+what, calls[call](e.ctx(), l, "k", o), sqllock.ErrInvalidOption)
		}
	}
	if n := recorder.statements.Load() - before; n != 0 {
		e.Errorf("%d statements were sent", n)
	}
}
