//go:build unix && !linux

package conformance

import "syscall"

// pauseSelf stops this process now or soon.
func pauseSelf() { _ = syscall.Kill(syscall.Getpid(), syscall.SIGSTOP) }
