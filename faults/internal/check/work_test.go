package check_test

import (
	"strings"
	"testing"

	"github.com/sqllock/sqllock/faults/internal/check"
	"github.com/sqllock/sqllock/faults/internal/history"
)

// guarded is a guarded write that was accepted, or not.
func guarded(who string, from int64, ok bool) story {
	return call(history.Guarded, who, from, from+1, func(e *history.Event) { e.OK = ok && e.Ret })
}

func TestACellThatHasDoneTooLittleIsFound(t *testing.T) {
	all := lock("d", 40, 50, 4)
	all[0].Reason, all[1].Reason = "all", "all"
	refused := lock("e", 60, 70, 0)
	refused[1].Err = "held by another"
	inspected := call(history.Inspect, "a", 14, 15, func(e *history.Event) { e.Err = "it is down" })
	s := tell(lock("a", 0, 10, 1), guarded("a", 11, true), guarded("a", 13, false), inspected, unlock("a", 16, 17),
		shared(lock("b", 20, 30, 2)), permit(0, lock("c", 30, 40, 3)), all, refused, ticks(1000), kept(11_000, 0))
	for what, n := range map[string]int{
		history.Exclusive: 1, history.Shared: 1, history.Permit: 1, history.Together: 1, history.Guarded: 1, history.Unlock: 1,
		history.Inspect: 0, history.Fenced: 0, history.Once: 0, history.Rows: 3, history.Kept: 1,
	} {
		least := rules
		least.Least = map[string]int{what: n}
		if found := check.TooLittle(s, least); len(found) != 0 {
			t.Errorf("%s: %v", what, found)
		}
		least.Least = map[string]int{what: n + 1}
		found := check.TooLittle(s, least)
		name := check.Work
		if what == history.Rows {
			name = check.Rows
		}
		if len(found) != 1 || found[0].Check != name || name == check.Work && !strings.Contains(found[0].What, what) {
			t.Errorf("%s: %v", what, found)
		}
	}
	least := rules
	least.Least = map[string]int{history.Exclusive: 1, history.Guarded: 1}
	if found := check.TooLittle(nil, least); len(found) != 2 {
		t.Errorf("nothing was done: %v", found)
	}
}

func TestACellThatHasReplayedTooLittleIsFound(t *testing.T) {
	replayed := rules
	replayed.Replayed = true
	for _, c := range []struct {
		what  string
		r     check.Replayed
		rules check.Rules
		found int
	}{
		{"enough", check.Replayed{Operations: 20, Changes: 1}, replayed, 0},
		{"nothing", check.Replayed{}, replayed, 1},
		{"nothing, and nothing was to be replayed", check.Replayed{}, rules, 0},
		{"no change", check.Replayed{Operations: 20}, replayed, 1},
		{"less than was acquired", check.Replayed{Operations: 19, Changes: 1, Excused: 100}, replayed, 1},
		{"names with a change that is too hard", check.Replayed{Hard: 1, Unjudged: 20}, replayed, 0},
	} {
		found := c.r.TooLittle(c.rules, 20)
		if len(found) != c.found || c.found > 0 && found[0].Check != check.Work {
			t.Errorf("%s: %v", c.what, found)
		}
	}
	none := check.Again(nil, replayed)
	if found := none.TooLittle(replayed, 1); len(found) != 1 {
		t.Errorf("a history without anything: %v", found)
	}
}

func TestTheKindOfACallWithOptionsIsThatOfTheCall(t *testing.T) {
	s := with(history.Options{}, lock("a", 0, 10, 1))
	for i := range s {
		s[i].Kind = history.Adopted
	}
	least := rules
	least.Least = map[string]int{history.Adopted: 1}
	if found := check.TooLittle(s, least); len(found) != 0 {
		t.Errorf("%v", found)
	}
	least.Least = map[string]int{history.Exclusive: 1}
	if found := check.TooLittle(s, least); len(found) != 1 {
		t.Errorf("%v", found)
	}
}
