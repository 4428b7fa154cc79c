package testdb

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/sqllock/sqllock/internal/leak"
	"github.com/sqllock/sqllock/internal/testdb/supervisor"
)

// Main runs the tests of a package and exits. Call it first of all in TestMain: it
// has to recognise the process that looks after the servers, which is this program
// too.
//
// More tests run at the same time than there are processors: most of the time they wait.
// The tests fail at once if a database of SQLLOCK_REQUIRE is absent, and in the
// end if a goroutine is left. At the end it prints which pairs of mode and
// database were covered, see [Expect]; go test shows that with -v, or when it is
// run in the package's directory without arguments, or when tests fail. If
// SQLLOCK_COVER_FILE names a file, it is appended to it, for a report over all
// packages.
func Main(m *testing.M) {
	supervisor.Main()
	os.Exit(run(m))
}

// LeaveOut has go test -short leave out the tests that match the pattern, as -skip does, besides
// those that -skip leaves out. They run for long, or start servers. Call it before [Main].
func LeaveOut(pattern string) {
	if !flag.Parsed() {
		flag.Parse()
	}
	if !testing.Short() {
		return
	}
	if given := flag.Lookup("test.skip").Value.String(); given != "" {
		pattern = given + "|" + pattern
	}
	_ = flag.Set("test.skip", pattern)
}

func run(m *testing.M) int {
	if err := required(); err != nil {
		return printError(err)
	}
	active.Store(true)
	waitTogether()
	defaultSignals()
	code := m.Run()
	if err := errors.Join(dropModels(), closeAdmins()); err != nil {
		code = printError(err)
	}
	// Stopping the servers would end goroutines that a test has leaked.
	if code == 0 {
		if err := leak.Check(); err != nil {
			code = printError(err)
		}
	}
	if err := stopAll(); err != nil {
		code = printError(err)
	}
	fmt.Fprint(os.Stderr, coverage.report())
	if err := coverage.save(os.Getenv("SQLLOCK_COVER_FILE")); err != nil {
		code = printError(err)
	}
	return code
}

// waitTogether makes more tests run at the same time than there are processors, because
// tests mostly wait. A number on the command line takes precedence.
func waitTogether() {
	if !flag.Parsed() {
		flag.Parse()
	}
	given := false
	flag.Visit(func(f *flag.Flag) { given = given || f.Name == "test.parallel" })
	if !given {
		_ = flag.Set("test.parallel", strconv.Itoa(max(8, 4*runtime.NumCPU())))
	}
}

// defaultSignals gives child processes the default effect of signals that this process
// ignores since its start, for example under nohup. A child inherits ignored signals, but
// not caught ones. So this function catches them, with no effect.
func defaultSignals() {
	for _, sig := range []os.Signal{os.Interrupt, syscall.SIGHUP} { // Go catches the others
		if signal.Ignored(sig) {
			signal.Notify(make(chan os.Signal, 1), sig)
		}
	}
}

func printError(err error) int {
	fmt.Fprintln(os.Stderr, "sqllock:", err)
	return 1
}

// required returns an error if a database of SQLLOCK_REQUIRE is absent.
func required() error {
	for name := range strings.SplitSeq(os.Getenv("SQLLOCK_REQUIRE"), ",") {
		name = strings.TrimSpace(name)
		if name == "" || name == SQLite {
			continue
		}
		e := engineOf(name)
		if e == nil {
			return fmt.Errorf("SQLLOCK_REQUIRE: no database is named %q", name)
		}
		if reason := absentReason(e); reason != "" {
			return fmt.Errorf("SQLLOCK_REQUIRE: no %s: %s", name, reason)
		}
	}
	return nil
}
