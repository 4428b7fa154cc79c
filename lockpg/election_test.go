package lockpg_test

import (
	"testing"
	"time"

	"github.com/sqllock/sqllock/driver"
)

func TestAResumptionAndAProclamationAreFlushedOnAServerOfItsOwn(t *testing.T) {
	t.Parallel()
	server := dedicated(t, "-c", "wal_writer_delay=10s", "-c", "synchronous_commit=off")
	db := server.Open(t)
	migrate(t, db)
	store := open(t, db)
	const flushed = `SELECT pg_current_wal_flush_lsn() >= pg_current_wal_insert_lsn()`
	req := request("a", 1, time.Minute)
	version := grant(t, store, req)[0].Version
	for i := range 20 {
		res, err := store.Resume(t.Context(), driver.ResumeRequest{Name: "a", Acq: acq(i + 2), Owner: req.Owner, Version: version, TTL: time.Minute})
		if err != nil || !res.Granted {
			t.Fatalf("Resume = %+v, %v", res, err)
		}
		version = res.Version
		if !get[bool](t, db, flushed) {
			t.Fatal("a resumption was not flushed although the server is set to synchronous_commit=off")
		}
		done, err := store.Proclaim(t.Context(), driver.SetValueRequest{Name: "a", Acq: acq(i + 2), Version: version, Value: []byte("x")})
		if err != nil || !done {
			t.Fatalf("Proclaim = %v, %v", done, err)
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
	start := time.Now()
	done, err := store.Proclaim(t.Context(), driver.SetValueRequest{Name: "a", Acq: req.Acq, Version: r.Version, Value: []byte("x")})
	if err != nil || !done || time.Since(start) > time.Second {
		t.Errorf("Proclaim = %v, %v, after %v", done, err, time.Since(start))
	}
	resume := driver.ResumeRequest{Name: "a", Acq: acq(2), Owner: req.Owner, Version: r.Version, TTL: time.Minute}
	if res, err := store.Resume(t.Context(), resume); res.Granted || store.Classify(err) != driver.Again {
		t.Errorf("Resume = %+v, %v", res, err)
	}
	unlock()
	if res, err := store.Resume(t.Context(), resume); err != nil || !res.Granted {
		t.Errorf("Resume = %+v, %v", res, err)
	}
}
