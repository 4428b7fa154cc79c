//go:build linux

// Command quorum kills, freezes and restarts each two of five databases in turn, three of Postgres
// and two of MariaDB, while Lockers of NewQuorum compete for names on them. It checks that nobody
// holds a name together with another, that tokens rise, for how long nobody was granted a name, and
// that names are granted while two databases are away.
// README.md of the module says how to run it.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/sqllock/sqllock/internal/testdb/supervisor"
)

func main() {
	supervisor.Main()
	ok, err := run(os.Stdout, os.Args[1:])
	if err != nil {
		fmt.Fprintln(os.Stderr, "quorum:", err)
		os.Exit(2)
	}
	if !ok {
		os.Exit(1)
	}
}

// settings are the flags.
type settings struct {
	lasts, ttl, down, gap time.Duration
	lockers, callers      int
	names                 int
	report                string
}

func parse(args []string) (s settings, err error) {
	f := flag.NewFlagSet("quorum", flag.ContinueOnError)
	f.DurationVar(&s.lasts, "for", 10*time.Minute, "for how long faults strike")
	f.DurationVar(&s.ttl, "ttl", 6*time.Second, "TTL of the leases")
	f.DurationVar(&s.down, "down", 3*time.Second, "for how long two databases are down or frozen; somebody must be granted a name meanwhile")
	f.DurationVar(&s.gap, "gap", 10*time.Second, "the longest time for which nobody may be granted a name that is asked for")
	f.IntVar(&s.lockers, "lockers", 4, "Lockers that compete")
	f.IntVar(&s.callers, "callers", 3, "callers of each Locker")
	f.IntVar(&s.names, "names", 4, "names that they compete for")
	f.StringVar(&s.report, "report", "", "file for what is printed")
	if err := f.Parse(args); err != nil {
		return s, err
	}
	if f.NArg() > 0 {
		return s, fmt.Errorf("no arguments but flags are known: %q", f.Args())
	}
	if s.lasts <= 0 || s.ttl <= 0 || s.down <= 0 || s.gap <= 0 || s.lockers < 1 || s.callers < 1 || s.names < 1 {
		return s, errors.New("no number may be zero or below")
	}
	return s, nil
}

// run returns false if a promise was broken.
func run(out io.Writer, args []string) (ok bool, err error) {
	s, err := parse(args)
	if errors.Is(err, flag.ErrHelp) {
		return true, nil
	}
	if err != nil {
		return false, err
	}
	if s.report != "" {
		file, err := os.Create(s.report)
		if err != nil {
			return false, err
		}
		defer func() { _ = file.Close() }()
		out = io.MultiWriter(out, file)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	w, err := supervisor.Start()
	if err != nil {
		return false, err
	}
	ok, err = applyFaults(ctx, w, s, out)
	return ok, errors.Join(err, w.Close())
}
