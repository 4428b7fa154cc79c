package check_test

import (
	"slices"
	"testing"
	"time"

	"github.com/sqllock/sqllock/faults/internal/check"
	"github.com/sqllock/sqllock/faults/internal/history"
	"github.com/sqllock/sqllock/faults/internal/register"
)

const ms = int64(time.Millisecond)

var rules = check.Rules{TTL: time.Second, Grace: 3 * time.Second}

// A story is a history written by hand. Times are in milliseconds. A lease has the name
// of its holder.
type story []history.Event

// lock is a call of Lock from one time to another, which got a token.
func lock(who string, from, to, token int64) story {
	e := history.Event{T: from * ms, Op: history.Lock, ID: who, Lease: who, Proc: who, Name: "n", Reason: "wait"}
	r := e
	r.T, r.Ret, r.Token, r.Owner = to*ms, true, token, who
	return story{e, r}
}

// shared makes a lock one that is shared.
func shared(s story) story {
	for i := range s {
		s[i].Shared = true
	}
	return s
}

func unlock(who string, from, to int64) story { return call(history.Unlock, who, from, to, nil) }

// call is any other call under a lease.
func call(op, who string, from, to int64, returns func(e *history.Event)) story {
	e := history.Event{T: from * ms, Op: op, ID: who + "/" + op, Lease: who, Proc: who, Name: "n"}
	r := e
	r.T, r.Ret = to*ms, true
	if returns != nil {
		returns(&e)
		returns(&r)
	}
	return story{e, r}
}

// looked is a look at a held lease with its remaining time. lost is a look at a lost
// lease.
func looked(who string, at, left int64) story {
	return story{{T: at * ms, Until: at * ms, Op: history.Look, Lease: who, Proc: who, Name: "n", Left: left * ms, OK: true}}
}

func lost(who string, at int64) story {
	return story{{T: at * ms, Until: at * ms, Op: history.Look, Lease: who, Proc: who, Name: "n", Left: -1}}
}

func done(who string, at int64) story {
	return story{{T: at * ms, Op: history.Done, Lease: who, Proc: who, Name: "n", Lost: true}}
}

func fault(kind, who string, from, to int64, ends bool) story {
	e := history.Event{T: from * ms, Op: history.Fault, ID: kind + who, Reason: kind, Proc: who, Ends: ends}
	r := e
	r.T, r.Ret = to*ms, true
	return story{e, r}
}

// outage is a time in which the server takes no writes.
func outage(from, to int64) story {
	e := history.Event{T: from * ms, Op: history.Outage, ID: "outage"}
	r := e
	r.T, r.Ret = to*ms, true
	return story{e, r}
}

// kept is a lease that is kept, of a TTL, and lost after a time unless that is 0.
func kept(ttl, lost int64) story {
	e := history.Event{Op: history.Kept, Proc: "a", Name: "kept/a/0", N: ttl * ms}
	s := story{e}
	if lost > 0 {
		e.T, e.Lost = lost*ms, true
		s = append(s, e)
	}
	return s
}

func tell(parts ...story) story { return slices.Concat(parts...) }

// wants judges a story, and compares the names of the checks that failed.
func wants(t *testing.T, what string, s story, final register.Final, rules check.Rules, names ...string) {
	t.Helper()
	found, unordered := check.Ended(s, final, rules, time.Second)
	var failed []string
	for _, f := range found {
		if !slices.Contains(failed, f.Check) {
			failed = append(failed, f.Check)
		}
	}
	for _, name := range names {
		if !slices.Contains(failed, name) {
			t.Errorf("%s: check %q found nothing", what, name)
		}
	}
	if len(names) == 0 && len(found)+len(unordered) > 0 {
		t.Errorf("%s: found %v, undecided %v", what, found, unordered)
	}
}

func TestALeaseThatIsLostInAShortOutageIsFound(t *testing.T) {
	const ttl, longest = 11_000, 4_000 // as docs/operations.md promises
	for _, c := range []struct {
		what  string
		s     story
		found bool
	}{
		{"no loss", tell(kept(ttl, 0), outage(1_000, 60_000)), false},
		{"a loss without an outage", kept(ttl, 20_000), true},
		{"a loss after a short one", tell(kept(ttl, 20_000), outage(10_000, 10_000+longest)), true},
		{"a loss after a longer one", tell(kept(ttl, 20_000), outage(10_000, 10_001+longest)), false},
		{"a loss in a longer one", tell(kept(ttl, 20_000), outage(10_000, 40_000)), false},
		{"a loss long after a longer one", tell(kept(ttl, 40_000), outage(10_000, 20_000)), true},
		{"a loss after two with no time between them", tell(kept(ttl, 20_000), outage(10_000, 13_000), outage(14_000, 17_000)), false},
		{"a loss after two with time between them", tell(kept(ttl, 20_000), outage(10_000, 13_000), outage(16_000, 19_000)), true},
	} {
		var want []string
		if c.found {
			want = []string{check.Kept}
		}
		wants(t, c.what, c.s, register.Final{}, rules, want...)
	}
}

