// Command explain replays histories that a run of the faults has kept, one directory each, and
// prints what the rules of a name do not explain.
package main

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/sqllock/sqllock/faults/internal/history"
	"github.com/sqllock/sqllock/faults/internal/replay"
)

func main() {
	flag.Parse()
	ok := true
	for _, dir := range flag.Args() {
		r, took, err := explain(dir)
		if err != nil {
			fmt.Fprintln(os.Stderr, "explain:", err)
			os.Exit(2)
		}
		fmt.Printf("%s: %d operations, %d changes, %d not explained, %d too hard, %.1f s\n", dir, r.Operations(), r.Changes, len(r.Findings), len(r.Hard), took.Seconds())
		for _, f := range append(r.Findings, r.Hard...) {
			fmt.Printf("  %.3f s %q: %s\n", float64(f.T)/1e9, f.Name, f.What)
		}
		ok = ok && len(r.Findings)+len(r.Hard) == 0
	}
	if !ok {
		os.Exit(1)
	}
}

func explain(dir string) (r replay.Report, took time.Duration, err error) {
	paths, err := filepath.Glob(filepath.Join(dir, "*.jsonl"))
	if err != nil {
		return r, 0, err
	}
	var reader history.Reader
	events, err := reader.More(paths...)
	if err != nil {
		return r, 0, err
	}
	began := time.Now()
	r = replay.Check(events)
	return r, time.Since(began), nil
}
