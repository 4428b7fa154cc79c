package check_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/sqllock/sqllock/faults/internal/check"
	"github.com/sqllock/sqllock/faults/internal/history"
	"github.com/sqllock/sqllock/faults/internal/register"
)

// with gives the events of a Lock options. Times are ms.
func with(o history.Options, s story) story {
	o.MinHold, o.MaxHold, o.Delay = o.MinHold*ms, o.MaxHold*ms, o.Delay*ms
	if o.TTL *= ms; o.TTL == 0 {
		o.TTL = int64(rules.TTL)
	}
	for i := range s {
		if s[i].Op == history.Lock {
			s[i].Options, s[i].Kind = &o, history.Exclusive
		}
	}
	return s
}

// at is the time of the database's clock at the begin of a story, in µs. ticks tells that clock.
const at = 1_000_000_000

func ticks(until int64) (s story) {
	for t := int64(0); t <= until; t += 500 {
		s = append(s, history.Event{T: t * ms, Op: history.Rows, Wall: at + t*1000, Until: t * ms})
	}
	return s
}

// token is that of a lease that was granted at a time.
func token(t int64) int64 { return at + t*1000 }

func TestANameThatIsGrantedBeforeItsMinHoldIsFound(t *testing.T) {
	o := history.Options{MinHold: 500}
	a := tell(ticks(2000), with(o, tell(lock("a", 0, 20, token(10)), looked("a", 30, 900))), unlock("a", 40, 50))
	wants(t, "after it", tell(a, lock("b", 5, 512, token(511))), register.Final{}, rules)
	wants(t, "before it", tell(a, lock("b", 5, 480, token(480))), register.Final{}, rules, check.Options)
	wants(t, "a reader before it", tell(a, shared(lock("b", 5, 480, token(480)))), register.Final{}, rules, check.Options)
	died := tell(ticks(2000), with(o, tell(lock("a", 0, 20, token(10)), looked("a", 30, 400))), fault(check.Kill, "a", 35, 40, true))
	wants(t, "before it, when the lease has expired", tell(died, lock("b", 5, 480, token(480))), register.Final{}, rules, check.Options)
}

func TestANameThatIsGrantedBeforeItsLockDelayIsFound(t *testing.T) {
	o := history.Options{Delay: 200}
	a := tell(with(o, tell(lock("a", 0, 10, 1), looked("a", 20, 900))), done("a", 920))
	wants(t, "after it", tell(a, lock("b", 5, 1121, 2)), register.Final{}, rules)
	wants(t, "before it", tell(a, lock("b", 5, 1110, 2)), register.Final{}, rules, check.Options)
	wants(t, "it was unlocked", tell(with(o, tell(lock("a", 0, 10, 1), looked("a", 20, 900))), unlock("a", 30, 40), lock("b", 5, 50, 2)), register.Final{}, rules)
	wants(t, "it was unlocked when it was lost", tell(a, call(history.Unlock, "a", 930, 940, func(e *history.Event) { e.Err = "lost" }), lock("b", 5, 1110, 2)),
		register.Final{}, rules, check.Options)
	wants(t, "its loss was told", tell(with(o, tell(lock("a", 0, 10, 1), looked("a", 20, 900))), done("a", 500), lock("b", 5, 950, 2)), register.Final{}, rules)
}

func TestADetachedTermThatIsGrantedToAnotherIsFound(t *testing.T) {
	detach := call(history.Ends, "a", 30, 40, func(e *history.Event) { e.How, e.OK = history.ByDetach, true })
	a := tell(with(history.Options{}, tell(lock("a", 0, 10, 1), looked("a", 20, 900))), detach, unlock("a", 41, 42))
	wants(t, "after its TTL", tell(a, lock("b", 5, 1031, 2)), register.Final{}, rules)
	wants(t, "before", tell(a, lock("b", 5, 1020, 2)), register.Final{}, rules, check.Options)
	adopted := lock("b", 50, 60, 2)
	for i := range adopted {
		adopted[i].From, adopted[i].Reason = "a", "adopt"
	}
	wants(t, "to an adopter", tell(a, adopted), register.Final{}, rules)
	wants(t, "to an adopter with its token", tell(a, func() story { adopted[1].Token = 1; return adopted }()), register.Final{}, rules, check.Token)
}

