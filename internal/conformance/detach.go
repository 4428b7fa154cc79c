package conformance

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/sqllock/sqllock"
	"github.com/sqllock/sqllock/internal/netproxy"
)

var detachPromises = []promise{
	{sentence: "a lease that is detached is adopted once, by another Locker, with a higher token", test: testDetach, needs: needLeases},
	{sentence: "an adopted lease is one like others: it is renewed, guarded, re-entered and unlocked", test: testAdopted, needs: needLeases},
	{sentence: "a detached term that nobody adopts is free after its TTL, and that is no loss and no crash", test: testDetachExpires, needs: needLeases},
	{sentence: "whoever waits for a name that is detached gets it after whoever adopts it", test: testDetachQueue, needs: needLeases},
	{sentence: "a detached term is shown as such, and ForceUnlock ends it", test: testDetachForced, needs: needLeases},
	{sentence: "Detach waits for a transaction that guards the lease, or is ErrGuarded and the lease goes on", test: testDetachGuarded, needs: needRowLocks},
	{sentence: "what cannot be detached is refused, and the lease goes on", test: testDetachRefused, needs: needLeases},
	{sentence: "Detach and Adopt are not supported where sessions keep the locks", test: testDetachUnsupported, needs: needSessions},
	{sentence: "MinHold and MaxHold of a lease that is detached mean what they did, and an adoption has its own options", test: testDetachOptions, needs: needLeases},
	{sentence: "no log, hook, error or statement shows a handover", test: testDetachSecret, needs: needLeases},
}

var detachFaultPromises = []promise{
	{sentence: "Detach whose reply is lost returns the handover", test: testDetachReplyLost, needs: needNetwork | needLeases},
	{sentence: "Detach whose replies are all lost is ErrUnknown and frees the name soon, unless all was undone", test: testDetachRepliesLost, needs: needNetwork | needLeases},
	{sentence: "Adopt whose reply is lost finds out that it holds", test: testAdoptReplyLost, needs: needNetwork | needLeases},
	{sentence: "of 20 processes that adopt one term one gets it", test: testAdoptRace, needs: needLeases},
}

// detach detaches a lease that is held.
func (e *env) detach(lease *sqllock.Lease) (handover string) {
	e.Helper()
	handover, err := lease.Detach(e.ctx())
	if err != nil || handover == "" {
		e.Fatalf("Detach: %q, %v", handover, err)
	}
	if url.PathEscape(handover) != handover || url.QueryEscape(handover) != handover || len(handover) > 381 {
		e.Errorf("a handover of %d bytes does not go into a URL as it is", len(handover))
	}
	if cause := context.Cause(lease.Context()); cause != sqllock.ErrDetached || lease.Remaining() != 0 {
		e.Errorf("after Detach the context ended because of %v, and %v remain", cause, lease.Remaining())
	}
	return handover
}

// adopt adopts a term that is detached.
func (e *env) adopt(l *sqllock.Locker, handover string, opts ...sqllock.LockOption) *sqllock.Lease {
	e.Helper()
	lease, err := l.Adopt(e.ctx(), handover, opts...)
	e.oneOf(lease, err)
	if err != nil {
		e.Fatalf("Adopt: %v", err)
	}
	e.live(lease)
	return lease
}

// wantNoAdoption tries to adopt a term that is not there to be adopted.
func (e *env) wantNoAdoption(l *sqllock.Locker, handover string) {
	e.Helper()
	lease, err := l.Adopt(e.ctx(), handover)
	e.oneOf(lease, err)
	e.wantError("Adopt", err, sqllock.ErrNotHeld)
	if strings.Contains(err.Error(), handover) {
		e.Errorf("the error shows the handover: %v", err)
	}
}

