package sqltext_test

import (
	"strings"
	"testing"

	"github.com/sqllock/sqllock/internal/sqltext"
)

func TestStatementsAreFoundByTheirNames(t *testing.T) {
	got := sqltext.Parse(`-- This file is an example.

-- name: one
-- It says why.
SELECT 1
FROM {lock};

-- name: two
SELECT 2`, strings.NewReplacer("{lock}", `"sqllock_lock"`))
	want := map[string]string{"one": "SELECT 1\nFROM \"sqllock_lock\"", "two": "SELECT 2"}
	for name, text := range want {
		if got[name] != text {
			t.Errorf("%s: %q, want %q", name, got[name], text)
		}
	}
	if len(got) != len(want) {
		t.Errorf("%d statements, want %d", len(got), len(want))
	}
}

func TestANameGivenTwiceIsABug(t *testing.T) {
	defer func() {
		if recover() == nil {
			t.Error("no panic")
		}
	}()
	sqltext.Parse("-- name: one\nSELECT 1\n-- name: one\nSELECT 2", strings.NewReplacer())
}
