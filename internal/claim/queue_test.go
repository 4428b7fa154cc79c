package claim_test

import (
	"reflect"
	"slices"
	"testing"

	"github.com/sqllock/sqllock/driver"
	"github.com/sqllock/sqllock/internal/claim"
)

// waitsAt is a claim that waits at a place in the queue.
func waitsAt(seq int64, acq, locker int8, k claim.Kind) claim.Claim {
	return claim.Claim{Party: party(acq, locker), Limits: limits(10), Kind: k, State: claim.Waiting, Seq: seq, Since: seq}
}

// termOf is a claim that holds.
func termOf(acq, locker int8, k claim.Kind, seq, token, expires int64) claim.Claim {
	return claim.Claim{Party: party(acq, locker), Limits: limits(10), Kind: k, State: claim.Holding, Seq: seq, Token: token, Holds: 1,
		Since: seq, Expires: expires}
}

// free is the row of a name that nobody holds, whose counts are those of claims.
func free(claims ...claim.Claim) claim.Row {
	r := claim.Row{Version: 5, Seq: 20}
	for _, c := range claims {
		switch c.State {
		case claim.Waiting:
			r.Waiting++
		case claim.Holding:
			r.Holding++
		}
		if c.Kind == claim.Permit {
			r.Permits = 2
		}
	}
	return r
}

// wants is a request that waits.
func wants(acq, locker int8, k claim.Kind) claim.Request {
	r := claim.Request{Party: party(acq, locker), Limits: limits(10), Kind: k, Waits: true}
	if k == claim.Permit {
		r.Permits = 2
	}
	return r
}

// tries is a request that does not wait.
func tries(acq, locker int8, k claim.Kind) claim.Request {
	r := wants(acq, locker, k)
	r.Waits = false
	return r
}

// claimOf is what a visit leaves of an acquisition, or nil.
func claimOf(v *claim.Visit, before []claim.Claim, acq int8) *claim.Claim {
	done := v.Changes()
	for i := range done.Insert {
		if done.Insert[i].Acq == idOf(acq) {
			return &done.Insert[i]
		}
	}
	for i := range before {
		deleted := false
		for _, d := range done.Delete {
			deleted = deleted || d == before[i].Acq
		}
		if before[i].Acq == idOf(acq) && !deleted {
			return &before[i]
		}
	}
	return nil
}

func TestAQueueThatWasReadInPart(t *testing.T) {
	own := waitsAt(10, 0, 0, claim.Exclusive)
	for name, c := range map[string]struct {
		claims  []claim.Claim
		readTo  int64
		request claim.Request
		answer  claim.Outcome
		first   bool
		usedUp  bool
	}{
		"somebody may wait before a claim behind the part": {[]claim.Claim{own}, 3, wants(0, 0, claim.Exclusive), claim.Queued, false, true},
		"the last of the part is served":                   {[]claim.Claim{own}, 10, wants(0, 0, claim.Exclusive), claim.Granted, false, true},
		"the head of the whole queue is served":            {[]claim.Claim{own}, 0, wants(0, 0, claim.Exclusive), claim.Granted, false, false},
		"a newcomer does not pass the rest":                {nil, 3, wants(0, 0, claim.Exclusive), claim.Queued, false, true},
		"a newcomer does not pass the rest, and tries":     {nil, 3, tries(0, 0, claim.Exclusive), claim.Refused, false, true},
		"a newcomer is first where nobody waits":           {nil, 0, tries(0, 0, claim.Exclusive), claim.Granted, false, false},
		"the head of the part is granted, a newcomer waits": {[]claim.Claim{waitsAt(2, 4, 1, claim.Exclusive), waitsAt(3, 5, 1, claim.Exclusive)}, 3,
			wants(0, 0, claim.Exclusive), claim.Queued, false, false},
	} {
		t.Run(name, func(t *testing.T) {
			row := free(c.claims...)
			row.Waiting += 2 // of which some were not read
			v := at(50, row, c.claims...)
			v.ReadTo = c.readTo
			a := v.Acquire(c.request)
			if a.Outcome != c.answer || a.First != c.first || v.UsedUp() != c.usedUp {
				t.Errorf("%+v, used up: %v", a, v.UsedUp())
			}
		})
	}
}

