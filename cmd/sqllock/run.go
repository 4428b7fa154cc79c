package main

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/urfave/cli/v3"

	"github.com/sqllock/sqllock"
	"github.com/sqllock/sqllock/internal/output"
	"github.com/sqllock/sqllock/internal/supervise"
)

func (a *app) runCommand() *cli.Command {
	return &cli.Command{
		Name:            "run",
		Usage:           "run a command while holding a lock",
		ArgsUsage:       "NAME -- CMD [ARG...]",
		UsageText:       "sqllock run [options] NAME [options] [--] CMD [ARG...]",
		Description:     runDescription,
		HideHelpCommand: true,
		Metadata:        map[string]any{takesCommand: true},
		Flags: []cli.Flag{
			modeFlag("take the lock of `MODE`: unique, forupdate or advisory", unique),
			&cli.BoolFlag{Name: "shared", Aliases: []string{"s"}, Usage: "share the name with other --shared holders; a caller without --shared waits for all of them"},
			&cli.IntFlag{Name: "permits", HideDefault: true, Usage: "hold one of `N` permits of the name: up to N callers with --permits hold it at the same time"},
			&cli.StringFlag{Name: "once", Usage: "run CMD to its end once for each `KEY` of the name: not at all if that was done already"},
			&cli.BoolFlag{Name: "try", Usage: "do not wait if the name is held"},
			&cli.DurationFlag{Name: "wait", HideDefault: true, Usage: "wait no longer than `DURATION` for the name, 10s or 5m; 0 is --try (default: for ever)"},
			&cli.DurationFlag{Name: "ttl", Value: sqllock.DefaultTTL, Usage: "free the name if the database hears nothing of run for `DURATION`"},
			&cli.DurationFlag{Name: "grace", Value: 10 * time.Second, Usage: "when the lock is lost, send SIGKILL `DURATION` after SIGTERM"},
			&cli.IntFlag{Name: "conflict-exit-code", Aliases: []string{"E"}, Value: exitHeld, Usage: "exit with `CODE` if --try or --wait did not get the name"},
			&cli.DurationFlag{Name: "min-hold", HideDefault: true, Usage: "keep the name from others for `DURATION` from the start of CMD on, even if it ends earlier"},
			&cli.DurationFlag{Name: "max-hold", HideDefault: true, Usage: "treat the lock as lost after `DURATION`, and end CMD (default: never; 1h with --mode forupdate)"},
			&cli.DurationFlag{Name: "lock-delay", HideDefault: true, Usage: "if the lock is lost, keep the name from others for `DURATION` more"},
			&cli.StringFlag{Name: "value", Usage: "show `TEXT` to callers that inspect the name"},
			&cli.StringFlag{Name: "label", Usage: "show `TEXT` as the holder to people (default: host/program/pid)"},
			&cli.BoolFlag{Name: "quiet", Aliases: []string{"q"}, Usage: "say nothing if --try or --wait did not get the name"},
			&cli.BoolFlag{Name: "progress", Usage: "while it waits, show on a terminal who holds the name, and the place in the queue"},
		},
		Action: func(ctx context.Context, cmd *cli.Command) error {
			r, err := a.lockRunner(cmd)
			if err != nil {
				return err
			}
			return r.run(ctx, cmd)
		},
	}
}

// lockRunner checks what can be checked without the database.
func (a *app) lockRunner(cmd *cli.Command) (*runner, error) {
	r := a.newRunner(cmd)
	r.acquire = r.waitForLock
	r.shared = cmd.Bool("shared")
	r.permits = cmd.Int("permits")
	if cmd.IsSet("once") {
		r.key = &keyRun{key: cmd.String("once")}
	}
	r.try = cmd.Bool("try")
	r.wait = cmd.Duration("wait")
	r.options = lockOptions(cmd)
	r.heldCode = cmd.Int("conflict-exit-code")
	r.quiet = cmd.Bool("quiet")
	r.progress = cmd.Bool("progress")
	switch {
	case r.try && cmd.IsSet("wait"):
		return nil, fail(exitUsage, "run: --try and --wait exclude each other")
	case r.key != nil && r.shared:
		return nil, fail(exitUsage, "run: --once and --shared exclude each other")
	case r.key != nil && mode(cmd.String("mode")).sessions():
		return nil, fail(exitUsage, "run: --once needs --mode unique")
	case cmd.IsSet("permits") && (r.permits < 1 || r.permits > sqllock.MaxPermits):
		return nil, fail(exitUsage, "run: --permits %d: must be from 1 to %d", r.permits, sqllock.MaxPermits)
	case r.permits > 0 && (r.shared || r.key != nil):
		return nil, fail(exitUsage, "run: --permits excludes --shared and --once")
	case r.permits > 0 && mode(cmd.String("mode")).sessions():
		return nil, fail(exitUsage, "run: --permits needs --mode unique")
	case r.permits > 0 && (cmd.IsSet("min-hold") || cmd.IsSet("value")):
		return nil, fail(exitUsage, "run: --min-hold and --value do not apply to a permit")
	case r.shared && (cmd.IsSet("min-hold") || cmd.IsSet("value")):
		return nil, fail(exitUsage, "run: --min-hold and --value do not apply to a lock that is --shared")
	case r.wait < 0:
		return nil, fail(exitUsage, "run: --wait %v: must not be negative", r.wait)
	case r.heldCode < 0 || r.heldCode > 255:
		return nil, fail(exitUsage, "run: -E %d: an exit code is from 0 to 255", r.heldCode)
	}
	r.try = r.try || cmd.IsSet("wait") && r.wait == 0
	return r, r.findCommand(cmd)
}

