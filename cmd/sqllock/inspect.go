package main

import (
	"context"
	"strconv"
	"time"

	"github.com/urfave/cli/v3"

	"github.com/sqllock/sqllock"
)

func (a *app) inspectCommand() *cli.Command {
	return &cli.Command{
		Name:            "inspect",
		Usage:           "show all that the database knows of a name",
		ArgsUsage:       "NAME",
		Description:     inspectDescription,
		HideHelpCommand: true,
		Flags: []cli.Flag{
			&cli.BoolFlag{Name: "json", Usage: "write a JSON object"},
			modeFlag("look at the lock of `MODE`: unique, forupdate or advisory", unique),
		},
		Action: a.operation(inspect),
	}
}

func inspect(ctx context.Context, o *operator) error {
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
	o.mentionStandIn()
	found := &item{o.mode(), info}
	text := details(found)
	if o.cmd.Bool("json") {
		text = jsonLine(found)
	}
	if err := o.put(text); err != nil {
		return err
	}
	if info.State == sqllock.StateUnknown {
		return exit(exitNo)
	}
	return nil
}

// state is the state of a name in one word. That a name is kept matters more than how
// its last term ended.
func state(i *sqllock.Info) string {
	if i.State != sqllock.StateHeld && !i.KeptUntil.IsZero() {
		return "kept"
	}
	return i.State.String()
}

// details writes what is known of a name, a line for each field.
func details(i *item) []byte {
	f := newFields()
	moment := func(key string, t time.Time) {
		if !t.IsZero() {
			f.field(key, t.UTC().Format(time.RFC3339Nano)+"  "+relative(t, i.Now))
		}
	}
	f.strange("name", i.Name)
	f.field("mode", string(i.mode))
	f.field("state", state(&i.Info))
	f.strange("holder", i.Label)
	f.strange("owner", i.Owner)
	if i.Readers > 0 {
		f.field("readers", strconv.Itoa(i.Readers))
	}
	if i.State != sqllock.StateUnknown {
		f.field("token", strconv.FormatInt(i.Token, 10))
	}
	if i.Holds > 0 {
		f.field("holds", strconv.Itoa(i.Holds))
	}
	moment("since", i.Since)
	moment("until", i.Until)
	if bySession(&i.Info) {
		f.field("until", "its session ends")
	}
	moment("kept until", i.KeptUntil)
	f.value(i.Value)
	return f.bytes()
}

// jsonLine writes what is known of a name as a JSON object on one line.
func jsonLine(i *item) []byte {
	o := object{b: make([]byte, 0, 384)} // as much as most take
	o.text("name", i.Name)
	o.text("mode", string(i.mode))
	o.text("state", i.State.String())
	o.text("label", i.Label)
	o.text("owner", i.Owner)
	if i.State != sqllock.StateUnknown {
		o.number("token", i.Token)
	}
	if i.Holds > 0 {
		o.number("holds", int64(i.Holds))
	}
	if i.Readers > 0 {
		o.number("readers", int64(i.Readers))
	}
	o.time("since", i.Since)
	o.time("until", i.Until)
	o.time("kept_until", i.KeptUntil)
	o.value(i.Value)
	o.time("now", i.Now)
	return o.line()
}

const inspectDescription = `inspect shows who holds NAME, or held it last, with the fencing token, the times by
the clock of the database, and what the holder has to say (--value of run). Texts
that could do harm on a terminal are quoted, with escapes as in Go; a value that is
no text is shown as hexadecimal digits. Of those who share NAME it is shown how many
they are, as far as the database knows.

The same name in two modes is two locks; inspect looks at that of --mode. Where a
session of the database keeps NAME there is no time when that ends. Who holds NAME in
the mode advisory may be known about a second later only.

The fields of --json are those of "sqllock ls --json" and "value", or "value_hex"
if the value is no UTF-8.

Examples:

   sqllock inspect nightly
   sqllock inspect --mode advisory --json nightly

Exit codes: 0 the name is known, held or not,
   1    the name is not known: it was never locked, or it was free for so long
        that it was cleaned up
   64   wrong usage
   69   the database is unreachable or not usable`
