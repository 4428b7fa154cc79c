package conformance

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/sqllock/sqllock"
)

var lockAllPromises = []promise{
	{sentence: "LockAll, TryLockAll and their twins hold all names, in any order and each once", test: testLockAll, needs: needLeases},
	{sentence: "LockAll takes 1,000 names, whatever MaxBatch says", test: testLockAllMany, needs: needLeases},
	{sentence: "LockAll of free names, Guard and Unlock send few statements, however many the names are", test: testLockAllStatements, needs: needLeases, quiet: true},
	{sentence: "LockAll refuses no names, too many, bad names and options that do not apply", test: testLockAllRefused, needs: needLeases},
	{sentence: "a mode that keeps locks in sessions locks no names together", test: testLockAllSessions, needs: needSessions},
	{sentence: "TryLockAll that loses says which name is held and by whom, and holds nothing", test: testTryLockAllHeld, needs: needLeases},
	{sentence: "of several TryLockAll at once each gets all of its names or none", test: testTryLockAllAtOnce, needs: needLeases},
	{sentence: "a TryLockAll that loses leaves no trace in the database", test: testTryLockAllNoTrace, needs: needTraces | needLeases, quiet: true},
	{sentence: "LockAll waits for one name at a time and holds those before it", test: testLockAllWaits, needs: needTable | needLeases},
	{sentence: "LockAll takes names in the order of their bytes, whatever language they are of", test: testLockAllBytes, needs: needTable | needLeases},
	{sentence: "LockAll that gives up holds nothing, and no MinHold keeps a name", test: testLockAllGivesUp, needs: needTable | needLeases},
	{sentence: "LockAll takes over the names of holders that have crashed", test: testLockAllCrashed, needs: needTable | needLeases},
	{sentence: "LockAll and single locks never overlap, and all are served", test: testLockAllBesideLock, needs: needLeases},
	{sentence: "a deadlock of LockAll and a caller that locks in another order ends the youngest waiter", test: testLockAllDeadlock, needs: needTable | needLeases},
	{sentence: "LockAll that loses a name while it waits for another begins again", test: testLockAllLosesWhileWaiting, needs: needTable | needLeases},
	{sentence: "LockAll that loses names again and again returns the loss", test: testLockAllLosesForEver, needs: needTable | needLeases},
	{sentence: "the context of leases ends with the first loss, and Unlock frees the others", test: testLeasesLost, needs: needTable | needLeases},
	{sentence: "LockAll re-enters the leases that its context carries", test: testLockAllReenters, needs: needLeases},
	{sentence: "RLockAll shares all names", test: testRLockAll, needs: needTable | needLeases},
	{sentence: "LockAll of which any one reply is lost holds all or nothing", test: testLockAllReplyLost, needs: needNetwork | needLeases},
	{sentence: "of processes that lock several names and are killed at random all callers are served", test: testLockAllKilled, needs: needLeases},
	{sentence: "Close ends leases of several names, and LockAll that waits", test: testLockAllClose, needs: needTable | needLeases},
}

// names returns names, in the order of their bytes.
func (e *env) names(n int) []string {
	prefix := e.name("all")
	all := make([]string, n)
	for i := range all {
		all[i] = fmt.Sprintf("%s/%04d", prefix, i)
	}
	return all
}

func (e *env) lockAll(l *sqllock.Locker, names []string, opts ...sqllock.LockOption) *sqllock.Leases {
	e.Helper()
	leases, err := l.LockAll(e.ctx(), names, opts...)
	if err != nil || leases == nil {
		e.Fatalf("LockAll = %v, %v", leases, err)
	}
	return leases
}

func (e *env) unlockAll(leases *sqllock.Leases) {
	e.Helper()
	if err := leases.Unlock(context.Background()); err != nil {
		e.Fatalf("Unlock: %v", err)
	}
}

// allResult is what LockAll returned.
type allResult struct {
	leases *sqllock.Leases
	err    error
}

