package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"time"

	"github.com/urfave/cli/v3"

	"github.com/sqllock/sqllock"
	"github.com/sqllock/sqllock/driver"
	"github.com/sqllock/sqllock/internal/doctor"
	"github.com/sqllock/sqllock/internal/output"
)

func (a *app) listCommand() *cli.Command {
	return &cli.Command{
		Name:            "ls",
		Aliases:         []string{"list"},
		Usage:           "list the names that are held",
		ArgsUsage:       "[PREFIX]",
		Description:     listDescription,
		HideHelpCommand: true,
		Flags: []cli.Flag{
			&cli.BoolFlag{Name: "all", Aliases: []string{"a"}, Usage: "list also the names that are free but were locked before"},
			&cli.BoolFlag{Name: "json", Usage: "write a JSON object on a line for each name"},
			modeFlag("list the locks of `MODE` only: unique, forupdate or advisory", ""),
			&cli.BoolFlag{Name: "watch", Aliases: []string{"w"}, Usage: "list them again and again, until interrupted"},
			&cli.DurationFlag{Name: "interval", Value: 2 * time.Second, Usage: "wait for `DURATION` between two lists of --watch; at least 100ms"},
		},
		Action: a.newAction(func(ctx context.Context, o *action) error {
			l := &lister{action: o, prefix: o.cmd.Args().First(), json: o.cmd.Bool("json"), every: o.cmd.Duration("interval")}
			switch {
			case o.cmd.Args().Len() > 1:
				return o.usageError("unexpected: %s", o.quoted(o.cmd.Args().Get(1)))
			case l.prefix != "" && driver.CheckName(l.prefix) != nil:
				return driver.CheckName(l.prefix)
			case l.every < 100*time.Millisecond:
				return o.usageError("--interval %v: must be at least 100ms", l.every)
			}
			if o.cmd.Bool("watch") {
				return l.watch(ctx)
			}
			if err := o.open(ctx); err != nil {
				return err
			}
			o.sayIfMissing()
			return l.list(ctx, o.stdout)
		}),
	}
}

// lister lists names.
type lister struct {
	*action
	prefix string
	json   bool
	every  time.Duration
}

// names reads what is to be listed, in the byte order of the names.
func (l *lister) names(ctx context.Context) iter.Seq2[lockInfo, error] {
	var seqs []iter.Seq2[lockInfo, error]
	for _, locks := range l.all {
		seqs = append(seqs, l.namesOf(ctx, locks))
	}
	return mergeByName(seqs)
}

// namesOf reads what is to be listed of one mode.
func (l *lister) namesOf(ctx context.Context, locks modeLocker) iter.Seq2[lockInfo, error] {
	opts := []sqllock.ListOption{sqllock.Prefix(l.prefix)}
	if l.cmd.Bool("all") {
		opts = append(opts, sqllock.IncludeFree())
	}
	return func(yield func(lockInfo, error) bool) {
		for info, err := range locks.List(ctx, opts...) {
			if err != nil && len(l.all) > 1 && locks.mode.sessions() && doctor.IsDenied(err) {
				l.skipMode(locks.mode, err)
				return
			}
			if !yield(lockInfo{locks.mode, info}, err) {
				return
			}
		}
	}
}

// list writes one list. What was read before an error is written too.
func (l *lister) list(ctx context.Context, w io.Writer) error {
	add, flush := l.writer(w)
	for name, err := range l.names(ctx) {
		if err != nil {
			_ = flush()
			return err
		}
		add(&name)
	}
	if err := flush(); err != nil {
		return fail(exitCannotWrite, "%w", err)
	}
	return nil
}

func (l *lister) writer(w io.Writer) (add func(*lockInfo), flush func() error) {
	if l.json {
		b := bufio.NewWriterSize(w, 1<<16)
		return func(i *lockInfo) { _, _ = b.Write(i.json()) }, b.Flush
	}
	t := output.NewTable(w, rowHeading...)
	return func(i *lockInfo) { t.Add(i.row()...) }, t.Flush
}

// watch lists the names until it is interrupted. Once it has begun, a database that
// does not answer is waited for.
func (l *lister) watch(ctx context.Context) error {
	for first := true; ; first = false {
		err := l.snapshot(ctx)
		switch f := (*failure)(nil); {
		case ctx.Err() != nil:
			return nil // as it was asked to
		case err != nil && (first || errors.As(err, &f) && f.code == exitCannotWrite):
			return err
		case err != nil:
			l.say("%v", l.db.failure(err))
		}
		if l.db != nil && l.db.inMemory {
			l.close() // by the next time the file may be there
		}
		if sleep(ctx, l.every) != nil {
			return nil
		}
	}
}

