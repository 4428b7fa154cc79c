package lockmysql_test

import (
	"context"
	"database/sql"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sqllock/sqllock/driver"
	"github.com/sqllock/sqllock/internal/queuetest"
	"github.com/sqllock/sqllock/lockmysql"
)

func sweep(t *testing.T, s driver.Store, retention time.Duration) driver.SweepResult {
	t.Helper()
	res, err := s.Sweep(t.Context(), driver.SweepRequest{Limit: 1000, Retention: retention})
	if err != nil {
		t.Fatalf("Sweep: %v", err)
	}
	return res
}

func sweepDue(t *testing.T, s driver.Store, every time.Duration) bool {
	t.Helper()
	res, err := s.Sweep(t.Context(), driver.SweepRequest{Every: every})
	if err != nil {
		t.Fatalf("Sweep: %v", err)
	}
	return res.Due
}

// left are the names in the table.
func left(t *testing.T, db *sql.DB) (names string) {
	t.Helper()
	if err := db.QueryRow("SELECT COALESCE(GROUP_CONCAT(name ORDER BY name SEPARATOR '; '), '') FROM `sqllock_lock`").Scan(&names); err != nil {
		t.Fatal(err)
	}
	return names
}

func TestASweepEndsWhatCrashedHoldersLeftAndNothingElse(t *testing.T) {
	eachServer(t, func(t *testing.T, f *fixture) {
		s, db := f.store(t)
		reqs := []driver.AcquireRequest{request("crashed 1"), request("crashed 2"), request("held"), request("locked")}
		reqs[0].Value = []byte("x")
		take(t, s, reqs[2:]...)
		expire(t, db, "locked")
		held := dump(t, db, "held")
		unlock := lockRow(t, f.Open(t), "locked")
		var old []driver.AcquireResult
		var res driver.SweepResult
		queuetest.Within(t, 900*time.Millisecond, func() { // one that waits waits for a second
			old = take(t, s, reqs[:2]...)
			expire(t, db, "crashed 1", "crashed 2")
			res = sweep(t, s, time.Hour)
		})
		if len(res.Crashed) != 2 || res.Seen != 4 || res.More || res.Last != "locked" || res.Purged != 0 {
			t.Fatalf("%+v", res)
		}
		for i, c := range res.Crashed {
			want := driver.Holder{Acq: reqs[i].Acq, Owner: reqs[i].Owner, Label: "host/test/1", Version: old[i].Version, Since: old[i].Now, Until: 1}
			if c.Name != reqs[i].Name || c.Holder != want {
				t.Errorf("%+v, want %+v", c, want)
			}
			r := look(t, s, c.Name)[0]
			if r.Held() || r.Holder != (driver.Holder{Version: old[i].Version, Since: old[i].Now, Until: 1}) ||
				r.Ended != driver.EndedExpired || r.Holds != 0 || r.Value != nil {
				t.Errorf("afterwards: %+v", r)
			}
		}
		if now := dump(t, db, "held"); now != held {
			t.Errorf("a held name was touched: %s, was %s", now, held)
		}
		if res := sweep(t, s, time.Hour); len(res.Crashed) > 0 {
			t.Errorf("told again: %+v", res.Crashed)
		}
		unlock()
		if res := sweep(t, s, time.Hour); len(res.Crashed) != 1 || res.Crashed[0].Name != "locked" {
			t.Errorf("when the row is free: %+v", res.Crashed)
		}
		if r := take(t, s, request("crashed 1"))[0]; r.Crashed != (driver.Holder{}) {
			t.Errorf("the next holder is told again: %+v", r)
		}
	})
}

