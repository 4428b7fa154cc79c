package claim_test

import (
	"math"
	"reflect"
	"testing"

	"github.com/sqllock/sqllock/internal/claim"
)

// These are statements on one row, each with rows that differ in one column.

// heldRow is the row of a name that acquisition 0 holds with token 5 until 10.
func heldRow(change func(r *claim.Row)) claim.Row {
	r := claim.Row{Party: party(0, 0), Version: 5, Holds: 1, Since: 1, Expires: 10}
	change(&r)
	return r
}

func TestARowIsRenewedOnlyByWhoeverHoldsIt(t *testing.T) {
	for name, c := range map[string]struct {
		change func(r *claim.Row)
		until  int64 // 0: it is not renewed
	}{
		"the holder":           {func(r *claim.Row) {}, 29},
		"another acquisition":  {func(r *claim.Row) { r.Acq = idOf(1) }, 0},
		"another token":        {func(r *claim.Row) { r.Version = 6 }, 0},
		"at the end":           {func(r *claim.Row) { r.Expires = 9 }, 0},
		"after the end":        {func(r *claim.Row) { r.Expires = 8 }, 0},
		"never shorter":        {func(r *claim.Row) { r.Expires = 50 }, 50},
		"up to its limit":      {func(r *claim.Row) { r.Limit = 12 }, 12},
		"below its limit":      {func(r *claim.Row) { r.Limit = 40 }, 29},
		"never below its past": {func(r *claim.Row) { r.Expires, r.Limit = 20, 12 }, 20},
	} {
		t.Run(name, func(t *testing.T) {
			row := heldRow(c.change)
			was := row.Expires
			ok := row.Renew(idOf(0), 5, 20, 3, 9)
			switch {
			case ok != (c.until != 0):
				t.Errorf("renewed: %v", ok)
			case ok && (row.Expires != c.until || row.Holds != 3):
				t.Errorf("until %d, %d holds", row.Expires, row.Holds)
			case !ok && (row.Expires != was || row.Holds != 1):
				t.Errorf("changed without renewal: %+v", row)
			}
		})
	}
}

func TestAClaimIsRenewedOnlyWhileItHolds(t *testing.T) {
	for name, c := range map[string]struct {
		change func(c *claim.Claim)
		until  int64
	}{
		"the holder":    {func(c *claim.Claim) {}, 29},
		"it waits":      {func(c *claim.Claim) { c.State = claim.Waiting }, 0},
		"another token": {func(c *claim.Claim) { c.Token = 6 }, 0},
		"at the end":    {func(c *claim.Claim) { c.Expires = 9 }, 0},
		"after the end": {func(c *claim.Claim) { c.Expires = 8 }, 0},
	} {
		t.Run(name, func(t *testing.T) {
			w := termOf(0, 0, claim.Shared, 3, 5, 10)
			c.change(&w)
			if ok := w.Renew(5, 20, 3, 9); ok != (c.until != 0) || ok && (w.Expires != c.until || w.Holds != 3) {
				t.Errorf("%v: %+v", ok, w)
			}
		})
	}
}

// A transaction of the application asks nothing of those who wait.
func TestARowIsFreedOnlyByWhoeverHoldsIt(t *testing.T) {
	for name, c := range map[string]struct {
		change    func(r *claim.Row)
		freed     bool
		notBefore int64
	}{
		"the holder":               {func(r *claim.Row) {}, true, 0},
		"another acquisition":      {func(r *claim.Row) { r.Acq = idOf(1) }, false, 0},
		"another token":            {func(r *claim.Row) { r.Version = 6 }, false, 0},
		"somebody waits":           {func(r *claim.Row) { r.Waiting = 1 }, false, 0},
		"it began late":            {func(r *claim.Row) { r.Since = 6 }, true, 11},
		"its minimum is just over": {func(r *claim.Row) { r.Since = 4 }, true, 0},
		"the name is kept already": {func(r *claim.Row) { r.Since, r.NotBefore = 6, 30 }, true, 30},
		"the name was kept before": {func(r *claim.Row) { r.Since, r.NotBefore = 6, 8 }, true, 11},
	} {
		t.Run(name, func(t *testing.T) {
			row := heldRow(c.change)
			was, ended := row, row
			if freed := row.Free(idOf(0), 5, 5, 9); freed != c.freed {
				t.Fatalf("freed: %v", freed)
			}
			if ends := ended.End(idOf(0), 5, 5, 9); ends != (c.freed || was.Waiting > 0) {
				t.Fatalf("ended in a transaction: %v", ends)
			}
			switch {
			case !c.freed && !reflect.DeepEqual(row, was):
				t.Errorf("changed: %+v", row)
			case c.freed && !reflect.DeepEqual(row, ended), was.Waiting > 0 && (ended.Acq != claim.Row{}.Acq || ended.Waiting != was.Waiting):
				t.Errorf("a transaction ends it as %+v, a release as %+v", ended, row)
			case c.freed && (row.Acq != claim.Row{}.Acq || row.NotBefore != c.notBefore || row.Version != 5 || row.Expires != 9 || row.Ended != claim.Released):
				t.Errorf("%+v", row)
			}
		})
	}
}

