package locksqlite_test

import (
	"context"
	"crypto/rand"
	"database/sql"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	_ "modernc.org/sqlite"

	"github.com/sqllock/sqllock/driver"
	"github.com/sqllock/sqllock/locksqlite"
	"github.com/sqllock/sqllock/migrations"
)

func TestMain(m *testing.M) {
	if path := os.Getenv(envContender); path != "" {
		contend(path)
		return
	}
	os.Exit(m.Run())
}

// open opens a handle of its own, with what the DSN says beside the journal mode.
func open(tb testing.TB, path string, params ...string) *sql.DB {
	tb.Helper()
	db, err := sql.Open("sqlite", "file:"+path+"?"+strings.Join(append(params, "_pragma=journal_mode(wal)"), "&"))
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = db.Close() })
	return db
}

// migrated returns the path of a database with tables.
func migrated(tb testing.TB, opts ...locksqlite.Option) string {
	tb.Helper()
	path := filepath.Join(tb.TempDir(), "locks.db")
	db := open(tb, path)
	if err := migrations.Up(tb.Context(), locksqlite.DB(db, opts...)); err != nil {
		tb.Fatal(err)
	}
	return path
}

func openStore(tb testing.TB, db *sql.DB, opts ...locksqlite.Option) driver.Store {
	tb.Helper()
	return openClient(tb, db, driver.Client{Instance: id(), Label: "test"}, opts...)
}

func openClient(tb testing.TB, db *sql.DB, client driver.Client, opts ...locksqlite.Option) driver.Store {
	tb.Helper()
	s, err := locksqlite.DB(db, opts...).OpenUnique(tb.Context(), client)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = s.Close() })
	return s
}

func id() (id driver.ID) {
	_, _ = rand.Read(id[:])
	return id
}

func ask(names ...string) []driver.AcquireRequest {
	slices.Sort(names)
	reqs := make([]driver.AcquireRequest, len(names))
	for i, name := range names {
		reqs[i] = driver.AcquireRequest{Name: name, Acq: id(), Owner: "owner of " + name, TTL: time.Minute}
	}
	return reqs
}

func grant(tb testing.TB, s driver.Store, reqs []driver.AcquireRequest) []driver.AcquireResult {
	tb.Helper()
	results, err := s.Acquire(tb.Context(), reqs)
	if err != nil {
		tb.Fatal(err)
	}
	if len(results) != len(reqs) {
		tb.Fatalf("%d results for %d requests", len(results), len(reqs))
	}
	return results
}

func freedOf(res []driver.ReleaseResult) []bool {
	freed := make([]bool, len(res))
	for i, r := range res {
		freed[i] = r.Freed
	}
	return freed
}

func exec(tb testing.TB, db interface {
	ExecContext(context.Context, string, ...any) (sql.Result, error)
}, query string, args ...any) {
	tb.Helper()
	if _, err := db.ExecContext(tb.Context(), query, args...); err != nil {
		tb.Fatal(err)
	}
}

