//go:build !unix

package main

import (
	"errors"
	"os"
	"os/exec"
)

// process is a running CMD. Where there are no process groups only CMD itself is
// ended, not what it has started.
type process struct {
	cmd  *exec.Cmd
	news chan news
}

func startProcess(r *runner, _ *guard, token int64) (*process, error) {
	p := &process{cmd: exec.Command(r.path), news: make(chan news)}
	p.cmd.Args = r.command
	p.cmd.Env = r.childEnv(token)
	p.cmd.Stdin, p.cmd.Stdout, p.cmd.Stderr = r.stdin, r.stdout, r.stderr
	if err := p.cmd.Start(); err != nil {
		return nil, err
	}
	go func() {
		err := p.cmd.Wait()
		code := p.cmd.ProcessState.ExitCode()
		if exit := (*exec.ExitError)(nil); err != nil && !errors.As(err, &exit) {
			code = exitSystem
		}
		p.news <- news{code: code}
	}()
	return p, nil
}

// signal does nothing: the console sends what can be sent to CMD as well.
func (p *process) signal(os.Signal) {}

func (p *process) terminate()                  { p.kill() }
func (p *process) kill()                       { _ = p.cmd.Process.Kill() }
func (p *process) resume()                     {}
func (p *process) handOver() bool              { return false }
func (p *process) takeBack()                   {}
func (p *process) others() (alive, known bool) { return false, true }

func isStop(os.Signal) bool { return false }