func testDetach(e *env) {
	l, other := e.locker(&Options{TTL: long}), e.locker(&Options{TTL: long})
	for _, name := range []string{e.name("k"), e.name("ключ \"'%/"), e.name(strings.Repeat("n", 200))} {
		lease := e.lock(l, name, sqllock.Value([]byte("of the giver")))
		handover := e.detach(lease)
		e.unlock(lease) // such as that of a defer
		e.wantError("a second Unlock", lease.Unlock(e.ctx()), sqllock.ErrNotHeld)
		if again, err := lease.Detach(e.ctx()); again != "" || !errors.Is(err, sqllock.ErrNotHeld) {
			e.Errorf("a second Detach: %q, %v", again, err)
		}
		e.wantHeld(l, name)
		e.wantHeld(other, name)
		next := e.adopt(other, handover, sqllock.Value([]byte("of the adopter")))
		if next.Name() != name || next.Token() <= lease.Token() || next.Shared() {
			e.Errorf("adopted: %q with token %d after %d", next.Name(), next.Token(), lease.Token())
		}
		if info := e.wantState(l, name, sqllock.StateHeld); string(info.Value) != "of the adopter" || info.Owner != next.Owner() {
			e.Errorf("%+v", info)
		}
		e.wantNoAdoption(l, handover)
		e.wantNoAdoption(other, handover)
		e.live(next)
		e.unlock(next)
		e.wantNoAdoption(other, handover)
		e.unlock(e.try(l, name))
	}

	var handover string
	err := l.Do(e.ctx(), e.name("k"), func(_ context.Context, lease *sqllock.Lease) error {
		handover = e.detach(lease)
		return nil
	})
	if err != nil {
		e.Errorf("Do: %v", err)
	}
	e.unlock(e.adopt(l, handover)) // by the Locker that has given it away
}

func testAdopted(e *env) {
	ttl := e.ttl(2 * time.Second)
	book := e.ledger()
	l, other := e.locker(&Options{TTL: long}), e.locker(&Options{TTL: ttl})
	first := e.lock(l, e.name("k"))
	ctx := sqllock.WithOwner(e.ctx(), "worker")
	lease, err := other.Adopt(ctx, e.detach(first))
	e.oneOf(lease, err)
	if err != nil {
		e.Fatal(err)
	}
	if lease.Owner() != "worker" {
		e.Errorf("the owner is %q", lease.Owner())
	}
	for end := time.Now().Add(ttl * 3 / 2); time.Now().Before(end); time.Sleep(ttl / 20) {
		e.live(lease)
		e.wantHeld(l, lease.Name())
	}
	inner := e.lockWith(ctx, other, lease.Name())
	if inner.Token() != lease.Token() {
		e.Errorf("a re-entry has token %d, want %d", inner.Token(), lease.Token())
	}
	e.unlock(inner)
	tx := e.begin(e.readCommitted())
	e.guard(lease, tx)
	book.write(tx, "adopted")
	e.commit(tx)
	tx = e.begin(e.readCommitted())
	e.wantError("Guard of the giver", first.Guard(e.ctx(), tx), sqllock.ErrNotHeld)
	_ = tx.Rollback()
	e.unlock(lease)
	book.want("adopted;")
	e.unlock(e.try(l, lease.Name()))
}

func testDetachExpires(e *env) {
	ttl := e.ttl(2 * time.Second)
	var j journal
	hooks := j.hooks()
	hooks.Crashed = func(ev sqllock.CrashedEvent) { j.add("crashed %+v", ev) }
	hooks.Unlocked = func(ev sqllock.UnlockedEvent) { j.add("unlocked, detached: %v, %v", ev.Detached, ev.Err) }
	l, other := e.looseLocker(e.handle(), &Options{TTL: ttl, Hooks: hooks}), e.looseLocker(e.handle(), &Options{TTL: long, Hooks: hooks})
	lease := e.lock(l, e.name("k"))
	waiter := locking(e.ctx(), other, lease.Name())
	time.Sleep(ttl / 2) // what remains of the lease does not count
	start := time.Now()
	handover := e.detach(lease)
	next := e.granted(waiter)
	if took := time.Since(start); took < ttl-100*time.Millisecond || took > ttl+5*time.Second {
		e.Errorf("the name was free %v after Detach, with a TTL of %v", took, ttl)
	}
	e.wantNoAdoption(l, handover)
	e.unlock(next)
	for _, l := range []*sqllock.Locker{l, other} {
		if err := l.Close(e.ctx()); err != nil { // after it all hooks have been called
			e.Errorf("Close: %v", err)
		}
	}
	if j.has("lost") || j.has("crashed") || !j.has("unlocked, detached: true, <nil>") || !j.has("unlocked, detached: false, <nil>") {
		e.Errorf("the hooks say %q", j.read())
	}
}