func TestAValueOfAnotherIsFound(t *testing.T) {
	inspect := func(value string) story {
		return call(history.Inspect, "a", 20, 30, func(e *history.Event) {
			e.Owner, e.Token, e.Options = "a", 1, &history.Options{Value: value}
		})
	}
	a := tell(with(history.Options{Value: "v"}, lock("a", 0, 10, 1)), looked("a", 40, 900))
	wants(t, "its own", tell(a, inspect("v")), register.Final{}, rules)
	wants(t, "none", tell(a, inspect("")), register.Final{}, rules, check.Options)
}

func TestAPermitOfASemaphoreOfAnotherSizeIsFound(t *testing.T) {
	p := permit(0, lock("a", 0, 10, 1))
	for i := range p {
		p[i].Reason = history.Mismatch
	}
	wants(t, "granted", p, register.Final{}, ofThree(), check.Options)
	p[1].Err = "it has three"
	wants(t, "refused", p, register.Final{}, ofThree())
	p[1].OK = true
	wants(t, "said to be held", p, register.Final{}, ofThree(), check.Options)
}

func TestALeaseThatIsTrustedBeyondItsMaxHoldIsFound(t *testing.T) {
	o := history.Options{MaxHold: 300}
	wants(t, "until it", with(o, tell(lock("a", 0, 10, 1), looked("a", 100, 200))), register.Final{}, rules)
	wants(t, "beyond it", with(o, tell(lock("a", 0, 10, 1), looked("a", 100, 240))), register.Final{}, rules, check.Deadline)
}

// answered is a grant to a waiter by a release of another process, which the waiter reads later.
func answered(who string, from, to, token, expires int64) story {
	e := history.Event{T: from * ms, Wall: at + from*1000, Op: history.Requested, ID: who + "/request", Proc: who, Reason: history.Acquire}
	r := e
	r.T, r.Wall, r.Ret = to*ms, at+to*1000, true
	e.Requests = []history.Request{{Name: "n", Acq: who, Owner: who}}
	r.Requests = []history.Request{{Answer: history.Answer{Granted: true, Found: true, Got: token, Expires: at + expires*1000}}}
	return story{e, r}
}

func TestAWaiterThatTrustsMoreThanTheDatabaseHasGrantedIsFound(t *testing.T) {
	a := tell(lock("a", 0, 60, token(40)), answered("a", 50, 58, token(40), 540))
	wants(t, "as long", tell(a, looked("a", 70, 460)), register.Final{}, rules)
	wants(t, "longer", tell(a, looked("a", 70, 490)), register.Final{}, rules, check.Deadline)
	delayed := with(history.Options{Delay: 100}, tell(lock("a", 0, 60, token(40)), answered("a", 50, 58, token(40), 540)))
	wants(t, "the LockDelay, too", tell(delayed, looked("a", 70, 460)), register.Final{}, rules, check.Deadline)
	renewed := answered("a", 80, 90, token(40), 1200)
	renewed[0].Reason, renewed[0].ID, renewed[1].ID = history.Renew, "renewal", "renewal"
	wants(t, "it was renewed", tell(a, renewed, looked("a", 100, 1000)), register.Final{}, rules)
}

func TestRowsThatContradictAHolderAreFound(t *testing.T) {
	rows := func(token, expires int64, acq string) story {
		return story{{T: 50 * ms, Until: 60 * ms, Wall: at + 50_000, Op: history.Rows,
			Names: []history.Row{{Name: "n", Version: token, Acq: acq, Expires: at + expires*1000}}}}
	}
	a := tell(lock("a", 0, 10, token(5)), looked("a", 20, 900), looked("a", 70, 850))
	wants(t, "they agree", tell(a, rows(token(5), 1005, "a")), register.Final{}, rules)
	wants(t, "another token", tell(a, rows(token(6), 1005, "a")), register.Final{}, rules, check.Rows)
	wants(t, "nobody", tell(a, rows(token(5), 1005, "")), register.Final{}, rules, check.Rows)
	missing := rows(token(5), 1005, "a")
	missing[0].Names = nil
	wants(t, "no row", tell(a, missing), register.Final{}, rules, check.Rows)
	wants(t, "no row of a name that was unlocked", tell(lock("a", 0, 10, token(5)), looked("a", 20, 900), unlock("a", 25, 40), missing), register.Final{}, rules)
	wants(t, "no row of a name that was lost", tell(lock("a", 0, 10, token(5)), looked("a", 20, 900), missing), register.Final{}, rules)
	wants(t, "no row of a permit", permit(0, tell(a, missing)), register.Final{}, ofThree(), check.Rows)
	sessions := rules
	sessions.Sessions = true
	wants(t, "no row where sessions keep the locks", tell(a, missing), register.Final{}, sessions)
	wants(t, "an earlier end", tell(a, rows(token(5), 905, "a")), register.Final{}, rules, check.Deadline)
	unlocked := tell(lock("a", 0, 10, token(5)), looked("a", 20, 900), unlock("a", 25, 40))
	wants(t, "it was unlocked", tell(unlocked, rows(token(5), 1005, "a")), register.Final{}, rules, check.Rows)
	wants(t, "it was unlocked, and a crash undid that", tell(unlocked, fault("server-kill", "", 41, 45, true), rows(token(5), 1005, "a")), register.Final{}, rules)
	unknown := call(history.Ends, "a", 22, 24, func(e *history.Event) { e.How, e.Reason = history.ByDetach, history.Unknown })
	wants(t, "Detach did not know", tell(lock("a", 0, 10, token(5)), looked("a", 20, 900), unknown, unlock("a", 25, 40), rows(token(5), 1005, "a")), register.Final{}, rules)
	wants(t, "somebody else has it", tell(unlocked, rows(token(30), 1005, "b")), register.Final{}, rules)
}

