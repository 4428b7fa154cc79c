package sqllocktest

import (
	"errors"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/sqllock/sqllock"
)

// longest is how many bytes a name, an owner and a label may have.
const longest = 255

// strangeTexts mean something to a database, a driver, a terminal or a reader.
var strangeTexts = []string{
	"'\"`\\';--%_{lock}{}$1?:n@n/**/#\\x00\\'' OR '1'='1",
	`'; DROP TABLE sqllock_lock; --`,
	"\u202egnal\u200b\ufeffe\u0301\u0301\U0001f512\ufffd\U0010ffff",
	"\x01\x1b[31m\r\n\t\x7f ",
	" " + strings.Repeat("\U0001f512", 63) + "  ",
}

// testStrangeTexts holds each text under a name that ends in it, by an owner and a
// Locker that are called so, with the text as the value.
func testStrangeTexts(e *env) {
	other := e.locker(&Options{TTL: long})
	for i, text := range strangeTexts {
		l := e.locker(&Options{TTL: long, Label: text})
		name := shortened(e.name(text))
		owned := sqllock.WithOwner(e.ctx(), text)
		lease := e.lockWith(owned, l, name, sqllock.Value([]byte(text)))
		if again, err := l.TryLock(owned, name); err != nil || again.Token() != lease.Token() {
			e.Errorf("its owner does not re-enter %q: %v", name, err)
		} else {
			e.unlock(again)
		}
		if lease.Owner() != text || lease.Name() != name {
			e.Errorf("the lease is of %q by %q, want %q by %q", lease.Name(), lease.Owner(), name, text)
		}
		if info := e.wantState(other, name, sqllock.StateHeld); info.Owner != text || info.Label != text || string(info.Value) != text {
			e.Errorf("Inspect of %q: %+v", name, info)
		}
		if info := e.listed(other, name); info == nil || info.Owner != text || info.Label != text {
			e.Errorf("List yields of %q: %+v", name, info)
		}
		// A waiter, who is called so too, is told who is in the way, if the database has
		// answered by then.
		var held *sqllock.HeldError
		var err error
		for wait := 20 * time.Millisecond; (held == nil || held.Label == "") && wait < patience; wait *= 4 {
			var second *sqllock.Lease
			if second, err = other.Lock(owned, name, sqllock.Wait(wait), sqllock.Value([]byte(text))); err == nil {
				e.unlock(second)
				e.Fatalf("%q has two holders", name)
			}
			errors.As(err, &held)
		}
		if held == nil || held.Name != name || held.Label != text || held.Owner != text || !utf8.ValidString(err.Error()) {
			e.Errorf("a waiter for %q gets %+v", name, err)
		}
		if i > 0 {
			e.unlock(lease)
		} else if _, err := other.ForceUnlock(e.ctx(), name); err != nil {
			e.Errorf("ForceUnlock(%q): %v", name, err)
		} else {
			_ = lease.Unlock(e.ctx())
		}
		e.wantFree(other, name, patience)
	}
}

// shortened cuts a text to what a name may have, between two runes.
func shortened(s string) string { return strings.ToValidUTF8(s[:min(len(s), longest)], "") }

// testLimits uses the longest of everything at once.
func testLimits(e *env) {
	const day = sqllock.MaxTTL
	text := strings.Repeat("x", longest)
	l := e.locker(&Options{TTL: e.ttl(day), Label: text})
	name := shortened(e.name(text))
	value := sqllock.Value([]byte(strings.Repeat("\x00", 64<<10)))
	lease := e.lockWith(sqllock.WithOwner(e.ctx(), text), l, name, value, sqllock.MinHold(day), sqllock.MaxHold(1<<63-1), sqllock.LockDelay(day))
	if left := lease.Remaining(); left > day || left < day-day/50 {
		e.Errorf("Remaining is %v of a TTL of %v", left, day)
	}
	if info := e.wantState(l, name, sqllock.StateHeld); info.Owner != text || info.Label != text || len(info.Value) != 64<<10 {
		e.Errorf("owner, label and value of %d, %d and %d bytes came back", len(info.Owner), len(info.Label), len(info.Value))
	}
	e.unlock(lease)
	if info := e.inspect(l, name); info.KeptUntil.Sub(info.Now) > day || info.KeptUntil.Sub(info.Now) < day-patience {
		e.Errorf("the name is kept until %v, want a day from %v", info.KeptUntil, info.Now)
	}
	if _, err := l.ForceUnlock(e.ctx(), name); err != nil {
		e.Fatalf("ForceUnlock: %v", err)
	}
	e.unlock(e.forced(l, name))
}
