package claim_test

import (
	"encoding/binary"
	"slices"
	"testing"

	"github.com/sqllock/sqllock/driver"
	"github.com/sqllock/sqllock/internal/claim"
)

const second = 1_000_000

// at returns a visit of Locker 0 to which all Lockers are alive and nobody is dead.
func at(now int64, row claim.Row, claims ...claim.Claim) *claim.Visit {
	v := claim.NewVisit(row, claims)
	v.Now, v.By = now, lockerID(0)
	v.Alive = func(driver.ID) bool { return true }
	v.Locked = func(driver.ID) bool { return false }
	return v
}

func party(acq, locker int8) claim.Party {
	return claim.Party{Acq: idOf(acq), Locker: lockerID(locker)}
}

func limits(ttl int64) claim.Limits { return claim.Limits{TTL: ttl, Handed: ttl / 2} }

// grantedAlone is the row of a name that acquisition 0 of Locker 0 has held since time 1.
func grantedAlone(t *testing.T, l claim.Limits) claim.Row {
	t.Helper()
	v := at(1, claim.Row{})
	if a := v.Acquire(claim.Request{Party: party(0, 0), Limits: l}); a.Outcome != claim.Granted {
		t.Fatalf("%+v", a)
	}
	return v.Changes().Row
}

// queue enters requests and returns the row and its claims.
func queue(t *testing.T, row claim.Row, requests ...claim.Request) (claim.Row, []claim.Claim) {
	t.Helper()
	v := at(2, row)
	for _, r := range requests {
		r.Waits = true
		if a := v.Acquire(r); a.Outcome != claim.Queued {
			t.Fatalf("%+v", a)
		}
	}
	c := v.Changes()
	return c.Row, c.Insert
}

func TestOnlyOtherLockersAreToldOfAHandOver(t *testing.T) {
	row, claims := queue(t, grantedAlone(t, limits(10)),
		claim.Request{Party: party(4, 1), Limits: limits(10), Kind: claim.Shared},
		claim.Request{Party: party(2, 0), Limits: limits(10), Kind: claim.Shared})
	v := at(5, row, claims...)
	v.Release(idOf(0), row.Version, 0, false)
	c := v.Changes()
	if want := (claim.Wake{Locker: lockerID(1), Acq: idOf(4)}); len(c.Wakes) != 1 || c.Wakes[0] != want {
		t.Errorf("told %v, want %v", c.Wakes, want)
	}
	if n := v.HandedOver(); n != 2 || !c.Durable || c.Row.Holding != 2 || c.Row.Waiting != 0 {
		t.Errorf("handed over to %d: %+v", n, c)
	}
	for _, w := range c.Insert { // handed over to another Locker for half as long as to its own
		if want := int64(5 + 10); w.Locker == lockerID(0) && w.Expires != want || w.Locker == lockerID(1) && w.Expires != 5+5 {
			t.Errorf("acq %d holds until %d", acqOf(w.Acq), w.Expires)
		}
	}
}

func TestTheHeadIsToldUntilWhenTheNameIsKept(t *testing.T) {
	row, claims := queue(t, grantedAlone(t, limits(10)), claim.Request{Party: party(4, 1), Limits: limits(10)})
	v := at(5, row, claims...)
	v.Release(idOf(0), row.Version, 8, false)
	c := v.Changes()
	if want := (claim.Wake{Locker: lockerID(1), Acq: idOf(4), At: 9}); len(c.Wakes) != 1 || c.Wakes[0] != want || c.Row.NotBefore != 9 {
		t.Errorf("told %v, want %v; kept until %d", c.Wakes, want, c.Row.NotBefore)
	}
	if n := v.HandedOver(); n != 0 || c.Durable {
		t.Errorf("nobody was granted anything: handed over to %d, flushed: %v", n, c.Durable)
	}
}

