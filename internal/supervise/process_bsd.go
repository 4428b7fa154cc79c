//go:build unix && !linux

package supervise

import "syscall"

// processAttr sets no parent-death signal, which these systems do not have. The watchdog
// alone ends the command when this process is killed.
func processAttr(group int) *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pgid: group}
}

// groupAlive cannot tell: the watchdog is in the group, so the group always exists.
func (p *process) groupAlive() (alive, known bool) { return false, false }