// lockingAll calls LockAll on a goroutine of its own.
func lockingAll(ctx context.Context, l *sqllock.Locker, names []string, opts ...sqllock.LockOption) <-chan allResult {
	ch := make(chan allResult, 1)
	go func() {
		leases, err := l.LockAll(ctx, names, opts...)
		ch <- allResult{leases, err}
	}()
	return ch
}

func (e *env) grantedAll(ch <-chan allResult) *sqllock.Leases {
	e.Helper()
	r := receive(e, ch, "LockAll returns")
	if r.err != nil {
		e.Fatalf("LockAll: %v", r.err)
	}
	return r.leases
}

func testLockAll(e *env) {
	a, b := e.locker(&Options{TTL: long}), e.locker(&Options{TTL: long})
	for what, lock := range map[string]func(context.Context, []string, ...sqllock.LockOption) (*sqllock.Leases, error){
		"LockAll": a.LockAll, "TryLockAll": a.TryLockAll, "RLockAll": a.RLockAll, "TryRLockAll": a.TryRLockAll,
	} {
		names := e.names(3)
		e.unlock(e.lock(a, names[1])) // has a row
		before := e.lock(a, names[0])
		e.unlock(before)
		leases, err := lock(e.ctx(), []string{names[2], names[0], names[2], names[1], names[0]})
		if err != nil {
			e.Fatalf("%s: %v", what, err)
		}
		if got := leases.Names(); !slices.Equal(got, names) {
			e.Errorf("%s: Names = %q, want %q", what, got, names)
		}
		if leases.Context().Err() != nil || leases.Remaining() <= 0 || leases.Remaining() > long {
			e.Errorf("%s: the context is %v, %v remain", what, leases.Context().Err(), leases.Remaining())
		}
		if leases.Token(names[0]) <= before.Token() || leases.Token(names[2]) <= 0 || leases.Token("another") != 0 {
			e.Errorf("%s: the tokens are %d, %d and %d after %d", what, leases.Token(names[0]), leases.Token(names[2]), leases.Token("another"), before.Token())
		}
		for _, name := range names {
			e.wantHeld(a, name)
			e.wantHeld(b, name)
		}
		e.unlockAll(leases)
		if cause := context.Cause(leases.Context()); cause != sqllock.ErrUnlocked || leases.Remaining() != 0 {
			e.Errorf("%s: after Unlock the cause is %v, %v remain", what, cause, leases.Remaining())
		}
		e.wantError("a second Unlock", leases.Unlock(e.ctx()), sqllock.ErrNotHeld)
		for _, name := range names {
			e.unlock(e.try(b, name))
		}
	}
}

func testLockAllMany(e *env) {
	l, other := e.locker(&Options{TTL: long, MaxBatch: 7}), e.locker(&Options{TTL: long})
	names := e.names(1000)
	if e.h.slow() { // then one statement about so many rows does not return in time
		names = names[:100]
	}
	for range 2 { // without rows, and with rows
		shuffled := slices.Clone(names)
		rand.Shuffle(len(shuffled), func(i, j int) { shuffled[i], shuffled[j] = shuffled[j], shuffled[i] })
		leases := e.lockAll(l, shuffled)
		for _, i := range []int{0, len(names) / 2, len(names) - 1} {
			e.wantHeld(other, names[i])
		}
		if _, err := other.TryLockAll(e.ctx(), names); !errors.Is(err, sqllock.ErrHeld) {
			e.Errorf("TryLockAll of many held names: %v", err)
		}
		e.unlockAll(leases)
		for _, i := range []int{0, len(names) / 2, len(names) - 1} {
			e.unlock(e.try(other, names[i]))
		}
	}
}

