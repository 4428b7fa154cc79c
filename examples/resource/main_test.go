package main

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/sqllock/sqllock"
	"github.com/sqllock/sqllock/examples/internal/demo"
)

// onServer runs a test on a server and a Locker of a client.
func onServer(t *testing.T, test func(s *server, locks *sqllock.Locker)) {
	t.Helper()
	e := demo.Example{Workers: 2, Run: func(_ context.Context, d *demo.Demo) (string, error) {
		checker, err := sqllock.NewSequencerChecker(d.Workers[0].Locks, nil)
		if err != nil {
			return "", err
		}
		test(&server{checker: checker}, d.Workers[1].Locks)
		return "", nil
	}}
	if _, err := e.Start(t.Context(), demo.Options{}, io.Discard); err != nil {
		t.Error(err)
	}
}

// put sends a request to write, and checks the answer.
func put(t *testing.T, s *server, value, sequencer string, want int) {
	t.Helper()
	req := httptest.NewRequestWithContext(t.Context(), http.MethodPut, "/register", strings.NewReader(value))
	req.Header.Set(header, sequencer)
	w := httptest.NewRecorder()
	s.handler().ServeHTTP(w, req)
	if w.Code != want {
		t.Errorf("PUT with %q: %d %s, want %d", sequencer, w.Code, w.Body, want)
	}
}

func lock(t *testing.T, locks *sqllock.Locker, name string) *sqllock.Lease {
	t.Helper()
	lease, err := locks.TryLock(t.Context(), name)
	if err != nil {
		t.Fatal(err)
	}
	return lease
}

func unlock(t *testing.T, lease *sqllock.Lease) {
	t.Helper()
	if err := lease.Unlock(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestOnlyTheHolderWrites(t *testing.T) {
	onServer(t, func(s *server, locks *sqllock.Locker) {
		former := lock(t, locks, lockName)
		unlock(t, former)
		put(t, s, "former", former.Sequencer().String(), http.StatusPreconditionFailed) // though no other client has written
		holder := lock(t, locks, lockName)
		put(t, s, "holder", holder.Sequencer().String(), http.StatusNoContent)
		put(t, s, "former", former.Sequencer().String(), http.StatusPreconditionFailed)
		future := holder.Sequencer()
		future.Token++
		put(t, s, "made up", future.String(), http.StatusPreconditionFailed)
		put(t, s, "no sequencer", "", http.StatusBadRequest)
		put(t, s, "malformed", holder.Sequencer().String()+"0x", http.StatusBadRequest)
		put(t, s, strings.Repeat("x", maxValue+1), holder.Sequencer().String(), http.StatusBadRequest)
		other := lock(t, locks, "another lock")
		put(t, s, "of another lock", other.Sequencer().String(), http.StatusForbidden)
		unlock(t, other)
		unlock(t, holder)
		reader, err := locks.TryRLock(t.Context(), lockName)
		if err != nil {
			t.Fatal(err)
		}
		put(t, s, "shared", reader.Sequencer().String(), http.StatusForbidden)
		unlock(t, reader)

		w := httptest.NewRecorder()
		s.handler().ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/register", nil))
		if w.Code != http.StatusOK || w.Body.String() != "holder" {
			t.Errorf("GET: %d %s", w.Code, w.Body)
		}
	})
}

func TestALateWriteIsRefusedThoughItWasCheckedInTime(t *testing.T) {
	s := &server{}
	if err := errors.Join(s.write("former", 5), s.write("holder", 7), s.write("holder", 7)); err != nil {
		t.Error(err)
	}
	if err := s.write("former", 5); !errors.Is(err, errLate) || s.value != "holder" {
		t.Errorf("%v, and the register says %q", err, s.value)
	}
}

func TestAWriteFailsWhileTheDatabaseIsUnreachable(t *testing.T) {
	onServer(t, func(s *server, locks *sqllock.Locker) {
		lease := lock(t, locks, lockName)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		req := httptest.NewRequestWithContext(ctx, http.MethodPut, "/register", strings.NewReader("x"))
		req.Header.Set(header, lease.Sequencer().String())
		w := httptest.NewRecorder()
		s.handler().ServeHTTP(w, req)
		if w.Code != http.StatusServiceUnavailable || s.value != "" {
			t.Errorf("%d %s, and the register says %q", w.Code, w.Body, s.value)
		}
		unlock(t, lease)
	})
}
