package locksqlite

import (
	"bufio"
	"os"
	"slices"
	"strings"
)

// hasOpen reports whether this process has all of the files open, as far as it can be
// found out. A connection that was opened before a file was replaced has another.
func hasOpen(files ...os.FileInfo) bool {
	const dir = "/proc/self/fd"
	d, err := os.Open(dir)
	if err != nil {
		return true
	}
	defer func() { _ = d.Close() }()
	names, err := d.Readdirnames(-1)
	if err != nil {
		return true
	}
	for _, name := range names {
		info, err := os.Stat(dir + "/" + name)
		if err == nil {
			files = slices.DeleteFunc(files, func(f os.FileInfo) bool { return os.SameFile(f, info) })
		}
	}
	return len(files) == 0
}

// isMounted reports that something is mounted at path itself.
func isMounted(path string) bool {
	f, err := os.Open("/proc/self/mountinfo")
	if err != nil {
		return false
	}
	defer func() { _ = f.Close() }()
	escaped := strings.NewReplacer(`\`, `\134`, " ", `\040`, "\t", `\011`, "\n", `\012`).Replace(path)
	for lines := bufio.NewScanner(f); lines.Scan(); {
		if fields := strings.Fields(lines.Text()); len(fields) > 4 && fields[4] == escaped {
			return true
		}
	}
	return false
}
