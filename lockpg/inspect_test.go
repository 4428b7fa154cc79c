package lockpg_test

import (
	"bytes"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/sqllock/sqllock/driver"
)

const pgNow = `(extract(epoch FROM clock_timestamp()) * 1000000)::bigint`

func look(t *testing.T, store driver.Store, name string) driver.Row {
	t.Helper()
	read, err := store.Read(t.Context(), driver.ReadRequest{Names: []string{name}})
	rows := read.Rows
	if err != nil || len(rows) != 1 || rows[0].Name != name || rows[0].Now == 0 {
		t.Fatalf("Look(%q) = %+v, %v", name, rows, err)
	}
	return rows[0]
}

func release(t *testing.T, store driver.Store, name string, n int, version int64, minHold time.Duration) {
	t.Helper()
	freed, err := store.Release(t.Context(), []driver.ReleaseRequest{{Name: name, Acq: acq(n), Version: version, MinHold: minHold}})
	if err != nil || !freed[0].Freed {
		t.Fatalf("Release of %q = %v, %v", name, freed, err)
	}
}

// lockRow locks a row in a transaction until the function is called.
func lockRow(t *testing.T, db *sql.DB, query string) (unlock func()) {
	t.Helper()
	tx, err := db.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Exec(query); err != nil {
		t.Fatal(err)
	}
	return func() { _ = tx.Rollback() }
}

func TestALookTellsOfTheHolderOrOfTheLastOne(t *testing.T) {
	t.Parallel()
	db := migrated(t)
	store := open(t, db)
	if r := look(t, store, "a"); r.Held() || r.Holder.Version != 0 || r.Ended != 0 {
		t.Errorf("a name that was never locked: %+v", r)
	}
	every := make([]byte, 64<<10)
	for i := range every {
		every[i] = byte(i)
	}
	req := request("a", 1, time.Minute)
	req.Value = every
	res := grant(t, store, req, request("b", 2, time.Minute))
	r := look(t, store, "a")
	h := r.Holder
	if h.Acq != acq(1) || h.Owner != "owner 1" || h.Label != "test" || h.Version != res[0].Version || r.Holds != 1 ||
		h.Until-h.Since != time.Minute.Microseconds() || h.Until <= r.Now || !bytes.Equal(r.Value, every) {
		t.Errorf("the holder of a: %+v with %d bytes", h, len(r.Value))
	}
	if r := look(t, store, "b"); r.Value != nil {
		t.Errorf("a value that nobody gave: %q", r.Value)
	}
	release(t, store, "a", 1, res[0].Version, 0)
	r = look(t, store, "a")
	if r.Held() || r.Holder.Owner != "" || r.Holder.Version != res[0].Version || r.Ended != driver.EndedReleased || r.Value != nil ||
		r.Holder.Until > r.Now || r.Gate > r.Now {
		t.Errorf("a after its release: %+v", r)
	}
	req.Acq, req.Value = acq(3), []byte("x")
	grant(t, store, req)
	expire(t, db, "a")
	grant(t, store, request("a", 4, time.Minute))
	if r := look(t, store, "a"); r.Value != nil {
		t.Errorf("the value of the holder before: %q", r.Value)
	}
}

func TestATakeOverTellsWhoCrashed(t *testing.T) {
	t.Parallel()
	db := migrated(t)
	store := open(t, db)
	old := grant(t, store, request("a", 1, time.Minute), request("b", 2, time.Minute), request("c", 3, time.Minute))
	expire(t, db, "a")
	expire(t, db, "b")
	res := grant(t, store, request("a", 4, time.Minute), request("b", 2, time.Minute), request("c", 5, time.Minute), request("d", 6, time.Minute))
	if c := res[0].Crashed; c.Acq != acq(1) || c.Owner != "owner 1" || c.Label != "test" || c.Version != old[0].Version || c.Until != 1 || c.Since == 0 {
		t.Errorf("a was taken over from %+v", c)
	}
	for i, r := range res[1:] {
		if r.Crashed != (driver.Holder{}) {
			t.Errorf("request %d tells of a crash: %+v", i+1, r.Crashed)
		}
	}
	if !res[1].Granted || res[1].Version <= old[1].Version {
		t.Errorf("an acquisition that expired and asks again: %+v", res[1])
	}
}

