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

	ended       bool
	code        int  // of CMD, when it has ended
	told        bool // by us, to end
	asked       bool // by a signal to us, to end, whether CMD was there to hear it or not
	killed      bool // by a signal
	interrupted bool // by the interrupt key
}

// news is what became of CMD.
type news struct {
	stopped bool // by its terminal; else it has ended
	reading bool // stopped because it wants to use the terminal
	code    int
	killed  bool // by a signal
	byKey   bool // which the interrupt key sends
}

// supervise runs CMD to its end and returns what its exit code says. CMD does not
// outlive the lease for longer than the grace; after a loss its code means
// nothing. It also reports whether a signal has asked for the end.
func (r *runner) supervise(lease *sqllock.Lease, guard *guard, sigs *signals) (asked bool, err error) {
	if err := guard.ready(); err != nil {
		return false, r.fail(exitSystem, "the watchdog does not come up: %w", err)
	}
	if err := context.Cause(lease.Context()); err != nil { // while we were paused, for example
		r.say("%v; the command was not run", err)
		return false, exit(exitLost)
	}
	sigs.add(passing)
	proc, err := startProcess(r, guard, lease.Token())
	if err != nil {
		return false, r.notRunnable(err)
	}
	defer proc.takeBack()
	s := &supervisor{runner: r, lease: lease, proc: proc, sigs: sigs}
	s.watch()
	asked = s.asked || s.interrupted
	if s.interrupted && !s.told {
		return asked, &failure{code: s.code, interrupted: true}
	}
	return asked, exit(s.code)
}

// watch returns when CMD has ended, by itself or because the lease is lost.
func (s *supervisor) watch() {
	for !s.ended {
		select {
		case n := <-s.proc.news:
			s.hear(n)
		case sig := <-s.sigs.ch:
			s.asked = s.asked || asksToEnd(sig)
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
	if s.killed || s.told {
		s.settle()
	}
}

func (s *supervisor) lost() bool { return s.lease.Context().Err() != nil }

func (s *supervisor) hear(n news) {
	switch {
	case !n.stopped:
		s.ended, s.code, s.killed, s.interrupted = true, n.code, n.killed, n.byKey
	case n.reading && s.proc.handOver():
		s.proc.resume()
	default:
		s.suspend(true)
	}
}

// hearEnd is hear when a stop does not matter any more.
func (s *supervisor) hearEnd(n news) {
	if !n.stopped {
		s.hear(n)
	}
}

func (s *supervisor) pass(sig os.Signal) {
	s.told = s.told || asksToEnd(sig)
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
		s.hearEnd(<-s.proc.news)
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
			s.hearEnd(n)
		case sig := <-s.sigs.ch:
			s.asked = s.asked || asksToEnd(sig)
			if !isStop(sig) {
				s.proc.signal(sig)
			}
		case <-time.After(pause):
		case <-over:
			return
		}
	}
}
