package lockpg_test

import (
	"database/sql"
	"fmt"
	"testing"
	"time"

	"github.com/sqllock/sqllock/driver"
)

// emptyTables returns handles of tables that stay empty for the planner, the second with one session.
func emptyTables(t *testing.T) (admin, db *sql.DB) {
	t.Helper()
	database := withTables(t)
	admin = database.Open(t)
	for _, table := range []string{"lock", "claim", "waiter"} {
		mustExec(t, admin, `ALTER TABLE sqllock_`+table+` SET (autovacuum_enabled = off)`)
		mustExec(t, admin, `VACUUM ANALYZE sqllock_`+table)
	}
	db = database.Open(t)
	db.SetMaxOpenConns(1)
	return admin, db
}

// Plans are made once for a session. One that was made while the tables were empty must not
// read all of them when they have grown, nor all that waits for a name.
func TestAPlanThatWasMadeOnEmptyTablesLooksUpRowsByTheirKey(t *testing.T) {
	t.Parallel()
	admin, db := emptyTables(t)
	store := open(t, db)
	all := func(n int) {
		name, other := fmt.Sprint("name ", n), fmt.Sprint("other ", n)
		v := grant(t, store, request(name, 10*n, time.Minute))[0].Version
		w := grant(t, store, request(name, 10*n, time.Minute), request(other, 10*n+1, time.Minute))[1].Version
		grant(t, store, reader("read", 10*n+2))
		line(t, store, waiter(name, 10*n+3), waiter("hot", 10*n+4))
		line(t, store, waiter(name, 10*n+3), waiter("hot", 10*n+4))
		for _, wait := range []bool{false, true} {
			for _, shared := range []bool{false, true} {
				r := driver.RenewRequest{Name: name, Acq: acq(10 * n), Version: v, TTL: time.Minute, Holds: 1, Shared: shared}
				if _, err := store.Renew(t.Context(), []driver.RenewRequest{r}, wait); err != nil {
					t.Fatal(err)
				}
			}
		}
		look(t, store, name)
		if _, err := store.Read(t.Context(), driver.ReadRequest{List: driver.ListRequest{Limit: 2}}); err != nil {
			t.Fatal(err)
		}
		isNext(t, let(t, store, releasing(name, 10*n, v))[0], 10*n+3, v)
		let(t, store, releasing(name, 10*n, v), releasing(other, 10*n+1, w))
		_, err := store.Release(t.Context(), []driver.ReleaseRequest{{Name: name, Acq: acq(10*n + 3)}, {Name: "read", Acq: acq(10*n + 2), Shared: true},
			{Name: "hot", Acq: acq(10*n + 4)}})
		if err != nil {
			t.Fatal(err)
		}
		permitsOf(t, store, name, 10*n+5)
	}
	for n := range 7 { // more often than a plan is made for one call alone
		all(1 + n)
	}
	mustExec(t, admin, `DELETE FROM sqllock_lock WHERE name = 'hot'`)
	mustExec(t, admin, `INSERT INTO sqllock_lock (name, version) SELECT 'k' || i, 1 FROM generate_series(1, 10000) i`)
	fillQueue(t, admin)
	mustExec(t, admin, `INSERT INTO sqllock_lock (name, version, permits, holding, waiting, seq) VALUES ('hot permit', 1, 1, 1, 1000, 10001)`)
	mustExec(t, admin, `INSERT INTO sqllock_claim SELECT 'hot permit', (i = 0)::int, 10000 + i, md5('p' || i)::uuid, 2, 0, (i = 0)::int, (i = 0)::int, 60000000, 60000000, 0, 1,
		`+pgNow+` + 60000000, 0, 0, md5('w' || 1 + i % 999)::uuid, '', '', NULL, NULL FROM generate_series(0, 1000) i`)
	before := get[int64](t, admin, rowsRead)
	const calls = 5
	for n := range calls {
		all(100 + n)
		handOver(t, admin, store, "hot")
		handOverPermit(t, admin, store, "hot permit")
	}
	_ = db.Close() // its session tells what it has read
	eventually(t, "the session has ended", 20*time.Second, func() bool {
		return get[int](t, admin, `SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND backend_type = 'client backend'`) == 1
	})
	if rows := readSince(t, admin, before); rows > 450*calls {
		t.Errorf("%d rows were read in %d rounds of calls", rows, calls)
	}
}

