// Package busy says whether this machine is busy, for tests that bound a time.
package busy

import (
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// share is the share of the last ten seconds, in percent, in which something had to wait for a
// processor of a busy machine.
const share = 20

const (
	// tick is the pause between two looks at the clock.
	tick = 50 * time.Millisecond
	// longest is how long this process, or a processor, may not have run on a machine that is not
	// busy.
	longest = 200 * time.Millisecond
	// recent is for how long a longer pause counts: it is longer than what a test measures.
	recent = 30 * time.Second
)

// Now reports that the processors of this machine are wanted by more than they can serve, that this
// process, or a processor, has not run for a while within the last 30 seconds, or that the machine
// does not tell. One pause of a second is too little for the average of the machine. A virtual
// machine does not count the time for which it was paused, or one of its processors was.
func Now() bool { return process.paused(true) || processorPaused() || overloaded() }

func overloaded() bool {
	text, err := os.ReadFile("/proc/pressure/cpu")
	if err != nil {
		return true
	}
	_, rest, _ := strings.Cut(string(text), "avg10=")
	waited, _, _ := strings.Cut(rest, " ")
	percent, err := strconv.ParseFloat(waited, 64)
	return err != nil || percent >= share
}

// process watches this process from its start: who asks does so when the pause is over. processors
// watch the processors, from when somebody asks first.
var (
	process    = newWatch(func(look func()) { look() })
	processors = sync.OnceValue(watchProcessors)
)

// processorPaused reports that a processor does not run, or has not for a while recently.
func processorPaused() bool {
	return slices.ContainsFunc(processors(), func(w *watch) bool { return w.paused(false) })
}

// watch notices when something does not run for a while. A timer calls it, and no goroutine waits:
// tests count goroutines.
type watch struct {
	timer *time.Timer

	mu   sync.Mutex
	ran  time.Time // when what is watched looked at the clock last
	last time.Time // the end of the last pause that was too long, as far as it is over
}

// newWatch begins a watch. on calls look on what is watched.
func newWatch(on func(look func())) *watch {
	w := &watch{ran: time.Now()}
	w.mu.Lock()
	defer w.mu.Unlock()
	look := func() { w.paused(true) } // waits until the timer is there
	w.timer = time.AfterFunc(tick, func() {
		on(look)
		w.timer.Reset(tick)
	})
	return w
}

// paused looks at the clock, and reports a pause that was too long and is recent, or is not over.
// runs says that what is watched looks.
func (w *watch) paused(runs bool) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	now := time.Now()
	if now.Sub(w.ran) > longest {
		w.last = now
	}
	if runs {
		w.ran = now
	}
	return !w.last.IsZero() && now.Sub(w.last) < recent
}
