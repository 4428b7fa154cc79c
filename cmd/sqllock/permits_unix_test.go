//go:build unix

package main

import (
	"fmt"
	"strings"
	"testing"
)

func TestPermitsAreHeldTogether(t *testing.T) {
	t.Parallel()
	onEachDB(t, func(t *testing.T, s *clientDB) {
		one := s.shell(t, "@UP; sleep 60", "--permits", "2", "n")
		s.run(t, "run", "--permits", "3", "n", "--", "echo", "ran").want(t, exitUnavailable, "", "has 2 permits, not 3")
		s.run(t, "run", "--try", "--permits", "2", "n", "--", "sh", "-c", "echo slot $SQLLOCK_SLOT").want(t, 0, "slot 1", "")
		two := s.shell(t, "@UP; sleep 60", "--permits", "2", "n")
		s.run(t, "run", "--try", "--permits", "2", "n", "--", "echo", "ran").want(t, exitHeld, "", "held")
		s.run(t, "run", "--try", "n", "--", "echo", "ran").want(t, exitHeld, "", "held")
		s.run(t, "ls").want(t, 0, "2 of 2 permits", "")
		s.run(t, "ls", "--json").want(t, 0, `"permits":2,"permits_held":2`, "")
		s.run(t, "inspect", "n").want(t, 0, "2, 2 held", "")
		s.showsPermits(t, "n")
		waiting := s.start(t, "run", "--permits", "2", "n", "--", "echo", "ran")
		one.end(t)
		waiting.wait().want(t, 0, "ran", "")
		two.end(t)
		s.run(t, "run", "--try", "n", "--", "echo", "ran").want(t, 0, "ran", "")
	})
}

// showsPermits checks what inspect says of the holders of two permits.
func (s *clientDB) showsPermits(t *testing.T, name string) {
	t.Helper()
	shown := strings.Fields(s.run(t, "inspect", name).out)
	x := entries(t, s.run(t, "inspect", "--json", name).out)[0]
	if len(x.Holders) != 2 {
		t.Fatalf("holders: %+v", x.Holders)
	}
	for i, h := range x.Holders {
		if h.Slot == nil || *h.Slot != i || h.Token == 0 || h.Label == "" || h.Owner == "" || h.Since == "" || h.Until <= h.Since {
			t.Errorf("holder %d: %+v", i, h)
		}
		part := fmt.Sprintf("slot %d token %d since ", i, h.Token)
		if text := strings.Join(shown, " "); !strings.Contains(text, part) || !strings.Contains(text, h.Label) {
			t.Errorf("%q of %s is missing in %s", part, h.Label, text)
		}
	}
	if x := entries(t, s.run(t, "ls", "--json").out)[0]; x.Holders != nil {
		t.Errorf("listed as JSON: %+v", x)
	}
}

func TestWhatDoesNotApplyToAPermitIsRefusedWithoutTheDatabase(t *testing.T) {
	t.Parallel()
	u := client{home: t.TempDir(), dsn: "postgres://u@127.0.0.1:1/d"}
	for text, flags := range map[string][]string{
		"must be from 1 to 10000":  {"--permits", "0"},
		"is not a whole number":    {"--permits", "some"},
		"excludes --shared":        {"--permits", "2", "--shared"},
		"excludes --shared and":    {"--permits", "2", "--once", "k"},
		"needs --mode unique":      {"--permits", "2", "--mode", "advisory"},
		"do not apply to a permit": {"--permits", "2", "--min-hold", "1s"},
	} {
		u.run(t, append(append([]string{"run"}, flags...), "n", "--", "echo", "ran")...).want(t, exitUsage, "", text)
	}
}
