package linetest

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

// tickets counts those of a name, dead or alive.
func (s *suite) tickets(t *testing.T, name string) (n int) {
	t.Helper()
	if err := s.DB.QueryRowContext(t.Context(), s.text(`SELECT count(*) FROM {ticket} WHERE name = '`+name+`'`)).Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

// die lets tickets be over, as if nobody had asked for them for long.
func (s *suite) die(t *testing.T, reqs ...driver.TicketRequest) {
	t.Helper()
	for _, r := range reqs {
		s.exec(t, `UPDATE {ticket} SET expires_at = {now} - 1000 WHERE owner = '`+r.Owner+`'`)
	}
}

// dieAll is die of all tickets of a name.
func (s *suite) dieAll(t *testing.T, name string) {
	t.Helper()
	s.exec(t, `UPDATE {ticket} SET expires_at = {now} - 1000 WHERE name = '`+name+`'`)
	s.exec(t, `UPDATE {lock} SET wait_until = {now} - 1000 WHERE name = '`+name+`'`)
}

// expire lets a lease be over, of which the row of the name need not know.
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

// readers are what the row of a name counts, and what is true.
func (s *suite) readers(t *testing.T, name string) (counted, live int) {
	t.Helper()
	err := s.DB.QueryRowContext(t.Context(), s.text(`
		SELECT l.others, (SELECT count(*) FROM {holder} h WHERE h.name = l.name AND h.version = l.version AND h.expires_at > {now})
		FROM {lock} l WHERE l.name = '`+name+`'`)).Scan(&counted, &live)
	if err != nil {
		t.Fatal(err)
	}
	return counted, live
}
