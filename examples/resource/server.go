package main

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"

	"github.com/sqllock/sqllock"
)

const (
	// lockName is the lock that protects the register.
	lockName = "register"
	// header carries the sequencer of the writer.
	header = "Sequencer"
	// maxValue is how many bytes the register holds.
	maxValue = 1 << 10
)

// A server keeps a register. Every client may read it; the holder of the lock may write.
type server struct {
	checker *sqllock.SequencerChecker // nil takes whatever comes

	mu    sync.Mutex
	value string
	token int64 // of the last write
}

func (s *server) handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /register", func(w http.ResponseWriter, _ *http.Request) {
		s.mu.Lock()
		defer s.mu.Unlock()
		_, _ = io.WriteString(w, s.value)
	})
	mux.HandleFunc("PUT /register", func(w http.ResponseWriter, r *http.Request) {
		if err := s.put(w, r); err != nil {
			http.Error(w, err.Error(), statusOf(err))
			return
		}
		w.WriteHeader(http.StatusNoContent)
	})
	return mux
}

var (
	errWrongLock = errors.New("the sequencer is not one of an exclusive lock of the register")
	errLate      = errors.New("the sequencer is not current")
	errTooLong   = fmt.Errorf("a value has %d bytes at most", maxValue)
)

// statusOf returns whether the client or the server caused the error. If the database
// does not answer, no write is allowed.
func statusOf(err error) int {
	switch {
	case errors.Is(err, sqllock.ErrInvalidSequencer), errors.Is(err, errTooLong):
		return http.StatusBadRequest
	case errors.Is(err, errWrongLock):
		return http.StatusForbidden
	case errors.Is(err, errLate):
		return http.StatusPreconditionFailed
	}
	return http.StatusServiceUnavailable
}

func (s *server) put(w http.ResponseWriter, r *http.Request) error {
	// Read the whole request before the check: the slow part comes first.
	value, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxValue))
	if err != nil {
		return fmt.Errorf("%w: %w", errTooLong, err)
	}
	var token int64
	if s.checker != nil {
		if token, err = s.check(r); err != nil {
			return err
		}
	}
	return s.write(string(value), token)
}

// check returns the token of a request with a current sequencer. The sequencer must be
// one of this lock, and of an exclusive holder: others can be current too.
func (s *server) check(r *http.Request) (token int64, err error) {
	seq, err := sqllock.ParseSequencer(r.Header.Get(header))
	if err != nil {
		return 0, err
	}
	if seq.Name != lockName || seq.Shared || seq.Permit {
		return 0, errWrongLock
	}
	state, err := s.checker.Check(r.Context(), seq)
	if err != nil {
		return 0, err
	}
	if state != sqllock.SequencerCurrent {
		return 0, fmt.Errorf("%w: it is %v", errLate, state)
	}
	return seq.Token, nil
}

// write refuses a token that is lower than one it has seen. The checker cannot do that:
// between its answer and the write any time may pass.
func (s *server) write(value string, token int64) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if token < s.token {
		return fmt.Errorf("%w: a later holder has written", errLate)
	}
	s.value, s.token = value, token
	return nil
}