func TestALossThroughAShortOutageIsFound(t *testing.T) {
	lost := func(reason string, outage int64, more ...story) story {
		s := tell(with(history.Options{TTL: 2000}, lock("a", 0, 10, 1)), looked("a", 20, 1970), done("a", 1990), fault(check.Outage, "", 600, 600+outage, false))
		for i := range s {
			if s[i].Op == history.Done {
				s[i].Reason = reason
			}
		}
		return tell(append(more, s)...)
	}
	const unanswered = "the database did not answer in time"
	wants(t, "half of its TTL", lost(unanswered, 1000), register.Final{}, rules, check.Loss)
	wants(t, "more", lost(unanswered, 1100), register.Final{}, rules)
	wants(t, "it was revoked", lost("revoked by force", 1000), register.Final{}, rules)
	wants(t, "the machine was busy, too", lost(unanswered, 1000, story{{T: 100 * ms, Until: 300 * ms, Op: history.Busy}}), register.Final{}, rules)
	wants(t, "the server was slow because of it", lost(unanswered, 1000, story{{T: 580 * ms, Until: 1650 * ms, Op: history.Busy}}), register.Final{}, rules, check.Loss)
	wants(t, "another process was paused, too", lost(unanswered, 1000, fault(check.Pause, "b", 100, 110, false)), register.Final{}, rules)
	wants(t, "another fault, too", lost(unanswered, 1000, fault("net-reset", "a", 100, 110, true)), register.Final{}, rules)
}

// ran is a run of a key: the Lock, and the end of the call of Once.
func ran(who string, from, to, token int64, ok bool, fails string) story {
	s := tell(lock(who, from, from+5, token), call(history.OnceEnds, who, from, to, func(e *history.Event) {
		if e.Ret {
			e.OK, e.Err = ok, fails
		}
	}), unlock(who, to-5, to))
	for i := range s {
		s[i].Key = "k"
	}
	return s
}

// in is the guarded write that completes the key of a run.
func in(who string, from, token, n int64) (story, register.Written) {
	s := call(history.Guarded, who, from, from+5, func(e *history.Event) { e.Key, e.Token, e.N, e.OK = "k", token, n, e.Ret })
	return s, register.Written{ID: who + "/" + history.Guarded, Kind: register.Guarded, Name: "n", Token: token, N: n}
}

func TestAKeyThatIsCompletedTwiceIsFound(t *testing.T) {
	a, b := ran("a", 0, 50, 1, true, ""), ran("b", 60, 90, 2, true, "")
	wants(t, "once", a, register.Final{}, rules)
	wants(t, "twice", tell(a, b), register.Final{}, rules, check.Once)
	wants(t, "the second time in vain", tell(a, ran("b", 60, 90, 2, true, "lost")), register.Final{}, rules)
	first, one := in("a", 10, 1, 1)
	second, two := in("b", 70, 2, 2)
	final := func(writes ...register.Written) register.Final {
		return register.Final{Writes: writes, N: map[string]map[string]int64{register.Guarded: {"n": int64(len(writes))}}}
	}
	wants(t, "once in a transaction", tell(a, first), final(one), rules)
	wants(t, "in two transactions", tell(a, first, ran("b", 60, 90, 2, true, "unknown"), second), final(one, two), rules, check.Once)
	wants(t, "in a transaction without a reply, and by another", tell(ran("a", 0, 50, 1, true, "unknown"), first, b), final(one), rules, check.Once)
	nobody := ran("b", 60, 90, 2, false, "")
	nobody = slices.DeleteFunc(nobody, func(e history.Event) bool { return e.Op != history.OnceEnds })
	wants(t, "complete, and nobody has run it", nobody, register.Final{}, rules, check.Once)
	wants(t, "complete, and somebody has run it", tell(a, nobody), register.Final{}, rules)
}