func testLockAllRefused(e *env) {
	l := e.locker(&Options{TTL: long})
	name := e.name("k")
	for _, c := range []struct {
		names []string
		opts  []sqllock.LockOption
		want  error
		says  string
	}{
		{names: nil, want: sqllock.ErrInvalidOption, says: "0 names"},
		{names: e.names(1001), want: sqllock.ErrInvalidOption, says: "1001 names"},
		{names: slices.Repeat([]string{name}, 1001), want: sqllock.ErrInvalidOption, says: "1001 names"},
		{names: []string{name, ""}, want: sqllock.ErrInvalidName},
		{names: []string{name, "\x00"}, want: sqllock.ErrInvalidName},
		{names: []string{name}, opts: []sqllock.LockOption{sqllock.Tries(1)}, want: sqllock.ErrInvalidOption, says: "Tries"},
		{names: []string{name}, opts: []sqllock.LockOption{sqllock.Wait(0)}, want: sqllock.ErrInvalidOption},
	} {
		leases, err := l.LockAll(e.ctx(), c.names, c.opts...)
		if leases != nil || !errors.Is(err, c.want) || !strings.Contains(err.Error(), c.says) {
			e.Errorf("LockAll of %d names: %v, %v, want %v that says %q", len(c.names), leases, err, c.want, c.says)
		}
	}
	_, err := l.TryLockAll(e.ctx(), []string{name}, sqllock.Wait(time.Second))
	e.wantError("TryLockAll that waits", err, sqllock.ErrInvalidOption)
	e.unlock(e.try(l, name))
}

func testLockAllSessions(e *env) {
	l := e.locker(&Options{TTL: long})
	name := e.name("k")
	_, err := l.LockAll(e.ctx(), []string{name})
	e.wantError("LockAll", err, sqllock.ErrUnsupported)
	_, err = l.TryRLockAll(e.ctx(), []string{name})
	e.wantError("TryRLockAll", err, sqllock.ErrUnsupported)
	e.unlock(e.try(l, name))
}

func testTryLockAllHeld(e *env) {
	a, b := e.locker(&Options{TTL: long, Label: "the holder"}), e.locker(&Options{TTL: long})
	names := e.names(5)
	second, last := e.lock(a, names[2]), e.lock(a, names[4])
	for _, lock := range []func(context.Context, []string, ...sqllock.LockOption) (*sqllock.Leases, error){b.TryLockAll, b.TryRLockAll} {
		leases, err := lock(e.ctx(), names)
		var held *sqllock.HeldError
		if leases != nil || !errors.As(err, &held) || held.Name != names[2] || held.Label != "the holder" || held.Until.IsZero() {
			e.Fatalf("TryLockAll = %v, %+v", leases, err)
		}
		for _, i := range []int{0, 1, 3} {
			e.unlock(e.try(a, names[i]))
		}
	}
	e.unlock(second)
	e.unlock(last)
	leases, err := b.TryLockAll(e.ctx(), names)
	if err != nil {
		e.Fatal(err)
	}
	e.unlockAll(leases)
}

// testTryLockAllNoTrace is testNoTrace for several names, some of which nobody has ever held.
func testTryLockAllNoTrace(e *env) {
	holder, loser := e.locker(&Options{TTL: sqllock.MaxTTL}), e.locker(&Options{TTL: sqllock.MaxTTL})
	names := e.names(5)
	e.unlock(e.lock(holder, names[0]))
	lease := e.lock(holder, names[3])
	lose := func() {
		if _, err := loser.TryLockAll(e.ctx(), names); !errors.Is(err, sqllock.ErrHeld) {
			e.Fatalf("TryLockAll: %v", err)
		}
	}
	lose() // now there is a connection
	traces := func() string {
		s, err := e.h.Traces(e.ctx(), e.handle())
		if err != nil {
			e.Fatal(err)
		}
		return s
	}
	e.eventually(timeLimit, "losers left the database as it was", func() bool {
		before := traces()
		for range 20 {
			lose()
		}
		after := traces()
		e.Logf("before %s, after %s", before, after)
		return before == after
	})
	e.unlock(lease)
}

