//go:build unix

package main

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

// watchdogName is what a watchdog is called in a list of processes. It differs
// from the name of the program, for those who "killall -9 sqllock".
const watchdogName = "lock-watchdog"

// guard is the watchdog of a run, seen from the run. The watchdog is this
// program once more. It leads a process group, which CMD is started into, and
// reads from a pipe that nobody else can write to; at its end it kills the
// group. So what CMD has started ends with us even if we are killed, and from the
// first moment on: no number has to be told to the watchdog, and none of a group
// that is gone can hit another, since a group exists while its leader does.
type guard struct {
	group int
	cmd   *exec.Cmd
	pipe  io.Closer // stays open for as long as we live
	up    chan error
}

// newGuard starts a watchdog and does not wait until it is up.
func newGuard(name string) (*guard, error) {
	exe, err := self()
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
	g := &guard{group: cmd.Process.Pid, cmd: cmd, pipe: pipe, up: make(chan error, 1)}
	go func() {
		_, err := io.ReadFull(out, make([]byte, 1))
		g.up <- err
	}()
	return g, nil
}

// self returns the path of this program. On Linux it works even after an update
// has replaced the file.
func self() (string, error) {
	const link = "/proc/self/exe"
	if _, err := os.Stat(link); err == nil {
		return link, nil
	}
	return os.Executable()
}

// ready waits until nothing but SIGKILL can end the watchdog.
func (g *guard) ready() error {
	select {
	case err := <-g.up:
		return err
	case <-time.After(10 * time.Second):
		return errors.New("it does not answer")
	}
}

// close ends the watchdog and leaves its group alone. It may be called twice.
func (g *guard) close() {
	if g.cmd.ProcessState != nil {
		return
	}
	_ = g.cmd.Process.Kill()
	_ = g.cmd.Wait()
	_ = g.pipe.Close()
}

// isWatchdog reports that this process was started by newGuard.
func isWatchdog() bool { return filepath.Base(os.Args[0]) == watchdogName }

// watch is the main function of the watchdog. It kills its process group,
// itself included, when whoever has started it is gone.
func watch() int {
	if syscall.Getpgrp() != os.Getpid() {
		return exitUsage // started by hand: the group is somebody else's
	}
	// Signals to the group are meant for CMD. Writing the file names the whole
	// process, from any of its threads.
	ignoreSignals()
	_ = os.WriteFile("/proc/self/comm", []byte(watchdogName), 0)
	if _, err := os.Stdout.Write([]byte{1}); err != nil {
		return exitSystem
	}
	_ = os.Stdout.Close()
	_, _ = io.Copy(io.Discard, os.Stdin)
	_ = syscall.Kill(0, syscall.SIGKILL)
	return exitSystem
}

// ignoreSignals ignores all that could end or stop this process, but for those
// that stand for a fault of it and those that the runtime needs.
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
