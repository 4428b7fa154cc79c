package supervise

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"syscall"
)

// processAttr makes the kernel kill the command when this process dies, for whatever reason.
func processAttr(group int) *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pgid: group, Pdeathsig: syscall.SIGKILL}
}

// groupAlive reports whether the process group has a process other than the watchdog, if that
// is known.
func (p *process) groupAlive() (alive, known bool) {
	dir, err := os.Open("/proc")
	if err != nil {
		return false, false
	}
	defer func() { _ = dir.Close() }()
	names, err := dir.Readdirnames(-1)
	if err != nil {
		return false, false
	}
	for _, name := range names {
		pid, err := strconv.Atoi(name)
		if err == nil && pid != p.group && inGroup(pid, p.group) {
			return true, true
		}
	}
	return false, true
}

// inGroup reports that a process belongs to a process group and is no zombie.
func inGroup(pid, group int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return false // it has ended meanwhile
	}
	// pid (name) state ppid pgrp …, where the name may contain anything.
	fields := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:])
	if len(fields) < 3 {
		return false
	}
	state, pgrp := string(fields[0]), string(fields[2])
	return pgrp == strconv.Itoa(group) && state != "Z" && state != "X"
}
