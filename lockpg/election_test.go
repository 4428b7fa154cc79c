package lockpg_test

import (
	"testing"
	"time"

	"github.com/sqllock/sqllock/driver"
	"github.com/sqllock/sqllock/internal/queuetest"
)

func TestAResumptionAndAProclamationAreFlushedOnAServerOfItsOwn(t *testing.T) {
	t.Parallel()
	server := dedicated(t, "-c", "wal_writer_delay=10s", "-c", "synchronous_commit=off")
	db := server.Open(t)
	migrate(t, db)
	store := open(t, db)
	req := request("a", 1, time.Minute)
	version := grant(t, store, req)[0].Version
	for i := range 20 {
		res, err := resume(t, store, req, acq(i+2), version)
		if err != nil || !res.Granted {
			t.Fatalf("Acquire = %+v, %v", res, err)
		}
		version = res.Version
		if !get[bool](t, db, flushed) {
			t.Fatal("a resumption was not flushed although the server is set to synchronous_commit=off")
		}
		done, err := store.SetValue(t.Context(), driver.SetValueRequest{Name: "a", Acq: acq(i + 2), Version: version, Value: []byte("x")})
		if err != nil || !done {
			t.Fatalf("SetValue = %v, %v", done, err)
		}
		if !get[bool](t, db, flushed) {
			t.Fatal("a proclamation was not flushed")
		}
	}
}

func TestAProclamationPassesThoseWhoGuardAndAResumptionDoesNot(t *testing.T) {
	t.Parallel()
	db := migrated(t)
	store := open(t, db)
	req := request("a", 1, time.Minute)
	r := grant(t, store, req)[0]
	unlock := lockRow(t, db, `SELECT name FROM sqllock_lock WHERE name = 'a' FOR KEY SHARE`)
	defer unlock()
	queuetest.Within(t, 900*time.Millisecond, func() { // a wait for a lock takes a second
		done, err := store.SetValue(t.Context(), driver.SetValueRequest{Name: "a", Acq: req.Acq, Version: r.Version, Value: []byte("x")})
		if err != nil || !done {
			t.Errorf("SetValue = %v, %v", done, err)
		}
	})
	if res, err := resume(t, store, req, acq(2), r.Version); res.Granted || classify(err) != driver.Again {
		t.Errorf("Acquire = %+v, %v", res, err)
	}
	unlock()
	if res, err := resume(t, store, req, acq(2), r.Version); err != nil || !res.Granted {
		t.Errorf("Acquire = %+v, %v", res, err)
	}
}

// resume ends the term of a request for the next one of the same owner.
func resume(t *testing.T, store driver.Store, of driver.AcquireRequest, acq driver.ID, version int64) (driver.AcquireResult, error) {
	t.Helper()
	of.Acq, of.Resumes = acq, version
	res, err := store.Acquire(t.Context(), []driver.AcquireRequest{of})
	if err != nil {
		return driver.AcquireResult{}, err
	}
	return res[0], nil
}
