package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/urfave/cli/v3"

	"github.com/sqllock/sqllock"
	"github.com/sqllock/sqllock/internal/doctor"
	"github.com/sqllock/sqllock/internal/output"
)

func (a *app) reapCommand() *cli.Command {
	return &cli.Command{
		Name:            "reap",
		Usage:           "clean up after holders that crashed, and delete names that nobody uses",
		Description:     reapDescription,
		HideHelpCommand: true,
		Flags: []cli.Flag{
			&cli.DurationFlag{Name: "retention", Value: sqllock.DefaultRetention, Usage: "delete names that were not used for `DURATION`; at least 1s"},
			&cli.DurationFlag{Name: "key-retention", Value: sqllock.DefaultKeyRetention, Usage: "forget keys of Once and of run --once that were completed, or failed, `DURATION` ago; at least 1s"},
			&cli.IntFlag{Name: "batch", Value: sqllock.DefaultReapBatch, Usage: "look at `N` names in one statement, 10000 at most"},
			&cli.BoolFlag{Name: "json", Usage: "write the report as a JSON object"},
		},
		Action: a.newAction(reap),
	}
}

func reap(ctx context.Context, o *action) error {
	if o.cmd.Args().Present() {
		return o.usageError("unexpected: %s", o.quoted(o.cmd.Args().First()))
	}
	reaper := o.opts.Reaper
	reaper.Retention, reaper.Batch = o.cmd.Duration("retention"), o.cmd.Int("batch")
	reaper.KeyRetention = o.cmd.Duration("key-retention")
	if reaper.Retention <= 0 || reaper.KeyRetention <= 0 || reaper.Batch <= 0 { // 0 would mean the default
		return o.usageError("--retention, --key-retention and --batch must be positive")
	}
	if err := o.open(ctx); err != nil {
		return err
	}
	o.sayIfMissing()
	report, err := o.reapAll(ctx)
	text := report.text()
	if o.cmd.Bool("json") {
		text = report.json()
	}
	if failed := o.put(text); err == nil { // what was done is told in any case
		err = failed
	}
	return err
}

// report is what was done in the modes.
type report struct {
	seen, purged, keys int
	took               time.Duration
	crashed            []crash
}

// crash is a holder that crashed.
type crash struct {
	mode mode
	sqllock.CrashedEvent
}

// reapAll reaps in one mode after the other.
func (o *action) reapAll(ctx context.Context) (r report, err error) {
	for _, locks := range o.all {
		part, err := locks.Reaper().Reap(ctx)
		r.add(locks.mode, &part)
		switch {
		case err != nil && len(o.all) > 1 && locks.mode.sessions() && doctor.IsDenied(err):
			o.skipMode(locks.mode, err)
		case err != nil:
			return r, err
		}
	}
	return r, nil
}

func (r *report) add(m mode, part *sqllock.ReapReport) {
	r.seen += part.Seen
	r.purged += part.Purged
	r.keys += part.PurgedKeys
	r.took += part.Took
	for _, c := range part.Crashed {
		r.crashed = append(r.crashed, crash{m, c})
	}
}

func (r *report) text() []byte {
	var b strings.Builder
	for _, c := range r.crashed {
		_, _ = fmt.Fprintf(&b, "crashed: %s, held by %s (owner %s, token %d) since %s, expired %s", output.Word(c.Name), output.Word(c.Label),
			output.Word(c.Owner), c.Token, c.Since.UTC().Format(time.RFC3339), c.Expired.UTC().Format(time.RFC3339))
		if c.mode != unique {
			_, _ = fmt.Fprintf(&b, ", mode %s", c.mode)
		}
		b.WriteByte('\n')
	}
	_, _ = fmt.Fprintf(&b, "%d seen, %d crashed, %d purged, %d keys purged, in %v\n", r.seen, len(r.crashed), r.purged, r.keys, r.took.Round(time.Millisecond))
	return []byte(b.String())
}

func (r *report) json() []byte {
	type crashJSON struct {
		Name    string `json:"name,omitempty"`
		Mode    string `json:"mode"`
		Label   string `json:"label,omitempty"`
		Owner   string `json:"owner,omitempty"`
		Token   int64  `json:"token"`
		Since   string `json:"since,omitempty"`
		Expired string `json:"expired,omitempty"`
	}
	crashed := make([]crashJSON, len(r.crashed))
	for i, c := range r.crashed {
		crashed[i] = crashJSON{c.Name, string(c.mode), c.Label, c.Owner, c.Token, output.Time(c.Since), output.Time(c.Expired)}
	}
	return output.JSON(struct {
		Seen    int         `json:"seen"`
		Purged  int         `json:"purged"`
		Keys    int         `json:"purged_keys"`
		TookMS  int64       `json:"took_ms"`
		Crashed []crashJSON `json:"crashed"`
	}{r.seen, r.purged, r.keys, r.took.Milliseconds(), crashed})
}

const reapDescription = `reap sweeps the tables once, those of all modes that the database offers. It ends and
reports leases that have expired, because their holders crashed or lost the database, and
deletes names that were free for longer than --retention, and keys that were done for
longer than --key-retention. It does not touch names that
are held. It works in small statements with pauses in between and skips rows that others
have locked, so it can run at any time, also several times at once. It leaves out a mode
that the server refuses, or in which the account may not reap, and says so on stderr.

Locks are correct without it: everybody can lock a name whose lease has expired. Programs
that use the library reap in the background, but "sqllock run" does not. Use reap if no
such program runs, or to reap now. reap does not know the retentions that programs use:
give it theirs, or it deletes earlier than they would. The retention is also the time by
which the clock of the database can be set back without a repeated fencing token.

The fields of --json are seen, purged, purged_keys, took_ms and crashed, a list of objects with
name, mode, label, owner, token, since and expired.

Exit codes: 0 the pass is complete,
   64   wrong usage
   69   the database is unreachable or not usable; what was done is reported
   128+n  signal n came; what was done is reported`