func TestAnExpiredHolderIsReportedUnlessItsTermWasDetached(t *testing.T) {
	row := grantedAlone(t, limits(10))
	row.Acq, row.Locker = idOf(0), lockerID(0)
	takeOver := func(row claim.Row) []claim.Term {
		v := at(100, row)
		if a := v.Acquire(claim.Request{Party: party(4, 1), Limits: limits(10)}); a.Outcome != claim.Granted || a.Token <= row.Version {
			t.Fatalf("%+v", a)
		}
		return v.Changes().Crashed
	}
	if crashed := takeOver(row); len(crashed) != 1 || crashed[0].Acq != idOf(0) {
		t.Errorf("crashed: %v", crashed)
	}
	v := at(5, row)
	if detached, _ := v.Detach(idOf(0), row.Version, idOf(key), 10); !detached {
		t.Fatal("not detached")
	}
	if crashed := takeOver(v.Changes().Row); len(crashed) != 0 {
		t.Errorf("crashed: %v", crashed)
	}
}

func TestAGuardedTermDoesNotEnd(t *testing.T) {
	row, claims := queue(t, grantedAlone(t, limits(10)), claim.Request{Party: party(4, 1), Limits: limits(10)})
	pinned := func() *claim.Visit {
		v := at(100, row, claims...) // the term has expired
		v.Pinned = true
		return v
	}
	for name, ends := range map[string]func(*claim.Visit) bool{
		"release":    func(v *claim.Visit) bool { _, guarded := v.Release(idOf(0), row.Version, 0, false); return !guarded },
		"withdrawal": func(v *claim.Visit) bool { return !v.Withdraw(idOf(0), 0, false) },
		"revocation": func(v *claim.Visit) bool { _, guarded := v.Revoke(); return !guarded },
		"take-over":  func(v *claim.Visit) bool { v.Advance(); return false },
		"sweep":      func(v *claim.Visit) bool { v.Sweep(func(driver.ID) bool { return false }); return false },
		"newcomer": func(v *claim.Visit) bool {
			return v.Acquire(claim.Request{Party: party(2, 0)}).Outcome != claim.Refused
		},
	} {
		v := pinned()
		if ends(v) || v.Changes().Row.Acq != idOf(0) {
			t.Errorf("%s ends the term", name)
		}
	}
}

func TestMaxHoldBoundsRenewals(t *testing.T) {
	l := limits(10)
	l.MaxHold = 15
	row := grantedAlone(t, l)
	if row.Expires != 11 || row.Limit != 16 {
		t.Errorf("granted until %d, at most %d", row.Expires, row.Limit)
	}
	if !row.Renew(idOf(0), row.Version, 10, 3, 9) || row.Expires != 16 || row.Holds != 3 {
		t.Errorf("renewed until %d, %d holds", row.Expires, row.Holds)
	}
	if row.Renew(idOf(0), row.Version, 10, 3, 16) {
		t.Error("renewed after its end")
	}
}

func TestANumberOfPermitsThatDiffersIsRefusedWithTheNumber(t *testing.T) {
	v := at(1, claim.Row{})
	v.Acquire(claim.Request{Party: party(0, 0), Limits: limits(10), Kind: claim.Permit, Permits: 3})
	a := v.Acquire(claim.Request{Party: party(2, 0), Limits: limits(10), Kind: claim.Permit, Permits: 2})
	if a.Outcome != claim.Mismatch || a.Permits != 3 {
		t.Errorf("%+v", a)
	}
}

func TestTokensRiseWhateverTheClock(t *testing.T) {
	row := claim.Row{}
	last := int64(0)
	for _, now := range []int64{5 * second, 2 * second, 2 * second, 9 * second} {
		v := at(now, row)
		a := v.Acquire(claim.Request{Party: party(0, 0), Limits: limits(10)})
		if a.Token <= last {
			t.Errorf("token %d after %d", a.Token, last)
		}
		last = a.Token
		v.Release(idOf(0), a.Token, 0, false)
		row = v.Changes().Row
	}
	if last != 9*second {
		t.Errorf("the token %d is not of the clock", last)
	}
}