func testDetachQueue(e *env) {
	l, other := e.locker(&Options{TTL: long}), e.locker(&Options{TTL: long})
	lease := e.lock(l, e.name("k"))
	waiters := []<-chan result{locking(e.ctx(), l, lease.Name()), locking(e.ctx(), other, lease.Name())}
	time.Sleep(200 * time.Millisecond)
	handover := e.detach(lease)
	merged := make(chan *sqllock.Lease, len(waiters))
	for _, w := range waiters {
		go func() { r := <-w; merged <- r.lease }()
	}
	silent(e, merged, "somebody got a name that is detached")
	next := e.adopt(other, handover)
	silent(e, merged, "somebody got a name that was adopted")
	for range waiters {
		e.unlock(next)
		after := receive(e, merged, "a waiter gets the name")
		if after == nil || after.Token() <= next.Token() {
			e.Fatalf("%v after token %d", after, next.Token())
		}
		next = after
	}
	e.unlock(next)
}

func testDetachForced(e *env) {
	l, other := e.locker(&Options{TTL: long, Label: "the giver"}), e.locker(&Options{TTL: long})
	lease := e.lock(l, e.name("k"), sqllock.Value([]byte("text")))
	handover := e.detach(lease)
	info := e.wantState(other, lease.Name(), sqllock.StateDetached)
	if info.Label != "the giver" || info.Owner != "" || info.Token != lease.Token() || string(info.Value) != "text" || info.Until.Before(info.Now) {
		e.Errorf("%+v", info)
	}
	listed := false
	for info, err := range other.List(e.ctx()) {
		listed = listed || err == nil && info.Name == lease.Name() && info.State == sqllock.StateDetached
	}
	if !listed {
		e.Error("it is not listed")
	}
	if held := e.wantHeld(other, lease.Name()); held.Label != "the giver" || !strings.Contains(held.Error(), "the giver") || held.Until.IsZero() {
		e.Errorf("%+v: %v", held, held)
	}
	if state, err := other.CheckSequencer(e.ctx(), lease.Sequencer()); err != nil || state == sqllock.SequencerCurrent {
		e.Errorf("a sequencer of a term that is detached: %v, %v", state, err)
	}
	if was, err := other.ForceUnlock(e.ctx(), lease.Name()); err != nil || was.State != sqllock.StateDetached {
		e.Errorf("ForceUnlock: %+v, %v", was, err)
	}
	e.wantNoAdoption(other, handover)
	next := e.try(other, lease.Name())
	if next.Token() <= lease.Token()+1 {
		e.Errorf("token %d follows token %d", next.Token(), lease.Token())
	}
	e.unlock(next)
}

func testDetachGuarded(e *env) {
	l, other := e.locker(&Options{TTL: long, StatementTimeout: e.timeout(3 * time.Second)}), e.locker(&Options{TTL: long})
	lease := e.lock(l, e.name("k"))
	tx := e.begin(e.readCommitted())
	e.guard(lease, tx)
	handover, err := lease.Detach(e.ctx())
	e.wantError("Detach while the transaction is open", err, sqllock.ErrGuarded)
	if handover != "" {
		e.Errorf("a handover comes with an error: %d bytes", len(handover))
	}
	e.live(lease)
	inner := e.lockWith(lease.Context(), l, lease.Name())
	e.unlock(inner)
	detached := make(chan error, 1)
	go func() {
		var err error
		handover, err = lease.Detach(e.ctx())
		detached <- err
	}()
	time.Sleep(100 * time.Millisecond)
	e.live(lease)
	e.commit(tx)
	if err := receive(e, detached, "Detach returns"); err != nil {
		e.Fatalf("Detach that waits for the transaction: %v", err)
	}
	e.unlock(e.adopt(other, handover))
}

