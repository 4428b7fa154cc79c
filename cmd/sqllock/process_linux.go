package main

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"syscall"
)

// processAttr makes CMD die when we do, however we do.
func processAttr(group int) *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pgid: group, Pdeathsig: syscall.SIGKILL}
}

// others reports whether somebody but the watchdog is left of the process group,
// if that can be known.
func (p *process) others() (alive, known bool) {
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

// inGroup reports that a process belongs to a process group and is not merely
// waiting for its parent to notice that it has ended.
func inGroup(pid, group int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return false // ended meanwhile
	}
	// pid (name) state ppid pgrp …, where the name may contain anything.
	fields := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:])
	if len(fields) < 3 {
		return false
	}
	state, pgrp := string(fields[0]), string(fields[2])
	return pgrp == strconv.Itoa(group) && state != "Z" && state != "X"
}