func testLockAllWaits(e *env) {
	a, b := e.locker(&Options{TTL: long}), e.locker(&Options{TTL: long})
	names := e.names(5)
	second, fourth := e.lock(a, names[2]), e.lock(a, names[4])
	waiting := lockingAll(e.ctx(), b, names)
	e.waitForQueue(names[2], 1)
	e.wantHeld(a, names[0])
	e.wantHeld(a, names[1])
	e.unlock(e.try(a, names[3]))
	e.unlock(second)
	e.waitForQueue(names[4], 1)
	e.wantHeld(a, names[3])
	silent(e, waiting, "LockAll returned before all names were free")
	behind := e.waitBehind(a, names[4], 1)
	e.unlock(fourth)
	leases := e.grantedAll(waiting)
	silent(e, behind, "a waiter that came later got in")
	e.unlockAll(leases)
	e.unlock(e.granted(behind))
	for _, name := range names {
		e.unlock(e.try(a, name))
	}
}

// testLockAllBytes has a caller wait for each of several names in turn. No collation sorts them as
// their bytes do.
func testLockAllBytes(e *env) {
	a, b := e.locker(&Options{TTL: long}), e.locker(&Options{TTL: long})
	prefix := e.name("k")
	var names []string
	for _, s := range []string{" ", "10", "2", "A", "Z", "_", "a", "z", "~", "É", "é", "日", "\U0001f512"} {
		names = append(names, prefix+s)
	}
	held := make([]*sqllock.Lease, len(names))
	for i, name := range names {
		held[i] = e.lock(a, name)
	}
	waiting := lockingAll(e.ctx(), b, []string{
		names[12], names[5], names[3], names[0], names[8], names[1], names[11], names[2], names[10], names[7], names[4], names[9], names[6]})
	for i, name := range names {
		e.waitForQueue(name, 1)
		for _, later := range names[i+1:] {
			e.waitForQueue(later, 0)
		}
		e.unlock(held[i])
	}
	leases := e.grantedAll(waiting)
	if got := leases.Names(); !slices.Equal(got, names) {
		e.Errorf("Names = %q, want %q", got, names)
	}
	e.unlockAll(leases)
}

func testLockAllGivesUp(e *env) {
	a, b := e.locker(&Options{TTL: long, Label: "the holder"}), e.locker(&Options{TTL: long})
	names := e.names(3)
	lease := e.lock(a, names[1])
	ctx, cancel := context.WithCancel(e.ctx())
	waiting := lockingAll(ctx, b, names, sqllock.MinHold(time.Hour))
	e.waitForQueue(names[1], 1)
	e.wantHeld(a, names[0])
	cancel()
	e.wantError("LockAll", receive(e, waiting, "a cancelled LockAll returns").err, context.Canceled)
	e.waitForQueue(names[1], 0)
	e.unlock(e.try(a, names[0]))

	_, err := b.LockAll(e.ctx(), names, sqllock.Wait(time.Second), sqllock.MinHold(time.Hour))
	var held *sqllock.HeldError
	if !errors.As(err, &held) || held.Name != names[1] || held.Label != "the holder" {
		e.Errorf("LockAll with Wait: %v", err)
	}
	e.waitForQueue(names[1], 0)
	e.unlock(e.try(a, names[0]))
	e.unlock(e.try(a, names[2]))
	e.unlock(lease)
	leases := e.lockAll(b, names, sqllock.MinHold(time.Hour))
	e.unlockAll(leases)
	if held := e.wantHeld(a, names[0]); time.Until(held.Until) < time.Minute {
		e.Errorf("after a MinHold of an hour: %+v", held)
	}
}

func testLockAllCrashed(e *env) {
	e.fresh()
	a, b := e.looseLocker(e.handle(), &Options{TTL: long}), e.locker(&Options{TTL: long})
	names := e.names(4)
	one, two := e.lock(a, names[1]), e.lock(a, names[3])
	e.over(one, two)
	e.abandon(a)
	leases, err := b.TryLockAll(e.ctx(), names)
	if err != nil {
		e.Fatal(err)
	}
	if leases.Token(names[1]) <= one.Token() || leases.Token(names[3]) <= two.Token() {
		e.Error("the tokens do not rise")
	}
	e.unlockAll(leases)
}

