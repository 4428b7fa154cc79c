//go:build linux

// Command mutants changes the library in small ways, one at a time, and shows which of
// the ordinary tests notices each. What nobody notices is either no change at all, or
// a test that is missing.
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
	"syscall"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "mutants:", err)
		os.Exit(1)
	}
}

func run() error {
	root := flag.String("root", ".", "directory of the library")
	seed := flag.Uint64("seed", 1, "of the sample")
	n := flag.Int("n", 150, "how many mutants to judge, the same number of each target")
	only := flag.String("only", "", "the id of one mutant, to judge it alone")
	target := flag.String("target", "", "regexp of the targets, "+targetNames()+"; all by default")
	table := flag.Bool("table", false, "print what the report says, and judge none")
	list := flag.Bool("list", false, "print all mutants in the order in which they are taken, and judge none")
	resume := flag.Bool("resume", false, "take over what the report says already")
	path := flag.String("report", "bin/mutants.jsonl", "file for the verdicts, a JSON object a line")
	depth := flag.Int("stages", 3, "how many stages of tests to run; with -resume those that were left out are made up for")
	shards := flag.Int("shards", 4, "into how many runs the tests of a driver are dealt, which take place at one time")
	flag.Parse()

	j := &runner{depth: *depth}
	var err error
	if j.root, err = filepath.Abs(*root); err != nil {
		return err
	}
	pattern, err := regexp.Compile(*target)
	if err != nil {
		return err
	}
	lists, err := sample(j.root, *seed, pattern)
	if err != nil {
		return err
	}
	if *table {
		r := &report{path: *path}
		err := r.load()
		show(os.Stdout, r.latest())
		return err
	}
	if *list {
		for _, of := range lists {
			for i := range of {
				fmt.Printf("%s: %s\n", of[i].id(), of[i].change())
			}
		}
		return nil
	}
	if j.suites, err = newSuites(j.root, *shards); err != nil {
		return err
	}
	if j.dir, err = os.MkdirTemp("", "sqllock-mutants-"); err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(j.dir) }()
	for _, dir := range []string{"healthy", "tmp"} {
		err = errors.Join(err, os.Mkdir(filepath.Join(j.dir, dir), 0o755))
	}
	// Servers that the tests start run as somebody else.
	if err = errors.Join(err, os.Chmod(j.dir, 0o755)); err != nil {
		return err
	}
	j.healthy = &binaries{root: j.root, dir: filepath.Join(j.dir, "healthy"), temporary: filepath.Join(j.dir, "tmp"), built: make(map[string]string)}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := j.fit(ctx); err != nil {
		return err
	}
	if *only != "" {
		return j.one(ctx, lists, *only)
	}
	r := &report{path: *path}
	if *resume {
		err = r.load()
	} else if err = os.Remove(*path); errors.Is(err, os.ErrNotExist) {
		err = nil
	}
	if err != nil {
		return err
	}
	judged, err := j.all(ctx, lists, *n/len(targets), r)
	show(os.Stdout, judged)
	return err
}

// one judges the mutant of an id.
func (j *runner) one(ctx context.Context, lists [][]mutant, id string) error {
	for _, of := range lists {
		for i := range of {
			if of[i].id() == id {
				v, err := j.judge(ctx, &of[i], verdict{})
				show(os.Stdout, []verdict{v})
				return err
			}
		}
	}
	return fmt.Errorf("there is no mutant %q", id)
}

// all judges mutants of all targets in turn, until as many of each were counted, so
// that a run that is interrupted has seen something of everything.
func (j *runner) all(ctx context.Context, lists [][]mutant, each int, r *report) (judged []verdict, err error) {
	counted, next := make([]int, len(lists)), make([]int, len(lists))
	for more := true; more; {
		more = false
		for i, of := range lists {
			for counted[i] < each && next[i] < len(of) {
				m := &of[next[i]]
				next[i]++
				v := r.known(m)
				if !j.done(m, v) {
					if v, err = j.judge(ctx, m, v); err == nil {
						err = r.add(v)
					}
					if err != nil {
						return judged, fmt.Errorf("%s: %w", m.id(), err)
					}
					fmt.Fprintf(os.Stderr, "mutants: %s: %s: %s %s, %.0f s\n", v.Mutant, v.Change, v.Outcome, v.By, v.Seconds)
				}
				judged = append(judged, v)
				if v.Outcome != invalid {
					counted[i]++
					more = true
					break
				}
			}
		}
	}
	return judged, nil
}

// done reports whether a verdict says what this run would find out.
func (j *runner) done(m *mutant, v verdict) bool {
	return v.Outcome != "" && (v.Outcome != survived || v.Stages >= min(j.depth, len(j.suites.stages(m))))
}
