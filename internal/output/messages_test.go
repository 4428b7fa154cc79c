package output_test

import (
	"bufio"
	"io"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/sqllock/sqllock/internal/output"
)

func TestMessagesWaitForNobodyWhoDoesNotRead(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = r.Close() }()
	m := new(output.Messages)
	full := strings.Repeat("x", 1<<20) // more than a pipe holds
	began := time.Now()
	m.Write(w, full)
	if took := time.Since(began); took < output.WriteTimeout || took > 20*output.WriteTimeout {
		t.Errorf("a message that nobody reads took %v", took)
	}
	began = time.Now()
	for range 100 {
		m.Write(w, "dropped\n")
	}
	if took := time.Since(began); took > 20*output.WriteTimeout { // each that waits takes a second
		t.Errorf("a hundred more took %v", took)
	}
	if _, err := io.ReadFull(r, make([]byte, len(full))); err != nil {
		t.Fatal(err)
	}
	lines := make(chan string)
	go func() {
		line, _ := bufio.NewReader(r).ReadString('\n')
		lines <- line
	}()
	for { // until the writer has noticed
		m.Write(w, "read\n")
		select {
		case line := <-lines:
			if line != "read\n" {
				t.Errorf("after that %q was written", line)
			}
			if err := w.Close(); err != nil {
				t.Error(err)
			}
			return
		case <-time.After(10 * time.Millisecond):
		}
	}
}