func testDetachRefused(e *env) {
	l, other := e.locker(&Options{TTL: long}), e.locker(&Options{TTL: long})
	refused := func(what string, lease *sqllock.Lease, ctx context.Context, want error) {
		e.Helper()
		handover, err := lease.Detach(ctx)
		if handover != "" {
			e.Errorf("%s: a handover comes with an error: %d bytes", what, len(handover))
		}
		e.wantError("Detach: "+what, err, want)
	}
	ended, cancel := context.WithCancel(e.ctx())
	cancel()
	reader, err := l.RLock(e.ctx(), e.name("k"))
	if err != nil {
		e.Fatal(err)
	}
	permit := e.permit(e.semaphore(l, e.name("k"), 1))
	for what, lease := range map[string]*sqllock.Lease{"it is shared": reader, "it is a permit": permit} {
		refused(what, lease, e.ctx(), sqllock.ErrUnsupported)
		e.live(lease)
		e.unlock(lease)
	}
	lease := e.lock(l, e.name("k"))
	inner := e.lockWith(lease.Context(), l, lease.Name())
	refused("it was re-entered", lease, e.ctx(), sqllock.ErrInvalidOption)
	e.live(lease)
	e.live(inner)
	e.unlock(lease)
	refused("it was unlocked", lease, e.ctx(), sqllock.ErrNotHeld)
	refused("its context has ended", inner, ended, context.Canceled)
	tx := e.begin(e.readCommitted())
	e.unlockTx(inner, tx)
	refused("a transaction ends it", inner, e.ctx(), sqllock.ErrInvalidOption)
	_ = tx.Rollback()
	e.unlock(inner)
	lost := e.lock(l, e.name("k"))
	e.expireRow(lost.Name())
	refused("it was lost", lost, e.ctx(), sqllock.ErrLost)
	e.wantError("the context", context.Cause(lost.Context()), sqllock.ErrLost)
	_ = lost.Unlock(e.ctx())

	_, err = other.Adopt(e.ctx(), e.detach(e.lock(l, e.name("k"))), sqllock.Wait(time.Second))
	e.wantError("Adopt with Wait", err, sqllock.ErrInvalidOption)
	_, err = other.Adopt(e.ctx(), "sqllock1_x")
	e.wantError("Adopt of what is no handover", err, sqllock.ErrInvalidOption)
	_, err = other.Adopt(ended, e.detach(e.lock(l, e.name("k"))))
	e.wantError("Adopt with a context that has ended", err, context.Canceled)
}

// expireRow makes the term of a name end in the table, where there is one.
func (e *env) expireRow(name string) {
	e.Helper()
	if _, err := e.locker(&Options{TTL: long}).ForceUnlock(e.ctx(), name); err != nil {
		e.Fatal(err)
	}
}

func testDetachUnsupported(e *env) {
	db, sent := e.open(e.source(), poolSize)
	l := e.lockerOn(db, &Options{TTL: sqllock.MaxTTL})
	lease := e.lock(l, e.name("k"), noted)
	handover, err := lease.Detach(e.ctx())
	e.wantError("Detach", err, sqllock.ErrUnsupported)
	if handover != "" {
		e.Errorf("a handover comes with an error: %d bytes", len(handover))
	}
	e.live(lease)
	adopted, err := l.Adopt(e.ctx(), "sqllock1_x")
	e.oneOf(adopted, err)
	e.wantError("Adopt", err, sqllock.ErrUnsupported)
	e.sendsNothing(sent, func() {
		_, _ = lease.Detach(e.ctx())
		_, _ = l.Adopt(e.ctx(), "sqllock1_x")
	})
	e.unlock(lease)
}

