package conformance

import (
	"os"
	"strconv"
	"strings"
	"time"
)

const (
	// busySlack is what a machine may add to a bound when its processors are wanted by more than
	// they can serve.
	busySlack = 10 * time.Second
	// busyShare is the share of the last ten seconds, in percent, in which something had to wait
	// for a processor of such a machine.
	busyShare = 20
)

// slack is what is added to a bound in time: nothing, unless the machine is busy, or does not
// tell. The root package asks for most of these bounds without a machine, under testing/synctest.
func slack() time.Duration {
	text, err := os.ReadFile("/proc/pressure/cpu")
	if err != nil {
		return busySlack
	}
	_, rest, _ := strings.Cut(string(text), "avg10=")
	share, _, _ := strings.Cut(rest, " ")
	if percent, err := strconv.ParseFloat(share, 64); err == nil && percent < busyShare {
		return 0
	}
	return busySlack
}
