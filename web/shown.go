package web

import (
	"strconv"
	"time"

	"github.com/sqllock/sqllock"
	"github.com/sqllock/sqllock/internal/output"
)

// shownHolder tells who holds a name, or held it last.
func shownHolder(i sqllock.Info) string {
	switch {
	case i.Readers == 1:
		return "1 reader"
	case i.Readers > 1:
		return strconv.Itoa(i.Readers) + " readers"
	case i.Permits > 0:
		return strconv.Itoa(i.PermitsHeld) + " of " + strconv.Itoa(i.Permits) + " permits"
	case i.Label != "":
		return output.Word(i.Label)
	}
	return "–"
}

// shownUntil tells when a name becomes free if nothing happens.
func shownUntil(i sqllock.Info) string {
	switch {
	case i.State == sqllock.StateHeld && i.Until.IsZero():
		return "its session ends"
	case i.Until.Before(i.KeptUntil):
		return output.Relative(i.KeptUntil, i.Now)
	}
	return output.Relative(i.Until, i.Now)
}

// shownValue is a value as a word, or its bytes as hexadecimal digits if it is no text.
func shownValue(b []byte) string {
	v := output.NewValue(b)
	if v.Hex != "" {
		return "0x" + v.Hex
	}
	return output.Word(v.Text)
}

// round makes the time between two changes readable.
func round(d time.Duration) time.Duration { return d.Round(time.Millisecond) }