// snapshot writes one of many lists: on a terminal as much as it shows, in the place
// of the last.
func (l *lister) snapshot(ctx context.Context) error {
	if l.locks == nil {
		if err := l.open(ctx); err != nil {
			return err
		}
	}
	var text bytes.Buffer
	if rows, columns, ok := output.TerminalSize(l.stdout); ok && !l.json {
		if err := l.draw(ctx, rows, columns, &text); err != nil {
			return err
		}
	} else {
		if err := l.list(ctx, &text); err != nil {
			return err
		}
		text.WriteByte('\n')
	}
	return l.put(text.Bytes())
}

const (
	clearScreen = "\x1b[H\x1b[2J"
	frameRows   = 4 // rows above and below the names
)

// draw writes one list for a terminal of that size.
func (l *lister) draw(ctx context.Context, rows, columns int, text *bytes.Buffer) error {
	var body bytes.Buffer
	t := output.NewTable(&body, rowHeading...)
	t.Columns = columns
	total := 0
	for name, err := range l.names(ctx) {
		if err != nil {
			return err
		}
		if total++; total <= rows-frameRows {
			t.Add(name.row()...)
		}
	}
	if err := t.Flush(); err != nil {
		return err
	}
	title := fmt.Sprintf("%s  %d names, every %v", time.Now().Format(time.TimeOnly), total, l.every)
	fmt.Fprintf(text, "%s%s\n%s", clearScreen, output.Cut(title, columns), body.Bytes())
	if rest := total - max(0, rows-frameRows); rest > 0 {
		fmt.Fprintf(text, "… and %d more\n", rest)
	}
	return nil
}

// mergeByName reads sequences, each in the order of the names, as one. Where they have the
// same name, that of the first comes first. An error comes as soon as it is read.
func mergeByName(seqs []iter.Seq2[lockInfo, error]) iter.Seq2[lockInfo, error] {
	return func(yield func(lockInfo, error) bool) {
		cursors := make([]*cursor, 0, len(seqs))
		for _, seq := range seqs {
			h := &cursor{}
			h.next, h.stop = iter.Pull2(seq)
			defer h.stop()
			cursors = append(cursors, h)
			h.advance()
		}
		for {
			h := first(cursors)
			if h == nil || !yield(h.item, h.err) {
				return
			}
			h.advance()
		}
	}
}

// cursor is what comes next in a sequence.
type cursor struct {
	next func() (lockInfo, error, bool)
	stop func()
	item lockInfo
	err  error
	ok   bool
}

func (h *cursor) advance() { h.item, h.err, h.ok = h.next() }

// first returns which of them is next, or nil at the end.
func first(cursors []*cursor) (best *cursor) {
	for _, h := range cursors {
		switch {
		case !h.ok:
		case h.err != nil:
			return h
		case best == nil || h.item.Name < best.item.Name:
			best = h
		}
	}
	return best
}

const listDescription = `ls lists the names that are not free, and those whose lease has expired, in the order of
their bytes. With PREFIX, it lists only names that begin with it. It lists the locks of
all modes that the database offers. It leaves out a mode that the server refuses, or that
the account may not see, and says so on stderr. ls only reads, and waits for no lock.

   MODE    unique, forupdate or advisory: the same name in two modes is two locks
   STATE   held; detached: given away and not adopted yet; expired: the holder crashed,
           everybody can take the name; kept: nobody holds it, but the --min-hold or
           --lock-delay of the last holder keeps it (in unique mode a name that a
           --lock-delay keeps is held); with --all also released and forced, which
           are free
   TOKEN   the fencing token of the holder, or of the last one
   SINCE   when the holder got it
   UNTIL   when the lease expires unless it is renewed, the time ends for which the
           name is kept, or the last lease ended; session: when the session of the
           database ends that keeps the name
   DONE    when a key of the name was completed last (--once of run)
   WAITERS how many wait for the name, in unique mode; in the others it is not known
   HOLDER  the holder's label, or how many share the name, as in "3 readers" or
           "2 of 3 permits"

In advisory mode the server does not know the names of locks: such a lock appears with
its name about a second after its grant. In forupdate mode the number of readers is not
known.

Names and labels can be any text. Those with blanks, quotes, or characters that are not
visible, are quoted, with escapes as in Go. Columns are aligned for a thousand names at a
time.

With --json each line is an object with the fields name, mode, state, label, owner,
token, holds, readers, permits, permits_held, since, until, kept_until, done_key, done_attempt,
done, waiters and now, the time by the database's clock when it was read. Times are as in
RFC 3339. Fields that do not apply are left out.
While a name is kept, its state is that of the last term. Characters that are not visible
are escaped. With --watch an empty line follows each list.

Examples:

   sqllock ls
   sqllock ls --all invoice/
   sqllock ls --mode advisory
   sqllock ls --json | jq -r 'select(.state == "held") | .name'
   sqllock ls --watch --interval 500ms

Exit codes: 0, also when --watch is interrupted,
   64   wrong usage
   69   the database is unreachable or not usable
   73   stdout cannot be written`