// Only rows that are free, idle for longer than the retention, and of a version
// that the clock has left behind are deleted.
func TestASweepDeletesNothingThatCouldBeMissed(t *testing.T) {
	t.Parallel()
	eachServer(t, func(t *testing.T, f *fixture) {
		s, db := f.store(t)
		const later = clock + " + 60000000"
		exec(t, db, "INSERT INTO `sqllock_lock` (name, acq, version, expires_at, not_before, holding, waiting) VALUES"+
			"('idle', NULL, 1, 1, 0, 0, 0),"+
			"('used lately', NULL, 1, "+clock+" - 1000000, 0, 0, 0),"+
			"('of a clock in the future', NULL, "+clock+" + 1000000000, 1, 0, 0, 0),"+
			"('of a young version', NULL, "+clock+" - 1000000, 1, 0, 0, 0),"+
			"('kept', NULL, 1, 1, "+later+", 0, 0),"+
			"('read', NULL, 1, 1, 0, 1, 0),"+
			"('waited for', NULL, 1, 1, 0, 0, 1),"+
			"('locked', NULL, 1, 1, 0, 0, 0),"+
			"('held', '1234567890123456', 1, "+later+", 0, 0, 0)")
		unlock := lockRow(t, f.Open(t), "locked")
		res := sweep(t, s, time.Hour)
		const want = "held; kept; locked; of a clock in the future; of a young version; read; used lately; waited for"
		if got := left(t, db); res.Purged != 1 || res.Seen != 9 || got != want {
			t.Errorf("purged %d of %d, left: %s", res.Purged, res.Seen, got)
		}
		unlock()
		if res := sweep(t, s, time.Hour); res.Purged != 1 {
			t.Errorf("when the row is free: %+v", res)
		}
		before := questions(t, db)
		sweep(t, s, time.Hour)
		if asked := questions(t, db) - before - 1; asked != 2 {
			t.Errorf("%d statements for nothing to do, want two looks", asked)
		}
	})
}

// What a sweep has seen may have changed when it comes to act on it.
func TestASweepActsOnWhatIsSoWhenItActs(t *testing.T) {
	t.Parallel()
	eachServer(t, func(t *testing.T, f *fixture) {
		for name, params := range sessions(t, f) {
			t.Run(name, func(t *testing.T) {
				s, db := f.store(t, params...)
				other, otherDB := f.store(t)
				exec(t, otherDB, "DELETE FROM `sqllock_lock`")
				crashed := []driver.AcquireRequest{request("crashed, released"), request("crashed, revoked"), request("crashed, still"),
					request("crashed, taken"), request("not crashed after all")}
				free := releases(crashed, take(t, other, crashed...))
				expire(t, otherDB, "crashed, released", "crashed, revoked", "crashed, still", "crashed, taken", "not crashed after all")
				for _, name := range []string{"idle, kept", "idle, purged", "idle, still", "idle, taken"} {
					exec(t, otherDB, "INSERT INTO `sqllock_lock` (name, version, expires_at) VALUES (?, 1, 1)", name)
				}
				res, err := lockmysql.With(t, s, func() {
					release(t, other, free[0])
					revoke(t, other, "crashed, revoked")
					took := take(t, other, request("crashed, taken"), request("idle, taken"))
					if took[0].Crashed.Acq != crashed[3].Acq {
						t.Errorf("%+v", took[0])
					}
					exec(t, otherDB, "UPDATE `sqllock_lock` SET not_before = 9000000000000000 WHERE name = 'idle, kept'")
					exec(t, otherDB, "DELETE FROM `sqllock_lock` WHERE name = 'idle, purged'")
					exec(t, otherDB, "UPDATE `sqllock_lock` SET expires_at = 9000000000000000 WHERE name = 'not crashed after all'")
				}).Sweep(t.Context(), driver.SweepRequest{Limit: 100, Retention: time.Hour})
				if err != nil || len(res.Crashed) != 1 || res.Crashed[0].Name != "crashed, still" || res.Purged != 1 {
					t.Errorf("%+v, %v", res, err)
				}
				if got := left(t, otherDB); got != "crashed, released; crashed, revoked; crashed, still; crashed, taken; idle, kept; idle, taken; not crashed after all" {
					t.Errorf("left: %s", got)
				}
				rows := look(t, other, "crashed, released", "crashed, revoked", "crashed, still", "crashed, taken", "idle, taken", "not crashed after all")
				if rows[0].Ended != driver.EndedReleased || rows[1].Ended != driver.EndedRevoked || rows[2].Ended != driver.EndedExpired ||
					!rows[3].Held() || !rows[4].Held() || !rows[5].Held() {
					t.Errorf("%+v", rows)
				}
				if db.Stats().OpenConnections != 1 {
					t.Errorf("%+v", db.Stats())
				}
			})
		}
	})
}

