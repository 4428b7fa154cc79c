//go:build linux

// Package fleet starts the clients of a fault run, each behind its own proxy. It kills,
// pauses and replaces them.
package fleet

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/sqllock/sqllock/faults/internal/client"
	"github.com/sqllock/sqllock/faults/internal/orders"
	"github.com/sqllock/sqllock/internal/netproxy"
)

// ErrEnded is part of the error of a client whose process has ended by itself. Nothing but the
// nemesis, the order to end and the end of the run ends a client.
var ErrEnded = errors.New("its process has ended by itself")

// Client is a place for a client process: when one was killed, the next one takes its
// place. Its methods are safe for concurrent use, and wait for each other.
type Client struct {
	// Net is the network between the client and the server; nil for SQLite.
	Net *netproxy.Proxy

	cfg    Config
	number int

	mu     sync.Mutex
	times  int // how often it was started
	proc   string
	cmd    *exec.Cmd
	in     io.WriteCloser
	stderr *strings.Builder
	ended  chan struct{}
	killed bool // by Kill
}

// Config describes the client to start.
type Config struct {
	Binary string
	Dir    string // of the histories
	// Variable returns the variable of the environment that makes a process of the binary
	// a client, named proc, that writes its history to a file. It is the times'th in its
	// place, from 1 up.
	Variable func(proc, file string, times int) (string, error)
}

// New starts a client of the library.
func New(cfg client.Config, number int, binary string, net *netproxy.Proxy) (*Client, error) {
	return Launch(Config{
		Binary: binary, Dir: cfg.History,
		Variable: func(proc, file string, times int) (string, error) {
			cfg := cfg
			cfg.Proc, cfg.History = proc, file
			cfg.Seed += uint64(number)<<32 + uint64(times)
			text, err := json.Marshal(cfg)
			return client.Variable + "=" + string(text), err
		},
	}, number, net)
}

// Launch starts a client of any kind, which has to obey the orders of package orders.
func Launch(cfg Config, number int, net *netproxy.Proxy) (*Client, error) {
	c := &Client{Net: net, cfg: cfg, number: number}
	return c, c.Start()
}

// Start starts the client, or another one in its place. The one before must have ended.
func (c *Client) Start() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.times++
	proc := c.name(c.times)
	variable, err := c.cfg.Variable(proc, c.history(proc), c.times)
	if err != nil {
		return err
	}
	cmd := exec.Command(c.cfg.Binary)
	cmd.Env = append(os.Environ(), variable)
	// A client that gets SIGSTOP from the terminal would spoil the run.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	c.stderr = new(strings.Builder)
	cmd.Stderr = c.stderr
	if c.in, err = cmd.StdinPipe(); err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	c.cmd, c.proc, c.ended, c.killed = cmd, proc, make(chan struct{}), false
	go c.wait(cmd, c.ended)
	return nil
}

// name is that of the times'th process in this place, history its file.
func (c *Client) name(times int) string { return fmt.Sprintf("c%d.%d", c.number, times) }

func (c *Client) history(proc string) string { return filepath.Join(c.cfg.Dir, proc+".jsonl") }

// wait notes the end of a process. Each started process has one wait.
func (c *Client) wait(cmd *exec.Cmd, ended chan struct{}) {
	_ = cmd.Wait() // the state has the same information
	close(ended)
}

// Proc returns the name of the process.
func (c *Client) Proc() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.proc
}

// Histories returns the files that the client, and those before it, have made.
func (c *Client) Histories() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	var files []string
	for i := 1; i <= c.times; i++ {
		path := c.history(c.name(i))
		if _, err := os.Stat(path); err == nil {
			files = append(files, path)
		}
	}
	return files
}

// Kill ends the process with SIGKILL and returns when it is gone. If the process has ended by
// itself, it returns an [ErrEnded].
func (c *Client) Kill() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.died(); err != nil {
		return err
	}
	_ = c.cmd.Process.Kill() // it may have ended just now
	<-c.ended
	status, ok := c.cmd.ProcessState.Sys().(syscall.WaitStatus)
	c.killed = ok && status.Signaled() && status.Signal() == syscall.SIGKILL
	return c.died()
}

