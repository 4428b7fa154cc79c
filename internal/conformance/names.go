package conformance

import (
	"context"
	"database/sql"
	"errors"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/sqllock/sqllock"
)

var namePromises = []promise{
	{sentence: "names that differ in a byte are different locks", test: testDistinctNames},
	{sentence: "a name of 255 bytes is a lock like any other", test: testLongNames},
	{sentence: "a name is data and never part of a statement", test: testNamesAreData},
	{sentence: "names, owners, labels and values come back as they were given, whatever they look like", test: testStrangeTexts},
	{sentence: "the longest names, owners, labels, values and times work together", test: testLimits},
	{sentence: "an invalid name is refused before any SQL", test: testInvalidNames},
	{sentence: "an invalid owner is refused before any SQL", test: testInvalidOwners},
}

// testDistinctNames holds all of them at once.
func testDistinctNames(e *env) {
	e.differ(
		"k", "K", "k ", " k", "k  ", "k\t", "k\n", "kk", "k\x01", "k\x7f",
		"é", "e\u0301", "e", "É", "ß", "ss", "ẞ", "ﬁ", "fi", "ı", "i", "I", "İ",
		"\u03a9", "\u2126", "\u212a", "\u0430", "a", "日本", "日本語", "🔒", "🔑", "\u200b", "\u200bk", "k\u200b",
		"\u202ek", "\ufeffk", "k\u00a0", "０", "0", "00", "0.0", "\U0010ffff", "\ufffd",
	)
}

func testNamesAreData(e *env) {
	e.differ(
		`'`, `''`, `"`, "`", `\`, `\\`, `\'`, `%`, `_`, `k%`, `k_`, `?`, `$1`, `:name`, `@name`, `{lock}`, `{}`, `{k}`,
		`NULL`, `null`, `a,b`, `"a","b"`, `{"a","b"}`, `["a"]`, `/* */`, `--`, `#`, `;`, "\n", "\r\n", `\n`, `\x00`,
		`'; DROP TABLE sqllock_lock; --`, `' OR '1'='1`, `") OR 1=1 --`, `k' || 'x`, `E'\\'`, `x'00'`, `0x00`, `$$`, `$q$`,
	)
}

// differ checks that all names can be held at once, and each only once.
func (e *env) differ(names ...string) {
	e.Helper()
	a, b := e.locker(&Options{TTL: long}), e.locker(&Options{TTL: long})
	prefix := e.name("")
	var leases []*sqllock.Lease
	for _, s := range names {
		lease, err := a.TryLock(e.ctx(), prefix+s)
		e.oneOf(lease, err)
		if err != nil {
			e.Errorf("%q: %v", s, err)
			continue
		}
		if lease.Name() != prefix+s {
			e.Errorf("the lease of %q is named %q", s, lease.Name())
		}
		leases = append(leases, lease)
	}
	for _, s := range names {
		if held := e.wantHeld(b, prefix+s); held.Name != prefix+s {
			e.Errorf("want the name %q, got %q", prefix+s, held.Name)
		}
	}
	for _, lease := range leases {
		e.unlock(lease)
	}
	for _, s := range names {
		e.unlock(e.try(b, prefix+s))
	}
}

func testLongNames(e *env) {
	a, b := e.locker(&Options{TTL: long}), e.locker(&Options{TTL: long})
	prefix := e.name("")
	pad := func(last string) string {
		return prefix + strings.Repeat("x", 255-len(prefix)-len(last)) + last
	}
	// They differ in the last byte; the last one in its last rune of four bytes.
	names := []string{pad("a"), pad("b"), pad(" "), pad("")[:254], pad("🔒"), pad("🔑")}
	var leases []*sqllock.Lease
	for _, name := range names {
		leases = append(leases, e.try(a, name))
	}
	for i, name := range names {
		e.wantHeld(b, name)
		e.unlock(leases[i])
		e.unlock(e.try(b, name))
	}
}

// calls are all ways to acquire a name.
var calls = map[string]func(ctx context.Context, l *sqllock.Locker, name string, opts ...sqllock.LockOption) error{
	"Lock": func(ctx context.Context, l *sqllock.Locker, name string, opts ...sqllock.LockOption) error {
		lease, err := l.Lock(ctx, name, opts...)
		return orBoth(lease, err)
	},
	"TryLock": func(ctx context.Context, l *sqllock.Locker, name string, opts ...sqllock.LockOption) error {
		lease, err := l.TryLock(ctx, name, opts...)
		return orBoth(lease, err)
	},
	"Do": func(ctx context.Context, l *sqllock.Locker, name string, opts ...sqllock.LockOption) error {
		return l.Do(ctx, name, nothing, opts...)
	},
	"TryDo": func(ctx context.Context, l *sqllock.Locker, name string, opts ...sqllock.LockOption) error {
		ran, err := l.TryDo(ctx, name, nothing, opts...)
		if ran && err != nil {
			return errors.New("ran, with the error: " + err.Error())
		}
		return err
	},
	"RLock": func(ctx context.Context, l *sqllock.Locker, name string, opts ...sqllock.LockOption) error {
		lease, err := l.RLock(ctx, name, opts...)
		return orBoth(lease, err)
	},
	"TryRLock": func(ctx context.Context, l *sqllock.Locker, name string, opts ...sqllock.LockOption) error {
		lease, err := l.TryRLock(ctx, name, opts...)
		return orBoth(lease, err)
	},
}

