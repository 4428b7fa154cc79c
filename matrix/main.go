//go:build unix

// Command matrix runs the conformance suite on other engines, versions, drivers and poolers than
// the tests of the root module have: one cell after the other. README.md describes the cells.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"time"
)

func main() {
	ok, err := run(os.Args[1:])
	if err != nil {
		fmt.Fprintln(os.Stderr, "matrix:", err)
		os.Exit(2)
	}
	if !ok {
		os.Exit(1)
	}
}

// settings are the flags.
type settings struct {
	only           *regexp.Regexp
	list           bool
	short          bool
	again          bool
	download       bool
	rotate         bool
	results, cache string
	root           string // of the repository
	document       string // that has the table, "" for none
}

func parse(args []string) (s settings, err error) {
	flags := flag.NewFlagSet("matrix", flag.ContinueOnError)
	only := flags.String("only", "", "`regexp` of the names of the cells to run")
	flags.BoolVar(&s.list, "list", false, "print the cells, and what is known of them, and run none")
	flags.BoolVar(&s.short, "brief", false, "ask for what a database can break, and leave out the tests of the driver")
	flags.BoolVar(&s.again, "again", false, "run cells that have a result of this commit, too")
	flags.BoolVar(&s.download, "download", false, "download what the cells need, and run none")
	flags.BoolVar(&s.rotate, "rotate", false, "run one cell, which the commit chooses, of Postgres, MySQL and SQLite in turn, and keep no result")
	flags.StringVar(&s.cache, "cache", defaultCache(), "`directory` of what was downloaded")
	if err = flags.Parse(args); err != nil {
		return s, err
	}
	if s.only, err = regexp.Compile(*only); err != nil {
		return s, err
	}
	if s.cache, err = filepath.Abs(s.cache); err != nil {
		return s, err
	}
	out, err := exec.Command("git", "rev-parse", "--show-toplevel").Output()
	if err != nil {
		return s, errors.New("matrix runs in a clone of the repository, see git rev-parse")
	}
	s.root = strings.TrimSpace(string(out))
	if !s.rotate {
		s.results = filepath.Join(s.root, "matrix", "results", "cells.jsonl")
		s.document = filepath.Join(s.root, "docs", "databases.md")
	}
	return s, nil
}

// defaultCache is a directory that the users of the servers can read: the home of root is closed
// to them.
func defaultCache() string {
	const name = "sqllock-matrix"
	if os.Getuid() == 0 && os.Getenv("XDG_CACHE_HOME") == "" {
		return filepath.Join("/var/cache", name)
	}
	dir, err := os.UserCacheDir()
	if err != nil {
		dir = os.TempDir()
	}
	return filepath.Join(dir, name)
}