func testDetachOptions(e *env) {
	l, other := e.locker(&Options{TTL: long}), e.locker(&Options{TTL: long})
	kept := e.lock(l, e.name("k"), sqllock.MinHold(time.Hour))
	handover := e.detach(kept)
	if info := e.inspect(l, kept.Name()); info.Until.Before(info.Now.Add(30 * time.Minute)) {
		e.Errorf("a minimum hold time has ended with the detachment: %+v", info)
	}
	e.unlock(e.adopt(other, handover))
	e.unlock(e.try(l, kept.Name()))
	short := e.lock(l, e.name("k"), sqllock.MaxHold(20*time.Second))
	handover = e.detach(short)
	if info := e.inspect(l, short.Name()); info.Until.After(info.Now.Add(20 * time.Second)) {
		e.Errorf("a term that may last 20s is detached until %v", info.Until.Sub(info.Now))
	}
	free := e.adopt(other, handover, sqllock.TTL(10*time.Second))
	if left := free.Remaining(); left > 10*time.Second || left < time.Second {
		e.Errorf("%v remain of a lease of 10s", left)
	}
	e.unlock(free)
	e.unlock(e.try(l, free.Name()))
}

// secretOf is the part of a handover that nobody may learn.
func (e *env) secretOf(handover string) []byte {
	e.Helper()
	b, err := base64.RawURLEncoding.DecodeString(strings.TrimPrefix(handover, "sqllock1_"))
	if err != nil || len(b) < 16 {
		e.Fatalf("the handover is %d bytes: %v", len(b), err)
	}
	return b[:16]
}

func testDetachSecret(e *env) {
	var j journal
	o := &Options{TTL: long, Logger: slog.New(&j), Hooks: &sqllock.Hooks{
		Acquired: func(ev sqllock.AcquiredEvent) { j.add("%+v", ev) },
		Unlocked: func(ev sqllock.UnlockedEvent) { j.add("%+v", ev) },
	}}
	var sent bytes.Buffer
	other := e.looseLocker(e.handle(), o)
	var l *sqllock.Locker
	if e.h.Network == nil {
		l = e.locker(o)
	} else {
		var p *netproxy.Proxy
		p, l = e.proxied(o)
		var mu sync.Mutex
		p.OnUp(func(_ int, b []byte) netproxy.Action {
			mu.Lock()
			defer mu.Unlock()
			sent.Write(b)
			return netproxy.Pass
		})
		defer p.OnUp(nil)
	}
	var handovers, texts []string
	note := func(v any, err error) { texts = append(texts, fmt.Sprintf("%v %+v %v", v, v, err)) }
	for range 3 {
		lease := e.lock(l, e.name("k"))
		handover := e.detach(lease)
		handovers = append(handovers, handover)
		note(lease, nil)
		note(l.Inspect(e.ctx(), lease.Name()))
		note(l.Adopt(e.ctx(), handover[:len(handover)-1]))
		note(l.Adopt(e.ctx(), handover+"A"))
		note(l.Adopt(e.ctx(), strings.ToUpper(handover)))
		note(l.Adopt(e.ctx(), handover, sqllock.Tries(1)))
		next := e.adopt(l, handover)
		note(next, nil)
		note(other.Adopt(e.ctx(), handover))
		note(l.TryLock(e.ctx(), lease.Name()))
		e.unlock(next)
	}
	if err := other.Close(e.ctx()); err != nil {
		e.Error(err)
	}
	texts = append(texts, j.read()...)
	for _, handover := range handovers {
		secret := e.secretOf(handover)
		forms := append(idForms(secret), handover, handover[:len(handover)-1], base64.RawURLEncoding.EncodeToString(secret[:15]))
		for _, text := range texts {
			if showsAny([]byte(text), forms) {
				e.Errorf("%q shows a handover", text)
			}
		}
		if showsAny(sent.Bytes(), forms) {
			e.Error("what was sent to the server shows a handover")
		}
		// The row has a hash of the secret, which is sent as the secret would be.
		key := sha256.Sum256(append([]byte("sqllock handover key\x00"), secret...))
		if e.h.Network != nil && !showsAny(sent.Bytes(), idForms(key[:16])) {
			e.Error("the test does not see an id that was sent")
		}
	}
}

// idForms are the ways to write an id: its bytes, and its digits with and without dashes.
func idForms(id []byte) []string {
	s := hex.EncodeToString(id)
	return []string{string(id), s, strings.Join([]string{s[:8], s[8:12], s[12:16], s[16:20], s[20:]}, "-")}
}

