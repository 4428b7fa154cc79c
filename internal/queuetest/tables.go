package queuetest

import (
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
	return strings.NewReplacer("{lock}", "sqllock_lock", "{holder}", "sqllock_holder", "{ticket}", "sqllock_ticket", "{now}", s.Clock).Replace(text)
}

// claims counts the claims of a name, expired or not.
func (s *suite) claims(t *testing.T, name string) (n int) {
	t.Helper()
	if err := s.DB.QueryRowContext(t.Context(), s.text(`SELECT count(*) FROM {ticket} WHERE name = '`+name+`'`)).Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

// die makes claims expire, as if they had no beat for long.
func (s *suite) die(t *testing.T, reqs ...driver.TicketRequest) {
	t.Helper()
	for _, r := range reqs {
		s.exec(t, `UPDATE {ticket} SET expires_at = {now} - 1000 WHERE owner = '`+r.Owner+`'`)
	}
}

// dieAll is die of all claims of a name.
func (s *suite) dieAll(t *testing.T, name string) {
	t.Helper()
	s.exec(t, `UPDATE {ticket} SET expires_at = {now} - 1000 WHERE name = '`+name+`'`)
	s.exec(t, `UPDATE {lock} SET wait_until = {now} - 1000 WHERE name = '`+name+`'`)
}

// expire makes a lease expire. The row of the name may not know of it.
func (s *suite) expire(t *testing.T, h held) {
	t.Helper()
	table := "{lock}"
	if h.Shared {
		table = "{holder}"
	}
	s.exec(t, `UPDATE `+table+` SET expires_at = {now} - 1000 WHERE owner = '`+h.Owner+`'`)
}

// dump is all that the tables say of a name.
func (s *suite) dump(t *testing.T, name string) string {
	t.Helper()
	var b strings.Builder
	for _, table := range []string{"{lock}", "{holder}", "{ticket}"} {
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
func (s *suite) since(t *testing.T, a held) (at int64) {
	t.Helper()
	err := s.DB.QueryRowContext(t.Context(), s.text(`SELECT acquired_at FROM {lock} WHERE name = '`+a.Name+`'`)).Scan(&at)
	if err != nil || at > a.Now || a.Now-at > minute.Microseconds() {
		t.Errorf("a term began at %d, %v, and was granted at %d", at, err, a.Now)
	}
	return at
}

// expireTerm ends all leases that the row of a name knows of.
func (s *suite) expireTerm(t *testing.T, name string) {
	t.Helper()
	s.exec(t, `UPDATE {lock} SET others_until = {now} - 1000 WHERE name = '`+name+`'`)
}

// count is what the row of a name says of its readers, and what is true.
type count struct {
	others, live int
	until, last  int64
	rows         int // also of leases that have expired
}

func (s *suite) count(t *testing.T, name string) (c count) {
	t.Helper()
	err := s.DB.QueryRowContext(t.Context(), s.text(`
		SELECT l.others, l.others_until,
		       (SELECT count(*) FROM {holder} h WHERE h.name = l.name AND h.version = l.version AND h.expires_at > {now}),
		       (SELECT coalesce(max(h.expires_at), 0) FROM {holder} h WHERE h.name = l.name AND h.version = l.version AND h.expires_at > {now}),
		       (SELECT count(*) FROM {holder} h WHERE h.name = l.name)
		FROM {lock} l WHERE l.name = '`+name+`'`)).Scan(&c.others, &c.until, &c.live, &c.last, &c.rows)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// counts checks how many hold a name together, and that its row knows.
func (s *suite) counts(t *testing.T, name string, want int) {
	t.Helper()
	if c := s.count(t, name); c.others != want || c.live != want || c.until < c.last {
		t.Errorf("%s: %+v, want %d readers", name, c, want)
	}
}
