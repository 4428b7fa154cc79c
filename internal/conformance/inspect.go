package conformance

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/sqllock/sqllock"
)

var inspectPromises = []promise{
	{sentence: "Inspect tells of each state that a name can be in", test: testInspect},
	{sentence: "List yields the names that are not free, whatever they look like, in the order of their bytes", test: testList},
	{sentence: "ForceUnlock frees the name and its former holder hears of it at its next renewal", test: testForceUnlock},
	{sentence: "ForceUnlock of a free name is ErrNotHeld", test: testForceFree},
	{sentence: "ForceUnlock waits for a row that somebody has locked", test: testForcePinned, needs: needTable},
	{sentence: "ForceUnlock that has waited leaves the next holder alone", test: testForceSucceeded, needs: needTable},
	{sentence: "ForceUnlock frees at once, whatever MinHold and LockDelay say", test: testForceUnlockOfMinimumTerm},
	{sentence: "Watch yields held, released, expired and forced in their order", test: testWatch},
	{sentence: "Watch never misses the last state, whatever goes on", test: testWatchLoad},
}

func (e *env) inspect(l *sqllock.Locker, name string) sqllock.Info {
	e.Helper()
	info, err := l.Inspect(e.ctx(), name)
	if err != nil {
		e.Fatalf("Inspect: %v", err)
	}
	if info.Name != name || info.Now.IsZero() {
		e.Errorf("Inspect of %q = %+v", name, info)
	}
	return info
}

func (e *env) wantState(l *sqllock.Locker, name string, want sqllock.State) sqllock.Info {
	e.Helper()
	info := e.inspect(l, name)
	if info.State != want {
		e.Errorf("the name is %s, want %s: %+v", info.State, want, info)
	}
	return info
}

func testInspect(e *env) {
	e.losable()
	l := e.locker(&Options{TTL: long, Label: "the label"})
	name := e.name("k")
	if info := e.wantState(l, name, sqllock.StateUnknown); info.Token != 0 || !info.Since.IsZero() || !info.Until.IsZero() {
		e.Errorf("of an unknown name: %+v", info)
	}
	lease := e.lock(l, name, noted)
	e.wantHolder(l, lease, "the label")
	e.unlock(lease)
	info := e.wantState(l, name, sqllock.StateReleased)
	if info.Owner != "" || info.Label != "" || info.Token != lease.Token() || info.Until.After(info.Now) {
		e.Errorf("of a released name: %+v", info)
	}
	crashing := e.looseLocker(e.handle(), &Options{TTL: long, Label: "it crashed"})
	e.crash(crashing, e.lock(crashing, name, noted))
	if info = e.wantState(l, name, sqllock.StateExpired); info.Label != "it crashed" {
		e.Errorf("of an expired name: %+v", info)
	}
	if _, err := l.Reaper().Reap(e.ctx()); err != nil {
		e.Fatalf("Reap: %v", err)
	}
	if info = e.wantState(l, name, sqllock.StateExpired); info.Label != "" {
		e.Errorf("of an expired name that was cleaned up: %+v", info)
	}
	lease = e.lock(l, name, noted)
	if _, err := l.ForceUnlock(e.ctx(), name); err != nil {
		e.Fatalf("ForceUnlock: %v", err)
	}
	info = e.wantState(l, name, sqllock.StateForced)
	if info.Token < lease.Token() || !e.inSessions() && info.Token == lease.Token() {
		e.Errorf("the token is %d after %d", info.Token, lease.Token())
	}
	_ = lease.Unlock(e.ctx())
}

// wantHolder checks what Inspect says of a lease with a long TTL.
func (e *env) wantHolder(l *sqllock.Locker, lease *sqllock.Lease, label string) {
	e.Helper()
	info := e.wantState(l, lease.Name(), sqllock.StateHeld)
	if info.Owner != lease.Owner() || info.Label != label || info.Token != lease.Token() || info.Holds != 1 ||
		info.Now.Before(info.Since) || !info.KeptUntil.IsZero() {
		e.Errorf("of a held name: %+v", info)
	}
	ttl := info.Until.Sub(info.Since)
	switch {
	case e.inSessions() && info.Until.IsZero() || ttl == long:
	case e.h.Nodes < 2 || (ttl-long).Abs() > long/3: // several databases have several clocks
		e.Errorf("of a name that is held since %v: until %v", info.Since, info.Until)
	}
}