func TestASweepGoesOnWhereTheLastOneStopped(t *testing.T) {
	t.Parallel()
	eachServer(t, func(t *testing.T, f *fixture) {
		s, db := f.store(t)
		for i := range 250 {
			exec(t, db, "INSERT INTO `sqllock_lock` (name, version, expires_at) VALUES (?, 1, 1)", fmt.Sprintf("%03d", i+1))
		}
		req := driver.SweepRequest{Limit: 100, Retention: time.Hour}
		for _, want := range []driver.SweepResult{
			{Seen: 100, Purged: 100, Last: "100", More: true},
			{Seen: 100, Purged: 100, Last: "200", More: true},
			{Seen: 50, Purged: 50, Last: "250"},
		} {
			got, err := s.Sweep(t.Context(), req)
			if err != nil || fmt.Sprint(got) != fmt.Sprint(want) {
				t.Errorf("after %q: %+v, %v; want %+v", req.After, got, err, want)
			}
			req.After = got.Last
		}
	})
}

// What a pass costs is to read the rows. It must not look each of them up by its key, nor look
// for claims of each.
func TestASweepLooksUpClaimsOnlyOfRowsThatCountSome(t *testing.T) {
	t.Parallel()
	eachServer(t, func(t *testing.T, f *fixture) {
		const free, awaited = 2000, 20
		_, admin := f.store(t)
		var rows []string
		for i := range free + awaited {
			rows = append(rows, fmt.Sprintf("('%04d', 1, %s, %d)", i, clock, i/free))
		}
		exec(t, admin, "INSERT INTO `sqllock_lock` (name, version, expires_at, waiting) VALUES "+strings.Join(rows, ", "))
		exec(t, admin, "INSERT INTO `sqllock_waiter` VALUES (UNHEX(LEFT(SHA2('w', 256), 32)), "+clock+" + 60000000)")
		exec(t, admin, "INSERT INTO `sqllock_claim` SELECT name, 0, 1, UNHEX(LEFT(SHA2(name, 256), 32)), 0, 0, 0, 0, 60000000, 5000000, 0, 1, 0, 0, 0, "+
			"UNHEX(LEFT(SHA2('w', 256), 32)), '', '', NULL, NULL FROM `sqllock_lock` WHERE waiting = 1")
		db := f.Open(t)
		db.SetMaxOpenConns(1)
		s := open(t, db)
		before := handled(t, db, "read_key")
		res, err := s.Sweep(t.Context(), driver.SweepRequest{Limit: 5000, Retention: time.Hour})
		if n := handled(t, db, "read_key") - before; err != nil || res.Seen != free+awaited || res.Purged != 0 || n < awaited || n > 10*awaited {
			t.Errorf("Sweep = %+v, %v with %d look-ups in indexes", res, err, n)
		}
	})
}

// handled is how often the only session of db has asked the tables for something.
func handled(t *testing.T, db *sql.DB, what string) (sum int) {
	t.Helper()
	rows, err := db.Query("SHOW SESSION STATUS LIKE 'Handler_" + what + "'")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		var name string
		var n int
		if err := rows.Scan(&name, &n); err != nil {
			t.Fatal(err)
		}
		sum += n
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	return sum
}