func TestAFreedRowSaysWhenItsTermEnded(t *testing.T) {
	for name, c := range map[string]struct{ since, expires, minHold, now, want, notBefore int64 }{
		"before it expires":                    {1, 10, 0, 9, 9, 0},
		"after it has expired":                 {1, 10, 0, 12, 10, 0},
		"the clock went back, nothing is kept": {70, 90, 0, 9, 9, 0},
	} {
		row := heldRow(func(r *claim.Row) { r.Since, r.Expires = c.since, c.expires })
		if !row.Free(idOf(0), 5, c.minHold, c.now) || row.Expires != c.want || row.NotBefore != c.notBefore {
			t.Errorf("%s: %+v", name, row)
		}
	}
}

func TestARowIsGrantedOnlyIfNothingIsInTheWay(t *testing.T) {
	request := claim.Request{Party: party(1, 0), Limits: limits(20)}
	for name, c := range map[string]struct {
		row     claim.Row
		granted bool
	}{
		"free":              {claim.Row{Version: 5}, true},
		"held":              {claim.Row{Version: 5, Party: party(0, 0), Expires: 100}, false},
		"expired":           {claim.Row{Version: 5, Party: party(0, 0), Expires: 1}, false},
		"somebody waits":    {claim.Row{Version: 5, Waiting: 1}, false},
		"somebody shares":   {claim.Row{Version: 5, Holding: 1}, false},
		"kept":              {claim.Row{Version: 5, NotBefore: 10}, false},
		"kept until now":    {claim.Row{Version: 5, NotBefore: 9}, true},
		"with an old limit": {claim.Row{Version: 5, Limit: 7, Delay: 3}, true},
		"after the clock":   {claim.Row{Version: 50}, true},
		"almost exhausted":  {claim.Row{Version: math.MaxInt64 - 1}, true},
		"exhausted":         {claim.Row{Version: math.MaxInt64}, false},
	} {
		t.Run(name, func(t *testing.T) {
			row := c.row
			if granted := row.Grant(&request, 9); granted != c.granted {
				t.Fatalf("granted: %v", granted)
			}
			if !c.granted {
				return
			}
			want := claim.Row{Party: request.Party, Version: max(c.row.Version+1, 9), Holds: 1, Since: 9, Expires: 29, NotBefore: c.row.NotBefore}
			if !reflect.DeepEqual(row, want) {
				t.Errorf("%+v, want %+v", row, want)
			}
		})
	}
}

func TestAFastGrantIsBoundByMaxHoldAndLockDelay(t *testing.T) {
	for name, c := range map[string]struct{ maxHold, until, limit int64 }{
		"none":          {0, 29, 0},
		"below the TTL": {5, 17, 17},
		"above the TTL": {30, 29, 42},
	} {
		row := claim.Row{Version: 5}
		request := claim.Request{Party: party(1, 0), Limits: claim.Limits{TTL: 20, MaxHold: c.maxHold, Delay: 3}}
		if !row.Grant(&request, 9) || row.Expires != c.until || row.Limit != c.limit || row.Delay != 3 {
			t.Errorf("%s: %+v", name, row)
		}
	}
}
