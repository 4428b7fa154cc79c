//go:build unix && !linux

package sqllocktest

import "syscall"

// pauseSelf stops this process now or soon.
func pauseSelf() { _ = syscall.Kill(syscall.Getpid(), syscall.SIGSTOP) }