func TestOverlappingHoldersAreFound(t *testing.T) {
	a, b := tell(lock("a", 0, 10, 1), looked("a", 50, 900)), lock("b", 5, 40, 2)
	wants(t, "b before a's last look", tell(a, b, looked("b", 45, 900)), register.Final{}, rules, check.Overlap, check.Remaining, check.Linear)
	wants(t, "b after a's last look, before a's deadline", tell(lock("a", 0, 10, 1), looked("a", 20, 900), lock("b", 5, 40, 2), looked("b", 45, 900)), register.Final{}, rules, check.Remaining)
	wants(t, "b after a's deadline", tell(lock("a", 0, 10, 1), looked("a", 20, 900), lock("b", 5, 921, 2), looked("b", 922, 900)), register.Final{}, rules)
	wants(t, "b after a's Unlock", tell(lock("a", 0, 10, 1), looked("a", 20, 900), unlock("a", 30, 50), lock("b", 5, 31, 2), looked("b", 35, 900)), register.Final{}, rules)
	wants(t, "both share", tell(shared(lock("a", 0, 10, 1)), looked("a", 50, 900), shared(lock("b", 5, 40, 1)), looked("b", 45, 900)), register.Final{}, rules)
	wants(t, "one shares", tell(shared(lock("a", 0, 10, 1)), looked("a", 50, 900), lock("b", 5, 40, 2), looked("b", 45, 900)), register.Final{}, rules, check.Overlap)
}

func TestAnOverlapIsExcusedWhereASessionEndedOrTheClockWasSet(t *testing.T) {
	two := tell(lock("a", 0, 10, 1), looked("a", 50, 900), lock("b", 5, 40, 2), looked("b", 45, 900))
	cut := fault("net-reset", "a", 30, 35, true)
	sessions := rules
	sessions.Sessions = true
	wants(t, "a session was ended", tell(two, cut), register.Final{}, sessions)
	wants(t, "no session was ended", two, register.Final{}, sessions, check.Overlap)
	wants(t, "somebody else's session was ended", tell(two, fault("net-reset", "c", 30, 35, true)), register.Final{}, sessions, check.Overlap)
	wants(t, "a connection was cut, which ends no row", tell(two, cut), register.Final{}, rules, check.Overlap)
	unsteady := rules
	unsteady.Unsteady = true
	wants(t, "the clock was set", two, register.Final{}, unsteady)
}

func TestADeadHolderKeepsItsRowButNotItsSession(t *testing.T) {
	s := tell(lock("a", 0, 10, 1), looked("a", 20, 900), fault(check.Kill, "a", 30, 100, true), lock("b", 5, 40, 2), looked("b", 45, 900))
	wants(t, "a row", s, register.Final{}, rules, check.Remaining)
	sessions := rules
	sessions.Sessions = true
	wants(t, "a session", s, register.Final{}, sessions)
}

func TestALeaseMayEndBeforeItsHolderNotices(t *testing.T) {
	paused := tell(lock("a", 0, 100, 1), lock("b", 5, 40, 2), looked("b", 45, 900), unlock("b", 50, 60))
	wants(t, "it was lost by then", tell(paused, lost("a", 101)), register.Final{}, rules)
	wants(t, "it is held", tell(paused, looked("a", 101, 900)), register.Final{}, rules, check.Linear)
}

func TestTokensThatDoNotRiseAreFound(t *testing.T) {
	a := tell(lock("a", 0, 10, 5), unlock("a", 20, 30))
	wants(t, "it rises", tell(a, lock("b", 40, 50, 6)), register.Final{}, rules)
	wants(t, "it falls", tell(a, lock("b", 40, 50, 4)), register.Final{}, rules, check.Token, check.Linear)
	wants(t, "it is repeated", tell(a, lock("b", 5, 50, 5)), register.Final{}, rules, check.Token)
	wants(t, "they share", tell(shared(lock("a", 0, 10, 5)), shared(lock("b", 40, 50, 5))), register.Final{}, rules)
	wants(t, "a reader has the token of the writer before", tell(a, shared(lock("b", 40, 50, 5))), register.Final{}, rules, check.Token)
	wants(t, "a writer has the token of the readers before", tell(shared(lock("a", 0, 10, 5)), unlock("a", 20, 30), lock("b", 40, 50, 5)), register.Final{}, rules, check.Token)
	wants(t, "they came at the same time", tell(lock("a", 0, 10, 6), unlock("a", 11, 12), lock("b", 5, 8, 5), unlock("b", 9, 10)), register.Final{}, rules)
}

