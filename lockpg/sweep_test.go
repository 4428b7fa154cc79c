package lockpg_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/sqllock/sqllock/driver"
	"github.com/sqllock/sqllock/lockpg"
)

func sweep(t *testing.T, store driver.Store, retention time.Duration) driver.SweepResult {
	t.Helper()
	res, err := store.Sweep(t.Context(), driver.SweepRequest{Limit: 1000, Retention: retention})
	if err != nil {
		t.Fatal(err)
	}
	return res
}

func TestASweepEndsWhatCrashedHoldersLeftAndNothingElse(t *testing.T) {
	t.Parallel()
	db := migrated(t)
	store := open(t, db)
	req := request("crashed", 1, time.Minute)
	req.Value = []byte("x")
	old := grant(t, store, req)[0]
	grant(t, store, request("guarded", 2, time.Minute))
	grant(t, store, request("held", 3, time.Minute))
	expire(t, db, "crashed")
	expire(t, db, "guarded")
	defer lockRow(t, db, `SELECT FROM sqllock_lock WHERE name = 'guarded' FOR KEY SHARE`)()

	res := sweep(t, store, time.Hour)
	want := driver.Holder{Acq: acq(1), Owner: "owner 1", Label: "test", Version: old.Version, Until: 1}
	if len(res.Crashed) != 1 || res.Crashed[0].Name != "crashed" || res.Seen != 3 || res.More || res.Last != "held" {
		t.Fatalf("Sweep = %+v", res)
	}
	got := res.Crashed[0].Holder
	if want.Since = got.Since; got != want || got.Since == 0 {
		t.Errorf("crashed: %+v, want %+v", got, want)
	}
	r := look(t, store, "crashed")
	if r.Held() || r.Ended != driver.EndedExpired || r.Holder.Version != old.Version || r.Holder.Until != 1 || r.Value != nil {
		t.Errorf("the row afterwards: %+v", r)
	}
	if res := sweep(t, store, time.Hour); len(res.Crashed) > 0 {
		t.Errorf("told again: %+v", res.Crashed)
	}
}

// A sweep is several transactions. If a later one fails, those before it have ended terms, of which
// nobody would hear.
func TestASweepThatFailsTellsWhatItHasEnded(t *testing.T) {
	t.Parallel()
	db := migrated(t)
	var told []driver.Crash
	store, err := lockpg.DB(db).OpenUnique(t.Context(), driver.Client{Instance: driver.ID{9}, Label: "test",
		Crashed: func(c driver.Crash) { told = append(told, c) }})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = store.Close() }()
	grant(t, store, request("crashed", 1, time.Minute))
	expire(t, db, "crashed")
	mustExec(t, db, `CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RAISE read_only_sql_transaction; END'`)
	mustExec(t, db, `CREATE TRIGGER refuse BEFORE DELETE ON sqllock_waiter EXECUTE FUNCTION refuse()`)
	_, err = store.Sweep(t.Context(), driver.SweepRequest{Limit: 1000, Retention: time.Hour})
	if err == nil || lockpg.DB(db).Classify(err) != driver.Unclear {
		t.Errorf("%v is %v", err, lockpg.DB(db).Classify(err))
	}
	if len(told) != 1 || told[0].Name != "crashed" || told[0].Holder.Acq != acq(1) {
		t.Errorf("told of %+v", told)
	}
}

// Only rows that are free, idle for longer than the retention, and of a version
// that the clock has left behind are deleted.
func TestASweepDeletesNothingThatCouldBeMissed(t *testing.T) {
	t.Parallel()
	db := migrated(t)
	store := open(t, db)
	mustExec(t, db, `INSERT INTO sqllock_lock (name, acq, version, expires_at, not_before, holding, waiting) VALUES
		('idle', NULL, 1, 1, 0, 0, 0),
		('idle, was kept', NULL, 1, 1, 1, 0, 0),
		('used lately', NULL, 1, `+pgNow+` - 1000000, 0, 0, 0),
		('of a clock in the future', NULL, `+pgNow+` + 1000000000, 1, 0, 0, 0),
		('of a young version', NULL, `+pgNow+` - 1000000, 1, 0, 0, 0),
		('kept', NULL, 1, 1, `+pgNow+` + 60000000, 0, 0),
		('read', NULL, 1, 1, 0, 1, 0),
		('waited for', NULL, 1, 1, 0, 0, 1),
		('with a claim', NULL, 1, 1, 0, 0, 0),
		('locked', NULL, 1, 1, 0, 0, 0),
		('held', md5('held')::uuid, 1, `+pgNow+` + 60000000, 0, 0, 0)`)
	mustExec(t, db, `INSERT INTO sqllock_waiter SELECT md5('x')::uuid, `+pgNow+` + 60000000`)
	mustExec(t, db, `INSERT INTO sqllock_claim SELECT v.name, v.state, 1, md5(v.name)::uuid, 1 - v.state, 0, 0, 0, 1, 1, 0, 0, `+pgNow+` + 60000000, 0, 0,
		md5('x')::uuid, '', '' FROM (VALUES ('read', 1), ('waited for', 0), ('with a claim', 0)) v(name, state)`)
	defer lockRow(t, db, `SELECT FROM sqllock_lock WHERE name = 'locked' FOR NO KEY UPDATE`)()
	res := sweep(t, store, time.Hour)
	if left := get[string](t, db, `SELECT string_agg(name, '; ' ORDER BY name) FROM sqllock_lock`); res.Purged != 2 ||
		left != "held; kept; locked; of a clock in the future; of a young version; read; used lately; waited for; with a claim" {
		t.Errorf("purged %d, left: %s", res.Purged, left)
	}
}

