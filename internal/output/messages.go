package output

import (
	"os"
	"sync"
	"sync/atomic"
	"time"
)

// WriteTimeout is for how long a message waits for whoever reads it.
const WriteTimeout = time.Second

// Messages writes texts to a file that perhaps nobody reads: a pipe that is full, a terminal that
// was stopped by a key. The zero value is ready. It is safe for concurrent use.
type Messages struct {
	writing sync.Mutex
	stalled atomic.Bool
}

// Write writes a text. If that takes longer than [WriteTimeout], Write returns: the text is written
// as soon as the file takes it, and until then all other texts are dropped.
func (m *Messages) Write(f *os.File, text string) {
	if m.stalled.Load() {
		return
	}
	done := make(chan struct{})
	go func() {
		m.writing.Lock()
		_, _ = f.WriteString(text)
		m.writing.Unlock()
		close(done)
		m.stalled.Store(false)
	}()
	select {
	case <-done:
		return
	case <-time.After(WriteTimeout):
	}
	m.stalled.Store(true)
	select {
	case <-done: // it was written at this very moment
		m.stalled.Store(false)
	default:
	}
}