// showsAny reports that a text contains one of others, in small letters or in capitals.
func showsAny(text []byte, others []string) bool {
	lower := bytes.ToLower(text)
	return slices.ContainsFunc(others, func(s string) bool {
		return bytes.Contains(text, []byte(s)) || bytes.Contains(lower, bytes.ToLower([]byte(s)))
	})
}

func testDetachReplyLost(e *env) {
	p, l := e.proxied(&Options{TTL: long})
	other := e.locker(&Options{TTL: long})
	e.eachRequest(l, func(name string, n int64) int64 {
		lease := e.lock(l, name)
		seen := requests(p, name, n, n, loseReply)
		handover := e.detach(lease)
		p.OnUp(nil)
		e.wantHeld(other, name)
		next := e.adopt(other, handover)
		if next.Token() <= lease.Token() {
			e.Errorf("token %d follows token %d", next.Token(), lease.Token())
		}
		e.unlock(next)
		e.unlock(e.try(other, name))
		return seen.Load()
	})
}

func testDetachRepliesLost(e *env) {
	p, l := e.proxied(&Options{TTL: long, StatementTimeout: e.timeout(300 * time.Millisecond)})
	other := e.locker(&Options{TTL: long})
	unknown := false
	e.eachRequest(l, func(name string, n int64) int64 {
		lease := e.lock(l, name)
		seen := requests(p, name, n, math.MaxInt64, loseReply)
		handover, err := lease.Detach(e.ctx())
		p.OnUp(nil)
		if err == nil { // it was done with before its n-th request
			e.unlock(e.adopt(other, handover))
			return 0
		}
		if handover != "" {
			e.Errorf("a handover comes with an error: %d bytes", len(handover))
		}
		if !errors.Is(err, sqllock.ErrUnknown) { // the requests were undone with their transactions
			e.wantError("the context", context.Cause(lease.Context()), nil)
			e.wantHeld(other, name)
			e.unlock(lease)
			return min(seen.Load(), 3)
		}
		e.wantError("the context", context.Cause(lease.Context()), sqllock.ErrDetached)
		e.wantFree(other, name, timeLimit/2)
		unknown = true
		return min(seen.Load(), 3) // it repeats itself
	})
	if !unknown {
		e.Error("no reply was lost of a request that may have been committed")
	}
}

func testAdoptReplyLost(e *env) {
	p, l := e.proxied(&Options{TTL: long})
	other := e.locker(&Options{TTL: long})
	e.eachRequest(l, func(name string, n int64) int64 {
		handover := e.detach(e.lock(other, name))
		seen := requests(p, name, n, n, loseReply)
		next := e.adopt(l, handover)
		p.OnUp(nil)
		e.wantHeld(other, name)
		e.wantNoAdoption(other, handover)
		e.unlock(next)
		e.wantFree(other, name, timeLimit/2)
		return seen.Load()
	})
}

func testAdoptRace(e *env) {
	const processes, rounds = 20, 3
	l := e.locker(&Options{TTL: long})
	all := make([]*process, processes)
	for i := range all {
		all[i] = e.start(long, fmt.Sprintf("adopter %d", i))
	}
	for round := range rounds {
		lease := e.lock(l, e.name("k"))
		o := order{Do: "adopt", Name: lease.Name(), What: e.detach(lease)}
		for _, p := range all {
			p.send(o)
		}
		winner := -1
		for i, p := range all {
			switch a := p.read(); {
			case a.Err == "" && winner >= 0:
				e.Errorf("round %d: the processes %d and %d have adopted one term", round, winner, i)
			case a.Err == "":
				winner = i
				if a.Token <= lease.Token() {
					e.Errorf("token %d follows token %d", a.Token, lease.Token())
				}
			case !a.NotHeld:
				e.Errorf("round %d, process %d: %s", round, i, a.Err)
			}
		}
		if winner < 0 {
			e.Fatalf("round %d: nobody has adopted the term", round)
		}
		e.wantHeld(l, lease.Name())
		if a := all[winner].do(order{Do: "unlock", Name: lease.Name()}); a.Err != "" {
			e.Errorf("Unlock: %s", a.Err)
		}
		e.unlock(e.try(l, lease.Name()))
	}
}
