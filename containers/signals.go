package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"
)

// stops are the signals that end a run.
var stops = []os.Signal{os.Interrupt, syscall.SIGTERM, syscall.SIGHUP}

// interruption is the cause of a context that a signal has ended.
type interruption struct{ sig os.Signal }

func (i *interruption) Error() string { return fmt.Sprintf("ended by a signal: %v", i.sig) }

// code returns the exit code for the signal, as a shell reports it.
func (i *interruption) code() int {
	if n, ok := i.sig.(syscall.Signal); ok {
		return exitSignal + int(n)
	}
	return exitSignal
}

// interruptible returns a context that the first signal ends; later ones change
// nothing. stop ends the listening.
func interruptible() (ctx context.Context, stop func()) {
	ctx, cancel := context.WithCancelCause(context.Background())
	sigs := make(chan os.Signal, 1)
	signal.Notify(sigs, stops...)
	listening := make(chan struct{})
	go func() {
		defer close(listening)
		select {
		case sig := <-sigs:
			cancel(&interruption{sig})
		case <-ctx.Done():
		}
	}()
	return ctx, func() {
		signal.Stop(sigs)
		cancel(nil)
		<-listening
	}
}
