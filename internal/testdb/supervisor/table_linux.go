package supervisor

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
)

// processes reads /proc: a bare machine has no ps.
func processes() (table, error) {
	files, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		return nil, err
	}
	all := make(table, len(files))
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			continue // it has ended
		}
		pid, err := strconv.Atoi(filepath.Base(filepath.Dir(file)))
		if err != nil {
			return nil, err
		}
		// The name of the program, in parentheses, may hold anything.
		var p process
		rest := text[bytes.LastIndexByte(text, ')')+1:]
		if _, err := fmt.Sscanf(string(rest), " %c %d %d", &p.state, &p.parent, &p.group); err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
		all[pid] = p
	}
	return all, nil
}

// dieWithParent makes the kernel end the command with the supervisor. Somebody may kill
// the test binary by name, and so hit both processes.
func dieWithParent(attr *syscall.SysProcAttr) { attr.Pdeathsig = syscall.SIGKILL }
