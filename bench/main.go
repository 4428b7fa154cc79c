// Command bench measures this project's locks beside others, in turn, in one run, on
// servers that it starts and ends itself. README.md describes the workloads.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/sqllock/sqllock/bench/internal/platform"
	"github.com/sqllock/sqllock/bench/internal/report"
	"github.com/sqllock/sqllock/bench/internal/server"
	"github.com/sqllock/sqllock/bench/internal/workload"
	"github.com/sqllock/sqllock/internal/testdb/supervisor"
)

func main() {
	supervisor.Main()
	workload.Child()
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// settings are the flags.
type settings struct {
	config    workload.Config
	workloads []string
	out, dir  string
}

func run(args []string) error {
	s, err := parse(args)
	if err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	fleet, err := server.NewFleet(s.dir)
	if err != nil {
		return err
	}
	return errors.Join(measure(ctx, s, fleet), fleet.Close())
}

func measure(ctx context.Context, s settings, fleet *server.Fleet) error {
	machine := report.ThisMachine(s.dir)
	machine.Rounds, machine.RoundMS = s.config.Rounds, s.config.Round.Milliseconds()
	if machine.Filesystem == platform.InMemory {
		say("%s is in memory: nothing is durable there; choose another with -dir", s.dir)
	}
	b := &workload.Bench{Config: s.config, Fleet: fleet, Machine: &machine, Results: report.NewResults(), Say: say}
	// Report the measurements that were made before a failure.
	err := errors.Join(work(ctx, s, b), b.Results.Write(s.out, machine))
	if n := b.Results.Failures(); n > 0 {
		err = errors.Join(err, fmt.Errorf("%d failures, see the column \"failed in all\"", n))
	}
	return err
}

func work(ctx context.Context, s settings, b *workload.Bench) error {
	for _, w := range workload.Workloads {
		if !slices.Contains(s.workloads, w.Name) {
			continue
		}
		began := time.Now()
		if err := w.Run(b, ctx); err != nil {
			return fmt.Errorf("%s: %w", w.Name, err)
		}
		say("%s took %v", w.Name, time.Since(began).Round(time.Second))
	}
	return nil
}

func parse(args []string) (settings, error) {
	var names []string
	for _, w := range workload.Workloads {
		names = append(names, w.Name)
	}
	flags := flag.NewFlagSet("bench", flag.ContinueOnError)
	quick := flags.Bool("quick", false, "3 rounds of 0.4 s, and less of what takes long")
	only := flags.String("only", "", "`regexp` of the contenders to measure")
	list := flags.String("workload", strings.Join(names, ","), "`workloads`, with commas")
	rounds := flags.Int("rounds", 0, "number of rounds (default 5)")
	round := flags.Duration("round", 0, "length of a round (default 1.2s)")
	callers := flags.String("callers", "", "`numbers` of callers with distinct names, with commas")
	out := flags.String("out", "results", "`directory` of the results")
	dir := flags.String("dir", realDisk(), "`directory` of the servers' files")
	if err := flags.Parse(args); err != nil {
		return settings{}, err
	}
	s := settings{out: *out, dir: *dir, workloads: strings.Split(*list, ",")}
	for _, name := range s.workloads {
		if !slices.Contains(names, name) {
			return s, fmt.Errorf("no workload is named %q; there are %s", name, strings.Join(names, ", "))
		}
	}
	s.config = defaultConfig(*quick)
	if *rounds > 0 {
		s.config.Rounds = *rounds
	}
	if *round > 0 {
		s.config.Round = *round
	}
	var err error
	if *only != "" {
		if s.config.Only, err = regexp.Compile(*only); err != nil {
			return s, err
		}
	}
	s.config.Callers, err = numbers(*callers, s.config.Callers)
	return s, err
}

func defaultConfig(quick bool) workload.Config {
	if quick {
		return workload.Config{Rounds: 3, Round: 400 * time.Millisecond, Callers: []int{1, 256, 1024}, Quick: true}
	}
	return workload.Config{Rounds: 5, Round: 1200 * time.Millisecond, Callers: []int{1, 16, 64, 256, 1024}}
}

// numbers parses a list with commas. It returns otherwise if text is empty.
func numbers(text string, otherwise []int) ([]int, error) {
	if text == "" {
		return otherwise, nil
	}
	var list []int
	for word := range strings.SplitSeq(text, ",") {
		var n int
		if _, err := fmt.Sscanf(word, "%d", &n); err != nil || n < 1 {
			return nil, fmt.Errorf("-callers: %q is not a positive number", word)
		}
		list = append(list, n)
	}
	return list, nil
}

// realDisk returns a directory for files that are not to be in memory.
func realDisk() string {
	dir := os.TempDir()
	if platform.Filesystem(dir) == platform.InMemory {
		dir = "/var/tmp"
	}
	return filepath.Clean(dir)
}

func say(format string, args ...any) { fmt.Fprintf(os.Stderr, "bench: "+format+"\n", args...) }
