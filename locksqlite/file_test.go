package locksqlite_test

import (
	"context"
	"database/sql"
	"errors"
	"os"
	osexec "os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/sqllock/sqllock"
	"github.com/sqllock/sqllock/driver"
	"github.com/sqllock/sqllock/locksqlite"
	"github.com/sqllock/sqllock/migrations"
)

// renewal grants a name and returns how to renew it.
func renewal(t *testing.T, s driver.Store) (renew func() driver.RenewResults) {
	t.Helper()
	reqs := ask("k")
	version := grant(t, s, reqs)[0].Version
	return func() driver.RenewResults {
		t.Helper()
		res, err := s.Renew(t.Context(), []driver.RenewRequest{{Name: "k", Acq: reqs[0].Acq, Version: version, TTL: time.Minute, Holds: 1}}, false)
		if err != nil {
			t.Fatal(err)
		}
		return res
	}
}

// replace puts a copy of the database in its place.
func replace(t *testing.T, db *sql.DB, path string) {
	t.Helper()
	exec(t, db, "VACUUM INTO ?", path+".copy")
	for _, suffix := range []string{"-wal", "-shm"} {
		if err := os.Remove(path + suffix); err != nil && !errors.Is(err, os.ErrNotExist) {
			t.Fatal(err)
		}
	}
	if err := os.Rename(path+".copy", path); err != nil {
		t.Fatal(err)
	}
}

func wantGone(t *testing.T, res driver.RenewResults, words ...string) {
	t.Helper()
	if res.Status[0] != driver.Gone || res.Why == nil {
		t.Errorf("the lease is not gone: %+v", res)
		return
	}
	for _, word := range words {
		if !strings.Contains(res.Why.Error(), word) {
			t.Errorf("%q does not tell of %q", res.Why, word)
		}
	}
}

func TestALeaseIsGoneWhenTheFileIsReplaced(t *testing.T) {
	for _, journal := range []string{"wal", "delete"} {
		t.Run(journal, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "locks.db")
			prepare(t, path, journal)
			db, err := sql.Open("sqlite", "file:"+path)
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = db.Close() }()
			s := openStore(t, db)
			renew := renewal(t, s)
			if res := renew(); res.Status[0] != driver.Renewed {
				t.Fatalf("control: %+v", res)
			}
			replace(t, db, path)
			wantGone(t, renew(), path, "replaced", "open it anew")
			if _, err := s.Acquire(t.Context(), ask("other")); err == nil || classify(err) != driver.Refused {
				t.Errorf("a name was granted in a file that nobody sees: %v is %d", err, classify(err))
			}
			if _, err := s.Revoke(t.Context(), []driver.RevokeRequest{{Name: "k"}}); err == nil || classify(err) != driver.Refused {
				t.Errorf("a term was ended in a file that nobody sees: %v is %d", err, classify(err))
			}
			if r := grant(t, openStore(t, open(t, path)), ask("other"))[0]; !r.Granted {
				t.Errorf("a handle that was opened since: %+v", r)
			}
		})
	}
}

func TestALeaseIsGoneWhenTheLogIsRemovedOrReplaced(t *testing.T) {
	for _, again := range []bool{false, true} {
		t.Run(map[bool]string{false: "removed", true: "replaced"}[again], func(t *testing.T) {
			path := migrated(t)
			db := open(t, path)
			db.SetMaxOpenConns(1)
			s := openStore(t, db)
			renew := renewal(t, s)
			if err := os.Remove(path + "-wal"); err != nil {
				t.Fatal(err)
			}
			if again {
				if err := os.WriteFile(path+"-wal", nil, 0o600); err != nil {
					t.Fatal(err)
				}
			}
			wantGone(t, renew(), path, "write-ahead log")
			if again && runtime.GOOS != "linux" {
				return
			}
			_, err := tryOpen(t, locksqlite.DB(db))
			wantError(t, err, driver.ErrUnsupported, "write-ahead log")
		})
	}
}

func TestALeaseSurvivesThatItsConnectionIsOpenedAnew(t *testing.T) {
	db := open(t, migrated(t))
	db.SetMaxOpenConns(1)  // so that none is reserved
	db.SetMaxIdleConns(-1) // the log goes with the last connection
	renew := renewal(t, openStore(t, db))
	for range 3 {
		if res := renew(); res.Status[0] != driver.Renewed {
			t.Fatalf("%+v", res)
		}
	}
}

func TestALeaseSurvivesAChangeOfTheJournalMode(t *testing.T) {
	path := filepath.Join(t.TempDir(), "locks.db")
	prepare(t, path, "delete")
	db, err := sql.Open("sqlite", "file:"+path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = db.Close() }()
	db.SetMaxOpenConns(1)
	renew := renewal(t, openStore(t, db))
	for _, journal := range []string{"wal", "truncate", "wal", "delete"} {
		exec(t, db, "PRAGMA journal_mode = "+journal)
		if res := renew(); res.Status[0] != driver.Renewed {
			t.Errorf("%s: %+v", journal, res)
		}
	}
}

func TestAFileWithAnotherNameOrMountedAloneIsRefused(t *testing.T) {
	path := migrated(t)
	other := filepath.Join(t.TempDir(), "other name.db")
	if err := os.Link(path, other); err != nil {
		t.Fatal(err)
	}
	if runtime.GOOS != "windows" { // it does not tell
		_, err := tryOpen(t, locksqlite.DB(open(t, path)))
		wantError(t, err, driver.ErrUnsupported, path, "2 hard links")
	}
	if err := os.Remove(other); err != nil {
		t.Fatal(err)
	}
	if _, err := tryOpen(t, locksqlite.DB(open(t, path))); err != nil {
		t.Error("with one name again:", err)
	}
	if runtime.GOOS != "linux" {
		return
	}
	exec(t, open(t, path), "PRAGMA wal_checkpoint(TRUNCATE)")
	if err := os.WriteFile(other, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := osexec.Command("mount", "--bind", path, other).CombinedOutput(); err != nil {
		t.Skipf("a file can be mounted by root only: %v: %s", err, out)
	}
	t.Cleanup(func() { _ = osexec.Command("umount", "-l", other).Run() })
	db := open(t, other)
	_, err := tryOpen(t, locksqlite.DB(db))
	_ = db.Close()
	wantError(t, err, driver.ErrUnsupported, other, "mount its directory")
}

func TestAHolderIsToldThatTheFileWasReplaced(t *testing.T) {
	path := migrated(t)
	db := open(t, path)
	l, err := sqllock.NewUnique(t.Context(), locksqlite.DB(db), &sqllock.UniqueOptions{TTL: 10 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		_ = l.Close(ctx)
	}()
	lease, err := l.Lock(t.Context(), "k")
	if err != nil {
		t.Fatal(err)
	}
	replace(t, db, path)
	<-lease.Context().Done()
	var lost *sqllock.LostError
	if !errors.As(context.Cause(lease.Context()), &lost) || lost.Reason != sqllock.LostTaken || !strings.Contains(lost.Error(), "replaced") {
		t.Errorf("%v", context.Cause(lease.Context()))
	}
	if _, err := l.Lock(t.Context(), "other"); err == nil || !strings.Contains(err.Error(), "replaced") {
		t.Errorf("%v", err)
	}
	if err := migrations.Up(t.Context(), locksqlite.DB(open(t, path))); err != nil {
		t.Error("control: the copy is no database:", err)
	}
}
