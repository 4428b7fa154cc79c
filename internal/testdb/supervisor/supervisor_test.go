//go:build unix

package supervisor_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/sqllock/sqllock/internal/leak"
	"github.com/sqllock/sqllock/internal/testdb/supervisor"
)

// role is set for a child process that starts a server and then ends somehow.
const role = "SQLLOCK_TEST_ROLE"

func TestMain(m *testing.M) {
	supervisor.Main()
	if how := os.Getenv(role); how != "" {
		fmt.Println(serverOf(how))
		endAs(how)
	}
	code := m.Run()
	if err := leak.Check(); err != nil && code == 0 {
		fmt.Println(err)
		code = 1
	}
	os.Exit(code)
}

// tree is a program with a child, and a grandchild in its own session, like a Postgres
// backend. It ignores all signals that it can ignore.
const tree = `trap '' TERM INT HUP QUIT; (setsid sleep 1000 || sleep 1000) & sleep 1000; sleep 1000`

// serverOf starts a tree and returns its directory and process ids.
func serverOf(how string) string {
	w, err := supervisor.Start()
	if err != nil {
		panic(err)
	}
	dir, pid, err := startTree(w)
	if err != nil {
		panic(err)
	}
	if how == "supervisor killed" {
		_ = syscall.Kill(parentOf(pid), syscall.SIGKILL)
	}
	return fmt.Sprintln(dir, pid)
}

func endAs(how string) {
	switch how {
	case "exit":
		os.Exit(3)
	case "panic":
		go panic("as a test may")
	case "killed", "supervisor killed":
		_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
	case "return from main":
		os.Exit(0)
	case "time-out":
		_ = syscall.Kill(os.Getpid(), syscall.SIGQUIT)
	}
	time.Sleep(time.Minute)
}

func TestServersEndWithTheTestProcess(t *testing.T) {
	for _, how := range []string{"exit", "panic", "killed", "return from main", "time-out"} {
		t.Run(how, func(t *testing.T) {
			dir, pid := runChild(t, how)
			eventually(t, "the tree is gone", func() bool { return !runs(pid) && count(dir) == 0 })
			eventually(t, "the directory is removed", func() bool { return !exists(dir) })
		})
	}
}

func TestServerEndsWhenTheSupervisorIsKilled(t *testing.T) {
	if runtime.GOOS != "linux" {
		return // other systems do not report the death of a parent
	}
	dir, pid := runChild(t, "supervisor killed")
	eventually(t, "the server is gone", func() bool { return !runs(pid) })
	killAll(dir) // no supervisor is left to remove it
	_ = os.RemoveAll(dir)
}

func TestKillEndsTheWholeTree(t *testing.T) {
	w := start(t)
	dir, pid, err := startTree(w)
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Kill(pid); err != nil {
		t.Fatal(err)
	}
	if n := count(dir); n != 0 || runs(pid) {
		t.Errorf("%d processes left", n)
	}
	ended, status, err := w.Wait(pid, 0)
	if !ended || err != nil || !strings.Contains(status, "killed") {
		t.Errorf("want ended by a kill, got %v, %q, %v", ended, status, err)
	}
	if err := w.Kill(pid); err != nil {
		t.Errorf("killing it again: %v", err)
	}
}

func TestPauseStopsTheWholeTreeUntilResume(t *testing.T) {
	w := start(t)
	dir, pid, err := startTree(w)
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Pause(pid); err != nil {
		t.Fatal(err)
	}
	eventually(t, "all stopped", func() bool { return strings.Trim(states(dir), "T") == "" })
	if err := w.Resume(pid); err != nil {
		t.Fatal(err)
	}
	eventually(t, "none stopped", func() bool { return !strings.Contains(states(dir), "T") })
	if err := w.Pause(pid); err != nil {
		t.Fatal(err)
	}
	if err := w.Remove(dir); err != nil {
		t.Fatalf("removing a paused one: %v", err)
	}
	if exists(dir) || count(dir) != 0 {
		t.Error("a paused tree was not removed")
	}
}

func TestASignalReachesTheCommandAndWaitReportsItsEnd(t *testing.T) {
	w := start(t)
	for name, send := range map[string]func(int) error{"interrupt": w.Interrupt, "terminated": w.Terminate} {
		pid, dir := startShell(t, w, "exec sleep 1000")
		if ended, _, err := w.Wait(pid, 50*time.Millisecond); ended || err != nil {
			t.Fatalf("it ended at once: %v", err)
		}
		if err := send(pid); err != nil {
			t.Fatal(err)
		}
		ended, status, err := w.Wait(pid, 5*time.Second)
		if !ended || err != nil || !strings.Contains(status, name) {
			t.Errorf("want ended by %s, got %v, %q, %v", name, ended, status, err)
		}
		if err := w.Remove(dir); err != nil {
			t.Error(err)
		}
	}
}

