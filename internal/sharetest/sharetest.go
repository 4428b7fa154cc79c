// Package sharetest is what every database has to show of names of the unique mode
// that are held together.
package sharetest

import (
	"crypto/rand"
	"database/sql"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sqllock/sqllock/driver"
	"github.com/sqllock/sqllock/internal/testdb"
)

// Fixture is an empty database with tables.
type Fixture struct {
	DB    *sql.DB
	Open  func(tb testing.TB) driver.LeaseStore // a client of its own
	Clock string                                // the SQL of the clock, in microseconds
	// Rows says that rows are locked, and not the whole database.
	Rows bool
}

// Run shows all of it.
func Run(t *testing.T, f Fixture) {
	s := &suite{Fixture: f, store: f.Open(t)}
	parts := []map[string]func(*testing.T, *suite, string){terms, cleaning, holding, looking, storms}
	if f.Rows {
		parts = append(parts, guards)
	}
	for _, part := range parts {
		for name, test := range part {
			t.Run(name, func(t *testing.T) { test(t, s, strings.ReplaceAll(name, " ", "-")) })
		}
	}
}

// suite runs its tests one after the other, each over names of its own.
type suite struct {
	Fixture
	store driver.LeaseStore
}

const minute = time.Minute

func newID() (id driver.ID) {
	_, _ = rand.Read(id[:])
	return id
}

func reader(name string) driver.GrantRequest {
	r := writer(name)
	r.Shared = true
	return r
}

func writer(name string) driver.GrantRequest {
	id := newID()
	return driver.GrantRequest{Name: name, Acq: id, Owner: "owner " + id.String(), TTL: minute}
}

func (s *suite) grant(t *testing.T, reqs ...driver.GrantRequest) []driver.GrantResult {
	t.Helper()
	res, err := s.store.Grant(t.Context(), reqs)
	if err != nil || len(res) != len(reqs) {
		t.Fatalf("Grant = %v, %v", res, err)
	}
	return res
}

// held is a lease.
type held struct {
	driver.GrantRequest
	driver.GrantResult
}

// take is grant of one name that must succeed.
func (s *suite) take(t *testing.T, req driver.GrantRequest) held {
	t.Helper()
	r := s.grant(t, req)[0]
	if !r.Granted || r.Version <= 0 || r.Remaining <= 0 || r.Remaining > req.TTL || r.Now <= 0 {
		t.Fatalf("%s: %+v", req.Name, r)
	}
	return held{req, r}
}

// lose is grant of one name that must not succeed.
func (s *suite) lose(t *testing.T, req driver.GrantRequest) driver.GrantResult {
	t.Helper()
	r := s.grant(t, req)[0]
	if r.Granted || r.Now <= 0 {
		t.Fatalf("%s: %+v", req.Name, r)
	}
	return r
}

func (h held) release() driver.ReleaseRequest {
	return driver.ReleaseRequest{Name: h.Name, Acq: h.Acq, Version: h.Version, Shared: h.Shared}
}

func (h held) renew(ttl time.Duration) driver.RenewRequest {
	return driver.RenewRequest{Name: h.Name, Acq: h.Acq, Version: h.Version, TTL: ttl, Holds: 2, Shared: h.Shared}
}

func (s *suite) release(t *testing.T, want bool, reqs ...driver.ReleaseRequest) {
	t.Helper()
	freed, err := s.store.Release(t.Context(), reqs)
	wrong := func(r driver.ReleaseResult) bool { return r.Freed != want }
	if err != nil || len(freed) != len(reqs) || slices.ContainsFunc(freed, wrong) {
		t.Errorf("Release = %v, %v; want %v", freed, err, want)
	}
}

func (s *suite) renew(t *testing.T, want driver.RenewStatus, reqs ...driver.RenewRequest) {
	t.Helper()
	for _, wait := range []bool{false, true} {
		res, err := s.store.Renew(t.Context(), reqs, wait)
		if err != nil || len(res.Status) != len(reqs) || res.Now == 0 {
			t.Fatalf("Renew = %+v, %v", res, err)
		}
		for i, status := range res.Status {
			if status != want {
				t.Errorf("renewal %d: %v, want %v", i, status, want)
			}
		}
	}
}

func (s *suite) abandon(t *testing.T, h held) {
	t.Helper()
	err := s.store.Abandon(t.Context(), []driver.AbandonRequest{{Name: h.Name, Acq: h.Acq, Shared: h.Shared}})
	if err != nil {
		t.Error(err)
	}
}

func (s *suite) look(t *testing.T, name string) driver.Row {
	t.Helper()
	rows, err := s.store.Look(t.Context(), []string{name})
	if err != nil || len(rows) != 1 {
		t.Fatal(rows, err)
	}
	return rows[0]
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

// sweep returns who of a name has crashed.
func (s *suite) sweep(t *testing.T, name string) (crashed []driver.Holder) {
	t.Helper()
	res, err := s.store.Sweep(t.Context(), driver.SweepRequest{Limit: 10_000, Retention: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range res.Crashed {
		if c.Name == name {
			crashed = append(crashed, c.Holder)
		}
	}
	return crashed
}

// exec runs a statement in which {lock}, {holder} and {now} stand for what they are.
func (s *suite) exec(t *testing.T, text string) {
	t.Helper()
	if _, err := s.DB.ExecContext(t.Context(), s.text(text)); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
}

func (s *suite) text(text string) string {
	return strings.NewReplacer("{lock}", "sqllock_lock", "{holder}", "sqllock_holder", "{now}", s.Clock).Replace(text)
}

// expire lets a lease be over, of which the row of the name need not know.
func (s *suite) expire(t *testing.T, h held) {
	t.Helper()
	if h.Shared {
		s.exec(t, `UPDATE {holder} SET expires_at = {now} - 1000 WHERE owner = '`+h.Owner+`'`)
		return
	}
	s.exec(t, `UPDATE {lock} SET expires_at = {now} - 1000 WHERE owner = '`+h.Owner+`'`)
}

// expireTerm lets all be over that the row of a name knows of.
func (s *suite) expireTerm(t *testing.T, name string) {
	t.Helper()
	s.exec(t, `UPDATE {lock} SET others_until = {now} - 1000 WHERE name = '`+name+`'`)
}

// count is what the row of a name says of its readers, and what is true.
type count struct {
	others, live int
	until, last  int64
	rows         int // also of those who are over
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

// dump is all that the tables say of a name.
func (s *suite) dump(t *testing.T, name string) string {
	t.Helper()
	var b strings.Builder
	for _, table := range []string{"{lock}", "{holder}"} {
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