func testList(e *env) {
	l := e.locker(&Options{TTL: long})
	prefix := e.name("")
	var want []string
	for _, s := range []string{"a", "A", "a ", "ä", "'", `"`, `\`, "%", "_", "\x01\n\t\x1b[31m", "\u202egnal", "\ud7ffx", "\ue000", "\ue000x", "\U0001f512", strings.Repeat("x", 100)} {
		want = append(want, prefix+s)
		lease := e.lock(l, prefix+s, noted)
		defer e.unlock(lease)
	}
	e.unlock(e.lock(l, prefix+"free", noted))
	e.unlock(e.lock(l, prefix+"kept", sqllock.MinHold(time.Hour)))
	want = append(want, prefix+"kept")
	slices.Sort(want)
	names := func(opts ...sqllock.ListOption) (names []string) {
		for info, err := range l.List(e.ctx(), opts...) {
			if err != nil {
				e.Fatalf("List: %v", err)
			}
			if strings.HasPrefix(info.Name, prefix) { // others are at work in the same table
				names = append(names, info.Name)
			}
		}
		return names
	}
	if got := names(); !slices.Equal(got, want) {
		e.Errorf("List yields %q, want %q", got, want)
	}
	want = append(want, prefix+"free")
	slices.Sort(want)
	if got := names(sqllock.IncludeFree()); !slices.Equal(got, want) {
		e.Errorf("List with free names yields %q, want %q", got, want)
	}
	testListInParts(e, l, prefix, want)
}

// testListInParts lists only some names, of which those that begin with the prefix are all.
func testListInParts(e *env, l *sqllock.Locker, prefix string, all []string) {
	names := func(opts ...sqllock.ListOption) (names []string) {
		for info, err := range l.List(e.ctx(), append(opts, sqllock.IncludeFree())...) {
			if err != nil {
				e.Fatalf("List: %v", err)
			}
			names = append(names, info.Name)
		}
		return names
	}
	for _, part := range []string{"", "a", "\x01", "\ue000", "\U0001f512", "xx", "none", "\U0010ffff"} {
		var want []string
		for _, name := range all {
			if strings.HasPrefix(name, prefix+part) {
				want = append(want, name)
			}
		}
		if got := names(sqllock.Prefix(prefix + part)); !slices.Equal(got, want) {
			e.Errorf("List of names that begin with %q yields %q, want %q", part, got, want)
		}
	}
	for _, size := range []int{1, 4, 1000} {
		var got []string
		for page := []string{""}; len(page) > 0; {
			page = names(sqllock.Prefix(prefix), sqllock.After(page[len(page)-1]), sqllock.Limit(size))
			if len(page) > size {
				e.Fatalf("List with the limit %d yields %q", size, page)
			}
			got = append(got, page...)
		}
		if !slices.Equal(got, all) {
			e.Errorf("List in pages of %d yields %q, want %q", size, got, all)
		}
	}
}

func testForceUnlock(e *env) {
	ttl := e.ttl(2 * time.Second)
	holder, operator := e.locker(&Options{TTL: ttl}), e.locker(&Options{TTL: long})
	lease := e.lock(holder, e.name("k"), noted)
	info, err := operator.ForceUnlock(e.ctx(), lease.Name())
	forced := time.Now()
	if err != nil || info.State != sqllock.StateHeld || info.Token != lease.Token() || info.Owner != lease.Owner() {
		e.Fatalf("ForceUnlock = %+v, %v", info, err)
	}
	next := e.forced(operator, lease.Name())
	if next.Token() <= lease.Token() {
		e.Errorf("token %d follows token %d", next.Token(), lease.Token())
	}
	receive(e, lease.Context().Done(), "the former holder hears of it")
	if took := time.Since(forced); took > ttl {
		e.Errorf("the former holder heard of it after %v, with a TTL of %v", took, ttl)
	}
	for what, err := range map[string]error{"the context": context.Cause(lease.Context()), "Unlock": lease.Unlock(e.ctx())} {
		if lost := e.wantLost(what, err); lost.Reason != sqllock.LostRevoked {
			e.Errorf("%s says: %s", what, lost.Reason)
		}
	}
	e.live(next)
	e.unlock(next)
}

func testForceFree(e *env) {
	l := e.locker(&Options{TTL: long})
	lease := e.lock(l, e.name("k"), noted)
	e.unlock(lease)
	for _, name := range []string{lease.Name(), e.name("unknown")} {
		_, err := l.ForceUnlock(e.ctx(), name)
		e.wantError("ForceUnlock of a free name", err, sqllock.ErrNotHeld)
	}
	if info := e.inspect(l, lease.Name()); info.Token != lease.Token() || info.State != sqllock.StateReleased {
		e.Errorf("afterwards it is %+v", info)
	}
}

func testForcePinned(e *env) {
	l, operator := e.locker(&Options{TTL: long}), e.locker(&Options{TTL: long})
	lease := e.lock(l, e.name("k"))
	unpin := e.pin(lease.Name())
	ctx, cancel := context.WithTimeout(context.Background(), 300*time.Millisecond)
	defer cancel()
	if _, err := operator.ForceUnlock(ctx, lease.Name()); !errors.Is(err, context.DeadlineExceeded) {
		e.Errorf("ForceUnlock of a row that is locked = %v", err)
	}
	done := make(chan error, 1)
	go func() {
		_, err := operator.ForceUnlock(context.Background(), lease.Name())
		done <- err
	}()
	silent(e, done, "ForceUnlock returned while the row was locked")
	unpin()
	if err := receive(e, done, "ForceUnlock returns"); err != nil {
		e.Errorf("ForceUnlock: %v", err)
	}
	_ = lease.Unlock(e.ctx())
}

func testForceSucceeded(e *env) {
	l, operator := e.locker(&Options{TTL: long}), e.locker(&Options{TTL: long})
	lease := e.lock(l, e.name("k"))
	succeed := e.pinForSuccessor(lease.Name())
	done := make(chan error, 1)
	go func() {
		_, err := operator.ForceUnlock(context.Background(), lease.Name())
		done <- err
	}()
	silent(e, done, "ForceUnlock returned while the row was locked")
	time.Sleep(slack() / 5) // until it has read the row
	succeed()
	err := receive(e, done, "ForceUnlock returns")
	e.wantError("ForceUnlock of a lease that has ended meanwhile", err, sqllock.ErrNotHeld)
	if !strings.Contains(fmt.Sprint(err), "meanwhile") {
		e.Errorf("ForceUnlock does not say what happened: %v", err)
	}
	if info := e.wantState(l, lease.Name(), sqllock.StateHeld); info.Token != lease.Token()+1 {
		e.Errorf("the token of the next holder is %d after %d", info.Token, lease.Token())
	}
	_ = lease.Unlock(e.ctx())
}

func testForceUnlockOfMinimumTerm(e *env) {
	l := e.locker(&Options{TTL: long})
	lease := e.lock(l, e.name("k"), sqllock.MinHold(time.Hour), sqllock.LockDelay(time.Hour))
	if _, err := l.ForceUnlock(e.ctx(), lease.Name()); err != nil {
		e.Fatalf("ForceUnlock: %v", err)
	}
	e.unlock(e.forced(l, lease.Name()))
	_ = lease.Unlock(e.ctx())
}

// watching collects what Watch yields of a name, until stop.
func (e *env) watching(l *sqllock.Locker, name string) (states <-chan sqllock.Info, stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	ch := make(chan sqllock.Info, 10_000)
	go func() {
		defer close(ch)
		for info, err := range l.Watch(ctx, name) {
			if err == nil {
				ch <- info
			} else if !errors.Is(err, context.Canceled) {
				e.Errorf("Watch: %v", err)
			}
		}
	}()
	return ch, cancel
}

func testWatch(e *env) {
	l := e.locker(&Options{TTL: long, RetryMax: 20 * time.Millisecond})
	name := e.name("k")
	states, stop := e.watching(l, name)
	defer stop()
	var last sqllock.State
	want := func(state sqllock.State) {
		e.Helper()
		info := receive(e, states, fmt.Sprint("Watch yields ", state))
		for e.h.Nodes > 1 && info.State == last && state != last { // with a version that another database has
			info = receive(e, states, fmt.Sprint("Watch yields ", state))
		}
		if last = info.State; last != state || info.Name != name {
			e.Errorf("Watch yields %s, want %s", info.State, state)
		}
	}
	want(sqllock.StateUnknown)
	lease := e.lock(l, name, noted)
	want(sqllock.StateHeld)
	e.unlock(lease)
	want(sqllock.StateReleased)
	ttl := long
	if e.inSessions() { // it expires by itself
		ttl = e.ttl(soon)
	}
	crashing := e.looseLocker(e.handle(), &Options{TTL: ttl})
	e.lock(crashing, name, noted)
	want(sqllock.StateHeld)
	e.abandon(crashing)
	if !e.inSessions() {
		e.expire(name)
	}
	want(sqllock.StateExpired)
	lease = e.lock(l, name, noted)
	want(sqllock.StateHeld)
	if _, err := l.ForceUnlock(e.ctx(), name); err != nil {
		e.Fatalf("ForceUnlock: %v", err)
	}
	want(sqllock.StateForced)
	_ = lease.Unlock(e.ctx())
	stop()
	for range states {
	}
}

func testWatchLoad(e *env) {
	l := e.locker(&Options{TTL: long, RetryMax: 20 * time.Millisecond})
	name := e.name("k")
	states, stop := e.watching(l, name)
	defer stop()
	var token int64
	for range 30 {
		lease := e.lock(l, name, noted)
		token = lease.Token()
		e.unlock(lease)
	}
	var last sqllock.Info
	isLast := func() bool { // of a free name one of several databases can have a higher version
		return last.State == sqllock.StateReleased && (last.Token == token || last.Token > token && e.h.Nodes > 1)
	}
	for !isLast() {
		info := receive(e, states, "Watch yields the last state")
		if info.Token < last.Token && e.h.Nodes < 2 || info.Token == last.Token && info.State == sqllock.StateHeld {
			e.Errorf("%s with token %d follows %s with token %d", info.State, info.Token, last.State, last.Token)
		}
		last = info
	}
	stop()
	for range states {
	}
}
