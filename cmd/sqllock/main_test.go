package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sqllock/sqllock/internal/testdb"
	testsupervisor "github.com/sqllock/sqllock/internal/testdb/supervisor"
	"github.com/sqllock/sqllock/internal/testlog"
)

// binary is the program as people run it.
var binary string

func TestMain(m *testing.M) {
	testsupervisor.Main() // before anything else, see testdb.Main
	if err := build(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	// Each test starts programs and few wait; the command line may say otherwise.
	_ = flag.Set("test.parallel", "6")
	testdb.Main(m)
}

// build makes the binary, in a directory that is removed when this process is
// gone, however it ends.
func build() error {
	dir, err := os.MkdirTemp("", "sqllock-cmd-")
	if err != nil {
		return err
	}
	if err := removeLater(dir); err != nil {
		return errors.Join(err, os.RemoveAll(dir))
	}
	binary = filepath.Join(dir, "sqllock")
	if runtime.GOOS == "windows" {
		binary += ".exe"
	}
	// The tests may run as somebody to whom git does not show the repository.
	out, err := exec.Command("go", "build", "-buildvcs=false", "-o", binary, ".").CombinedOutput()
	if err != nil {
		return fmt.Errorf("go build: %w\n%s", err, out)
	}
	return nil
}

// remover keeps the pipe open that tells the remover that we live.
var remover io.Closer

func removeLater(dir string) error {
	if runtime.GOOS == "windows" {
		return nil
	}
	cmd := exec.Command("sh", "-c", `cat >/dev/null; rm -rf -- "$0"`, dir)
	pipe, err := cmd.StdinPipe()
	if err != nil {
		return err
	}
	remover = pipe
	return cmd.Start()
}

// testTimeout bounds everything that is not meant to take long.
const testTimeout = 3 * time.Minute

// client calls the program with a home directory, and perhaps a database.
type client struct {
	home string
	dsn  string // "" for the file that is the default

	dsns []string // of a quorum, as flags
}

func newClient(t testing.TB) client { return client{home: t.TempDir()} }

// command prepares a call of the program with hardly an environment.
func (u client) command(t testing.TB, args ...string) *call {
	ctx, cancel := context.WithTimeout(context.Background(), testTimeout)
	t.Cleanup(cancel)
	for _, dsn := range slices.Backward(u.dsns) {
		args = append([]string{"--dsn", dsn}, args...)
	}
	p := &call{t: t, Cmd: exec.CommandContext(ctx, binary, args...)}
	p.Env = []string{"HOME=" + u.home, "PATH=" + os.Getenv("PATH")}
	if u.dsn != "" {
		p.Env = append(p.Env, "SQLLOCK_DSN="+u.dsn)
	}
	p.Stdout, p.Stderr = &p.out, &p.err
	p.WaitDelay = time.Second // what is left in the background may keep the pipes open
	return p
}

// run calls the program and waits for it.
func (u client) run(t testing.TB, args ...string) result {
	t.Helper()
	p := u.command(t, args...)
	p.start()
	return p.wait()
}

// start calls the program and does not wait for it.
func (u client) start(t testing.TB, args ...string) *call {
	t.Helper()
	p := u.command(t, args...)
	p.start()
	return p
}

// call is a running call of the program.
type call struct {
	*exec.Cmd
	t        testing.TB
	out, err testlog.Text
}

// shows waits until the call has printed a text.
func (p *call) shows(text string) {
	p.t.Helper()
	eventually(p.t, fmt.Sprintf("%q is printed", text), func() bool { return strings.Contains(p.out.String(), text) })
}

func (p *call) start() {
	p.t.Helper()
	if err := p.Start(); err != nil {
		p.t.Fatal(err)
	}
	p.t.Cleanup(func() { _ = p.Process.Kill() })
}

// result is what came of a call.
type result struct {
	out, err string
	code     int
}

func (p *call) wait() result {
	p.t.Helper()
	err := p.Wait()
	if exit := (*exec.ExitError)(nil); err != nil && !errors.As(err, &exit) && !errors.Is(err, exec.ErrWaitDelay) {
		p.t.Fatalf("%q: %v", p.Args, err)
	}
	code := p.ProcessState.ExitCode()
	return result{out: p.out.String(), err: p.err.String(), code: code}
}

// want checks a result; out and err are parts of the output.
func (r result) want(t testing.TB, code int, out, err string) {
	t.Helper()
	if r.code != code {
		t.Errorf("exit code %d, want %d", r.code, code)
	}
	if out != "" && !strings.Contains(r.out, out) || err != "" && !strings.Contains(r.err, err) {
		t.Errorf("want %q on stdout and %q on stderr", out, err)
	}
	if t.Failed() {
		t.Logf("exit code %d\nstdout: %s\nstderr: %s", r.code, r.out, r.err)
	}
}

// eventually waits until ok.
func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(testTimeout); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("never: %s", what)
		}
	}
}

// file returns the content of a file, "" if it is not there.
func file(path string) string {
	text, _ := os.ReadFile(path)
	return string(text)
}
