package busy

import (
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

// watchProcessors watches each processor that this process may use. A host can stop one processor
// of a virtual machine for seconds. The threads on it, of this process and of a server, do not run
// then, and the other threads do.
func watchProcessors() (watches []*watch) {
	var all unix.CPUSet
	if unix.SchedGetaffinity(0, &all) != nil {
		return nil
	}
	for cpu := range len(all) * 64 {
		if all.IsSet(cpu) {
			one := new(unix.CPUSet)
			one.Set(cpu)
			watches = append(watches, newWatch(func(look func()) { onProcessor(one, &all, look) }))
		}
	}
	return watches
}

// onProcessor calls look on a thread that runs on one processor only. Then it lets the thread run
// on all of them again, and unlocks it.
func onProcessor(one, all *unix.CPUSet, look func()) {
	runtime.LockOSThread()
	_ = runOn(one) // if it fails, look runs on another one
	look()
	if runOn(all) == nil {
		runtime.UnlockOSThread()
	} // else the thread ends with the goroutine
}

// runOn makes this thread run on some processors only. It waits for one of them to run. The runtime
// knows that, and does not wait for this thread meanwhile, as it would in unix.SchedSetaffinity.
func runOn(set *unix.CPUSet) error {
	_, _, err := unix.Syscall(unix.SYS_SCHED_SETAFFINITY, 0, unsafe.Sizeof(*set), uintptr(unsafe.Pointer(set)))
	if err != 0 {
		return err
	}
	return nil
}
