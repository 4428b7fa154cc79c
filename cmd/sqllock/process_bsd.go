//go:build unix && !linux

package main

import "syscall"

// processAttr has no parent-death signal to ask for: the watchdog alone ends CMD
// when we are killed.
func processAttr(group int) *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pgid: group}
}

// others cannot tell: the watchdog is in the group, so that it always exists.
func (p *process) others() (alive, known bool) { return false, false }