// testLockAllBesideLock has goroutines lock some of few names, together and one after the other
// in their order.
func testLockAllBesideLock(e *env) {
	lockers := []*sqllock.Locker{e.locker(&Options{TTL: long}), e.locker(&Options{TTL: long})}
	names := e.names(6)
	visits := 8
	if e.h.slow() {
		visits = 3
	}
	var mu sync.Mutex
	in, last := make(map[string]bool), make(map[string]int64)
	visit := func(names []string, token func(string) int64) {
		mu.Lock()
		for _, name := range names {
			if in[name] || token(name) <= last[name] {
				e.Errorf("%s: two at once: %v; token %d follows %d", name, in[name], token(name), last[name])
			}
			in[name], last[name] = true, token(name)
		}
		mu.Unlock()
		time.Sleep(time.Millisecond)
		mu.Lock()
		defer mu.Unlock()
		for _, name := range names {
			delete(in, name)
		}
	}
	ctx := e.ctx()
	var wg sync.WaitGroup
	for g := range 12 {
		wg.Go(func() {
			l := lockers[g%2]
			for range visits {
				some := slices.Clone(names)
				rand.Shuffle(len(some), func(i, j int) { some[i], some[j] = some[j], some[i] })
				some = some[:1+rand.IntN(3)]
				if g%3 == 0 {
					e.visitInOrder(ctx, l, some, visit)
					continue
				}
				leases, err := l.LockAll(ctx, some)
				if err != nil {
					e.Errorf("LockAll: %v", err)
					return
				}
				visit(leases.Names(), leases.Token)
				if err := leases.Unlock(ctx); err != nil {
					e.Errorf("Unlock: %v", err)
				}
			}
		})
	}
	wg.Wait()
}

// visitInOrder locks names one after the other, in the order of their bytes.
func (e *env) visitInOrder(ctx context.Context, l *sqllock.Locker, names []string, visit func([]string, func(string) int64)) {
	slices.Sort(names)
	tokens := make(map[string]int64)
	at := ctx
	for _, name := range names {
		lease, err := l.Lock(at, name)
		if err != nil {
			e.Errorf("Lock: %v", err)
			return
		}
		defer func() { e.unlock(lease) }()
		tokens[name] = lease.Token()
		bound, cancel := lease.Bind(at)
		defer cancel()
		at = bound
	}
	visit(names, func(name string) int64 { return tokens[name] })
}

func testLockAllDeadlock(e *env) {
	a, b := e.locker(&Options{TTL: long}), e.locker(&Options{TTL: long})
	names := e.names(2)
	last := e.lock(a, names[1])
	waiting := lockingAll(e.ctx(), b, names) // holds the first, and waits for the second
	e.waitForQueue(names[1], 1)
	_, err := a.Lock(last.Context(), names[0])
	e.wantError("Lock in another order", err, sqllock.ErrDeadlock)
	silent(e, waiting, "the older waiter was ended too")
	e.unlock(last)
	e.unlockAll(e.grantedAll(waiting))

	// Now LockAll is the one that comes last.
	last = e.lock(a, names[1])
	first := e.lock(b, names[0])
	older := make(chan result, 1)
	go func() {
		lease, err := b.Lock(first.Context(), names[1])
		older <- result{lease, err}
	}()
	e.waitForQueue(names[1], 1)
	_, err = a.LockAll(last.Context(), names)
	e.wantError("LockAll that closes a cycle", err, sqllock.ErrDeadlock)
	e.unlock(last)
	e.unlock(e.granted(older))
	e.unlock(first)
}

