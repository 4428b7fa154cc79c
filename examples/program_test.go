package examples_test

import (
	"context"
	"errors"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"

	_ "github.com/sqllock/sqllock/examples/internal/demo" // see readSources
	"github.com/sqllock/sqllock/internal/testdb"
	"github.com/sqllock/sqllock/internal/testlog"
)

// exampleTimeout is more than an example gives itself.
const exampleTimeout = 90 * time.Second

// build makes programs and returns their directory.
func build(t *testing.T, pkg string) string {
	t.Helper()
	readSources(t)
	dir := t.TempDir()
	// The tests may run as a user to whom git does not show the repository.
	out, err := exec.Command("go", "build", "-buildvcs=false", "-o", dir+string(filepath.Separator), pkg).CombinedOutput()
	if err != nil {
		t.Fatalf("go build %s: %v\n%s", pkg, err, out)
	}
	return dir
}

// readSources reads the sources of the programs, so that go test knows that its result
// depends on them and does not use its cache.
func readSources(t *testing.T) {
	t.Helper()
	files, err := filepath.Glob("*/*.go")
	if err != nil || len(files) == 0 {
		t.Fatalf("no sources: %v", err)
	}
	deeper, err := filepath.Glob("start/*/*.go")
	if err != nil || len(deeper) == 0 {
		t.Fatalf("no sources in start: %v", err)
	}
	for _, file := range append(files, deeper...) {
		if _, err := os.ReadFile(file); err != nil {
			t.Fatal(err)
		}
	}
}

// program is an example that runs.
type program struct {
	*exec.Cmd
	t    *testing.T
	d    *testdb.Database
	temp string
	out  testlog.Text
}

// start runs an example on a database of the engine of d; not on d itself if
// that is a file, because examples make their own.
func start(t *testing.T, dir, name string, d *testdb.Database, args ...string) *program {
	t.Helper()
	if runtime.GOOS == "windows" {
		name += ".exe"
	}
	if d.Engine() != testdb.SQLite {
		args = append(args, "--dsn", dsn(t, d))
	}
	ctx, cancel := context.WithTimeout(context.Background(), exampleTimeout)
	t.Cleanup(cancel)
	p := &program{Cmd: exec.CommandContext(ctx, filepath.Join(dir, name), args...), t: t, d: d, temp: t.TempDir()}
	p.Env = append(os.Environ(), "TMPDIR="+p.temp, "TMP="+p.temp)
	p.Stdout, p.Stderr = &p.out, &p.out
	if err := p.Start(); err != nil {
		t.Fatal(err)
	}
	return p
}

// until waits until the program has printed a text.
func (p *program) until(text string) {
	p.t.Helper()
	for end := time.Now().Add(exampleTimeout); !strings.Contains(p.out.String(), text); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			p.t.Fatalf("%q: never printed %q:\n%s", p.Args, text, p.out.String())
		}
	}
}

// wait waits for the end of the program. It checks the exit code, the output, and that
// nothing is left.
func (p *program) wait(code int, want ...string) (output string) {
	p.t.Helper()
	var exit *exec.ExitError
	if err := p.Wait(); err != nil && !errors.As(err, &exit) {
		p.t.Fatal(err)
	}
	output = p.out.String()
	if got := p.ProcessState.ExitCode(); got != code {
		p.t.Errorf("%q: exit code %d, want %d:\n%s", p.Args, got, code, output)
	}
	for _, pattern := range want {
		if !regexp.MustCompile(pattern).MatchString(output) {
			p.t.Errorf("%q: want %s in:\n%s", p.Args, pattern, output)
		}
	}
	p.checkNothingIsLeft(output)
	return output
}

func (p *program) checkNothingIsLeft(output string) {
	p.t.Helper()
	files, err := os.ReadDir(p.temp)
	if err != nil {
		p.t.Fatal(err)
	}
	if len(files) > 0 {
		p.t.Errorf("%q left files: %v", p.Args, files)
	}
	if p.d.Engine() == testdb.SQLite {
		return
	}
	tables := `SELECT count(*) FROM information_schema.tables WHERE table_schema = DATABASE()`
	if p.d.Engine() == testdb.Postgres {
		tables = `SELECT count(*) FROM pg_class WHERE relnamespace >= 16384 OR relnamespace = 'public'::regnamespace`
	}
	home := regexp.MustCompile("sqllock_example_[a-z0-9]+").FindString(output)
	if home == "" {
		p.t.Fatalf("%q does not say where its tables are:\n%s", p.Args, output)
	}
	homes := `SELECT count(*) FROM information_schema.schemata WHERE schema_name = '` + home + `'`
	db := p.d.Open(p.t)
	for _, query := range []string{tables, homes} {
		var n int
		if err := db.QueryRow(query).Scan(&n); err != nil || n > 0 {
			p.t.Errorf("%q: %s: %d, %v; want nothing left", p.Args, query, n, err)
		}
	}
}

// dsn is how people write the address of a test's database.
func dsn(t *testing.T, d *testdb.Database) string {
	t.Helper()
	if d.Engine() == testdb.Postgres {
		return d.DSN()
	}
	cfg, err := mysql.ParseDSN(d.DSN())
	if err != nil {
		t.Fatal(err)
	}
	u := url.URL{Scheme: "mysql", User: url.UserPassword(cfg.User, cfg.Passwd), Host: cfg.Addr, Path: "/" + cfg.DBName}
	if cfg.Net == "unix" {
		u.Host, u.RawQuery = "", "socket="+url.QueryEscape(cfg.Addr)
	}
	return u.String()
}
