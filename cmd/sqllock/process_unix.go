//go:build unix

package main

import (
	"os"
	"runtime"
	"syscall"
)

// process is a running CMD. It is in the process group of the guard, together
// with all that it starts, unless they leave it.
type process struct {
	group int
	term  *terminal
	news  chan news
}

// startProcess starts CMD.
func startProcess(r *runner, g *guard, token int64) (*process, error) {
	p := &process{group: g.group, term: newTerminal(r.stdin), news: make(chan news)}
	p.handOver()
	attr := &os.ProcAttr{
		Env:   r.childEnv(token),
		Files: []*os.File{r.stdin, r.stdout, r.stderr},
		Sys:   processAttr(g.group),
	}
	started := make(chan error)
	go p.run(r.path, r.command, attr, started)
	err := <-started
	if p.term != nil {
		p.term.detach()
	}
	if err != nil {
		p.takeBack()
	}
	return p, err
}

// run starts CMD and waits for it. It keeps its thread for all of that time:
// Linux sends the parent-death signal when the thread that started the process
// ends, and threads that nobody holds come and go.
func (p *process) run(path string, argv []string, attr *os.ProcAttr, started chan<- error) {
	runtime.LockOSThread()
	proc, err := os.StartProcess(path, argv, attr)
	started <- err
	if err != nil {
		return
	}
	for {
		var status syscall.WaitStatus
		_, err := syscall.Wait4(proc.Pid, &status, syscall.WUNTRACED, nil)
		switch {
		case err == syscall.EINTR:
		case err != nil: // it cannot be ours any more
			p.news <- news{code: exitSystem}
			return
		case status.Stopped():
			p.stopped(status.StopSignal())
		case status.Signaled():
			sig := status.Signal()
			p.news <- news{code: exitSignal + int(sig), killed: true, byKey: p.term != nil && sig == syscall.SIGINT}
			return
		case status.Exited():
			p.news <- news{code: status.ExitStatus()}
			return
		}
	}
}

// stopped tells of a stop if there is a terminal that somebody waits at. One
// that came by kill is between CMD and whoever sent it.
func (p *process) stopped(sig syscall.Signal) {
	if p.term != nil && sig != syscall.SIGSTOP {
		p.news <- news{stopped: true, reading: sig == syscall.SIGTTIN || sig == syscall.SIGTTOU}
	}
}

// signal sends sig to CMD and all of its process group.
func (p *process) signal(sig os.Signal) {
	if n, ok := sig.(syscall.Signal); ok {
		_ = syscall.Kill(-p.group, n)
	}
}

// terminate asks all of the process group to end, those that are stopped too.
func (p *process) terminate() {
	p.signal(syscall.SIGTERM)
	p.resume()
}

func (p *process) kill() { p.signal(syscall.SIGKILL) }

func (p *process) resume() { p.signal(syscall.SIGCONT) }

// handOver gives CMD the terminal if it is ours to give.
func (p *process) handOver() bool { return p.term != nil && p.term.handOver(p.group) }

// takeBack takes the terminal back, so that we, or the shell that started us,
// can use it.
func (p *process) takeBack() {
	if p.term != nil {
		p.term.takeBack(p.group)
	}
}

func isStop(sig os.Signal) bool { return sig == syscall.SIGTSTP }
