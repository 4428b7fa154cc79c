package lockpg_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/sqllock/sqllock/driver"
	"github.com/sqllock/sqllock/internal/queuetest"
)

func reader(name string, n int) driver.AcquireRequest {
	r := request(name, n, time.Minute)
	r.Shared = true
	return r
}

func TestWhoLosesToReadersOrAsOneLeavesNoTraceOnAServerOfItsOwn(t *testing.T) {
	t.Parallel()
	db := dedicated(t).Open(t)
	migrate(t, db)
	store := open(t, db)
	mustExec(t, db, `CHECKPOINT`)
	grant(t, store, reader("read", 1))
	grant(t, store, reader("read", 2))
	grant(t, store, request("written", 3, time.Minute))
	var before, after string
	for range 5 { // the server may write for its own reasons once in a while
		before = footprint(t, db)
		for i := range 250 {
			if grant(t, store, request("read", 4+i, time.Minute))[0].Granted || grant(t, store, reader("written", 4+i))[0].Granted {
				t.Fatal("granted a held name")
			}
			if !grant(t, store, reader("read", 1))[0].Found {
				t.Fatal("not found")
			}
		}
		if after = footprint(t, db); after == before {
			return
		}
	}
	t.Errorf("500 losing attempts left a trace: WAL position, next transaction, rows were %s, are %s", before, after)
}

func TestWhatReadersAreToldIsFlushedOnAServerOfItsOwn(t *testing.T) {
	db := dedicated(t, "-c", "wal_writer_delay=10s", "-c", "synchronous_commit=off").Open(t)
	migrate(t, db)
	store := open(t, db)
	for i := range 10 {
		r := grant(t, store, reader("a", i+1))[0]
		if !get[bool](t, db, flushed) {
			t.Fatal("a grant was not flushed")
		}
		renewed, err := store.Renew(t.Context(), []driver.RenewRequest{{Name: "a", Acq: acq(i + 1), Version: r.Version, TTL: time.Hour, Holds: 1, Shared: true}}, false)
		if err != nil || renewed.Status[0] != driver.Renewed {
			t.Fatalf("Renew = %v, %v", renewed, err)
		}
		if !get[bool](t, db, flushed) {
			t.Fatal("a renewal was not flushed")
		}
	}
}

func TestARowThatSomebodyHasLockedHoldsUpNoOtherReader(t *testing.T) {
	t.Parallel()
	db := migrated(t)
	store := open(t, db)
	var reqs []driver.RenewRequest
	for i, name := range []string{"a", "b", "b", "c"} {
		r := grant(t, store, reader(name, i+1))[0]
		reqs = append(reqs, driver.RenewRequest{Name: name, Acq: acq(i + 1), Version: r.Version, TTL: time.Hour, Holds: 1, Shared: true})
	}
	unlock := lockRow(t, db, `SELECT FROM sqllock_claim WHERE name = 'b' FOR UPDATE`)
	res, err := store.Renew(t.Context(), reqs, false)
	if want := []driver.RenewStatus{driver.Renewed, driver.Busy, driver.Busy, driver.Renewed}; err != nil || fmt.Sprint(res.Status) != fmt.Sprint(want) {
		t.Errorf("Renew = %v, %v; want %v", res.Status, err, want)
	}
	if _, err = store.Renew(t.Context(), reqs, true); classify(err) != driver.Again {
		t.Errorf("Renew that waits = %v", err)
	}
	// A claim that is locked is alive, whatever it says: it is lost to, and not waited for.
	mustExec(t, db, `UPDATE sqllock_claim SET expires_at = 1 WHERE name = 'c'`)
	unlockC := lockRow(t, db, `SELECT FROM sqllock_claim WHERE name = 'c' FOR KEY SHARE`)
	queuetest.Within(t, 900*time.Millisecond, func() { // a wait for a lock takes a second
		if r := grant(t, store, request("c", 9, time.Minute))[0]; r.Granted || !r.Holder.Shared {
			t.Errorf("%+v", r)
		}
	})
	unlockC()
	unlock()
	// The row of the name is none of its business.
	unlock = lockRow(t, db, `SELECT FROM sqllock_lock WHERE name = 'b' FOR UPDATE`)
	res, err = store.Renew(t.Context(), reqs[:3], false)
	if err != nil || fmt.Sprint(res.Status) != fmt.Sprint([]driver.RenewStatus{driver.Renewed, driver.Renewed, driver.Renewed}) {
		t.Errorf("Renew = %v, %v", res.Status, err)
	}
	unlock()
}

// A request whose reply was lost is repeated while it may still run.
func TestOneRequestThatRunsTwiceAtATimeIsCountedOnce(t *testing.T) {
	t.Parallel()
	db := migrated(t)
	store := open(t, db)
	grant(t, store, reader("a", 1))
	for i := range 50 {
		var wg sync.WaitGroup
		for range 4 {
			wg.Go(func() {
				for {
					res, err := store.Acquire(context.Background(), []driver.AcquireRequest{reader("a", 2+i)})
					if err == nil && res[0].Granted {
						return
					}
					if err != nil && classify(err) != driver.Again {
						t.Errorf("Grant = %v, %v", res, err)
						return
					}
				}
			})
		}
		wg.Wait()
	}
	if got := get[string](t, db, `SELECT holding || ' ' || (SELECT count(*) FROM sqllock_claim) FROM sqllock_lock`); got != "51 51" {
		t.Errorf("readers are counted as, and are: %s, want 51", got)
	}
}

func TestWhoLosesOneOfSeveralNamesLeavesNoTraceOnAServerOfItsOwn(t *testing.T) {
	t.Parallel()
	db := dedicated(t).Open(t)
	migrate(t, db)
	store := open(t, db)
	mustExec(t, db, `CHECKPOINT`)
	grant(t, store, request("held", 1, time.Minute))
	for i, name := range []string{"a", "free"} {
		grant(t, store, request(name, 2+i, time.Millisecond))
		if _, err := store.Release(t.Context(), []driver.ReleaseRequest{{Name: name, Acq: acq(2 + i)}}); err != nil {
			t.Fatal(err)
		}
	}
	var before, after string
	for range 5 {
		before = footprint(t, db)
		for i := range 250 {
			var reqs []driver.AcquireRequest
			for k, name := range []string{"a", "free", "held", "new"} {
				r := request(name, 10+4*i+k, time.Minute)
				r.All = true
				reqs = append(reqs, r)
			}
			for k, res := range grant(t, store, reqs...) {
				if res.Granted || res.Refused != (k == 2) {
					t.Fatalf("%s: %+v", reqs[k].Name, res)
				}
			}
		}
		if after = footprint(t, db); after == before {
			return
		}
	}
	t.Errorf("250 losing attempts left a trace: WAL position, next transaction, rows were %s, are %s", before, after)
}