func testLockAllLosesWhileWaiting(e *env) {
	a, b := e.locker(&Options{TTL: long}), e.locker(&Options{TTL: e.ttl(time.Second)})
	names := e.names(3)
	last := e.lock(a, names[2])
	waiting := lockingAll(e.ctx(), b, names)
	e.waitForQueue(names[2], 1)
	info, err := a.ForceUnlock(e.ctx(), names[0])
	if err != nil {
		e.Fatal(err)
	}
	e.eventually(timeLimit, "LockAll holds the name again", func() bool {
		now, err := a.Inspect(e.ctx(), names[0])
		return err == nil && now.State == sqllock.StateHeld && now.Token > info.Token
	})
	e.waitForQueue(names[2], 1)
	e.unlock(last)
	leases := e.grantedAll(waiting)
	if err := leases.Context().Err(); err != nil || leases.Token(names[0]) <= info.Token {
		e.Errorf("the leases: %v, token %d after %d", err, leases.Token(names[0]), info.Token)
	}
	e.unlockAll(leases)
}

func testLockAllLosesForEver(e *env) {
	a, b := e.locker(&Options{TTL: long}), e.locker(&Options{TTL: long})
	names := e.names(2)
	last := e.lock(a, names[1])
	// The first name is always lost before the second is free, at latest when a slow machine
	// learns of its grant.
	_, err := b.LockAll(e.ctx(), names, sqllock.MaxHold(400*time.Millisecond))
	if lost := e.wantLost("LockAll", err); lost.Reason != sqllock.LostMaxHold && lost.Reason != sqllock.LostLate || lost.Name != names[0] {
		e.Errorf("LockAll: %+v", lost)
	}
	e.unlock(e.lock(a, names[0]))
	e.unlock(last)
}

func testLeasesLost(e *env) {
	a, b := e.locker(&Options{TTL: e.ttl(time.Second)}), e.locker(&Options{TTL: long})
	names := e.names(3)
	leases := e.lockAll(a, names)
	bound, cancel := leases.Bind(e.ctx())
	defer cancel()
	if _, err := b.ForceUnlock(e.ctx(), names[1]); err != nil {
		e.Fatal(err)
	}
	receive(e, leases.Context().Done(), "the context ends with the loss of one lease")
	receive(e, bound.Done(), "the bound context ends, too")
	for _, ctx := range []context.Context{leases.Context(), bound} {
		lost := e.wantLost("the cause", context.Cause(ctx))
		if lost.Name != names[1] || lost.Reason != sqllock.LostRevoked {
			e.Errorf("the cause is %+v", lost)
		}
	}
	if left := leases.Remaining(); left != 0 {
		e.Errorf("%v remain", left)
	}
	e.wantHeld(b, names[0])
	e.wantLost("Unlock", leases.Unlock(e.ctx()))
	for _, name := range names {
		e.unlock(e.try(b, name))
	}
}

func testLockAllReenters(e *env) {
	a, b := e.locker(&Options{TTL: long}), e.locker(&Options{TTL: long})
	names := e.names(3)
	outer := e.lock(a, names[1])
	leases, err := a.TryLockAll(outer.Context(), names)
	if err != nil {
		e.Fatalf("TryLockAll under a lease of one of the names: %v", err)
	}
	if leases.Token(names[1]) != outer.Token() {
		e.Errorf("token %d, want %d", leases.Token(names[1]), outer.Token())
	}
	inner, err := a.TryLock(leases.Context(), names[2])
	e.oneOf(inner, err)
	if err != nil || inner.Token() != leases.Token(names[2]) {
		e.Fatalf("TryLock under leases: %v", err)
	}
	e.unlock(inner)
	e.unlockAll(leases)
	e.wantHeld(b, names[1])
	e.unlock(e.try(b, names[0]))
	e.unlock(e.try(b, names[2]))

	other := e.lock(b, names[2])
	_, err = a.TryLockAll(outer.Context(), names)
	e.wantError("TryLockAll", err, sqllock.ErrHeld)
	e.live(outer)
	e.unlock(other)

	owner := sqllock.WithOwner(e.ctx(), "an owner")
	mine, err := a.TryLock(owner, names[0])
	e.oneOf(mine, err)
	if err != nil {
		e.Fatal(err)
	}
	leases, err = a.LockAll(owner, []string{names[0], names[2]})
	if err != nil || leases.Token(names[0]) != mine.Token() {
		e.Fatalf("LockAll of an owner: %v", err)
	}
	e.unlockAll(leases)
	e.unlock(mine)
	e.unlock(outer)
	_, err = a.LockAll(outer.Context(), nil)
	e.wantError("LockAll of no names", err, sqllock.ErrInvalidOption)
}

