package sqllock_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sqllock/sqllock"
	"github.com/sqllock/sqllock/driver"
)

func TestASequencerSurvivesTheWayThroughItsText(t *testing.T) {
	const most = 1<<53 - 1
	for _, test := range []struct {
		seq  sqllock.Sequencer
		text string
	}{
		{sqllock.Sequencer{Name: "invoice/42", Token: 1763751135004561}, "sqllock1:invoice/42:exclusive:1763751135004561"},
		{sqllock.Sequencer{Name: "a-b._~/Z9", Shared: true, Token: 1}, "sqllock1:a-b._~/Z9:shared:1"},
		{sqllock.Sequencer{Name: "k ", Token: most}, "sqllock1:k%20:exclusive:9007199254740991"},
		{sqllock.Sequencer{Name: "100%:\r\n\x01,;\"", Token: 7}, "sqllock1:100%25%3A%0D%0A%01%2C%3B%22:exclusive:7"},
		{sqllock.Sequencer{Name: "ä\U0001f512", Token: 7}, "sqllock1:%C3%A4%F0%9F%94%92:exclusive:7"},
		{sqllock.Sequencer{Name: "a:shared:1", Token: 7}, "sqllock1:a%3Ashared%3A1:exclusive:7"},
		{sqllock.Sequencer{Name: strings.Repeat("\x7f", 255), Token: most}, "sqllock1:" + strings.Repeat("%7F", 255) + ":exclusive:9007199254740991"},
	} {
		text := test.seq.String()
		if text != test.text {
			t.Errorf("%#v is written as %s, want %s", test.seq, text, test.text)
		}
		for i := range len(text) {
			if text[i] <= ' ' || text[i] > '~' {
				t.Errorf("%q is not fit for a header: %q", text, text[i])
			}
		}
		if got, err := sqllock.ParseSequencer(text); err != nil || got != test.seq {
			t.Errorf("ParseSequencer(%q) = %#v, %v", text, got, err)
		}
	}
	if n := len(strings.Repeat("%7F", 255)) + len("sqllock1::permit-9999:9007199254740991"); n != 803 {
		t.Errorf("the longest has %d bytes", n)
	}
}

func TestAMalformedSequencerIsRefusedWithTheTextAndTheRule(t *testing.T) {
	for text, rule := range map[string]string{
		"":                                                      `must begin with "sqllock1:"`,
		"sqllock1":                                              "has 1 parts",
		"sqllock2:a:exclusive:7":                                "must begin with",
		"SQLLOCK1:a:exclusive:7":                                "must begin with",
		" sqllock1:a:exclusive:7":                               "must begin with",
		"sqllock1:a:exclusive":                                  "has 3 parts",
		"sqllock1:a:exclusive:7:":                               "has 5 parts",
		"sqllock1:a:Exclusive:7":                                `the third part is "Exclusive"`,
		"sqllock1:a::7":                                         `the third part is ""`,
		"sqllock1::exclusive:7":                                 "it is empty",
		"sqllock1:a b:exclusive:7":                              "must be escaped as %20",
		"sqllock1:ä:exclusive:7":                                "must be escaped as %C3",
		"sqllock1:%3a:exclusive:7":                              "upper case",
		"sqllock1:%61:exclusive:7":                              "must not be escaped: it stands for 'a'",
		"sqllock1:%:exclusive:7":                                "must be a percent sign and two hexadecimal digits",
		"sqllock1:%2:exclusive:7":                               "must be a percent sign and two hexadecimal digits",
		"sqllock1:%+1:exclusive:7":                              "must be a percent sign and two hexadecimal digits",
		"sqllock1:%00:exclusive:7":                              "NUL",
		"sqllock1:%FF:exclusive:7":                              "not valid UTF-8",
		"sqllock1:a:exclusive:":                                 "without leading zeros",
		"sqllock1:a:exclusive:07":                               "without leading zeros",
		"sqllock1:a:exclusive:+7":                               "without leading zeros",
		"sqllock1:a:exclusive:7 ":                               "without leading zeros",
		"sqllock1:a:exclusive:7\n":                              "without leading zeros",
		"sqllock1:a:exclusive:7_0":                              "without leading zeros",
		"sqllock1:a:exclusive:0x7":                              "without leading zeros",
		"sqllock1:a:exclusive:٧":                                "without leading zeros",
		"sqllock1:a:exclusive:0":                                "must be from 1 to 9007199254740991",
		"sqllock1:a:exclusive:-7":                               "must be from 1 to 9007199254740991",
		"sqllock1:a:exclusive:9007199254740992":                 "must be from 1 to 9007199254740991",
		"sqllock1:a:exclusive:99999999999999999999":             "without leading zeros",
		"sqllock1:" + strings.Repeat("a", 256) + ":exclusive:7": "256 bytes are too long",
		strings.Repeat("x", 804):                                "804 bytes are too long, 803 are allowed",
		"sqllock1:a:permit-:7":                                  "without leading zeros",
		"sqllock1:a:permit-01:7":                                "without leading zeros",
		"sqllock1:a:permit-10000:7":                             "must be from 0 to 9999",
		"sqllock1:a:permit--1:7":                                "must be from 0 to 9999",
	} {
		s, err := sqllock.ParseSequencer(text)
		switch {
		case s != sqllock.Sequencer{} || !errors.Is(err, sqllock.ErrInvalidSequencer):
			t.Errorf("ParseSequencer(%q) = %+v, %v", text, s, err)
		case !strings.Contains(err.Error(), rule) || text != "" && !strings.Contains(err.Error(), strings.Trim(fmt.Sprintf("%+q", text)[:min(len(text), 12)], `"`)):
			t.Errorf("ParseSequencer(%q): %v; want the text, and %q", text, err, rule)
		case len(err.Error()) > 1000:
			t.Errorf("an error of %d bytes", len(err.Error()))
		}
	}
	if _, err := sqllock.ParseSequencer("sqllock1:%00:exclusive:7"); !errors.Is(err, sqllock.ErrInvalidName) {
		t.Errorf("of an invalid name: %v", err)
	}
}

