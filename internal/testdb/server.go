package testdb

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"
)

// Server is a server for one test, with a database on it. The test can kill, pause and
// configure it. Its address stays the same after a restart. It is not safe for concurrent
// use, except for the methods of its Database.
//
// Its methods fail and end the test if the server does not obey.
type Server struct {
	*Database
	t testing.TB
	i *instance
}

// StartServer starts a server with its default configuration and extra arguments
// ("-c", "fsync=off" for Postgres, "--read-only" for MariaDB), and removes it when
// the test has ended. It fails the test if the engine is not in [Startable].
func StartServer(t testing.TB, engine string, extraArgs ...string) *Server {
	t.Helper()
	return startServer(t, engine, false, extraArgs)
}

// StartForeign is [StartServer] for a server that has an identity of its own: the files of the
// others are copies, and so these have the same Postgres system identifier.
func StartForeign(t testing.TB, engine string, extraArgs ...string) *Server {
	t.Helper()
	return startServer(t, engine, true, extraArgs)
}

func startServer(t testing.TB, engine string, own bool, extraArgs []string) *Server {
	t.Helper()
	e := mustEngine(t, engine)
	if reason := unstartableReason(e); reason != "" {
		t.Fatalf("testdb: cannot start %s: %s", engine, reason)
	}
	i, err := launch(e, own, extraArgs)
	if err != nil {
		t.Fatalf("testdb: %v", err)
	}
	s := &Server{t: t, i: i, Database: &Database{engine: engine, dialect: e, base: i.dsn()}}
	t.Cleanup(s.remove)
	if s.name, err = home(i); err != nil {
		t.Fatalf("testdb: %v", err)
	}
	return s
}

// home returns the database for the tests on a server of their own.
func home(i *instance) (string, error) {
	db, err := i.engine.open(i.dsn())
	if err != nil {
		return "", err
	}
	defer db.Close()
	ctx, cancel := context.WithTimeout(context.Background(), stepTimeout)
	defer cancel()
	return i.engine.home(ctx, db)
}

// remove ends the server. If the test failed, it logs the output of the server.
func (s *Server) remove() {
	if s.t.Failed() {
		s.t.Logf("the log of %s ends:\n%s", s.engine, s.i.logTail())
	}
	if err := s.i.remove(); err != nil {
		s.t.Errorf("testdb: remove %s: %v", s.engine, err)
	}
}

// Kill ends the server and all of its processes with SIGKILL. This resembles a crash of
// the machine, except that writes in the disk cache are not lost. Kill returns when the
// processes are gone.
func (s *Server) Kill() {
	s.t.Helper()
	s.must("kill", s.i.supervisor.Kill(s.i.pid))
}

// Stop ends the server in order and returns when it has ended. Transactions in
// progress are rolled back.
func (s *Server) Stop() {
	s.t.Helper()
	s.must("stop", s.i.engine.stop(s.i.supervisor, s.i.pid))
	ended, _, err := s.i.supervisor.Wait(s.i.pid, stepTimeout)
	if err == nil && !ended {
		err = fmt.Errorf("it still runs after %v", stepTimeout)
	}
	s.must("stop", err)
}

// Restart starts the server after Kill or Stop, or stops and starts it, on the
// same files and the same address, and returns when it takes connections.
func (s *Server) Restart() {
	s.t.Helper()
	ended, _, err := s.i.supervisor.Wait(s.i.pid, 0)
	s.must("restart", err)
	if !ended {
		s.Stop()
	}
	for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(100 * time.Millisecond) {
		err := s.i.boot()
		// The port may be in use by a client for a short time.
		if !errors.Is(err, errPortTaken) || time.Now().After(deadline) {
			s.must("restart", err)
			return
		}
	}
}

// Pause stops the server and all of its processes with SIGSTOP: connections stay
// open and nothing answers.
func (s *Server) Pause() {
	s.t.Helper()
	s.must("pause", s.i.supervisor.Pause(s.i.pid))
}

// Resume ends a Pause.
func (s *Server) Resume() {
	s.t.Helper()
	s.must("resume", s.i.supervisor.Resume(s.i.pid))
}

func (s *Server) must(do string, err error) {
	s.t.Helper()
	if err != nil {
		s.t.Fatalf("testdb: %s %s: %v", do, s.engine, err)
	}
}
