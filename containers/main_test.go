//go:build unix

package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

// programVariable makes the test binary this program.
const programVariable = "SQLLOCK_CONTAINERS_PROGRAM"

func TestMain(m *testing.M) {
	if os.Getenv(programVariable) != "" || isWatchdog() {
		main()
	}
	// Ignore the Docker settings of the developer.
	_ = os.Setenv("DOCKER_HOST", "tcp://127.0.0.1:1")
	_ = os.Setenv("DOCKER_CONFIG", os.DevNull)
	os.Exit(m.Run())
}

// idleTimeout is how long something may take that takes no time by itself.
const idleTimeout = 20 * time.Second

// A program is a run of this program on an engine. It has its own process group, as from
// a shell.
type program struct {
	*exec.Cmd
	output *os.File // not a pipe: Wait would wait for its end
}

func start(t *testing.T, host string, command ...string) *program {
	t.Helper()
	output, err := os.Create(filepath.Join(t.TempDir(), "output"))
	if err != nil {
		t.Fatal(err)
	}
	p := &program{Cmd: exec.Command(os.Args[0], command...), output: output}
	p.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	p.Env = append(slices.DeleteFunc(os.Environ(), func(s string) bool {
		return strings.HasPrefix(s, "SQLLOCK_") || strings.HasPrefix(s, "DOCKER_") || strings.HasPrefix(s, "TESTCONTAINERS_")
	}), programVariable+"=1", "DOCKER_HOST="+host, "HOME="+t.TempDir(), "SQLLOCK_MYSQL_IMAGE=none", "GORACE=atexit_sleep_ms=0")
	p.Stdout, p.Stderr = output, output
	if err := p.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = p.Process.Kill()
		_ = output.Close()
	})
	return p
}

// signal sends a signal to the process group, as a terminal does.
func (p *program) signal(t *testing.T, sig syscall.Signal) {
	t.Helper()
	if err := syscall.Kill(-p.Process.Pid, sig); err != nil {
		t.Fatal(err)
	}
}

func (p *program) outputText() string {
	text, _ := os.ReadFile(p.output.Name())
	return string(text)
}

// want waits for the end and wants an exit code and words.
func (p *program) want(t *testing.T, code int, words ...string) {
	t.Helper()
	_ = p.Wait()
	if got := p.ProcessState.ExitCode(); got != code {
		t.Errorf("want exit code %d, got %d:\n%s", code, got, p.outputText())
	}
	for _, w := range words {
		if !strings.Contains(p.outputText(), w) {
			t.Errorf("want %q in:\n%s", w, p.outputText())
		}
	}
}

// wantEnded waits until the process with the id in the file has ended.
func wantEnded(t *testing.T, file string) {
	t.Helper()
	pid, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, "what was started has ended", func() bool {
		return exec.Command("kill", "-0", strings.TrimSpace(string(pid))).Run() != nil
	})
}

// wantGone waits until the engine has removed its n containers.
func (e *fakeEngine) wantGone(t *testing.T, n int) {
	t.Helper()
	eventually(t, "the containers are gone", func() bool {
		there, removed := e.running()
		return len(there) == 0 && removed == n
	})
}

func eventually(t *testing.T, what string, is func() bool) {
	t.Helper()
	for deadline := time.Now().Add(idleTimeout); !is(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("in vain: %s", what)
		}
	}
}

func TestTheCommandRunsWithAServerAndItsExitCodeIsPassedOn(t *testing.T) {
	for script, code := range map[string]int{
		"echo DSN $SQLLOCK_TEST_POSTGRES_DSN REQUIRE $SQLLOCK_REQUIRE": 0,
		"exit 7":     7,
		"kill -9 $$": 128 + 9,
	} {
		t.Run(script, func(t *testing.T) {
			t.Parallel()
			e := newFakeEngine(t)
			e.serve(t)
			p := start(t, e.host(), "--", "sh", "-c", script)
			p.want(t, code, "postgres, from docker.io/library/postgres:17-alpine, listens on 127.0.0.1:")
			if code == 0 && !(strings.Contains(p.outputText(), "DSN postgres://postgres:") &&
				strings.Contains(p.outputText(), "/postgres?sslmode=disable REQUIRE postgres\n")) {
				t.Error(p.outputText())
			}
			if there, removed := e.running(); len(there) != 0 || removed != 1 {
				t.Errorf("%d containers are there, %d removed", len(there), removed)
			}
		})
	}
}

