package lockpg_test

import (
	"context"
	"database/sql"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sqllock/sqllock/driver"
	"github.com/sqllock/sqllock/internal/queuetest"
	"github.com/sqllock/sqllock/internal/testdb"
	"github.com/sqllock/sqllock/lockpg"
)

// open opens the store of the unique mode for a client of its own.
func open(t testing.TB, db *sql.DB, opts ...lockpg.Option) driver.Store {
	t.Helper()
	store, err := lockpg.DB(db, opts...).OpenUnique(t.Context(), driver.Client{Instance: driver.ID{9}, Label: "test"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := store.Close(); err != nil {
			t.Error(err)
		}
	})
	return store
}

func acq(n int) driver.ID { return driver.ID{byte(n >> 16), byte(n >> 8), byte(n), 1} }

func request(name string, n int, ttl time.Duration) driver.AcquireRequest {
	return driver.AcquireRequest{Name: name, Acq: acq(n), Owner: fmt.Sprint("owner ", n), TTL: ttl}
}

func grant(t *testing.T, store driver.Store, reqs ...driver.AcquireRequest) []driver.AcquireResult {
	t.Helper()
	res, err := patiently(func() ([]driver.AcquireResult, error) { return store.Acquire(t.Context(), reqs) })
	if err != nil {
		t.Fatal(err)
	}
	if len(res) != len(reqs) {
		t.Fatalf("%d results for %d requests", len(res), len(reqs))
	}
	return res
}

func mustExec(t *testing.T, db *sql.DB, query string, args ...any) {
	t.Helper()
	if _, err := db.ExecContext(t.Context(), query, args...); err != nil {
		t.Fatalf("%s: %v", query, err)
	}
}

func get[T any](t *testing.T, db *sql.DB, query string, args ...any) (v T) {
	t.Helper()
	if err := db.QueryRowContext(t.Context(), query, args...).Scan(&v); err != nil {
		t.Fatalf("%s: %v", query, err)
	}
	return v
}

// supported returns those of some parameters of a DSN that the server knows: PostgreSQL 12 and 13
// have no idle_session_timeout, and end no idle session.
func supported(t *testing.T, d *testdb.Database, params ...string) (known []string) {
	t.Helper()
	db := d.Open(t)
	for _, p := range params {
		name, _, _ := strings.Cut(p, "=")
		if get[bool](t, db, `SELECT EXISTS (SELECT FROM pg_settings WHERE name = $1)`, name) {
			known = append(known, p)
		}
	}
	return known
}

// expire makes the holder of name a crashed one.
func expire(t *testing.T, db *sql.DB, name string) {
	t.Helper()
	mustExec(t, db, `UPDATE sqllock_lock SET expires_at = 1 WHERE name = $1`, name)
}

func TestABatchGivesEachRequestItsOwnAnswer(t *testing.T) {
	t.Parallel()
	db := migrated(t)
	store := open(t, db)
	names := []string{`a"quote`, `b\slash`, `c{brace},`, "d NULL", "e'); DROP TABLE x; --", "f\nline", "ü"}
	for i, name := range names {
		grant(t, store, request(name, i+1, time.Minute))
	}
	expire(t, db, names[1])
	res, err := store.Release(t.Context(), []driver.ReleaseRequest{
		{Name: names[2], Acq: acq(3), Version: get[int64](t, db, `SELECT version FROM sqllock_lock WHERE name = $1`, names[2])},
		{Name: names[3], Acq: acq(4), Version: 1}, // of another term
		{Name: "unknown", Acq: acq(1), Version: 1},
	})
	if err != nil || fmt.Sprint(res) != "[{true 0 []} {false 0 []} {false 0 []}]" {
		t.Fatalf("Release = %v, %v", res, err)
	}
	all := append(names, "z new")
	reqs := make([]driver.AcquireRequest, len(all))
	for i, name := range all {
		reqs[i] = request(name, 100+i, time.Minute)
	}
	reqs[4].Acq = acq(5) // asks again for what it holds
	for i, r := range grant(t, store, reqs...) {
		want := i == 1 || i == 2 || i == 4 || i == 7 // expired, released, its own, new
		if r.Granted != want {
			t.Errorf("%q: granted = %v, want %v", all[i], r.Granted, want)
		}
		switch {
		case r.Granted && (r.Version < 1 || r.Remaining <= 0 || r.Remaining > time.Minute):
			t.Errorf("%q: version %d, remaining %v", all[i], r.Version, r.Remaining)
		case !r.Granted && (r.Holder.Acq != acq(i+1) || r.Holder.Label != "test" || r.Holder.Until <= r.Now):
			t.Errorf("%q: holder %+v at %d", all[i], r.Holder, r.Now)
		}
	}
}

