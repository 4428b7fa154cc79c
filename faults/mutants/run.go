//go:build linux

package main

import (
	"bufio"
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"time"
)

// A failure is the reason why tests failed. The zero failure means that they passed.
type failure struct {
	by  string // a test, or another event
	job job    // the job that repeats it: only that test, or all that were running
	// died means that the process crashed.
	died bool
	// refused means that a database reported invalid SQL.
	refused bool
}

// runStage runs the jobs of a stage until the first of them fails.
func runStage(ctx context.Context, b *binaries, s *stage) (failure, error) {
	for _, pkg := range s.packages() {
		if _, err := b.of(ctx, pkg); err != nil {
			return failure{}, err
		}
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	type result struct {
		failure
		err error
	}
	results := make(chan result, len(s.jobs))
	for _, j := range s.jobs {
		go func() {
			f, err := runJob(ctx, b, j, s.timeout)
			results <- result{f, err}
		}()
	}
	var first result
	for range s.jobs {
		r := <-results
		if first.by == "" && first.err == nil && (r.by != "" || r.err != nil) {
			first = r
			cancel()
		}
	}
	return first.failure, first.err
}

var (
	began  = regexp.MustCompile(`^=== RUN +(\S+)`)
	ended  = regexp.MustCompile(`^ *--- (PASS|FAIL|SKIP): (\S+)`)
	broken = regexp.MustCompile(`^(panic: .*|fatal error: .*|sqllock: .*left.*)`)
	noSQL  = regexp.MustCompile(`(?i)syntax error|error in your SQL syntax|SQLSTATE 42601|SQL logic error|misuse of aggregate`)
)

// runJob runs tests to their end, or to the first failure.
func runJob(ctx context.Context, b *binaries, j job, timeout time.Duration) (failure, error) {
	args := []string{"-test.v", "-test.failfast", "-test.count=1", "-test.timeout=" + timeout.String(), "-test.run=" + j.run}
	if j.parallel != "" {
		args = append(args, "-test.parallel="+j.parallel)
	}
	c := exec.CommandContext(ctx, b.built[j.pkg], args...)
	c.Dir = filepath.Join(b.root, j.pkg)
	c.Env = append(os.Environ(), "SQLLOCK_REQUIRE=postgres,mariadb", "GOWORK=off", "TMPDIR="+b.temporary)
	c.Cancel = func() error { return c.Process.Signal(syscall.SIGTERM) }
	c.WaitDelay = 5 * time.Second
	r, w, err := os.Pipe()
	if err != nil {
		return failure{}, err
	}
	defer func() { _ = r.Close() }()
	c.Stdout, c.Stderr = w, w
	c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	err = c.Start()
	_ = w.Close()
	if err != nil {
		return failure{}, err
	}
	// Clients of interrupted tests may be paused. The supervisor has its own process
	// group, and removes the servers.
	defer func() { _ = syscall.Kill(-c.Process.Pid, syscall.SIGKILL) }()
	late := time.AfterFunc(timeout+30*time.Second, func() { _ = c.Process.Kill() })
	defer late.Stop()
	o := observe(r, j.silence, func() { _ = c.Process.Signal(syscall.SIGTERM) })
	err = c.Wait()
	if exit := (*exec.ExitError)(nil); err != nil && !errors.As(err, &exit) && ctx.Err() == nil {
		return failure{}, err
	}
	if ctx.Err() != nil && o.failed == "" {
		return failure{}, nil
	}
	return o.failure(j, err != nil), nil
}

// An observation is the result of parsing the output of tests.
type observation struct {
	failed  string   // the first test that failed
	died    string   // why the process did
	open    []string // tests that had begun
	ran     int
	refused bool
}

// observe reads the output of tests. After the first failure it ends them, when there
// was time to say why; and after a silence, if that is not 0.
func observe(r io.Reader, silence time.Duration, stop func()) (o observation) {
	var hung atomic.Bool
	if silence > 0 {
		watch := time.AfterFunc(silence, func() { hung.Store(true); stop() })
		defer watch.Stop()
		r = listener{r, func() { watch.Reset(silence) }}
	}
	defer func() {
		if hung.Load() && o.failed == "" {
			o.died = hanging
		}
	}()
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, 1<<24)
	for lines.Scan() {
		line := lines.Text()
		o.refused = o.refused || noSQL.MatchString(line)
		if m := began.FindStringSubmatch(line); m != nil {
			o.open = append(o.open, m[1])
		}
		if m := ended.FindStringSubmatch(line); m != nil && o.testEnded(m[2], m[1] == "FAIL") {
			time.AfterFunc(time.Second, stop)
		}
		if m := broken.FindString(line); m != "" && o.died == "" {
			if o.died = shorten(m); strings.Contains(m, "test timed out") {
				o.died = hanging
			}
		}
	}
	_, _ = io.Copy(io.Discard, r) // a line was too long
	return o
}

// testEnded notes the end of a test. It reports whether that is the first failure.
func (o *observation) testEnded(name string, failed bool) (first bool) {
	o.ran++
	o.open = slices.DeleteFunc(o.open, func(open string) bool { return open == name })
	switch {
	case !failed:
	case o.failed == "":
		o.failed = name
		return true
	case strings.HasPrefix(name, o.failed+"/"): // after a panic, subtests are reported later
		o.failed = name
	}
	return false
}

// hanging is the report for tests that run too long.
const hanging = "it hangs"

// A listener calls heard after each read.
type listener struct {
	io.Reader
	heard func()
}

func (l listener) Read(p []byte) (int, error) {
	n, err := l.Reader.Read(p)
	l.heard()
	return n, err
}

// failure returns what failed, if anything.
func (o *observation) failure(j job, bad bool) failure {
	f := failure{job: j, refused: o.refused}
	switch {
	case o.failed != "":
		if f.by = o.failed; strings.HasPrefix(o.failed, conformanceTest) && strings.Count(o.failed, "/") < 2 {
			return f // it is all of the job
		}
		f.job.run = alone(o.failed)
	case !bad && o.ran > 0:
		return failure{}
	default:
		f.by, f.died = o.died, o.died != "" && o.died != hanging
		if f.by == "" {
			f.by = "the process ended"
		}
		if top := tops(o.open); len(top) > 0 && !slices.Contains(top, conformanceTest) {
			f.by, f.job.run = f.by+" in "+strings.Join(top, ", "), exactly(top)
		}
	}
	return f
}

// tops returns the tests that are inside of no other.
func tops(open []string) (top []string) {
	for _, name := range open {
		name, _, _ = strings.Cut(name, "/")
		if !slices.Contains(top, name) {
			top = append(top, name)
		}
	}
	return top
}

// shorten makes one short line of a text.
func shorten(text string) string {
	text = strings.Join(strings.Fields(text), " ")
	if r := []rune(text); len(r) > 90 {
		return string(r[:90]) + "…"
	}
	return text
}
