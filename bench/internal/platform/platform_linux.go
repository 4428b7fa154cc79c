// Package platform has the functions of the operating system that the benchmarks need. It
// is made for Linux. On other systems it compiles and measures less precisely.
package platform

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Monotonic returns the time of the monotonic clock in ns. All processes share this
// clock.
func Monotonic() int64 {
	var t unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &t) // cannot fail for this clock
	return t.Nano()
}

// CPUTime returns how much processor time this process has used.
func CPUTime() time.Duration {
	var r unix.Rusage
	_ = unix.Getrusage(unix.RUSAGE_SELF, &r) // fails for bad arguments only
	return time.Duration(r.Utime.Nano() + r.Stime.Nano())
}

// clockTick is the unit of processor times in /proc, on all machines that Go runs on.
const clockTick = 10 * time.Millisecond

// ProcessTime returns how much processor time a process and its children have used,
// including children that have ended. It is 0 if that is not known.
func ProcessTime(pid int) time.Duration {
	if pid == 0 {
		return 0
	}
	own, ended := processTimes(pid)
	sum := own + ended
	list, _ := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", pid, pid))
	for _, word := range strings.Fields(string(list)) {
		if child, err := strconv.Atoi(word); err == nil {
			own, _ := processTimes(child)
			sum += own
		}
	}
	return sum
}

// processTimes returns the times of a process and of its children that have ended.
func processTimes(pid int) (own, ended time.Duration) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, 0 // it has ended
	}
	// The name of the program, in parentheses, may contain anything.
	fields := strings.Fields(string(text[bytes.LastIndexByte(text, ')')+1:]))
	ticks := func(field int) time.Duration { // as proc(5) numbers them
		n, _ := strconv.ParseInt(fields[field-3], 10, 64)
		return time.Duration(n) * clockTick
	}
	return ticks(14) + ticks(15), ticks(16) + ticks(17)
}

// FineTimer makes sleeps of the calling thread as exact as they can be. The
// goroutine must be locked to its thread.
func FineTimer() {
	_ = unix.Prctl(unix.PR_SET_TIMERSLACK, 1000, 0, 0, 0) // ns; by default 50 µs
}

// Sleep blocks the thread: the runtime's own timers round up to whole milliseconds
// while nothing else happens. A signal may end it early.
func Sleep(d time.Duration) {
	t := unix.NsecToTimespec(int64(d))
	_ = unix.Nanosleep(&t, nil)
}

// filesystems are common file systems of databases, by the number in statfs.
var filesystems = map[int64]string{
	unix.EXT4_SUPER_MAGIC: "ext4", unix.XFS_SUPER_MAGIC: "xfs", unix.BTRFS_SUPER_MAGIC: "btrfs",
	unix.TMPFS_MAGIC: InMemory, unix.OVERLAYFS_SUPER_MAGIC: "overlayfs", 0x2fc12fc1: "zfs",
}

// InMemory is the file system that loses everything with the machine.
const InMemory = "tmpfs"

// Filesystem returns the kind of file system that a directory is on.
func Filesystem(dir string) string {
	var s unix.Statfs_t
	if err := unix.Statfs(dir, &s); err != nil {
		return "unknown: " + err.Error()
	}
	if name := filesystems[int64(s.Type)]; name != "" {
		return name
	}
	return fmt.Sprintf("%#x", s.Type)
}