func TestTheMinimumHoldKeepsTheNameAfterTheRelease(t *testing.T) {
	t.Parallel()
	db := migrated(t)
	store := open(t, db)
	v := grant(t, store, request("a", 1, time.Minute))[0].Version
	release(t, store, "a", 1, v, 10*time.Minute)
	r := look(t, store, "a")
	if want := r.Holder.Since + (10 * time.Minute).Microseconds(); r.Gate != want {
		t.Errorf("kept until %d, want %d", r.Gate, want)
	}
	res := grant(t, store, request("a", 2, time.Minute))[0]
	if want := (driver.Holder{Until: r.Gate}); res.Granted || res.Holder != want {
		t.Errorf("somebody else gets %+v, want to be told %+v", res, want)
	}
	mustExec(t, db, `UPDATE sqllock_lock SET not_before = 0`)
	grant(t, store, request("a", 3, time.Minute))
	if _, err := store.Release(t.Context(), []driver.ReleaseRequest{{Name: "a", Acq: acq(3), MinHold: time.Minute}}); err != nil {
		t.Fatal(err)
	}
	r = look(t, store, "a")
	if want := r.Holder.Since + time.Minute.Microseconds(); r.Gate != want || r.Ended != driver.EndedReleased {
		t.Errorf("after an undone request: %+v, want it kept until %d", r, want)
	}
}

func TestAListGoesThroughTheTableInWindows(t *testing.T) {
	t.Parallel()
	db := migrated(t)
	store := open(t, db)
	mustExec(t, db, `INSERT INTO sqllock_lock (name, acq, version, not_before, expires_at)
		SELECT to_char(i, 'FM000'), CASE WHEN i % 10 = 0 THEN md5(i::text)::uuid END, i, CASE WHEN i = 55 THEN `+pgNow+` + 60000000 ELSE 0 END, 1
		FROM generate_series(1, 95) i`)
	for _, free := range []bool{false, true} {
		var names []string
		req := driver.ListRequest{Limit: 20, Free: free}
		for calls := 1; ; calls++ {
			page, err := store.Read(t.Context(), driver.ReadRequest{List: req})
			if err != nil {
				t.Fatal(err)
			}
			for _, r := range page.Rows {
				names = append(names, r.Name)
			}
			if want := fmt.Sprintf("%03d", min(20*calls, 95)); page.Last != want {
				t.Fatalf("call %d looked up to %q, want %q", calls, page.Last, want)
			}
			if req.After = page.Last; !page.More {
				break
			}
		}
		switch got := strings.Join(names, " "); {
		case !free && got != "010 020 030 040 050 055 060 070 080 090":
			t.Errorf("listed %s", got)
		case free && (len(names) != 95 || !strings.HasPrefix(got, "001 002 003")):
			t.Errorf("listed %s", got)
		}
	}
	if page, err := store.Read(t.Context(), driver.ReadRequest{List: driver.ListRequest{After: "095", Limit: 20}}); err != nil || page.More || len(page.Rows) > 0 {
		t.Errorf("after the last: %+v, %v", page, err)
	}
}

func TestRevokingEndsTheTermAndTellsItsHolder(t *testing.T) {
	t.Parallel()
	db := migrated(t)
	store := open(t, db)
	old := grant(t, store, request("a", 1, time.Minute), request("b", 2, time.Minute))
	release(t, store, "b", 2, old[1].Version, 0)
	before := get[int64](t, db, `SELECT version FROM sqllock_lock WHERE name = 'b'`)
	res, err := store.Revoke(t.Context(), []driver.RevokeRequest{{Name: "a"}, {Name: "b"}, {Name: "c"}})
	if err != nil || len(res) != 3 {
		t.Fatalf("Revoke = %+v, %v", res, err)
	}
	if r := res[0]; !r.Revoked || r.Row.Name != "a" || r.Row.Holder.Acq != acq(1) || r.Row.Holder.Version != old[0].Version {
		t.Errorf("a: %+v", r)
	}
	if r := res[1]; r.Revoked || r.Row.Name != "b" || r.Row.Holder.Version != before || r.Row.Ended != driver.EndedReleased {
		t.Errorf("b, which is free: %+v", r)
	}
	if r := res[2]; r.Revoked || r.Row.Name != "c" || r.Row.Holder.Version != 0 {
		t.Errorf("c, which is unknown: %+v", r)
	}
	if get[int64](t, db, `SELECT version FROM sqllock_lock WHERE name = 'b'`) != before {
		t.Error("a free name was touched")
	}
	r := look(t, store, "a")
	if r.Held() || r.Ended != driver.EndedRevoked || r.Holder.Version <= old[0].Version {
		t.Errorf("a after it was revoked: %+v", r)
	}
	renew := []driver.RenewRequest{{Name: "a", Acq: acq(1), Version: old[0].Version, TTL: time.Minute, Holds: 1}}
	for _, when := range []string{"while it is free", "when somebody else has it"} {
		for _, wait := range []bool{false, true} {
			if got, err := store.Renew(t.Context(), renew, wait); err != nil || got.Status[0] != driver.Revoked {
				t.Errorf("a renewal %s says %v, %v", when, got.Status, err)
			}
		}
		if next := grant(t, store, request("a", 3, time.Minute))[0]; next.Granted && next.Version <= r.Holder.Version {
			t.Errorf("version %d after %d", next.Version, r.Holder.Version)
		}
	}
}

