package warden

import "golang.org/x/sys/unix"

// roomy reports whether a directory is in memory and has room.
func roomy(dir string) bool {
	var fs unix.Statfs_t
	return unix.Statfs(dir, &fs) == nil && fs.Type == unix.TMPFS_MAGIC && fs.Bavail*uint64(fs.Bsize) >= room && unix.Access(dir, unix.W_OK) == nil
}
