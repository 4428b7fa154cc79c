package lockpg_test

import (
	"database/sql"
	"fmt"
	"testing"
	"time"

	"github.com/sqllock/sqllock/driver"
	"github.com/sqllock/sqllock/internal/queuetest"
	"github.com/sqllock/sqllock/lockpg"
	"github.com/sqllock/sqllock/migrations"
)

// openAs is open for the client of a number.
func openAs(t *testing.T, db *lockpg.Database, instance byte) driver.Store {
	t.Helper()
	return openClient(t, db, driver.Client{Instance: driver.ID{instance}, Label: fmt.Sprint("client ", instance)})
}

func openClient(tb testing.TB, db *lockpg.Database, client driver.Client) driver.Store {
	tb.Helper()
	store, err := db.OpenUnique(tb.Context(), client)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := store.Close(); err != nil {
			tb.Error(err)
		}
	})
	return store
}

// waiter asks for a name in its queue.
func waiter(name string, n int) driver.AcquireRequest {
	r := request(name, n, time.Minute)
	r.Life, r.Handed = time.Minute, 5*time.Second
	return r
}

func waitingReader(name string, n int) driver.AcquireRequest {
	r := waiter(name, n)
	r.Shared = true
	return r
}

func line(t *testing.T, store driver.Store, reqs ...driver.AcquireRequest) []driver.AcquireResult {
	t.Helper()
	res, err := patiently(func() ([]driver.AcquireResult, error) { return store.Acquire(t.Context(), reqs) })
	if err != nil || len(res) != len(reqs) {
		t.Fatalf("Acquire = %+v, %v", res, err)
	}
	return res
}

// releasing is the request that ends what request n was granted.
func releasing(name string, n int, version int64) driver.ReleaseRequest {
	return driver.ReleaseRequest{Name: name, Acq: acq(n), Version: version}
}

func let(t *testing.T, store driver.Store, reqs ...driver.ReleaseRequest) []driver.ReleaseResult {
	t.Helper()
	res, err := patiently(func() ([]driver.ReleaseResult, error) { return store.Release(t.Context(), reqs) })
	if err != nil || len(res) != len(reqs) {
		t.Fatalf("Release = %+v, %v", res, err)
	}
	return res
}

// isNext checks that a release has handed over to one of the same client.
func isNext(t *testing.T, res driver.ReleaseResult, n int, after int64) int64 {
	t.Helper()
	if !res.Freed || len(res.Next) != 1 || res.Next[0].Acq != acq(n) || res.Next[0].Version <= after || res.Next[0].Remaining != time.Minute {
		t.Fatalf("Release = %+v, want it to go to %v", res, acq(n))
	}
	return res.Next[0].Version
}

func TestQueueAndSharedTerms(t *testing.T) {
	t.Parallel()
	db := migrated(t)
	queuetest.Run(t, queuetest.Fixture{
		DB: db,
		Open: func(tb testing.TB, client driver.Client) driver.Store {
			return openClient(tb, lockpg.DB(db), client)
		},
		Clock:    pgNow,
		Classify: new(lockpg.Database).Classify,
		Rows:     true,
		Push:     true,
		Short:    testing.Short(),
	})
}

func TestAStoreKeepsAConnectionUntilItIsIdle(t *testing.T) {
	t.Parallel()
	db := migrated(t)
	queuetest.KeepsAConnection(t, db, func(c driver.Client) driver.Store { return openClient(t, lockpg.DB(db), c) }, classify)
}

func TestAQueueIsAsGoodInASchemaOfItsOwn(t *testing.T) {
	t.Parallel()
	db := shared(t).Open(t)
	mustExec(t, db, `CREATE SCHEMA "Locks"`)
	database := lockpg.DB(db, lockpg.Schema("Locks"), lockpg.TablePrefix("Select_"))
	if err := migrations.Up(t.Context(), database); err != nil {
		t.Fatal(err)
	}
	mustExec(t, db, `CREATE TABLE sqllock_claim (other int)`) // which the statements must not find
	store := openAs(t, database, 1)
	v := grant(t, store, request("a", 1, time.Minute))[0].Version
	line(t, store, waiter("a", 2), waitingReader("a", 3))
	v = isNext(t, let(t, store, releasing("a", 1, v))[0], 2, v)
	v = isNext(t, let(t, store, releasing("a", 2, v))[0], 3, v)
	if _, err := store.Release(t.Context(), []driver.ReleaseRequest{{Name: "a", Acq: acq(3), Shared: true}}); err != nil {
		t.Fatal(err)
	}
	sweep(t, store, time.Hour)
	if r := look(t, store, "a"); r.Held() || r.Holder.Version != v {
		t.Errorf("%+v", r)
	}
}

