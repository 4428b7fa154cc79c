//go:build linux

// Command mutants changes the library in small ways, one at a time, and shows which of
// the ordinary tests notices each. If no test notices a change, either the change has no
// effect or a test is missing.
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

// settings are the flags.
type settings struct {
	root, target, only, report string
	seed                       uint64
	n, depth, shards           int
	table, list, resume        bool
}

func parse() (s settings) {
	flag.StringVar(&s.root, "root", ".", "directory of the library")
	flag.Uint64Var(&s.seed, "seed", 1, "of the sample")
	flag.IntVar(&s.n, "n", 150, "how many mutants to judge, the same number of each target")
	flag.StringVar(&s.only, "only", "", "the id of one mutant, to judge only that one")
	flag.StringVar(&s.target, "target", "", "regexp of the targets, "+targetNames()+"; all by default")
	flag.BoolVar(&s.table, "table", false, "print what the report says, and judge none")
	flag.BoolVar(&s.list, "list", false, "print all mutants in the order of judging, and judge none")
	flag.BoolVar(&s.resume, "resume", false, "keep the verdicts that the report has already")
	flag.StringVar(&s.report, "report", "bin/mutants.jsonl", "file for the verdicts, a JSON object a line")
	flag.IntVar(&s.depth, "stages", 3, "how many stages of tests to run; with -resume, those that were left out")
	flag.IntVar(&s.shards, "shards", 4, "into how many concurrent runs the tests of a driver are divided")
	flag.Parse()
	return s
}

func run() error {
	s := parse()
	j := &runner{depth: s.depth}
	var err error
	if j.root, err = filepath.Abs(s.root); err != nil {
		return err
	}
	pattern, err := regexp.Compile(s.target)
	if err != nil {
		return err
	}
	lists, err := sample(j.root, s.seed, pattern)
	if err != nil {
		return err
	}
	r := &report{path: s.report}
	switch {
	case s.table:
		err := r.load()
		show(os.Stdout, r.latest())
		return err
	case s.list:
		printMutants(lists)
		return nil
	}
	return j.run(s, lists, r)
}

// run judges the mutants that the flags select.
func (j *runner) run(s settings, lists [][]mutant, r *report) error {
	if err := j.prepare(s.shards); err != nil {
		return errors.Join(err, os.RemoveAll(j.dir))
	}
	defer func() { _ = os.RemoveAll(j.dir) }()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := j.fit(ctx); err != nil {
		return err
	}
	if s.only != "" {
		return j.one(ctx, lists, s.only)
	}
	if err := r.begin(s.resume); err != nil {
		return err
	}
	judged, err := j.all(ctx, lists, max(1, s.n/len(lists)), r)
	show(os.Stdout, judged)
	return err
}

func printMutants(lists [][]mutant) {
	for _, of := range lists {
		for i := range of {
			fmt.Printf("%s: %s\n", of[i].id(), of[i].change())
		}
	}
}

// prepare lists the tests and makes the directory for binaries and temporary files.
func (j *runner) prepare(shards int) (err error) {
	if j.suites, err = newSuites(j.root, shards); err != nil {
		return err
	}
	if j.dir, err = os.MkdirTemp("", "sqllock-mutants-"); err != nil {
		return err
	}
	healthy, temporary := filepath.Join(j.dir, "healthy"), filepath.Join(j.dir, "tmp")
	for _, dir := range []string{healthy, temporary} {
		err = errors.Join(err, os.Mkdir(dir, 0o755))
	}
	// Servers that the tests start run as another user.
	err = errors.Join(err, os.Chmod(j.dir, 0o755))
	j.healthy = &binaries{root: j.root, dir: healthy, temporary: temporary, built: make(map[string]string)}
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

// done reports whether a verdict already has the result of this run.
func (j *runner) done(m *mutant, v verdict) bool {
	return v.Outcome != "" && (v.Outcome != survived || v.Stages >= min(j.depth, len(j.suites.stages(m))))
}
