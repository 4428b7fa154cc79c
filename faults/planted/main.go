//go:build linux

// Command planted builds the library with one known mistake after the other and shows
// that each is noticed, by a check of the faults or by a test. It fails if a mistake is
// not noticed, or does not fit the source any more.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"text/tabwriter"
	"time"

	"github.com/sqllock/sqllock/faults/internal/check"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "planted:", err)
		os.Exit(1)
	}
}

// An outcome is the result for one bug.
type outcome struct {
	Bug     string  `json:"bug"`
	By      string  `json:"caught_by"` // empty if it was not noticed
	Seconds float64 `json:"seconds"`   // without the time to build
}

func run() error {
	root := flag.String("root", "..", "directory of the library")
	only := flag.String("bug", "", "regexp of the bugs to plant; all by default")
	seconds := flag.Int("seconds", 40, "for how long faults strike in a cell at most")
	reportFile := flag.String("report", "faults-report.json", "file for the report; \"\" for none")
	flag.Parse()
	pattern, err := regexp.Compile(*only)
	if err != nil {
		return err
	}
	p := &planter{seconds: *seconds, controls: make(map[string]error), without: make(map[string][]string)}
	if p.root, err = filepath.Abs(*root); err != nil {
		return err
	}
	if p.dir, err = os.MkdirTemp("", "sqllock-planted-"); err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(p.dir) }()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()

	outcomes, err := p.plantAll(ctx, pattern)
	show(outcomes)
	if *reportFile != "" {
		err = errors.Join(err, save(*reportFile, pattern, outcomes))
	}
	return err
}

// all are the bugs.
func all() []bug { return slices.Concat(bugs, combined, around, scheduled) }

// plantAll plants one bug after the other. The error names the bugs that were not
// noticed, and those that could not be planted.
func (p *planter) plantAll(ctx context.Context, pattern *regexp.Regexp) (outcomes []outcome, err error) {
	var errs []error
	for _, b := range all() {
		if !pattern.MatchString(b.name) {
			continue
		}
		o, err := p.plant(ctx, b)
		switch {
		case err != nil:
			errs = append(errs, fmt.Errorf("%s: %w", b.name, err))
			continue
		case o.By == "":
			errs = append(errs, fmt.Errorf("%s: nothing noticed", b.name))
		}
		fmt.Fprintf(os.Stderr, "planted: %s: %s, %.1f s\n", o.Bug, o.By, o.Seconds)
		outcomes = append(outcomes, o)
	}
	return outcomes, errors.Join(errs...)
}

func show(outcomes []outcome) {
	t := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "bug\tcaught by\tseconds")
	for _, o := range outcomes {
		fmt.Fprintf(t, "%s\t%s\t%.1f\n", o.Bug, o.By, o.Seconds)
	}
	_ = t.Flush()
}

// save adds the outcomes to the file, which may have cells already, and outcomes of other bugs.
func save(path string, pattern *regexp.Regexp, outcomes []outcome) error {
	file := map[string]any{"cells": []any{}}
	var former struct{ Planted []outcome }
	if text, err := os.ReadFile(path); err == nil {
		if err := errors.Join(json.Unmarshal(text, &file), json.Unmarshal(text, &former)); err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
	}
	file["planted"] = merge(former.Planted, pattern, outcomes)
	text, err := json.MarshalIndent(file, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(path, append(text, '\n'), 0o644)
}

// merge returns the outcomes of all bugs: of those that were planted again the new ones, of the others
// the former ones.
func merge(former []outcome, pattern *regexp.Regexp, outcomes []outcome) []outcome {
	merged := []outcome{}
	for _, b := range all() {
		from := former
		if pattern.MatchString(b.name) {
			from = outcomes
		}
		if i := slices.IndexFunc(from, func(o outcome) bool { return o.Bug == b.name }); i >= 0 {
			merged = append(merged, from[i])
		}
	}
	return merged
}

// planter is one run of the command.
type planter struct {
	root, dir string
	seconds   int
	controls  map[string]error    // of tests without a bug, by package and pattern
	without   map[string][]string // the checks that have failed without a bug, by cell
}

func (p *planter) plant(ctx context.Context, b bug) (outcome, error) {
	overlay, err := p.overlay(b)
	if err != nil {
		return outcome{}, err
	}
	if b.catch.pkg != "" {
		return p.byTest(ctx, b, overlay)
	}
	return p.byCell(ctx, b, overlay)
}

// overlay writes the changed files and the overlay that replaces the originals.
func (p *planter) overlay(b bug) (string, error) {
	changed := make(map[string]string)
	for _, e := range b.edits {
		text, ok := changed[e.file]
		if !ok {
			source, err := os.ReadFile(filepath.Join(p.root, e.file))
			if err != nil {
				return "", err
			}
			text = string(source)
		}
		if n := strings.Count(text, e.old); n != 1 {
			return "", fmt.Errorf("%s has %d times, and not once: %q", e.file, n, e.old)
		}
		changed[e.file] = strings.Replace(text, e.old, e.new, 1)
	}
	replace := make(map[string]string)
	for file, text := range changed {
		path := filepath.Join(p.dir, strings.ReplaceAll(file, "/", "_"))
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			return "", err
		}
		replace[filepath.Join(p.root, file)] = path
	}
	text, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		return "", err
	}
	path := filepath.Join(p.dir, "overlay.json")
	return path, os.WriteFile(path, text, 0o644)
}

