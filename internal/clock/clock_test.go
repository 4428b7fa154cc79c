package clock_test

import (
	"fmt"
	"os"
	"runtime"
	"testing"
	"time"

	"github.com/sqllock/sqllock/internal/clock"
)

func TestOnLinuxTheClockIsTheOneThatGoesOnDuringSuspend(t *testing.T) {
	if runtime.GOOS != "linux" {
		return // there is no such clock: see the documentation of System
	}
	before := clock.System{}.Now()
	text, err := os.ReadFile("/proc/uptime") // CLOCK_BOOTTIME, in hundredths of a second
	after := clock.System{}.Now()
	if err != nil {
		t.Fatal(err)
	}
	var seconds float64
	if _, err := fmt.Sscan(string(text), &seconds); err != nil {
		t.Fatal(err)
	}
	uptime := time.Duration(seconds * float64(time.Second))
	const hundredth = 10 * time.Millisecond
	if uptime < before-hundredth || uptime > after+hundredth {
		t.Errorf("the clock says %v, the uptime is %v", before, uptime)
	}
}

func TestAJumpIsMoreThanClocksDriftApart(t *testing.T) {
	const sec = time.Second
	for what, c := range map[string]struct {
		later, step, jump time.Duration
	}{
		"the clocks run alike":           {later: sec},
		"a step below the floor":         {later: sec, step: 90 * time.Millisecond},
		"a slew over a long time":        {later: 1000 * sec, step: sec},
		"a step forward":                 {later: sec, step: 2 * sec, jump: 2*sec - time.Millisecond},
		"a step backward":                {later: sec, step: -2 * sec, jump: -(2*sec - time.Millisecond)},
		"a step after a long time alone": {later: 1000 * sec, step: 2 * sec, jump: 2*sec - time.Millisecond},
	} {
		var d clock.JumpDetector
		observe := func(at, step time.Duration) (time.Duration, bool) {
			return d.Observe(at, at+time.Millisecond, (at + time.Hour + step).Microseconds())
		}
		if jump, jumped := observe(0, 0); jumped {
			t.Errorf("%s: the first look says that the clock jumped by %v", what, jump)
		}
		if jump, jumped := observe(c.later, c.step); jump != c.jump || jumped != (c.jump != 0) {
			t.Errorf("%s: a jump of %v, %t; want %v", what, jump, jumped, c.jump)
		}
	}
}
