package history_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/sqllock/sqllock/faults/internal/history"
)

func TestAPartialLineIsReadWhenItIsComplete(t *testing.T) {
	path := filepath.Join(t.TempDir(), "h.jsonl")
	w, err := history.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	w.Write(history.Event{T: 1, Op: history.Lock})
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	add(t, path, `{"t":2,"op":"un`)
	var r history.Reader
	wantTimes(t, &r, path, 1)
	wantTimes(t, &r, path)
	add(t, path, "lock\"}\n")
	wantTimes(t, &r, path, 2)
}

func TestCreateDoesNotWriteToAnExistingFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "h.jsonl")
	add(t, path, "{}\n")
	if _, err := history.Create(path); err == nil {
		t.Error("no error")
	}
}

func add(t *testing.T, path, text string) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteString(text); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
}

func wantTimes(t *testing.T, r *history.Reader, path string, times ...int64) {
	t.Helper()
	events, err := r.More(path)
	if err != nil || len(events) != len(times) {
		t.Fatalf("read %+v, %v; want the times %v", events, err, times)
	}
	for i, e := range events {
		if e.T != times[i] {
			t.Errorf("read %+v, want the times %v", events, times)
		}
	}
}
