// Package supervise runs a command in a process group of its own and ends all of that group
// when a context ends. It passes signals on, does job control on a terminal, and kills the
// group even if the calling process is killed.
//
// On systems other than Unix there are no process groups. There it ends the command alone.
package supervise

import (
	"context"
	"os"
	"time"
)

// Exit codes of a command, apart from its own.
const (
	CodeOSError = 71  // the system cannot tell how the command ended (EX_OSERR)
	CodeSignal  = 128 // plus n: signal n ended the command
)

// Command is a command to run.
type Command struct {
	Path  string        // the program
	Args  []string      // the words of the command; the first is its name
	Env   []string      // as KEY=value
	Grace time.Duration // from SIGTERM to SIGKILL, when the context has ended

	Stdin, Stdout, Stderr *os.File

	// Ending is called when the context has ended and the command was told to end.
	Ending func()
}

// Result tells how a command ended.
type Result struct {
	Code         int  // exit code of the command, or CodeSignal+n, or CodeOSError
	EndRequested bool // this process got a signal that asks to end
	Interrupted  bool // the interrupt key ended the command, and no other process asked for that
}

// supervisor watches a running command.
type supervisor struct {
	*Command
	ctx  context.Context
	proc *process
	sigs *Signals

	ended        bool
	code         int  // of the command, when it has ended
	endRequested bool // a signal to us asked to end, whether or not the command got it
	passedOn     bool // and we passed it on to the command
	keyPassedOn  bool // and the interrupt key sent it
	killed       bool // a signal ended the command
	interrupted  bool // the interrupt key did
}

// event is a change of the state of a command.
type event struct {
	stopped bool // its terminal stopped it; otherwise it has ended
	reading bool // it stopped because it wants to use the terminal
	code    int
	killed  bool // a signal ended it
	byKey   bool // and that signal came from the interrupt key
}

// Run runs a command and returns when it has ended. When ctx ends, Run asks the process group
// to end and kills it after c.Grace. The result says nothing about the work of the command
// then. The error is that of starting the command.
//
// Run reads sigs and passes the signals on to the process group of the command.
func (w *Watchdog) Run(ctx context.Context, c *Command, sigs *Signals) (Result, error) {
	sigs.add(forwarded)
	proc, err := startProcess(c, w)
	if err != nil {
		return Result{}, err
	}
	defer proc.takeTerminal()
	s := &supervisor{Command: c, ctx: ctx, proc: proc, sigs: sigs}
	s.watch()
	return Result{Code: s.code, EndRequested: s.endRequested || s.interrupted, Interrupted: s.interrupted && (!s.passedOn || s.keyPassedOn)}, nil
}

// watch returns when the command has ended, by itself or because the context has.
func (s *supervisor) watch() {
	for !s.ended {
		select {
		case e := <-s.proc.events:
			s.handle(e)
		case sig := <-s.sigs.ch:
			s.endRequested = s.endRequested || isEndSignal(sig)
			if !s.over() { // after the end the command must not be continued
				s.passOn(sig)
			}
		case <-s.ctx.Done():
		}
		if s.over() {
			s.end()
			return
		}
	}
	if s.killed || s.passedOn {
		s.waitForGroup()
	}
}

// over reads the context itself: after a pause its timer may be late.
func (s *supervisor) over() bool { return s.ctx.Err() != nil }

func (s *supervisor) handle(e event) {
	switch {
	case !e.stopped:
		s.ended, s.code, s.killed, s.interrupted = true, e.code, e.killed, e.byKey
	case e.reading && s.proc.giveTerminal():
		s.proc.resume()
	default:
		s.suspend(true)
	}
}

// handleEnd is handle for when a stop does not matter any more.
func (s *supervisor) handleEnd(e event) {
	if !e.stopped {
		s.handle(e)
	}
}

func (s *supervisor) passOn(sig os.Signal) {
	s.passedOn = s.passedOn || isEndSignal(sig)
	s.keyPassedOn = s.keyPassedOn || sig == os.Interrupt && s.proc.sharesKeys()
	s.proc.signal(sig)
	if isStop(sig) && !s.proc.reportsStops() { // else its stop suspends us
		s.suspend(false)
	}
}

// suspend stops this process after the command has stopped, as job control expects. The
// context can end meanwhile: then the command must not be continued.
func (s *supervisor) suspend(wholeGroup bool) {
	s.proc.takeTerminal()
	s.sigs.suspend(wholeGroup)
	if !s.over() {
		s.proc.giveTerminalEarly()
		s.proc.resume()
	}
}

// end ends the process group of the command, because the context has ended.
func (s *supervisor) end() {
	began := time.Now()
	s.proc.terminate()
	s.Ending()
	s.waitUntil(s.Grace-time.Since(began), func() bool {
		alive, known := s.proc.groupAlive()
		return s.ended && known && !alive
	})
	s.proc.kill()
	for !s.ended { // SIGKILL can take its time; we must not end before the command
		s.handleEnd(<-s.proc.events)
	}
}

// waitForGroup waits, no longer than Grace, for the rest of the process group after a signal
// has ended the command. With "sh -c 'a; b'" the shell ends at once, while a still cleans up.
func (s *supervisor) waitForGroup() {
	s.waitUntil(s.Grace, func() bool {
		alive, known := s.proc.groupAlive()
		return !known || !alive || s.over()
	})
	if s.over() {
		s.end()
	}
}

// waitUntil passes signals on and handles events until done, or until limit is over.
func (s *supervisor) waitUntil(limit time.Duration, done func() bool) {
	over := time.After(limit)
	for pause := time.Millisecond; !done(); pause = min(2*pause, 100*time.Millisecond) {
		select {
		case e := <-s.proc.events:
			s.handleEnd(e)
		case sig := <-s.sigs.ch:
			s.endRequested = s.endRequested || isEndSignal(sig)
			if !isStop(sig) {
				s.proc.signal(sig)
			}
		case <-time.After(pause):
		case <-over:
			return
		}
	}
}
