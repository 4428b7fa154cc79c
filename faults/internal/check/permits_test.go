package check_test

import (
	"fmt"
	"testing"

	"github.com/sqllock/sqllock/faults/internal/check"
	"github.com/sqllock/sqllock/faults/internal/history"
	"github.com/sqllock/sqllock/faults/internal/register"
)

// ofThree are the rules for semaphores of three permits.
func ofThree() check.Rules {
	r := rules
	r.Permits = 3
	return r
}

// permit makes the events of a lease those of a permit.
func permit(slot int, s story) story {
	for i := range s {
		s[i].Permit, s[i].Slot = true, slot
	}
	return s
}

// heldPermit is a permit that is held from one time on, until it is unlocked, if it is. Its holder sees
// that it holds at the times between.
func heldPermit(who string, slot int, from, to, token int64) story {
	s := tell(lock(who, from-10, from, token), looked(who, (from+to)/2, 900), looked(who, to-1, 900))
	return permit(slot, tell(s, unlock(who, to, to+10)))
}

func TestMorePermitsThanThereAreAreFound(t *testing.T) {
	full := tell(heldPermit("a", 0, 10, 500, 1), heldPermit("b", 1, 20, 500, 2), heldPermit("c", 2, 30, 100, 3))
	wants(t, "three", full, register.Final{}, ofThree())
	wants(t, "the next in the same slot", tell(full, heldPermit("d", 2, 110, 500, 4)), register.Final{}, ofThree())
	wants(t, "a fourth", tell(full, heldPermit("d", 3, 40, 90, 4)), register.Final{}, ofThree(), check.Overlap, check.Remaining)
	wants(t, "a slot twice", tell(full, heldPermit("d", 1, 110, 500, 4)), register.Final{}, ofThree(), check.Overlap, check.Linear)
	wants(t, "a lock", tell(full, lock("d", 0, 110, 4), looked("d", 120, 900)), register.Final{}, ofThree(), check.Overlap)
	wants(t, "a reader", tell(full, shared(lock("d", 0, 110, 4)), looked("d", 120, 900)), register.Final{}, ofThree(), check.Overlap)
	gone := permit(1, tell(lock("b", 10, 20, 2), looked("b", 40, 900)))
	four := tell(heldPermit("a", 0, 10, 500, 1), gone, heldPermit("c", 2, 30, 500, 3), heldPermit("d", 3, 60, 500, 4))
	wants(t, "a fourth before a deadline", four, register.Final{}, ofThree(), check.Remaining)
	unsteady := ofThree()
	unsteady.Unsteady = true
	wants(t, "the clock was set", tell(full, heldPermit("d", 3, 40, 90, 4)), register.Final{}, unsteady)
}

func TestTooFewPermitsAreFound(t *testing.T) {
	var few, alone, full story
	for i := range int64(20) {
		who, from, to := fmt.Sprint(i), 100*i, 100*i+300
		full = tell(full, heldPermit(who, int(i%3), from, to, i))
		alone = tell(alone, heldPermit(who, 0, from, to-200, i))
		if i > 0 {
			few = tell(few, heldPermit(who, int(i%3), from, to, i))
		}
	}
	for _, c := range []struct {
		what   string
		s      story
		failed int
	}{{"enough", full, 0}, {"one less", few, 1}, {"one at a time", alone, 1}, {"none", nil, 1}} {
		if found := check.Few(c.s, ofThree()); len(found) != c.failed {
			t.Errorf("%s: %v", c.what, found)
		}
	}
	if c := check.Count(tell(full, lock("lock", 3000, 3010, 99)), ofThree()); c.Permits != 20 || c.Beside != 19 || c.Full != 18 || c.Acquisitions != 21 {
		t.Errorf("counted: %+v", c)
	}
}

func TestTokensOfPermitsThatDoNotRiseAreFound(t *testing.T) {
	one := heldPermit("a", 0, 10, 100, 5)
	wants(t, "another slot", tell(one, heldPermit("b", 1, 50, 100, 6)), register.Final{}, ofThree())
	wants(t, "the same token", tell(one, heldPermit("b", 1, 50, 100, 5)), register.Final{}, ofThree(), check.Token)
	wants(t, "a lower one of another slot", tell(one, heldPermit("b", 1, 50, 100, 4)), register.Final{}, ofThree(), check.Token)
	wants(t, "a lower one of the slot", tell(one, heldPermit("b", 0, 150, 200, 4)), register.Final{}, ofThree(), check.Token, check.Linear)
}

func TestEachSlotHasARegister(t *testing.T) {
	writes := func(who string, slot int, at, token, n int64) (story, register.Written) {
		s := permit(slot, tell(announced(who, at, at+1, token, true), wrote(who, at+2, at+3, token, n)))
		w := fenced(who, token, n)
		w.Name = history.Slot("n", slot)
		return s, w
	}
	values := map[string]map[string]int64{register.Fenced: {"n/0": 1, "n/1": 1}}
	holding := tell(heldPermit("a", 0, 10, 500, 1), heldPermit("b", 1, 20, 500, 2))
	higher, w2 := writes("b", 1, 100, 2, 1)
	lower, w1 := writes("a", 0, 200, 1, 1)
	both := register.Final{Writes: []register.Written{w1, w2}, N: values}
	wants(t, "a lower token of another slot is written later", tell(holding, higher, lower), both, ofThree())
	wants(t, "a write is missing", tell(holding, higher, lower), register.Final{Writes: []register.Written{w1}, N: values}, ofThree(), check.Register)
	refused := permit(0, announced("a", 200, 201, 1, false))
	values["fenced"]["n/0"] = 0
	wants(t, "a write is refused", tell(holding, higher, refused), register.Final{Writes: []register.Written{w2}, N: values}, ofThree(), check.Refused)
}

func TestAPermitThatIsLeftToNobodyIsFound(t *testing.T) {
	full := tell(heldPermit("a", 0, 4000, 6900, 1), heldPermit("b", 1, 4010, 6900, 2), heldPermit("c", 2, 4020, 5100, 3))
	next := func(from, to int64) story { return permit(2, tell(lock("d", from, to, 5), looked("d", to+1, 900))) }
	wants(t, "handed over", tell(full, next(4500, 5120)), register.Final{}, ofThree())
	wants(t, "after a TTL", tell(full, next(4500, 6100)), register.Final{}, ofThree(), check.Waiting)
	wants(t, "nobody waited", tell(full, next(6090, 6100)), register.Final{}, ofThree())
	wants(t, "all were held", tell(heldPermit("e", 2, 5200, 6050, 4), full, next(4500, 6100)), register.Final{}, ofThree())
	several := lock("e", 4500, 6200, 0)
	several[0].Reason, several[1].Reason, several[1].Err = "all", "all", "given up"
	wants(t, "a call for several names may have had it", tell(full, next(4500, 6100), several), register.Final{}, ofThree())
}

func TestADeadlockOfCallersThatLockInOneOrderIsFound(t *testing.T) {
	s := lock("a", 0, 10, 0)
	s[1].Err, s[1].Cycle = "deadlock", true
	wants(t, "a cycle", s, register.Final{}, rules, check.Waiting)
	all := lock("a", 0, 10, 0)[:1]
	all[0].Reason = "all"
	drained := rules
	drained.Drained = true
	wants(t, "a call for several names never returned", all, register.Final{}, drained, check.Waiting)
	wants(t, "not yet", all, register.Final{}, rules)
}