func TestARowIsIdleWhenNothingIsLeft(t *testing.T) {
	row, claims := queue(t, grantedAlone(t, limits(10)), claim.Request{Party: party(4, 1), Limits: limits(10)})
	v := at(5, row, claims...)
	if v.IsIdle() {
		t.Error("idle while it is held")
	}
	v.Withdraw(idOf(0), 0, false)
	if v.IsIdle() {
		t.Error("idle while it is held by the next")
	}
	v.Withdraw(idOf(4), 0, false)
	if !v.IsIdle() {
		t.Errorf("not idle: %+v", v.Changes().Row)
	}
	kept := at(5, claim.Row{NotBefore: 6})
	if kept.IsIdle() {
		t.Error("idle while it is kept")
	}
}

// together is the row of a name that readers have held since time 1, and their claims.
func together(t *testing.T, readers ...claim.Request) (claim.Row, []claim.Claim) {
	t.Helper()
	v := at(1, claim.Row{})
	for _, r := range readers {
		if a := v.Acquire(r); a.Outcome != claim.Granted {
			t.Fatalf("%+v", a)
		}
	}
	c := v.Changes()
	return c.Row, c.Insert
}

func reader(acq, locker int8, ttl int64) claim.Request {
	return claim.Request{Party: party(acq, locker), Limits: limits(ttl), Kind: claim.Shared}
}

// lockable is at, where all claims that hold can be locked.
func lockable(now int64, row claim.Row, claims ...claim.Claim) *claim.Visit {
	v := at(now, row, claims...)
	v.Locked = func(driver.ID) bool { return true }
	return v
}

func TestARequestThatIsRepeatedLateIsNoCrash(t *testing.T) {
	r := reader(0, 0, 10)
	row, claims := together(t, r)
	alone := grantedAlone(t, limits(10))
	for name, c := range map[string]struct {
		v *claim.Visit
		r claim.Request
	}{
		"shared":    {lockable(100, row, claims...), r},
		"exclusive": {lockable(100, alone), claim.Request{Party: party(0, 0), Limits: limits(10)}},
	} {
		if a := c.v.Acquire(c.r); a.Outcome != claim.Granted || a.Found || a.Token <= row.Version {
			t.Errorf("%s: %+v", name, a)
		}
		if crashed := c.v.Changes().Crashed; len(crashed) != 0 {
			t.Errorf("%s: crashed: %v", name, crashed)
		}
	}
}

func TestARequestThatIsRepeatedLateQueues(t *testing.T) {
	row, claims := together(t, reader(0, 0, 10), reader(2, 0, 200))
	v := lockable(100, row, claims...)
	if a := v.Acquire(claim.Request{Party: party(4, 1), Limits: limits(10), Waits: true}); a.Outcome != claim.Queued || !a.First {
		t.Fatalf("%+v", a)
	}
	r := reader(0, 0, 10)
	r.Waits = true
	if a := v.Acquire(r); a.Outcome != claim.Queued || a.First {
		t.Errorf("%+v", a)
	}
	if c := v.Changes(); c.Row.Waiting != 2 || c.Row.Holding != 1 {
		t.Errorf("%+v", c.Row)
	}
}

func TestARequestThatIsRefusedChangesNothing(t *testing.T) {
	row, claims := together(t, reader(0, 0, 10), reader(2, 0, 200))
	v := lockable(100, row, claims...)
	if a := v.Acquire(claim.Request{Party: party(4, 1), Limits: limits(10)}); a.Outcome != claim.Refused {
		t.Errorf("%+v", a)
	}
	if c := v.Changes(); c.Changed {
		t.Errorf("%+v", c)
	}
}

