package k8slock_test

import (
	"context"
	"crypto/rand"
	"database/sql"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/go-sql-driver/mysql"

	"github.com/sqllock/sqllock/internal/testdb"
	k8slock "github.com/sqllock/sqllock/k8s"
)

// grantsOf returns the statements of the operations guide, with the names of this test.
func grantsOf(t *testing.T, d *testdb.Database, what, role string) (grants []string) {
	t.Helper()
	text, err := os.ReadFile("../docs/operations.md")
	if err != nil {
		t.Fatal(err)
	}
	dialect := "mysql"
	if d.Engine() == testdb.Postgres {
		dialect = testdb.Postgres
	}
	_, block, found := strings.Cut(string(text), "```sql "+dialect+" grants "+what+"\n")
	if !found {
		t.Fatalf("the guide has no grants for %s on %s", what, dialect)
	}
	block, _, _ = strings.Cut(block, ";\n```")
	database := regexp.MustCompile(`/([a-z0-9_]+)(?:\?|$)`).FindStringSubmatch(d.DSN())[1]
	block = regexp.MustCompile(`\bapp\b`).ReplaceAllLiteralString(block, database)
	block = regexp.MustCompile(`\blocker\b`).ReplaceAllLiteralString(block, role)
	return strings.Split(block, ";\n")
}

// as makes a role and returns a handle of it.
func as(t *testing.T, d *testdb.Database, db *sql.DB, role string) *sql.DB {
	t.Helper()
	clean := func(statements ...string) {
		t.Cleanup(func() {
			for _, s := range statements {
				if _, err := db.ExecContext(context.Background(), s); err != nil {
					t.Errorf("%s: %v", s, err)
				}
			}
		})
	}
	if d.Engine() == testdb.Postgres {
		mustExec(t, db, `CREATE ROLE `+role)
		clean(`DROP OWNED BY `+role, `DROP ROLE `+role)
		return d.Open(t, "role="+role)
	}
	mustExec(t, db, `CREATE USER `+role+` IDENTIFIED BY 'Pass-word-7'`)
	clean(`DROP USER ` + role)
	cfg, err := mysql.ParseDSN(d.DSN())
	if err != nil {
		t.Fatal(err)
	}
	cfg.User, cfg.Passwd = role, "Pass-word-7"
	other, err := sql.Open("mysql", cfg.FormatDSN())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = other.Close() })
	return other
}

// electOnce does all that a Lock does.
func electOnce(t *testing.T, d *testdb.Database, db *sql.DB, identity string) error {
	t.Helper()
	l, err := k8slock.New(t.Context(), target(d.Engine(), db), "controller of "+identity, identity, nil)
	if err != nil {
		return err
	}
	if err := l.Create(t.Context(), record(identity)); err != nil {
		return err
	}
	if _, _, err := l.Get(t.Context()); err != nil {
		return err
	}
	if err := l.Update(t.Context(), record("")); err != nil {
		return err
	}
	if err := l.Update(t.Context(), record(identity)); err != nil {
		return err
	}
	tx, err := db.BeginTx(t.Context(), nil)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }()
	return l.Guard(t.Context(), tx, l.Token())
}

func TestARoleNeedsWhatTheGuideSays(t *testing.T) {
	onEach(t, testdb.Engines(), func(t *testing.T, d *testdb.Database, db *sql.DB) {
		for _, lacks := range []string{"", "SELECT", "INSERT", "UPDATE"} {
			role := "sqllock_test_" + strings.ToLower(rand.Text()[:12])
			other := as(t, d, db, role)
			for _, g := range slices.Concat(grantsOf(t, d, "everything", role), grantsOf(t, d, "records", role)) {
				if strings.Contains(g, "sqllock_record") && lacks != "" {
					g = strings.Replace(strings.Replace(g, lacks+", ", "", 1), ", "+lacks, "", 1)
				}
				mustExec(t, db, g)
			}
			err := electOnce(t, d, other, role)
			if lacks == "" && err != nil {
				t.Errorf("with all grants: %v", err)
			}
			if lacks != "" && (err == nil || !strings.Contains(err.Error(), "denied")) {
				t.Errorf("without %s: %v", lacks, err)
			}
		}
	})
}
