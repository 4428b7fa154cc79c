package queuetest

import (
	"fmt"
	"strings"
	"testing"

	"github.com/sqllock/sqllock/driver"
	"github.com/sqllock/sqllock/internal/testdb"
)

// exec runs a statement in which names in braces stand for what they are.
func (s *suite) exec(t *testing.T, text string) {
	t.Helper()
	if _, err := s.DB.ExecContext(t.Context(), s.text(text)); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
}

func (s *suite) text(text string) string {
	return strings.NewReplacer("{lock}", "sqllock_lock", "{claim}", "sqllock_claim", "{waiter}", "sqllock_waiter", "{now}", s.Clock).Replace(text)
}

// number is what a query answers.
func (s *suite) number(t *testing.T, text string) (n int64) {
	t.Helper()
	if err := s.DB.QueryRowContext(t.Context(), s.text(text)).Scan(&n); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return n
}

// claims counts the claims that wait for a name, whether their Lockers live or not.
func (s *suite) claims(t *testing.T, name string) int {
	t.Helper()
	return int(s.number(t, `SELECT count(*) FROM {claim} WHERE state = 0 AND name = '`+name+`'`))
}

// die makes the Lockers of claims that wait die: they had no beat for a moment. All of their
// claims die. Their stores do not know, so they must be used by no other test.
func (s *suite) die(t *testing.T, reqs ...driver.AcquireRequest) {
	t.Helper()
	s.beats(t, `{now} - 1000`, reqs...)
}

// revive makes the Lockers of claims that wait have a beat.
func (s *suite) revive(t *testing.T, reqs ...driver.AcquireRequest) {
	t.Helper()
	s.beats(t, `{now} + 60000000`, reqs...)
}

// forget makes the Lockers of claims that wait have had no beat for long.
func (s *suite) forget(t *testing.T, reqs ...driver.AcquireRequest) {
	t.Helper()
	s.beats(t, `{now} - 61000000`, reqs...)
}

// beats says until when the Lockers of claims that wait live.
func (s *suite) beats(t *testing.T, until string, reqs ...driver.AcquireRequest) {
	t.Helper()
	for _, r := range reqs {
		s.exec(t, `UPDATE {waiter} SET expires_at = `+until+` WHERE locker IN (SELECT locker FROM {claim} WHERE owner = '`+r.Owner+`')`)
	}
}

// expire makes a lease expire.
func (s *suite) expire(t *testing.T, h held) {
	t.Helper()
	table := "{lock}"
	if h.Shared {
		table = "{claim}"
	}
	s.exec(t, `UPDATE `+table+` SET expires_at = {now} - 1000 WHERE owner = '`+h.Owner+`'`)
}

// dump is all that the tables say of a name.
func (s *suite) dump(t *testing.T, name string) string {
	t.Helper()
	var b strings.Builder
	for _, table := range []string{"{lock}", "{claim}"} {
		b.WriteString(testdb.Dump(t, s.DB, s.text(`SELECT * FROM `+table+` WHERE name = '`+name+`' ORDER BY acq`)))
	}
	return b.String()
}

// leavesNoTrace checks that the tables say the same of a name after do as before.
func (s *suite) leavesNoTrace(t *testing.T, name string, do func()) {
	t.Helper()
	before := s.dump(t, name)
	do()
	if after := s.dump(t, name); after != before {
		t.Errorf("it was\n%sand is\n%s", before, after)
	}
}

// since is when the term of a began, which is not later than its answer.
func (s *suite) since(t *testing.T, a held) int64 {
	t.Helper()
	at := s.number(t, `SELECT since FROM {lock} WHERE name = '`+a.Name+`'`)
	if at > a.Now || a.Now-at > minute.Microseconds() {
		t.Errorf("a term began at %d and was granted at %d", at, a.Now)
	}
	return at
}

// count is who holds a name together with others.
type count struct {
	holding int   // as the row says
	live    int   // claims that have not expired
	last    int64 // when the last of them expires
	rows    int   // also of those that have expired
}

func (s *suite) count(t *testing.T, name string) (c count) {
	t.Helper()
	err := s.DB.QueryRowContext(t.Context(), s.text(`
		SELECT l.holding,
		       (SELECT count(*) FROM {claim} c WHERE c.name = l.name AND c.state = 1 AND c.expires_at > {now}),
		       (SELECT coalesce(max(c.expires_at), 0) FROM {claim} c WHERE c.name = l.name AND c.state = 1 AND c.expires_at > {now}),
		       (SELECT count(*) FROM {claim} c WHERE c.name = l.name AND c.state = 1)
		FROM {lock} l WHERE l.name = '`+name+`'`)).Scan(&c.holding, &c.live, &c.last, &c.rows)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// counts checks how many hold a name together, and that its row knows.
func (s *suite) counts(t *testing.T, name string, want int) {
	t.Helper()
	if c := s.count(t, name); c.holding != want || c.live != want || c.rows != want {
		t.Errorf("%s: %+v, want %d readers", name, c, want)
	}
}

// wrong are conditions that no row of the table of names may meet.
var wrong = map[string]string{
	"the row counts other claims that wait": `l.waiting <> (SELECT count(*) FROM {claim} c WHERE c.name = l.name AND c.state = 0)`,
	"the row counts other claims that hold": `l.holding <> (SELECT count(*) FROM {claim} c WHERE c.name = l.name AND c.state = 1)`,
	"a claim has a higher number":           `EXISTS (SELECT 1 FROM {claim} c WHERE c.name = l.name AND c.seq > l.seq)`,
	"somebody holds it alone beside others": `l.acq IS NOT NULL AND l.holding > 0`,
	"readers have a token of another term": `EXISTS (SELECT 1 FROM {claim} c WHERE c.name = l.name AND c.state = 1 AND c.kind = 1
		AND c.token <> l.version)`,
	"a token is higher than the version": `EXISTS (SELECT 1 FROM {claim} c WHERE c.name = l.name AND c.token > l.version)`,
	"it says in part that nobody holds it alone": `CASE WHEN l.acq IS NULL THEN l.owner IS NOT NULL OR l.label IS NOT NULL OR l.locker IS NOT NULL
		OR l.value IS NOT NULL OR l.holds <> 0 OR l.limit_at <> 0 ELSE l.owner IS NULL AND l.locker IS NOT NULL OR l.label IS NULL OR l.holds < 1 END`,
	"a term exceeds its limit": `l.limit_at <> 0 AND l.expires_at > l.limit_at`,
}

// consistent checks what must be true at all times of names that begin with prefix.
func (s *suite) consistent(t *testing.T, prefix string) {
	t.Helper()
	begins := fmt.Sprintf(`name, 1, %d) = '%s' AND `, len(prefix), prefix)
	for what, condition := range wrong {
		if names := testdb.Dump(t, s.DB, s.text(`SELECT l.name FROM {lock} l WHERE substr(l.`+begins+condition)); names != "" {
			t.Errorf("%s: %s", what, names)
		}
	}
	const orphan = `NOT EXISTS (SELECT 1 FROM {lock} l WHERE l.name = c.name)`
	if names := testdb.Dump(t, s.DB, s.text(`SELECT c.name FROM {claim} c WHERE substr(c.`+begins+orphan)); names != "" {
		t.Errorf("claims of names that have no row: %s", names)
	}
}
