package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
)

func TestSplitNames(t *testing.T) {
	for name, want := range map[string][]string{
		"openTTLPool":       {"open", "ttl", "pool"},
		"max_in_flight":     {"max", "in", "flight"},
		"a lock's 2 terms":  {"a", "lock", "s", "terms"},
		"process_unix_test": {"process", "unix", "test"},
	} {
		if got := split(name); !slices.Equal(got, want) {
			t.Errorf("%q is %q, want %q", name, got, want)
		}
	}
}

var repository = map[string]string{
	"driver/driver.go": "package driver\ntype Conn interface { Undo() }\n",
	"errand.go": `package sqllock

// An errand in a comment is not a name.
type lane struct{ seats int }

type releasing struct{}

func (releasing) Undo() { told := 1; _ = told }

func nudge(patience int) {
	for heir := range patience {
		_ = heir
	}
}
`,
	"lock_test.go": `package sqllock

func TestTheCrowdWaitsForItsTurn(t *testing.T) {
	t.Run("a lease with ears", nil)
}
`,
	"docs/a.md":         "# Lingering\n\n```\n# deaf\n```\nears\n",
	"lockpg/errand.sql": "-- The time stands in the row.\nSELECT 1",
	"sql/errand.sql":    "SELECT 1",
}

func TestPrivateWordsAreFoundInNames(t *testing.T) {
	root := t.TempDir()
	for name, text := range repository {
		write(t, root, name, text)
	}
	if out, err := exec.Command("git", "-C", root, "init").CombinedOutput(); err != nil {
		t.Fatalf("git init: %v\n%s", err, out)
	}
	uses, err := search(root, nil)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, u := range uses {
		got = append(got, string(u.kind)+" "+u.word)
	}
	slices.Sort(got)
	want := []string{
		"field seats", "file errand", "file errand", "func nudge", "local heir", "local patience", "local told",
		"sentence crowd", "sentence ears", "sentence lingering", "text stands in", "type -ing type", "type lane",
	}
	if !slices.Equal(got, want) {
		t.Errorf("found %q,\nwant  %q", got, want)
	}
}

func write(t *testing.T, root, name, text string) {
	t.Helper()
	path := filepath.Join(root, filepath.FromSlash(name))
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}
