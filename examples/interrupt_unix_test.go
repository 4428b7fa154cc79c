//go:build unix

package examples_test

import (
	"strings"
	"syscall"
	"testing"

	"github.com/sqllock/sqllock/internal/testdb"
)

func TestAnInterruptedExampleLeavesNothing(t *testing.T) {
	dir := build(t, "./cache")
	for _, engine := range testdb.All() {
		for _, signal := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM} {
			t.Run(engine+"/"+signal.String(), func(t *testing.T) {
				t.Parallel()
				p := start(t, dir, "cache", testdb.New(t, engine), "--unsafe")
				p.until("stale") // the head of the table: it is under way
				if err := p.Process.Signal(signal); err != nil {
					t.Fatal(err)
				}
				output := p.wait(2, "(?m)^error: ")
				if strings.Contains(output, "wrong:") {
					t.Errorf("it was not interrupted, or takes half of the work for a result:\n%s", output)
				}
			})
		}
	}
}
