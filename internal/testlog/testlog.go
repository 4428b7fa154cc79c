// Package testlog keeps what is written during a test, so that the test can read it meanwhile.
package testlog

import (
	"bytes"
	"sync"
)

// Text is what was written. It is safe for concurrent use.
type Text struct {
	mu   sync.Mutex
	text bytes.Buffer
}

// Write implements [io.Writer].
func (t *Text) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.text.Write(p)
}

// String returns what was written so far.
func (t *Text) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.text.String()
}
