package main

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/sqllock/sqllock"
	"github.com/sqllock/sqllock/locktest"
)

// onServer returns a server, and a Locker of a client on the same database.
func onServer(t *testing.T) (*locktest.Database, *server, *sqllock.Locker) {
	t.Helper()
	d := locktest.NewDatabase(t)
	checker, err := sqllock.NewSequencerChecker(d.Locker(nil), nil)
	if err != nil {
		t.Fatal(err)
	}
	return d, &server{checker: checker}, d.Locker(nil)
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
	_, s, locks := onServer(t)
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
	d, s, locks := onServer(t)
	lease := lock(t, locks, lockName)
	d.Down()
	put(t, s, "x", lease.Sequencer().String(), http.StatusServiceUnavailable)
	d.Up()
	if s.value != "" {
		t.Errorf("the register says %q", s.value)
	}
	put(t, s, "y", lease.Sequencer().String(), http.StatusNoContent)
	unlock(t, lease)
}

func TestAPausedClientIsRefusedWhenAnotherHolds(t *testing.T) {
	d, s, paused := onServer(t)
	former := lock(t, paused, lockName)
	put(t, s, "former", former.Sequencer().String(), http.StatusNoContent)
	d.Expire(lockName)
	holder := lock(t, d.Locker(nil), lockName)
	if err := former.Context().Err(); err != nil {
		t.Errorf("the paused client knows: %v", err)
	}
	put(t, s, "holder", holder.Sequencer().String(), http.StatusNoContent)
	put(t, s, "former", former.Sequencer().String(), http.StatusPreconditionFailed)
	unlock(t, holder)
	if err := former.Unlock(t.Context()); !errors.Is(err, sqllock.ErrLost) {
		t.Errorf("the paused client unlocks: %v", err)
	}
}
