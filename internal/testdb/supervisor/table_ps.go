//go:build unix && !linux

package supervisor

import (
	"fmt"
	"os/exec"
	"strings"
	"syscall"
)

// processes asks ps, which every Unix but a bare Linux has.
func processes() (table, error) {
	text, err := exec.Command("ps", "-A", "-o", "pid=,ppid=,pgid=,state=").Output()
	if err != nil {
		return nil, fmt.Errorf("ps: %w", err)
	}
	all := make(table)
	for line := range strings.Lines(string(text)) {
		var pid int
		var p process
		if _, err := fmt.Sscanf(line, "%d %d %d %c", &pid, &p.parent, &p.group, &p.state); err != nil {
			return nil, fmt.Errorf("ps: %q: %w", line, err)
		}
		all[pid] = p
	}
	return all, nil
}

// dieWithParent is possible on Linux only.
func dieWithParent(*syscall.SysProcAttr) {}
