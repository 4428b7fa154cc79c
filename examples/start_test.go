package examples_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/sqllock/sqllock/internal/testdb"
)

// startPrograms are the programs of start by the databases that they are for, with the
// words in which they differ.
var startPrograms = map[string]struct {
	program string
	words   *strings.Replacer
}{
	testdb.Postgres: {"postgres", strings.NewReplacer()},
	testdb.MariaDB:  {"mysql", startWords("mysql", "github.com/go-sql-driver/mysql", "lockmysql", "user@tcp(localhost:3306)/app")},
	testdb.MySQL:    {"mysql", startWords("mysql", "github.com/go-sql-driver/mysql", "lockmysql", "user@tcp(localhost:3306)/app")},
	testdb.SQLite:   {"sqlite", startWords("sqlite", "modernc.org/sqlite", "locksqlite", "file:locks.db?_pragma=journal_mode(wal)")},
}

func startWords(driver, imported, pkg, dsn string) *strings.Replacer {
	return strings.NewReplacer(`"pgx"`, `"`+driver+`"`, "github.com/jackc/pgx/v5/stdlib", imported, "lockpg", pkg,
		"postgres://user@localhost/app", dsn)
}

var startSaid = regexp.MustCompile(`token (\d+): I alone write the report\n$`)

func TestEachStartProgramTakesTheLockEachTimeWithAHigherToken(t *testing.T) {
	dir := build(t, "./start/...")
	for _, engine := range testdb.All() {
		t.Run(engine, func(t *testing.T) {
			t.Parallel()
			d := testdb.New(t, engine)
			last := int64(0)
			for range 2 {
				out, err := exec.CommandContext(t.Context(), filepath.Join(dir, startPrograms[engine].program), d.DSN()).CombinedOutput()
				if err != nil {
					t.Fatalf("%v\n%s", err, out)
				}
				m := startSaid.FindSubmatch(out)
				if m == nil {
					t.Fatalf("it said %q", out)
				}
				token, err := strconv.ParseInt(string(m[1]), 10, 64)
				if err != nil || token <= last {
					t.Errorf("token %s after %d, %v", m[1], last, err)
				}
				last = token
			}
		})
	}
}

func TestTheStartProgramsDifferInTheDatabaseOnly(t *testing.T) {
	source := func(program string) string {
		text, err := os.ReadFile(filepath.Join("start", program, "main.go"))
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	for engine, p := range startPrograms {
		if got, want := source(p.program), p.words.Replace(source("postgres")); got != want {
			t.Errorf("%s:\n%s\nwant\n%s", engine, got, want)
		}
	}
}
