//go:build !linux

package lockpg_test

import "syscall"

// child is for Linux: elsewhere nobody runs the tests as root.
func child(*[2]uint32) *syscall.SysProcAttr { return nil }
