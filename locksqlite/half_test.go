package locksqlite_test

import (
	"context"
	"database/sql"
	"errors"
	"path/filepath"
	"testing"
	"time"

	"github.com/sqllock/sqllock/driver"
)

func TestABusyDatabaseLeavesNothingHalfDone(t *testing.T) {
	for journal, keepBusy := range map[string]func(testing.TB, *sql.DB) (free func()){
		"wal":    hog,
		"delete": read, // there the commit fails, and nothing before it
	} {
		t.Run(journal, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "locks.db")
			prepare(t, path, journal)
			db, other := plain(t, path), plain(t, path)
			db.SetMaxOpenConns(1) // a connection that is left in a transaction shows
			s := openStore(t, db)
			before := litter(t, s, db)

			free := keepBusy(t, other)
			_, errGrant := s.Acquire(t.Context(), ask("expired", "new"))
			_, errRevoke := s.Revoke(t.Context(), []driver.RevokeRequest{{Name: "expired"}, {Name: "held"}})
			_, errSweep := s.Sweep(t.Context(), driver.SweepRequest{Limit: 9, Retention: time.Hour})
			_, errDue := sweepDue(t.Context(), s, time.Minute)
			for i, err := range []error{errGrant, errRevoke, errSweep, errDue} {
				if err == nil || classify(err) != driver.Again {
					t.Errorf("call %d: %v is %d", i, err, classify(err))
				}
			}
			if r := look(t, s, "held")[0]; !r.Held() {
				t.Errorf("%+v", r)
			}
			if page, err := s.Read(t.Context(), driver.ReadRequest{List: driver.ListRequest{Limit: 9}}); err != nil || len(page.Rows) != 2 {
				t.Errorf("%+v, %v", page, err)
			}
			free()
			if after := dump(t, other); after != before {
				t.Errorf("it was\n%s\nand is\n%s", before, after)
			}
			if res := sweep(t, s, "", 9); len(res.Crashed) != 1 || res.Purged != 1 {
				t.Errorf("%+v", res)
			}
		})
	}
}

// A name was just freed, and is asked for without a look. In a database without a write-ahead log the
// commit can fail after the row was written, and somebody else can be quicker then.
func TestAGrantWhoseCommitFailsIsNone(t *testing.T) {
	path := filepath.Join(t.TempDir(), "locks.db")
	prepare(t, path, "delete")
	a, b, reader := openStore(t, plain(t, path)), openStore(t, plain(t, path)), plain(t, path)
	grant(t, a, ask("there is something to read"))
	for round := range 3 {
		reqs := ask("n")
		grant(t, a, reqs)
		release(t, a, reqs[0], 0)
		free := read(t, reader)
		time.AfterFunc(300*time.Millisecond, free)
		rival := make(chan driver.AcquireRequest, 1)
		go func() {
			defer close(rival)
			for end := time.Now().Add(5 * time.Second); time.Now().Before(end); {
				req := ask("n")[0]
				res, err := b.Acquire(context.Background(), []driver.AcquireRequest{req})
				switch {
				case err == nil && res[0].Granted:
					rival <- req
					return
				case err == nil:
					return // the other one has it
				}
			}
		}()
		mine := ask("n")
		res, err := a.Acquire(t.Context(), mine)
		other, granted := <-rival
		switch first := err == nil && res[0].Granted; {
		case first && granted:
			t.Fatalf("round %d: two were granted one name", round)
		case first:
			release(t, a, mine[0], 0)
		case granted:
			release(t, b, other, 0)
		}
	}
}

// plain opens a handle that leaves the journal mode as it is.
func plain(tb testing.TB, path string) *sql.DB {
	tb.Helper()
	db, err := sql.Open("sqlite", "file:"+path)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = db.Close() })
	return db
}

// read holds a lock that keeps others from committing, in a database without a
// write-ahead log, until the function that it returns is called.
func read(tb testing.TB, db *sql.DB) (free func()) {
	tb.Helper()
	rows, err := db.QueryContext(tb.Context(), "SELECT name FROM sqllock_lock")
	if err != nil || !rows.Next() {
		tb.Fatal("nothing to read", err)
	}
	return func() { _ = rows.Close() }
}

// litter makes rows of which there is something to do, and returns the dump.
func litter(tb testing.TB, s driver.Store, db *sql.DB) string {
	tb.Helper()
	reqs := ask("expired", "held", "idle")
	grant(tb, s, reqs)
	release(tb, s, reqs[2], 0)
	expire(tb, db, "expired")
	exec(tb, db, "UPDATE sqllock_lock SET version = 1, expires_at = 1 WHERE name = 'idle'")
	return dump(tb, db)
}

// dump returns all that is in the tables.
func dump(tb testing.TB, db *sql.DB) (all string) {
	tb.Helper()
	const rows = `SELECT group_concat(name || ' ' || coalesce(hex(acq), '') || ' ' || version || ' ' || expires_at || ' ' || ended, char(10)) ||
		(SELECT swept_at FROM sqllock_meta) FROM sqllock_lock`
	if err := db.QueryRowContext(tb.Context(), rows).Scan(&all); err != nil {
		tb.Fatal(err)
	}
	return all
}

