package sqllock_test

import (
	"bytes"
	"sync"
)

// errorLog is what was logged. It is safe for concurrent use.
type errorLog struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (c *errorLog) Write(p []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.text.Write(p)
}

func (c *errorLog) String() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.text.String()
}
