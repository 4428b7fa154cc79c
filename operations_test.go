package sqllock_test

import (
	"database/sql"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sqllock/sqllock"
	"github.com/sqllock/sqllock/internal/testdb"
)

// dialect is what the blocks of the operations guide call a database.
func (e *engine) dialect() string {
	if e.name == testdb.MariaDB {
		return testdb.MySQL
	}
	return e.name
}

// firstColumn returns the first column of what a query finds.
func firstColumn(t *testing.T, db *sql.DB, query string) (values []string) {
	t.Helper()
	rows, err := db.QueryContext(t.Context(), query)
	if err != nil {
		t.Fatalf("%s: %v", query, err)
	}
	defer func() { _ = rows.Close() }()
	names, err := rows.Columns()
	if err != nil {
		t.Fatal(err)
	}
	for rows.Next() {
		var first sql.NullString
		into := []any{&first}
		for range names[1:] {
			into = append(into, new(any))
		}
		if err := rows.Scan(into...); err != nil {
			t.Fatal(err)
		}
		values = append(values, first.String)
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	return values
}

// shown is the first column of what a monitoring query finds, by the beginning of its
// comment, in the situation of TestTheMonitoringQueriesShowWhatTheySay. Any other query
// must find a row.
var shown = map[string][]string{
	"-- Who holds what":               {"old", "young"},
	"-- Whose lease has expired":      {"crashed"},
	"-- Names that nobody holds":      {"kept"},
	"-- How many names there are":     {"5"},
	"-- Held for longer than an hour": {"old"},
	"-- Who waits":                    {"young"},
}

func TestTheMonitoringQueriesShowWhatTheySay(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, e *engine, d *testdb.Database) {
		db := d.Open(t)
		l := newLocks(t, e.open(db), sqllock.UniqueOptions{Reaper: &sqllock.ReaperOptions{Off: true, Retention: time.Hour}})
		crashing := newLocks(t, e.open(db), sqllock.UniqueOptions{})
		mustTry(t, l, "old")
		mustExec(t, db, fmt.Sprintf(`UPDATE sqllock_lock SET since = since - %d WHERE name = 'old'`, (2*time.Hour).Microseconds()))
		mustTry(t, l, "young")
		mustTry(t, crashing, "crashed")
		_ = closeAtOnce(crashing)
		mustExec(t, db, `UPDATE sqllock_lock SET expires_at = since + 1 WHERE name = 'crashed'`)
		for name, opts := range map[string][]sqllock.LockOption{"free": nil, "kept": {sqllock.MinHold(time.Hour)}} {
			if err := mustTry(t, l, name, opts...).Unlock(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		keepWaiting(t, e, db, "young")
		ran := 0
		for _, b := range docBlocks(t, operations, "sql") {
			if !slices.Contains(b.words, e.dialect()) || slices.Contains(b.words, "grants") {
				continue
			}
			ran++
			got := firstColumn(t, db, b.text)
			switch want := shownBy(b.text); {
			case want == nil && len(got) == 0:
				t.Errorf("this query finds nothing:\n%s", b.text)
			case want != nil && !slices.Equal(got, want):
				t.Errorf("this query finds %q, want %q:\n%s", got, want, b.text)
			}
		}
		if ran < 7 {
			t.Errorf("%d queries were run", ran)
		}
	})
}

// keepWaiting has somebody wait for a name until the test has ended.
func keepWaiting(t *testing.T, e *engine, db *sql.DB, name string) {
	t.Helper()
	l := newLocks(t, e.open(db), sqllock.UniqueOptions{})
	left := make(chan struct{})
	t.Cleanup(func() { <-left })
	go func() {
		defer close(left)
		if _, err := l.Lock(t.Context(), name); t.Context().Err() == nil {
			t.Errorf("Lock does not wait: %v", err)
		}
	}()
	for end := time.Now().Add(20 * time.Second); len(firstColumn(t, db, `SELECT name FROM sqllock_claim WHERE state = 0`)) == 0; time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("nobody waits")
		}
	}
}

func shownBy(query string) []string {
	for comment, want := range shown {
		if strings.HasPrefix(query, comment) {
			return want
		}
	}
	return nil
}