func FuzzParseSequencer(f *testing.F) {
	for _, text := range []string{
		"sqllock1:a/b:exclusive:7", "sqllock1:%C3%A4%25%3A:shared:9007199254740991", "sqllock1:%61:exclusive:7", "sqllock1:a:exclusive:07\n", "sqllock1:%E2%82:shared:1",
	} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		s, err := sqllock.ParseSequencer(text)
		if err != nil {
			if !errors.Is(err, sqllock.ErrInvalidSequencer) || s != (sqllock.Sequencer{}) {
				t.Errorf("%+v, %v", s, err)
			}
			// What is refused as a text may be a name.
			s = sqllock.Sequencer{Name: text, Shared: len(text)%2 == 0, Token: int64(len(text)) + 1}
			if got, err := sqllock.ParseSequencer(s.String()); err == nil && got != s || (err == nil) != (driver.CheckName(text) == nil) {
				t.Errorf("%q came back as %+v, %v", s, got, err)
			}
			return
		}
		if s.String() != text {
			t.Errorf("%q is read as what is written as %q", text, s.String())
		}
	})
}

func TestASequencerIsThatOfTheTerm(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, newFake(), nil)
		defer b.close()
		lease := b.lock("a")
		again, err := b.Lock(lease.Context(), "a")
		if err != nil {
			t.Fatal(err)
		}
		want := sqllock.Sequencer{Name: "a", Token: lease.Token()}
		if lease.Sequencer() != want || again.Sequencer() != want {
			t.Errorf("%v and %v, want %v", lease.Sequencer(), again.Sequencer(), want)
		}
		b.unlock(again)
		b.unlock(lease)
		if lease.Sequencer() != want {
			t.Errorf("after Unlock %v", lease.Sequencer())
		}
		reader, err := b.RLock(t.Context(), "a")
		if err != nil {
			t.Fatal(err)
		}
		if got := reader.Sequencer(); got != (sqllock.Sequencer{Name: "a", Shared: true, Token: reader.Token()}) {
			t.Errorf("a reader's is %v", got)
		}
		b.unlock(reader)
	})
}

// wantSequencer checks what is said of a sequencer.
func wantSequencer(t *testing.T, check func(context.Context, sqllock.Sequencer) (sqllock.SequencerState, error), s sqllock.Sequencer, want sqllock.SequencerState) {
	t.Helper()
	if got, err := check(t.Context(), s); got != want || err != nil {
		t.Errorf("%v is %v, %v; want %v", s, got, err, want)
	}
}

