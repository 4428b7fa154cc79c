package lockpg_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/sqllock/sqllock/driver"
)

// The functions plan once for a session. A plan that was made while the tables were
// empty must not read all of them when they have grown.
func TestAPlanThatWasMadeOnEmptyTablesLooksUpRowsByTheirKey(t *testing.T) {
	t.Parallel()
	db := migrated(t)
	for _, table := range []string{"lock", "term"} {
		mustExec(t, db, `VACUUM ANALYZE sqllock_`+table)
	}
	conn, err := db.Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	// read is how many rows the calls of a function read.
	read := func(name string) (n int) {
		tx, err := conn.BeginTx(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = tx.Commit() }()
		for _, call := range []string{
			`SELECT count(*) FROM sqllock_grant(ARRAY[$1], ARRAY[md5($1)::uuid], '{x}', '{60000000}', '{""}', md5('')::uuid, 'me')`,
			`SELECT count(*) FROM sqllock_release(ARRAY[$1], ARRAY[md5($1)::uuid], ARRAY(SELECT version FROM sqllock_lock WHERE name = $1), '{0}')`,
			`SELECT count(*) FROM sqllock_try_1('{1}', '{2}', '{f}', ARRAY[$1], '{t}', 3)`,
		} {
			if _, err := tx.ExecContext(t.Context(), call, name); err != nil {
				t.Fatal(err)
			}
		}
		err = tx.QueryRowContext(t.Context(), `SELECT sum(coalesce(seq_tup_read, 0) + coalesce(idx_tup_fetch, 0))::bigint
			FROM pg_stat_xact_user_tables WHERE relname IN ('sqllock_lock', 'sqllock_term')`).Scan(&n)
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	read("first")
	mustExec(t, db, `INSERT INTO sqllock_lock (name, version) SELECT 'k' || i, 1 FROM generate_series(1, 5000) i`)
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
	reqs := make([]driver.GrantRequest, len(names))
	releases := make([]driver.ReleaseRequest, len(names))
	for i, name := range names {
		reqs[i] = driver.GrantRequest{Name: name, Acq: acq(1 + i), Owner: "x", TTL: time.Minute}
		releases[i] = driver.ReleaseRequest{Name: name, Acq: acq(1 + i)}
	}
	// blocked runs f while somebody has locked b.
	blocked := func(what string, f func() error) {
		tx, err := db.BeginTx(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = tx.Rollback() }()
		if _, err := tx.Exec(`SELECT FROM sqllock_lock WHERE name = 'b' FOR UPDATE`); err != nil {
			t.Fatal(err)
		}
		done := make(chan error, 1)
		go func() { done <- f() }()
		waitsForLock(t, db)
		free := get[string](t, db, `SELECT coalesce(string_agg(l.name, ' '), '') FROM (SELECT name FROM sqllock_lock WHERE name IN ('a', 'c') FOR UPDATE SKIP LOCKED) l`)
		if free != "c" {
			t.Errorf("%s that waits for b has not locked %q", what, free)
		}
		if err := tx.Rollback(); err != nil {
			t.Error(err)
		}
		if err := <-done; err != nil {
			t.Error(what, err)
		}
	}
	grant := func() error {
		res, err := store.Grant(t.Context(), reqs)
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
	one := func(name string, id int) driver.GrantRequest {
		return driver.GrantRequest{Name: name, Acq: acq(id), Owner: fmt.Sprint("owner ", id), TTL: time.Minute}
	}
	before, err := store.Grant(t.Context(), []driver.GrantRequest{one("b free", 1), one("c held", 2), one("d mine", 3), one("e gate", 4)})
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
	res, err := store.Grant(t.Context(), []driver.GrantRequest{
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

// Whoever changes the row of a name that is held, be it to renew it, keeps no losing
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
	res, err := store.Grant(t.Context(), []driver.GrantRequest{request("k", 2, time.Minute)})
	if err != nil || res[0].Granted || res[0].Holder.Acq != acq(1) {
		t.Errorf("%+v, %v", res, err)
	}
}