func TestTheVersionRisesFromTheRowOrFromTheClock(t *testing.T) {
	t.Parallel()
	db := migrated(t)
	store := open(t, db)
	first := grant(t, store, request("a", 1, time.Minute))[0]
	if d := first.Version - first.Now; d > 0 || d < -int64(time.Minute/time.Microsecond) {
		t.Errorf("the first version is %d at %d", first.Version, first.Now)
	}
	ahead := first.Version + int64(24*time.Hour/time.Microsecond) // the clock was wrong once
	mustExec(t, db, `UPDATE sqllock_lock SET version = $1, expires_at = 1`, ahead)
	if got := grant(t, store, request("a", 2, time.Minute))[0].Version; got != ahead+1 {
		t.Errorf("taken over with version %d, want %d", got, ahead+1)
	}
	if _, err := store.Release(t.Context(), []driver.ReleaseRequest{{Name: "a", Acq: acq(2)}}); err != nil {
		t.Fatal(err)
	}
	if got := grant(t, store, request("a", 3, time.Minute))[0].Version; got != ahead+2 {
		t.Errorf("granted with version %d, want %d", got, ahead+2)
	}
}

func TestAGateKeepsAFreeNameFromNewcomers(t *testing.T) {
	t.Parallel()
	db := migrated(t)
	store := open(t, db)
	r := grant(t, store, request("a", 1, time.Minute))[0]
	in := func(d time.Duration) int64 { return r.Now + d.Microseconds() }
	mustExec(t, db, `UPDATE sqllock_lock SET acq = NULL, not_before = $1`, in(time.Hour))
	if grant(t, store, request("a", 2, time.Minute))[0].Granted {
		t.Error("granted although the gate is closed")
	}
	mustExec(t, db, `UPDATE sqllock_lock SET acq = '00000000-0000-0000-0000-000000000001', expires_at = 1`)
	if grant(t, store, request("a", 2, time.Minute))[0].Granted {
		t.Error("taken over although the gate is closed")
	}
	mustExec(t, db, `UPDATE sqllock_lock SET not_before = $1`, in(-time.Hour))
	if !grant(t, store, request("a", 2, time.Minute))[0].Granted {
		t.Error("not granted although the gate is open")
	}
}

// footprint reads what a losing attempt must not touch.
func footprint(t *testing.T, db *sql.DB) string {
	t.Helper()
	return get[string](t, db, `SELECT concat_ws(' ', pg_current_wal_insert_lsn(), txid_snapshot_xmax(txid_current_snapshot()),
		(SELECT string_agg(concat_ws(' ', ctid, xmin, xmax), ',') FROM sqllock_lock))`)
}

func TestALosingAttemptLeavesNoTraceOnAServerOfItsOwn(t *testing.T) {
	t.Parallel()
	server := dedicated(t)
	db := server.Open(t)
	migrate(t, db)
	store := open(t, db)
	mustExec(t, db, `CHECKPOINT`)
	grant(t, store, request("a", 1, time.Minute))
	var before, after string
	for range 5 { // the server may write for its own reasons once in a while
		before = footprint(t, db)
		for i := range 500 {
			if grant(t, store, request("a", 2+i, time.Minute))[0].Granted {
				t.Fatal("granted a held name")
			}
		}
		if after = footprint(t, db); after == before {
			return
		}
	}
	t.Errorf("500 losing attempts left a trace: WAL position, next transaction, row were %s, are %s", before, after)
}

// flushed asks whether all that was written to the log is on disk. Where a record ends with a
// page, the next one is written behind the head of the next page, of 24 or 40 bytes.
const flushed = `SELECT unwritten <= CASE WHEN behind IN (24, 40) THEN behind ELSE 0 END
	FROM (SELECT i - f AS unwritten, (i - '0/0') % current_setting('wal_block_size')::int AS behind
		FROM (SELECT pg_current_wal_flush_lsn() AS f, pg_current_wal_insert_lsn() AS i) l) p`

