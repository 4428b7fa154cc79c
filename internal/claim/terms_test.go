package claim_test

import (
	"testing"

	"github.com/sqllock/sqllock/driver"
	"github.com/sqllock/sqllock/internal/claim"
)

func TestATermIsReleasedOnlyWithItsToken(t *testing.T) {
	reads := termOf(0, 0, claim.Shared, 3, 5, 100)
	for name, c := range map[string]struct {
		row      claim.Row
		claims   []claim.Claim
		acq      int8
		token    int64
		mayGuard bool
		locked   bool
		freed    bool
		guarded  bool
	}{
		"alone":                        {heldRow(func(*claim.Row) {}), nil, 0, 5, false, false, true, false},
		"alone, another token":         {heldRow(func(*claim.Row) {}), nil, 0, 4, false, false, false, false},
		"alone, another acquisition":   {heldRow(func(*claim.Row) {}), nil, 1, 5, false, false, false, false},
		"shared":                       {free(reads), []claim.Claim{reads}, 0, 5, false, false, true, false},
		"shared, another token":        {free(reads), []claim.Claim{reads}, 0, 4, false, false, false, false},
		"shared, another acquisition":  {free(reads), []claim.Claim{reads}, 1, 5, false, false, false, false},
		"shared, guarded":              {free(reads), []claim.Claim{reads}, 0, 5, true, false, false, true},
		"shared, guarded once":         {free(reads), []claim.Claim{reads}, 0, 5, true, true, true, false},
		"a claim that waits, no token": {free(waitsAt(3, 0, 0, claim.Shared)), []claim.Claim{waitsAt(3, 0, 0, claim.Shared)}, 0, 0, false, false, false, false},
	} {
		t.Run(name, func(t *testing.T) {
			v := at(8, c.row, c.claims...)
			v.Alive = func(driver.ID) bool { return false }
			v.Locked = func(driver.ID) bool { return c.locked }
			freed, guarded := v.Release(idOf(c.acq), c.token, 0, c.mayGuard)
			done := v.Changes()
			if freed != c.freed || guarded != c.guarded || done.Changed != c.freed {
				t.Errorf("freed: %v, guarded: %v, %+v", freed, guarded, done)
			}
			if freed && (done.Row.Ended != claim.Released || done.Row.Expires != 8) {
				t.Errorf("%+v", done.Row)
			}
		})
	}
}

func TestAWithdrawalEndsWhateverThereIs(t *testing.T) {
	reads, queued := termOf(0, 0, claim.Shared, 3, 5, 100), waitsAt(3, 0, 0, claim.Shared)
	for name, c := range map[string]struct {
		row       claim.Row
		claims    []claim.Claim
		mayGuard  bool
		locked    bool
		guarded   bool
		notBefore int64
	}{
		"a term":                     {heldRow(func(r *claim.Row) { r.Since = 6 }), nil, true, false, false, 11},
		"a term that began long ago": {heldRow(func(*claim.Row) {}), nil, true, false, false, 0},
		"a reader":                   {free(reads), []claim.Claim{reads}, false, false, false, 0},
		"a reader that may guard":    {free(reads), []claim.Claim{reads}, true, true, false, 0},
		"a reader that guards":       {free(reads), []claim.Claim{reads}, true, false, true, 0},
		"a claim that waits":         {free(queued), []claim.Claim{queued}, true, false, false, 0},
		"nothing":                    {free(), nil, true, false, false, 0},
	} {
		t.Run(name, func(t *testing.T) {
			v := at(9, c.row, c.claims...)
			v.Locked = func(driver.ID) bool { return c.locked }
			v.Alive = func(driver.ID) bool { return false }
			if guarded := v.Withdraw(idOf(0), 5, c.mayGuard); guarded != c.guarded {
				t.Errorf("guarded: %v", guarded)
			}
			r := v.Changes().Row
			left := r.Acq == idOf(0) || claimOf(v, c.claims, 0) != nil
			if left != c.guarded || r.NotBefore != c.notBefore || !left && (r.Waiting != 0 || r.Holding != 0) {
				t.Errorf("left: %v, %+v", left, r)
			}
		})
	}
}

func TestAWaitingClaimIsWithdrawnWithoutAMinimumHoldTime(t *testing.T) {
	queued := waitsAt(48, 0, 0, claim.Exclusive)
	v := at(50, free(queued), queued)
	v.Alive = func(driver.ID) bool { return false }
	v.Withdraw(idOf(0), 100, false)
	if r := v.Changes().Row; r.NotBefore != 0 || r.Waiting != 0 {
		t.Errorf("%+v", r)
	}
}

func TestANameIsKeptAsLongAsAnyTermAsked(t *testing.T) {
	claims := []claim.Claim{termOf(0, 0, claim.Shared, 3, 5, 100), termOf(1, 0, claim.Shared, 45, 5, 100)}
	v := at(50, free(claims...), claims...)
	v.Release(idOf(1), 5, 40, false)
	v.Release(idOf(0), 5, 60, false)
	if r := v.Changes().Row; r.NotBefore != 85 {
		t.Errorf("kept until %d", r.NotBefore)
	}
}

