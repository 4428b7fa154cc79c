package conformance

import (
	"time"

	"github.com/sqllock/sqllock/internal/busy"
)

// slack is what is added to a bound in time: nothing, unless the machine is busy or was paused. Call
// it when the time is over: a pause counts from its end. The root package asks for most of these
// bounds without a machine, under testing/synctest.
func slack() time.Duration {
	if busy.Now() {
		return 10 * time.Second
	}
	return 0
}
