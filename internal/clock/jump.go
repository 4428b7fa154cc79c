package clock

import (
	"sync"
	"time"
)

// JumpDetector notices when the clock of the database is set. It compares that clock
// with the clock of this machine, which is never set. The zero value is ready for use,
// and safe for concurrent use.
type JumpDetector struct {
	mu        sync.Mutex
	seen      bool
	at        time.Duration // when the offset was measured
	low, high time.Duration // between which the offset lies
}

// maxSlew is the rate at which two sound clocks may drift apart. A smaller difference
// than jumpFloor is never called a jump.
const (
	maxSlew   = 0.001
	jumpFloor = 100 * time.Millisecond
)

// Observe notes that the database's clock said now (microseconds) at some moment between
// before and after. It reports whether that clock has jumped since the last call, and by
// how much at least.
func (d *JumpDetector) Observe(before, after time.Duration, now int64) (jump time.Duration, jumped bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	db := time.Duration(now) * time.Microsecond
	low, high := db-after, db-before
	slack := jumpFloor + time.Duration(float64(after-d.at)*maxSlew)
	seen, lastLow, lastHigh := d.seen, d.low, d.high
	d.seen, d.at, d.low, d.high = true, after, low, high
	switch {
	case !seen:
	case low > lastHigh+slack:
		return low - lastHigh, true
	case high < lastLow-slack:
		return high - lastLow, true
	}
	return 0, false
}
