package locksqlite_test

import (
	"database/sql"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sqllock/sqllock/driver"
)

func TestLookTellsWhatTheTableKnows(t *testing.T) {
	db := open(t, migrated(t))
	s := openStore(t, db)
	reqs := ask("ended", "expired", "held")
	reqs[2].Value = []byte("v")
	before := time.Now().UnixMicro() - 1000 // SQLite's clock has milliseconds
	granted := grant(t, s, reqs)
	release(t, s, reqs[0], time.Minute)
	expire(t, db, "expired")
	if _, err := s.Renew(t.Context(), []driver.RenewRequest{{Name: "held", Acq: reqs[2].Acq, Version: granted[2].Version, TTL: time.Minute, Holds: 3}}, false); err != nil {
		t.Fatal(err)
	}

	rows := look(t, s, "held", "never seen", "expired", "held", "ended")
	for i, name := range []string{"held", "never seen", "expired", "held", "ended"} {
		if rows[i].Name != name || rows[i].Now < before || rows[i].Now > time.Now().UnixMicro()+1000 {
			t.Errorf("row %d: %+v", i, rows[i])
		}
	}
	held, never, expired, ended := rows[0], rows[1], rows[2], rows[4]
	want := driver.Holder{Acq: reqs[2].Acq, Owner: "owner of held", Label: "test", Version: granted[2].Version, Since: granted[2].Now, Until: held.Holder.Until}
	if !held.Held() || held.Holder != want || held.Holds != 3 || string(held.Value) != "v" || held.Gate != 0 || want.Until <= held.Now {
		t.Errorf("held: %+v, want %+v", held, want)
	}
	if never.Held() || never.Holder != (driver.Holder{}) || never.Holds != 0 || never.Gate != 0 || never.Ended != 0 || never.Value != nil {
		t.Errorf("never seen: %+v", never)
	}
	if !expired.Held() || expired.Holder.Acq != reqs[1].Acq || expired.Holder.Until > expired.Now {
		t.Errorf("expired: %+v", expired)
	}
	want = driver.Holder{Version: granted[0].Version, Since: granted[0].Now, Until: ended.Holder.Until}
	if ended.Held() || ended.Holder != want || ended.Ended != driver.EndedReleased || want.Until < want.Since || want.Until > ended.Now ||
		ended.Gate != want.Since+time.Minute.Microseconds() || ended.Holds != 0 {
		t.Errorf("ended: %+v, want %+v", ended, want)
	}
}

func TestAListIsReadInWindowsOfTheNamesInByteOrder(t *testing.T) {
	db := open(t, migrated(t))
	s := openStore(t, db)
	var names []string
	for i := range 40 {
		names = append(names, fmt.Sprintf("%c%d", "Za_é"[i%4], i))
	}
	reqs := ask(names...) // sorted now
	for i := range reqs {
		reqs[i].Value = []byte("v")
	}
	grant(t, s, reqs)
	var kept []string
	for i, r := range reqs {
		switch i % 4 {
		case 0:
			release(t, s, r, 0)
			continue
		case 1:
			release(t, s, r, time.Minute)
		case 2:
			expire(t, db, r.Name)
		}
		kept = append(kept, r.Name)
	}
	for _, free := range []bool{false, true} {
		want := kept
		if free {
			want = names
		}
		for _, limit := range []int{1, 7, 10, 40, 41} {
			rows, windows := list(t, s, limit, free)
			got := make([]string, len(rows))
			for i, r := range rows {
				got[i] = r.Name
				full := look(t, s, r.Name)[0]
				if full.Now, full.Value = r.Now, nil; fmt.Sprint(r) != fmt.Sprint(full) {
					t.Errorf("%+v in the list, %+v alone", r, full)
				}
			}
			if !slices.Equal(got, want) || windows != len(names)/limit+1 {
				t.Errorf("limit %d, free %v: %d windows of %q, want %q", limit, free, windows, got, want)
			}
		}
	}
	page, err := s.Read(t.Context(), driver.ReadRequest{List: driver.ListRequest{After: names[39], Limit: 5, Free: true}})
	if err != nil || len(page.Rows) > 0 || page.More {
		t.Errorf("after the last name: %+v, %v", page, err)
	}
}