func TestCoverageNamesTheMissingPairs(t *testing.T) {
	users := []string{"u"}
	s := with(history.Options{MinHold: 1, Value: "v", User: "u"}, tell(lock("a", 0, 10, 1), unlock("a", 100, 110)))
	for i := range int64(5) {
		s = append(s, fault(check.Pause, "a", 20+i, 30+i, false)...)
	}
	c := check.Cover(s, rules, users)
	missing := c.Missing()
	for pair, met := range map[string]bool{
		"MinHold × Value": true, "exclusive × MinHold": true, "MinHold × pause": true, "u × Value": true, "exclusive × pause": true,
		"MaxHold × Value": false, "shared × pause": false, "lockall × MinHold": false,
		"u × exclusive": true, "u × pause": true, "u × shared": false, "exclusive × guarded": false, "detach × pause": false,
		"reader × reader of another TTL": false, "permit × permit of another TTL": false,
	} {
		if !c.Possible[pair] || c.Met[pair] > 0 != met || slices.Contains(missing, pair) == met {
			t.Errorf("%s: possible %v, met %d times, missing %v", pair, c.Possible[pair], c.Met[pair], slices.Contains(missing, pair))
		}
	}
	for _, pair := range []string{"shared × MinHold", "election × MaxHold", "permit × Value", "TTL 1 s × TTL 2 to 5 s", "exclusive × kill",
		"shared × guard", "permit × detach", "once × kept past MaxHold", "election × kept past MaxHold"} {
		if c.Possible[pair] {
			t.Errorf("%s cannot meet", pair)
		}
	}
	if few := c.Few(60); len(few) != 1 || few[0].Check != check.Covered || !strings.Contains(few[0].What, "MaxHold × Value") {
		t.Errorf("too few pairs: %v", few)
	}
	if few := c.Few(5); len(few) != 0 {
		t.Errorf("enough pairs: %v", few)
	}
}

func TestCoverageCountsLeasesThatAreHeldBesideThoseOfAnotherTTL(t *testing.T) {
	const readers, permits = "reader × reader of another TTL", "permit × permit of another TTL"
	lease := func(who string, from, to, ttl int64) story {
		return tell(with(history.Options{TTL: ttl}, lock(who, from, from+5, 1)), looked(who, from+6, 500), unlock(who, to, to+5))
	}
	reader := func(who string, from, to, ttl int64) story { return shared(lease(who, from, to, ttl)) }
	for _, c := range []struct {
		what string
		s    story
		met  map[string]int
	}{
		{"readers", tell(reader("a", 0, 100, 1000), reader("b", 50, 200, 2000)), map[string]int{readers: 1}},
		{"three readers", tell(reader("a", 0, 100, 1000), reader("b", 50, 200, 2000), reader("c", 60, 90, 3000)), map[string]int{readers: 3}},
		{"readers with one TTL", tell(reader("a", 0, 100, 1000), reader("b", 50, 200, 1000)), nil},
		{"one after the other", tell(reader("a", 0, 40, 1000), reader("b", 50, 200, 2000)), nil},
		{"permits", tell(permit(0, lease("a", 0, 100, 1000)), permit(1, lease("b", 50, 200, 2000))), map[string]int{permits: 1}},
		{"permits with one TTL", tell(permit(0, lease("a", 0, 100, 1000)), permit(1, lease("b", 50, 200, 1000))), nil},
		{"of two names", tell(reader("a", 0, 100, 1000), elsewhere(reader("b", 50, 200, 2000))), nil},
	} {
		cover := check.Cover(c.s, rules, nil)
		for _, pair := range []string{readers, permits} {
			if cover.Met[pair] != c.met[pair] || slices.Contains(cover.NotBeside(), pair) == (c.met[pair] > 0) {
				t.Errorf("%s: %s have met %d times; never met: %v", c.what, pair, cover.Met[pair], cover.NotBeside())
			}
		}
	}
}

// elsewhere is the same of another name.
func elsewhere(s story) story {
	for i := range s {
		s[i].Name = "m"
	}
	return s
}