func TestAGrantIsFlushedAndAReleaseNeedNotBeOnAServerOfItsOwn(t *testing.T) {
	t.Parallel()
	server := dedicated(t, "-c", "wal_writer_delay=10s", "-c", "synchronous_commit=off")
	db := server.Open(t)
	migrate(t, db)
	store := open(t, db)
	unflushed := 0
	for i := range 20 {
		name := fmt.Sprint(i)
		r := grant(t, store, request(name, i+1, time.Minute))[0]
		if !get[bool](t, db, flushed) {
			t.Fatal("a grant was not flushed although the server is set to synchronous_commit=off")
		}
		renewed, err := store.Renew(t.Context(), []driver.RenewRequest{{Name: name, Acq: acq(i + 1), Version: r.Version, TTL: time.Hour, Holds: 1}}, false)
		if err != nil || renewed.Status[0] != driver.Renewed {
			t.Fatalf("Renew = %v, %v", renewed, err)
		}
		if !get[bool](t, db, flushed) {
			t.Fatal("a renewal was not flushed")
		}
		if _, err := store.Release(t.Context(), []driver.ReleaseRequest{{Name: name, Acq: acq(i + 1), Version: r.Version}}); err != nil {
			t.Fatal(err)
		}
		if !get[bool](t, db, flushed) {
			unflushed++
		}
	}
	if unflushed == 0 {
		t.Error("every release waited for its flush")
	}
}

func TestALeaseCountsFromTheGrantNotFromTheStartOfAWait(t *testing.T) {
	t.Parallel()
	db := migrated(t)
	store := open(t, db)
	r := grant(t, store, request("a", 1, time.Minute))[0]
	if _, err := store.Release(t.Context(), []driver.ReleaseRequest{{Name: "a", Acq: acq(1), Version: r.Version}}); err != nil {
		t.Fatal(err)
	}
	var locked int64 // until when the row was, by the clock of the database
	r = inTime(t, func() (driver.AcquireResult, error) {
		tx := mustBegin(t, db)
		mustExecIn(t, tx, `SELECT FROM sqllock_lock FOR UPDATE`)
		unlocked := make(chan error, 1)
		time.AfterFunc(300*time.Millisecond, func() {
			err := tx.QueryRow(`SELECT ` + pgNow).Scan(&locked)
			_ = tx.Rollback()
			unlocked <- err
		})
		res, err := store.Acquire(t.Context(), []driver.AcquireRequest{request("a", 2, time.Minute)})
		if err := <-unlocked; err != nil {
			t.Fatal(err)
		}
		if err != nil {
			return driver.AcquireResult{}, err
		}
		return res[0], nil
	})
	until := get[int64](t, db, `SELECT expires_at FROM sqllock_lock`)
	if left := time.Duration(until-locked) * time.Microsecond; !r.Granted || left < time.Minute {
		t.Errorf("%+v: the row had %v left of a minute when it was unlocked", r, left)
	}
}

func TestARowThatSomebodyHasLockedHoldsUpNoOtherRenewal(t *testing.T) {
	t.Parallel()
	db := migrated(t)
	store := open(t, db)
	var reqs []driver.RenewRequest
	for i, name := range []string{"a", "b", "c", "d"} {
		r := grant(t, store, request(name, i+1, time.Minute))[0]
		reqs = append(reqs, driver.RenewRequest{Name: name, Acq: acq(i + 1), Version: r.Version, TTL: time.Hour, Holds: i})
	}
	expire(t, db, "d")
	tx, err := db.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback() }()
	if _, err := tx.Exec(`SELECT FROM sqllock_lock WHERE name = 'b' FOR UPDATE`); err != nil {
		t.Fatal(err)
	}
	res, err := store.Renew(t.Context(), reqs, false)
	if want := []driver.RenewStatus{driver.Renewed, driver.Busy, driver.Renewed, driver.Gone}; err != nil || fmt.Sprint(res.Status) != fmt.Sprint(want) {
		t.Fatalf("Renew = %v, %v; want %v", res.Status, err, want)
	}
	began := time.Now()
	_, err = store.Renew(t.Context(), reqs[1:2], true)
	if took := time.Since(began); classify(err) != driver.Again || took < 900*time.Millisecond || took > 5*time.Second {
		t.Errorf("Renew of the locked row = %v after %v, want to be told to try again after a second", err, took)
	}
	time.AfterFunc(200*time.Millisecond, func() { _ = tx.Rollback() })
	res, err = patiently(func() (driver.RenewResults, error) { return store.Renew(t.Context(), reqs[1:2], true) })
	if err != nil || res.Status[0] != driver.Renewed {
		t.Errorf("Renew of the row that was unlocked meanwhile = %v, %v", res.Status, err)
	}
	if got := get[string](t, db, `SELECT string_agg(holds::text, ' ' ORDER BY name) FROM sqllock_lock`); got != "0 1 2 1" {
		t.Errorf("holds are %s", got)
	}
}

