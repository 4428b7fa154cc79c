//go:build unix

package testdb_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/sqllock/sqllock/internal/testdb"
)

// role selects what TestRole does in a child process.
const role = "SQLLOCK_TEST_ROLE"

// TestRole does nothing but in a child process.
func TestRole(t *testing.T) {
	what, engine, _ := strings.Cut(os.Getenv(role), " ")
	if what == "" {
		return
	}
	if end := ends[what]; end != nil {
		s := testdb.StartServer(t, engine)
		fmt.Println("SERVER", s.Dir(), sharedMemory(s.Dir()))
		end(t)
		return
	}
	roles[what](t, engine)
}

// ends are the ways in which a test process may go.
var ends = map[string]func(t *testing.T){
	"panic":    func(*testing.T) { panic("as a test may") },
	"exit":     func(*testing.T) { os.Exit(0) },
	"fatal":    func(t *testing.T) { t.Fatal("as a test may") },
	"killed":   func(*testing.T) { _ = syscall.Kill(os.Getpid(), syscall.SIGKILL); time.Sleep(time.Minute) },
	"time-out": func(*testing.T) { time.Sleep(time.Minute) },
}

var roles = map[string]func(t *testing.T, engine string){
	"nothing": func(*testing.T, string) {},
	"leak":    func(*testing.T, string) { go time.Sleep(time.Minute) },
	"create":  func(t *testing.T, engine string) { testdb.New(t, engine) },
	"start":   func(t *testing.T, engine string) { testdb.StartServer(t, engine) },
	"who": func(t *testing.T, engine string) {
		d := testdb.New(t, engine)
		fmt.Println("BASE", d.Base(), "UID", os.Getuid(), column(t, d.Open(t), `SELECT 1`))
	},
	"bare": func(t *testing.T, _ string) {
		testdb.ForgetGlobs()
		for _, engine := range testdb.All() {
			testdb.New(t, engine)
		}
	},
	"cover": func(*testing.T, string) {
		for _, engine := range testdb.All() {
			testdb.Cover("unique", engine)
		}
		for _, engine := range []string{testdb.SQLite, testdb.Postgres, testdb.MariaDB} {
			testdb.Expect("unique", engine)
		}
		testdb.Expect("advisory", testdb.SQLite)
	},
}

func TestServersAreRemovedHoweverTheTestProcessEnds(t *testing.T) {
	for _, engine := range testdb.Startable() {
		for end := range ends {
			t.Run(engine+" "+end, func(t *testing.T) {
				t.Parallel()
				out, code := runRole(t, end+" "+engine)
				var dir, segment string
				_, line, _ := strings.Cut(out, "SERVER ")
				if _, err := fmt.Sscan(line, &dir, &segment); err != nil || code == 0 != (end == "exit") {
					t.Fatalf("code %d, %v:\n%s", code, err, out)
				}
				wantNothingLeft(t, dir, segment)
			})
		}
	}
}

func TestATestProcessThatIsKilledAtAnyMomentLeavesNothing(t *testing.T) {
	for _, engine := range testdb.Startable() {
		for after := 200 * time.Millisecond; after < 2*time.Second; after *= 3 {
			t.Run(fmt.Sprint(engine, " ", after), func(t *testing.T) {
				t.Parallel()
				tmp := openDir(t)
				ctx, cancel := context.WithTimeout(t.Context(), after)
				defer cancel()
				cmd := command(ctx, "time-out "+engine, "TMPDIR="+tmp)
				_ = cmd.Run() // killed when the context ends
				for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(10 * time.Millisecond) {
					entries, _ := filepath.Glob(tmp + "/*")
					if len(entries) == 0 && inDir(tmp) == "" {
						return
					}
					if time.Now().After(deadline) {
						t.Fatalf("left: %q %s", entries, inDir(tmp))
					}
				}
			})
		}
	}
}

func TestMainFailsIfAGoroutineIsLeft(t *testing.T) {
	wantRole(t, 1, "goroutines left", "leak")
}