// A claim need not be: it would keep the row of a busy name locked for as long.
func TestWhatIsHandedOverIsFlushedAndAClaimIsNotOnAServerOfItsOwn(t *testing.T) {
	t.Parallel()
	db := dedicated(t, "-c", "wal_writer_delay=10s", "-c", "synchronous_commit=off").Open(t)
	migrate(t, db)
	store := open(t, db)
	v := grant(t, store, request("a", 1, time.Minute))[0].Version
	unflushed := 0
	for i := 1; i <= 10; i++ {
		line(t, store, waiter("a", i+1))
		if !get[bool](t, db, flushed) {
			unflushed++
		}
		v = isNext(t, let(t, store, releasing("a", i, v))[0], i+1, v)
		if !get[bool](t, db, flushed) {
			t.Fatal("a hand-over was not flushed")
		}
	}
	if unflushed == 0 {
		t.Error("every claim waited for its flush")
	}
	for i := range 10 { // one that was used before
		name := fmt.Sprint("0 used ", i)
		v := grant(t, store, request(name, 400+i, time.Minute))[0].Version
		let(t, store, releasing(name, 400+i, v))
		batch := []driver.AcquireRequest{waiter(name, 500+i), waiter("a", 600+i)}
		if r := line(t, store, batch[:1+i%2]...)[0]; !r.Granted {
			t.Fatalf("%+v", r)
		}
		if !get[bool](t, db, flushed) {
			t.Fatal("a free name was granted to one who asked to wait, and that was not flushed")
		}
	}
	for i := range 10 { // one name of a batch is free, or to be had by turn, the last is not
		line(t, store, waiter(fmt.Sprint("0 free ", i), 100+i), waitingReader(fmt.Sprint("0 free to share ", i), 200+i), waiter("a", 300+i))
		if !get[bool](t, db, flushed) {
			t.Fatal("a grant to one who asked to wait was not flushed")
		}
	}
}

func TestAClaimThatACrashHasUndoneIsWrittenAnewOnAServerOfItsOwn(t *testing.T) {
	t.Parallel()
	server := dedicated(t, "-c", "wal_writer_delay=10s")
	migrate(t, server.Open(t))
	undone := 0
	for i := range 4 {
		store := open(t, server.Open(t))
		name := fmt.Sprint("k", i)
		v := grant(t, store, request(name, 1, time.Minute))[0].Version
		line(t, store, waiter(name, 2))
		server.Kill()
		server.Restart()
		db := server.Open(t)
		if get[int](t, db, `SELECT count(*) FROM sqllock_claim WHERE acq = '`+acq(2).String()+`'`) == 0 {
			undone++ // the server may have written its log for another reason
		}
		store = open(t, db)
		line(t, store, waiter(name, 3), waiter(name, 2)) // as each waiter does from time to time
		next := 3
		if get[string](t, db, `SELECT acq FROM sqllock_claim ORDER BY seq LIMIT 1`) == acq(2).String() {
			next = 2
		}
		v = isNext(t, let(t, store, releasing(name, 1, v))[0], next, v)
		v = isNext(t, let(t, store, releasing(name, next, v))[0], 5-next, v)
		let(t, store, releasing(name, 5-next, v))
	}
	if undone == 0 {
		t.Error("no crash has undone a claim: the test shows nothing")
	}
}

func TestWhoLearnsThatItHasTheNameLeavesNoTraceOnAServerOfItsOwn(t *testing.T) {
	t.Parallel()
	db := dedicated(t).Open(t)
	migrate(t, db)
	store := open(t, db)
	mustExec(t, db, `CHECKPOINT`)
	grant(t, store, request("alone", 1, time.Minute), request("free", 2, time.Minute))
	grant(t, store, reader("together", 3))
	mustExec(t, db, `UPDATE sqllock_lock SET acq = NULL, owner = NULL, locker = NULL, label = NULL WHERE name = 'free'`)
	var before, after string
	for range 5 { // the server may write for its own reasons once in a while
		before = footprint(t, db)
		for range 100 {
			for _, r := range line(t, store, waiter("alone", 1), waitingReader("together", 3)) {
				if !r.Granted || !r.Found {
					t.Fatalf("%+v", r)
				}
			}
			_, err := store.Release(t.Context(), []driver.ReleaseRequest{
				{Name: "alone", Acq: acq(9)}, {Name: "free", Acq: acq(9), Guarded: true}, {Name: "together", Acq: acq(9), Shared: true}, {Name: "unknown", Acq: acq(9)},
			})
			if err != nil {
				t.Fatal(err)
			}
		}
		if after = footprint(t, db); after == before {
			return
		}
	}
	t.Errorf("it left a trace: WAL position, next transaction, rows were %s, are %s", before, after)
}

