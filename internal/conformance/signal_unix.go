//go:build unix

package conformance

import "syscall"

const hasSignals = true

// pause stops the child until resume.
func (p *process) pause() { p.signal(syscall.SIGSTOP) }

func (p *process) resume() { p.signal(syscall.SIGCONT) }

func (p *process) signal(s syscall.Signal) {
	p.e.Helper()
	if err := p.cmd.Process.Signal(s); err != nil {
		p.e.Fatalf("signal %v: %v", s, err)
	}
}
