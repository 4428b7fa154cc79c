// Package platform has the functions of the operating system that the benchmarks need. It
// is made for Linux. On other systems it compiles and measures less precisely.
package platform

import (
	"fmt"
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