func testRLockAll(e *env) {
	a, b := e.locker(&Options{TTL: long}), e.locker(&Options{TTL: long})
	names := e.names(3)
	reader := e.rlock(b, names[1])
	one, err := a.RLockAll(e.ctx(), names)
	if err != nil {
		e.Fatal(err)
	}
	two, err := b.TryRLockAll(e.ctx(), names)
	if err != nil {
		e.Fatal(err)
	}
	if one.Token(names[1]) != reader.Token() || one.Token(names[2]) != two.Token(names[2]) {
		e.Error("readers of one term have different tokens")
	}
	writer := lockingAll(e.ctx(), a, names)
	e.waitForQueue(names[0], 1)
	if _, err := b.TryRLockAll(e.ctx(), names); !errors.Is(err, sqllock.ErrHeld) {
		e.Errorf("TryRLockAll before a writer that waits: %v", err)
	}
	e.unlockAll(one)
	e.unlockAll(two)
	e.waitForQueue(names[1], 1)
	readers := make(chan allResult, 1)
	go func() {
		leases, err := b.RLockAll(e.ctx(), names)
		readers <- allResult{leases, err}
	}()
	e.waitForQueue(names[0], 1)
	e.unlock(reader)
	e.unlockAll(e.grantedAll(writer))
	e.unlockAll(e.grantedAll(readers))
}

func testLockAllReplyLost(e *env) {
	p, l := e.proxied(&Options{TTL: long})
	other := e.locker(&Options{TTL: long})
	for n := int64(1); ; n++ {
		e.warm(l)
		names := e.names(3)
		e.unlock(e.lock(other, names[1]))
		seen := pieces(p, func([]byte) bool { return true }, n, n, loseReply)
		leases, err := l.LockAll(e.ctx(), names)
		p.OnUp(nil)
		if err != nil {
			e.Fatalf("after a lost reply to request %d: LockAll: %v", n, err)
		}
		for _, name := range names {
			e.wantHeld(other, name)
		}
		e.unlockAll(leases)
		for _, name := range names {
			e.unlock(e.try(other, name))
		}
		e.warm(l)
		names = e.names(3)
		pieces(p, func([]byte) bool { return true }, n, n, loseReply)
		leases, err = l.TryLockAll(e.ctx(), names)
		p.OnUp(nil)
		if err == nil {
			e.unlockAll(leases)
		}
		for _, name := range names {
			e.unlock(e.lock(other, name))
		}
		if seen.Load() < n {
			e.Logf("%d requests", n-1)
			return
		}
	}
}

func testLockAllClose(e *env) {
	a, b := e.locker(&Options{TTL: long}), e.looseLocker(e.handle(), &Options{TTL: long})
	names := e.names(4)
	lease := e.lock(a, names[3])
	leases := e.lockAll(b, names[:1])
	waiting := lockingAll(e.ctx(), b, names[1:])
	e.waitForQueue(names[3], 1)
	closed := closing(e.ctx(), b)
	e.wantError("LockAll that waits", receive(e, waiting, "LockAll returns").err, sqllock.ErrClosed)
	receive(e, leases.Context().Done(), "the context of the leases ends")
	e.wantError("the cause", context.Cause(leases.Context()), sqllock.ErrClosed)
	e.unlockAll(leases)
	if err := receive(e, closed, "Close returns"); err != nil {
		e.Errorf("Close: %v", err)
	}
	_, err := b.LockAll(e.ctx(), names)
	e.wantError("LockAll after Close", err, sqllock.ErrClosed)
	for _, name := range names[:3] {
		e.unlock(e.try(a, name))
	}
	e.unlock(lease)
}