func TestMainFailsIfARequiredDatabaseIsAbsent(t *testing.T) {
	wantRole(t, 1, "SQLLOCK_REQUIRE: no mariadb: left out by SQLLOCK_TEST_MARIADB_DSN=none",
		"nothing", "SQLLOCK_REQUIRE=sqlite,mariadb", "SQLLOCK_TEST_MARIADB_DSN=none")
	wantRole(t, 1, "SQLLOCK_REQUIRE: no mysql: set SQLLOCK_TEST_MYSQL_DSN",
		"nothing", "SQLLOCK_REQUIRE=mysql", "SQLLOCK_TEST_MYSQL_DSN=", "SQLLOCK_TEST_MYSQLD=")
	wantRole(t, 1, "SQLLOCK_REQUIRE: no mysql: SQLLOCK_TEST_MYSQLD is no program: /nowhere",
		"nothing", "SQLLOCK_REQUIRE=mysql", "SQLLOCK_TEST_MYSQL_DSN=", "SQLLOCK_TEST_MYSQLD=/nowhere")
	wantRole(t, 1, `no database is named "postgress"`, "nothing", "SQLLOCK_REQUIRE=postgress")
	wantRole(t, 0, "PASS", "nothing", "SQLLOCK_REQUIRE=sqlite")
}

func TestMainReportsCoveredAndMissedPairs(t *testing.T) {
	file := filepath.Join(t.TempDir(), "cover")
	out, code := runRole(t, "cover", "SQLLOCK_COVER_FILE="+file,
		"SQLLOCK_TEST_POSTGRES_DSN=none", "SQLLOCK_TEST_MARIADB_DSN=none", "SQLLOCK_TEST_MYSQL_DSN=none")
	if code != 0 {
		t.Fatal(out)
	}
	for _, want := range []string{
		"sqllock: covered: unique×sqlite\n",
		"sqllock: NOT covered: unique×postgres (left out by SQLLOCK_TEST_POSTGRES_DSN=none)\n",
		"sqllock: NOT covered: unique×mariadb (left out by SQLLOCK_TEST_MARIADB_DSN=none)\n",
		"sqllock: NOT covered: advisory×sqlite (its tests did not run to the end)\n",
		"sqllock: NOT covered: tests on mysql (left out by SQLLOCK_TEST_MYSQL_DSN=none)\n",
	} {
		if !strings.Contains(out, want) {
			t.Errorf("want %q in:\n%s", want, out)
		}
	}
	saved, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	want := "covered\tunique\tsqlite\n" +
		"uncovered\tunique\tpostgres\tleft out by SQLLOCK_TEST_POSTGRES_DSN=none\n" +
		"uncovered\tunique\tmariadb\tleft out by SQLLOCK_TEST_MARIADB_DSN=none\n" +
		"uncovered\tadvisory\tsqlite\tits tests did not run to the end\n" +
		"absent\t-\tmysql\tleft out by SQLLOCK_TEST_MYSQL_DSN=none\n"
	if string(saved) != want {
		t.Errorf("want\n%sgot\n%s", want, saved)
	}
}

func TestAMissingServerIsReportedWithARemedy(t *testing.T) {
	out, _ := runRole(t, "bare", "PATH="+t.TempDir(),
		"SQLLOCK_TEST_POSTGRES_DSN=", "SQLLOCK_TEST_MARIADB_DSN=", "SQLLOCK_TEST_MYSQL_DSN=", "SQLLOCK_TEST_MYSQLD=")
	for _, want := range []string{
		"NOT covered: tests on postgres (no postgres and initdb found; set SQLLOCK_TEST_POSTGRES_DSN or install postgresql)",
		"NOT covered: tests on mariadb (no mariadbd and mariadb-install-db found; set SQLLOCK_TEST_MARIADB_DSN or install mariadb-server)",
		"NOT covered: tests on mysql (set SQLLOCK_TEST_MYSQL_DSN)",
		"--- PASS: TestRole",
	} {
		if !strings.Contains(out, want) {
			t.Errorf("want %q in:\n%s", want, out)
		}
	}
}

