package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"syscall"
)

// signals are the signals that this process gets.
type signals struct {
	ch chan os.Signal
}

// listen catches the signals that would end this process. What it was started to
// ignore, as by nohup, it goes on ignoring.
func listen() *signals {
	s := listenForEnd()
	// With nobody left to read our messages, the next one must not end us and CMD.
	// It is caught, not ignored, because CMD would inherit that.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)
	return s
}

// listenForEnd is listen for who has no command to look after.
func listenForEnd() *signals {
	s := &signals{make(chan os.Signal, 16)}
	s.add(ending)
	return s
}

func (s *signals) add(list []os.Signal) {
	for _, sig := range list {
		if !signal.Ignored(sig) {
			signal.Notify(s.ch, sig)
		}
	}
}

func (s *signals) stop() { signal.Stop(s.ch) }

// renew goes back to the signals that would end this process, without a moment in which
// one would. It returns one of them that came and was not read.
func (s *signals) renew() (came os.Signal) {
	next := listenForEnd()
	s.stop()
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

// interrupt returns a context that the first signal ends, with a cause of type
// signalled. After release the signals are left for somebody else to read.
func (s *signals) interrupt(ctx context.Context) (_ context.Context, release func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		select {
		case sig := <-s.ch:
			cancel(signalled{sig})
		case <-stop:
		}
	}()
	return ctx, func() {
		close(stop)
		<-stopped
		cancel(context.Canceled)
	}
}

// signalled is the signal that ended something.
type signalled struct{ os.Signal }

func (s signalled) Error() string { return fmt.Sprintf("ended by signal: %v", s.Signal) }

// code is the exit code of a process that the signal has ended, as a shell tells
// it.
func (s signalled) code() int {
	n, _ := s.Signal.(syscall.Signal)
	return exitSignal + int(n)
}
