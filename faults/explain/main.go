// Command explain replays histories that a run of the faults has kept, one directory each, and
// prints what the rules of a name do not explain.
package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/sqllock/sqllock/faults/internal/history"
	"github.com/sqllock/sqllock/faults/internal/replay"
)

func main() {
	flag.Parse()
	ok, err := run(os.Stdout, flag.Args())
	if err != nil {
		fmt.Fprintln(os.Stderr, "explain:", err)
		os.Exit(2)
	}
	if !ok {
		os.Exit(1)
	}
}

// run returns false if something is not explained.
func run(out io.Writer, dirs []string) (ok bool, err error) {
	if len(dirs) == 0 {
		return false, errors.New("name a directory that has the histories of a cell")
	}
	ok = true
	for _, dir := range dirs {
		r, took, err := explain(dir)
		if err != nil {
			return false, err
		}
		fmt.Fprintf(out, "%s: %d operations, %d changes, %d not explained, %d too hard, %d operations excused, %.1f s\n",
			dir, r.Operations(), r.Changes, len(r.Findings), len(r.Hard), r.Excused, took.Seconds())
		for _, f := range append(r.Findings, r.Hard...) {
			fmt.Fprintf(out, "  %.3f s %q: %s\n", float64(f.T)/1e9, f.Name, f.What)
		}
		ok = ok && len(r.Findings)+len(r.Hard) == 0
	}
	return ok, nil
}

func explain(dir string) (r replay.Report, took time.Duration, err error) {
	paths, err := filepath.Glob(filepath.Join(dir, "*.jsonl"))
	if err != nil {
		return r, 0, err
	}
	if len(paths) == 0 {
		return r, 0, fmt.Errorf("there is no history in %s", dir)
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
