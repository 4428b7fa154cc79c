package main

import (
	"context"

	"github.com/urfave/cli/v3"

	"github.com/sqllock/sqllock"
)

func (a *app) inspectCommand() *cli.Command {
	return &cli.Command{
		Name:            "inspect",
		Usage:           "show what the database knows about a name",
		ArgsUsage:       "NAME",
		Description:     inspectDescription,
		HideHelpCommand: true,
		Flags: []cli.Flag{
			&cli.BoolFlag{Name: "json", Usage: "write a JSON object"},
			modeFlag("look at the lock of `MODE`: unique, forupdate or advisory", unique),
		},
		Action: a.newAction(inspect),
	}
}

func inspect(ctx context.Context, o *action) error {
	name, err := o.name()
	if err != nil {
		return err
	}
	if err := o.open(ctx); err != nil {
		return err
	}
	info, err := o.locks.Inspect(ctx, name)
	if err != nil {
		return err
	}
	o.sayIfMissing()
	found := &lockInfo{o.mode(), info}
	text := found.fields()
	if o.cmd.Bool("json") {
		text = found.json()
	}
	if err := o.put(text); err != nil {
		return err
	}
	if info.State == sqllock.StateUnknown {
		return exit(exitNo)
	}
	return nil
}

const inspectDescription = `inspect shows who holds NAME, or held it last, with the fencing token, the times by
the clock of the database, the value of the holder (--value of run), and the key that was
completed last (--once of run). Texts that
could do harm on a terminal are quoted, with escapes as in Go; a value that is no text
is shown as hexadecimal digits. If NAME is shared, inspect shows the number of readers,
as far as the database knows it. In unique mode it shows the first ten readers, or
holders of permits with their slots: their tokens, since when and until when they hold
it, and their labels. It shows how many wait for NAME, and of the first ten, in the order
in which they get it, what they want (exclusive, shared or permit), since when they wait,
and their label.

"kept until" is until when nobody can take NAME although nobody holds it: the --min-hold
or --lock-delay of the last holder keeps it. In unique mode a name that a --lock-delay
keeps is held until that is over.

The same name in two modes is two locks; inspect shows that of --mode. If a session of
the database keeps NAME, no time is known when that ends. In advisory mode the database
can learn about a second later who holds NAME.

The fields of --json are those of "sqllock ls --json" and "value", or "value_hex"
if the value is no UTF-8, "holders": a list of those who hold NAME together with the
fields label, owner, token, since, until, and slot of a permit, and "queue": a list of
waiters with the fields label, since and kind.

Examples:

   sqllock inspect nightly
   sqllock inspect --mode advisory --json nightly

Exit codes: 0 the name is known, held or not,
   1    the name is not known: it was never locked, or it was free for so long
        that it was cleaned up
   64   wrong usage
   69   the database is unreachable or not usable`