func TestTheLastReaderEndsTheTermOfTheName(t *testing.T) {
	row, claims := together(t, reader(0, 0, 10), reader(2, 0, 20))
	for name, c := range map[string]struct {
		end   func(v *claim.Visit)
		ended claim.Ended
		at    int64
	}{
		"released": {func(v *claim.Visit) {
			v.Release(idOf(0), row.Version, 0, false)
			v.Release(idOf(2), row.Version, 0, false)
		}, claim.Released, 100},
		"withdrawn": {func(v *claim.Visit) {
			v.Withdraw(idOf(0), 0, false)
			v.Withdraw(idOf(2), 0, false)
		}, claim.Released, 100},
		"expired": {func(v *claim.Visit) { v.Sweep(func(driver.ID) bool { return false }) }, claim.Expired, 21},
		"revoked": {func(v *claim.Visit) { v.Revoke() }, claim.Revoked, 100},
	} {
		now, claims := int64(100), slices.Clone(claims)
		if c.ended != claim.Expired {
			for i := range claims {
				claims[i].Expires = 200
			}
		}
		v := lockable(now, row, claims...)
		c.end(v)
		if r := v.Changes().Row; r.Ended != c.ended || r.Expires != c.at || r.Holding != 0 {
			t.Errorf("%s: %+v", name, r)
		}
	}
}

func TestAMinimumHoldTimeOutlastsTheTermThatAReaderGivesUp(t *testing.T) {
	row, claims := together(t, reader(0, 0, 10))
	v := lockable(5, row, claims...)
	v.Withdraw(idOf(0), 8, false)
	if r := v.Changes().Row; r.NotBefore != 9 {
		t.Errorf("kept until %d", r.NotBefore)
	}
}

func TestOnlyATermThatIsHeldIsSaidToBeRevoked(t *testing.T) {
	row := grantedAlone(t, limits(10))
	v := at(5, row)
	v.Release(idOf(0), row.Version, 100, false)
	if revoked, _ := v.Revoke(); !revoked {
		t.Fatal("not revoked")
	}
	if r := v.Changes().Row; r.Revoked != 0 || r.Ended != claim.Released || r.NotBefore != 0 || r.Version <= row.Version {
		t.Errorf("%+v", r)
	}
}

func TestAnExpiredTermOfSomebodyWhoWaitsAgainIsWithdrawnWithTheClaim(t *testing.T) {
	row := grantedAlone(t, limits(10))
	row.NotBefore = 1000
	v := at(100, row)
	if a := v.Acquire(claim.Request{Party: party(0, 0), Limits: limits(10), Waits: true}); a.Outcome != claim.Queued {
		t.Fatalf("%+v", a)
	}
	v.Withdraw(idOf(0), 0, false)
	if c := v.Changes(); c.Row.Acq != (driver.ID{}) || c.Row.Waiting != 0 {
		t.Errorf("%+v", c)
	}
}

// Somebody may have written the claims by hand.
func TestOfTwoClaimsAtTheSamePlaceOneIsDeleted(t *testing.T) {
	waits := claim.Claim{Party: claim.Party{Acq: driver.ID{1}}, State: claim.Waiting, Seq: 5}
	holds := claim.Claim{Party: claim.Party{Acq: driver.ID{2}}, State: claim.Holding, Kind: claim.Shared, Seq: 5, Expires: 100}
	for _, claims := range [][]claim.Claim{{waits, holds}, {holds, waits}} {
		v := claim.NewVisit(claim.Row{Version: 1, Seq: 5, Waiting: 1, Holding: 1}, claims)
		v.Now = 10
		v.Alive = func(driver.ID) bool { return true }
		v.Locked = func(driver.ID) bool { return true }
		v.Withdraw(waits.Acq, 0, false)
		if c := v.Changes(); len(c.Delete) != 1 || c.Delete[0] != waits.Acq || len(c.Insert) != 0 {
			t.Errorf("of %v: %v is deleted, %v inserted", claims, c.Delete, c.Insert)
		}
	}
}

// A name may have 10,000 claims: what ends all of them does not go through all for each.
func TestWhatEndsAllClaimsGoesThroughThemAsOftenAsForTwo(t *testing.T) {
	gone := func(driver.ID) bool { return true }
	for name, do := range map[string]func(v *claim.Visit){
		"Revoke":               func(v *claim.Visit) { v.Revoke() },
		"Sweep of the expired": func(v *claim.Visit) { v.Now = 1000; v.Sweep(gone) },
		"Sweep of the gone":    func(v *claim.Visit) { v.Sweep(gone) },
	} {
		passes := func(n int) int {
			state := claim.Holding
			if name == "Sweep of the gone" {
				state = claim.Waiting
			}
			v := claimed(n, state)
			do(v)
			if c := v.Changes(); len(c.Delete) != n || c.Row.Holding != 0 || c.Row.Waiting != 0 {
				t.Errorf("%s of %d: %d deleted, the row is %+v", name, n, len(c.Delete), c.Row)
			}
			return v.Passes()
		}
		if few, many := passes(2), passes(10_000); many > few || few == 0 {
			t.Errorf("%s: %d passes over 10,000 claims, %d over two", name, many, few)
		}
	}
}