func TestTheOutputOfACommandIsLoggedAndItsEnvironmentIsMinimal(t *testing.T) {
	t.Setenv("PGDATA", "/nonsense")
	w := start(t)
	pid, dir := startShell(t, w, "echo out; echo err >&2; pwd; env")
	if ended, status, _ := w.Wait(pid, 5*time.Second); !ended {
		t.Fatal(status)
	}
	log, err := os.ReadFile(filepath.Join(dir, "log"))
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"out\n", "err\n", dir + "\n", "HOME=" + dir} {
		if !strings.Contains(string(log), want) {
			t.Errorf("the log lacks %q:\n%s", want, log)
		}
	}
	if strings.Contains(string(log), "PGDATA") {
		t.Error("PGDATA reached the command")
	}
}

func TestItRefusesForeignProcessesAndDirectories(t *testing.T) {
	w := start(t)
	if err := w.Kill(os.Getpid()); err == nil {
		t.Error("it agreed to kill a process that it did not start")
	}
	if err := w.Remove(t.TempDir()); err == nil {
		t.Error("it agreed to remove a directory that it did not make")
	}
	if _, err := w.Start(supervisor.Command{Argv: []string{"/does/not/exist"}, Log: os.DevNull}); err == nil {
		t.Error("it started what is not there")
	}
}

func TestCloseRemovesEverythingAndLaterCallsFail(t *testing.T) {
	w := start(t)
	dir, pid, err := startTree(w)
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if exists(dir) || runs(pid) || count(dir) != 0 {
		t.Error("Close left something")
	}
	if _, err := w.MkdirTemp(nil); err == nil {
		t.Error("a closed supervisor made a directory")
	}
}

func TestADirectoryIsWhereTMPDIRSaysOrInMemoryIfThereIsRoom(t *testing.T) {
	custom := t.TempDir()
	for tmp, want := range map[string][]string{"": {"/tmp", "/dev/shm"}, custom: {custom}} {
		t.Setenv("TMPDIR", tmp)
		dir, err := start(t).MkdirMemory(nil)
		if err != nil || !slices.Contains(want, filepath.Dir(dir)) {
			t.Errorf("with TMPDIR %q it is %q, %v; want it in one of %q", tmp, dir, err, want)
		}
	}
}

func start(t *testing.T) *supervisor.Supervisor {
	t.Helper()
	w, err := supervisor.Start()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = w.Close() })
	return w
}

func startTree(w *supervisor.Supervisor) (dir string, pid int, err error) {
	dir, err = w.MkdirTemp(nil)
	if err != nil {
		return "", 0, err
	}
	pid, err = w.Start(supervisor.Command{
		Argv: []string{"/bin/sh", "-c", tree}, Dir: dir, Log: filepath.Join(dir, "log"),
	})
	for deadline := time.Now().Add(5 * time.Second); err == nil && count(dir) < 4; {
		if time.Now().After(deadline) {
			err = errors.New("the tree did not grow")
		}
	}
	return dir, pid, err
}

func startShell(t *testing.T, w *supervisor.Supervisor, script string) (pid int, dir string) {
	t.Helper()
	dir, err := w.MkdirTemp(nil)
	if err != nil {
		t.Fatal(err)
	}
	pid, err = w.Start(supervisor.Command{
		Argv: []string{"/bin/sh", "-c", script}, Dir: dir, Log: filepath.Join(dir, "log"),
	})
	if err != nil {
		t.Fatal(err)
	}
	return pid, dir
}

// runChild runs this binary in a role until it has ended. It returns the directory and
// the process that the role started.
func runChild(t *testing.T, how string) (dir string, pid int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	cmd := exec.CommandContext(ctx, os.Args[0])
	cmd.Env = append(os.Environ(), role+"="+how)
	out, _ := cmd.Output()
	if _, err := fmt.Sscan(string(out), &dir, &pid); err != nil {
		t.Fatalf("%v in %q", err, out)
	}
	return dir, pid
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(10 * time.Second); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not within 10 s: %s", what)
		}
	}
}