func TestTheValueStandsLastSoThatAListDoesNotReadIt(t *testing.T) {
	db := open(t, migrated(t))
	var last string
	err := db.QueryRow(`SELECT name FROM pragma_table_info('sqllock_lock') ORDER BY cid DESC LIMIT 1`).Scan(&last)
	if err != nil || last != "value" {
		t.Errorf("%s, %v", last, err)
	}
	s := openStore(t, db)
	reqs := ask("k")
	reqs[0].Value = []byte("v")
	grant(t, s, reqs)
	if rows, _ := list(t, s, 9, false); len(rows) != 1 || rows[0].Value != nil {
		t.Errorf("%+v", rows)
	}
}

func list(t *testing.T, s driver.Store, limit int, free bool) (rows []driver.Row, windows int) {
	t.Helper()
	for req := (driver.ListRequest{Limit: limit, Free: free}); ; {
		page, err := s.Read(t.Context(), driver.ReadRequest{List: req})
		if err != nil {
			t.Fatal(err)
		}
		rows = append(rows, page.Rows...)
		windows++
		if !page.More {
			return rows, windows
		}
		if page.Last <= req.After {
			t.Fatalf("%q does not come after %q", page.Last, req.After)
		}
		req.After = page.Last
	}
}

func TestRevokeEndsWhatIsHeldOrKeptAndNothingElse(t *testing.T) {
	db := open(t, migrated(t))
	s := openStore(t, db)
	reqs := ask("expired", "held", "kept", "not asked for", "released")
	for i := range reqs {
		reqs[i].Value = []byte(reqs[i].Name)
	}
	grant(t, s, reqs)
	expire(t, db, "expired")
	release(t, s, reqs[2], time.Minute)
	release(t, s, reqs[4], 0)

	names := []string{"expired", "held", "kept", "never seen", "released"}
	before := look(t, s, names...)
	results, err := s.Revoke(t.Context(), revocations(names...))
	if err != nil || len(results) != len(names) {
		t.Fatal(results, err)
	}
	after := look(t, s, names...)
	for i, r := range results {
		now := r.Row.Now
		r.Row.Now = before[i].Now
		if fmt.Sprint(r.Row) != fmt.Sprint(before[i]) {
			t.Errorf("%s was %+v, not %+v", names[i], before[i], r.Row)
		}
		if revoked := i < 3; r.Revoked != revoked {
			t.Errorf("%s: revoked %v", names[i], r.Revoked)
		}
		x, was := after[i], before[i].Holder
		if x.Now = before[i].Now; !r.Revoked {
			if fmt.Sprint(x) != fmt.Sprint(before[i]) {
				t.Errorf("%s was left as %+v, is %+v", names[i], before[i], x)
			}
			continue
		}
		ended := driver.EndedRevoked
		if names[i] == "kept" { // its holder had released it
			ended = driver.EndedReleased
		}
		if x.Held() || x.Ended != ended || x.Value != nil || x.Holds != 0 || x.Gate != 0 ||
			x.Holder.Version <= was.Version || x.Holder.Version < now-1000 || x.Holder.Until != min(was.Until, now) {
			t.Errorf("%s is %+v after %+v", names[i], x, was)
		}
	}
	if r := look(t, s, "not asked for")[0]; !r.Held() {
		t.Errorf("%+v", r)
	}
	if r := grant(t, s, ask("kept"))[0]; !r.Granted {
		t.Errorf("%+v", r)
	}
	again, err := s.Revoke(t.Context(), []driver.RevokeRequest{{Name: "held"}})
	if err != nil || again[0].Revoked || again[0].Row.Holder.Version != after[1].Holder.Version {
		t.Errorf("revoked again: %+v, %v", again, err)
	}
}

// revocations are requests to end whichever terms there are.
func revocations(names ...string) []driver.RevokeRequest {
	reqs := make([]driver.RevokeRequest, len(names))
	for i, name := range names {
		reqs[i].Name = name
	}
	return reqs
}

func TestARevokeThatFailsSaysSoAndEndsNothing(t *testing.T) {
	db := open(t, migrated(t))
	s := openStore(t, db)
	grant(t, s, ask("a", "b"))
	exec(t, db, `CREATE TRIGGER stubborn BEFORE UPDATE ON sqllock_lock WHEN old.name = 'b' BEGIN SELECT RAISE(ABORT, 'stubborn'); END`)
	if res, err := s.Revoke(t.Context(), []driver.RevokeRequest{{Name: "a"}, {Name: "b"}}); err == nil || !strings.Contains(err.Error(), "stubborn") {
		t.Errorf("Revoke = %+v, %v", res, err)
	}
	for _, r := range look(t, s, "a", "b") {
		if !r.Held() {
			t.Errorf("%+v", r)
		}
	}
}