func TestAClaimWhoseLockerIsNotHeardOfIsPassedOver(t *testing.T) {
	claims := []claim.Claim{waitsAt(2, 4, 1, claim.Exclusive), waitsAt(3, 0, 0, claim.Exclusive)}
	v := at(50, free(claims...), claims...)
	v.Alive = func(l driver.ID) bool { return l == lockerID(0) }
	v.Advance()
	if r := v.Changes().Row; r.Acq != idOf(0) || r.Waiting != 1 || r.Holding != 0 {
		t.Errorf("%+v", r)
	}
	v = at(50, free(claims[:1]...), claims[:1]...)
	v.Alive = func(driver.ID) bool { return false }
	v.Advance()
	if done := v.Changes(); done.Changed || len(done.Wakes) > 0 {
		t.Errorf("served somebody who is not heard of: %+v", done)
	}
}

func TestASweepDeletesOnlyClaimsOfLockersThatAreGone(t *testing.T) {
	claims := []claim.Claim{waitsAt(2, 4, 1, claim.Exclusive), termOf(1, 0, claim.Shared, 3, 5, 100)}
	for name, gone := range map[string]bool{"gone": true, "not heard of": false} {
		t.Run(name, func(t *testing.T) {
			v := at(50, free(claims...), claims...)
			v.Alive = func(driver.ID) bool { return false }
			v.Sweep(func(l driver.ID) bool { return gone && l == lockerID(1) })
			if left := claimOf(v, claims, 4); (left == nil) != gone {
				t.Errorf("left: %+v", left)
			}
			if r := v.Changes().Row; (r.Waiting == 0) != gone || r.Holding != 1 {
				t.Errorf("%+v", r)
			}
		})
	}
}

func TestASweepCountsAnew(t *testing.T) {
	claims := []claim.Claim{waitsAt(2, 4, 1, claim.Exclusive), termOf(1, 0, claim.Shared, 3, 5, 100)}
	for _, counted := range [][2]int{{0, 0}, {1, 1}, {7, 3}} {
		row := free(claims...)
		row.Waiting, row.Holding = counted[0], counted[1]
		v := at(50, row, claims...)
		v.Sweep(func(driver.ID) bool { return false })
		if r := v.Changes().Row; r.Waiting != 1 || r.Holding != 1 {
			t.Errorf("counted %v: %+v", counted, r)
		}
	}
}

func TestASweepServesWhoeverIsNext(t *testing.T) {
	claims := []claim.Claim{waitsAt(2, 4, 1, claim.Exclusive)}
	v := at(50, free(claims...), claims...)
	v.Sweep(func(driver.ID) bool { return false })
	if done := v.Changes(); done.Row.Acq != idOf(4) || len(done.Wakes) != 1 {
		t.Errorf("%+v", done)
	}
}

func TestASweepLeavesANameThatWasReleased(t *testing.T) {
	row := heldRow(func(*claim.Row) {})
	row.Free(idOf(0), 5, 0, 9)
	v := at(50, row)
	v.Sweep(func(driver.ID) bool { return false })
	if done := v.Changes(); done.Changed || done.Row.Ended != claim.Released {
		t.Errorf("%+v", done)
	}
}

func TestANameThatSomebodyWaitsForIsNotIdle(t *testing.T) {
	for _, c := range []claim.Claim{waitsAt(2, 4, 1, claim.Exclusive), termOf(4, 1, claim.Shared, 2, 5, 40)} {
		if at(50, free(), c).IsIdle() {
			t.Errorf("idle beside %+v", c)
		}
	}
}

func TestAClaimThatNobodyCountedIsDeleted(t *testing.T) {
	claims := []claim.Claim{waitsAt(2, 4, 1, claim.Exclusive)}
	v := at(50, claim.Row{Version: 5, Seq: 20}, claims...)
	v.Alive = func(driver.ID) bool { return false }
	v.Sweep(func(driver.ID) bool { return true })
	if done := v.Changes(); !done.Changed || len(done.Delete) != 1 {
		t.Errorf("%+v", done)
	}
}