// permitsOf grants permits of names, has somebody wait for them, hands them over and frees them.
func permitsOf(t *testing.T, store driver.Store, name string, id int) {
	t.Helper()
	for i, names := range [][]string{{name + " p"}, {name + " p", name + " q"}} {
		reqs, waits := make([]driver.AcquireRequest, len(names)), make([]driver.AcquireRequest, len(names))
		for k, name := range names {
			reqs[k], waits[k] = request(name, 1000*id+10*i+k, time.Minute), waiter(name, 1000*id+10*i+k+5)
			reqs[k].Permits, waits[k].Permits = 1, 1
		}
		releases := make([]driver.ReleaseRequest, len(names))
		for k, r := range grant(t, store, reqs...) {
			releases[k] = driver.ReleaseRequest{Name: names[k], Acq: reqs[k].Acq, Version: r.Version, Shared: true, Permit: true, Awaited: true}
		}
		line(t, store, waits...)
		for k, r := range let(t, store, releases...) {
			releases[k].Acq, releases[k].Version, releases[k].Awaited = r.Next[0].Acq, r.Next[0].Version, false
		}
		if res := let(t, store, releases...); !res[len(names)-1].Freed {
			t.Errorf("Release = %+v", res)
		}
	}
}

// rowsRead is how many rows of tables the server knows to have been read.
const rowsRead = `SELECT sum(coalesce(seq_tup_read, 0) + coalesce(idx_tup_fetch, 0))::bigint FROM pg_stat_user_tables`

// readSince waits until the server knows what was read, and returns how many rows that were.
func readSince(t *testing.T, admin *sql.DB, before int64) (rows int64) {
	t.Helper()
	eventually(t, "the server knows what was read", 20*time.Second, func() bool {
		rows = get[int64](t, admin, rowsRead) - before
		return rows > 100
	})
	return rows
}

// fillQueue makes 10,000 claims of 1,000 Lockers wait for the name hot.
func fillQueue(t *testing.T, admin *sql.DB) {
	t.Helper()
	mustExec(t, admin, `INSERT INTO sqllock_lock (name, acq, owner, locker, label, version, expires_at, waiting, seq)
		VALUES ('hot', md5('hot')::uuid, '', md5('x')::uuid, '', 1, `+pgNow+` + 60000000, 10000, 10000)`)
	mustExec(t, admin, `INSERT INTO sqllock_waiter SELECT md5('w' || i)::uuid, `+pgNow+` + 60000000 FROM generate_series(1, 1000) i`)
	mustExec(t, admin, `INSERT INTO sqllock_claim SELECT 'hot', 0, i, md5('c' || i)::uuid, 0, 0, 0, 0, 60000000, 5000000, 0, 1, 0, 0, 0,
		md5('w' || i % 1000)::uuid, '', '', NULL, NULL FROM generate_series(1, 10000) i`)
}

