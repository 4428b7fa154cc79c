package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/urfave/cli/v3"

	"github.com/sqllock/sqllock"
	"github.com/sqllock/sqllock/internal/supervise"
)

const (
	// openTimeout bounds opening the database, its migrations included.
	openTimeout = 15 * time.Second
	// unlockTimeout and closeTimeout bound what is left to do after CMD has ended: a server
	// that does not answer must not keep us. The lock expires by itself.
	unlockTimeout = 5 * time.Second
	closeTimeout  = time.Second
	// waitMargin is how much longer than --wait the command can take, if the database answers
	// late or not at all.
	waitMargin = 100 * time.Millisecond
)

// runner is one call of a subcommand that runs CMD under a lock: run or elect.
type runner struct {
	*app
	verb     string // the subcommand
	name     string // of the lock
	path     string // of CMD
	shared   bool
	permits  int // of the name, if one of them is wanted
	try      bool
	wait     time.Duration // 0: without limit
	ttl      time.Duration
	grace    time.Duration
	label    string
	options  []sqllock.LockOption
	heldCode int
	quiet    bool
	progress bool    // is shown while it waits
	key      *keyRun // of --once, or nil

	acquire func(context.Context) (*sqllock.Lease, error) // waits for the lock, on the open database
	db      *database
	locker  *sqllock.Locker // nil until the database is open
	waitEnd time.Time       // of --wait, if it is set
	granted bool
}

// newRunner takes the arguments and flags that all such subcommands have.
func (a *app) newRunner(cmd *cli.Command) *runner {
	return &runner{app: a, verb: cmd.Name, name: cmd.Args().First(), ttl: cmd.Duration("ttl"), grace: cmd.Duration("grace"), label: cmd.String("label")}
}

// findCommand checks the arguments and looks for the program of CMD.
func (r *runner) findCommand(cmd *cli.Command) (err error) {
	switch {
	case cmd.Args().Len() == 0:
		return r.fail(exitUsage, "NAME and CMD are missing; see \"sqllock %s --help\"", r.verb)
	case cmd.Args().Len() > 1:
		return r.fail(exitUsage, "unexpected: %s; see \"sqllock %s --help\"", r.quoted(cmd.Args().Get(1)), r.verb)
	case len(r.command) == 0:
		return r.fail(exitUsage, "CMD is missing, as in: sqllock %s NAME -- CMD", r.verb)
	case r.ttl <= 0:
		return r.fail(exitUsage, "--ttl %v: must be positive", r.ttl)
	case r.grace < 0:
		return r.fail(exitUsage, "--grace %v: must not be negative", r.grace)
	}
	r.path, err = exec.LookPath(r.command[0])
	return r.notRunnable(err)
}

func (r *runner) fail(code int, format string, args ...any) error {
	return fail(code, r.verb+": "+format, args...)
}

// notRunnable gives an error of starting CMD the exit code that a shell would give it. The
// innermost error does not repeat the word, see quoted.
func (r *runner) notRunnable(err error) error {
	if err == nil {
		return nil
	}
	code := exitNotRunnable
	if errors.Is(err, exec.ErrNotFound) || errors.Is(err, fs.ErrNotExist) {
		code = exitNotFound
	}
	for inner := errors.Unwrap(err); inner != nil; inner = errors.Unwrap(err) {
		err = inner
	}
	return r.fail(code, "%s: %w", r.quoted(r.command[0]), err)
}

// runOnce takes the lock, runs CMD and gives the lock back. The watchdog starts meanwhile, so
// that nobody waits for it while the lock is held. It reports whether the lock was lost, and
// whether a signal asked to end.
func (r *runner) runOnce(ctx context.Context, sigs *supervise.Signals) (lost, endRequested bool, err error) {
	watchdog, err := supervise.NewWatchdog(r.name)
	if err != nil {
		return false, false, r.fail(exitSystem, "cannot start the watchdog: %w", err)
	}
	defer watchdog.Close()
	lease, err := r.lockUnlessSignalled(ctx, sigs)
	if err != nil {
		return false, false, err
	}
	endRequested, err = r.runCommand(lease, watchdog, sigs)
	watchdog.Close() // processes that CMD has left in the background may go on
	if r.key != nil {
		r.key.end(err)
	}
	return r.unlock(lease), endRequested, err
}

