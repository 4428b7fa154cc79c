package sqllock_test

import (
	"context"
	"database/sql"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/sqllock/sqllock"
)

func readmeInTx(ctx context.Context, lease *sqllock.Lease) error {
	return lease.InTx(ctx, nil, func(ctx context.Context, tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, `UPDATE invoice SET sent = true WHERE id = 42`)
		return err
	})
}

// README shows the function above, which must compile.
var _ = readmeInTx

func TestReadmeShowsTheStartProgramAndSnippetsThatCompile(t *testing.T) {
	read := func(file string) string {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	if n := strings.Count(read("README.md"), "\n"); n > 160 {
		t.Errorf("README has %d lines, want 160 at most", n)
	}
	blocks := regexp.MustCompile("(?s)```go\n(.*?)```").FindAllStringSubmatch(read("README.md"), -1)
	if len(blocks) != 2 {
		t.Fatalf("README has %d blocks of Go, want the start program and one snippet", len(blocks))
	}
	// The tests of package examples run this program on each database.
	if program := read("examples/start/postgres/main.go"); !strings.HasSuffix(program, "\n"+blocks[0][1]) {
		t.Errorf("README's program is not examples/start/postgres/main.go:\n%s", blocks[0][1])
	}
	snippet := "\t" + strings.ReplaceAll(strings.TrimSuffix(blocks[1][1], "\n"), "\n", "\n\t") + "\n"
	if !strings.Contains(read("example_test.go"), snippet) {
		t.Errorf("this snippet of README is not in example_test.go:\n%s", blocks[1][1])
	}
}
