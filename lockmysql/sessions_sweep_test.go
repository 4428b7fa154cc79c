package lockmysql_test

import (
	"database/sql"
	"fmt"
	"testing"
	"time"

	"github.com/sqllock/sqllock/driver"
	"github.com/sqllock/sqllock/lockmysql"
)

// age makes the rows of the mode look as if nothing had happened for a day.
func age(t *testing.T, db *sql.DB) {
	t.Helper()
	const day = 86_400_000_000
	exec(t, db, fmt.Sprintf("UPDATE `sqllock_term` SET version = version - %d, ended_at = ended_at - %d WHERE name <> '' AND version > %d", day, day, day))
}

func TestASweepEndsDeadTermsAndDeletesIdleOnes(t *testing.T) {
	t.Parallel()
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

// What a sweep has seen may have changed when it acts.
func TestASweepActsOnWhatIsSoNow(t *testing.T) {
	t.Parallel()
	eachMode(t, func(t *testing.T, f *fixture, m sessionMode) {
		c, db := m.client(t, f), f.Open(t)
		req := driver.SweepRequest{Limit: 10, Retention: time.Hour}
		old, gated, dead := request("a old"), request("b gated"), request("c dead")
		for _, r := range []driver.AcquireRequest{old, gated} {
			s, res := c.lock(t, r)
			unlock(t, s, r, res)
		}
		age(t, db)
		c.dies(t, dead)
		var used, taken driver.AcquireResult
		got, err := lockmysql.SweepWith(c.SessionStore, func() {
			again := request(old.Name)
			s, res := c.lock(t, again)
			unlock(t, s, again, res)
			used = res
			exec(t, db, "UPDATE `sqllock_term` SET not_before = 9000000000000000 WHERE name = 'b gated'")
			_, taken = c.lock(t, request(dead.Name))
		}).Sweep(t.Context(), req)
		if err != nil || got.Purged != 0 || len(got.Crashed) != 0 || got.Seen != 3 {
			t.Errorf("%+v, %v", got, err)
		}
		if row := lookSession(t, c, old.Name); row.Holder.Version != used.Version {
			t.Errorf("%+v, the last token was %d", row, used.Version)
		}
		if row := lookSession(t, c, gated.Name); row.Gate == 0 {
			t.Errorf("%+v", row)
		}
		if row := lookSession(t, c, dead.Name); row.Holder.Version != taken.Version || !row.Session || taken.Crashed.Acq != dead.Acq {
			t.Errorf("%+v, %+v", row, taken)
		}

		exec(t, db, "UPDATE `sqllock_term` SET not_before = 0, ended_at = 1, version = 1 WHERE name IN ('a old', 'b gated')")
		got, err = lockmysql.SweepWith(c.SessionStore, func() {
			exec(t, db, "UPDATE `sqllock_term` SET version = ? WHERE name = 'a old'", used.Version)
		}).Sweep(t.Context(), req)
		if err != nil || got.Purged != 1 { // that of the gate, which is open now
			t.Errorf("a token of just now: %+v, %v", got, err)
		}
		if row := lookSession(t, c, old.Name); row.Holder.Version != used.Version {
			t.Errorf("%+v", row)
		}
	})
}

func TestOneOfManyIsToldToSweep(t *testing.T) {
	t.Parallel()
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
			if mine, err := step.c.SweepDue(t.Context(), step.every); err != nil || mine != step.want {
				t.Errorf("%+v: %v, %v", step, mine, err)
			}
		}
		exec(t, f.Open(t), "UPDATE `sqllock_term` SET version = 9000000000000000 WHERE name = ''")
		if mine, err := a.SweepDue(t.Context(), time.Minute); err != nil || !mine {
			t.Errorf("after the clock was set back: %v, %v", mine, err)
		}
	})
}
