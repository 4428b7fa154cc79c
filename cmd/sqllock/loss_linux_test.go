package main

import (
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

// Linux has two guards: each does without the other.
func TestTheCommandItselfDiesWithoutTheWatchdogToo(t *testing.T) {
	t.Parallel()
	u := newClient(t)
	mark := "1000" + strconv.Itoa(os.Getpid())
	p := u.shell(t, "@UP; exec sleep "+mark, "n")
	find := func(match func(listed) bool) (pids []int) {
		for _, l := range processes(t) {
			if match(l) {
				pids = append(pids, l.pid)
			}
		}
		return pids
	}
	watchdog := find(func(l listed) bool {
		return l.parent == p.Process.Pid && strings.HasPrefix(l.args, "lock-watchdog")
	})
	if len(watchdog) != 1 {
		t.Fatalf("%d watchdogs, want one", len(watchdog))
	}
	if err := syscall.Kill(watchdog[0], syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	isCommand := func(l listed) bool { return strings.HasPrefix(l.args, "sleep "+mark) }
	if n := len(find(isCommand)); n != 1 {
		t.Fatalf("%d commands run without the watchdog, want one", n)
	}
	p.signal(syscall.SIGKILL)
	p.wait()
	eventually(t, "the command is gone", func() bool { return !slices.ContainsFunc(processes(t), isCommand) })
}
