package main

import (
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestWithoutHistoriesThereIsNothingToExplain(t *testing.T) {
	empty := t.TempDir()
	for _, dirs := range [][]string{nil, {empty}, {filepath.Join(empty, "mistyped")}} {
		if ok, err := run(io.Discard, dirs); ok || err == nil {
			t.Errorf("run(%q): %v, %v", dirs, ok, err)
		}
	}
}

func TestAHistoryWithoutOperationsIsExplained(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "c1.1.jsonl"), []byte(`{"t":1,"op":"open"}`+"\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	if ok, err := run(&out, []string{dir}); !ok || err != nil || !strings.Contains(out.String(), "0 not explained") {
		t.Errorf("%v, %v: %s", ok, err, &out)
	}
}
