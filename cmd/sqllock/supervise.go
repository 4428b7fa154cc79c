package main

import (
	"context"
	"os"
	"time"

	"github.com/sqllock/sqllock"
)

// supervisor watches over a running CMD.
type supervisor struct {
	*runner
	lease *sqllock.Lease
	proc  *process
	sigs  *signals

	ended  bool
	code   int  // of CMD, when it has ended
	killed bool // by a signal, or after one that asked it to end
}

// news is what became of CMD.
type news struct {
	stopped bool // by its terminal; else it has ended
	reading bool // stopped because it wants to use the terminal
	code    int
	killed  bool
}

// supervise runs CMD to its end and returns its exit code. CMD does not outlive
// the lease for longer than the grace; after a loss the code means nothing.
func (r *runner) supervise(lease *sqllock.Lease, guard *guard, sigs *signals) (code int, err error) {
	if err := guard.ready(); err != nil {
		return 0, fail(exitSystem, "run: the watchdog does not come up: %w", err)
	}
	if err := context.Cause(lease.Context()); err != nil { // while we were paused, for example
		return 0, &failure{exitLost, err}
	}
	sigs.add(passing)
	proc, err := startProcess(r, guard, lease.Token())
	if err != nil {
		return 0, notRunnable(err)
	}
	defer proc.release()
	s := &supervisor{runner: r, lease: lease, proc: proc, sigs: sigs}
	s.watch()
	return s.code, nil
}

// watch returns when CMD has ended, by itself or because the lease is lost.
func (s *supervisor) watch() {
	for !s.ended {
		select {
		case n := <-s.proc.news:
			s.hear(n)
		case sig := <-s.sigs.ch:
			if !s.lost() { // else it must not be continued
				s.pass(sig)
			}
		case <-s.lease.Context().Done():
		}
		if s.lost() {
			s.end()
			return
		}
	}
	if s.killed {
		s.settle()
	}
}

func (s *supervisor) lost() bool { return s.lease.Context().Err() != nil }

func (s *supervisor) hear(n news) {
	switch {
	case !n.stopped:
		s.ended, s.code, s.killed = true, n.code, s.killed || n.killed
	case n.reading && s.proc.handOver():
		s.proc.resume()
	default:
		s.suspend(true)
	}
}

func (s *supervisor) pass(sig os.Signal) {
	s.killed = s.killed || asksToEnd(sig)
	s.proc.signal(sig)
	if isStop(sig) {
		s.suspend(false)
	}
}

// suspend stops us after CMD has stopped, as job control expects. The lease is
// not renewed meanwhile: if it is lost, CMD must not be continued.
func (s *supervisor) suspend(wholeGroup bool) {
	s.proc.takeBack()
	s.sigs.suspend(wholeGroup)
	if !s.lost() {
		s.proc.handOver()
		s.proc.resume()
	}
}

// end ends CMD, and all of its process group, because the lease is lost.
func (s *supervisor) end() {
	s.say("%v; ending the command", context.Cause(s.lease.Context()))
	s.proc.terminate()
	s.await(s.grace, func() bool {
		others, known := s.proc.others()
		return s.ended && known && !others
	})
	s.proc.kill()
	for !s.ended { // SIGKILL may take its time, but nothing is gained by going first
		s.hear(<-s.proc.news)
	}
}

// settle waits, for the grace at most, for the rest of the process group of a
// CMD that was told to end: "sh -c 'a; b'" is gone at once while a still cleans
// up, and the lock must not go before it.
func (s *supervisor) settle() {
	s.await(s.grace, func() bool {
		others, known := s.proc.others()
		return !known || !others || s.lost()
	})
	if s.lost() {
		s.end()
	}
}

// await passes signals and takes news until done, or until limit is over.
func (s *supervisor) await(limit time.Duration, done func() bool) {
	over := time.After(limit)
	for pause := time.Millisecond; !done(); pause = min(2*pause, 100*time.Millisecond) {
		select {
		case n := <-s.proc.news:
			if !n.stopped {
				s.hear(n)
			}
		case sig := <-s.sigs.ch:
			if !isStop(sig) {
				s.proc.signal(sig)
			}
		case <-time.After(pause):
		case <-over:
			return
		}
	}
}