// To count who waits, each claim is read once, and whether its Locker lives.
func TestAQueueIsCountedInProportionToItsLength(t *testing.T) {
	t.Parallel()
	database := withTables(t)
	admin := database.Open(t)
	db := database.Open(t)
	db.SetMaxOpenConns(1)
	store := open(t, db)
	count := func() driver.Row {
		list := driver.ReadRequest{List: driver.ListRequest{Limit: 100, Count: true}}
		res, err := store.Read(t.Context(), driver.ReadRequest{Names: []string{"hot"}, Queue: 10})
		if err != nil {
			t.Fatal(err)
		}
		page, err := store.Read(t.Context(), list)
		if err != nil || len(page.Rows) > 0 && page.Rows[0].Waiters != res.Rows[0].Waiters {
			t.Fatal(page, err)
		}
		return res.Rows[0]
	}
	grant(t, store, request("hot", 1, time.Minute))
	line(t, store, waiter("hot", 2))
	for range 7 { // more often than a plan is made for one call alone
		if r := count(); r.Waiters != 1 {
			t.Errorf("%d wait", r.Waiters)
		}
	}
	mustExec(t, admin, `DELETE FROM sqllock_claim`)
	mustExec(t, admin, `DELETE FROM sqllock_lock`)
	fillQueue(t, admin)
	before := get[int64](t, admin, rowsRead)
	if r := count(); r.Waiters < 9_990 || len(r.Queue) != 10 {
		t.Errorf("%d wait, of whom %d are shown", r.Waiters, len(r.Queue))
	}
	_ = db.Close() // its session tells what it has read
	if rows := readSince(t, admin, before); rows > 50_000 {
		t.Errorf("%d rows were read", rows)
	}
}

// What a pass costs is to read the rows. It must not look for claims of each of them as well, nor
// read any row twice, although the plan was made while the tables were empty.
func TestASweepReadsEachRowOnceAndClaimsOnlyOfRowsThatCountSome(t *testing.T) {
	t.Parallel()
	const free, awaited = 10_000, 100
	admin, db := emptyTables(t)
	store := open(t, db)
	for range 7 { // more often than a plan is made for one call alone
		sweep(t, store, time.Hour)
	}
	mustExec(t, admin, `INSERT INTO sqllock_lock (name, version, expires_at, waiting)
		SELECT 'k' || i, 1, `+pgNow+`, (i <= $1::integer)::integer FROM generate_series(1, $2::integer) i`, awaited, awaited+free)
	mustExec(t, admin, `INSERT INTO sqllock_waiter SELECT md5('w')::uuid, `+pgNow+` + 60000000`)
	mustExec(t, admin, `INSERT INTO sqllock_claim SELECT 'k' || i, 0, 1, md5('c' || i)::uuid, 0, 0, 0, 0, 60000000, 5000000, 0, 1, 0, 0, 0,
		md5('w')::uuid, '', '', NULL, NULL FROM generate_series(1, $1::integer) i`, awaited)
	const scans = `SELECT coalesce(seq_scan, 0) + coalesce(idx_scan, 0) FROM pg_stat_user_tables WHERE relname = 'sqllock_claim'`
	const reads = `SELECT coalesce(seq_tup_read, 0) + coalesce(idx_tup_fetch, 0) FROM pg_stat_user_tables WHERE relname = 'sqllock_lock'`
	rows, claims, seen := get[int64](t, admin, reads), get[int64](t, admin, scans), 0
	for req := (driver.SweepRequest{Limit: 1000, Retention: time.Hour}); ; {
		res, err := store.Sweep(t.Context(), req)
		if err != nil || res.Purged != 0 || len(res.Crashed) != 0 {
			t.Fatalf("Sweep = %+v, %v", res, err)
		}
		if seen, req.After = seen+res.Seen, res.Last; !res.More {
			break
		}
	}
	_ = db.Close() // its session tells what it has read
	eventually(t, "the server knows what was read", time.Minute, func() bool { return get[int64](t, admin, reads)-rows >= free+awaited })
	rows, claims = get[int64](t, admin, reads)-rows, get[int64](t, admin, scans)-claims
	if seen != free+awaited || rows > free+awaited+20 || claims > awaited+20 {
		t.Errorf("of %d rows, %d with a waiter, %d were seen; the server read %d and looked %d times for claims", free+awaited, awaited, seen, rows, claims)
	}
}