func TestLostCommitsExcuseOnlyTheTokensOfReaders(t *testing.T) {
	forgets := rules
	forgets.Unsteady, forgets.Forgets = true, true
	reader := tell(shared(lock("a", 0, 10, 5)), unlock("a", 20, 30))
	writer := tell(lock("b", 40, 50, 6), unlock("b", 60, 70))
	again := tell(reader, writer, shared(lock("c", 80, 90, 5)))
	wants(t, "a reader has the token of readers before", again, register.Final{}, forgets)
	wants(t, "nothing was forgotten", again, register.Final{}, rules, check.Token, check.Linear)
	wants(t, "a writer has it", tell(reader, writer, lock("c", 80, 90, 5)), register.Final{}, forgets, check.Token)
}

func TestAReentryWithAnotherTokenIsFound(t *testing.T) {
	enter := func(token int64) story {
		return tell(lock("a", 0, 10, 5), call(history.Enter, "a", 20, 30, func(e *history.Event) {
			if e.Ret {
				e.Token, e.Owner = token, "a"
			}
		}), looked("a", 40, 900), unlock("a", 50, 60))
	}
	wants(t, "the same", enter(5), register.Final{}, rules)
	wants(t, "another", enter(6), register.Final{}, rules, check.Reentry)
}

func TestAContextThatEndsLateIsFound(t *testing.T) {
	held := tell(lock("a", 0, 10, 1), looked("a", 900, 100))
	wants(t, "in time", tell(held, done("a", 1040)), register.Final{}, rules)
	wants(t, "late", tell(held, done("a", 1060)), register.Final{}, rules, check.Deadline)
	slow := done("a", 1060)
	slow[0].Late = 20 * ms
	wants(t, "late on a machine that was late", tell(held, slow), register.Final{}, rules)
	paused := fault(check.Pause, "a", 950, 2000, false)
	wants(t, "after a pause", tell(held, paused, done("a", 2090)), register.Final{}, rules)
	wants(t, "late after a pause", tell(held, paused, done("a", 2110)), register.Final{}, rules, check.Deadline)
}

func TestADeadlineCountedFromTheReplyIsFound(t *testing.T) {
	try := func(left int64) story {
		s := tell(lock("a", 0, 210, 1), looked("a", 210, left))
		s[0].Reason, s[1].Reason, s[1].Age = "try", "try", 200*ms
		return s
	}
	wants(t, "from the request", try(780), register.Final{}, rules)
	wants(t, "from the reply", try(988), register.Final{}, rules, check.Deadline)
}

func TestALeaseThatContradictsItselfIsFound(t *testing.T) {
	held := tell(lock("a", 0, 10, 1), looked("a", 20, 900))
	wants(t, "nothing strange", tell(held, lost("a", 950), unlockedLost("a", 960, 970)), register.Final{}, rules)
	wants(t, "it revived", tell(held, lost("a", 950), looked("a", 960, 10)), register.Final{}, rules, check.Loss)
	wants(t, "it revived after Done", tell(held, done("a", 950), looked("a", 960, 10)), register.Final{}, rules, check.Loss)
	wants(t, "Remaining is zero, Err is nil", tell(held, looked("a", 30, 0)), register.Final{}, rules, check.Loss)
	wants(t, "it is being unlocked", tell(held, unlock("a", 29, 40), looked("a", 30, 0)), register.Final{}, rules)
	wants(t, "Remaining is longer than the TTL", tell(held, looked("a", 30, 1001)), register.Final{}, rules, check.Loss)
	wants(t, "Unlock does not tell of the loss", tell(held, lost("a", 950), unlock("a", 960, 970)), register.Final{}, rules, check.Loss)
}

func unlockedLost(who string, from, to int64) story {
	return call(history.Unlock, who, from, to, func(e *history.Event) {
		if e.Ret {
			e.Err, e.Lost = "lost", true
		}
	})
}

func TestAWaiterWithoutAGrantIsFound(t *testing.T) {
	waits := lock("b", 100, 5100, 2)
	wants(t, "served after the fault", tell(fault("net-freeze", "a", 0, 2000, false), waits, looked("c", 5101, 0)), register.Final{}, rules, check.Waiting)
	wants(t, "the fault lasted", tell(fault("net-freeze", "a", 0, 2000, false), waits, fault("server-kill", "", 3000, 4000, false), looked("c", 5101, 0)), register.Final{}, rules)
	wants(t, "others were served", tell(fault("net-freeze", "a", 0, 2000, false), waits, lock("a", 50, 3500, 1), unlock("a", 3600, 3601), looked("c", 5101, 0)), register.Final{}, rules)
	wants(t, "it was killed", tell(fault(check.Kill, "b", 0, 2000, false), waits[:1], looked("c", 5101, 0)), register.Final{}, rules)
	drained := rules
	drained.Drained = true
	wants(t, "never", waits[:1], register.Final{}, drained, check.Waiting)
	wants(t, "not yet", waits[:1], register.Final{}, rules)
}