// exclusiveCalls are those of them that want it for one holder only.
var exclusiveCalls = []string{"Lock", "TryLock", "Do", "TryDo"}

func nothing(context.Context, *sqllock.Lease) error { return nil }

func orBoth(lease *sqllock.Lease, err error) error {
	if lease != nil && err != nil {
		return errors.New("a lease and the error: " + err.Error())
	}
	return err
}

// unused returns a Locker whose handle was closed: whatever sends a statement
// gets an error that is none of ours.
func (e *env) unused() (*sqllock.Locker, *sql.DB, *recorder) {
	e.Helper()
	db, recorder := e.open(e.source(), poolSize)
	l := e.lockerOn(db, &Options{TTL: e.ttl(2 * time.Second)})
	_ = db.Close()
	return l, db, recorder
}

func testInvalidNames(e *env) {
	l, _, recorder := e.unused()
	before := recorder.statements.Load()
	for what, name := range map[string]string{
		"empty":             "",
		"256 bytes":         strings.Repeat("x", 256),
		"128 runes":         strings.Repeat("é", 128),
		"huge":              strings.Repeat("x", 1<<20),
		"NUL":               "a\x00b",
		"NUL at the end":    "a\x00",
		"lone NUL":          "\x00",
		"invalid UTF-8":     "a\xffb",
		"cut off UTF-8":     "a\xe2\x82",
		"a lone surrogate":  "\xed\xa0\x80",
		"over-long slash":   "\xc0\xaf",
		"beyond U+10FFFF":   "\xf4\x90\x80\x80",
		"Latin-1":           "caf\xe9",
		"over-long and NUL": "\xc0\x80",
	} {
		for call, f := range calls {
			e.wantError(call+" of a name that is "+what, f(e.ctx(), l, name), sqllock.ErrInvalidName)
		}
	}
	if n := recorder.statements.Load() - before; n != 0 {
		e.Errorf("%d statements were sent", n)
	}
}

func testInvalidOwners(e *env) {
	l, _, recorder := e.unused()
	before := recorder.statements.Load()
	for what, id := range map[string]string{
		"empty":         "",
		"256 bytes":     strings.Repeat("x", 256),
		"NUL":           "a\x00b",
		"invalid UTF-8": "a\xffb",
	} {
		for call, f := range calls {
			e.wantError(call+" by an owner that is "+what, f(sqllock.WithOwner(e.ctx(), id), l, "k"), sqllock.ErrInvalidOwner)
		}
	}
	if n := recorder.statements.Load() - before; n != 0 {
		e.Errorf("%d statements were sent", n)
	}
}

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
		e.wantHolderNamed(owned, other, name, text)
		if i > 0 {
			e.unlock(lease)
		} else if _, err := other.ForceUnlock(e.ctx(), name); err != nil {
			e.Errorf("ForceUnlock(%q): %v", name, err)
		} else {
			_ = lease.Unlock(e.ctx())
		}
		e.wantFree(other, name, timeLimit)
	}
}

// wantHolderNamed checks that a waiter with the owner and value text, in vain, gets an
// error that names a holder whose owner and label are text.
func (e *env) wantHolderNamed(owned context.Context, l *sqllock.Locker, name, text string) {
	e.Helper()
	var held *sqllock.HeldError
	var err error
	// The database may take longer to answer than a short wait.
	for wait := 20 * time.Millisecond; (held == nil || held.Label == "") && wait < timeLimit; wait *= 4 {
		var second *sqllock.Lease
		if second, err = l.Lock(owned, name, sqllock.Wait(wait), sqllock.Value([]byte(text))); err == nil {
			e.unlock(second)
			e.Fatalf("%q has two holders", name)
		}
		errors.As(err, &held)
	}
	if held == nil || held.Name != name || held.Label != text || held.Owner != text || !utf8.ValidString(err.Error()) {
		e.Errorf("a waiter for %q gets %+v", name, err)
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
	if info := e.inspect(l, name); info.KeptUntil.Sub(info.Now) > day || info.KeptUntil.Sub(info.Now) < day-timeLimit {
		e.Errorf("the name is kept until %v, want a day from %v", info.KeptUntil, info.Now)
	}
	if _, err := l.ForceUnlock(e.ctx(), name); err != nil {
		e.Fatalf("ForceUnlock: %v", err)
	}
	e.unlock(e.forced(l, name))
}