func TestARevocationServesWhoeverIsNext(t *testing.T) {
	queued := waitsAt(3, 1, 0, claim.Exclusive)
	for name, c := range map[string]struct {
		row     claim.Row
		revoked bool
		before  int64 // what Revoked says then
		version int64
	}{
		"after a term":                   {heldRow(func(r *claim.Row) { r.Expires = 100 }), true, 5, 51},
		"after a term with a late token": {heldRow(func(r *claim.Row) { r.Expires, r.Version = 100, 70 }), true, 70, 72},
		"of a name that is kept":         {claim.Row{Version: 5, NotBefore: 60}, true, 0, 51},
		"of a name that is free":         {claim.Row{Version: 5}, false, 0, 50},
	} {
		t.Run(name, func(t *testing.T) {
			row := c.row
			row.Waiting, row.Seq = 1, 20
			v := at(50, row, queued)
			revoked, guarded := v.Revoke()
			r := v.Changes().Row
			if given := v.HandOvers(); len(given) != 1 || given[0].Token != r.Version {
				t.Errorf("handed over: %+v", given)
			}
			if revoked != c.revoked || guarded || r.Acq != idOf(1) || r.Waiting != 0 || r.Revoked != c.before || r.Version != c.version {
				t.Errorf("revoked: %v, guarded: %v, %+v", revoked, guarded, r)
			}
		})
	}
}

func TestARevocationRaisesTheVersionToTheClock(t *testing.T) {
	v := at(50, heldRow(func(r *claim.Row) { r.Expires = 100 }))
	if revoked, _ := v.Revoke(); !revoked || v.Row().Version != 50 {
		t.Errorf("%v: %+v", revoked, v.Row())
	}
}

func TestATermIsDetachedOnlyByItsHolder(t *testing.T) {
	for name, c := range map[string]struct {
		change   func(r *claim.Row)
		pinned   bool
		detached bool
		guarded  bool
	}{
		"the holder":              {func(r *claim.Row) {}, false, true, false},
		"it was detached before":  {func(r *claim.Row) { r.Party = claim.Party{Acq: idOf(key)} }, false, true, false},
		"guarded":                 {func(r *claim.Row) {}, true, false, true},
		"another token":           {func(r *claim.Row) { r.Version = 6 }, false, false, false},
		"another acquisition":     {func(r *claim.Row) { r.Acq = idOf(1) }, false, false, false},
		"its term is over":        {func(r *claim.Row) { r.Expires = 8 }, false, false, false},
		"another's, guarded":      {func(r *claim.Row) { r.Acq = idOf(1) }, true, false, false},
		"another token, detached": {func(r *claim.Row) { r.Party, r.Version = claim.Party{Acq: idOf(key)}, 6 }, false, false, false},
	} {
		t.Run(name, func(t *testing.T) {
			row := heldRow(c.change)
			v := at(8, row)
			v.Pinned = c.pinned
			detached, guarded := v.Detach(idOf(0), 5, idOf(key), 20)
			done := v.Changes()
			if detached != c.detached || guarded != c.guarded || done.Changed != (c.detached && row.Acq != idOf(key)) {
				t.Errorf("detached: %v, guarded: %v, %+v", detached, guarded, done)
			}
			if done.Changed && (done.Row.Acq != idOf(key) || done.Row.Locker != driver.ID{} || done.Row.Version != 5 || done.Row.Expires != 28 || !done.Durable) {
				t.Errorf("%+v", done)
			}
		})
	}
}

func TestADetachedTermIsAdoptedOnceWithAHigherToken(t *testing.T) {
	detached := heldRow(func(r *claim.Row) { r.Party = claim.Party{Acq: idOf(key)} })
	v := at(8, detached)
	a := v.Adopt(idOf(key), tries(4, 1, claim.Exclusive))
	if r := v.Changes().Row; a.Outcome != claim.Granted || a.Found || a.Token != 8 || r.Acq != idOf(4) || r.Version != 8 || a.Expires != 18 {
		t.Fatalf("%+v, %+v", a, r)
	}
	if again := v.Adopt(idOf(key), tries(4, 1, claim.Exclusive)); !again.Found || again.Token != a.Token {
		t.Errorf("repeated: %+v", again)
	}
	if other := v.Adopt(idOf(key), tries(2, 0, claim.Exclusive)); other.Outcome != claim.Refused {
		t.Errorf("adopted twice: %+v", other)
	}
}

func TestATermIsResumedOnceWithAHigherToken(t *testing.T) {
	v := at(8, heldRow(func(*claim.Row) {}))
	a, guarded := v.Resume(5, tries(4, 1, claim.Exclusive))
	if r := v.Changes().Row; guarded || a.Outcome != claim.Granted || a.Found || a.Token != 8 || r.Acq != idOf(4) || a.Expires != 18 {
		t.Fatalf("%+v, %+v", a, r)
	}
	if again, _ := v.Resume(5, tries(4, 1, claim.Exclusive)); !again.Found || again.Token != a.Token {
		t.Errorf("repeated: %+v", again)
	}
	if crashed := v.Changes().Crashed; len(crashed) != 0 {
		t.Errorf("crashed: %v", crashed)
	}
}

func TestATermThatIsTakenOverHasANewTokenWhoeverReads(t *testing.T) {
	stray := termOf(2, 0, claim.Shared, 3, 5, 100) // it should not be there
	v := at(8, heldRow(func(r *claim.Row) { r.Party, r.Holding = claim.Party{Acq: idOf(key)}, 1 }), stray)
	if a := v.Adopt(idOf(key), tries(4, 1, claim.Exclusive)); a.Token <= 5 {
		t.Errorf("%+v", a)
	}
}