func TestRevokingOpensTheMinimumHold(t *testing.T) {
	t.Parallel()
	db := migrated(t)
	store := open(t, db)
	v := grant(t, store, request("a", 1, time.Minute))[0].Version
	release(t, store, "a", 1, v, time.Hour)
	if res, err := store.Revoke(t.Context(), []driver.RevokeRequest{{Name: "a"}}); err != nil || !res[0].Revoked || res[0].Row.Gate <= res[0].Row.Now {
		t.Fatalf("Revoke = %+v, %v", res, err)
	}
	if !grant(t, store, request("a", 2, time.Minute))[0].Granted {
		t.Error("the name is still kept")
	}
}

// The client of a call that waits for a row may have gone: nobody wants what it does then,
// and least of all the next holder.
func TestRevokingEndsNoTermThatHasBegunWhileItWaited(t *testing.T) {
	t.Parallel()
	db := migrated(t)
	store := open(t, db)
	v := grant(t, store, request("a", 1, time.Minute))[0].Version
	tx, err := db.Begin()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback() }()
	if _, err := tx.Exec(`UPDATE sqllock_lock SET acq = $1, version = version + 7 WHERE name = 'a'`, acq(2).String()); err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() {
		res, err := patiently(func() ([]driver.RevokeResult, error) {
			return store.Revoke(t.Context(), []driver.RevokeRequest{{Name: "a", Version: v}})
		})
		if err == nil && res[0].Revoked {
			err = errors.New("it was revoked")
		}
		done <- err
	}()
	waitsForLock(t, db)
	if err := tx.Commit(); err != nil {
		t.Fatal(err)
	}
	if err := <-done; err != nil {
		t.Errorf("Revoke = %v", err)
	}
	if r := look(t, store, "a"); !r.Held() || r.Holder.Acq != acq(2) {
		t.Errorf("the term that began meanwhile was ended: %+v", r)
	}
	if res, err := store.Revoke(t.Context(), []driver.RevokeRequest{{Name: "a"}}); err != nil || !res[0].Revoked {
		t.Errorf("the next Revoke = %+v, %v", res, err)
	}
}

func TestNothingIsRevokedPastAGuard(t *testing.T) {
	t.Parallel()
	db := migrated(t)
	store := open(t, db)
	grant(t, store, request("a", 1, time.Minute), request("b", 2, time.Minute))
	unlock := lockRow(t, db, `SELECT FROM sqllock_lock WHERE name = 'b' FOR KEY SHARE`)
	defer unlock()
	began := time.Now()
	_, err := store.Revoke(t.Context(), []driver.RevokeRequest{{Name: "a"}, {Name: "b"}})
	if classify(err) != driver.Again || time.Since(began) > 5*time.Second {
		t.Errorf("Revoke past a guard = %v after %v, want to be told to try again", err, time.Since(began))
	}
	if !look(t, store, "a").Held() || !look(t, store, "b").Held() {
		t.Error("a part was revoked")
	}
	unlock()
	if res, err := store.Revoke(t.Context(), []driver.RevokeRequest{{Name: "a"}, {Name: "b"}}); err != nil || !res[0].Revoked || !res[1].Revoked {
		t.Errorf("Revoke after the guard = %+v, %v", res, err)
	}
}

// The first statement that is prepared on a connection has an empty text as its first parameter.
func TestAPageIsReadOnAConnectionThatHasRunNothingElse(t *testing.T) {
	t.Parallel()
	db := migrated(t)
	store := open(t, db)
	grant(t, store, request("k", 1, time.Minute))
	db.SetMaxIdleConns(-1) // each call has a connection of its own
	page, err := store.Read(t.Context(), driver.ReadRequest{List: driver.ListRequest{Limit: 10}})
	if err != nil || len(page.Rows) != 1 {
		t.Errorf("%v, %v", page.Rows, err)
	}
}
