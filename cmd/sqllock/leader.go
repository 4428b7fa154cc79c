package main

import (
	"context"
	"errors"
	"strconv"
	"time"

	"github.com/urfave/cli/v3"

	"github.com/sqllock/sqllock"
	"github.com/sqllock/sqllock/internal/output"
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
		Action: a.newAction(leader),
	}
}

func leader(ctx context.Context, o *action) error {
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
		return fail(exitNo, "nobody leads %s", output.Word(name))
	case err != nil:
		return err
	case o.cmd.Bool("json"):
		return o.put(termJSON(&term))
	}
	return o.put(termFields(&term))
}

// termFields returns who leads, a line for each field.
func termFields(t *sqllock.Term) []byte {
	f := output.NewFields()
	f.AddWord("name", t.Name)
	f.AddWord("leader", t.Identity)
	f.AddWord("label", t.Label)
	f.Add("token", strconv.FormatInt(t.Token, 10))
	f.Add("since", t.Since.UTC().Format(time.RFC3339Nano))
	f.AddValue(t.Value)
	return f.Bytes()
}

// termJSON returns who leads as a JSON object on one line.
func termJSON(t *sqllock.Term) []byte {
	return output.JSON(struct {
		Name     string `json:"name,omitempty"`
		Identity string `json:"identity,omitempty"`
		Label    string `json:"label,omitempty"`
		Token    int64  `json:"token"`
		Since    string `json:"since,omitempty"`
		output.Value
	}{t.Name, t.Identity, t.Label, t.Token, output.Time(t.Since), output.NewValue(t.Value)})
}

const leaderDescription = `leader shows who leads NAME: the identity, the label of the process, the number of the
term, which is its fencing token, since when, and the value of the leader (--value of
elect). It shows a leader that has died until its TTL is over. Texts that could do harm
on a terminal are quoted, with escapes as in Go; a value that is no text is shown as
hexadecimal digits.

To lead NAME is to hold the lock NAME of --mode: leader also shows a holder that uses
"sqllock run", with a number for its identity.

Examples:

   sqllock leader scheduler
   sqllock leader --json api | jq -r .value

Exit codes: 0 somebody leads,
   1    nobody does
   64   wrong usage
   69   the database is unreachable or not usable
   128+n  signal n came`
