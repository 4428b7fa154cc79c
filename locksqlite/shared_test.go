package locksqlite_test

import (
	"database/sql"
	"slices"
	"testing"
	"time"

	"github.com/sqllock/sqllock/driver"
)

func TestWhoLosesToReadersOrAsOneNeedsNoWriteLock(t *testing.T) {
	path := migrated(t)
	s := openStore(t, open(t, path))
	reader := func(name string) driver.AcquireRequest {
		return driver.AcquireRequest{Name: name, Acq: id(), TTL: time.Minute, Shared: true}
	}
	first := reader("read")
	grant(t, s, []driver.AcquireRequest{first})
	grant(t, s, ask("written"))
	defer hog(t, open(t, path))()
	if r := grant(t, s, ask("read"))[0]; r.Granted || !r.Holder.Shared {
		t.Errorf("%+v", r)
	}
	if r := grant(t, s, []driver.AcquireRequest{reader("written")})[0]; r.Granted || r.Holder.Owner != "owner of written" {
		t.Errorf("%+v", r)
	}
	if r := grant(t, s, []driver.AcquireRequest{first})[0]; !r.Found {
		t.Errorf("%+v", r)
	}
	if _, err := s.Acquire(t.Context(), []driver.AcquireRequest{reader("read")}); classify(err) != driver.Again {
		t.Errorf("control: a reader that can have the name got by the lock, %v", err)
	}
}

func TestARevokeOfManyPermitsNeedsAsManyStatementsAsOneOfTwo(t *testing.T) {
	path := migrated(t)
	db := open(t, path)
	var texts []string
	s := openStore(t, spied(t, path, func(text string) error {
		texts = append(texts, verb(text))
		return nil
	}))
	revoke := func(permits int) []string {
		exec(t, db, "INSERT INTO sqllock_lock (name, version, permits, holding) VALUES ('k', ?1, ?1, ?1)", permits)
		exec(t, db, `
			WITH RECURSIVE n(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i + 1 < ?)
			INSERT INTO sqllock_claim (name, acq, state, kind, slot, seq, token, holds, ttl, handed, max_hold,
			                           since, expires_at, limit_at, delay, locker, owner, label)
			SELECT 'k', randomblob(16), 1, 2, i, i + 1, i + 1, 1, 9, 9, 0, 1, `+soon+`, 0, 0, randomblob(16), '', '' FROM n`, permits)
		texts = nil
		if res, err := s.Revoke(t.Context(), revocations("k")); err != nil || !res[0].Revoked {
			t.Errorf("Revoke of %d = %+v, %v", permits, res, err)
		}
		run := texts
		if left := tables(t, db); left != "0 0" {
			t.Errorf("of %d permits are left: %s", permits, left)
		}
		exec(t, db, "DELETE FROM sqllock_lock")
		return run
	}
	if two, many := revoke(2), revoke(2000); !slices.Equal(two, many) || len(two) == 0 {
		t.Errorf("%v for 2,000 permits, %v for two", many, two)
	}
}

// tables tells how many claims there are, and how many the row counts.
func tables(tb testing.TB, db *sql.DB) (counts string) {
	tb.Helper()
	const q = "SELECT (SELECT count(*) FROM sqllock_claim) || ' ' || holding FROM sqllock_lock"
	if err := db.QueryRowContext(tb.Context(), q).Scan(&counts); err != nil {
		tb.Fatal(err)
	}
	return counts
}