func TestAContainerIsPublishedOnThisMachineOnlyAndHasAPassword(t *testing.T) {
	t.Parallel()
	e := newFakeEngine(t)
	e.serve(t)
	file := filepath.Join(t.TempDir(), "go")
	p := start(t, e.host(), "sh", "-c", "while [ ! -e "+file+" ]; do sleep 0.01; done")
	eventually(t, "a container", func() bool { there, _ := e.running(); return len(there) == 1 })
	there, _ := e.running()
	c := there[0]
	if b := c.HostConfig.PortBindings["5432/tcp"]; len(b) != 1 || b[0]["HostIp"] != localhost || len(c.HostConfig.PortBindings) != 1 {
		t.Errorf("published: %v", c.HostConfig.PortBindings)
	}
	if len(c.Env) != 1 || !strings.HasPrefix(c.Env[0], "POSTGRES_PASSWORD=") || len(c.Env[0]) < 40 {
		t.Errorf("environment: %q", c.Env)
	}
	if !slices.Equal(c.Cmd, []string{"-c", "max_connections=300"}) {
		t.Errorf("arguments: %q", c.Cmd)
	}
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	p.want(t, 0)
}

func TestContainersAreRemovedHoweverTheProgramEnds(t *testing.T) {
	for _, c := range []struct {
		sig  syscall.Signal
		code int
	}{{syscall.SIGTERM, 143}, {syscall.SIGINT, 130}, {syscall.SIGHUP, 129}, {syscall.SIGKILL, -1}} {
		for when, serves := range map[string]bool{"while the command runs": true, "while a server starts": false} {
			t.Run(c.sig.String()+" "+when, func(t *testing.T) {
				t.Parallel()
				e := newFakeEngine(t)
				if serves {
					e.serve(t)
				}
				child := filepath.Join(t.TempDir(), "child")
				p := start(t, e.host(), "sh", "-c", "sleep 600 & echo $! >"+child+".new; mv "+child+".new "+child+"; wait")
				eventually(t, "all runs", func() bool {
					there, _ := e.running()
					_, err := os.Stat(child)
					return len(there) == 1 && (err == nil) == serves
				})
				p.signal(t, c.sig)
				p.want(t, c.code)
				e.wantGone(t, 1)
				if serves {
					wantEnded(t, child)
				}
			})
		}
	}
}

func TestAContainerThatAppearsDuringTheRemovalIsRemovedToo(t *testing.T) {
	t.Parallel()
	e := newFakeEngine(t)
	p := start(t, e.host(), "true")
	eventually(t, "a container", func() bool { there, _ := e.running(); return len(there) == 1 })
	there, _ := e.running()
	e.mu.Lock()
	e.late = &fakeContainer{ID: "late", Labels: there[0].Labels}
	e.mu.Unlock()
	p.signal(t, syscall.SIGKILL)
	e.wantGone(t, 2)
}

func TestASignalEndsTheBackgroundProcessesOfTheCommand(t *testing.T) {
	t.Parallel()
	e := newFakeEngine(t)
	e.serve(t)
	child := filepath.Join(t.TempDir(), "child")
	p := start(t, e.host(), "sh", "-c",
		"trap '' TERM; sleep 600 & trap - TERM; echo $! >"+child+".new; mv "+child+".new "+child+"; wait")
	eventually(t, "the command runs", func() bool { _, err := os.Stat(child); return err == nil })
	p.signal(t, syscall.SIGTERM)
	p.want(t, 143)
	wantEnded(t, child)
}

func TestACommandThatCannotRunIsReportedAndLeavesNothing(t *testing.T) {
	t.Parallel()
	e := newFakeEngine(t)
	e.serve(t)
	start(t, e.host()).want(t, exitUsage, "what shall run?")
	start(t, e.host(), "does-not-exist").want(t, exitNotFound, "cannot run the command", "does-not-exist")
	start(t, e.host(), "/").want(t, exitNotRunnable, "cannot run the command")
	if there, removed := e.running(); len(there) != 0 || removed != 2 {
		t.Errorf("%d containers are there, %d removed", len(there), removed)
	}
	start(t, "tcp://127.0.0.1:1", "true").want(t, exitUnavailable, "no Docker engine answers at DOCKER_HOST=tcp://127.0.0.1:1")
}