func TestCoverageCountsHowALeaseHasEnded(t *testing.T) {
	unlocked := func(how string) story {
		return call(history.Unlock, "a", 60, 70, func(e *history.Event) { e.How = how })
	}
	ends := func(how, err string) story {
		return call(history.Ends, "a", 40, 50, func(e *history.Event) {
			if e.How = how; e.Ret {
				e.OK, e.Err = err == "", err
			}
		})
	}
	over := done("a", 50)
	unguarded := guarded("a", 40, false)
	unguarded[1].Err = "the connection broke"
	for _, c := range []struct {
		how  string
		s    story
		done bool
	}{
		{history.Plainly, nil, true},
		{history.ByDetach, ends(history.ByDetach, ""), true},
		{history.ByDetach, ends(history.ByDetach, "it is down"), false},
		{history.ByDetach, ends(history.ByDetach, "")[:1], false},
		{history.ByUnlockTx, ends(history.ByUnlockTx, ""), true},
		{history.ByUnlockTx, ends(history.ByUnlockTx, "rolled back at will"), false},
		{history.ByUnlockInTx, ends(history.ByUnlockInTx, ""), true},
		{history.ByUnlockInTx, nil, false},
		{history.AfterGuard, guarded("a", 40, true), true},
		{history.AfterGuard, guarded("a", 40, false), false},
		{history.AfterGuard, nil, false},
		{history.UnderGuard, guarded("a", 40, true), true},
		{history.UnderGuard, unguarded, false},
		{history.BeyondMaxHold, over, true},
		{history.BeyondMaxHold, nil, false},
	} {
		s := tell(with(history.Options{MaxHold: 30}, lock("a", 0, 10, 1)), c.s, unlocked(c.how))
		for i := range int64(3) { // of another process
			s = append(s, fault(check.Kill, "b", 20+i, 21+i, true)...)
			s = append(s, fault("server-pause", "", 30+i, 31+i, false)...)
		}
		cover := check.Cover(s, rules, nil)
		met := cover.Met
		if c.done && (met["exclusive × "+c.how] != 1 || met[c.how+" × server-pause"] != 1) {
			t.Errorf("%s: %v", c.how, met)
		}
		if cover.Possible[c.how+" × kill"] {
			t.Errorf("%s: a process that was killed ends nothing", c.how)
		}
		by := map[string]int{c.how: met[c.how+" × MaxHold"], history.Plainly: met[history.Plainly+" × MaxHold"]}
		want := c.how
		if !c.done {
			want = history.Plainly
		}
		if by[want] != 1 || want != c.how && by[c.how] != 0 {
			t.Errorf("%s, done %v: %v", c.how, c.done, by)
		}
	}
}

func TestCoverageKnowsTheStatesOfNamesInABatch(t *testing.T) {
	row := func(name string, r history.Row) history.Row { r.Name = name; return r }
	rows := history.Event{T: 10 * ms, Until: 11 * ms, Wall: at + 10_000, Op: history.Rows, Names: []history.Row{
		row("expired", history.Row{Acq: "a", Locker: "l", Expires: at + 9_000}), row("detached", history.Row{Acq: "a", Expires: at + 900_000}),
		row("kept", history.Row{Before: at + 900_000}), row("sized", history.Row{Permits: 2}), row("dead", history.Row{Claims: []history.Claim{{Locker: "gone"}}}),
		row("plain", history.Row{Acq: "a", Locker: "l", Expires: at + 900_000, Claims: []history.Claim{{Locker: "l"}}}),
	}}
	batch := history.Event{T: 12 * ms, Wall: at + 12_000, Op: history.Requested, ID: "r", Reason: history.Acquire}
	for _, name := range []string{"expired", "plain", "detached", "kept", "dead", "sized"} {
		q := history.Request{Name: name}
		if name == "sized" {
			q.Permits = 3
		}
		batch.Requests = append(batch.Requests, q)
	}
	beat := history.Event{T: 1 * ms, Op: history.Requested, ID: "beat", Proc: "x", Locker: "gone", Reason: history.Reading}
	c := check.Cover(tell(story{beat, rows, batch}, killed()), rules, nil)
	for state, met := range map[string]bool{"expired": false, "detached": true, "kept": true, "other permits": true, "crashed waiter": true, "guarded": false} {
		if pair := "later in a batch × " + state; !c.Possible[pair] || c.Met[pair] > 0 != met {
			t.Errorf("%s: possible %v, met %d times", pair, c.Possible[pair], c.Met[pair])
		}
	}
}

func killed() (s story) {
	for i := range int64(5) {
		s = append(s, fault(check.Kill, "x", 2+i, 3+i, true)...)
	}
	return s
}