func TestARevokedTokenIsPassedEvenIfTheClockWentBack(t *testing.T) {
	db := open(t, migrated(t))
	s := openStore(t, db)
	grant(t, s, ask("k"))
	exec(t, db, `UPDATE sqllock_lock SET version = version + 3600000000`)
	before := look(t, s, "k")[0].Holder.Version
	if _, err := s.Revoke(t.Context(), []driver.RevokeRequest{{Name: "k"}}); err != nil {
		t.Fatal(err)
	}
	if v := look(t, s, "k")[0].Holder.Version; v != before+1 {
		t.Errorf("token %d after %d", v, before)
	}
}

func TestTheHolderOfARevokedTermLearnsWhy(t *testing.T) {
	db := open(t, migrated(t))
	s := openStore(t, db)
	reqs := ask("expired", "revoked", "still held")
	renew := make([]driver.RenewRequest, len(reqs))
	for i, r := range grant(t, s, reqs) {
		renew[i] = driver.RenewRequest{Name: reqs[i].Name, Acq: reqs[i].Acq, Version: r.Version, TTL: time.Minute, Holds: 1}
	}
	expire(t, db, "expired")
	revoke := func() {
		t.Helper()
		if r, err := s.Revoke(t.Context(), []driver.RevokeRequest{{Name: "revoked"}}); err != nil || !r[0].Revoked {
			t.Fatal(r, err)
		}
	}
	check := func(when string, want driver.RenewStatus) {
		t.Helper()
		res, err := s.Renew(t.Context(), renew, false)
		if err != nil || !slices.Equal(res.Status, []driver.RenewStatus{driver.Gone, want, driver.Renewed}) || res.Now == 0 {
			t.Errorf("%s: %+v, %v", when, res, err)
		}
	}
	revoke()
	check("revoked", driver.Revoked)
	next := ask("revoked")
	if !grant(t, s, next)[0].Granted {
		t.Fatal("not granted")
	}
	check("somebody else has it", driver.Revoked)
	release(t, s, next[0], 0)
	check("and has released it", driver.Revoked)
	grant(t, s, ask("revoked"))
	revoke()
	check("a later term was revoked too", driver.Gone)
}

func TestAMinimumHoldKeepsAReleasedNameFromOthers(t *testing.T) {
	db := open(t, migrated(t))
	s := openStore(t, db)
	reqs := ask("abandoned", "abandoned, none", "gate", "later gate", "none", "over", "released")
	granted := grant(t, s, reqs)
	exec(t, db, `UPDATE sqllock_lock SET since = since - 120000000 WHERE name = 'over'`)
	exec(t, db, `UPDATE sqllock_lock SET not_before = 7 WHERE name IN ('gate', 'none', 'abandoned, none')`)
	exec(t, db, `UPDATE sqllock_lock SET not_before = 1 << 52 WHERE name = 'later gate'`)
	release(t, s, reqs[2], time.Minute)
	release(t, s, reqs[3], time.Minute)
	release(t, s, reqs[4], 0)
	release(t, s, reqs[5], time.Minute)
	release(t, s, reqs[6], time.Minute)
	if _, err := s.Release(t.Context(), []driver.ReleaseRequest{
		{Name: "abandoned", Acq: reqs[0].Acq, MinHold: time.Minute}, {Name: "abandoned, none", Acq: reqs[1].Acq},
	}); err != nil {
		t.Fatal(err)
	}
	for i, want := range []int64{
		granted[0].Now + 60_000_000, 7, granted[2].Now + 60_000_000, 1 << 52, 7, 0, granted[6].Now + 60_000_000,
	} {
		if got := notBefore(t, db, reqs[i].Name); got != want {
			t.Errorf("%s is kept until %d, want %d", reqs[i].Name, got, want)
		}
		r := grant(t, s, ask(reqs[i].Name))[0]
		if r.Granted != (want < r.Now) || !r.Granted && r.Holder != (driver.Holder{Until: want}) {
			t.Errorf("%s: %+v", reqs[i].Name, r)
		}
	}
}

func notBefore(t *testing.T, db *sql.DB, name string) (at int64) {
	t.Helper()
	if err := db.QueryRow(`SELECT not_before FROM sqllock_lock WHERE name = ?`, name).Scan(&at); err != nil {
		t.Fatal(err)
	}
	return at
}
