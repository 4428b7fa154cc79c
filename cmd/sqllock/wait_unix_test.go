//go:build unix

package main

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/sqllock/sqllock/internal/testdb"
)

func TestWaitEndsWhenTheNameIsFree(t *testing.T) {
	t.Parallel()
	onEachDB(t, func(t *testing.T, s *clientDB) {
		if r := s.run(t, "wait", "never"); r != (result{}) {
			t.Errorf("a name that was never locked: %+v", r)
		}
		const minHold = 10 * time.Second // the calls below must have begun before it is over
		before := time.Now()
		holding := s.shell(t, "@UP; sleep 60", "n", "--label", "the holder", "--min-hold", minHold.String())
		s.run(t, "wait", "--wait", "0", "n").want(t, exitNo, "", "the holder")
		s.run(t, "wait", "--wait", "300ms", "n").want(t, exitNo, "", "the holder")
		if r := s.run(t, "wait", "-q", "--wait", "300ms", "n"); r != (result{code: exitNo}) {
			t.Errorf("quietly: %+v", r)
		}
		waiting := s.start(t, "wait", "-v", "n")
		time.Sleep(200 * time.Millisecond)
		holding.end(t)
		r := waiting.wait()
		r.want(t, 0, "", "minimum hold or a lock delay")
		if took := time.Since(before); took < minHold-500*time.Millisecond || r.out != "" {
			t.Errorf("it ended after %v, when the name was locked for %v, and said %q", took, minHold, r.out)
		}
		s.run(t, "wait", "--wait", "0", "n").want(t, 0, "", "")
		s.put(t, "m", "l", time.Now().Add(2*time.Second)) // and crashes
		s.run(t, "wait", "--wait", "30s", "m").want(t, 0, "", "")
	})
}

func TestASignalEndsTheWaitForAFreeName(t *testing.T) {
	t.Parallel()
	s := newClientDB(t, testdb.New(t, testdb.SQLite))
	s.put(t, "n", "l", time.Now().Add(time.Hour))
	log, err := os.Create(filepath.Join(s.home, "log"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = log.Close() }()
	p := s.command(t, "wait", "-v", "n")
	p.Stderr = log
	p.start()
	eventually(t, "it waits", func() bool { return file(log.Name()) != "" })
	if r := p.end(t); r.code != 128+int(syscall.SIGTERM) {
		t.Errorf("%+v", r)
	}
}

func TestWaitEndsWhenASessionLetsGo(t *testing.T) {
	t.Parallel()
	onSessionModes(t, func(t *testing.T, s *clientDB, m mode) {
		if r := s.run(t, "wait", "--mode", string(m), "n"); r != (result{}) {
			t.Errorf("a name that was never locked: %+v", r)
		}
		holding := s.shell(t, "@UP; sleep 60", "--mode", string(m), "n", "--label", "the holder")
		s.listed(t, m, "n")
		s.run(t, "wait", "n").want(t, 0, "", "")
		s.run(t, "wait", "--mode", string(m), "--wait", "300ms", "n").want(t, exitNo, "", "the holder")
		waiting := s.start(t, "wait", "-v", "--mode", string(m), "n")
		time.Sleep(300 * time.Millisecond)
		holding.end(t)
		end, last := waiting.wait(), "n is released"
		if m == advisory && strings.Contains(end.err, "n is left behind") { // the server lets go a moment before that is written down
			last = "n is left behind"
		}
		end.want(t, 0, "", last)

		killed := s.shell(t, "@UP; sleep 60", "--mode", string(m), "m")
		s.listed(t, m, "m")
		waiting = s.start(t, "wait", "--mode", string(m), "--wait", "10s", "m")
		killed.signal(syscall.SIGKILL)
		killed.wait()
		waiting.wait().want(t, 0, "", "")
	})
}
