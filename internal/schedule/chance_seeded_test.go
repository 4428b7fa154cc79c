//go:build seeded

package schedule

import (
	"fmt"
	"testing"
	_ "unsafe"
)

// runtimeSeed is a variable of the runtime that scripts/schedules builds: while it is not 0, the
// order of maps, of cases of a select that are ready at once, and of timers of one time in a bubble
// is drawn from it.
//
//go:linkname runtimeSeed runtime.scheduleSeed
var runtimeSeed uint64

func seedRuntime(seed uint64) { runtimeSeed = seed }

const isSeeded = true

func TestTheSeedDecidesTheSchedule(t *testing.T) {
	oneAtATime(t)
	for s := uint64(1); s <= 500; s++ {
		if a, b := schedule(t, s), schedule(t, s); a.hash() != b.hash() {
			t.Errorf("seed %d: %s", s, firstDifference(a.lines, b.lines))
		}
	}
}

// firstDifference is that of two traces.
func firstDifference(a, b []string) string {
	for i := range min(len(a), len(b)) {
		if a[i] != b[i] {
			return fmt.Sprintf("line %d is once\n%s\nand once\n%s", i, a[i], b[i])
		}
	}
	return fmt.Sprintf("%d lines and %d", len(a), len(b))
}
