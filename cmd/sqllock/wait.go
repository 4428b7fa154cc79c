package main

import (
	"context"
	"time"

	"github.com/urfave/cli/v3"

	"github.com/sqllock/sqllock"
	"github.com/sqllock/sqllock/internal/output"
)

func (a *app) waitCommand() *cli.Command {
	return &cli.Command{
		Name:            "wait",
		Usage:           "wait until nobody holds a name",
		ArgsUsage:       "NAME",
		Description:     waitDescription,
		HideHelpCommand: true,
		Flags: []cli.Flag{
			modeFlag("wait for the lock of `MODE`: unique, forupdate or advisory", unique),
			&cli.DurationFlag{Name: "wait", HideDefault: true, Usage: "wait no longer than `DURATION`, 10s or 5m; 0 is to look once (default: for ever)"},
			&cli.BoolFlag{Name: "quiet", Aliases: []string{"q"}, Usage: "say nothing if --wait is over"},
			&cli.BoolFlag{Name: "verbose", Aliases: []string{"v"}, Usage: "tell on stderr who holds the name"},
		},
		Action: a.newAction(waitFree),
	}
}

func waitFree(ctx context.Context, o *action) error {
	name, err := o.name()
	if err != nil {
		return err
	}
	wait := o.cmd.Duration("wait")
	if wait < 0 {
		return o.usageError("--wait %v: must not be negative", wait)
	}
	if err := o.open(ctx); err != nil {
		return err
	}
	w := &waiter{action: o, name: name}
	switch {
	case !o.cmd.IsSet("wait"):
		return w.run(ctx)
	case wait == 0:
		w.last, err = o.locks.Inspect(ctx, name)
		if err == nil && !isFree(&w.last) {
			err = w.over()
		}
		return err
	}
	waitCtx, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	err = w.run(waitCtx)
	if err != nil && waitCtx.Err() != nil && ctx.Err() == nil && !w.last.Now.IsZero() {
		return w.over()
	}
	return err
}

// waiter waits for a name to be free.
type waiter struct {
	*action
	name string
	last sqllock.Info // what was seen last
}

func (w *waiter) run(ctx context.Context) error {
	for {
		if err := w.untilReleased(ctx); err != nil || isFree(&w.last) {
			return err
		}
		// The name is kept, until a time or until somebody unlocks it.
		if err := sleep(ctx, min(w.last.KeptUntil.Sub(w.last.Now), time.Second)); err != nil {
			return err
		}
	}
}

// untilReleased waits until nobody holds the name.
func (w *waiter) untilReleased(ctx context.Context) error {
	for info, err := range w.locks.Watch(ctx, w.name) {
		if err != nil {
			return err
		}
		if w.cmd.Bool("verbose") && (info.State != w.last.State || info.Token != w.last.Token) {
			w.say("%s is %s", output.Word(w.name), sentence(&info))
		}
		w.last = info
		if !hasTerm(&info) {
			break
		}
	}
	return nil
}

// over says that the time is over.
func (w *waiter) over() error {
	if w.cmd.Bool("quiet") {
		return exit(exitNo)
	}
	return fail(exitNo, "%s is %s", output.Word(w.name), sentence(&w.last))
}

const waitDescription = `wait ends when nobody holds NAME and nothing else keeps it. It does not take the lock
and does not enter the queue: a moment later another caller can have the lock. To take
it, use "sqllock run". A name that was never locked is free. A name is not free while a
holder hands it over to the next waiter. wait checks again at least every half second;
it can miss a name that is free for less than that. The same name in two modes is two
locks. In advisory mode, wait can take a lock for free if it was granted less than about
a second ago.

Examples:

   sqllock wait deploy && echo "nobody deploys"
   sqllock wait --mode advisory nightly
   sqllock wait --wait 0 -q deploy || echo "somebody deploys"

Exit codes: 0 NAME is free,
   1    --wait was over and NAME is not free
   64   wrong usage
   69   the database is unreachable or not usable
   128+n  signal n came`
