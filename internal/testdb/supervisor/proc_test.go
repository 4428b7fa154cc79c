//go:build unix

package supervisor_test

import (
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"

	"github.com/sqllock/sqllock/internal/testdb/supervisor"
)

func runs(pid int) bool {
	_, ok := supervisor.Processes()[pid]
	return ok
}

func parentOf(pid int) int { return supervisor.Processes()[pid].Parent }

// in returns the processes with the working directory dir: the whole tree, including
// orphans.
func in(dir string) []int {
	var found []int
	for pid := range supervisor.Processes() {
		if workingDir(pid) == dir {
			found = append(found, pid)
		}
	}
	return found
}

func workingDir(pid int) string {
	if wd, err := os.Readlink("/proc/" + strconv.Itoa(pid) + "/cwd"); err == nil {
		return strings.TrimSuffix(wd, " (deleted)")
	}
	out, _ := exec.Command("lsof", "-a", "-d", "cwd", "-Fn", "-p", strconv.Itoa(pid)).Output()
	_, wd, _ := strings.Cut(strings.TrimSpace(string(out)), "\nn")
	return wd
}

func count(dir string) int { return len(in(dir)) }

// states returns one letter for each process of a tree.
func states(dir string) string {
	var b strings.Builder
	all := supervisor.Processes()
	for _, pid := range in(dir) {
		if p, ok := all[pid]; ok {
			b.WriteByte(p.State)
		}
	}
	return b.String()
}

func killAll(dir string) {
	for _, pid := range in(dir) {
		_ = syscall.Kill(pid, syscall.SIGKILL)
	}
}