func TestNamesAreComparedByteForByte(t *testing.T) {
	s := openStore(t, open(t, migrated(t)))
	names := []string{
		"k", "K", "k ", " k", "k\t", "\u00e9", "e\u0301", "É", "ß", "ss", "\u2028", "<&>", `"`, `'`, `\`, `\u006b`, "k\n", "🔒",
		"0", "00", "1", "1.0", "1e0", "null", "true", "[]", "{}", "\x01", "\x7f", "%", "_", strings.Repeat("x", 255), strings.Repeat("é", 127),
	}
	for i, r := range grant(t, s, ask(names...)) {
		if !r.Granted {
			t.Errorf("%q was taken for another name", ask(names...)[i].Name)
		}
	}
	again := ask(names...)
	for i, r := range grant(t, s, again) {
		if r.Granted || r.Holder.Owner != "owner of "+again[i].Name {
			t.Errorf("%q: granted twice, or the holder is wrong: %+v", again[i].Name, r)
		}
	}
}

func TestALargeBatchKeepsOrderAndMixesOutcomes(t *testing.T) {
	s := openStore(t, open(t, migrated(t)))
	var names, held, known []string
	for i := range 500 {
		name := fmt.Sprintf("name-%03d", i)
		names = append(names, name)
		switch i % 3 {
		case 0:
			held = append(held, name)
		case 1:
			known = append(known, name)
		}
	}
	grant(t, s, ask(held...))
	before := ask(known...)
	tokens := map[string]int64{}
	release := make([]driver.ReleaseRequest, len(known))
	for i, r := range grant(t, s, before) {
		tokens[before[i].Name] = r.Version
		release[i] = driver.ReleaseRequest{Name: before[i].Name, Acq: before[i].Acq, Version: r.Version}
	}
	if freed, err := s.Release(t.Context(), release); err != nil || slices.Contains(freedOf(freed), false) {
		t.Fatal(freed, err)
	}

	reqs := ask(names...)
	for i, r := range grant(t, s, reqs) {
		name := reqs[i].Name
		if want := i%3 != 0; r.Granted != want {
			t.Fatalf("%s: granted %v", name, r.Granted)
		}
		if r.Granted && (r.Version <= tokens[name] || r.Remaining != time.Minute) || !r.Granted && r.Holder.Owner != "owner of "+name {
			t.Fatalf("%s: %+v, token before %d", name, r, tokens[name])
		}
		if d := time.Since(time.UnixMicro(r.Now)); d < 0 || d > 10*time.Second {
			t.Fatalf("the database's clock is off by %v", d)
		}
	}
}

func TestARepeatedRequestIsGrantedOnce(t *testing.T) {
	s := openStore(t, open(t, migrated(t)))
	reqs := ask("k")
	first := grant(t, s, reqs)[0]
	time.Sleep(5 * time.Millisecond)
	second := grant(t, s, reqs)[0]
	if !second.Granted || second.Version != first.Version || second.Remaining >= first.Remaining || second.Remaining <= 0 {
		t.Errorf("first %+v, then %+v", first, second)
	}
}

func TestATokenRisesWithEachHolder(t *testing.T) {
	db := open(t, migrated(t))
	s := openStore(t, db)
	last := int64(0)
	for range 20 {
		reqs := ask("k")
		r := grant(t, s, reqs)[0]
		if !r.Granted || r.Version <= last || r.Version >= 1<<53 {
			t.Fatalf("%+v after token %d", r, last)
		}
		last = r.Version
		if _, err := s.Release(t.Context(), []driver.ReleaseRequest{{Name: "k", Acq: reqs[0].Acq, Version: last}}); err != nil {
			t.Fatal(err)
		}
	}
	// A clock that went back must not lower it.
	exec(t, db, `UPDATE sqllock_lock SET version = version + 3600000000`)
	if r := grant(t, s, ask("k"))[0]; r.Version != last+3_600_000_001 {
		t.Errorf("token %d after %d", r.Version, last+3_600_000_000)
	}
}

func TestRenewExtendsWhatIsHeldAndNothingElse(t *testing.T) {
	db := open(t, migrated(t))
	s := openStore(t, db)
	reqs := ask("expired", "held", "long", "other acq", "other version")
	renew := make([]driver.RenewRequest, len(reqs))
	for i, r := range grant(t, s, reqs) {
		renew[i] = driver.RenewRequest{Name: reqs[i].Name, Acq: reqs[i].Acq, Version: r.Version, TTL: 2 * time.Minute, Holds: 3}
	}
	exec(t, db, `UPDATE sqllock_lock SET expires_at = 1 WHERE name = 'expired'`)
	renew[2].TTL = time.Second
	renew[3].Acq = id()
	renew[4].Version++
	res, err := s.Renew(t.Context(), renew, false)
	if err != nil {
		t.Fatal(err)
	}
	want := []driver.RenewStatus{driver.Gone, driver.Renewed, driver.Renewed, driver.Gone, driver.Gone}
	if !slices.Equal(res.Status, want) || res.Now == 0 {
		t.Errorf("%v at %d, want %v", res.Status, res.Now, want)
	}
	for name, atLeast := range map[string]time.Duration{"held": 110 * time.Second, "long": 50 * time.Second} {
		var until int64
		var holds int
		if err := db.QueryRow(`SELECT expires_at, holds FROM sqllock_lock WHERE name = ?`, name).Scan(&until, &holds); err != nil {
			t.Fatal(err)
		}
		if d := time.Until(time.UnixMicro(until)); d < atLeast || holds != 3 {
			t.Errorf("%s: ends in %v, held %d times", name, d, holds)
		}
	}

	res, err = s.Renew(t.Context(), renew[:1], true)
	if err != nil || res.Status[0] != driver.Gone || res.Now == 0 {
		t.Errorf("nothing to renew: %+v, %v", res, err)
	}
}

func TestReleaseAndAbandonFreeTheirOwnAndKeepTheRow(t *testing.T) {
	db := open(t, migrated(t))
	s := openStore(t, db)
	reqs := ask("abandoned", "abandoned by another", "released", "released by another", "wrong version")
	var release []driver.ReleaseRequest
	for i, r := range grant(t, s, reqs) {
		release = append(release, driver.ReleaseRequest{Name: reqs[i].Name, Acq: reqs[i].Acq, Version: r.Version})
	}
	release = release[2:]
	release[1].Acq = id()
	release[2].Version--
	freed, err := s.Release(t.Context(), release)
	if err != nil || !slices.Equal(freedOf(freed), []bool{true, false, false}) {
		t.Error(freed, err)
	}
	_, err = s.Release(t.Context(), []driver.ReleaseRequest{
		{Name: "abandoned", Acq: reqs[0].Acq}, {Name: "abandoned by another", Acq: id()}, {Name: "never seen", Acq: id()},
	})
	if err != nil {
		t.Error(err)
	}
	var free string
	err = db.QueryRow(`SELECT group_concat(name) FROM sqllock_lock
		WHERE acq IS NULL AND owner IS NULL AND locker IS NULL AND label IS NULL AND holds = 0`).Scan(&free)
	if err != nil || free != "abandoned,released" {
		t.Errorf("free are %q, %v", free, err)
	}
	var rows int
	if err := db.QueryRow(`SELECT count(*) FROM sqllock_lock`).Scan(&rows); err != nil || rows != len(reqs) {
		t.Errorf("%d rows, %v", rows, err)
	}
}

func TestAnEmptyBatchIsNothing(t *testing.T) {
	s := openStore(t, open(t, migrated(t)))
	if r, err := s.Acquire(t.Context(), nil); len(r) != 0 || err != nil {
		t.Error(r, err)
	}
	if r, err := s.Renew(t.Context(), nil, true); len(r.Status) != 0 || err != nil {
		t.Error(r, err)
	}
	if r, err := s.Release(t.Context(), nil); len(r) != 0 || err != nil {
		t.Error(r, err)
	}
	if _, err := s.Release(t.Context(), nil); err != nil {
		t.Error(err)
	}
	if r, err := s.Read(t.Context(), driver.ReadRequest{}); len(r.Rows) != 0 || err != nil {
		t.Error(r, err)
	}
	if r, err := s.Revoke(t.Context(), nil); len(r) != 0 || err != nil {
		t.Error(r, err)
	}
}