// A thousand who wait must not write the row of the name, or their claims, a thousand times.
func TestThoseWhoStayInTheQueueWriteNothing(t *testing.T) {
	t.Parallel()
	db := migrated(t)
	store := open(t, db)
	grant(t, store, request("a", 1, time.Minute))
	const claims = 50
	all := make([]driver.AcquireRequest, claims)
	for i := range all {
		all[i] = waiter("a", 2+i)
		if r := line(t, store, all[i])[0]; (r.Ahead > 0) != (i > 0) {
			t.Fatalf("%+v, want %d ahead", r, i)
		}
	}
	const rows = `SELECT concat_ws(' ', xmin, ctid) FROM sqllock_lock UNION ALL SELECT string_agg(concat_ws(' ', xmin, ctid), ',') FROM sqllock_claim`
	version := func() string { return get[string](t, db, `SELECT string_agg(r, '; ') FROM (`+rows+`) f(r)`) }
	before := version()
	for i := range all {
		line(t, store, all[i])
	}
	for i, r := range line(t, store, all...) {
		if r.Granted || r.Holder.Acq != acq(1) {
			t.Fatalf("%d: %+v", i, r)
		}
	}
	if after := version(); after != before {
		t.Errorf("the rows were %s and are %s", before, after)
	}
}

func TestThoseWhoStayInTheQueueDoNotWaitForTheRowOfTheName(t *testing.T) {
	db := migrated(t)
	store := open(t, db)
	grant(t, store, request("a", 1, time.Minute))
	all := make([]driver.AcquireRequest, 100)
	for i := range all {
		all[i] = waiter("a", 2+i)
	}
	line(t, store, all...)
	unlock := lockRow(t, db, `SELECT FROM sqllock_lock WHERE name = 'a' FOR UPDATE`)
	queuetest.Within(t, 900*time.Millisecond, func() { // a wait for a lock takes a second
		for i, r := range line(t, store, all...) {
			if r.Granted || r.Holder.Acq != acq(1) {
				t.Fatalf("%d: %+v", i, r)
			}
		}
	})
	unlock()
}

// The beat of a Locker touches no row of a name.
func TestABeatWaitsForNoName(t *testing.T) {
	t.Parallel()
	db := migrated(t)
	store := open(t, db)
	grant(t, store, request("a", 1, time.Minute))
	waits := waiter("a", 2)
	waits.Life = 300 * time.Millisecond
	line(t, store, waits)
	lives := func() int64 { return get[int64](t, db, `SELECT expires_at FROM sqllock_waiter`) }
	before := lives()
	time.Sleep(400 * time.Millisecond)
	unlock := lockRow(t, db, `SELECT FROM sqllock_lock, sqllock_claim FOR UPDATE`)
	defer unlock()
	line(t, store, waits)
	if after := lives(); after <= before+waits.Life.Microseconds() {
		t.Errorf("no beat was sent: the Locker lives until %d, as before until %d", after, before)
	}
}

func TestABatchThatMeetsALockedRowChangesNothing(t *testing.T) {
	t.Parallel()
	db := migrated(t)
	store := open(t, db)
	held := grant(t, store, request("a", 1, time.Minute), request("b", 2, time.Minute), request("c", 3, time.Minute))
	unlock := lockRow(t, db, `SELECT FROM sqllock_lock WHERE name = 'b' FOR NO KEY UPDATE`)
	defer unlock()
	const all = `SELECT coalesce((SELECT string_agg(l::text, ' ' ORDER BY name) FROM sqllock_lock l), '') || (SELECT count(*) FROM sqllock_claim)`
	before := get[string](t, db, all)
	calls := map[string]func() error{
		"Acquire": func() error {
			_, err := store.Acquire(t.Context(), []driver.AcquireRequest{waiter("a", 4), waiter("b", 5), waiter("c", 6), waiter("new", 7)})
			return err
		},
		"Release": func() error {
			var reqs []driver.ReleaseRequest
			for i, name := range []string{"a", "b", "c"} {
				r := releasing(name, i+1, held[i].Version)
				r.Awaited = true
				reqs = append(reqs, r)
			}
			_, err := store.Release(t.Context(), reqs)
			return err
		},
		"Release by acquisition": func() error {
			_, err := store.Release(t.Context(), []driver.ReleaseRequest{{Name: "a", Acq: acq(1)}, {Name: "b", Acq: acq(2)}})
			return err
		},
	}
	for what, call := range calls {
		began := time.Now()
		if err := call(); classify(err) != driver.Again || err == nil || time.Since(began) > 5*time.Second {
			t.Errorf("%s = %v after %v, want to be told to try again", what, err, time.Since(began))
		}
		if after := get[string](t, db, all); after != before {
			t.Errorf("%s: it was %s and is %s", what, before, after)
		}
	}
}

// waitsForLock waits until a statement of this database waits for a lock.
func waitsForLock(t *testing.T, db *sql.DB) {
	t.Helper()
	eventually(t, "a statement waits for a lock", 20*time.Second, func() bool { return areLocksWaitedFor(t, db) })
}

func areLocksWaitedFor(t *testing.T, db *sql.DB) bool {
	t.Helper()
	return get[bool](t, db, `SELECT EXISTS (SELECT FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock')`)
}
