package supervisor

import "golang.org/x/sys/unix"

// hasMemory reports whether a directory is in memory and has room.
func hasMemory(dir string) bool {
	var fs unix.Statfs_t
	return unix.Statfs(dir, &fs) == nil && fs.Type == unix.TMPFS_MAGIC && fs.Bavail*uint64(fs.Bsize) >= minMemory && unix.Access(dir, unix.W_OK) == nil
}