// A page of a list reads its rows alone, wherever it begins, however large the table is.
func TestAPageOfAListReadsItsRowsAlone(t *testing.T) {
	t.Parallel()
	database := withTables(t)
	admin := database.Open(t)
	mustExec(t, admin, `ALTER TABLE sqllock_lock SET (autovacuum_enabled = off)`)
	mustExec(t, admin, `VACUUM ANALYZE sqllock_lock`)
	db := database.Open(t)
	db.SetMaxOpenConns(1)
	store := open(t, db)
	const limit, pages = 20, 10
	read := func(after string, want int) {
		page, err := store.Read(t.Context(), driver.ReadRequest{List: driver.ListRequest{After: after, Limit: limit, Free: true, Count: true}})
		if err != nil || len(page.Rows) != want {
			t.Fatalf("a page behind %q has %d names, %v", after, len(page.Rows), err)
		}
	}
	for range 7 { // more often than a plan is made for one call alone
		read("", 0)
	}
	mustExec(t, admin, `INSERT INTO sqllock_lock (name, version) SELECT to_char(i, 'FM00000'), 1 FROM generate_series(1, 10000) i`)
	before := get[int64](t, admin, rowsRead)
	for i := range pages {
		read(fmt.Sprintf("%05d", i*990), limit)
	}
	_ = db.Close() // its session tells what it has read
	if rows := readSince(t, admin, before); rows > 3*limit*pages {
		t.Errorf("%d pages of %d rows read %d rows", pages, limit, rows)
	}
}

// handOver has whoever holds a name hand it over to the first of those who wait.
func handOver(t *testing.T, db *sql.DB, store driver.Store, name string) {
	t.Helper()
	const waiting = `SELECT waiting FROM sqllock_lock WHERE name = $1`
	r := driver.ReleaseRequest{Name: name, Awaited: true, Version: get[int64](t, db, `SELECT version FROM sqllock_lock WHERE name = $1`, name)}
	digits := get[string](t, db, `SELECT replace(acq::text, '-', '') FROM sqllock_lock WHERE name = $1`, name)
	if err := r.Acq.UnmarshalText([]byte(digits)); err != nil {
		t.Fatal(err)
	}
	before := get[int](t, db, waiting, name)
	if res := let(t, store, r); !res[0].Freed || get[int](t, db, waiting, name) != before-1 {
		t.Fatalf("Release = %+v", res)
	}
}

// handOverPermit has whoever holds the permit of a name hand it over to the first of those who wait.
func handOverPermit(t *testing.T, db *sql.DB, store driver.Store, name string) {
	t.Helper()
	r := driver.ReleaseRequest{Name: name, Awaited: true, Shared: true, Permit: true}
	r.Version = get[int64](t, db, `SELECT token FROM sqllock_claim WHERE name = $1 AND state = 1`, name)
	digits := get[string](t, db, `SELECT replace(acq::text, '-', '') FROM sqllock_claim WHERE name = $1 AND state = 1`, name)
	if err := r.Acq.UnmarshalText([]byte(digits)); err != nil {
		t.Fatal(err)
	}
	before := get[int](t, db, `SELECT waiting FROM sqllock_lock WHERE name = $1`, name)
	if res := let(t, store, r); !res[0].Freed || res[0].HandedOver != 1 || get[int](t, db, `SELECT waiting FROM sqllock_lock WHERE name = $1`, name) != before-1 {
		t.Fatalf("Release = %+v", res)
	}
}

// A large batch takes in proportion to its size, although the plan was made for a small one.
func TestALargeBatchTakesInProportionToItsSize(t *testing.T) {
	t.Parallel()
	store := open(t, migrated(t))
	const few, many = 100, 4000
	for _, shared := range []bool{false, true} {
		// renew renews so many leases, as often as is needed to renew many, and returns the least
		// time that it took. Both times are equally long then, and so is what else runs beside them.
		renew := func(n int) time.Duration {
			reqs := make([]driver.AcquireRequest, n)
			for i := range reqs {
				reqs[i] = request(fmt.Sprintf("%v %v %05d", shared, n, i), 1+i, time.Minute)
				reqs[i].Shared = shared
				reqs[i].Acq[15] = byte(n % 251)
				if shared {
					reqs[i].Acq[14] = 1
				}
			}
			renewals := make([]driver.RenewRequest, n)
			for i, r := range grant(t, store, reqs...) {
				renewals[i] = driver.RenewRequest{Name: reqs[i].Name, Acq: reqs[i].Acq, Version: r.Version, TTL: time.Minute, Holds: 1, Shared: shared}
			}
			took := time.Hour
			for range 5 {
				began := time.Now()
				for range many / n {
					res, err := store.Renew(t.Context(), renewals, false)
					if err != nil || res.Status[n-1] != driver.Renewed {
						t.Fatal(res.Status[n-1], err)
					}
				}
				took = min(took, time.Since(began))
			}
			return took
		}
		some, all := renew(few), renew(many)
		// A time that grows with the square would be 40 times as long.
		if all > 5*some {
			t.Errorf("shared %v: %v for %d in batches of %d, %v for %d in one", shared, some, many, few, all, many)
		}
	}
}

