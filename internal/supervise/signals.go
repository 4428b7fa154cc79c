package supervise

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"syscall"
)

// Signals receives the signals that this process gets. One goroutine at a time may use it.
type Signals struct {
	ch chan os.Signal
}

// CatchForCommand catches the signals that would end this process while it looks after a
// command. It leaves alone the signals that this process was started to ignore, as by nohup.
func CatchForCommand() *Signals {
	s := CatchSignals()
	// If nobody reads our messages any more, the next one must not end us and the command.
	// SIGPIPE is caught, not ignored, because the command would inherit that.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)
	return s
}

// CatchSignals is CatchForCommand for a process that looks after no command.
func CatchSignals() *Signals {
	s := &Signals{make(chan os.Signal, 16)}
	s.add(ending)
	return s
}

func (s *Signals) add(list []os.Signal) {
	for _, sig := range list {
		if !signal.Ignored(sig) {
			signal.Notify(s.ch, sig)
		}
	}
}

// Stop catches no more signals.
func (s *Signals) Stop() { signal.Stop(s.ch) }

// Reset goes back, after a command, to the signals that would end this process. At no moment
// does one of them end it. Reset returns one of them that came and was not read, or nil.
func (s *Signals) Reset() (came os.Signal) {
	next := CatchSignals()
	s.Stop()
	for {
		select {
		case sig := <-s.ch:
			if slices.Contains(ending, sig) {
				came = sig
			}
		default:
			*s = *next
			return came
		}
	}
}

// Context returns a context that the first signal cancels, with a [SignalError] as its cause.
// After release, s can be read again.
func (s *Signals) Context(ctx context.Context) (_ context.Context, release func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		select {
		case sig := <-s.ch:
			cancel(SignalError{sig})
		case <-stop:
		}
	}()
	return ctx, func() {
		close(stop)
		<-stopped
		cancel(context.Canceled)
	}
}

// SignalError says that a signal ended something.
type SignalError struct{ os.Signal }

func (s SignalError) Error() string { return fmt.Sprintf("ended by signal: %v", s.Signal) }

// Code returns the exit code with which a shell reports that the signal ended a process.
func (s SignalError) Code() int {
	n, _ := s.Signal.(syscall.Signal)
	return CodeSignal + int(n)
}

// Suspend stops the process group of this process, as the stop key of a terminal does, and
// returns when it is continued. It returns at once if nobody would continue it.
func Suspend() { (*Signals)(nil).suspend(true) }
