package output

import (
	"fmt"
	"strconv"
	"time"
)

// Time returns t in UTC as in RFC 3339, or "" for the zero time.
func Time(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format(time.RFC3339Nano)
}

// Duration returns d for people, with two units at most. A negative duration is 0.
func Duration(d time.Duration) string {
	const day = 24 * time.Hour
	d = max(d, 0)
	switch {
	case d < 10*time.Second:
		return strconv.FormatFloat(d.Truncate(100*time.Millisecond).Seconds(), 'f', 1, 64) + "s"
	case d < time.Hour:
		return d.Truncate(time.Second).String()
	case d < 2*day:
		return fmt.Sprintf("%dh%dm", d/time.Hour, d%time.Hour/time.Minute)
	}
	return fmt.Sprintf("%dd%dh", d/day, d%day/time.Hour)
}

// Relative returns how far t is from now, as in "in 5.0s" or "3m2s ago", or "-" for the zero
// time.
func Relative(t, now time.Time) string {
	switch d := t.Sub(now); {
	case t.IsZero():
		return "-"
	case d > 0:
		return "in " + Duration(d)
	default:
		return Duration(-d) + " ago"
	}
}
