package busy_test

import (
	"runtime"
	"testing"
	"time"

	"github.com/sqllock/sqllock/internal/busy"
)

func TestAPauseOfTheProcessIsNoticed(t *testing.T) {
	if !busy.PausedAfter(300 * time.Millisecond) {
		t.Error("a pause of 300ms was not noticed")
	}
	if busy.PausedAfter(-time.Hour) { // no machine is as slow
		t.Error("a pause was noticed that was none")
	}
}

func TestAProcessorThatIsAwayIsNoticed(t *testing.T) {
	if !busy.AwayFor(300 * time.Millisecond) {
		t.Error("a pause of 300ms was not noticed")
	}
	if busy.AwayFor(-time.Hour) {
		t.Error("a pause was noticed that was none")
	}
}

func TestEachProcessorIsWatched(t *testing.T) {
	began := time.Now()
	for end := began.Add(30 * time.Second); ; time.Sleep(time.Millisecond) {
		watched, ran := busy.Processors(began)
		if runtime.GOOS == "linux" && watched != runtime.NumCPU() {
			t.Fatalf("%d processors are watched, of %d", watched, runtime.NumCPU())
		}
		if ran == watched {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("the watches of %d processors do not run, of %d", watched-ran, watched)
		}
	}
}