func TestARenewalNeverShortensALeaseAndAReaderOfTheRowDoesNotBlockIt(t *testing.T) {
	t.Parallel()
	db := migrated(t)
	store := open(t, db)
	r := grant(t, store, request("a", 1, time.Hour))[0]
	tx, err := db.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback() }()
	if _, err := tx.Exec(`SELECT FROM sqllock_lock FOR KEY SHARE`); err != nil { // as a guard will
		t.Fatal(err)
	}
	before := get[int64](t, db, `SELECT expires_at FROM sqllock_lock`)
	res, err := store.Renew(t.Context(), []driver.RenewRequest{{Name: "a", Acq: acq(1), Version: r.Version, TTL: time.Second, Holds: 1}}, false)
	if err != nil || res.Status[0] != driver.Renewed {
		t.Fatalf("Renew = %v, %v", res, err)
	}
	if after := get[int64](t, db, `SELECT expires_at FROM sqllock_lock`); after < before {
		t.Errorf("a renewal moved the expiry back by %d µs", before-after)
	}
}

func TestATakeOverPassesOverARowThatSomebodyGuards(t *testing.T) {
	db := migrated(t)
	store := open(t, db)
	grant(t, store, request("a", 1, time.Minute))
	expire(t, db, "a")
	tx, err := db.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback() }()
	if _, err := tx.Exec(`SELECT FROM sqllock_lock FOR KEY SHARE`); err != nil {
		t.Fatal(err)
	}
	queuetest.Within(t, 900*time.Millisecond, func() { // a wait for the guard would take a second
		if grant(t, store, request("a", 2, time.Minute))[0].Granted {
			t.Error("taken over past the guard")
		}
	})
}

func TestConcurrentBatchesOfTheSameNamesNeverDeadlockOrGrantTwice(t *testing.T) {
	t.Parallel()
	db := migrated(t)
	store := open(t, db)
	const names, clients, rounds = 40, 8, 25
	var mu sync.Mutex
	last := make(map[string]int64)
	var wg sync.WaitGroup
	for c := range clients {
		wg.Go(func() {
			for r := range rounds {
				reqs := make([]driver.AcquireRequest, names)
				for i := range reqs {
					reqs[i] = request(fmt.Sprintf("%03d", i), 1+c+clients*(r+rounds*i), time.Minute)
				}
				res, err := store.Acquire(context.Background(), reqs)
				if err != nil {
					t.Errorf("Grant: %v", err)
					return
				}
				var mine []driver.ReleaseRequest
				mu.Lock()
				for i, x := range res {
					if !x.Granted {
						continue
					}
					if x.Version <= last[reqs[i].Name] {
						t.Errorf("%s: version %d after %d", reqs[i].Name, x.Version, last[reqs[i].Name])
					}
					last[reqs[i].Name] = x.Version
					mine = append(mine, driver.ReleaseRequest{Name: reqs[i].Name, Acq: reqs[i].Acq, Version: x.Version})
				}
				mu.Unlock()
				freed, err := store.Release(context.Background(), mine)
				if err != nil || strings.Contains(fmt.Sprint(freed), "false") {
					t.Errorf("Release = %v, %v", freed, err)
				}
			}
		})
	}
	wg.Wait()
}

func TestOnlyTheRightAcquisitionIsRenewedReleasedOrAbandoned(t *testing.T) {
	t.Parallel()
	db := migrated(t)
	store := open(t, db)
	old := grant(t, store, request("a", 1, time.Minute))[0]
	mustExec(t, db, `UPDATE sqllock_lock SET acq = NULL`)
	now := grant(t, store, request("a", 2, time.Minute))[0]
	renewed, err := store.Renew(t.Context(), []driver.RenewRequest{
		{Name: "a", Acq: acq(1), Version: old.Version, TTL: time.Minute, Holds: 1},
		{Name: "a", Acq: acq(2), Version: now.Version, TTL: time.Minute, Holds: 1},
	}, false)
	if want := []driver.RenewStatus{driver.Gone, driver.Renewed}; err != nil || fmt.Sprint(renewed.Status) != fmt.Sprint(want) {
		t.Errorf("Renew of the old and the new term = %v, %v; want %v", renewed.Status, err, want)
	}
	for _, r := range []driver.ReleaseRequest{
		{Name: "a", Acq: acq(1), Version: old.Version},
		{Name: "a", Acq: acq(1), Version: now.Version},
		{Name: "a", Acq: acq(2), Version: old.Version},
	} {
		if freed, err := store.Release(t.Context(), []driver.ReleaseRequest{r}); err != nil || freed[0].Freed {
			t.Errorf("Release of %+v = %v, %v", r, freed, err)
		}
	}
	for _, r := range []driver.ReleaseRequest{{Name: "a", Acq: acq(1)}, {Name: "b", Acq: acq(2)}} {
		if _, err := store.Release(t.Context(), []driver.ReleaseRequest{r}); err != nil {
			t.Error(err)
		}
	}
	if grant(t, store, request("a", 3, time.Minute))[0].Granted {
		t.Error("somebody else freed the name")
	}
}
