package output_test

import (
	"testing"
	"time"

	"github.com/sqllock/sqllock/internal/output"
)

func TestDurationsAreShort(t *testing.T) {
	t.Parallel()
	for d, want := range map[time.Duration]string{
		-time.Second: "0.0s", 0: "0.0s", 1234 * time.Millisecond: "1.2s", 9999 * time.Millisecond: "9.9s", 10 * time.Second: "10s",
		192*time.Second + 700*time.Millisecond: "3m12s", 59*time.Minute + 59*time.Second: "59m59s", time.Hour: "1h0m", 47 * time.Hour: "47h0m",
		51*time.Hour + 10*time.Minute: "2d3h", 1000 * 24 * time.Hour: "1000d0h",
	} {
		if got := output.Duration(d); got != want {
			t.Errorf("%v is %s, want %s", d, got, want)
		}
	}
	now := time.Now()
	for want, at := range map[string]time.Time{"in 20s": now.Add(20 * time.Second), "20s ago": now.Add(-20 * time.Second), "0.0s ago": now, "-": {}} {
		if got := output.Relative(at, now); got != want {
			t.Errorf("%v is %s, want %s", at, got, want)
		}
	}
}