// byCell builds the program of the faults with the bug, and runs one cell. What its checks notice
// counts if they find nothing without it.
func (p *planter) byCell(ctx context.Context, b bug, overlay string) (outcome, error) {
	program, err := p.build(ctx, "faults", "-overlay", overlay)
	if err != nil {
		return outcome{}, err
	}
	began := time.Now()
	failed, err := p.runCell(ctx, b.catch, program)
	o := outcome{Bug: b.name, Seconds: time.Since(began).Seconds()}
	if err != nil || !b.catch.accepts(failed) {
		return o, err
	}
	o.By = strings.Join(failed, ", ") + " in " + b.catch.cell()
	return o, p.controlCell(ctx, b.catch)
}

// cell is the name of a catcher's cell.
func (c catcher) cell() string { return c.nemesis + "/" + c.mode + "/" + c.database }

// build builds the program of the faults.
func (p *planter) build(ctx context.Context, name string, flags ...string) (program string, err error) {
	program = filepath.Join(p.dir, name)
	args := slices.Concat([]string{"build"}, flags, []string{"-o", program, "."})
	if text, err := p.command(ctx, "faults", "go", args...).CombinedOutput(); err != nil {
		return "", fmt.Errorf("%w: %s", err, text)
	}
	return program, nil
}

// runCell runs one cell, and returns the checks that have failed.
func (p *planter) runCell(ctx context.Context, c catcher, program string) (failed []string, err error) {
	report := filepath.Join(p.dir, "report.json")
	_ = os.Remove(report)
	text, err := p.command(ctx, "faults", program, "-nemesis", c.nemesis, "-mode", c.mode, "-database", c.database,
		"-seconds", fmt.Sprint(p.seconds), "-keep", p.dir, "-report", report).CombinedOutput()
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) && exit.ExitCode() == 1 {
		err = nil
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %s", err, text)
	}
	var file struct{ Cells []struct{ Failed []string } }
	source, err := os.ReadFile(report)
	if err == nil {
		err = json.Unmarshal(source, &file)
	}
	if err == nil && len(file.Cells) != 1 {
		err = fmt.Errorf("%d cells have run: %s", len(file.Cells), text)
	}
	for _, one := range file.Cells {
		failed = append(failed, one.Failed...)
	}
	return failed, err
}

// controlCell runs the same cell without the bug, once for all bugs that it is to notice. If its
// checks fail then, too, they say nothing of the bug.
func (p *planter) controlCell(ctx context.Context, c catcher) error {
	failed, ok := p.without[c.cell()]
	if !ok {
		program, err := p.build(ctx, "faults-without")
		if err == nil {
			failed, err = p.runCell(ctx, c, program)
		}
		if err != nil {
			return fmt.Errorf("control failed: %w", err)
		}
		p.without[c.cell()] = failed
	}
	if c.accepts(failed) {
		return fmt.Errorf("control failed: without the bug: %s in %s", strings.Join(failed, ", "), c.cell())
	}
	return nil
}

// weakly are the checks that a busy machine can fail, too.
var weakly = []string{check.Waiting, check.Permits, check.Work, check.Covered}

// accepts reports that the checks of a cell that have failed show a bug.
func (c catcher) accepts(failed []string) bool {
	return slices.ContainsFunc(failed, func(name string) bool { return name == c.weak || !slices.Contains(weakly, name) })
}

var (
	failure = regexp.MustCompile(`(?m)^ *--- FAIL: (\S+)`)
	ran     = regexp.MustCompile(`(?m)^ *--- (?:PASS|FAIL): `)
	elapsed = regexp.MustCompile(`(?m)^(?:ok|FAIL)\s+\S+\s+([\d.]+)s`)
)

// byTest runs tests with the bug. What they notice counts if they pass without it.
func (p *planter) byTest(ctx context.Context, b bug, overlay string) (outcome, error) {
	text, err := p.test(ctx, b.catch, "-overlay", overlay)
	if exit := (*exec.ExitError)(nil); err != nil && !errors.As(err, &exit) {
		return outcome{}, err
	}
	if !ran.Match(text) {
		return outcome{}, fmt.Errorf("no test has run: %s", text)
	}
	o := outcome{Bug: b.name}
	for _, match := range failure.FindAllSubmatch(text, -1) { // a subtest comes after its parent, and is more precise
		if name := string(match[1]); o.By == "" || strings.HasPrefix(name, o.By+"/") {
			o.By = name
		}
	}
	if match := elapsed.FindSubmatch(text); match != nil {
		_, _ = fmt.Sscanf(string(match[1]), "%g", &o.Seconds)
	}
	if o.By == "" {
		return o, nil
	}
	return o, p.control(ctx, b.catch)
}

// control runs the same tests without the bug, once for all bugs that they are to notice. If they fail
// then, too, they say nothing of the bug.
func (p *planter) control(ctx context.Context, c catcher) error {
	key := c.pkg + " " + c.run
	if err, ok := p.controls[key]; ok {
		return err
	}
	text, err := p.test(ctx, c)
	if err == nil && !ran.Match(text) {
		err = errors.New("no test has run")
	}
	if err != nil {
		err = fmt.Errorf("control failed: without the bug: %w: %s", err, text[max(0, len(text)-2000):])
	}
	if ctx.Err() == nil {
		p.controls[key] = err
	}
	return err
}

// test runs tests of the library.
func (p *planter) test(ctx context.Context, c catcher, flags ...string) ([]byte, error) {
	args := slices.Concat([]string{"test"}, flags, []string{"-count=1", "-v", "-timeout", "170s", "-run", c.run, c.pkg})
	return p.command(ctx, ".", "go", args...).CombinedOutput()
}

func (p *planter) command(ctx context.Context, dir, name string, args ...string) *exec.Cmd {
	c := exec.CommandContext(ctx, name, args...)
	c.Dir = filepath.Join(p.root, dir)
	c.Env = append(os.Environ(), "GOWORK=off")
	c.Cancel = func() error { return c.Process.Signal(syscall.SIGTERM) }
	c.WaitDelay = 10 * time.Second
	return c
}
