//go:build unix

package supervisor

import (
	"slices"
	"syscall"
)

// process is a line of the process table.
type process struct {
	parent int
	group  int
	state  byte // T stopped, Z dead but not yet waited for
}

// table is the process table by process id.
type table map[int]process

// below returns the descendants of a process, and the members of the group that
// it leads: a helper may have lost its parent.
func (all table) below(root int) []int {
	var found []int
	for grown := true; grown; {
		grown = false
		for pid, p := range all {
			belongs := p.parent == root || p.group == root || slices.Contains(found, p.parent)
			if belongs && pid != root && p.state != 'Z' && !slices.Contains(found, pid) {
				found = append(found, pid)
				grown = true
			}
		}
	}
	return found
}

func (all table) isStopped(pid int) bool { return all[pid].state == 'T' }

func (all table) anyRuns(pids []int) bool {
	return slices.ContainsFunc(pids, func(pid int) bool {
		p, ok := all[pid]
		return ok && p.state != 'Z'
	})
}

// ownSession keeps a signal that a terminal or a time-out sends to the tests from
// ending the supervisor too, before it has cleaned up.
func ownSession() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setsid: true} }

// ownGroup makes a command a group leader and, unless it is nil, runs it as user.
func ownGroup(user *User) *syscall.SysProcAttr {
	attr := &syscall.SysProcAttr{Setpgid: true}
	if user != nil {
		attr.Credential = &syscall.Credential{Uid: user.UID, Gid: user.GID}
	}
	dieWithParent(attr)
	return attr
}
