//go:build !unix

package supervise

import (
	"errors"
	"os"
	"os/exec"
)

// process is a running command. Without process groups, only the command itself is ended, and
// not what it has started.
type process struct {
	cmd    *exec.Cmd
	events chan event
}

func startProcess(c *Command, _ *Watchdog) (*process, error) {
	p := &process{cmd: exec.Command(c.Path), events: make(chan event)}
	p.cmd.Args, p.cmd.Env = c.Args, c.Env
	p.cmd.Stdin, p.cmd.Stdout, p.cmd.Stderr = c.Stdin, c.Stdout, c.Stderr
	if err := p.cmd.Start(); err != nil {
		return nil, err
	}
	go func() {
		err := p.cmd.Wait()
		code := p.cmd.ProcessState.ExitCode()
		if exit := (*exec.ExitError)(nil); err != nil && !errors.As(err, &exit) {
			code = CodeOSError
		}
		p.events <- event{code: code}
	}()
	return p, nil
}

// signal does nothing: the console sends its signals to the command as well.
func (p *process) signal(os.Signal) {}

func (p *process) terminate()                      { p.kill() }
func (p *process) kill()                           { _ = p.cmd.Process.Kill() }
func (p *process) resume()                         {}
func (p *process) giveTerminal() bool              { return false }
func (p *process) giveTerminalEarly()              {}
func (p *process) reportsStops() bool              { return false }
func (p *process) sharesKeys() bool                { return false }
func (p *process) takeTerminal()                   {}
func (p *process) groupAlive() (alive, known bool) { return false, true }
