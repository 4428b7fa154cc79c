//go:build unix

package supervise

import (
	"errors"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"syscall"
	"time"
)

// watchdogName is the name of a watchdog in a list of processes. It differs from the name of
// the program, because of "killall -9 sqllock".
const watchdogName = "lock-watchdog"

// Watchdog is a process that kills a command, and all that the command started, when the
// process that runs the command is gone.
//
// It is a second process of this program. It leads the process group into which the command is
// started, and reads from a pipe that nobody else writes to. At the end of the pipe it kills
// the group. So there is no moment at which the command outlives us. No process id has to be
// told to the watchdog, and it cannot hit a foreign group, because a group exists while its
// leader does.
type Watchdog struct {
	group   int
	cmd     *exec.Cmd
	pipe    io.Closer // open for as long as we live
	started chan error
}

// NewWatchdog starts a watchdog and does not wait until it is ready. The name appears in lists
// of processes. The main function of the program must call [WatchdogMain] if [IsWatchdog].
func NewWatchdog(name string) (*Watchdog, error) {
	exe, err := executable()
	if err != nil {
		return nil, err
	}
	cmd := &exec.Cmd{
		Path:        exe,
		Args:        []string{watchdogName, name},
		Env:         []string{"GOMAXPROCS=1"},
		Dir:         "/",
		SysProcAttr: &syscall.SysProcAttr{Setpgid: true},
	}
	pipe, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	w := &Watchdog{group: cmd.Process.Pid, cmd: cmd, pipe: pipe, started: make(chan error, 1)}
	go func() {
		_, err := io.ReadFull(out, make([]byte, 1))
		w.started <- err
	}()
	return w, nil
}

// executable returns the path of this program. On Linux it works even after an update has
// replaced the file.
func executable() (string, error) {
	const link = "/proc/self/exe"
	if _, err := os.Stat(link); err == nil {
		return link, nil
	}
	return os.Executable()
}

// Ready waits, for 10 s at most, until nothing but SIGKILL can end the watchdog. Call it once,
// before Run.
func (w *Watchdog) Ready() error {
	select {
	case err := <-w.started:
		return err
	case <-time.After(10 * time.Second):
		return errors.New("it does not answer")
	}
}

// Close ends the watchdog and leaves its group alone. It may be called twice.
func (w *Watchdog) Close() {
	if w.cmd.ProcessState != nil {
		return
	}
	_ = w.cmd.Process.Kill()
	_ = w.cmd.Wait()
	_ = w.pipe.Close()
}

// IsWatchdog reports that NewWatchdog started this process.
func IsWatchdog() bool { return filepath.Base(os.Args[0]) == watchdogName }

// WatchdogMain is the main function of a watchdog. It returns an exit code only if it was
// started by hand or failed: it kills its process group, itself included, when the process
// that started it is gone.
func WatchdogMain() int {
	if syscall.Getpgrp() != os.Getpid() {
		return 64 // EX_USAGE: started by hand, in a foreign group
	}
	// Signals to the group are meant for the command. A write to this file names the whole
	// process, from whatever thread.
	ignoreSignals()
	_ = os.WriteFile("/proc/self/comm", []byte(watchdogName), 0)
	if _, err := os.Stdout.Write([]byte{1}); err != nil {
		return CodeOSError
	}
	_ = os.Stdout.Close()
	_, _ = io.Copy(io.Discard, os.Stdin)
	_ = syscall.Kill(0, syscall.SIGKILL)
	return CodeOSError
}

// ignoreSignals ignores all signals that could end or stop this process, except those that
// report a fault in it and those that the runtime needs.
func ignoreSignals() {
	keep := []syscall.Signal{
		syscall.SIGILL, syscall.SIGTRAP, syscall.SIGABRT, syscall.SIGBUS, syscall.SIGFPE, syscall.SIGSEGV, syscall.SIGSYS,
		syscall.SIGPROF, syscall.SIGURG, syscall.SIGCHLD, syscall.SIGCONT, syscall.SIGKILL, syscall.SIGSTOP,
	}
	for n := syscall.Signal(1); n < 65; n++ {
		if !slices.Contains(keep, n) {
			signal.Ignore(n)
		}
	}
}
