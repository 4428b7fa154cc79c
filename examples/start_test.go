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

var startOutput = regexp.MustCompile(`token (\d+): I alone write the report\n$`)

func TestEachStartProgramTakesTheLockEachTimeWithAHigherToken(t *testing.T) {
	dir := buildOutsideRepository(t)
	for _, engine := range testdb.All() {
		t.Run(engine, func(t *testing.T) {
			t.Parallel()
			d := testdb.New(t, engine)
			last := int64(0)
			for range 2 {
				cmd := exec.CommandContext(t.Context(), filepath.Join(dir, startPrograms[engine].program))
				cmd.Env = append(os.Environ(), "DATABASE_URL="+d.DSN())
				out, err := cmd.CombinedOutput()
				if err != nil {
					t.Fatalf("%v\n%s", err, out)
				}
				m := startOutput.FindSubmatch(out)
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

func TestStartProgramsDifferOnlyInTheDatabase(t *testing.T) {
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

// buildOutsideRepository builds the programs of start in another module, outside of this
// repository and its workspace, and returns the directory of the programs.
func buildOutsideRepository(t *testing.T) (programs string) {
	t.Helper()
	readSources(t)
	repository, err := filepath.Abs("..")
	if err != nil {
		t.Fatal(err)
	}
	module := t.TempDir()
	if err := os.CopyFS(module, os.DirFS("start")); err != nil {
		t.Fatal(err)
	}
	// The versions of the dependencies are those of the library: no network is needed.
	for _, file := range []string{"go.mod", "go.sum"} {
		text, err := os.ReadFile(filepath.Join(repository, file))
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(module, file), text, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	programs = t.TempDir()
	for _, args := range [][]string{
		{"mod", "edit", "-module=example.com/app", "-require=github.com/sqllock/sqllock@v0.0.0", "-replace=github.com/sqllock/sqllock=" + repository},
		{"build", "-o", programs + string(filepath.Separator), "./..."},
	} {
		cmd := exec.Command("go", args...)
		cmd.Dir = module
		cmd.Env = append(os.Environ(), "GOWORK=off", "GOFLAGS=-mod=mod")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("go %s: %v\n%s", strings.Join(args, " "), err, out)
		}
	}
	return programs
}
