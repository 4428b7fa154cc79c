//go:build linux

// Command faults runs clients of the library as processes. It injects faults into
// clients, network and server, and checks the histories of the clients. README.md
// describes the faults and the checks.
package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/sqllock/sqllock/faults/internal/cell"
	"github.com/sqllock/sqllock/faults/internal/client"
	"github.com/sqllock/sqllock/faults/internal/report"
	"github.com/sqllock/sqllock/internal/testdb/supervisor"
)

func main() {
	supervisor.Main()
	client.Main()
	ok, err := run(os.Args[1:])
	if err != nil {
		fmt.Fprintln(os.Stderr, "faults:", err)
		os.Exit(2)
	}
	if !ok {
		os.Exit(1)
	}
}

// run returns false if a check failed.
func run(args []string) (ok bool, err error) {
	s, err := parse(args)
	if errors.Is(err, flag.ErrHelp) {
		return true, nil
	}
	if err != nil {
		return false, err
	}
	plan, err := s.plan()
	if err != nil {
		return false, err
	}
	if s.list {
		plan.print(os.Stdout)
		return true, nil
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	w, err := supervisor.Start()
	if err != nil {
		return false, err
	}
	results, err := plan.run(ctx, w, s.parallel, s.until)
	err = errors.Join(err, w.Close())
	if len(results) == 0 && err == nil {
		err = errors.New("no cell was run: -for was over before")
	}
	report.Print(os.Stdout, results, plan.without)
	if s.report != "" {
		err = errors.Join(err, report.Save(s.report, results))
	}
	return !failed(results) && report.Control(os.Stdout, results), err
}

func failed(results []cell.Result) bool {
	for _, r := range results {
		if len(r.Failures) > 0 {
			return true
		}
	}
	return false
}

// settings are the flags.
type settings struct {
	nemeses, modes, databases []string
	each                      time.Duration
	seed                      uint64
	parallel, rounds          int
	until                     time.Time
	binary, keep, report      string
	short, list, replay       bool
}

func parse(args []string) (s settings, err error) {
	f := flag.NewFlagSet("faults", flag.ContinueOnError)
	nemeses := f.String("nemesis", "", "these only, with commas; all by default")
	modes := f.String("mode", "", "these only: unique, forupdate, advisory; permits, lockall, options, pgbouncer and libpq, which are of unique mode")
	databases := f.String("database", "", "these only: sqlite, postgres, mariadb; and galera, which runs only if it is named")
	seconds := f.String("seconds", cmp.Or(os.Getenv("FAULT_SECONDS"), "60"), "for how long faults strike in each cell; FAULT_SECONDS is the default")
	f.Uint64Var(&s.seed, "seed", 1, "of all that is random but the machine")
	f.IntVar(&s.parallel, "parallel", 1, "how many cells run at a time")
	f.IntVar(&s.rounds, "rounds", 1, "how often all is run, with a seed one higher each time")
	f.StringVar(&s.binary, "binary", "", "the program of the clients, by default this one")
	f.StringVar(&s.keep, "keep", "", "directory to keep the histories in; those of a failure are kept in any case")
	f.StringVar(&s.report, "report", "faults-report.json", "file for the report; \"\" for none")
	f.BoolVar(&s.short, "short", false, "the cells that say most only")
	f.BoolVar(&s.list, "list", false, "say which cells there are, and run none")
	f.BoolVar(&s.replay, "replay", true, "what the replay does not explain is a failure; else it is only printed")
	budget := f.Duration("for", 0, "begin no cell when so long is over; 0 is for ever")
	if err := f.Parse(args); err != nil {
		return s, err
	}
	if *budget != 0 {
		s.until = time.Now().Add(*budget)
	}
	if f.NArg() > 0 {
		return s, fmt.Errorf("no arguments but flags are known: %q", f.Args())
	}
	if s.parallel < 1 || s.rounds < 1 {
		return s, fmt.Errorf("-parallel and -rounds must be at least 1: %d, %d", s.parallel, s.rounds)
	}
	if s.binary == "" {
		if s.binary, err = os.Executable(); err != nil {
			return s, err
		}
	}
	n, err := strconv.ParseFloat(*seconds, 64)
	if err != nil || n <= 0 {
		return s, fmt.Errorf("-seconds, or FAULT_SECONDS, must be a positive number: %q", *seconds)
	}
	s.each = time.Duration(n * float64(time.Second))
	s.nemeses, s.modes, s.databases = words(*nemeses), words(*modes), words(*databases)
	return s, nil
}

// words splits the value of a flag.
func words(text string) []string {
	return strings.FieldsFunc(text, func(r rune) bool { return r == ',' || r == ' ' })
}