// The exploration makes millions of visits, most of which end nothing.
func TestAVisitThatEndsNothingAllocatesNothing(t *testing.T) {
	v := claimed(3, claim.Holding)
	n := testing.AllocsPerRun(100, func() {
		v.Withdraw(driver.ID{9}, 0, false)
		v.Sweep(func(driver.ID) bool { return true })
	})
	if c := v.Changes(); n > 0 || c.Changed {
		t.Errorf("%v allocations, changed %v", n, c.Changed)
	}
}

// claimed is a visit of a name at time 5 that has n claims, whose Lockers are not heard of. Those
// that hold do so until 100.
func claimed(n int, state claim.State) *claim.Visit {
	claims := make([]claim.Claim, n)
	for i := range claims {
		claims[i] = claim.Claim{Kind: claim.Permit, Slot: i, State: state, Seq: int64(i + 1), Expires: 100}
		binary.BigEndian.PutUint64(claims[i].Acq[:], uint64(i+1))
	}
	row := claim.Row{Version: 1, Seq: int64(n), Permits: n}
	if state == claim.Holding {
		row.Holding = n
	} else {
		row.Waiting = n
	}
	v := lockable(5, row, claims...)
	v.Alive = func(driver.ID) bool { return false }
	return v
}

func TestAPermitTakesTheLowestSlotThatIsFree(t *testing.T) {
	holds := func(slot int) claim.Claim {
		return claim.Claim{Party: party(int8(slot), 0), Kind: claim.Permit, State: claim.Holding, Slot: slot, Seq: int64(slot + 1), Expires: 100}
	}
	for want, held := range [][]claim.Claim{{holds(1), holds(2)}, {holds(0), holds(2)}, {holds(0), holds(1)}} {
		v := at(10, claim.Row{Permits: 4, Holding: len(held)}, held...)
		if a := v.Acquire(claim.Request{Party: party(5, 0), Limits: limits(10), Kind: claim.Permit, Permits: 4}); a.Outcome != claim.Granted || a.Slot != want {
			t.Errorf("beside %+v: %+v", held, a)
		}
	}
	for slot := range 4 { // those below it have gone
		v := at(10, claim.Row{Permits: 4, Holding: 1}, holds(slot))
		want := 0
		if slot == 0 {
			want = 1
		}
		if a := v.Acquire(claim.Request{Party: party(5, 0), Limits: limits(10), Kind: claim.Permit, Permits: 4}); a.Outcome != claim.Granted || a.Slot != want {
			t.Errorf("beside slot %d: %+v", slot, a)
		}
	}
}

// A token is higher than that of the last term, and neither below the clock nor below the floor of
// the request, whether the name is granted by its row or by a visit.
func TestATokenIsTheHighestOfThree(t *testing.T) {
	for _, c := range []struct{ version, now, floor, want int64 }{
		{version: 70, now: 50, floor: 60, want: 71},
		{version: 50, now: 70, floor: 60, want: 70},
		{version: 50, now: 60, floor: 70, want: 70},
	} {
		q := claim.Request{Party: party(0, 0), Limits: limits(10), Floor: c.floor}
		row := claim.Row{Version: c.version}
		if !row.Grant(&q, c.now) || row.Version != c.want {
			t.Errorf("%+v: the row grants %d", c, row.Version)
		}
		if a := at(c.now, claim.Row{Version: c.version}).Acquire(q); a.Outcome != claim.Granted || a.Token != c.want {
			t.Errorf("%+v: the visit answers %+v", c, a)
		}
	}
}
