package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/urfave/cli/v3"

	"github.com/sqllock/sqllock"
)

// operator is one call of a command that looks at the locks of others, or mends
// them. It makes no table and no file, holds nothing and cleans up nothing unless
// it is told to.
type operator struct {
	*app
	cmd   *cli.Command
	opts  sqllock.UniqueOptions
	db    *database
	locks *sqllock.Locker
}

// operation makes the action of such a command.
func (a *app) operation(fn func(ctx context.Context, o *operator) error) cli.ActionFunc {
	return func(ctx context.Context, cmd *cli.Command) error {
		o := &operator{app: a, cmd: cmd, opts: sqllock.UniqueOptions{Reaper: &sqllock.ReaperOptions{Off: true}}}
		sigs := listenForEnd()
		defer sigs.stop()
		ctx, release := sigs.interrupt(ctx)
		defer release()
		defer o.close()
		err := fn(ctx, o)
		if sig, came := context.Cause(ctx).(signalled); came && err != nil {
			return exit(sig.code())
		}
		return databaseFailure(err)
	}
}

// open opens the database, again if it was open before.
func (o *operator) open(ctx context.Context) (err error) {
	o.close()
	if o.db, err = o.existing(o.cmd); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, openPatience)
	defer cancel()
	if o.db.standIn {
		if err := migrateUp(ctx, o.db); err != nil {
			return err
		}
	}
	o.locks, err = o.db.locker(ctx, &o.opts)
	return slow(err)
}

func (o *operator) close() {
	ctx, cancel := context.WithTimeout(context.Background(), closePatience)
	defer cancel()
	if o.locks != nil {
		within(ctx, func() { _ = o.locks.Close(ctx) })
	}
	if o.db != nil {
		o.db.close(ctx)
	}
	o.db, o.locks = nil, nil
}

// mentionStandIn says why there is nothing to be seen.
func (o *operator) mentionStandIn() {
	if o.db.standIn {
		o.say("nothing was ever locked here: %s does not exist", o.db.file)
	}
}

// name returns the only argument.
func (o *operator) name() (string, error) {
	switch args := o.cmd.Args(); {
	case args.Len() == 0:
		return "", o.misuse("NAME is missing")
	case args.Len() > 1:
		return "", o.misuse("unexpected %q", args.Get(1))
	}
	return o.cmd.Args().First(), nil
}

// misuse is a usage error.
func (o *operator) misuse(format string, args ...any) error {
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

// locker opens the locks; a server that is full or still starting gets until ctx
// ends.
func (d *database) locker(ctx context.Context, opts *sqllock.UniqueOptions) (*sqllock.Locker, error) {
	for {
		locks, err := sqllock.NewUnique(ctx, d, opts)
		if err == nil || !crowded(err) || pause(ctx) != nil {
			return locks, err
		}
	}
}

// slow tells of an error of opening the database that it is one of time.
func slow(err error) error {
	if errors.Is(err, context.DeadlineExceeded) {
		return fail(exitUnavailable, "the database did not answer within %v: %w", openPatience, err)
	}
	return err
}
