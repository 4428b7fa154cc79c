package lockmysql_test

import (
	"database/sql"
	"fmt"
	"testing"
	"time"

	"github.com/sqllock/sqllock/driver"
)

// dies leaves a term whose session is gone, with the lock delay that was asked for.
func (c *client) dies(t *testing.T, r driver.GrantRequest) driver.GrantResult {
	t.Helper()
	s, res := c.lock(t, r)
	giveBack(t, s)
	eventually(t, "the session is gone", 5*time.Second, func() bool { return !lookSession(t, c, r.Name).Session })
	return res
}

func revokeOne(t *testing.T, c *client, name string) driver.RevokeResult {
	t.Helper()
	res, err := c.Revoke(t.Context(), []string{name})
	if err != nil || len(res) != 1 {
		t.Fatalf("Revoke: %+v, %v", res, err)
	}
	return res[0]
}

func TestAHolderIsAskedToGiveUp(t *testing.T) {
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

// age makes the rows of the mode look as if nothing had happened for a day.
func age(t *testing.T, db *sql.DB) {
	t.Helper()
	const day = 86_400_000_000
	exec(t, db, fmt.Sprintf("UPDATE `sqllock_term` SET version = version - %d, ended_at = ended_at - %d WHERE name <> '' AND version > %d", day, day, day))
}

func TestASweepEndsDeadTermsAndDeletesIdleOnes(t *testing.T) {
	eachMode(t, func(t *testing.T, f *fixture, m sessionMode) {
		c, db := m.client(t, f), f.Open(t)
		sweepAll := func(retention time.Duration) (res driver.SweepResult) {
			t.Helper()
			req := driver.SweepRequest{Limit: 2, Retention: retention}
			for more := true; more; {
				part, err := c.Sweep(t.Context(), req)
				if err != nil {
					t.Fatal(err)
				}
				res.Crashed = append(res.Crashed, part.Crashed...)
				res.Purged += part.Purged
				res.Seen += part.Seen
				req.After, more = part.Last, part.More
			}
			return res
		}
		dead, delayed := request("a dead"), request("b delayed")
		delayed.Delay = time.Hour
		c.dies(t, dead)
		version := c.dies(t, delayed).Version
		held := request("c held")
		_, heldRes := c.lock(t, held)
		free := request("d free")
		s, res := c.lock(t, free)
		unlock(t, s, free, res)
		giveBack(t, s)
		readers := sharedRequest("e readers")
		reading, _ := c.lock(t, readers)

		got := sweepAll(time.Hour)
		if got.Seen != 5 || got.Purged != 0 || len(got.Crashed) != 2 || got.Crashed[0].Holder.Acq != dead.Acq || got.Crashed[1].Holder.Acq != delayed.Acq ||
			got.Crashed[1].Name != "b delayed" || got.Crashed[1].Holder.Version != version || got.Crashed[1].Holder.Until == 0 {
			t.Errorf("%+v", got)
		}
		if again := sweepAll(time.Hour); len(again.Crashed) != 0 {
			t.Errorf("told again: %+v", again)
		}
		if row := lookSession(t, c, "a dead"); row.Held() || row.Ended != driver.EndedExpired || row.Gate > row.Now {
			t.Errorf("%+v", row)
		}
		if row := lookSession(t, c, "b delayed"); row.Held() || row.Gate <= row.Now {
			t.Errorf("%+v", row)
		}
		if got := c.wantDenied(t, request("b delayed")); got.Holder.Until == 0 || got.Crashed != (driver.Holder{}) {
			t.Errorf("%+v", got)
		}

		exec(t, db, "UPDATE `sqllock_term` SET version = version + 86400000000 WHERE name = 'a dead'") // drawn by a clock that was wrong
		age(t, db)
		if m.name == advisory.name {
			exec(t, db, "INSERT INTO `sqllock_term` (mode, name) VALUES (2, 'of another mode')")
		}
		got = sweepAll(time.Hour)
		wantPurged := 2 // the free one, and that of the readers, who do not need it
		if got.Purged != wantPurged || len(got.Crashed) != 0 {
			t.Errorf("idle rows: %+v", got)
		}
		var left []string
		rows, err := db.Query("SELECT name FROM `sqllock_term` WHERE mode = ? AND name <> '' ORDER BY name", map[string]int{forUpdate.name: 2, advisory.name: 3}[m.name])
		if err != nil {
			t.Fatal(err)
		}
		for rows.Next() {
			var name string
			if err := rows.Scan(&name); err != nil {
				t.Fatal(err)
			}
			left = append(left, name)
		}
		_ = rows.Close()
		if fmt.Sprint(left) != "[a dead b delayed c held]" {
			t.Errorf("left: %q", left)
		}
		if m.name == forUpdate.name {
			var pins int
			if err := db.QueryRow("SELECT COUNT(*) FROM `sqllock_pin` WHERE name IN ('d free', 'e readers')").Scan(&pins); err != nil || pins != 1 {
				t.Errorf("%d pins are left, %v; want that of the readers, who have locked it", pins, err)
			}
		}
		c.wantDenied(t, request("e readers"))
		giveBack(t, reading)
		_, again := c.lock(t, request("d free"))
		if again.Version <= res.Version {
			t.Errorf("after a purge the token is %d, it was %d", again.Version, res.Version)
		}
		if row := lookSession(t, c, "c held"); !row.Session || row.Holder.Acq != held.Acq || heldRes.Version == 0 {
			t.Errorf("%+v", row)
		}
	})
}

func TestAListOfSessionsGoesThroughTheTableInWindows(t *testing.T) {
	eachMode(t, func(t *testing.T, f *fixture, m sessionMode) {
		c := m.client(t, f)
		if mine, err := c.Turn(t.Context(), time.Minute); err != nil || !mine { // whose row is not to be seen
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

func TestOneOfManyIsToldToSweep(t *testing.T) {
	eachServer(t, func(t *testing.T, f *fixture) {
		a, b, other := forUpdate.client(t, f), forUpdate.client(t, f), advisory.client(t, f)
		for _, step := range []struct {
			c     *client
			every time.Duration
			want  bool
		}{
			{a, time.Minute, true}, {a, time.Minute, false}, {b, time.Minute, false},
			{other, time.Minute, true}, {b, time.Nanosecond, true}, {a, time.Minute, false},
		} {
			if mine, err := step.c.Turn(t.Context(), step.every); err != nil || mine != step.want {
				t.Errorf("%+v: %v, %v", step, mine, err)
			}
		}
		exec(t, f.Open(t), "UPDATE `sqllock_term` SET version = 9000000000000000 WHERE name = ''")
		if mine, err := a.Turn(t.Context(), time.Minute); err != nil || !mine {
			t.Errorf("after the clock was set back: %v, %v", mine, err)
		}
	})
}
