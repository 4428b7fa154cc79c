//go:build unix

package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"
)

// listed is a process as the system lists it.
type listed struct {
	pid    int
	parent int
	args   string // with spaces between; "" once it has ended
}

// processes lists the processes of the machine. A bare Linux has no ps.
func processes(t testing.TB) (all []listed) {
	t.Helper()
	if runtime.GOOS == "linux" {
		return fromProc(t)
	}
	out, err := exec.Command("ps", "-A", "-o", "pid=,ppid=,stat=,args=").Output()
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(out)) {
		f := strings.Fields(line)
		if pid, parent := number(t, f[0]), number(t, f[1]); !strings.HasPrefix(f[2], "Z") {
			all = append(all, listed{pid, parent, strings.Join(f[3:], " ")})
		}
	}
	return all
}

func fromProc(t testing.TB) (all []listed) {
	t.Helper()
	dirs, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		t.Fatal(err)
	}
	for _, dir := range dirs {
		stat, err := os.ReadFile(filepath.Join(dir, "stat"))
		if err != nil {
			continue // ended meanwhile
		}
		args, _ := os.ReadFile(filepath.Join(dir, "cmdline"))
		f := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
		all = append(all, listed{number(t, filepath.Base(dir)), number(t, f[1]), strings.ReplaceAll(string(args), "\x00", " ")})
	}
	return all
}

func number(t testing.TB, s string) int {
	t.Helper()
	n, err := strconv.Atoi(s)
	if err != nil {
		t.Fatal(err)
	}
	return n
}