func TestASweepEndsWhatHasExpired(t *testing.T) {
	row := heldRow(func(r *claim.Row) {})
	for name, c := range map[string]struct {
		row     claim.Row
		claims  []claim.Claim
		locked  bool
		crashes int
		held    bool
	}{
		"a term":                             {row, nil, false, 1, false},
		"a detached term":                    {heldRow(func(r *claim.Row) { r.Party = claim.Party{Acq: idOf(key)} }), nil, false, 0, false},
		"not a term that goes on":            {heldRow(func(r *claim.Row) { r.Expires = 51 }), nil, false, 0, true},
		"a reader":                           {free(termOf(0, 0, claim.Shared, 3, 5, 50)), []claim.Claim{termOf(0, 0, claim.Shared, 3, 5, 50)}, true, 1, false},
		"not a reader that goes on":          {free(termOf(0, 0, claim.Shared, 3, 5, 51)), []claim.Claim{termOf(0, 0, claim.Shared, 3, 5, 51)}, true, 0, true},
		"not a reader that cannot be locked": {free(termOf(0, 0, claim.Shared, 3, 5, 50)), []claim.Claim{termOf(0, 0, claim.Shared, 3, 5, 50)}, false, 0, true},
	} {
		t.Run(name, func(t *testing.T) {
			v := at(50, c.row, c.claims...)
			v.Locked = func(driver.ID) bool { return c.locked }
			v.Sweep(func(driver.ID) bool { return true })
			done := v.Changes()
			held := done.Row.Acq != driver.ID{} || done.Row.Holding > 0
			if len(done.Crashed) != c.crashes || held != c.held || !held && done.Row.Ended != claim.Expired {
				t.Errorf("crashed: %v; %+v", done.Crashed, done.Row)
			}
		})
	}
}

func TestTheHeadIsToldNothingWhileTheNameIsHeldAlone(t *testing.T) {
	claims := []claim.Claim{waitsAt(2, 4, 1, claim.Exclusive)}
	row := heldRow(func(r *claim.Row) { r.Expires, r.NotBefore, r.Waiting, r.Seq = 100, 90, 1, 20 })
	v := at(50, row, claims...)
	v.Advance()
	if done := v.Changes(); done.Changed || len(done.Wakes) != 0 {
		t.Errorf("%+v", done)
	}
}

func TestATermThatGoesOnIsInTheWay(t *testing.T) {
	dead := termOf(0, 0, claim.Shared, 3, 5, 50)
	alive := termOf(1, 0, claim.Shared, 4, 5, 100)
	for name, c := range map[string]struct {
		claims  []claim.Claim
		locked  bool
		request claim.Request
		answer  claim.Answer
		changed bool
	}{
		"a reader joins readers":    {[]claim.Claim{alive}, true, tries(4, 1, claim.Shared), claim.Answer{Outcome: claim.Granted, Token: 5, Expires: 60}, true},
		"a reader passes no waiter": {[]claim.Claim{alive, waitsAt(9, 2, 0, claim.Exclusive)}, true, tries(4, 1, claim.Shared), claim.Answer{}, false},
		"an exclusive joins nobody": {[]claim.Claim{alive}, true, tries(4, 1, claim.Exclusive), claim.Answer{}, false},
		"a permit is in the way": {[]claim.Claim{termOf(5, 1, claim.Permit, 3, 5, 100)}, true, tries(2, 0, claim.Exclusive),
			claim.Answer{Permits: 2}, false},
		"a reader of another Locker": {[]claim.Claim{termOf(5, 1, claim.Shared, 3, 5, 100)}, true, tries(2, 0, claim.Exclusive), claim.Answer{}, false},
		"a permit has its own token": {[]claim.Claim{termOf(5, 1, claim.Permit, 3, 5, 100)}, true, tries(2, 0, claim.Permit),
			claim.Answer{Outcome: claim.Granted, Token: 50, Slot: 1, Expires: 60, Permits: 2}, true},
		"a permit waits for readers": {[]claim.Claim{alive}, true, tries(4, 1, claim.Permit), claim.Answer{}, false},
		"a reader waits for permits": {[]claim.Claim{termOf(0, 0, claim.Permit, 3, 5, 100)}, true, tries(4, 1, claim.Shared),
			claim.Answer{Permits: 2}, false},
		"its own term is over, and cannot be locked": {[]claim.Claim{dead}, false, tries(0, 0, claim.Shared), claim.Answer{}, false},
		"it waits until its own can be locked": {[]claim.Claim{dead}, false, wants(0, 0, claim.Shared),
			claim.Answer{Outcome: claim.Queued, First: true}, false},
		"its own term is over": {[]claim.Claim{dead}, true, tries(0, 0, claim.Shared), claim.Answer{Outcome: claim.Granted, Token: 50, Expires: 60}, true},
		"its own term goes on": {[]claim.Claim{alive}, true, tries(1, 0, claim.Shared),
			claim.Answer{Outcome: claim.Granted, Found: true, Token: 5, Expires: 100}, false},
	} {
		t.Run(name, func(t *testing.T) {
			v := at(50, free(c.claims...), c.claims...)
			v.Locked = func(driver.ID) bool { return c.locked }
			a := v.Acquire(c.request)
			if done := v.Changes(); !reflect.DeepEqual(a, c.answer) || done.Changed != c.changed {
				t.Errorf("%+v, want %+v; changed: %v", a, c.answer, done.Changed)
			}
		})
	}
}