// Died returns an [ErrEnded] if the process has ended and Kill has not ended it. It is for
// processes that have no order to end.
func (c *Client) Died() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.died()
}

func (c *Client) died() error {
	if c.killed || !c.hasEnded() {
		return nil
	}
	return fmt.Errorf("%w: %w", ErrEnded, c.keepStderr(c.cmd.ProcessState.String()))
}

// Close ends the process at the end of a run, however far it has come.
func (c *Client) Close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	_ = c.cmd.Process.Kill() // it may have ended
	<-c.ended
}

// Stop sends the process SIGSTOP; or, if at is not "", it has the process stop itself in
// the middle of a write of that kind, see [orders.Aim], if it comes there in time.
func (c *Client) Stop(at string, within time.Duration) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if at != "" {
		// A process that is just about to stop when its time is over still does.
		if err := c.order(orders.Aim(at, within)); err != nil {
			return err
		}
		for deadline := time.Now().Add(within + 100*time.Millisecond); time.Now().Before(deadline); time.Sleep(time.Millisecond) {
			if c.isStopped() {
				return nil
			}
		}
	}
	return c.signal(syscall.SIGSTOP)
}

// signal returns an [ErrEnded] if there is no process any more.
func (c *Client) signal(sig syscall.Signal) error {
	err := c.cmd.Process.Signal(sig)
	if errors.Is(err, os.ErrProcessDone) {
		<-c.ended
		return errors.Join(err, c.died())
	}
	return err
}

// isStopped asks the kernel.
func (c *Client) isStopped() bool {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", c.cmd.Process.Pid))
	if err != nil {
		return false
	}
	_, state, _ := strings.Cut(string(text), ") ")
	return strings.HasPrefix(state, "T")
}

// Continue sends the process SIGCONT.
func (c *Client) Continue() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.signal(syscall.SIGCONT)
}

// Drain orders the process to end.
func (c *Client) Drain() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.order(orders.Stop())
}

// order returns an [ErrEnded] if there is no process any more.
func (c *Client) order(text string) error {
	_, err := io.WriteString(c.in, text+"\n")
	if err == nil {
		return nil
	}
	select { // its input is closed a moment before it counts as ended
	case <-c.ended:
	case <-time.After(time.Second):
	}
	return errors.Join(err, c.died())
}

// HasEnded reports whether the process has ended.
func (c *Client) HasEnded() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.hasEnded()
}

func (c *Client) hasEnded() bool {
	select {
	case <-c.ended:
		return true
	default:
		return false
	}
}

// Ended waits for the end of the process, with a time limit. It returns an error if the
// process did not end in time, and an [ErrEnded] if it did not end successfully.
func (c *Client) Ended(within time.Duration) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	select {
	case <-c.ended:
	case <-time.After(within):
		_ = c.cmd.Process.Signal(syscall.SIGCONT)
		_ = c.cmd.Process.Signal(syscall.SIGQUIT) // the runtime then prints the stacks
		select {
		case <-c.ended:
		case <-time.After(5 * time.Second):
			_ = c.cmd.Process.Kill()
			<-c.ended
		}
		return c.keepStderr(fmt.Sprintf("did not end within %v", within))
	}
	if !c.cmd.ProcessState.Success() {
		return fmt.Errorf("%w: %w", ErrEnded, c.keepStderr(c.cmd.ProcessState.String()))
	}
	return nil
}

// keepStderr saves the standard error of the process beside its history.
func (c *Client) keepStderr(what string) error {
	path := filepath.Join(c.cfg.Dir, c.proc+".stderr")
	return errors.Join(fmt.Errorf("client %s: %s, see %s", c.proc, what, path), os.WriteFile(path, []byte(c.stderr.String()), 0o644))
}