func TestASweepThatFindsNothingWritesNothingOnAServerOfItsOwn(t *testing.T) {
	t.Parallel()
	s := dedicated(t)
	db := s.Database.Open(t)
	migrate(t, db)
	store := open(t, db)
	for i := range 50 {
		grant(t, store, request(fmt.Sprint(i), i+1, time.Minute))
	}
	time.Sleep(100 * time.Millisecond)
	before := footprint(t, db)
	for range 100 {
		sweep(t, store, time.Hour)
	}
	if after := footprint(t, db); after != before {
		t.Errorf("100 sweeps changed %s to %s", before, after)
	}
}

func TestASweepGoesOnWhereTheLastOneStopped(t *testing.T) {
	t.Parallel()
	db := migrated(t)
	store := open(t, db)
	mustExec(t, db, `INSERT INTO sqllock_lock (name, version, expires_at) SELECT to_char(i, 'FM000'), 1, 1 FROM generate_series(1, 250) i`)
	req := driver.SweepRequest{Limit: 100, Retention: time.Hour}
	for _, want := range []driver.SweepResult{
		{Seen: 100, Purged: 100, Last: "100", More: true},
		{Seen: 100, Purged: 100, Last: "200", More: true},
		{Seen: 50, Purged: 50, Last: "250"},
	} {
		got, err := store.Sweep(t.Context(), req)
		if err != nil || fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("Sweep after %q = %+v, %v; want %+v", req.After, got, err, want)
		}
		req.After = got.Last
	}
}

func TestEachCrashIsToldOnceWhoeverComesFirst(t *testing.T) {
	t.Parallel()
	db := migrated(t)
	store := open(t, db)
	const names, sweepers, takers = 300, 3, 3
	for i := range names {
		grant(t, store, request(fmt.Sprintf("%03d", i), i+1, time.Minute))
	}
	mustExec(t, db, `UPDATE sqllock_lock SET expires_at = 1`)
	var mu sync.Mutex
	told := make(map[driver.ID]int)
	tell := func(h driver.Holder) {
		mu.Lock()
		defer mu.Unlock()
		told[h.Acq]++
	}
	var wg sync.WaitGroup
	for range sweepers {
		wg.Go(func() {
			for req := (driver.SweepRequest{Limit: 20, Retention: time.Hour}); ; {
				res, err := store.Sweep(context.Background(), req)
				if err != nil {
					t.Error(err)
					return
				}
				for _, c := range res.Crashed {
					tell(c.Holder)
				}
				if req.After = res.Last; !res.More {
					return
				}
			}
		})
	}
	for k := range takers {
		wg.Go(func() {
			for i := range names {
				n := (i*7 + k*100) % names
				res, err := store.Acquire(context.Background(), []driver.AcquireRequest{request(fmt.Sprintf("%03d", n), 1000+k*names+i, time.Minute)})
				if err != nil {
					t.Error(err)
					return
				}
				if res[0].Crashed.Acq != (driver.ID{}) {
					tell(res[0].Crashed)
				}
			}
		})
	}
	wg.Wait()
	for i := range names {
		if n := told[acq(i+1)]; n != 1 {
			t.Errorf("the crash of %03d was told %d times", i, n)
		}
	}
	if len(told) != names {
		t.Errorf("%d crashes were told, %d happened", len(told), names)
	}
}

func TestAReaperThatCannotAskForItsTurnIsTold(t *testing.T) {
	t.Parallel()
	store := open(t, migrated(t))
	ended, end := context.WithCancel(t.Context())
	end()
	if mine, err := sweepDue(ended, store, time.Hour); mine || !errors.Is(err, context.Canceled) {
		t.Errorf("Sweep = %v, %v", mine, err)
	}
}