func TestNobodyIsGrantedANameThatAStrangerGuards(t *testing.T) {
	v := at(50, claim.Row{Version: 5})
	v.Pinned = true
	if a := v.Acquire(tries(0, 0, claim.Exclusive)); a.Outcome != claim.Refused || v.Changes().Changed {
		t.Errorf("%+v", a)
	}
}

func TestAClaimThatIsGrantedAnewIsReplaced(t *testing.T) {
	dead := termOf(0, 0, claim.Shared, 3, 5, 50)
	v := lockable(50, free(dead), dead)
	v.Acquire(tries(0, 0, claim.Shared))
	done := v.Changes()
	if !slices.Equal(done.Delete, []driver.ID{idOf(0)}) || len(done.Insert) != 1 || done.Insert[0].Expires != 60 || done.Row.Holding != 1 {
		t.Errorf("%+v", done)
	}
}

func TestReadersFollowATermThatHasExpired(t *testing.T) {
	v := at(50, heldRow(func(r *claim.Row) { r.Limit, r.Delay = 20, 1 }))
	v.Acquire(tries(2, 0, claim.Shared))
	v.Acquire(tries(4, 1, claim.Shared))
	done := v.Changes()
	if r := done.Row; r.Acq != (driver.ID{}) || r.Ended != claim.NotEnded || r.Expires != 10 || r.Limit != 0 || r.Holding != 2 || len(done.Crashed) != 1 {
		t.Errorf("%+v", done)
	}
	if kind, first, last := v.Together(); kind != claim.Shared || first != 60 || last != 60 {
		t.Errorf("kind %d, from %d until %d", kind, first, last)
	}
}

func TestThoseWhoHoldTogetherSayUntilWhen(t *testing.T) {
	claims := []claim.Claim{termOf(0, 0, claim.Shared, 3, 5, 70), termOf(1, 0, claim.Shared, 4, 5, 90), termOf(2, 0, claim.Shared, 6, 5, 80),
		termOf(4, 1, claim.Shared, 7, 5, 40), waitsAt(9, 5, 1, claim.Exclusive)}
	permit := termOf(0, 0, claim.Permit, 3, 5, 70)
	for name, c := range map[string]struct {
		visit       *claim.Visit
		kind        claim.Kind
		first, last int64
	}{
		"readers":                 {lockable(50, free(claims...), claims...), claim.Shared, 70, 90},
		"one that has a permit":   {lockable(50, free(permit), permit), claim.Permit, 70, 70},
		"one that is at work":     {at(50, free(claims[3]), claims[3]), claim.Shared, 40, 40},
		"one who is dead, nobody": {lockable(50, free(claims[3:]...), claims[3:]...), claim.Exclusive, 0, 0},
	} {
		if kind, first, last := c.visit.Together(); kind != c.kind || first != c.first || last != c.last {
			t.Errorf("%s: kind %d, from %d until %d", name, kind, first, last)
		}
	}
}

func TestThePlaceInTheQueueRisesAboveTheClock(t *testing.T) {
	for name, c := range map[string]struct{ seq, want int64 }{"before the clock": {20, 50}, "after the clock": {80, 81}} {
		for _, request := range []claim.Request{tries(2, 0, claim.Shared), wants(2, 0, claim.Exclusive)} {
			reads := termOf(0, 0, claim.Shared, 3, 5, 100)
			row := free(reads)
			row.Seq = c.seq
			v := at(50, row, reads)
			v.Acquire(request)
			if done := v.Changes(); done.Row.Seq != c.want || len(done.Insert) != 1 || done.Insert[0].Seq != c.want {
				t.Errorf("%s: %+v", name, done)
			}
		}
	}
}

func TestWhoeverWaitsForAPermitSaysHowManyThereAre(t *testing.T) {
	v := at(50, claim.Row{Version: 5, NotBefore: 60})
	v.Acquire(wants(2, 0, claim.Exclusive))
	if v.Row().Permits != 0 {
		t.Errorf("%+v", v.Row())
	}
	v.Acquire(wants(0, 0, claim.Permit))
	if r := v.Changes().Row; r.Permits != 2 || r.Waiting != 2 {
		t.Errorf("%+v", r)
	}
}

