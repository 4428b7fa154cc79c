// Package busy says whether this machine is busy, for tests that bound a time.
package busy

import (
	"os"
	"strconv"
	"strings"
)

// share is the share of the last ten seconds, in percent, in which something had to wait for a
// processor of a busy machine.
const share = 20

// Now reports that the processors of this machine are wanted by more than they can serve, or that
// the machine does not tell.
func Now() bool {
	text, err := os.ReadFile("/proc/pressure/cpu")
	if err != nil {
		return true
	}
	_, rest, _ := strings.Cut(string(text), "avg10=")
	waited, _, _ := strings.Cut(rest, " ")
	percent, err := strconv.ParseFloat(waited, 64)
	return err != nil || percent >= share
}
