package main

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/urfave/cli/v3"

	"github.com/sqllock/sqllock"
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
			&cli.BoolFlag{Name: "shared", Aliases: []string{"s"}, Usage: "hold the name together with others who do; who does not share it waits for all of them"},
			&cli.BoolFlag{Name: "try", Usage: "do not wait if the name is held"},
			&cli.DurationFlag{Name: "wait", HideDefault: true, Usage: "wait no longer than `DURATION` for the name, 10s or 5m; 0 is --try (default: for ever)"},
			&cli.DurationFlag{Name: "ttl", Value: sqllock.DefaultTTL, Usage: "free the name if nothing is heard of run for `DURATION`"},
			&cli.DurationFlag{Name: "grace", Value: 10 * time.Second, Usage: "when the lock is lost, kill what SIGTERM has not ended after `DURATION`"},
			&cli.IntFlag{Name: "conflict-exit-code", Aliases: []string{"E"}, Value: exitHeld, Usage: "exit with `CODE` if --try or --wait did not get the name"},
			&cli.DurationFlag{Name: "min-hold", HideDefault: true, Usage: "keep the name from others for `DURATION` from the start of CMD on, even if it ends earlier"},
			&cli.DurationFlag{Name: "max-hold", HideDefault: true, Usage: "take the lock for lost after `DURATION`, and end CMD (default: never; 1h with --mode forupdate)"},
			&cli.DurationFlag{Name: "lock-delay", HideDefault: true, Usage: "if the lock is lost, keep the name from others for `DURATION` more"},
			&cli.StringFlag{Name: "value", Usage: "show `TEXT` to whoever inspects the name"},
			&cli.StringFlag{Name: "label", Usage: "tell people by `TEXT` who holds the name (default: host/program/pid)"},
			&cli.BoolFlag{Name: "quiet", Aliases: []string{"q"}, Usage: "say nothing if --try or --wait did not get the name"},
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
	r.try = cmd.Bool("try")
	r.wait = cmd.Duration("wait")
	r.options = lockOptions(cmd)
	r.heldCode = cmd.Int("conflict-exit-code")
	r.quiet = cmd.Bool("quiet")
	switch {
	case r.try && cmd.IsSet("wait"):
		return nil, fail(exitUsage, "run: --try and --wait exclude each other")
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
	if lost {
		return exit(exitLost)
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
	if r.try {
		return try(ctx, r.name, r.options...)
	}
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

With --shared any number of them hold NAME at the same time, as long as all of them
share it: readers, while those without --shared are writers, each alone. --min-hold
and --value do not apply.

Whoever waits for NAME in the mode unique stands in line, on whatever host: readers and
writers get NAME in the order in which they came, and nobody with --try gets it before
them. One that is killed while it waits holds up those behind it for --ttl, or 5s if
that is less. In the other modes there is no order: readers can keep a writer waiting.

--mode chooses what keeps NAME. The same NAME in two modes is two locks.

   unique     a row that expires. Whoever holds NAME is succeeded --ttl after it was
              heard of last; it outlives broken connections and restarts of the server
   forupdate  an open transaction that has locked a row. If run dies NAME is free at
              once; if its host vanishes, --ttl after. If the server ends the session
              the lock is lost at once. --max-hold is 1h unless it is set
   advisory   a lock in the memory of the server. For the rest as forupdate, but
              without the 1h

The last two take Postgres, or MySQL, where --ttl must be 2s at least, and three
connections instead of two.

CMD finds NAME in SQLLOCK_NAME and the fencing token in SQLLOCK_TOKEN: a number
that is higher each time somebody gets the lock, which whatever CMD writes to can
use to refuse the late write of a former holder.

The lock is renewed every third of --ttl. If that fails for too long, because the
database cannot be reached, or because run itself was stopped, the lock is lost:
run sends SIGTERM to CMD and all that it has started, after --grace SIGKILL, and
exits with 75. If run is killed with -9, CMD and what it has started are killed at
once, so that they are gone before the lock is free. With --mode forupdate or advisory
the lock is free at once too: the next one may begin a moment before they are gone,
unless --lock-delay keeps it. What no lock can do is prevent that a stopped run
(SIGSTOP, a suspended machine) finds out too late: CMD may still be running then while
somebody else has the lock, until run goes on. That is what the token is for.

A job that several hosts start at the same time runs once if --min-hold is longer than
their clocks differ. With --max-hold a CMD that hangs is ended as if the lock were
lost. With --lock-delay what a lost CMD had under way can arrive before the next
begins; who ends in order makes nobody wait.

Signals to run go to the process group of CMD. A signal that ends CMD does not
free the lock before what CMD has started is gone too, or --grace is over. What
CMD leaves behind in the background when it ends by itself is not waited for. A
process that leaves the process group, by setsid for example, is on its own.

The parent-death signal, which kills CMD in the very moment run dies, exists on
Linux; on other Unix systems the watchdog process that run starts does it alone.
On Windows nothing does: CMD goes on if run is killed, and of a CMD whose lock is
lost only CMD itself is ended.

Examples:

   sqllock run nightly -- ./backup.sh
   sqllock run --try -E 0 nightly -- ./backup.sh       (skip if it is running)
   sqllock run --wait 10m --ttl 1m report -- make report
   sqllock run --mode advisory --try nightly -- ./backup.sh
   sqllock run --shared data -- ./report.sh            (many at a time, but not
   sqllock run data -- ./import.sh                      while this runs)
   sqllock run deploy -- sh -c 'echo $SQLLOCK_NAME $SQLLOCK_TOKEN'

Exit codes: that of CMD, 128+n if signal n ended it, or
   1    the name is held by somebody else (--try, --wait); -E chooses another
   64   wrong usage
   69   the database is unreachable or not usable; CMD was not run
   71   the operating system refused something
   75   the lock was lost, or --max-hold was over; CMD was ended
   126  CMD cannot be executed
   127  CMD was not found
   128+n  signal n came while run was waiting; CMD was not run`