func TestASequencerIsCurrentUntilItsTermHasEnded(t *testing.T) {
	const current, stale, unknown = sqllock.SequencerCurrent, sqllock.SequencerStale, sqllock.SequencerUnknown
	synctest.Test(t, func(t *testing.T) {
		db := newFake()
		holder, b := newBench(t, db, &sqllock.UniqueOptions{TTL: ttl}), newBench(t, db, nil)
		defer holder.close()
		defer b.close()
		query := func(s sqllock.Sequencer, want sqllock.SequencerState) {
			t.Helper()
			n := db.count("look")
			wantSequencer(t, b.CheckSequencer, s, want)
			if n = db.count("look") - n; n != 1 {
				t.Errorf("%d statements", n)
			}
		}
		query(sqllock.Sequencer{Name: "a", Token: 7}, unknown)
		lease := holder.lock("a")
		first := lease.Sequencer()
		time.Sleep(10 * ttl) // it is renewed
		query(first, current)
		query(sqllock.Sequencer{Name: "a", Token: first.Token + 1}, unknown)
		query(sqllock.Sequencer{Name: "a", Token: first.Token - 1}, stale)
		query(sqllock.Sequencer{Name: "a", Token: first.Token, Shared: true}, stale)
		query(sqllock.Sequencer{Name: "A", Token: first.Token}, unknown)
		holder.unlock(lease)
		query(first, stale)

		crash(t, db, "a") // for a second
		info, err := b.Inspect(t.Context(), "a")
		if err != nil {
			t.Fatal(err)
		}
		crashed := sqllock.Sequencer{Name: "a", Token: info.Token}
		query(crashed, current)
		time.Sleep(1100 * time.Millisecond)
		query(crashed, stale)
		if _, err := b.Reaper().Reap(t.Context()); err != nil {
			t.Error(err)
		}
		query(crashed, stale)

		kept := holder.lock("a", sqllock.MinHold(time.Hour))
		holder.unlock(kept)
		query(kept.Sequencer(), stale) // nobody else can have the name, but the term has ended
		if _, err := b.ForceUnlock(t.Context(), "a"); err != nil {
			t.Error(err)
		}
		query(kept.Sequencer(), stale)
		forced := holder.lock("a")
		if _, err := b.ForceUnlock(t.Context(), "a"); err != nil {
			t.Error(err)
		}
		query(forced.Sequencer(), stale)
		_ = forced.Unlock(t.Context())

		delayed := holder.lock("a", sqllock.MaxHold(ttl), sqllock.LockDelay(time.Minute))
		time.Sleep(2 * ttl)
		query(delayed.Sequencer(), current) // what was sent in time may still arrive
		time.Sleep(time.Minute)
		query(delayed.Sequencer(), stale)
		_ = delayed.Unlock(t.Context())
	})
}

func TestASharedSequencerIsCurrentWhileAnybodyReads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := newFake()
		b := newBench(t, db, nil)
		defer b.close()
		var readers []*sqllock.Lease
		for range 2 {
			lease, err := b.RLock(t.Context(), "a")
			if err != nil {
				t.Fatal(err)
			}
			readers = append(readers, lease)
		}
		s := readers[0].Sequencer()
		wantSequencer(t, b.CheckSequencer, s, sqllock.SequencerCurrent)
		wantSequencer(t, b.CheckSequencer, sqllock.Sequencer{Name: "a", Token: s.Token}, sqllock.SequencerStale)
		b.unlock(readers[0])
		wantSequencer(t, b.CheckSequencer, s, sqllock.SequencerCurrent)
		b.unlock(readers[1])
		wantSequencer(t, b.CheckSequencer, s, sqllock.SequencerStale)
	})
}

func TestACheckThatFailsSaysUnknownAndWhy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := newFake()
		b := newBench(t, db, nil)
		checker, err := sqllock.NewSequencerChecker(b.Locker, nil)
		if err != nil {
			t.Fatal(err)
		}
		checks := map[string]func(context.Context, sqllock.Sequencer) (sqllock.SequencerState, error){
			"CheckSequencer": b.CheckSequencer, "Check": checker.Check,
		}
		lease := b.lock("a")
		s := lease.Sequencer()
		over, cancel := context.WithCancel(t.Context())
		cancel()
		fails := func(what string, ctx context.Context, s sqllock.Sequencer, want error, says string) {
			t.Helper()
			for name, check := range checks {
				if state, err := check(ctx, s); state != sqllock.SequencerUnknown || !errors.Is(err, want) || !strings.Contains(err.Error(), says) {
					t.Errorf("%s, %s: %v, %v; want %v, %q", name, what, state, err, want, says)
				}
			}
		}
		n := db.count("look")
		fails("no token", t.Context(), sqllock.Sequencer{Name: "a"}, sqllock.ErrInvalidSequencer, "token 0 must be from 1")
		fails("no name", t.Context(), sqllock.Sequencer{Token: 1}, sqllock.ErrInvalidName, "empty")
		fails("a name too long", t.Context(), sqllock.Sequencer{Name: strings.Repeat("a", 256), Token: 1}, sqllock.ErrInvalidSequencer, "256 bytes")
		fails("a context that is over", over, s, context.Canceled, `of "a"`)
		if db.count("look") != n {
			t.Error("the database was asked")
		}
		db.set(func(f *fake) { f.before = failing("look", errDenied) })
		fails("a database that refuses", t.Context(), s, errDenied, `of "a"`)
		db.set(func(f *fake) { f.before = nil })
		b.unlock(lease)
		b.close()
		fails("a closed Locker", t.Context(), s, sqllock.ErrClosed, "closed")
	})
}

func TestTheStatesOfASequencerHaveNames(t *testing.T) {
	for state, want := range map[sqllock.SequencerState]string{
		sqllock.SequencerUnknown: "unknown", sqllock.SequencerCurrent: "current", sqllock.SequencerStale: "stale", 9: "SequencerState(9)",
	} {
		if state.String() != want {
			t.Errorf("%s, want %s", state, want)
		}
	}
	var none sqllock.SequencerState
	if none != sqllock.SequencerUnknown {
		t.Error("what was not set is not unknown")
	}
}
