// Package supervisor runs servers that must not outlive the tests which started
// them, however those end.
//
// A [Supervisor] is a second process of the test binary itself, the parent of the
// servers. When the test process closes its end of a pipe, or the kernel does
// because that process panicked, called os.Exit or was killed, the supervisor kills
// the servers with all of their children, removes their directories and ends. A
// finalizer or a deferred function in the test process could promise none of it.
package supervisor

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"time"
)

// variable is set in the environment of a supervisor, and only there.
const variable = "SQLLOCK_TEST_SUPERVISOR"

// ErrUnsupported is returned by [Start] where there are no Unix processes.
var ErrUnsupported = errors.New("supervisor: servers can be started on Unix only")

// Main makes the process a supervisor and does not return, if [Start] started it as a
// supervisor. Call it first in TestMain. Otherwise the supervisor would run the tests
// again.
func Main() {
	if os.Getenv(variable) != "" {
		os.Exit(serve())
	}
}

// User is the user that a command runs as.
type User struct{ UID, GID uint32 }

// Command is a program to start.
type Command struct {
	Argv []string // the first is a path
	Dir  string   // from MkdirTemp; its working directory and its home
	Log  string   // file that its output is appended to
	User *User    // nil: the user of this process
}

// Supervisor is the test process's side. It is safe for concurrent use; calls wait
// for each other.
type Supervisor struct {
	cmd *exec.Cmd

	mu      sync.Mutex
	enc     *json.Encoder
	dec     *json.Decoder
	in, out *os.File
}

// Start starts a supervisor. Close ends it.
func Start() (*Supervisor, error) {
	if !isSupported {
		return nil, ErrUnsupported
	}
	self, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("supervisor: %w", err)
	}
	theirIn, in, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("supervisor: %w", err)
	}
	defer theirIn.Close()
	out, theirOut, err := os.Pipe()
	if err != nil {
		_ = in.Close()
		return nil, fmt.Errorf("supervisor: %w", err)
	}
	defer theirOut.Close()
	// Do not inherit standard error: go test waits until all processes have closed it.
	cmd := &exec.Cmd{
		Path: self, Args: []string{"sqllock-test-supervisor"}, Dir: os.TempDir(),
		Env:   append(os.Environ(), variable+"=1", "GORACE="+quickExit(os.Getenv("GORACE"))),
		Stdin: theirIn, Stdout: theirOut, SysProcAttr: ownSession(),
	}
	if err = cmd.Start(); err != nil {
		_, _ = in.Close(), out.Close()
		return nil, fmt.Errorf("supervisor: %w", err)
	}
	return &Supervisor{
		cmd: cmd, in: in, out: out, enc: json.NewEncoder(in), dec: json.NewDecoder(out),
	}, nil
}

// quickExit spares every package with servers the second that the race detector
// waits at the end of a process.
func quickExit(options string) string {
	return strings.TrimSpace(options + " atexit_sleep_ms=0")
}

// Close kills all running processes and removes all directories. It returns when that is
// done.
func (w *Supervisor) Close() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	_ = w.in.Close()
	defer w.out.Close()
	if err := w.cmd.Wait(); err != nil {
		return fmt.Errorf("supervisor: %w", err)
	}
	return nil
}

// MkdirTemp makes a directory for servers of a user, nil for this process's.
func (w *Supervisor) MkdirTemp(owner *User) (string, error) { return w.mkdir(owner, "") }

// MkdirMemory is MkdirTemp in memory, if the system has such a file system and TMPDIR is
// not set. On a disk, the creation of a server delays the flushes of all others, at times
// for seconds. The files survive the end of a server in both cases.
func (w *Supervisor) MkdirMemory(owner *User) (string, error) {
	if os.Getenv("TMPDIR") == "" && hasMemory(memory) {
		return w.mkdir(owner, memory)
	}
	return w.MkdirTemp(owner)
}

const (
	memory = "/dev/shm"
	// minMemory is enough for the servers of some concurrent tests.
	minMemory = 4 << 30
)

func (w *Supervisor) mkdir(owner *User, parent string) (string, error) {
	r, err := w.call(request{Op: opMkdir, Command: Command{User: owner, Dir: parent}})
	return r.Dir, err
}

// Start starts a command and returns its process id.
func (w *Supervisor) Start(c Command) (pid int, err error) {
	r, err := w.call(request{Op: opStart, Command: c})
	return r.Pid, err
}

// Wait waits until a command has ended, at most for the given time, and reports
// whether it has, and how.
func (w *Supervisor) Wait(pid int, timeout time.Duration) (ended bool, status string, err error) {
	for deadline := time.Now().Add(timeout); ; time.Sleep(5 * time.Millisecond) {
		r, err := w.call(request{Op: opPoll, Pid: pid})
		if err != nil || r.Ended || !time.Now().Before(deadline) {
			return r.Ended, r.Status, err
		}
	}
}

// Interrupt sends the command itself SIGINT.
func (w *Supervisor) Interrupt(pid int) error { return w.on(pid, opInterrupt) }

// Terminate sends the command itself SIGTERM.
func (w *Supervisor) Terminate(pid int) error { return w.on(pid, opTerminate) }

// Pause stops a command and all of its children with SIGSTOP.
func (w *Supervisor) Pause(pid int) error { return w.on(pid, opPause) }

// Resume undoes Pause.
func (w *Supervisor) Resume(pid int) error { return w.on(pid, opResume) }

// Kill ends a command and all of its children with SIGKILL and returns when they
// are gone.
func (w *Supervisor) Kill(pid int) error { return w.on(pid, opKill) }

// Remove kills the processes that were started in a directory of MkdirTemp, and removes
// the directory.
func (w *Supervisor) Remove(dir string) error {
	_, err := w.call(request{Op: opRemove, Command: Command{Dir: dir}})
	return err
}

func (w *Supervisor) on(pid int, op operation) error {
	_, err := w.call(request{Op: op, Pid: pid})
	return err
}

func (w *Supervisor) call(r request) (reply, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	var answer reply
	if err := w.enc.Encode(r); err != nil {
		return reply{}, fmt.Errorf("supervisor: it is gone: %w", err)
	}
	if err := w.dec.Decode(&answer); err != nil {
		return reply{}, fmt.Errorf("supervisor: it is gone: %w", err)
	}
	if answer.Error != "" {
		return answer, fmt.Errorf("supervisor: %s", answer.Error)
	}
	return answer, nil
}