// testLockAllStatements counts what goes to the database, where all names are free.
func testLockAllStatements(e *env) {
	db, sent := e.open(e.source(), poolSize)
	l := e.lockerOn(db, &Options{TTL: sqllock.MaxTTL, MaxBatch: 7})
	e.unlockAll(e.lockAll(l, e.names(2))) // now there is a connection
	count := func(call func()) int {
		before := sent.statements.Load()
		call()
		return int(sent.statements.Load() - before)
	}
	few, many := e.countAll(count, l, e.names(2)), e.countAll(count, l, e.names(200))
	e.Logf("LockAll of new names and of others, TryLockAll, Guard and Unlock of 2 names take %v statements, of 200 names %v", few, many)
	if many.try != many.wait {
		e.Errorf("TryLockAll takes %d statements and LockAll %d", many.try, many.wait)
	}
	few.first = many.first // new names may be visited, in parts
	if e.h.AllStatements > 0 && few != many {
		e.Errorf("the numbers of statements differ: %v and %v", few, many)
	}
	for _, c := range []struct {
		what      string
		got, most int
	}{
		{"LockAll of new names", many.first, e.h.NewStatements},
		{"LockAll", many.wait, e.h.AllStatements},
		{"TryLockAll", many.try, e.h.AllStatements},
		{"Guard", many.guard, e.h.GuardStatements},
		{"Unlock", many.unlock, e.h.UnlockStatements},
	} {
		if c.most > 0 && c.got > c.most {
			e.Errorf("%s of 200 names takes %d statements, want at most %d", c.what, c.got, c.most)
		}
	}
}

// allCounts are how many statements calls about several names take; first is LockAll of names that
// nobody has ever held.
type allCounts struct{ first, wait, try, guard, unlock int }

func (e *env) countAll(count func(call func()) int, l *sqllock.Locker, names []string) (c allCounts) {
	e.Helper()
	var leases *sqllock.Leases
	c.first = count(func() { leases = e.lockAll(l, names) })
	e.unlockAll(leases)
	c.wait = count(func() { leases = e.lockAll(l, names) })
	c.unlock = count(func() { e.unlockAll(leases) })
	c.try = count(func() {
		var err error
		if leases, err = l.TryLockAll(e.ctx(), names); err != nil {
			e.Fatalf("TryLockAll: %v", err)
		}
	})
	err := leases.InTx(e.ctx(), nil, func(_ context.Context, tx *sql.Tx) error {
		c.guard = count(func() {
			if err := leases.Guard(e.ctx(), tx); err != nil {
				e.Errorf("Guard: %v", err)
			}
		})
		return nil
	})
	if err != nil {
		e.Errorf("InTx: %v", err)
	}
	e.unlockAll(leases)
	return c
}

// testTryLockAllAtOnce has several callers want some of few names that have no row yet.
func testTryLockAllAtOnce(e *env) {
	lockers := []*sqllock.Locker{e.locker(&Options{TTL: long}), e.locker(&Options{TTL: long})}
	won := 0
	for range 30 {
		names := e.names(6)
		got := make([]*sqllock.Leases, 8)
		var wg sync.WaitGroup
		for g := range got {
			wg.Go(func() {
				some := slices.Clone(names)
				rand.Shuffle(len(some), func(i, j int) { some[i], some[j] = some[j], some[i] })
				leases, err := lockers[g%2].TryLockAll(e.ctx(), some[:3])
				if err != nil && !errors.Is(err, sqllock.ErrHeld) {
					e.Errorf("TryLockAll: %v", err)
				}
				got[g] = leases
			})
		}
		wg.Wait()
		holders := make(map[string]int)
		for _, leases := range got {
			if leases == nil {
				continue
			}
			won++
			for _, name := range leases.Names() {
				if holders[name]++; holders[name] > 1 {
					e.Fatalf("%s has two holders", name)
				}
			}
			e.unlockAll(leases)
		}
		all, err := lockers[0].TryLockAll(e.ctx(), names) // what lost holds nothing
		if err != nil {
			e.Fatalf("TryLockAll when all have unlocked: %v", err)
		}
		e.unlockAll(all)
	}
	e.Logf("%d of 240 calls have won", won)
}
