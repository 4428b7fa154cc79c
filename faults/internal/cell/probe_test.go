//go:build linux

package cell

import (
	"runtime"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// processors are those on which this thread may run, and one of them.
func processors(t *testing.T) (all unix.CPUSet, one int) {
	t.Helper()
	if err := unix.SchedGetaffinity(0, &all); err != nil {
		t.Fatal(err)
	}
	for !all.IsSet(one) {
		one++
	}
	return all, one
}

func TestAWatchedProcessorGivesItsThreadBack(t *testing.T) {
	runtime.LockOSThread() // so that the thread is this one before and after
	defer runtime.UnlockOSThread()
	var during, after unix.CPUSet
	all, cpu := processors(t)
	onProcessor(cpu, &all, func() {
		if err := unix.SchedGetaffinity(0, &during); err != nil {
			t.Error(err)
		}
	})
	if err := unix.SchedGetaffinity(0, &after); err != nil {
		t.Error(err)
	}
	if during.Count() != 1 || !during.IsSet(cpu) || after != all {
		t.Errorf("processors %v, then %v, then %v", all, during, after)
	}
}

func TestAThreadThatHasWatchedAProcessorDoesNotEnd(t *testing.T) {
	all, cpu := processors(t)
	tid := 0
	done := make(chan struct{})
	go func() {
		defer close(done)
		onProcessor(cpu, &all, func() { tid = unix.Gettid() })
	}()
	<-done
	time.Sleep(200 * time.Millisecond) // it would end by then
	if err := unix.Tgkill(unix.Getpid(), tid, 0); err != nil {
		t.Errorf("the thread has ended: %v", err)
	}
}