// runCommand runs CMD to its end and returns its exit code as an error. If the lease is lost,
// CMD ends within the grace and its exit code means nothing. It also reports whether a signal
// asked to end.
func (r *runner) runCommand(lease *sqllock.Lease, watchdog *supervise.Watchdog, sigs *supervise.Signals) (endRequested bool, err error) {
	if err := watchdog.Ready(); err != nil {
		return false, r.fail(exitSystem, "the watchdog does not start: %w", err)
	}
	ctx := lease.Context()
	if err := context.Cause(ctx); err != nil { // lost while we were paused, for example
		r.say("%v; the command was not run", err)
		return false, exit(exitLost)
	}
	result, err := watchdog.Run(ctx, &supervise.Command{
		Path: r.path, Args: r.command, Env: r.commandEnv(lease), Grace: r.grace,
		Stdin: r.stdin, Stdout: r.stdout, Stderr: r.stderr,
		Ending: func() { r.say("%v; ending the command", context.Cause(ctx)) },
	}, sigs)
	switch {
	case err != nil:
		return false, r.notRunnable(err)
	case result.Interrupted:
		return true, &failure{code: result.Code, interrupted: true}
	}
	return result.EndRequested, exit(result.Code)
}

// commandEnv is our environment with the lock added. If we run under another lock, its
// variables go: programs differ in which of two they find.
func (r *runner) commandEnv(lease *sqllock.Lease) []string {
	env := slices.DeleteFunc(slices.Clone(r.environ), func(kv string) bool {
		name, _, _ := strings.Cut(kv, "=")
		return slices.Contains([]string{"SQLLOCK_NAME", "SQLLOCK_TOKEN", "SQLLOCK_KEY", "SQLLOCK_ATTEMPT", "SQLLOCK_SLOT"}, name)
	})
	env = append(env, "SQLLOCK_NAME="+r.name, "SQLLOCK_TOKEN="+strconv.FormatInt(lease.Token(), 10))
	if r.permits > 0 {
		env = append(env, "SQLLOCK_SLOT="+strconv.Itoa(lease.Slot()))
	}
	if r.key != nil {
		env = append(env, "SQLLOCK_KEY="+r.key.key, "SQLLOCK_ATTEMPT="+strconv.Itoa(r.key.run.Attempt()))
	}
	return env
}

// lockUnlessSignalled takes the lock unless a signal comes first.
func (r *runner) lockUnlessSignalled(ctx context.Context, sigs *supervise.Signals) (*sqllock.Lease, error) {
	ctx, release := sigs.Context(ctx)
	lease, err := r.lock(ctx)
	release()
	sig, came := context.Cause(ctx).(supervise.SignalError)
	if !came {
		return lease, err
	}
	if lease != nil {
		if r.key != nil {
			r.key.end(errFailed) // CMD was not run
		}
		r.unlock(lease)
	}
	return nil, exit(sig.Code())
}

// lock opens the database and takes the lock, within --wait if that is set.
func (r *runner) lock(ctx context.Context) (*sqllock.Lease, error) {
	if r.wait == 0 {
		return r.openAndAcquire(ctx)
	}
	r.waitEnd = time.Now().Add(r.wait)
	ctx, cancel := context.WithDeadline(ctx, r.waitEnd.Add(waitMargin))
	defer cancel()
	lease, err := r.openAndAcquire(ctx)
	if f := (*failure)(nil); errors.Is(err, context.DeadlineExceeded) && errors.As(err, &f) && f.code == exitUnavailable {
		err = fail(exitUnavailable, "the database did not answer within %v", min(r.wait, openTimeout))
	}
	return lease, err
}

