package check_test

import (
	"testing"

	"github.com/sqllock/sqllock/faults/internal/check"
	"github.com/sqllock/sqllock/faults/internal/history"
	"github.com/sqllock/sqllock/faults/internal/register"
)

// wrote is a write to the fenced register. written is its result in the register.
func wrote(who string, from, to, token, n int64) story {
	return call(history.Fenced, who, from, to, func(e *history.Event) { e.Token, e.N, e.OK = token, n, e.Ret })
}

func written(n int64, whole ...register.Written) register.Final {
	return register.Final{Writes: whole, N: map[string]map[string]int64{register.Fenced: {"n": n}}}
}

func fenced(who string, token, n int64) register.Written {
	return register.Written{ID: who + "/" + history.Fenced, Kind: register.Fenced, Name: "n", Token: token, N: n}
}

func announced(who string, from, to, token int64, ok bool) story {
	return call(history.Announce, who, from, to, func(e *history.Event) { e.Token, e.OK = token, e.Ret && ok })
}

// terms are two terms, each with one holder that writes.
func terms(second int64) story {
	return tell(
		lock("a", 0, 10, 1), announced("a", 11, 12, 1, true), wrote("a", 13, 14, 1, 1), looked("a", 20, 900), unlock("a", 30, 40),
		lock("b", 50, 60, 2), announced("b", 61, 62, 2, true), wrote("b", 63, 64, 2, second), looked("b", 70, 900), unlock("b", 80, 90))
}

func TestARegisterThatContradictsItsWritersIsFound(t *testing.T) {
	s := terms(2)
	wants(t, "as it should be", s, written(2, fenced("a", 1, 1), fenced("b", 2, 2)), rules)
	wants(t, "a write is missing", s, written(1, fenced("a", 1, 1)), rules, check.Register)
	wants(t, "one was written over", terms(1), written(1, fenced("a", 1, 1), fenced("b", 2, 1)), rules, check.Register)
	wants(t, "an older term wrote later", s, written(2, fenced("b", 2, 1), fenced("a", 1, 2)), rules, check.Register)
	wants(t, "it says another number", s, written(3, fenced("a", 1, 1), fenced("b", 2, 2)), rules, check.Register)
	refused := terms(2)
	for i, e := range refused {
		if e.Op == history.Fenced && e.Proc == "b" {
			refused[i].OK = false
		}
	}
	wants(t, "a write that was refused is there", refused, written(2, fenced("a", 1, 1), fenced("b", 2, 2)), rules, check.Register)
}

func TestAWriteWithUnknownOutcomeMayBePresentOrAbsent(t *testing.T) {
	s := terms(2)
	for i, e := range s {
		if e.Op == history.Fenced && e.Proc == "b" && e.Ret {
			s[i].OK, s[i].Err = false, "the connection broke"
		}
	}
	wants(t, "it is there", s, written(2, fenced("a", 1, 1), fenced("b", 2, 2)), rules)
	wants(t, "it is not", s, written(1, fenced("a", 1, 1)), rules)
}

func TestARefusedWriteOfAHolderIsFound(t *testing.T) {
	s := tell(lock("a", 0, 10, 1), announced("a", 20, 30, 1, false))
	wants(t, "he still holds", tell(s, looked("a", 40, 900)), register.Final{}, rules, check.Refused)
	wants(t, "he does not know whether he does", s, register.Final{}, rules, check.Linear)
	later := tell(s, lock("b", 15, 16, 2), announced("b", 17, 18, 2, true))
	wants(t, "somebody else does", later, register.Final{}, rules)
}

func TestReadsWithoutAValidOrderAreFound(t *testing.T) {
	read := func(n int64) story {
		return tell(terms(2), lock("c", 100, 110, 3), call(history.Read, "c", 111, 112, func(e *history.Event) { e.N = n }), unlock("c", 120, 130))
	}
	final := written(2, fenced("a", 1, 1), fenced("b", 2, 2))
	wants(t, "the last write", read(2), final, rules)
	wants(t, "the one before", read(1), final, rules, check.Linear)
}

func TestAnInspectionThatContradictsItselfIsFound(t *testing.T) {
	inspection := func(start int64) story {
		return call(history.Inspect, "a", start, start+1, func(e *history.Event) {
			e.ID += string(rune('0' + start%10))
			if e.Ret {
				e.Owner, e.Token, e.Start = "a", 1, start/100
			}
		})
	}
	held := tell(lock("a", 0, 10, 1), inspection(101), inspection(102))
	wants(t, "one start of one term", tell(held, looked("a", 150, 900), unlock("a", 160, 170)), register.Final{}, rules)
	wants(t, "the start moves", tell(held, inspection(203), looked("a", 250, 900), unlock("a", 260, 270)), register.Final{}, rules, check.Linear)
}

func TestUnprotectedWritesAreCountedWhenTheyComeLate(t *testing.T) {
	plain := func(name string, token, n int64) register.Written {
		return register.Written{Kind: register.Plain, Name: name, Token: token, N: n}
	}
	final := register.Final{Writes: []register.Written{plain("n", 1, 1), plain("n", 3, 2), plain("n", 2, 3), plain("m", 1, 1), plain("n", 3, 4)}}
	if n := check.Unprotected(final); n != 1 {
		t.Errorf("counted %d", n)
	}
}