func TestOfManyReapersOneIsToldToGo(t *testing.T) {
	t.Parallel()
	db := migrated(t)
	store := open(t, db)
	turns := func(every time.Duration) (n int) {
		var mu sync.Mutex
		var wg sync.WaitGroup
		for range 8 {
			wg.Go(func() {
				mine, err := sweepDue(context.Background(), store, every)
				if err != nil {
					t.Error(err)
				}
				mu.Lock()
				defer mu.Unlock()
				if mine {
					n++
				}
			})
		}
		wg.Wait()
		return n
	}
	if n := turns(time.Hour); n != 1 {
		t.Errorf("%d of 8 were told to go, want 1", n)
	}
	if n := turns(time.Hour); n != 0 {
		t.Errorf("%d were told to go again", n)
	}
	mustExec(t, db, `UPDATE sqllock_meta SET swept_at = `+pgNow+` + 1000000000`)
	if n := turns(time.Hour); n != 1 {
		t.Errorf("%d were told to go after the clock went back, want 1", n)
	}
}

// A sweep must take in proportion to those who have crashed, however few there were
// when the server last looked at the tables to make its plans: with thousands it
// would run out of time, and so would the next.
func TestASweepTakesInProportionToThoseWhoHaveCrashed(t *testing.T) {
	t.Parallel()
	const crash = `acq = md5(name)::uuid, owner = '', label = '' WHERE substr(name, 2)::integer <= $1::integer`
	for _, c := range []struct {
		who    string
		tables string
		free   string // $1 rows of which nobody has one
		crash  string // of $1 rows
		open   func(t *testing.T, db *sql.DB) sweeper
	}{
		{
			"holders", "sqllock_lock, sqllock_claim, sqllock_waiter",
			`INSERT INTO sqllock_lock (name, version, expires_at) SELECT 'k' || i, 1, ` + pgNow + ` FROM generate_series(1, $1::integer) i`,
			`UPDATE sqllock_lock SET locker = md5('')::uuid, ` + crash,
			func(t *testing.T, db *sql.DB) sweeper { return open(t, db) },
		},
		{
			"readers", "sqllock_lock, sqllock_claim, sqllock_waiter",
			`INSERT INTO sqllock_lock (name, version, expires_at) SELECT 'k' || i, 1, ` + pgNow + ` FROM generate_series(1, $1::integer) i`,
			`WITH h AS (
				INSERT INTO sqllock_claim
				SELECT 'k' || i, 1, 1, md5('k' || i)::uuid, 1, 0, 1, 1, 1, 1, 0, 1, 1, 0, 0, md5('')::uuid, '', '' FROM generate_series(1, $1::integer) i
			) UPDATE sqllock_lock SET holding = 1 WHERE substr(name, 2)::integer <= $1::integer`,
			func(t *testing.T, db *sql.DB) sweeper { return open(t, db) },
		},
		{
			"sessions that locked rows", "sqllock_term, sqllock_pin",
			`INSERT INTO sqllock_term (mode, name, version) SELECT 2, 'k' || i, ` + pgNow + ` FROM generate_series(1, $1::integer) i`,
			`UPDATE sqllock_term SET instance = md5('')::uuid, ` + crash,
			func(t *testing.T, db *sql.DB) sweeper { return forUpdate.on(t, db, sessionTTL) },
		},
		{
			"sessions with advisory locks", "sqllock_term",
			`INSERT INTO sqllock_term (mode, name, lock_key, version) SELECT 3, 'k' || i, i, ` + pgNow + ` FROM generate_series(1, $1::integer) i`,
			`UPDATE sqllock_term SET instance = md5('')::uuid, ` + crash,
			func(t *testing.T, db *sql.DB) sweeper { return advisory.on(t, db, sessionTTL) },
		},
	} {
		t.Run(c.who, func(t *testing.T) {
			db := migrated(t)
			s := c.open(t, db)
			const few, many = 100, 1500
			mustExec(t, db, c.free, many)
			mustExec(t, db, `VACUUM ANALYZE `+c.tables)
			sweep := func(crashed int) time.Duration {
				mustExec(t, db, c.crash, crashed)
				began := time.Now()
				res, err := s.Sweep(t.Context(), driver.SweepRequest{Limit: 2 * many, Retention: time.Hour})
				took := time.Since(began)
				if err != nil || len(res.Crashed) != crashed {
					t.Fatalf("of %d who have crashed a sweep ended %d: %v", crashed, len(res.Crashed), err)
				}
				return took
			}
			// inParts takes in many who have crashed, and so lasts as long as one sweep of them: what
			// else runs on the machine slows both down.
			inParts := func() (sum time.Duration) {
				for range many / few {
					sum += sweep(few)
				}
				return sum
			}
			some := min(inParts(), inParts())
			all := min(sweep(many), sweep(many))
			if all > 3*some { // a time that grows with the square would be 15 times as long
				t.Errorf("%v for %d in sweeps of %d, %v for %d in one", some, many, few, all, many)
			}
		})
	}
}

type sweeper interface {
	Sweep(context.Context, driver.SweepRequest) (driver.SweepResult, error)
}

// sweepDue asks whether a pass is due.
func sweepDue(ctx context.Context, s driver.Store, every time.Duration) (bool, error) {
	res, err := s.Sweep(ctx, driver.SweepRequest{Every: every})
	return res.Due, err
}
