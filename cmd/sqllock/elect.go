package main

import (
	"context"
	"errors"
	"time"

	"github.com/urfave/cli/v3"

	"github.com/sqllock/sqllock"
	"github.com/sqllock/sqllock/internal/output"
	"github.com/sqllock/sqllock/internal/supervise"
)

// elector is one call of "sqllock elect".
type elector struct {
	*runner
	opts     sqllock.ElectionOptions
	value    []byte
	election *sqllock.Election // nil until it campaigns for the first time
}

// requestResign asks the leader of a name to resign.
func requestResign(ctx context.Context, o *action) error {
	name, err := o.name()
	if err != nil {
		return err
	}
	wait := o.cmd.Duration("wait")
	if wait <= 0 {
		return fail(exitUsage, "elect: --wait %v: must be more than 0", wait)
	}
	if err := o.open(ctx); err != nil {
		return err
	}
	candidate, err := o.locks.Election(name, nil)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	switch err := candidate.RequestResign(ctx); {
	case errors.Is(err, sqllock.ErrNoLeader):
		return fail(exitNo, "nobody leads %s", output.Word(name))
	case errors.Is(err, sqllock.ErrResignRefused):
		return &failure{code: exitNo, err: err}
	default:
		return err
	}
}

func (a *app) electCommand() *cli.Command {
	return &cli.Command{
		Name:            "elect",
		Usage:           "run a command while this host leads, and campaign again after a loss",
		ArgsUsage:       "NAME -- CMD [ARG...]",
		UsageText:       "sqllock elect [options] NAME [options] [--] CMD [ARG...]",
		Description:     electDescription,
		HideHelpCommand: true,
		Metadata:        map[string]any{takesCommand: true},
		Flags: []cli.Flag{
			modeFlag("lead by the lock of `MODE`: unique, forupdate or advisory", unique),
			&cli.StringFlag{Name: "value", Usage: "show `TEXT` to callers that ask for the leader, an address for example"},
			&cli.StringFlag{Name: "identity", Usage: "lead as `ID`, and resume the term of ID when started again (default: a random number)"},
			&cli.DurationFlag{Name: "ttl", Value: sqllock.DefaultTTL, Usage: "let another candidate lead if the database hears nothing of elect for `DURATION`"},
			&cli.DurationFlag{Name: "lock-delay", HideDefault: true, Usage: "after a loss, keep all others from leading for `DURATION`"},
			&cli.DurationFlag{Name: "grace", Value: 10 * time.Second, Usage: "after a loss, send SIGKILL `DURATION` after SIGTERM"},
			&cli.StringFlag{Name: "label", Usage: "show `TEXT` as the leader to people (default: host/program/pid)"},
			&cli.BoolFlag{Name: "may-resign", Usage: "end CMD and let another candidate lead when asked by --resign"},
			&cli.BoolFlag{Name: "resign", Usage: "run no CMD, but ask the leader of NAME to resign"},
			&cli.DurationFlag{Name: "wait", Value: 30 * time.Second, Usage: "with --resign, wait for `DURATION` until the leader has resigned"},
		},
		Action: func(ctx context.Context, cmd *cli.Command) error {
			if cmd.Bool("resign") {
				return a.newAction(requestResign)(ctx, cmd)
			}
			e := &elector{runner: a.newRunner(cmd), value: []byte(cmd.String("value"))}
			e.opts = sqllock.ElectionOptions{Identity: cmd.String("identity"), LockDelay: cmd.Duration("lock-delay"), ResignOnRequest: cmd.Bool("may-resign")}
			e.acquire = e.campaign
			err := e.findCommand(cmd)
			if err != nil {
				return err
			}
			if e.db, err = e.database(cmd); err != nil {
				return err
			}
			defer e.close()
			return e.run(ctx)
		},
	}
}

// run leads, term by term, until CMD ends for another reason than a loss.
func (e *elector) run(ctx context.Context) error {
	sigs := supervise.CatchForCommand()
	defer sigs.Stop()
	for {
		lost, endRequested, err := e.runOnce(ctx, sigs)
		sig := sigs.Reset()
		f := (*failure)(nil)
		switch {
		case !lost || errors.As(err, &f) && f.err != nil:
			return err
		case endRequested:
			return exit(exitLost)
		case sig != nil:
			return exit(supervise.SignalError{Signal: sig}.Code())
		}
	}
}

// campaign waits until this process leads. If a term comes too late to be used, because this
// process was stopped, it campaigns again.
func (e *elector) campaign(ctx context.Context) (*sqllock.Lease, error) {
	if e.election == nil {
		var err error
		if e.election, err = e.locker.Election(e.name, &e.opts); err != nil {
			return nil, err
		}
	}
	for {
		err := e.election.Campaign(ctx, e.value)
		if late := (*sqllock.LostError)(nil); errors.As(err, &late) {
			continue
		}
		if err != nil {
			return nil, err
		}
		return e.election.Lease()
	}
}

const electDescription = `elect waits until it leads NAME and runs CMD. If it cannot prove any more that it
leads, it ends CMD as "sqllock run" does, and campaigns again; it starts CMD again when
it leads the next time. When CMD ends by itself, or by a signal, elect gives up the lead
and exits with the code of CMD. Start elect again if it is to go on.

To lead NAME is to hold the lock NAME. In unique mode candidates, on all hosts, queue
together with the callers that wait for the lock. In the other modes there is no order.
See "sqllock run --help" for --mode, for how CMD is ended, for signals and children, and
for what happens if elect is killed.

CMD finds NAME in SQLLOCK_NAME and the number of the term in SQLLOCK_TOKEN. This is the
fencing token; it is higher in each later term. "sqllock leader NAME" shows who leads,
and the text of --value.

With --identity, elect takes over a term that ID has, when it is started again. It does
so at once and before all waiters, so it need not wait for --ttl after a crash. If the
earlier process still runs, it has a lower token. Two candidates that are to run at the
same time must not have the same ID: the one that comes later ends the term of the
other, once. In the modes forupdate and advisory ID is asked to let go, and then the
quickest candidate leads. With --mode forupdate a term is lost after 1h.

With --resign, elect runs no CMD. It asks the leader of NAME to resign, and waits until it
has, for --wait at most. A leader that was started with --may-resign ends CMD then, as after
a loss, and campaigns again behind the others. All others lead on. In unique mode only.

Examples:

   sqllock elect scheduler -- ./scheduler
   sqllock elect --value 10.0.0.7:8080 --ttl 10s api -- ./api --active
   sqllock elect --identity "$(hostname)" --lock-delay 5s writer -- ./writer
   sqllock elect --may-resign api -- ./api --active
   sqllock elect --resign --wait 1m api

Exit codes: that of CMD, 128+n if signal n ended it, or
   1    with --resign: nobody leads, or the leader leads on
   64   wrong usage
   69   the database is not usable, or was unreachable at the start; CMD was not run
   71   the operating system refused something
   75   a signal came while CMD was ended because the lead was lost
   126  CMD cannot be executed
   127  CMD was not found
   128+n  signal n came while elect was waiting; CMD was not running`