// What advisory mode does in a function is planned once, too.
func TestThePlanOfAFunctionLooksUpRowsByTheirKey(t *testing.T) {
	t.Parallel()
	db := migrated(t)
	mustExec(t, db, `VACUUM ANALYZE sqllock_term`)
	conn, err := db.Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	// read is how many rows a call reads.
	read := func(name string) (n int) {
		tx, err := conn.BeginTx(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = tx.Commit() }()
		const call = `SELECT count(*) FROM sqllock_try_1('{1}', '{2}', '{f}', ARRAY[$1], '{t}', 3)`
		if _, err := tx.ExecContext(t.Context(), call, name); err != nil {
			t.Fatal(err)
		}
		err = tx.QueryRowContext(t.Context(), `SELECT sum(coalesce(seq_tup_read, 0) + coalesce(idx_tup_fetch, 0))::bigint
			FROM pg_stat_xact_user_tables WHERE relname = 'sqllock_term'`).Scan(&n)
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	read("first")
	mustExec(t, db, `INSERT INTO sqllock_term (mode, name) SELECT 3, 'k' || i FROM generate_series(1, 5000) i`)
	for _, name := range []string{"k77", "new"} {
		if n := read(name); n > 20 {
			t.Errorf("%d rows were read for the name %q", n, name)
		}
	}
}

// Two batches that overlap must not lock their rows in different orders.
func TestABatchLocksItsRowsInTheOrderOfTheNames(t *testing.T) {
	t.Parallel()
	db := migrated(t)
	store := open(t, db)
	names := []string{"a", "b", "c"}
	reqs := make([]driver.AcquireRequest, len(names))
	releases := make([]driver.ReleaseRequest, len(names))
	for i, name := range names {
		reqs[i] = driver.AcquireRequest{Name: name, Acq: acq(1 + i), Owner: "x", TTL: time.Minute}
		releases[i] = driver.ReleaseRequest{Name: name, Acq: acq(1 + i)}
	}
	// beside runs f while somebody has locked b. It returns which others are free then.
	beside := func(f func() error) (free string, err error) {
		tx := mustBegin(t, db)
		mustExecIn(t, tx, `SELECT FROM sqllock_lock WHERE name = 'b' FOR UPDATE`)
		done := make(chan error, 1)
		go func() { done <- f() }()
		for !areLocksWaitedFor(t, db) && len(done) == 0 {
			time.Sleep(time.Millisecond)
		}
		free = get[string](t, db, `SELECT coalesce(string_agg(l.name, ' '), '') FROM (SELECT name FROM sqllock_lock WHERE name IN ('a', 'c') FOR UPDATE SKIP LOCKED) l`)
		if err := tx.Rollback(); err != nil {
			t.Error(err)
		}
		return free, <-done
	}
	blocked := func(what string, f func() error) {
		free, err := patiently(func() (string, error) { return beside(f) }) // a statement waits for a second only
		if err != nil {
			t.Error(what, err)
		} else if free != "c" {
			t.Errorf("%s that waits for b has not locked %q", what, free)
		}
	}
	grant := func() error {
		res, err := store.Acquire(t.Context(), reqs)
		for i := range res {
			if releases[i].Version = res[i].Version; !res[i].Granted {
				t.Errorf("%q: %+v", reqs[i].Name, res[i])
			}
		}
		return err
	}
	release := func() error {
		res, err := store.Release(t.Context(), releases)
		for i := range res {
			if !res[i].Freed {
				t.Errorf("%q was not freed", releases[i].Name)
			}
		}
		return err
	}
	if err := grant(); err != nil { // makes the rows
		t.Fatal(err)
	}
	blocked("a release", release)
	blocked("a grant", grant)
}

// Each of a batch gets its own answer, wherever it comes from.
func TestABatchOfAllKindsIsAnsweredOneByOne(t *testing.T) {
	t.Parallel()
	db := migrated(t)
	store := open(t, db)
	one := func(name string, id int) driver.AcquireRequest {
		return driver.AcquireRequest{Name: name, Acq: acq(id), Owner: fmt.Sprint("owner ", id), TTL: time.Minute}
	}
	before, err := store.Acquire(t.Context(), []driver.AcquireRequest{one("b free", 1), one("c held", 2), one("d mine", 3), one("e gate", 4)})
	if err != nil {
		t.Fatal(err)
	}
	_, err = store.Release(t.Context(), []driver.ReleaseRequest{
		{Name: "b free", Acq: acq(1), Version: before[0].Version},
		{Name: "e gate", Acq: acq(4), Version: before[3].Version, MinHold: time.Hour},
	})
	if err != nil {
		t.Fatal(err)
	}
	res, err := store.Acquire(t.Context(), []driver.AcquireRequest{
		one("a new", 11), one("b free", 12), one("c held", 13), one("d mine", 3), one("e gate", 14), one("f new", 15),
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, i := range []int{0, 1, 5} {
		if r := res[i]; !r.Granted || r.Found || r.Version == 0 || r.Remaining != time.Minute || r.Now == 0 {
			t.Errorf("what was free: %d: %+v", i, r)
		}
	}
	if res[1].Version <= before[0].Version {
		t.Errorf("token %d follows %d", res[1].Version, before[0].Version)
	}
	if r := res[2]; r.Granted || r.Holder.Acq != acq(2) || r.Holder.Owner != "owner 2" || r.Holder.Version != before[1].Version {
		t.Errorf("what is held: %+v", r)
	}
	if r := res[3]; !r.Granted || !r.Found || r.Version != before[2].Version {
		t.Errorf("what was granted before: %+v", r)
	}
	if r := res[4]; r.Granted || r.Holder.Acq != (driver.ID{}) || r.Holder.Until < r.Now+time.Minute.Microseconds() {
		t.Errorf("what is kept: %+v", r)
	}
	freed, err := store.Release(t.Context(), []driver.ReleaseRequest{
		{Name: "a new", Acq: acq(11), Version: res[0].Version},
		{Name: "b free", Acq: acq(12), Version: res[1].Version - 1},
		{Name: "c held", Acq: acq(13), Version: before[1].Version},
		{Name: "d mine", Acq: acq(3), Version: before[2].Version},
		{Name: "x", Acq: acq(3), Version: 1},
	})
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []bool{true, false, false, true, false} {
		if freed[i].Freed != want {
			t.Errorf("release %d: %v", i, freed[i].Freed)
		}
	}
}

// Nobody who changes the row of a name that is held, also to renew it, keeps a losing
// attempt waiting.
func TestALosingAttemptWaitsForNobody(t *testing.T) {
	t.Parallel()
	db := migrated(t)
	store := open(t, db)
	grant(t, store, request("k", 1, time.Minute))
	tx, err := db.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback() }()
	if _, err := tx.ExecContext(t.Context(), `UPDATE sqllock_lock SET holds = 2`); err != nil {
		t.Fatal(err)
	}
	res, err := store.Acquire(t.Context(), []driver.AcquireRequest{request("k", 2, time.Minute)})
	if err != nil || res[0].Granted || res[0].Holder.Acq != acq(1) {
		t.Errorf("%+v, %v", res, err)
	}
}
