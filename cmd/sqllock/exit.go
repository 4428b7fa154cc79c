package main

import "fmt"

// Exit codes of our own, those of sysexits.h where it has a fitting one. Others
// are the command's.
const (
	exitHeld        = 1   // unless -E says otherwise
	exitNo          = 1   // what was asked for is not so: not held, not known, not in order
	exitUsage       = 64  // EX_USAGE
	exitUnavailable = 69  // EX_UNAVAILABLE: the database
	exitSystem      = 71  // EX_OSERR
	exitCannotWrite = 73  // EX_CANTCREAT: a file, or stdout
	exitLost        = 75  // EX_TEMPFAIL
	exitNotRunnable = 126 // as in a shell
	exitNotFound    = 127 // as in a shell
	exitSignal      = 128 // plus the number of the signal
)

// failure is an error with the exit code that it leads to. Without an err there
// is nothing to say.
type failure struct {
	code        int
	err         error
	interrupted bool // by the interrupt key, which went to CMD alone
}

func (f *failure) Error() string {
	if f.err == nil {
		return fmt.Sprintf("exit code %d", f.code)
	}
	return f.err.Error()
}

func (f *failure) Unwrap() error { return f.err }

// fail is a failure with a message.
func fail(code int, format string, args ...any) error {
	return &failure{code: code, err: fmt.Errorf(format, args...)}
}

// exit is a failure without one: somebody else has said it, or the code does.
func exit(code int) error {
	if code == 0 {
		return nil
	}
	return &failure{code: code}
}