func TestAWaiterWithoutAGrantIsFoundBeforeAnyFault(t *testing.T) {
	opened := func(proc string, at int64) story { return story{{T: at * ms, Op: history.Open, Proc: proc}} }
	waits := tell(lock("b", 100, 5100, 2), looked("c", 5101, 0))
	wants(t, "all are there", tell(opened("c1.1", 50), opened("c2.1", 200), waits), register.Final{}, rules, check.Waiting)
	wants(t, "one came later", tell(opened("c1.1", 50), opened("c2.1", 3000), waits), register.Final{}, rules)
	wants(t, "another one took its place later", tell(opened("c1.1", 200), opened("c1.2", 3000), waits), register.Final{}, rules, check.Waiting)
	failed := opened("c2.1", 200)
	failed[0].Err = "it is down"
	wants(t, "one could not yet", tell(opened("c1.1", 50), failed, opened("c2.1", 3010), waits), register.Final{}, rules)
	wants(t, "the machine was busy", tell(opened("c1.1", 200), waits, story{{T: 2500 * ms, Until: 2600 * ms, Op: history.Busy}}), register.Final{}, rules)
	wants(t, "a fault came between", tell(opened("c1.1", 200), waits, fault("net-freeze", "a", 2500, 2600, false)), register.Final{}, rules)
}

func TestAnIdleNameWithAWaiterIsFound(t *testing.T) {
	given := tell(lock("a", 4000, 4010, 1), looked("a", 4050, 900), unlock("a", 4100, 4110))
	wants(t, "handed over", tell(given, lock("b", 3000, 4120, 2)), register.Final{}, rules)
	wants(t, "after a TTL", tell(given, lock("b", 3000, 5000, 2)), register.Final{}, rules, check.Waiting)
	wants(t, "nobody waited", tell(given, lock("b", 4990, 5000, 2)), register.Final{}, rules)
	wants(t, "a fault was active", tell(given, lock("b", 3000, 5000, 2), fault("net-freeze", "a", 2000, 2100, false)), register.Final{}, rules)
	others := tell(shared(lock("c", 4000, 4011, 1)), unlock("c", 4800, 4810))
	wants(t, "others shared it until then", tell(shared(given), others, lock("b", 3000, 5000, 2)), register.Final{}, rules)
}

func TestLeftoversOfAClientAreFound(t *testing.T) {
	wants(t, "a connection", story{{T: 1, Op: history.Left, Proc: "a", Reason: "connections", Err: "1 in use"}}, register.Final{}, rules, check.Left)
}

func TestOnlyClientsThatNothingHasDisturbedLeaveNothing(t *testing.T) {
	busy := func(from, to int64) story { return story{{T: from * ms, Until: to * ms, Op: history.Busy}} }
	drained := story{{T: 5000 * ms, Op: history.Drain, Proc: "a"}, {T: 6000 * ms, Op: history.Drain, Proc: "b"}, {T: 9000 * ms, Op: history.Changed}}
	s := tell(lock("a", 0, 10, 1), looked("a", 20, 900), unlock("a", 30, 40), drained)
	for _, c := range []struct {
		what string
		s    story
		want bool
	}{
		{"nothing has happened", s, true},
		{"a fault", tell(s, fault(check.Kill, "a", 50, 60, true)), false},
		{"a lease was lost", tell(s, lock("b", 50, 60, 2), done("b", 1060)), false},
		{"the machine was busy long before", tell(s, busy(100, 3990)), true},
		{"the machine was busy just before", tell(s, busy(100, 4100)), false},
		{"the machine was busy at the end", tell(s, busy(5500, 5600)), false},
	} {
		if got := check.Undisturbed(c.s, rules); got != c.want {
			t.Errorf("%s: %v", c.what, got)
		}
	}
}

func TestTheEventsOfALeaseAreCounted(t *testing.T) {
	s := tell(lock("a", 0, 10, 1), looked("a", 20, 500), fault("net-freeze", "a", 30, 900, false), done("a", 520),
		lock("b", 500, 800, 3), unlock("b", 810, 820), lock("c", 100, 950, 4))
	s = append(s, history.Event{T: 9e9, Op: history.Fault, ID: "resets", Reason: "net-reset"},
		history.Event{T: 9e9, Op: history.Fault, ID: "resets", Ret: true, N: 3})
	got := check.Count(s, rules)
	want := check.Counts{Acquisitions: 3, HandOvers: 2, Lost: 1, Active: 1, Recovering: 2, Faults: 4, Inversions: 1}
	if got != want {
		t.Errorf("counted %+v, want %+v", got, want)
	}
}
