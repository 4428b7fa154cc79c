package claim_test

import (
	"math"
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

func TestAClaimIsWithdrawnBesideATermThatIsGuarded(t *testing.T) {
	queued := waitsAt(3, 4, 1, claim.Exclusive)
	v := at(9, heldRow(func(r *claim.Row) { r.Waiting = 1 }), queued)
	v.Pinned = true
	if guarded := v.Withdraw(idOf(4), 0, true); guarded || v.Changes().Row.Waiting != 0 {
		t.Errorf("guarded: %v, %+v", guarded, v.Changes())
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

func TestATermIsKeptOnlyForAMinimumHoldTime(t *testing.T) {
	for name, c := range map[string]struct{ since, minHold, notBefore int64 }{
		"none, and the clock went back": {70, 0, 0},
		"some, and the clock went back": {70, 5, 75},
		"just over":                     {45, 5, 0},
		"not over":                      {46, 5, 51},
	} {
		t.Run(name, func(t *testing.T) {
			v := at(50, heldRow(func(r *claim.Row) { r.Since = c.since }))
			v.Release(idOf(0), 5, c.minHold, false)
			if r := v.Changes().Row; r.NotBefore != c.notBefore {
				t.Errorf("kept until %d", r.NotBefore)
			}
		})
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

func TestARevocationRaisesTheVersionToTheClockAndIsFlushed(t *testing.T) {
	v := at(50, heldRow(func(r *claim.Row) { r.Expires = 100 }))
	if revoked, _ := v.Revoke(); !revoked || v.Row().Version != 50 || !v.Changes().Durable {
		t.Errorf("%v: %+v", revoked, v.Changes())
	}
}

func TestThereMayBeNothingToRevoke(t *testing.T) {
	reads := termOf(0, 0, claim.Shared, 3, 5, 100)
	for name, c := range map[string]struct {
		row              claim.Row
		claims           []claim.Claim
		pinned           bool
		revoked, guarded bool
	}{
		"kept until now":      {claim.Row{Version: 5, NotBefore: 50}, nil, false, false, false},
		"kept":                {claim.Row{Version: 5, NotBefore: 51}, nil, false, true, false},
		"a reader guards":     {free(reads), []claim.Claim{reads}, false, false, true},
		"a stranger guards":   {heldRow(func(*claim.Row) {}), nil, true, false, true},
		"nothing to guard it": {claim.Row{Version: 5}, nil, true, false, false},
	} {
		t.Run(name, func(t *testing.T) {
			v := at(50, c.row, c.claims...)
			v.Pinned = c.pinned
			revoked, guarded := v.Revoke()
			if revoked != c.revoked || guarded != c.guarded || v.Changes().Changed != c.revoked {
				t.Errorf("revoked: %v, guarded: %v, %+v", revoked, guarded, v.Changes())
			}
		})
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

func TestADetachedTermHasALabelAndNoOwner(t *testing.T) {
	v := at(8, heldRow(func(r *claim.Row) { r.Label, r.Owner = "giver", "owner" }))
	if detached, _ := v.Detach(idOf(0), 5, idOf(key), 20); !detached {
		t.Fatal("not detached")
	}
	if r := v.Changes().Row; r.Label != "giver" || r.Owner != "" || r.Locker != (driver.ID{}) {
		t.Errorf("%+v", r)
	}
}

func TestADetachedTermIsAdoptedOnceWithAHigherToken(t *testing.T) {
	detached := heldRow(func(r *claim.Row) { r.Party = claim.Party{Acq: idOf(key)} })
	v := at(8, detached)
	a, _ := v.Adopt(idOf(key), tries(4, 1, claim.Exclusive))
	if r := v.Changes().Row; a.Outcome != claim.Granted || a.Found || a.Token != 8 || r.Acq != idOf(4) || r.Version != 8 || a.Expires != 18 {
		t.Fatalf("%+v, %+v", a, r)
	}
	if again, _ := v.Adopt(idOf(key), tries(4, 1, claim.Exclusive)); !again.Found || again.Token != a.Token {
		t.Errorf("repeated: %+v", again)
	}
	if other, _ := v.Adopt(idOf(key), tries(2, 0, claim.Exclusive)); other.Outcome != claim.Refused {
		t.Errorf("adopted twice: %+v", other)
	}
}

func TestATermIsTakenOverOnlyWhileItGoesOn(t *testing.T) {
	for name, c := range map[string]struct {
		change  func(r *claim.Row)
		pinned  bool
		adopts  bool
		resumes bool
		guarded bool
	}{
		"detached":                  {func(r *claim.Row) { r.Acq, r.Locker = idOf(key), driver.ID{} }, false, true, true, false},
		"detached, over":            {func(r *claim.Row) { r.Acq, r.Expires = idOf(key), 8 }, false, false, false, false},
		"detached, guarded":         {func(r *claim.Row) { r.Acq = idOf(key) }, true, false, false, true},
		"held":                      {func(*claim.Row) {}, false, false, true, false},
		"over":                      {func(r *claim.Row) { r.Expires = 8 }, false, false, false, false},
		"with another token":        {func(r *claim.Row) { r.Version = 6 }, false, false, false, false},
		"of another owner":          {func(r *claim.Row) { r.Owner = "b" }, false, false, false, false},
		"guarded":                   {func(*claim.Row) {}, true, false, false, true},
		"of another owner, guarded": {func(r *claim.Row) { r.Owner = "b" }, true, false, false, false},
		"although somebody waits":   {func(r *claim.Row) { r.Waiting = 1 }, false, false, true, false},
	} {
		t.Run(name, func(t *testing.T) {
			row := heldRow(func(r *claim.Row) { r.Owner = "a" })
			c.change(&row)
			r := tries(4, 1, claim.Exclusive)
			r.Owner = "a"
			adopter, resumer := at(8, row), at(8, row)
			adopter.Pinned, resumer.Pinned = c.pinned, c.pinned
			mayAdopt := row.Acq == idOf(key)
			if a, guarded := adopter.Adopt(idOf(key), r); (a.Outcome == claim.Granted) != c.adopts || guarded != (c.guarded && mayAdopt) ||
				adopter.Changes().Changed != c.adopts {
				t.Errorf("adopts: %+v, guarded: %v", a, guarded)
			}
			if a, guarded := resumer.Resume(5, r); (a.Outcome == claim.Granted) != c.resumes || guarded != c.guarded || resumer.Changes().Changed != c.resumes {
				t.Errorf("resumes: %+v, guarded: %v", a, guarded)
			}
		})
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
	if a, _ := v.Adopt(idOf(key), tries(4, 1, claim.Exclusive)); a.Token <= 5 {
		t.Errorf("%+v", a)
	}
}

func TestARowWhoseNumbersAreExhaustedIsAnError(t *testing.T) {
	const last = math.MaxInt64
	reads := termOf(0, 0, claim.Shared, 3, 5, 100)
	alone := heldRow(func(r *claim.Row) { r.Expires = 100 })
	for name, c := range map[string]struct {
		row          claim.Row
		claims       []claim.Claim
		version, seq int64
		do           func(v *claim.Visit)
		err          error
	}{
		"a grant":        {free(), nil, last, 20, func(v *claim.Visit) { v.Acquire(tries(4, 1, claim.Exclusive)) }, claim.ErrExhausted},
		"the last grant": {free(), nil, last - 1, 20, func(v *claim.Visit) { v.Acquire(tries(4, 1, claim.Exclusive)) }, nil},
		"a revocation":   {alone, nil, last, 20, func(v *claim.Visit) { v.Revoke() }, claim.ErrExhausted},
		"a reader":       {free(reads), []claim.Claim{reads}, 5, last, func(v *claim.Visit) { v.Acquire(tries(4, 1, claim.Shared)) }, claim.ErrExhausted},
		"a claim":        {alone, nil, 5, last, func(v *claim.Visit) { v.Acquire(wants(4, 1, claim.Exclusive)) }, claim.ErrExhausted},
		"the last claim": {alone, nil, 5, last - 1, func(v *claim.Visit) { v.Acquire(wants(4, 1, claim.Exclusive)) }, nil},
		"the first two of it": {alone, nil, 5, last - 1, func(v *claim.Visit) {
			v.Acquire(wants(4, 1, claim.Exclusive))
			v.Acquire(wants(5, 1, claim.Exclusive))
		}, claim.ErrExhausted},
		"a release":    {alone, nil, last, last, func(v *claim.Visit) { v.Release(idOf(0), last, 0, false) }, nil},
		"a withdrawal": {free(reads), []claim.Claim{reads}, last, last, func(v *claim.Visit) { v.Withdraw(idOf(0), 0, false) }, nil},
		"a refusal":    {alone, nil, last, last, func(v *claim.Visit) { v.Acquire(tries(4, 1, claim.Exclusive)) }, nil},
	} {
		t.Run(name, func(t *testing.T) {
			row := c.row
			row.Version, row.Seq = c.version, c.seq
			v := at(50, row, c.claims...)
			c.do(v)
			if done := v.Changes(); done.Err != c.err || c.err == nil && name != "a refusal" && !done.Changed {
				t.Errorf("%+v", done)
			}
		})
	}
}