// run returns false if a cell that ran has failed.
func run(args []string) (ok bool, err error) {
	s, err := parse(args)
	if errors.Is(err, flag.ErrHelp) {
		return true, nil
	}
	if err != nil {
		return false, err
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	commit, err := commitOf(ctx, s.root)
	if err != nil {
		return false, err
	}
	known, err := readResults(s.results)
	if err != nil {
		return false, err
	}
	if s.list {
		list(os.Stdout, known)
		return true, nil
	}
	chosen, err := s.choose(ctx)
	if err != nil {
		return false, err
	}
	ok = true
	for _, c := range chosen {
		if s.download {
			if _, err := s.prepare(ctx, c); err != nil {
				return false, fmt.Errorf("%s: %w", c.name, err)
			}
			continue
		}
		if r, found := known.of(c, s.short, commit); found && !s.again && !s.rotate {
			say("%s: has a result of commit %s, %s; -again runs it again", c.name, commit, r.outcome())
			continue
		}
		r := s.cell(ctx, c, commit)
		if ctx.Err() != nil {
			return false, context.Cause(ctx)
		}
		say("%s: %s", c.name, r.outcome())
		for _, f := range r.Failures {
			say("%s: FAILED: %s", c.name, f)
		}
		ok = ok && r.Failed == 0 && (r.Reason == "" || !s.rotate) // a turn that tests nothing is a failure
		if s.rotate || r.Reason != "" {
			continue
		}
		if err := appendResult(s.results, r); err != nil {
			return false, err
		}
	}
	if s.rotate || s.download {
		return ok, nil
	}
	if known, err = readResults(s.results); err != nil { // with what another run has added
		return false, err
	}
	table := known.table()
	fmt.Print(table)
	return ok, errors.Join(
		os.WriteFile(filepath.Join(filepath.Dir(s.results), tableFile), []byte(table), 0o644),
		replaceTable(s.document, table))
}

// choose returns the cells to run.
func (s *settings) choose(ctx context.Context) (chosen []*cell, err error) {
	if s.rotate {
		out, err := command(ctx, s.root, "git", "rev-parse", "--short=7", "HEAD")
		if err != nil {
			return nil, err
		}
		n, err := strconv.ParseInt(strings.TrimSpace(out), 16, 64)
		if err != nil {
			return nil, err
		}
		return []*cell{rotation(int(n))}, nil
	}
	for i := range cells {
		if s.only.MatchString(cells[i].name) {
			chosen = append(chosen, &cells[i])
		}
	}
	if chosen == nil {
		return nil, fmt.Errorf("no cell matches %q; -list prints them", s.only)
	}
	return chosen, nil
}

// prepare downloads what a cell needs, and returns the directories of its programs.
func (s *settings) prepare(ctx context.Context, c *cell) (path []string, err error) {
	if path, err = c.engine.prepare(ctx, s.cache); err != nil {
		return nil, err
	}
	return path, c.modules(ctx, s.root)
}

// cell runs one cell.
func (s *settings) cell(ctx context.Context, c *cell, commit string) result {
	r := result{Cell: c.name, Short: s.short, Commit: commit, Date: time.Now().UTC().Format(time.DateOnly)}
	path, err := s.prepare(ctx, c)
	if err != nil {
		r.Reason = err.Error()
		return r
	}
	began := time.Now()
	n := &count{root: s.root, logs: filepath.Join(s.cache, "logs", strings.NewReplacer(" ", "-", "/", "-", ",", "").Replace(c.name))}
	if err := c.test(ctx, n, path, s.short); err != nil {
		n.failures = append(n.failures, err.Error())
	}
	if v := n.version; !strings.HasPrefix(v, c.version) {
		n.failures = append(n.failures, fmt.Sprintf("the version is %q, want %q", v, c.version))
	}
	r.Version, r.Driver, r.Seconds = n.version, n.driver, int(time.Since(began).Seconds())
	r.Passed, r.Failures, r.Failed = n.passed, n.failures, len(n.failures)
	if r.Failed > 0 {
		say("%s: all that its tests printed is in %s", c.name, n.logs)
	}
	return r
}

// list prints all cells, with the newest result of each.
func list(w io.Writer, known results) {
	for i := range cells {
		outcome := "not yet"
		if r, found := known.newest(&cells[i]); found {
			outcome = r.Date + ": " + r.outcome()
		}
		fmt.Fprintf(w, "%-40s %s\n", cells[i].name, outcome)
	}
}

// commitOf names the newest commit that changed more than results and documents: a result stays
// one of this commit when it is committed. A plus sign says that there are other changes.
func commitOf(ctx context.Context, root string) (string, error) {
	paths := []string{"--", ".", ":(exclude)docs", ":(exclude)matrix/results", ":(exclude,glob)**/*.md"}
	hash, err := command(ctx, root, "git", append([]string{"log", "-1", "--format=%h"}, paths...)...)
	if err != nil {
		return "", err
	}
	changes, err := command(ctx, root, "git", append([]string{"status", "--porcelain"}, paths...)...)
	if err != nil {
		return "", err
	}
	if hash = strings.TrimSpace(hash); changes != "" {
		hash += "+"
	}
	return hash, nil
}

// command runs a command to its end, and returns its output. The error has what it wrote to stderr.
func command(ctx context.Context, dir, name string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = dir
	out, err := cmd.Output()
	if err != nil {
		var stderr string
		var exit *exec.ExitError
		if errors.As(err, &exit) {
			stderr = lastLines(string(exit.Stderr), 5)
		}
		return "", fmt.Errorf("%s: %w %s", strings.Join(append([]string{name}, args...), " "), err, stderr)
	}
	return string(out), nil
}

func lastLines(text string, n int) string {
	all := strings.Split(strings.TrimSpace(text), "\n")
	return strings.Join(all[max(0, len(all)-n):], "; ")
}

func say(format string, args ...any) { fmt.Fprintf(os.Stderr, "matrix: "+format+"\n", args...) }
