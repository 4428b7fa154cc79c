//go:build unix

package supervisor

import "os"

// Process is a line of the process table, for the tests.
type Process struct {
	Parent int
	State  byte
}

// Processes returns the process table without the dead.
func Processes() map[int]Process {
	all, err := processes()
	if err != nil {
		panic(err)
	}
	alive := make(map[int]Process)
	for pid, p := range all {
		if p.state != 'Z' && pid != os.Getpid() {
			alive[pid] = Process{p.parent, p.state}
		}
	}
	return alive
}