// lockOptions are the flags that the library understands. It checks them too.
func lockOptions(cmd *cli.Command) (opts []sqllock.LockOption) {
	for flag, option := range map[string]func(time.Duration) sqllock.LockOption{
		"min-hold": sqllock.MinHold, "max-hold": sqllock.MaxHold, "lock-delay": sqllock.LockDelay,
	} {
		if cmd.IsSet(flag) {
			opts = append(opts, option(cmd.Duration(flag)))
		}
	}
	if cmd.IsSet("value") {
		opts = append(opts, sqllock.Value([]byte(cmd.String("value"))))
	}
	return opts
}

// run takes the lock, runs CMD and gives the lock back.
func (r *runner) run(ctx context.Context, cmd *cli.Command) (err error) {
	if r.db, err = r.database(cmd); err != nil {
		return err
	}
	sigs := supervise.CatchForCommand()
	defer sigs.Stop()
	defer r.close()
	lost, _, err := r.runOnce(ctx, sigs)
	switch {
	case lost:
		return exit(exitLost)
	case errors.Is(err, sqllock.ErrDone):
		if !r.quiet {
			r.say("%s was run already", output.Word(r.key.key))
		}
		return nil
	case err == nil && r.key != nil && !r.key.complete:
		return exit(exitUnavailable) // the user has been told
	}
	return err
}

// waitForLock takes the lock as the flags say. If a grant comes too late to be used, because
// this process was stopped, it waits again.
func (r *runner) waitForLock(ctx context.Context) (*sqllock.Lease, error) {
	lock, try := r.locker.Lock, r.locker.TryLock
	if r.shared {
		lock, try = r.locker.RLock, r.locker.TryRLock
	}
	if r.key != nil {
		lock, try = r.lockKey, r.tryKey
	}
	if r.permits > 0 {
		s, err := r.locker.Semaphore(r.name, r.permits, nil)
		if err != nil {
			return nil, err
		}
		lock = func(ctx context.Context, _ string, opts ...sqllock.LockOption) (*sqllock.Lease, error) {
			return s.Acquire(ctx, opts...)
		}
		try = func(ctx context.Context, _ string, opts ...sqllock.LockOption) (*sqllock.Lease, error) {
			return s.TryAcquire(ctx, opts...)
		}
	}
	if r.try {
		return try(ctx, r.name, r.options...)
	}
	defer r.showProgress(ctx)()
	for {
		opts := r.options
		if r.wait > 0 {
			opts = append(slices.Clip(opts), sqllock.Wait(max(time.Until(r.waitEnd), time.Millisecond)))
		}
		lease, err := lock(ctx, r.name, opts...)
		if late := (*sqllock.LostError)(nil); errors.As(err, &late) && late.Reason == sqllock.LostLate {
			if r.wait == 0 || time.Now().Before(r.waitEnd) {
				continue
			}
		}
		return lease, err
	}
}

