//go:build linux

// Command peers injects the same faults under the locks of this project and under others,
// with the same work, and prints the results in one table. README.md of the module
// describes the measurements.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/sqllock/sqllock/faults/peers/internal/worker"
	"github.com/sqllock/sqllock/internal/testdb/supervisor"
)

func main() {
	supervisor.Main()
	worker.Main()
	ok, err := run(os.Stdout, os.Args[1:])
	if err != nil {
		fmt.Fprintln(os.Stderr, "peers:", err)
		os.Exit(2)
	}
	if !ok {
		os.Exit(1)
	}
}

// run returns false if a lock of this project broke a promise.
func run(out io.Writer, args []string) (ok bool, err error) {
	s, err := parse(args)
	if errors.Is(err, flag.ErrHelp) {
		return true, nil
	}
	if err != nil {
		return false, err
	}
	specs, without, err := s.plan()
	if err != nil {
		return false, err
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	w, err := supervisor.Start()
	if err != nil {
		return false, err
	}
	results, err := runAll(ctx, w, specs, s.parallel, out)
	err = errors.Join(err, w.Close())
	r := report{s, results, without}
	r.print(out)
	if s.report != "" {
		err = errors.Join(err, r.save(s.report))
	}
	return len(r.broken()) == 0, err
}

// settings are the flags.
type settings struct {
	systems, faults []string
	each            time.Duration
	seed            uint64
	parallel        int
	report, keep    string
}

func parse(args []string) (s settings, err error) {
	f := flag.NewFlagSet("peers", flag.ContinueOnError)
	systems := f.String("system", "", "these only, with commas; all by default")
	faults := f.String("fault", "", "these only: "+strings.Join(faultNames, ", "))
	seconds := f.Float64("seconds", 30, "for how long faults strike in each cell")
	f.Uint64Var(&s.seed, "seed", 1, "of all that is random but the machine")
	f.IntVar(&s.parallel, "parallel", 2, "how many cells run at a time")
	f.StringVar(&s.keep, "keep", "", "directory to keep the histories in")
	f.StringVar(&s.report, "report", "peers-report.json", "file for the report; \"\" for none")
	if err := f.Parse(args); err != nil {
		return s, err
	}
	if f.NArg() > 0 {
		return s, fmt.Errorf("no arguments but flags are known: %q", f.Args())
	}
	if *seconds <= 0 || s.parallel < 1 {
		return s, errors.New("-seconds and -parallel must be positive")
	}
	s.each = time.Duration(*seconds * float64(time.Second))
	s.systems, s.faults = words(*systems), words(*faults)
	return s, nil
}

// words splits the value of a flag.
func words(text string) []string {
	return strings.FieldsFunc(text, func(r rune) bool { return r == ',' || r == ' ' })
}