func TestACallThatIsCancelledHalfWayLeavesNothingHalfDone(t *testing.T) {
	path := migrated(t)
	db := open(t, path)
	other := openStore(t, db)
	before := litter(t, other, db)

	for _, c := range []struct {
		call, prefix string
		do           func(context.Context, driver.Store) error
	}{
		{"grant", "INSERT", func(ctx context.Context, s driver.Store) error {
			_, err := s.Acquire(ctx, ask("expired", "new"))
			return err
		}},
		{"revoke", "UPDATE", func(ctx context.Context, s driver.Store) error {
			_, err := s.Revoke(ctx, []driver.RevokeRequest{{Name: "held"}})
			return err
		}},
		{"sweep", "DELETE", func(ctx context.Context, s driver.Store) error {
			_, err := s.Sweep(ctx, driver.SweepRequest{Limit: 9, Retention: time.Hour})
			return err
		}},
	} {
		t.Run(c.call, func(t *testing.T) {
			hook := once{verb: c.prefix}
			one := spied(t, path, hook.before)
			one.SetMaxOpenConns(1)
			s := openStore(t, one)
			exec(t, one, "CREATE TEMP TABLE mark (x)")
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			hook.do = cancel
			if err := c.do(ctx, s); !errors.Is(err, context.Canceled) || classify(err) != driver.Unclear || hook.do != nil {
				t.Errorf("%v", err)
			}
			if after := dump(t, db); after != before {
				t.Errorf("it was\n%s\nand is\n%s", before, after)
			}
			if _, err := other.Revoke(t.Context(), []driver.RevokeRequest{{Name: "never seen"}}); err != nil {
				t.Errorf("the write lock was left behind: %v", err)
			}
			if err := c.do(t.Context(), s); err != nil {
				t.Errorf("the connection cannot be used: %v", err)
			}
			exec(t, one, "INSERT INTO mark VALUES (1)") // it is the same, which matters in memory
			before = dump(t, db)
		})
	}
}

func TestAConnectionIsNeverLeftInATransaction(t *testing.T) {
	path := migrated(t)
	other := openStore(t, open(t, path))
	for _, c := range []struct {
		lost    string // the statement that runs, but whose reply is lost
		revoked bool
		kept    bool // the connection
	}{
		{"BEGIN", false, true},
		{"UPDATE", false, true},
		{"COMMIT", true, true},
		{"ROLLBACK", false, false},
	} {
		t.Run(c.lost, func(t *testing.T) {
			grant(t, other, ask("k"))
			hook := once{verb: c.lost}
			fail := once{verb: "UPDATE"} // so that there is a ROLLBACK
			one := spied(t, path, func(text string) error { return errors.Join(fail.before(text), hook.before(text)) })
			one.SetMaxOpenConns(1)
			s := openStore(t, one)
			exec(t, one, "CREATE TEMP TABLE mark (x)")
			hook.lose = errors.New("lost")
			if c.lost == "ROLLBACK" {
				fail.lose = errors.New("failed")
			}
			if _, err := s.Revoke(t.Context(), []driver.RevokeRequest{{Name: "k"}}); err == nil || classify(err) != driver.Unclear || hook.lose != nil {
				t.Errorf("%v", err)
			}
			if _, err := other.Revoke(t.Context(), []driver.RevokeRequest{{Name: "never seen"}}); err != nil {
				t.Errorf("the write lock was left behind: %v", err)
			}
			if r := look(t, s, "k")[0]; r.Held() == c.revoked {
				t.Errorf("%+v", r)
			}
			_, err := one.ExecContext(t.Context(), "INSERT INTO mark VALUES (1)")
			if kept := err == nil; kept != c.kept {
				t.Errorf("the connection was kept: %v, %v", kept, err)
			}
		})
	}
}

func TestWhatATransactionHasReadNobodyChangesBeforeItWrites(t *testing.T) {
	path := migrated(t)
	db := open(t, path, "_pragma=busy_timeout(0)")
	other := openStore(t, db)
	var begun, hook once
	s := openStore(t, spied(t, path, func(text string) error { return errors.Join(hook.before(text), begun.before(text)) }))
	grant(t, other, ask("k"))
	between := func() {
		if r, err := other.Revoke(t.Context(), []driver.RevokeRequest{{Name: "k"}}); classify(err) != driver.Again {
			t.Errorf("somebody else could write: %+v, %v", r, err)
		}
	}
	begun = once{verb: "BEGIN", do: func() { hook = once{verb: "UPDATE", do: between} }}
	if r, err := s.Revoke(t.Context(), []driver.RevokeRequest{{Name: "k"}}); err != nil || !r[0].Revoked || begun.do != nil || hook.do != nil {
		t.Error(r, err)
	}
}

func TestACommitThatHasBegunIsNotCancelled(t *testing.T) {
	path := migrated(t)
	hook := once{verb: "COMMIT"}
	s := openStore(t, spied(t, path, hook.before))
	grant(t, s, ask("k"))
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	hook.do = cancel
	if r, err := s.Revoke(ctx, []driver.RevokeRequest{{Name: "k"}}); err != nil || !r[0].Revoked || hook.do != nil {
		t.Error(r, err)
	}
	if r := look(t, s, "k")[0]; r.Held() {
		t.Errorf("%+v", r)
	}
}
