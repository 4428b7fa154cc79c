//go:build unix

package supervisor

import (
	"fmt"
	"os/exec"
	"syscall"
	"time"
)

// signalTimeout is how long the kernel may take to carry out a signal.
const signalTimeout = 10 * time.Second

// child is a process that the supervisor started. As its parent the supervisor can
// signal it by number: the number is not given to another process before the
// supervisor has waited for it.
type child struct {
	pid    int
	dir    string
	cmd    *exec.Cmd
	ended  chan struct{}
	status string // valid when ended is closed
}

func watch(cmd *exec.Cmd) *child {
	c := &child{pid: cmd.Process.Pid, dir: cmd.Dir, cmd: cmd, ended: make(chan struct{})}
	go func() {
		_ = cmd.Wait() // the state has the same information
		c.status = cmd.ProcessState.String()
		close(c.ended)
	}()
	return c
}

// poll returns whether the process has ended, and its status.
func (c *child) poll() reply {
	if !c.hasEnded() {
		return reply{}
	}
	return reply{Ended: true, Status: c.status}
}

func (c *child) hasEnded() bool {
	select {
	case <-c.ended:
		return true
	default:
		return false
	}
}

func (c *child) do(op operation) error {
	switch op {
	case opInterrupt:
		return c.cmd.Process.Signal(syscall.SIGINT)
	case opTerminate:
		return c.cmd.Process.Signal(syscall.SIGTERM)
	case opPause:
		return c.pause()
	case opResume:
		return c.resume()
	case opKill:
		return c.kill()
	}
	return fmt.Errorf("unknown operation %q", op)
}

// pause stops the process and all of its descendants.
func (c *child) pause() error {
	below, err := c.freeze()
	signalAll(below, syscall.SIGSTOP)
	return err
}

// resume undoes pause, the process itself last: until then it makes no children.
func (c *child) resume() error {
	all, err := processes()
	if err != nil {
		return err
	}
	signalAll(all.below(c.pid), syscall.SIGCONT)
	return c.cmd.Process.Signal(syscall.SIGCONT)
}

// kill ends the process and its descendants. It does nothing if the process has ended,
// because the ids of its children may then belong to other processes. A signal to the
// process group is not enough: each Postgres backend has its own session.
func (c *child) kill() error {
	if c.hasEnded() {
		return nil
	}
	below, err := c.freeze()
	signalAll(below, syscall.SIGKILL)
	_ = c.cmd.Process.Kill()
	<-c.ended
	if err != nil {
		return err
	}
	// A new server must not find a child of the old one.
	return c.until("end", func(all table) bool { return !all.anyRuns(below) })
}

// freeze stops the process, so that it makes no more children, and returns its
// descendants. It returns none if the process has ended.
func (c *child) freeze() ([]int, error) {
	if c.cmd.Process.Signal(syscall.SIGSTOP) != nil {
		return nil, nil
	}
	err := c.until("stop", func(all table) bool { return all.isStopped(c.pid) || c.hasEnded() })
	if err != nil {
		return nil, err
	}
	all, err := processes()
	if err != nil || c.hasEnded() {
		return nil, err
	}
	return all.below(c.pid), nil
}

// until waits for a condition on the process table.
func (c *child) until(what string, ok func(table) bool) error {
	for deadline := time.Now().Add(signalTimeout); ; time.Sleep(2 * time.Millisecond) {
		all, err := processes()
		if err != nil || ok(all) {
			return err
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("process %d or a child of it did not %s within %v", c.pid, what, signalTimeout)
		}
	}
}

func signalAll(pids []int, sig syscall.Signal) {
	for _, pid := range pids {
		_ = syscall.Kill(pid, sig) // it may have ended
	}
}
