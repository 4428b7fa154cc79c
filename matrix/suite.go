//go:build unix

package main

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/sqllock/sqllock/internal/pairs"
)

// modes are those of the conformance suite in the root module.
var modes = []string{"unique", "for update", "advisory"}

// test runs the suites of a cell, one after the other.
func (c *cell) test(ctx context.Context, n *count, path []string, short bool) error {
	for i := range c.suites {
		s := &c.suites[i]
		if short && s.isTest {
			continue
		}
		if err := s.test(ctx, n, path, short); err != nil {
			return fmt.Errorf("%s: %w", s.dir, err)
		}
	}
	return nil
}

// modules has the go command download what the tests import.
func (c *cell) modules(ctx context.Context, root string) error {
	for i := range c.suites {
		s := &c.suites[i]
		args := append(append([]string{"list", "-deps", "-test"}, s.flags(root)...), ".")
		if _, err := goTool(ctx, s.environment(nil, false), filepath.Join(root, s.dir), args...); err != nil {
			return err
		}
	}
	return nil
}

// flags are those of the build.
func (s *suite) flags(root string) (flags []string) {
	if s.modfile != "" {
		flags = append(flags, "-modfile="+filepath.Join(root, "matrix", s.modfile))
	}
	if s.tags != "" {
		flags = append(flags, "-tags="+s.tags)
	}
	return flags
}

// environment is that of the tests: of all databases they find one.
func (s *suite) environment(path []string, short bool) []string {
	path = append(slices.Clone(path), os.Getenv("PATH"))
	env := append(os.Environ(), "GOWORK=off", "CGO_ENABLED=1", "PATH="+strings.Join(path, string(os.PathListSeparator)), "SQLLOCK_REQUIRE="+s.database)
	for _, database := range []string{postgres, mariadb, mysql} {
		address := "none"
		if database == s.database {
			address = ""
		}
		env = append(env, "SQLLOCK_TEST_"+strings.ToUpper(database)+"_DSN="+address)
	}
	if s.database == mysql {
		env = append(env, "SQLLOCK_TEST_MYSQLD="+filepath.Join(path[0], "mysqld")) // of the only engine
	}
	if short {
		var all []string
		for _, mode := range modes {
			all = append(all, mode+" on "+cmp.Or(s.database, sqlite))
		}
		env = append(env, "SQLLOCK_TEST_BRIEF="+strings.Join(all, ","))
	}
	return env
}

// test builds the tests of the package and runs them, without go test in between: whoever ends
// this program ends them, and they end their servers.
func (s *suite) test(ctx context.Context, n *count, path []string, short bool) (err error) {
	dir := filepath.Join(n.root, s.dir)
	work, err := os.MkdirTemp("", "sqllock-matrix-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(work)) }()
	bin, env, flags := filepath.Join(work, "tests"), s.environment(path, short), s.flags(n.root)
	if _, err := goTool(ctx, env, dir, append(append([]string{"test", "-c", "-o", bin}, flags...), ".")...); err != nil {
		return err
	}
	if s.driver != "" {
		version, err := goTool(ctx, env, dir, append(append([]string{"list", "-m", "-f={{.Version}}"}, flags...), s.driver)...)
		if err != nil {
			return err
		}
		n.driver = s.driver + " " + strings.TrimSpace(version)
	}
	pkg, err := goTool(ctx, env, dir, append(append([]string{"list"}, flags...), ".")...)
	if err != nil {
		return err
	}
	args := []string{"-test.v=test2json", "-test.paniconexit0", "-test.timeout=60m", "-test.run=" + s.run}
	skip := s.skip
	switch {
	case short && s.tags != "":
		args = append(args, "-test.short")
	case short:
		skip = "^TestConformance$/_with_" // further settings of a pair
	}
	if skip != "" {
		args = append(args, "-test.skip="+skip)
	}
	cmd := exec.CommandContext(ctx, bin, args...)
	cmd.Dir, cmd.Env, cmd.Stderr = dir, env, os.Stderr
	inGroup(cmd)
	return n.read(ctx, strings.TrimSpace(pkg), filepath.Join(n.logs, filepath.Base(strings.TrimSpace(pkg))+".json"), cmd)
}

// inGroup has the end of the context end the processes that the tests have started, too: some of
// them may be paused. Their servers have a supervisor, which sees that the tests have ended.
func inGroup(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
}

// goTool runs the go command, and returns its output.
func goTool(ctx context.Context, env []string, dir string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir, cmd.Env = dir, env
	out, err := cmd.Output()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return "", fmt.Errorf("go %s: %w: %s", strings.Join(args, " "), err, lastLines(string(exit.Stderr), 10))
	}
	return string(out), err
}

// count is what tests say.
type count struct {
	root, logs      string
	version, driver string
	passed          int
	failures        []string
}

// event is a line of test2json.
type event struct {
	Action, Package, Test, Output string
}

// read runs the binary of the tests of a package, and counts what it prints, which a file keeps.
func (n *count) read(ctx context.Context, pkg, file string, cmd *exec.Cmd) error {
	convert := exec.CommandContext(ctx, "go", "tool", "test2json", "-t", "-p", pkg)
	convert.Dir = cmd.Dir
	printed, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	convert.Stdin = printed
	events, err := convert.StdoutPipe()
	if err != nil {
		return err
	}
	if err := os.MkdirAll(n.logs, 0o755); err != nil {
		return err
	}
	log, err := os.Create(file)
	if err != nil {
		return err
	}
	defer func() { _ = log.Close() }()
	if err := cmd.Start(); err != nil {
		return err
	}
	if err := convert.Start(); err != nil {
		_ = cmd.Process.Kill()
		return errors.Join(err, cmd.Wait())
	}
	before := len(n.failures)
	err = n.add(io.TeeReader(events, log))
	err = errors.Join(err, convert.Wait())
	if ended := cmd.Wait(); ended != nil && len(n.failures) == before { // what failed is told otherwise
		err = errors.Join(err, fmt.Errorf("its tests: %w", ended))
	}
	return err
}

// add counts tests without subtests, and tests that fail although no subtest of them does. One
// that is skipped has failed.
func (n *count) add(events io.Reader) error {
	lines := bufio.NewScanner(events)
	lines.Buffer(nil, 16<<20)
	parents, failed := make(map[string]bool), make(map[string]bool)
	for lines.Scan() {
		var e event
		if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
			continue // of a program that the tests have started
		}
		if _, version, found := strings.Cut(e.Output, pairs.VersionIs); found {
			n.version = strings.TrimSpace(version)
		}
		if e.Test == "" {
			continue
		}
		switch e.Action {
		case "run":
			for i, r := range e.Test {
				if r == '/' {
					parents[e.Test[:i]] = true
				}
			}
		case "pass":
			if !parents[e.Test] {
				n.passed++
			}
		case "fail", "skip":
			if !failed[e.Test] {
				n.failures = append(n.failures, e.Test)
			}
			for i, r := range e.Test {
				if r == '/' {
					failed[e.Test[:i]] = true
				}
			}
		}
	}
	return lines.Err()
}
