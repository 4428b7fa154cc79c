package history

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"sync"
)

// Writer appends to a file. It is safe for concurrent use.
type Writer struct {
	mu   sync.Mutex
	file *os.File
}

// Create makes the file of a process.
func Create(path string) (*Writer, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		return nil, err
	}
	return &Writer{file: f}, nil
}

// Write appends an event with one write to the kernel, which a kill of this process
// does not take back. It panics if it cannot: a history with a gap proves nothing.
func (w *Writer) Write(e Event) {
	line, err := json.Marshal(e)
	if err != nil {
		panic("bug: " + err.Error())
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if _, err := w.file.Write(append(line, '\n')); err != nil {
		panic("history: " + err.Error())
	}
}

// Close closes the file.
func (w *Writer) Close() error { return w.file.Close() }

// Reader reads files that are still being written. It is not safe for concurrent use.
type Reader struct {
	read map[string]int64
}

// More returns the events that were added to the files since the last call, file by
// file. A line that is not complete is left for the next call.
func (r *Reader) More(paths ...string) ([]Event, error) {
	if r.read == nil {
		r.read = make(map[string]int64)
	}
	var events []Event
	for _, path := range paths {
		more, n, err := parse(path, r.read[path])
		if err != nil {
			return nil, err
		}
		r.read[path] += n
		events = append(events, more...)
	}
	return events, nil
}

// parse returns the events of the complete lines from offset on, and their length.
func parse(path string, offset int64) (events []Event, n int64, err error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, 0, err
	}
	defer func() { _ = f.Close() }()
	if _, err := f.Seek(offset, io.SeekStart); err != nil {
		return nil, 0, err
	}
	text, err := io.ReadAll(f)
	if err != nil {
		return nil, 0, err
	}
	for {
		end := bytes.IndexByte(text[n:], '\n')
		if end < 0 {
			return events, n, nil
		}
		var e Event
		if err := json.Unmarshal(text[n:n+int64(end)], &e); err != nil {
			return nil, 0, fmt.Errorf("%s: %w", path, err)
		}
		events = append(events, e)
		n += int64(end) + 1
	}
}
