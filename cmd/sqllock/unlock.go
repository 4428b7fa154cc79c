package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/urfave/cli/v3"

	"github.com/sqllock/sqllock"
	"github.com/sqllock/sqllock/internal/output"
)

// forceTimeout is for how long unlock waits for a transaction that guards the lease,
// or for a holder to let go.
const forceTimeout = 10 * time.Second

func (a *app) unlockCommand() *cli.Command {
	return &cli.Command{
		Name:            "unlock",
		Usage:           "take a lock away from its holder",
		ArgsUsage:       "NAME --force",
		Description:     unlockDescription,
		HideHelpCommand: true,
		Flags: []cli.Flag{
			&cli.BoolFlag{Name: "force", Usage: "do it, although the holder may go on for a while"},
			modeFlag("take the lock of `MODE` away: unique, forupdate or advisory", unique),
			&cli.DurationFlag{Name: "wait", Value: forceTimeout, Usage: "wait no longer than `DURATION` for a transaction that keeps the row locked, or for the holder to let go"},
		},
		Action: a.newAction(unlock),
	}
}

func unlock(ctx context.Context, o *action) error {
	name, err := o.name()
	if err != nil {
		return err
	}
	wait := o.cmd.Duration("wait")
	if wait <= 0 {
		return o.usageError("--wait %v: must be positive", wait)
	}
	if err := o.open(ctx); err != nil {
		return err
	}
	if !o.cmd.Bool("force") {
		return o.refuse(ctx, name)
	}
	waitCtx, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	before, unseen := o.locks.Inspect(waitCtx, name)
	info, err := o.locks.ForceUnlock(waitCtx, name)
	switch {
	case errors.Is(err, sqllock.ErrNotHeld):
		return o.notHeld(name)
	case err != nil && waitCtx.Err() != nil && ctx.Err() == nil:
		err = fmt.Errorf("%s was not unlocked within %v: %s, or the database does not answer: %w", output.Word(name), wait, o.mode().keeper(), err)
		if unseen != nil {
			return &failure{code: exitUnavailable, err: err}
		}
		return o.settle(ctx, name, before.Token, err)
	case err != nil:
		return err
	}
	return o.put([]byte(fmt.Sprintf("unlocked %s, which was %s\n", output.Word(name), sentence(&info))))
}

// settle finds out what became of a statement that was given up: for a second it may
// still be waiting for the row, and get it. If the token is another one then, the
// holder of before has the lock no more, even if somebody else has it.
func (o *action) settle(ctx context.Context, name string, token int64, err error) error {
	if sleep(ctx, 1200*time.Millisecond) == nil {
		info, failed := o.locks.Inspect(ctx, name)
		if failed == nil && (info.Token != token || o.mode().sessions() && info.State != sqllock.StateHeld) {
			return o.put([]byte(fmt.Sprintf("unlocked %s\n", output.Word(name))))
		}
	}
	return &failure{code: exitUnavailable, err: err}
}

// refuse says what --force would do.
func (o *action) refuse(ctx context.Context, name string) error {
	info, err := o.locks.Inspect(ctx, name)
	switch {
	case err != nil:
		return err
	case info.State == sqllock.StateHeld && o.mode().sessions() && info.Readers > 0:
		return o.usageError("%s is %s; in the mode %s a lock that is shared cannot be taken away", output.Word(name), sentence(&info), o.mode())
	case info.State == sqllock.StateHeld:
		return o.usageError("%s is %s; %s; if that is what you want, add --force", output.Word(name), sentence(&info), o.mode().force(&info))
	case info.State == sqllock.StateDetached:
		return o.usageError("%s is %s; to end that, add --force", output.Word(name), sentence(&info))
	case state(&info) == "kept":
		return o.usageError("%s is %s; to open it earlier, add --force", output.Word(name), sentence(&info))
	}
	return o.notHeld(name)
}

// keeper is what may keep unlock waiting.
func (m mode) keeper() string {
	if m.sessions() {
		return "its holder was asked and has not let go"
	}
	return "a transaction keeps its row locked"
}

// force is what becomes of those who hold the name.
func (m mode) force(i *sqllock.Info) string {
	switch {
	case m.sessions():
		return "its holder would be asked to let go, and its work be ended"
	case i.Readers > 1 || i.PermitsHeld > 1:
		return "all of them would lose it at their next renewal, and go on until then, beside whoever gets the name meanwhile"
	}
	return "its holder would go on until its next renewal, beside whoever gets the name meanwhile"
}

func (o *action) notHeld(name string) error {
	o.sayIfMissing()
	return fail(exitNo, "%s is not held", output.Word(name))
}

const unlockDescription = `unlock ends the lease on NAME, and the time for which --min-hold or --lock-delay keeps
NAME. NAME is free at once, and a waiter gets it; in unique mode that is the first in the
queue. If several callers hold NAME together, all of them lose it: unlock ends the leases
of all readers, or all permits. It cannot end one permit alone. Without --force, unlock
says how many hold NAME.

In unique mode unlock does not ask the holder. The holder learns of it at its next
renewal, within a third of its TTL, or at its deadline; "sqllock run" then ends its
command. Until then the holder goes on, and two callers can believe that they hold NAME.
The fencing token tells them apart: that of the next holder is higher. Without --force,
unlock only says who holds NAME. If the holder is dead, you need not unlock: NAME is free
when the lease expires.

In the modes forupdate and advisory unlock asks the holder, which lets go within a second.
Then NAME is free, and the holder does not believe any more that it holds NAME. A lock
that is shared cannot be taken away in these modes: end the processes that hold it.
If the holder is dead, or is stopped, the server ends its session after the TTL. unlock
waits for either, no longer than --wait. After that the holder is still asked to let go.

While a transaction of the database keeps the row of NAME locked, unlock waits.

Examples:

   sqllock unlock nightly                 (says who holds it)
   sqllock unlock --force nightly
   sqllock unlock --force --mode advisory nightly

Exit codes: 0 the lock was taken away,
   1    NAME is not held
   64   wrong usage, or --force is missing
   69   the database is unreachable or not usable, or --wait was over
   128+n  signal n came; NAME may be unlocked or not`
