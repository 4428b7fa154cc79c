package lockmysql_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/sqllock/sqllock/driver"
)

// dies leaves a term whose session is gone, with the lock delay that was asked for.
func (c *client) dies(t *testing.T, r driver.AcquireRequest) driver.AcquireResult {
	t.Helper()
	s, res := c.lock(t, r)
	giveBack(t, s)
	eventually(t, "the session is gone", 5*time.Second, func() bool { return !lookSession(t, c, r.Name).Session })
	return res
}

func revokeOne(t *testing.T, c *client, name string) driver.RevokeResult {
	t.Helper()
	res, err := c.Revoke(t.Context(), []driver.RevokeRequest{{Name: name}})
	if err != nil || len(res) != 1 {
		t.Fatalf("Revoke: %+v, %v", res, err)
	}
	return res[0]
}

func TestAHolderIsAskedToGiveUp(t *testing.T) {
	t.Parallel()
	eachMode(t, func(t *testing.T, f *fixture, m sessionMode) {
		a, b := m.client(t, f), m.client(t, f)
		r, mine := request("k"), request("another of the same Locker")
		s, res := a.lock(t, r)
		s2, res2 := a.lock(t, mine)
		for range 2 { // to ask twice is to ask
			got := revokeOne(t, b, "k")
			if !got.Revoked || got.Row.Holder.Acq != r.Acq || !got.Row.Session {
				t.Errorf("%+v", got)
			}
		}
		b.wantDenied(t, request("k"))
		if status := pings(t, s2, mine, res2); status != driver.Renewed {
			t.Errorf("a lock that nobody wants: %v", status)
		}
		if status := pings(t, s, r, res); status != driver.Revoked {
			t.Errorf("the lock that somebody wants: %v", status)
		}
		unlock(t, s, r, res)
		row := lookSession(t, b, "k")
		if row.Held() || row.Ended != driver.EndedRevoked || row.Revoked != res.Version {
			t.Errorf("when it was given up: %+v", row)
		}
		next := request("k")
		s3, res3 := b.lock(t, next)
		if status := pings(t, s3, next, res3); status != driver.Renewed || res3.Crashed != (driver.Holder{}) {
			t.Errorf("the next holder: %v, %+v", status, res3)
		}
		unlock(t, s3, next, res3)
		if row := lookSession(t, b, "k"); row.Ended != driver.EndedReleased || row.Revoked != res.Version {
			t.Errorf("%+v", row)
		}
	})
}

func TestWhatHasNoHolderIsRevokedAtOnce(t *testing.T) {
	t.Parallel()
	eachMode(t, func(t *testing.T, f *fixture, m sessionMode) {
		c := m.client(t, f)
		if got := revokeOne(t, c, "never locked"); got.Revoked || got.Row.Held() {
			t.Errorf("%+v", got)
		}
		dead := request("dead")
		dead.Delay, dead.MinHold = time.Hour, time.Hour
		res := c.dies(t, dead)
		if got := revokeOne(t, c, "dead"); !got.Revoked || got.Row.Holder.Acq != dead.Acq || got.Row.Session {
			t.Errorf("%+v", got)
		}
		row := lookSession(t, c, "dead")
		if row.Held() || row.Gate != 0 || row.Ended != driver.EndedRevoked || row.Revoked != res.Version {
			t.Errorf("%+v", row)
		}
		s, got := c.lock(t, request("dead"))
		if got.Crashed != (driver.Holder{}) {
			t.Errorf("%+v", got)
		}
		giveBack(t, s)

		gated := request("gate")
		gated.MinHold = time.Hour
		s, res = c.lock(t, gated)
		unlock(t, s, gated, res)
		c.wantDenied(t, request("gate"))
		if got := revokeOne(t, c, "gate"); !got.Revoked || got.Row.Gate <= got.Row.Now {
			t.Errorf("%+v", got)
		}
		c.lock(t, request("gate"))
	})
}

func TestAListOfSessionsGoesThroughTheTableInWindows(t *testing.T) {
	t.Parallel()
	eachMode(t, func(t *testing.T, f *fixture, m sessionMode) {
		c := m.client(t, f)
		if mine, err := c.SweepDue(t.Context(), time.Minute); err != nil || !mine { // whose row is not to be seen
			t.Errorf("the first turn: %v, %v", mine, err)
		}
		want := map[bool]int{}
		for i := range 9 {
			r := request(fmt.Sprintf("%02d", i))
			r.Shared = i%3 == 1
			s, res := c.lock(t, r)
			switch {
			case i%3 == 2:
				unlock(t, s, r, res)
				fallthrough
			case r.Shared && m.name == forUpdate.name:
				want[true]++
			default:
				want[false]++
				want[true]++
			}
		}
		for _, free := range []bool{false, true} {
			var names []string
			req := driver.ListRequest{Limit: 4, Free: free}
			for more := true; more; {
				page, err := c.List(t.Context(), req)
				if err != nil {
					t.Fatal(err)
				}
				for _, r := range page.Rows {
					names = append(names, r.Name)
					if r.Held() != r.Session || r.Now == 0 {
						t.Errorf("%+v", r)
					}
				}
				req.After, more = page.Last, page.More
			}
			if len(names) != want[free] {
				t.Errorf("free %v: %q, want %d", free, names, want[free])
			}
		}
	})
}
