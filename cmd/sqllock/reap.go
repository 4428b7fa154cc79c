package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/urfave/cli/v3"

	"github.com/sqllock/sqllock"
)

func (a *app) reapCommand() *cli.Command {
	return &cli.Command{
		Name:            "reap",
		Usage:           "clean up after holders that crashed, and delete names that nobody uses",
		Description:     reapDescription,
		HideHelpCommand: true,
		Flags: []cli.Flag{
			&cli.DurationFlag{Name: "retention", Value: sqllock.DefaultRetention, Usage: "delete names that were not used for `DURATION`; at least 1s"},
			&cli.IntFlag{Name: "batch", Value: sqllock.DefaultReapBatch, Usage: "look at `N` names in one statement, 10000 at most"},
			&cli.BoolFlag{Name: "json", Usage: "write the report as a JSON object"},
		},
		Action: a.operation(reap),
	}
}

func reap(ctx context.Context, o *operator) error {
	if o.cmd.Args().Present() {
		return o.misuse("unexpected %q", o.cmd.Args().First())
	}
	reaper := o.opts.Reaper
	reaper.Retention, reaper.Batch = o.cmd.Duration("retention"), o.cmd.Int("batch")
	if reaper.Retention <= 0 || reaper.Batch <= 0 { // 0 would mean the default
		return o.misuse("--retention and --batch must be positive")
	}
	if err := o.open(ctx); err != nil {
		return err
	}
	o.mentionStandIn()
	report, err := o.locks.Reaper().Reap(ctx)
	text := reportText(&report)
	if o.cmd.Bool("json") {
		text = reportJSON(&report)
	}
	if failed := o.put(text); err == nil { // what was done is told in any case
		err = failed
	}
	return err
}

func reportText(r *sqllock.ReapReport) []byte {
	var b strings.Builder
	for _, c := range r.Crashed {
		_, _ = fmt.Fprintf(&b, "crashed: %s, held by %s (owner %s, token %d) since %s, expired %s\n", word(c.Name), word(c.Label),
			word(c.Owner), c.Token, c.Since.UTC().Format(time.RFC3339), c.Expired.UTC().Format(time.RFC3339))
	}
	_, _ = fmt.Fprintf(&b, "%d seen, %d crashed, %d purged, in %v\n", r.Seen, len(r.Crashed), r.Purged, r.Took.Round(time.Millisecond))
	return []byte(b.String())
}

func reportJSON(r *sqllock.ReapReport) []byte {
	var o object
	o.number("seen", int64(r.Seen))
	o.number("purged", int64(r.Purged))
	o.number("took_ms", r.Took.Milliseconds())
	crashed := make([]object, len(r.Crashed))
	for i, c := range r.Crashed {
		crashed[i].text("name", c.Name)
		crashed[i].text("label", c.Label)
		crashed[i].text("owner", c.Owner)
		crashed[i].number("token", c.Token)
		crashed[i].time("since", c.Since)
		crashed[i].time("expired", c.Expired)
	}
	o.list("crashed", crashed)
	return o.line()
}

const reapDescription = `reap walks once over the table. Leases that expired, because their holders crashed or
lost the database, are ended and told, and names that were free for longer than
--retention are deleted. Names that somebody holds are not touched. It works in small
statements with pauses in between and passes over what others have locked, so it can
run at any time, also beside others of its kind.

Nobody needs it for correctness: a name whose lease has expired can be locked by
anybody. Programs that use the library reap in the background, but "sqllock run" does
not: reap is for where nobody else does, or to do it now. The retention is also the
time by which the database's clock may be set back without a fencing token being
repeated.

The fields of --json are seen, purged, took_ms and crashed, a list of objects with
name, label, owner, token, since and expired.

Exit codes: 0 the pass is complete,
   64   wrong usage
   69   the database is unreachable or not usable; what was done is reported
   128+n  signal n came; what was done is reported`
