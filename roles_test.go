package sqllock_test

import (
	"context"
	"crypto/rand"
	"database/sql"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sqllock/sqllock"
	"github.com/sqllock/sqllock/internal/testdb"
)

// onEachServer is onEach for databases that have roles.
func onEachServer(t *testing.T, test func(t *testing.T, e *engine, d *testdb.Database)) {
	onEngines(t, func(name string) bool { return name != testdb.SQLite }, test)
}

// grantsOf returns the statements of the operations guide that give a role what
// is said in words.
func grantsOf(t *testing.T, e *engine, what ...string) (grants []string) {
	t.Helper()
	for _, b := range docBlocks(t, operations, "sql") {
		if slices.Equal(b.words, append([]string{e.dialect(), "grants"}, what...)) {
			for s := range strings.SplitSeq(b.text, ";\n") {
				if s != "" {
					grants = append(grants, s)
				}
			}
		}
	}
	if len(grants) == 0 {
		t.Fatalf("%s does not say what to grant to a role of %s for %q", operations, e.dialect(), what)
	}
	return grants
}

// roles of a test.
type roles struct {
	e     *engine
	d     *testdb.Database
	admin *sql.DB
}

// newRoles takes from everybody what the server may give to everybody.
func newRoles(t *testing.T, e *engine, d *testdb.Database) *roles {
	t.Helper()
	r := &roles{e, d, d.Open(t)}
	if e.name == testdb.Postgres {
		mustExec(t, r.admin, r.named(`REVOKE ALL ON DATABASE app FROM PUBLIC`, ""))
		mustExec(t, r.admin, `REVOKE ALL ON SCHEMA public FROM PUBLIC`)
	}
	return r
}

var databaseOf = regexp.MustCompile(`/([a-z0-9_]+)(?:\?|$)`)

// named is a statement of the guide with the names of this test.
func (r *roles) named(statement, role string) string {
	database := databaseOf.FindStringSubmatch(r.d.DSN())[1]
	statement = regexp.MustCompile(`\bapp\b`).ReplaceAllLiteralString(statement, database)
	return regexp.MustCompile(`\blocker\b`).ReplaceAllLiteralString(statement, role)
}

// with makes a role that has been granted this and nothing else, and returns its
// handle.
func (r *roles) with(t *testing.T, grants ...string) *sql.DB {
	t.Helper()
	role := "sqllock_test_" + strings.ToLower(rand.Text()[:12])
	const password = "Pass-word-7"
	if r.e.name == testdb.Postgres {
		mustExec(t, r.admin, `CREATE ROLE `+role+` LOGIN PASSWORD '`+password+`'`)
		t.Cleanup(func() {
			r.clean(t, `DROP OWNED BY `+role)
			r.clean(t, `DROP ROLE `+role)
		})
	} else {
		mustExec(t, r.admin, `CREATE USER `+role+` IDENTIFIED BY '`+password+`'`)
		t.Cleanup(func() { r.clean(t, `DROP USER `+role) })
	}
	for _, g := range grants {
		mustExec(t, r.admin, r.named(g, role))
	}
	db, err := sql.Open(r.e.harness.Driver, r.dsn(t, role, password))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	return db
}

func (r *roles) dsn(t *testing.T, role, password string) string {
	t.Helper()
	if r.e.name != testdb.Postgres {
		cfg := parsed(r.d.DSN())
		cfg.User, cfg.Passwd = role, password
		return cfg.FormatDSN()
	}
	u, err := url.Parse(r.d.DSN())
	if err != nil {
		t.Fatal(err)
	}
	u.User = url.UserPassword(role, password)
	return u.String()
}

// clean runs a statement when the test has ended.
func (r *roles) clean(t *testing.T, statement string) {
	if _, err := r.admin.ExecContext(context.Background(), statement); err != nil {
		t.Errorf("%s: %v", statement, err)
	}
}

// closeSoon closes a Locker that may hold what its role may not give back.
func closeSoon(l *sqllock.Locker) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	_ = l.Close(ctx)
}

func denied(err error) bool { return err != nil && strings.Contains(err.Error(), "denied") }

var granted = regexp.MustCompile(`^GRANT ([A-Z, ]+) ON ((?:[A-Z]+ )?)(.*) TO (\w+)$`)

// without returns the grants less one privilege on one object, for each of them.
func without(t *testing.T, grants []string) map[string][]string {
	t.Helper()
	fewer := make(map[string][]string)
	for i, g := range grants {
		m := granted.FindStringSubmatch(g)
		if m == nil {
			t.Fatalf("this is no GRANT: %q", g)
		}
		privileges, kind, objects := strings.Split(m[1], ", "), m[2], strings.Split(m[3], ", ")
		grant := func(privileges, objects []string) []string {
			if len(privileges) == 0 || len(objects) == 0 {
				return nil
			}
			return []string{"GRANT " + strings.Join(privileges, ", ") + " ON " + kind + strings.Join(objects, ", ") + " TO " + m[4]}
		}
		others := slices.Delete(slices.Clone(grants), i, i+1)
		for k, privilege := range privileges {
			for n, object := range objects {
				fewer[privilege+" ON "+kind+object] = slices.Concat(others,
					grant(privileges, slices.Delete(slices.Clone(objects), n, n+1)),
					grant(slices.Delete(slices.Clone(privileges), k, k+1), []string{object}))
			}
		}
	}
	return fewer
}
