//go:build !unix

package supervise

// Watchdog does nothing where there are no process groups.
type Watchdog struct{}

// NewWatchdog returns a watchdog that does nothing.
func NewWatchdog(string) (*Watchdog, error) { return &Watchdog{}, nil }

// Ready returns nil.
func (*Watchdog) Ready() error { return nil }

// Close does nothing.
func (*Watchdog) Close() {}

// IsWatchdog returns false.
func IsWatchdog() bool { return false }

// WatchdogMain returns 0.
func WatchdogMain() int { return 0 }
