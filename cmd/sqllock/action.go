package main

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/urfave/cli/v3"

	"github.com/sqllock/sqllock"
	"github.com/sqllock/sqllock/internal/supervise"
	"github.com/sqllock/sqllock/migrations"
)

// action is one call of a subcommand that looks at the locks of others, or changes
// them. It makes no table and no file, holds no lock and cleans up nothing unless
// it is told to.
type action struct {
	*app
	cmd  *cli.Command
	opts sqllock.UniqueOptions
	db   *database

	all     []modeLocker    // the locks of the modes that the command is about
	locks   *sqllock.Locker // the first of them: the only one, unless it is about all
	skipped map[mode]bool   // of which it was said that the server refuses them
}

// newAction returns the function of such a subcommand.
func (a *app) newAction(fn func(ctx context.Context, o *action) error) cli.ActionFunc {
	return func(ctx context.Context, cmd *cli.Command) error {
		o := &action{app: a, cmd: cmd, skipped: make(map[mode]bool), opts: *quietOptions()}
		sigs := supervise.CatchSignals()
		defer sigs.Stop()
		ctx, release := sigs.Context(ctx)
		defer release()
		defer o.close()
		err := fn(ctx, o)
		if sig, came := context.Cause(ctx).(supervise.SignalError); came && err != nil {
			return exit(sig.Code())
		}
		return o.db.failure(err)
	}
}

// quietOptions are the options of a Locker that holds nothing: it has nothing to tell.
func quietOptions() *sqllock.UniqueOptions {
	return &sqllock.UniqueOptions{Logger: slog.New(slog.DiscardHandler), Reaper: &sqllock.ReaperOptions{Off: true}}
}

// open opens the database, again if it was open before.
func (o *action) open(ctx context.Context) (err error) {
	o.close()
	looks := o.cmd.Name != "reap" && !o.cmd.Bool("force") && !o.cmd.Bool("resign") && !o.cmd.Bool("allow-unlock")
	if o.db, err = o.existing(o.cmd, looks); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, openTimeout)
	defer cancel()
	if o.db.inMemory {
		if err := migrations.Up(ctx, o.db); err != nil {
			return err
		}
	}
	return openError(o.openAll(ctx))
}

// openAll opens a Locker for each mode that the command is about. It skips a mode that the
// server refuses, unless it is the first.
func (o *action) openAll(ctx context.Context) error {
	for i, m := range o.db.modes {
		timeout := openTimeout
		if i > 0 {
			timeout = extraModeTimeout
		}
		locks, err := o.db.locker(ctx, m, &o.opts, timeout)
		switch {
		case err == nil:
			o.all = append(o.all, modeLocker{m, locks})
		case i == 0 || !isRefused(err):
			return err
		default:
			o.skipMode(m, err)
		}
	}
	o.locks = o.all[0].Locker
	return nil
}

// skipMode says, once for each mode, that its locks are left out.
func (o *action) skipMode(m mode, err error) {
	if !o.skipped[m] {
		o.skipped[m] = true
		o.say("without the mode %s: %s", m, strings.TrimPrefix(err.Error(), "sqllock: "))
	}
}

func (o *action) close() {
	ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
	defer cancel()
	for _, l := range o.all {
		within(ctx, func() { _ = l.Close(ctx) })
	}
	if o.db != nil {
		o.db.close(ctx)
	}
	o.db, o.all, o.locks = nil, nil, nil
}

// sayIfMissing says that the default file does not exist, so that no name is known.
func (o *action) sayIfMissing() {
	if o.db.inMemory {
		o.say("nothing was ever locked here: %s does not exist", o.db.shown)
	}
}

// name returns the only argument.
func (o *action) name() (string, error) {
	switch args := o.cmd.Args(); {
	case args.Len() == 0:
		return "", o.usageError("NAME is missing")
	case args.Len() > 1:
		return "", o.usageError("unexpected: %s", o.quoted(args.Get(1)))
	}
	return o.cmd.Args().First(), nil
}

// usageError is a failure with the exit code for wrong usage.
func (o *action) usageError(format string, args ...any) error {
	text := fmt.Sprintf(format, args...)
	return fail(exitUsage, "%s: %s; see \"sqllock %s --help\"", o.cmd.Name, text, o.cmd.Name)
}

// put writes to stdout.
func (a *app) put(text []byte) error {
	if _, err := a.stdout.Write(text); err != nil {
		return fail(exitCannotWrite, "%w", err)
	}
	return nil
}

// mode returns the mode of a command that is about one.
func (o *action) mode() mode { return o.db.modes[0] }

// extraModeTimeout is for how long a connection is waited for that one can do without.
const extraModeTimeout = 2 * time.Second

// locker opens the locks of a mode; a server that is full or still starting gets some
// time.
func (d *database) locker(ctx context.Context, m mode, opts *sqllock.UniqueOptions, timeout time.Duration) (*sqllock.Locker, error) {
	for end := time.Now().Add(timeout); ; {
		locks, err := d.openLocker(ctx, m, opts)
		if err == nil || !isFull(err) || time.Now().After(end) || pause(ctx) != nil {
			return locks, err
		}
	}
}

func (d *database) openLocker(ctx context.Context, m mode, opts *sqllock.UniqueOptions) (locks *sqllock.Locker, err error) {
	if d.nodes != nil {
		locks, err = d.openQuorum(ctx, opts)
	} else {
		locks, err = m.open(ctx, d.locks, opts, d.silentHolders)
	}
	if err != nil {
		return nil, flagError{err}
	}
	return locks, nil
}
