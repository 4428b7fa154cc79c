// Package leak finds goroutines that outlive the code which started them.
package leak

import (
	"fmt"
	"runtime"
	"slices"
	"strings"
	"time"
)

// timeout is how long Check waits. When a network connection or a sql.DB is closed, its
// goroutines end a little later.
var timeout = 5 * time.Second

// Check waits a few seconds for all goroutines to end, other than its own and
// those of the runtime and of package testing, and returns an error with the
// stacks of those that are left.
//
// Call it when everything was closed and no test is running, that is in TestMain
// after m.Run.
func Check() error {
	deadline := time.Now().Add(timeout)
	for wait := time.Millisecond; ; wait = min(2*wait, 100*time.Millisecond) {
		left := leaked()
		if len(left) == 0 {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("leak: %d goroutines left after %v:\n\n%s",
				len(left), timeout, strings.Join(left, "\n\n"))
		}
		time.Sleep(wait)
	}
}

// leaked returns the stacks of the goroutines that should have ended.
func leaked() []string {
	all := strings.Split(strings.TrimSpace(stacks()), "\n\n")
	var left []string
	for _, stack := range all[1:] { // the first is the caller's own
		if !isExpected(stack) {
			left = append(left, stack)
		}
	}
	return left
}

// stacks returns the stack traces of all goroutines, the caller's first.
func stacks() string {
	for size := 64 << 10; ; size *= 2 {
		buf := make([]byte, size)
		if n := runtime.Stack(buf, true); n < size {
			return string(buf[:n])
		}
	}
}

// background are functions of goroutines that never end.
var background = []string{
	"os/signal.loop",          // runs for ever after the first signal.Notify
	"os/signal.signal_recv",   // the same, as older runtimes name it
	"runtime.ensureSigM",      // the same
	"runtime.ReadTrace",       // go test -trace
	"testing.(*M).startAlarm", // go test -timeout
	"testing.tRunner",         // a test that called Check, seen from its helper
	"testing.runTests",        // waits for that test
	"testing.(*T).Run",        // the same
	"testing.(*M).Run",        // the same
	"testing.(*F).Fuzz",       // workers of go test -fuzz
}

// isExpected reports whether a goroutine may remain. The trace has the name of a function
// at the start of a line, or after "created by ".
func isExpected(stack string) bool {
	for line := range strings.Lines(stack) {
		line = strings.TrimPrefix(line, "created by ")
		if slices.ContainsFunc(background, func(name string) bool { return isCall(line, name) }) {
			return true
		}
	}
	return false
}

// isCall reports whether a line of a trace is a call of the function name, or of a
// closure in it. A longer name with the same beginning does not count.
func isCall(line, name string) bool {
	rest, ok := strings.CutPrefix(line, name)
	return ok && (rest == "" || strings.ContainsAny(rest[:1], "( \n."))
}