const runDescription = `run waits until it holds the lock NAME, runs CMD, and gives the lock back when CMD
has ended. NAME is 1 to 255 bytes of UTF-8; upper and lower case differ. The
"--" may be left out; what follows CMD is never read as a flag of run.

With --shared, several callers hold NAME at the same time. They are readers. A caller
without --shared is a writer and holds NAME alone. --min-hold and --value do not apply
to readers.

With --permits N, up to N callers hold NAME at the same time. The first of them says how
many permits NAME has; another N is refused. A caller without --permits waits until no
permit is held. CMD finds in SQLLOCK_SLOT which of the permits it has, from 0. --permits
needs unique mode.

In unique mode the callers that wait for NAME, on all hosts, form a queue. Readers and
writers get NAME in the order in which they came, and --try does not overtake them. A
waiter that is killed delays those behind it by --ttl, but by 0.5s at least and by 5s at
most. In the other modes there is no order: readers can keep a writer waiting.

With --progress, run shows in a line on the terminal of stderr how long it has waited, who
holds NAME, and in unique mode its place in the queue, if that is one of the first ten.
The line goes when the wait ends. If stderr is no terminal, --progress does nothing.

--mode chooses what keeps NAME. The same NAME in two modes is two locks.

   unique     a row that expires. If the database hears nothing of the holder for
              --ttl, the next caller can get NAME. The lock survives broken
              connections and restarts of the server
   forupdate  an open transaction that has locked a row. If run dies, NAME is free at
              once; if its host vanishes, after --ttl. If the server ends the session,
              the lock is lost at once. --max-hold is 1h unless you set it
   advisory   a lock in the memory of the server. Otherwise like forupdate, but
              without the 1h

The last two need Postgres or MySQL. They use three connections instead of two. On
MySQL, --ttl must be 2s or more.

With --once, run remembers KEY when CMD has ended with 0, and from then on a run of NAME
with the same KEY does not run CMD, and exits with 0. It waits for NAME first, unless KEY
is known already. If CMD fails, or run is killed, the next run with KEY runs CMD. If run
is killed after CMD has ended, CMD runs again. KEY is 1 to 255 bytes of UTF-8, such as a
date. CMD finds it in SQLLOCK_KEY, and in SQLLOCK_ATTEMPT how often it was begun. Keys are
kept for 90 days (see "sqllock reap"). --once needs unique mode.

CMD finds NAME in SQLLOCK_NAME and the fencing token in SQLLOCK_TOKEN. The token is a
number that is higher with each grant. A service to which CMD writes can use it to
refuse a late write of a former holder.

run renews the lock every third of --ttl. If that fails for too long, because the
database cannot be reached or because run was stopped, the lock is lost. Then run sends
SIGTERM to CMD and to all processes that CMD has started, after --grace SIGKILL, and
exits with 75. If run is killed with -9, CMD and its processes are killed at once, in
unique mode before the lock is free. With --mode forupdate or advisory the lock is
free at once too: the next holder can begin a moment before they are gone, unless
--lock-delay keeps the lock. No lock can help if run is stopped for too long (SIGSTOP, a
suspended machine): CMD can go on while another caller has the lock, until run goes on.
The token protects against that.

If several hosts start a job at the same time, it runs once if --min-hold is longer than
the difference of their clocks. With --max-hold, run ends a CMD that hangs as if the
lock were lost. With --lock-delay, requests that a lost CMD had in flight can arrive
before the next holder begins; a holder that ends normally makes nobody wait.

Signals to run go to the process group of CMD. If a signal ends CMD, the lock stays held
until all processes of the group are gone, or --grace is over; on systems other than Linux
until CMD itself is gone. If CMD ends by itself, run does not wait for processes in the
background. A process that leaves the process group, by setsid for example, is not
supervised.

On Linux the parent-death signal kills CMD at the moment when run dies. On other Unix
systems only the watchdog process that run starts does that. On Windows nothing does:
CMD goes on if run is killed, and if the lock is lost, run ends CMD only and not the
processes that CMD has started.

Examples:

   sqllock run nightly -- ./backup.sh
   sqllock run --try -E 0 nightly -- ./backup.sh       (skip if it is running)
   sqllock run --wait 10m --ttl 1m report -- make report
   sqllock run --mode advisory --try nightly -- ./backup.sh
   sqllock run --shared data -- ./report.sh            (many at a time, but not
   sqllock run data -- ./import.sh                      while this runs)
   sqllock run --permits 3 import -- ./import.sh       (three at a time)
   sqllock run --once "$(date +%F)" nightly -- ./backup.sh     (once a day)
   sqllock run deploy -- sh -c 'echo $SQLLOCK_NAME $SQLLOCK_TOKEN'

Exit codes: that of CMD, 128+n if signal n ended it, or
   0    with --once: KEY was complete already; CMD was not run
   1    the name is held by somebody else (--try, --wait); -E chooses another
   64   wrong usage
   69   the database is unreachable or not usable; CMD was not run, or with --once
        it was run and KEY could not be remembered
   71   the operating system refused something
   75   the lock was lost, or --max-hold was over; CMD was ended
   126  CMD cannot be executed
   127  CMD was not found
   128+n  signal n came while run was waiting; CMD was not run`
