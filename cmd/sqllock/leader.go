package main

import (
	"context"
	"errors"
	"strconv"
	"time"

	"github.com/urfave/cli/v3"

	"github.com/sqllock/sqllock"
)

func (a *app) leaderCommand() *cli.Command {
	return &cli.Command{
		Name:            "leader",
		Usage:           "show who leads a name",
		ArgsUsage:       "NAME",
		Description:     leaderDescription,
		HideHelpCommand: true,
		Flags: []cli.Flag{
			&cli.BoolFlag{Name: "json", Usage: "write a JSON object"},
			&cli.BoolFlag{Name: "quiet", Aliases: []string{"q"}, Usage: "say nothing if nobody leads"},
			modeFlag("look at the lock of `MODE`: unique, forupdate or advisory", unique),
		},
		Action: a.operation(leader),
	}
}

func leader(ctx context.Context, o *operator) error {
	name, err := o.name()
	if err != nil {
		return err
	}
	if err := o.open(ctx); err != nil {
		return err
	}
	candidate, err := o.locks.Election(name, nil)
	if err != nil {
		return err
	}
	term, err := candidate.Leader(ctx)
	switch {
	case errors.Is(err, sqllock.ErrNoLeader) && o.cmd.Bool("quiet"):
		return exit(exitNo)
	case errors.Is(err, sqllock.ErrNoLeader):
		return fail(exitNo, "nobody leads %s", word(name))
	case err != nil:
		return err
	case o.cmd.Bool("json"):
		return o.put(termLine(&term))
	}
	return o.put(termDetails(&term))
}

// termDetails writes who leads, a line for each field.
func termDetails(t *sqllock.Term) []byte {
	f := newFields()
	f.strange("name", t.Name)
	f.strange("leader", t.Identity)
	f.strange("label", t.Label)
	f.field("token", strconv.FormatInt(t.Token, 10))
	f.field("since", t.Since.UTC().Format(time.RFC3339Nano))
	f.value(t.Value)
	return f.bytes()
}

// termLine writes who leads as a JSON object on one line.
func termLine(t *sqllock.Term) []byte {
	o := object{b: make([]byte, 0, 256)}
	o.text("name", t.Name)
	o.text("identity", t.Identity)
	o.text("label", t.Label)
	o.number("token", t.Token)
	o.time("since", t.Since)
	o.value(t.Value)
	return o.line()
}

const leaderDescription = `leader shows who leads NAME: the identity, the label of the process, the number of
the term, which is its fencing token, since when, and what the leader has to say
(--value of elect). A leader that has died is shown until its time is over. Texts that
could do harm on a terminal are quoted, with escapes as in Go; a value that is no text
is shown as hexadecimal digits.

To lead NAME is to hold the lock NAME of --mode: whoever holds it by "sqllock run" is
shown too, with a number for its identity.

Examples:

   sqllock leader scheduler
   sqllock leader --json api | jq -r .value

Exit codes: 0 somebody leads,
   1    nobody does
   64   wrong usage
   69   the database is unreachable or not usable
   128+n  signal n came`