// A page of a list reads its rows alone, wherever it begins, however large the table is.
func TestAPageOfAListReadsItsRowsAlone(t *testing.T) {
	t.Parallel()
	eachServer(t, func(t *testing.T, f *fixture) {
		const limit = 20
		_, admin := f.store(t)
		var rows []string
		for i := range 5000 {
			rows = append(rows, fmt.Sprintf("('%04d', 1)", i))
		}
		exec(t, admin, "INSERT INTO `sqllock_lock` (name, version) VALUES "+strings.Join(rows, ", "))
		db := f.Open(t)
		db.SetMaxOpenConns(1)
		s := open(t, db)
		for _, after := range []string{"", "0005", "4"} {
			before := handled(t, db, "read%")
			read, err := s.Read(t.Context(), driver.ReadRequest{List: driver.ListRequest{After: after, Limit: limit, Free: true, Count: true}})
			// Each row is read by two statements, of which one passes it on twice. SHOW reads some, too.
			if n := handled(t, db, "read%") - before; err != nil || len(read.Rows) != limit || n < limit || n > 50*limit {
				t.Errorf("a page behind %q has %d names, %v, with %d reads", after, len(read.Rows), err, n)
			}
		}
	})
}

func TestLookingInsideAndIdleSweepsLeaveNoTrace(t *testing.T) {
	eachServer(t, func(t *testing.T, f *fixture) {
		other, admin := f.store(t)
		reqs := requests(50, "name %02d")
		take(t, other, reqs...)
		if !sweepDue(t, other, time.Nanosecond) {
			t.Error("no turn")
		}
		for _, level := range []string{"READ-COMMITTED", "REPEATABLE-READ", "SERIALIZABLE"} {
			s, _ := f.store(t, f.isolation(t, level))
			quiet := false
			for try := 0; try < 20 && !quiet; try++ { // the server itself writes now and then
				before := readInnoDB(t, admin)
				for range 50 {
					look(t, s, reqs[0].Name, "unknown")
					list(t, s, driver.ListRequest{Limit: 20})
					sweep(t, s, time.Hour)
					revoke(t, s, "unknown")
					if sweepDue(t, s, time.Hour) {
						t.Error("told to go")
					}
				}
				after := readInnoDB(t, admin)
				quiet = before == after
				t.Logf("%s: transaction ids: %d, log bytes: %d", level, after.trx-before.trx, after.lsn-before.lsn)
			}
			if !quiet {
				t.Errorf("%s: took transaction ids or wrote to the log, each time", level)
			}
		}
	})
}

func TestOfManyReapersOneIsToldToGo(t *testing.T) {
	t.Parallel()
	eachServer(t, func(t *testing.T, f *fixture) {
		s := open(t, f.Open(t))
		turns := func(every time.Duration) int64 {
			var n atomic.Int64
			var wg sync.WaitGroup
			for range 8 {
				wg.Go(func() {
					res, err := s.Sweep(context.Background(), driver.SweepRequest{Every: every})
					if err != nil {
						t.Error(err)
					}
					if res.Due {
						n.Add(1)
					}
				})
			}
			wg.Wait()
			return n.Load()
		}
		for range 20 {
			exec(t, f.Open(t), "UPDATE `sqllock_meta` SET swept_at = 0")
			if n := turns(time.Hour); n != 1 {
				t.Errorf("%d of 8 were told to go, want 1", n)
			}
		}
		// As a statement finds it that began before another one was told.
		exec(t, f.Open(t), "UPDATE `sqllock_meta` SET swept_at = "+clock+" + 1000000")
		if n := turns(time.Hour); n != 0 {
			t.Errorf("%d were told to go again", n)
		}
		exec(t, f.Open(t), "UPDATE `sqllock_meta` SET swept_at = "+clock+" + 1000000000")
		if n := turns(time.Hour); n != 1 {
			t.Errorf("%d were told to go after the clock went back, want 1", n)
		}
	})
}