func TestATermIsAsLongAsItsLimitsSay(t *testing.T) {
	limited := claim.Limits{TTL: 20, Handed: 8, MaxHold: 9, Delay: 2}
	for name, c := range map[string]struct {
		kind         claim.Kind
		limits       claim.Limits
		waits        bool // and is handed the name by another Locker
		until, limit int64
	}{
		"exclusive":                  {claim.Exclusive, limited, false, 61, 61},
		"shared":                     {claim.Shared, limited, false, 61, 61},
		"exclusive, without a bound": {claim.Exclusive, claim.Limits{TTL: 20, Delay: 2}, false, 70, 0},
		"exclusive, far bound":       {claim.Exclusive, claim.Limits{TTL: 20, MaxHold: 30, Delay: 2}, false, 70, 82},
		"handed over":                {claim.Exclusive, limited, true, 58, 61},
		"handed over, shared":        {claim.Shared, limited, true, 58, 61},
	} {
		t.Run(name, func(t *testing.T) {
			r := tries(4, 1, c.kind)
			r.Limits = c.limits
			row, claims := claim.Row{Version: 5}, []claim.Claim(nil)
			if c.waits {
				w := waitsAt(3, 4, 1, c.kind)
				w.Limits = c.limits
				row, claims = free(w), []claim.Claim{w}
			}
			v := at(50, row, claims...)
			if c.waits {
				v.Advance()
			} else {
				v.Acquire(r)
			}
			done := v.Changes()
			until, limit := done.Row.Expires, done.Row.Limit
			if c.kind != claim.Exclusive {
				until, limit = done.Insert[0].Expires, done.Insert[0].Limit
			}
			if until != c.until || limit != c.limit || c.kind == claim.Exclusive && done.Row.Delay != 2 {
				t.Errorf("until %d, at most %d; %+v", until, limit, done.Row)
			}
		})
	}
}

func TestAClaimThatWaitsHoldsNothingWhateverItsColumnsSay(t *testing.T) {
	odd := waitsAt(9, 2, 0, claim.Exclusive)
	odd.Expires, odd.Token = 100, 5
	claims := []claim.Claim{termOf(1, 0, claim.Shared, 4, 5, 100), odd}
	v := at(50, free(claims...), claims...)
	if a := v.Acquire(wants(2, 0, claim.Exclusive)); a.Outcome != claim.Queued || !a.First {
		t.Errorf("%+v", a)
	}
	if freed, guarded := v.Release(idOf(2), 5, 0, false); freed || guarded || v.Changes().Changed {
		t.Errorf("released: %v, guarded: %v, %+v", freed, guarded, v.Changes())
	}
}

func TestPermitsHaveTheLowestFreeSlot(t *testing.T) {
	slot := func(s int, c claim.Claim) claim.Claim { c.Slot = s; return c }
	first, second := slot(0, termOf(0, 0, claim.Permit, 3, 5, 100)), slot(1, termOf(1, 0, claim.Permit, 4, 6, 100))
	expired := slot(0, termOf(0, 0, claim.Permit, 3, 5, 50))
	for name, c := range map[string]struct {
		claims []claim.Claim
		slot   int // -1: none
	}{
		"of nobody":                {nil, 0},
		"beside the first":         {[]claim.Claim{first}, 1},
		"beside the second":        {[]claim.Claim{second}, 0},
		"of a permit that is over": {[]claim.Claim{expired, second}, 0},
		"of all":                   {[]claim.Claim{first, second}, -1},
		"not of one who waits":     {[]claim.Claim{waitsAt(3, 5, 1, claim.Permit)}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			v := lockable(50, free(c.claims...), c.claims...)
			v.Alive = func(l driver.ID) bool { return l == lockerID(0) }
			a := v.Acquire(tries(2, 0, claim.Permit))
			if (a.Outcome == claim.Granted) != (c.slot >= 0) || c.slot >= 0 && a.Slot != c.slot {
				t.Errorf("%+v", a)
			}
		})
	}
}

