//go:build unix

package supervise

import (
	"os"
	"runtime"
	"syscall"
)

// process is a running command. It is in the process group of the watchdog, with all the
// processes that it starts, unless they leave that group.
type process struct {
	group    int
	terminal *terminal // nil without one
	early    bool      // the command gets the terminal before it asks for it
	events   chan event
}

func startProcess(c *Command, w *Watchdog) (*process, error) {
	p := &process{group: w.group, terminal: newTerminal(c.Stdin), events: make(chan event)}
	if p.terminal != nil {
		p.terminal.heedStops()
	}
	p.early = p.terminal != nil && isTerminal(c.Stdout)
	p.giveTerminalEarly()
	attr := &os.ProcAttr{
		Env:   c.Env,
		Files: []*os.File{c.Stdin, c.Stdout, c.Stderr},
		Sys:   processAttr(w.group),
	}
	started := make(chan error)
	go p.run(c.Path, c.Args, attr, started)
	err := <-started
	if p.terminal != nil {
		p.terminal.ignoreStops()
	}
	if err != nil {
		p.takeTerminal()
	}
	return p, err
}

// run starts the command and waits for it. It keeps its thread for all of that time: Linux
// sends the parent-death signal when the thread that started the process ends, and Go ends
// threads that no goroutine has locked.
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
		case err != nil: // somebody else has waited for it
			p.events <- event{code: CodeOSError}
			return
		case status.Stopped():
			p.stopped(status.StopSignal())
		case status.Signaled():
			sig := status.Signal()
			p.events <- event{code: CodeSignal + int(sig), killed: true, byKey: p.terminal != nil && sig == syscall.SIGINT}
			return
		case status.Exited():
			p.events <- event{code: status.ExitStatus()}
			return
		}
	}
}

// reportsStops says whether there is a terminal at which somebody waits.
func (p *process) reportsStops() bool { return p.terminal != nil }

// sharesKeys says whether the keys of the terminal go to our group, and not to that of the command.
func (p *process) sharesKeys() bool {
	if p.terminal == nil || p.early {
		return false
	}
	group, err := p.terminal.foreground()
	return err == nil && group == p.terminal.own
}

// stopped reports a stop if there is a terminal. A stop by kill -STOP is between the command and
// the sender.
func (p *process) stopped(sig syscall.Signal) {
	if p.reportsStops() && sig != syscall.SIGSTOP {
		p.events <- event{stopped: true, reading: sig == syscall.SIGTTIN || sig == syscall.SIGTTOU}
	}
}

// signal sends sig to the process group of the command.
func (p *process) signal(sig os.Signal) {
	if n, ok := sig.(syscall.Signal); ok {
		_ = syscall.Kill(-p.group, n)
	}
}

// terminate asks the whole process group to end, stopped processes too.
func (p *process) terminate() {
	p.signal(syscall.SIGTERM)
	p.resume()
}

func (p *process) kill() { p.signal(syscall.SIGKILL) }

func (p *process) resume() { p.signal(syscall.SIGCONT) }

// giveTerminalEarly is giveTerminal before the command reads from the terminal. If it writes to
// something else, as in a pipe, what reads from there may need the terminal first.
func (p *process) giveTerminalEarly() {
	if p.early {
		p.giveTerminal()
	}
}

// giveTerminal puts the command into the foreground of the terminal, if we are there.
func (p *process) giveTerminal() bool {
	return p.terminal != nil && p.terminal.moveForeground(p.terminal.own, p.group)
}

// takeTerminal puts our own group back into the foreground, so that we, or the shell that
// started us, can use the terminal.
func (p *process) takeTerminal() {
	if p.terminal != nil {
		p.terminal.moveForeground(p.group, p.terminal.own)
	}
}
