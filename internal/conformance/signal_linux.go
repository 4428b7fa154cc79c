package conformance

import "syscall"

// pauseSelf stops this process, on this very line: the signal is for this thread,
// and the runtime does not know that the thread blocks.
func pauseSelf() {
	_, _, _ = syscall.RawSyscall(syscall.SYS_TGKILL,
		uintptr(syscall.Getpid()), uintptr(syscall.Gettid()), uintptr(syscall.SIGSTOP))
}