func TestAnotherNumberOfPermits(t *testing.T) {
	slot := func(s int, c claim.Claim) claim.Claim { c.Slot = s; return c }
	first, third := slot(0, termOf(0, 0, claim.Permit, 3, 5, 100)), slot(2, termOf(1, 0, claim.Permit, 4, 6, 100))
	queued, behind := waitsAt(7, 4, 1, claim.Permit), waitsAt(8, 5, 1, claim.Permit)
	all := []claim.Claim{first, third, queued, behind}
	for name, c := range map[string]struct {
		permits int
		slots   map[int8]int // of those who held, and of those who waited
		durable bool
	}{
		"as many as before":         {2, map[int8]int{0: 0, 1: 2}, false},
		"one, and two are held":     {1, map[int8]int{0: 0, 1: 2}, true},
		"one more":                  {3, map[int8]int{0: 0, 1: 2, 4: 1}, true},
		"as many as anybody wants":  {4, map[int8]int{0: 0, 1: 2, 4: 1, 5: 3}, true},
		"more than that, once more": {40, map[int8]int{0: 0, 1: 2, 4: 1, 5: 3}, true},
	} {
		t.Run(name, func(t *testing.T) {
			v := at(50, free(all...), all...)
			v.Resize(c.permits)
			done := v.Changes()
			if done.Row.Permits != c.permits || done.Durable != c.durable || done.Changed != c.durable || done.Row.Holding != len(c.slots) {
				t.Errorf("%+v", done)
			}
			for acq := range int8(acqs) {
				want, held := c.slots[acq]
				got := claimOf(v, all, acq)
				if holds := got != nil && got.State == claim.Holding; holds != held || held && got.Slot != want {
					t.Errorf("acquisition %d: %+v", acq, got)
				}
			}
		})
	}
}

func TestFewerPermitsAreGrantedWhenFewerAreHeld(t *testing.T) {
	slot := func(s int, c claim.Claim) claim.Claim { c.Slot = s; return c }
	held := []claim.Claim{slot(0, termOf(0, 0, claim.Permit, 3, 5, 100)), slot(1, termOf(1, 0, claim.Permit, 4, 6, 100)), waitsAt(7, 4, 1, claim.Permit)}
	v := at(50, free(held...), held...)
	v.Resize(1)
	v.Release(idOf(0), 5, 0, false)
	if c := claimOf(v, held, 4); c == nil || c.State != claim.Waiting {
		t.Errorf("beside one that is held: %+v", c)
	}
	v.Release(idOf(1), 6, 0, false)
	if c := claimOf(v, held, 4); c == nil || c.State != claim.Holding || c.Slot != 0 {
		t.Errorf("beside none: %+v", c)
	}
}

func TestWhoeverWaitsForAPermitKeepsItsPlaceWhenTheirNumberChanges(t *testing.T) {
	held := []claim.Claim{termOf(0, 0, claim.Permit, 3, 5, 100), waitsAt(7, 2, 0, claim.Permit)}
	row := free(held...)
	row.Permits = 1
	v := at(50, row, held...)
	if a := v.Acquire(wants(2, 0, claim.Permit)); a.Outcome != claim.Queued || !a.First || a.Permits != 1 {
		t.Errorf("who waits: %+v", a)
	}
	if a := v.Acquire(wants(4, 1, claim.Permit)); a.Outcome != claim.Mismatch || a.Permits != 1 {
		t.Errorf("who comes: %+v", a)
	}
	v.Release(idOf(0), 5, 0, false)
	if a := v.Acquire(wants(2, 0, claim.Permit)); a.Outcome != claim.Granted || v.Row().Permits != 1 {
		t.Errorf("who is next: %+v", a)
	}
	if a := v.Acquire(wants(2, 0, claim.Permit)); !a.Found || a.Permits != 1 {
		t.Errorf("who holds: %+v", a)
	}
}

func TestWhoeverComesLateWithAPermitThatIsOverIsRefused(t *testing.T) {
	held := []claim.Claim{termOf(0, 0, claim.Permit, 3, 5, 40)}
	row := free(held...)
	row.Permits = 1
	if a := lockable(50, row, held...).Acquire(wants(0, 0, claim.Permit)); a.Outcome != claim.Mismatch || a.Permits != 1 {
		t.Errorf("%+v", a)
	}
}

func TestAGrantCountsThoseWhoHold(t *testing.T) {
	for _, counted := range []int{0, 1, 4} {
		claims := []claim.Claim{termOf(1, 0, claim.Shared, 4, 5, 100)}
		row := free(claims...)
		row.Holding = counted
		v := at(50, row, claims...)
		v.Acquire(tries(4, 1, claim.Shared))
		if r := v.Changes().Row; r.Holding != 2 {
			t.Errorf("counted %d, now %d", counted, r.Holding)
		}
	}
}