// openAndAcquire opens the database, unless it is open, and takes the lock.
func (r *runner) openAndAcquire(ctx context.Context) (*sqllock.Lease, error) {
	if r.locker == nil {
		if err := openError(r.open(ctx)); err != nil {
			return nil, r.db.failure(err)
		}
	}
	lease, err := r.acquire(ctx)
	r.granted = err == nil
	switch {
	case errors.Is(err, sqllock.ErrDone):
		return nil, err
	case errors.Is(err, sqllock.ErrHeld) && r.quiet:
		return nil, &failure{code: r.heldCode}
	case errors.Is(err, sqllock.ErrHeld):
		return nil, &failure{code: r.heldCode, err: err}
	case errors.Is(err, sqllock.ErrLost):
		return nil, &failure{code: exitLost, err: err}
	}
	return lease, r.db.failure(err)
}

// open opens the database. An SQLite file gets its tables now. A server that is starting, or
// has no connection left, gets some time.
func (r *runner) open(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, openTimeout)
	defer cancel()
	if err := r.db.prepare(ctx); err != nil {
		return err
	}
	opts, m := r.lockerOptions(), r.db.modes[0]
	locker, err := r.db.locker(ctx, m, opts, openTimeout)
	if r.db.hasFile() && errors.Is(err, sqllock.ErrSchema) {
		if err := r.db.makeTables(ctx); err != nil {
			return err
		}
		locker, err = r.db.locker(ctx, m, opts, openTimeout)
	}
	r.locker = locker
	return err
}

// lockerOptions are the options of the Locker. It does not reap: those who share the table
// agree on a retention, and this program does not know it.
func (r *runner) lockerOptions() *sqllock.UniqueOptions {
	return &sqllock.UniqueOptions{TTL: r.ttl, Label: r.label, Logger: slog.New(warnings{r.app}),
		Reaper: &sqllock.ReaperOptions{Off: true}}
}

// unlock gives the lease back and reports whether it was lost before.
func (r *runner) unlock(lease *sqllock.Lease) (lost bool) {
	var lostErr *sqllock.LostError
	cause := context.Cause(lease.Context()) // the user has been told
	lost = errors.As(cause, &lostErr) || errors.Is(cause, sqllock.ErrResignRequested)
	ctx, cancel := context.WithTimeout(context.Background(), unlockTimeout)
	defer cancel()
	err := r.giveBack(ctx, lease)
	if errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, sqllock.ErrLost) {
		err = fmt.Errorf("the database did not answer; %q becomes free when its time is over", r.name)
	}
	if err != nil && !lost {
		r.say("%v", err)
	}
	return lost || errors.Is(err, sqllock.ErrLost)
}

// close waits for requests that are in flight, unless --wait is over: a server that grants the
// lock later finds that nobody is there any more.
func (r *runner) close() {
	limit := time.Now().Add(closeTimeout)
	if end := r.waitEnd.Add(waitMargin / 2); !r.granted && r.wait > 0 && end.Before(limit) {
		limit = end
	}
	ctx, cancel := context.WithDeadline(context.Background(), limit)
	defer cancel()
	if r.locker != nil {
		within(ctx, func() { _ = r.locker.Close(ctx) })
	}
	r.db.close(ctx)
}

// warnings is a slog.Handler that shows warnings of the library: doubts about the server, and
// renewals that fail. This program itself reports what happens to a lock.
type warnings struct{ app *app }

var _ slog.Handler = warnings{}

func (warnings) Enabled(_ context.Context, level slog.Level) bool { return level == slog.LevelWarn }

func (w warnings) Handle(_ context.Context, r slog.Record) error {
	var text strings.Builder
	r.Attrs(func(a slog.Attr) bool {
		fmt.Fprintf(&text, ", %s %v", a.Key, a.Value)
		return true
	})
	w.app.say("warning: %s%s", strings.TrimPrefix(r.Message, "sqllock: "), text.String())
	return nil
}

func (w warnings) WithAttrs([]slog.Attr) slog.Handler { return w }
func (w warnings) WithGroup(string) slog.Handler      { return w }