func TestAnAbsentDatabaseFailsATestThatNeedsIt(t *testing.T) {
	const left = "SQLLOCK_TEST_POSTGRES_DSN=none"
	wantRole(t, 1, "no postgres: left out by "+left, "create postgres", left)
	wantRole(t, 1, "cannot start postgres: left out by "+left, "start postgres", left)
	wantRole(t, 1, `no database is named "oracle"`, "create oracle")
}

func TestAnAddressIsUsedInsteadOfANewServer(t *testing.T) {
	for _, engine := range testdb.Startable() {
		base := testdb.New(t, engine).Base()
		variable := "SQLLOCK_TEST_" + strings.ToUpper(engine) + "_DSN="
		wantRole(t, 0, "BASE "+base+" UID", "who "+engine, variable+base)
	}
}

func TestAnAddressOfAnotherDatabaseIsRefused(t *testing.T) {
	wantRole(t, 1, "SQLLOCK_TEST_POSTGRES_DSN is no address of postgres",
		"create postgres", "SQLLOCK_TEST_POSTGRES_DSN=host=127.0.0.1 user=postgres")
	wantRole(t, 1, "SQLLOCK_TEST_MARIADB_DSN is no address of mariadb",
		"create mariadb", "SQLLOCK_TEST_MARIADB_DSN=mysql://root@127.0.0.1/")
	if slices.Contains(testdb.Startable(), testdb.MariaDB) {
		wantRole(t, 1, "SQLLOCK_TEST_MYSQL_DSN leads to another database",
			"create mysql", "SQLLOCK_TEST_MYSQL_DSN="+testdb.New(t, testdb.MariaDB).Base())
	}
}

func TestAnOrdinaryUserCanStartServers(t *testing.T) {
	if os.Getuid() != 0 {
		return // then all the tests show it
	}
	tmp := openDir(t)
	binary := filepath.Join(tmp, "ordinary.test")
	text, err := os.ReadFile(os.Args[0])
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(binary, text, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, engine := range testdb.Startable() {
		cmd := command(t.Context(), "who "+engine, "TMPDIR="+tmp, "SQLLOCK_TEST_"+strings.ToUpper(engine)+"_DSN=")
		cmd.Path, cmd.Dir = binary, tmp
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
		out, err := cmd.CombinedOutput()
		if err != nil || !strings.Contains(string(out), "UID 65534 1") {
			t.Errorf("%s: %v\n%s", engine, err, out)
		}
	}
}

// openDir returns a temporary directory that every user can write to.
func openDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "sqllock-open-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	return dir
}

func command(ctx context.Context, what string, env ...string) *exec.Cmd {
	limit := "-test.timeout=60s"
	if strings.HasPrefix(what, "time-out") {
		limit = "-test.timeout=15s"
	}
	cmd := exec.CommandContext(ctx, os.Args[0], "-test.run=^TestRole$", "-test.v", limit)
	// The coverage of a role is not the coverage of this package's tests.
	cmd.Env = append(os.Environ(), role+"="+what,
		"SQLLOCK_COVER_FILE=", "SQLLOCK_REQUIRE=", "GORACE=atexit_sleep_ms=0")
	cmd.Env = append(cmd.Env, env...)
	return cmd
}

// runRole runs TestRole in a child process and returns its output.
func runRole(t *testing.T, what string, env ...string) (out string, code int) {
	t.Helper()
	cmd := command(t.Context(), what, env...)
	text, err := cmd.CombinedOutput()
	if cmd.ProcessState == nil {
		t.Fatal(err)
	}
	return string(text), cmd.ProcessState.ExitCode()
}

// wantRole runs TestRole and wants an exit code and words.
func wantRole(t *testing.T, code int, words, what string, env ...string) {
	t.Helper()
	out, got := runRole(t, what, env...)
	if got != code || !strings.Contains(out, words) {
		t.Errorf("want code %d and %q, got %d:\n%s", code, words, got, out)
	}
}
