package busy_test

import (
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
