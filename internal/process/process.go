// Package process runs the program of a test once more, as another process of an application
// would run. Both talk by lines.
package process

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"
)

// Process is the program of a test that runs once more. Its methods are for one goroutine.
type Process struct {
	t   *testing.T
	cmd *exec.Cmd
	in  io.WriteCloser
	out *bufio.Reader
}

// Start starts the program of the test with additions to its environment, "NAME=value", by which
// it knows what it is. What it writes to stderr is output of the test. At the end of the test it
// is killed, if it still runs.
func Start(t *testing.T, environment ...string) *Process {
	t.Helper()
	p := &Process{t: t, cmd: exec.Command(os.Args[0])}
	p.cmd.Env = append(os.Environ(), environment...)
	p.cmd.Stderr = t.Output()
	in, err := p.cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	p.in, p.out = in, bufio.NewReader(out)
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if p.cmd.ProcessState == nil {
			_ = p.cmd.Process.Kill()
			_ = p.cmd.Wait()
		}
	})
	return p
}

// PID is the number of the process.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// Read returns the next line of the process. It waits for it.
func (p *Process) Read() string {
	p.t.Helper()
	line, err := p.out.ReadString('\n')
	if err != nil {
		p.t.Fatalf("%q, %v", line, err)
	}
	return strings.TrimSpace(line)
}

// Expect reads a line, which must be this one.
func (p *Process) Expect(want string) {
	p.t.Helper()
	if line := p.Read(); line != want {
		p.t.Fatalf("it says %q, not %q", line, want)
	}
}

// Tell sends the process an empty line, and expects this answer.
func (p *Process) Tell(want string) {
	p.t.Helper()
	if _, err := fmt.Fprintln(p.in); err != nil {
		p.t.Fatal(err)
	}
	p.Expect(want)
}

// CloseInput tells the process that nothing more comes.
func (p *Process) CloseInput() { _ = p.in.Close() }

// Signal sends a signal to the process.
func (p *Process) Signal(s os.Signal) {
	p.t.Helper()
	if err := p.cmd.Process.Signal(s); err != nil {
		p.t.Fatal(err)
	}
}

// Wait waits for the end of the process. It returns an error if its exit code is not 0.
func (p *Process) Wait() error {
	_, _ = io.Copy(io.Discard, p.out)
	return p.cmd.Wait()
}
