package locksqlite_test

import (
	"context"
	"database/sql"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/sqllock/sqllock/driver"
)

// hog holds the write lock until the function that it returns is called.
func hog(tb testing.TB, db *sql.DB) (free func()) {
	tb.Helper()
	conn, err := db.Conn(tb.Context())
	if err != nil {
		tb.Fatal(err)
	}
	exec(tb, conn, "BEGIN IMMEDIATE")
	return func() {
		_, _ = conn.ExecContext(context.Background(), "ROLLBACK")
		_ = conn.Close()
	}
}

func TestALosingAttemptNeedsNoWriteLock(t *testing.T) {
	path := migrated(t)
	db := open(t, path)
	s := openStore(t, db)
	grant(t, s, ask("held"))
	defer hog(t, open(t, path))()
	if r := grant(t, s, ask("held"))[0]; r.Granted || r.Holder.Label != "test" {
		t.Errorf("%+v", r)
	}
	if _, err := s.Acquire(t.Context(), ask("free")); classify(err) != driver.Again {
		t.Errorf("control: a winning attempt got by the lock, %v", err)
	}
}

func TestABusyDatabaseIsTriedAgain(t *testing.T) {
	path := migrated(t)
	s := openStore(t, open(t, path, "_pragma=busy_timeout(0)"))
	reqs := ask("k")
	version := grant(t, s, reqs)[0].Version
	free := hog(t, open(t, path))
	ctx := t.Context()
	_, errGrant := s.Acquire(ctx, ask("other"))
	_, errRenew := s.Renew(ctx, []driver.RenewRequest{{Name: "k", Acq: reqs[0].Acq, Version: version, TTL: time.Minute, Holds: 1}}, true)
	_, errRelease := s.Release(ctx, []driver.ReleaseRequest{{Name: "k", Acq: reqs[0].Acq, Version: version}})
	_, errAbandon := s.Release(ctx, []driver.ReleaseRequest{{Name: "k", Acq: reqs[0].Acq}})
	for i, err := range []error{errGrant, errRenew, errRelease, errAbandon} {
		if err == nil || classify(err) != driver.Again {
			t.Errorf("call %d: %v is %d", i, err, classify(err))
		}
	}
	free()
	if r := grant(t, s, ask("other"))[0]; !r.Granted {
		t.Errorf("%+v", r)
	}
}

func TestALongBusyTimeoutDoesNotHoldUpACancelledCall(t *testing.T) {
	path := migrated(t)
	db := open(t, path, "_pragma=busy_timeout(30000)")
	db.SetMaxOpenConns(1)
	s := openStore(t, db)
	free := hog(t, open(t, path))
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	start := time.Now()
	_, err := s.Acquire(ctx, ask("k"))
	if f := classify(err); err == nil || f != driver.Unclear && f != driver.Again || time.Since(start) > 10*time.Second {
		t.Errorf("%v after %v", err, time.Since(start))
	}
	start = time.Now()
	if _, err = s.Acquire(t.Context(), ask("k")); classify(err) != driver.Again || time.Since(start) > 10*time.Second {
		t.Errorf("%v after %v", err, time.Since(start))
	}
	free()
	if !grant(t, s, ask("k"))[0].Granted {
		t.Error("the name is not free")
	}
	var timeout int
	if err := db.QueryRow("PRAGMA busy_timeout").Scan(&timeout); err != nil || timeout != 30000 {
		t.Errorf("the application's busy_timeout is %d now, %v", timeout, err)
	}
}

func TestTheClockIsReadAfterTheWaitForTheWriteLock(t *testing.T) {
	path := migrated(t)
	s := openStore(t, open(t, path, "_pragma=busy_timeout(200)"))
	other := open(t, path)
	var r []driver.AcquireResult
	var err error
	var before time.Time
	for range 10 { // the lock may be free too late, on a busy machine
		free := hog(t, other)
		freed := make(chan time.Time)
		go func() {
			time.Sleep(60 * time.Millisecond)
			before := time.Now()
			free()
			freed <- before
		}()
		r, err = s.Acquire(t.Context(), ask("k"))
		if before = <-freed; err == nil || classify(err) != driver.Again {
			break
		}
	}
	if err != nil || !r[0].Granted {
		t.Fatal(r, err)
	}
	if r[0].Now < before.UnixMicro()-1000 {
		t.Errorf("the lease began %v before its statement could run", before.Sub(time.UnixMicro(r[0].Now)))
	}
}

func TestTheWritesOfOneStoreDoNotGetInEachOthersWay(t *testing.T) {
	s := openStore(t, open(t, migrated(t), "_pragma=busy_timeout(0)"))
	held := ask("held")
	version := grant(t, s, held)[0].Version
	var wg sync.WaitGroup
	for i := range 4 {
		wg.Go(func() {
			for range 20 {
				names := make([]string, 100) // so that a write takes its time
				for n := range names {
					names[n] = fmt.Sprint("k", i, ".", n)
				}
				reqs := ask(names...)
				res, err := s.Acquire(t.Context(), reqs)
				if err == nil {
					free := make([]driver.ReleaseRequest, len(reqs))
					for n, r := range res {
						free[n] = driver.ReleaseRequest{Name: names[n], Acq: reqs[n].Acq, Version: r.Version}
					}
					_, err = s.Release(t.Context(), free)
				}
				if err == nil {
					_, err = s.Renew(t.Context(), []driver.RenewRequest{{Name: "held", Acq: held[0].Acq, Version: version, TTL: time.Minute, Holds: 1}}, true)
				}
				if err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
}

func TestAWriteThatWaitsForAnotherOfItsStoreEndsWithItsContext(t *testing.T) {
	path := migrated(t)
	s := openStore(t, open(t, path, "_pragma=busy_timeout(250)"))
	free := hog(t, open(t, path))
	defer free()
	for try := 1; ; try++ { // on a busy machine the first one may be over too soon
		first := make(chan error)
		go func() {
			_, err := s.Acquire(t.Context(), ask("first"))
			first <- err
		}()
		time.Sleep(50 * time.Millisecond)
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		_, err := s.Acquire(ctx, ask("second"))
		cancel()
		<-first
		f := classify(err)
		if err != nil && f == driver.Again {
			break
		}
		if err == nil || try == 10 {
			t.Fatalf("%v is %d", err, f)
		}
	}
}
