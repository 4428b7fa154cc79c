package main

import (
	"context"
	"sync"
	"time"

	"github.com/gdamore/tcell/v2"
	"github.com/urfave/cli/v3"

	"github.com/sqllock/sqllock"
	"github.com/sqllock/sqllock/driver"
	"github.com/sqllock/sqllock/internal/monitor"
	"github.com/sqllock/sqllock/internal/output"
	"github.com/sqllock/sqllock/internal/supervise"
)

func (a *app) topCommand() *cli.Command {
	return &cli.Command{
		Name:            "top",
		Usage:           "show the locks on the terminal, and keep them up to date",
		ArgsUsage:       "[PREFIX]",
		Description:     topDescription,
		HideHelpCommand: true,
		Flags: []cli.Flag{
			&cli.BoolFlag{Name: "all", Aliases: []string{"a"}, Usage: "begin with the names that are free, too"},
			&cli.DurationFlag{Name: "interval", Value: 2 * time.Second, Usage: "read again each `DURATION`; at least 100ms"},
			modeFlag("show the locks of `MODE`: unique, forupdate or advisory", unique),
		},
		Action: a.newAction(showTop),
	}
}

func showTop(ctx context.Context, o *action) error {
	prefix, every := o.cmd.Args().First(), o.cmd.Duration("interval")
	switch {
	case o.cmd.Args().Len() > 1:
		return o.usageError("unexpected: %s", o.quoted(o.cmd.Args().Get(1)))
	case prefix != "" && driver.CheckName(prefix) != nil:
		return driver.CheckName(prefix)
	case every < 100*time.Millisecond:
		return o.usageError("--interval %v: must be at least 100ms", every)
	case !isTerminal(o.stdin) || !isTerminal(o.stdout):
		return o.usageError("stdin and stdout must be a terminal; \"sqllock ls\" needs none")
	}
	if err := o.open(ctx); err != nil {
		return err
	}
	if o.db.inMemory {
		return fail(exitUnavailable, "nothing was ever locked here: %s does not exist", o.db.shown)
	}
	r := newTopReader(o)
	defer r.close()
	t := &top{topReader: r, every: every, query: topQuery{prefix: prefix, free: o.cmd.Bool("all")}}
	lines, _, ok := output.TerminalSize(o.stdout)
	if !ok {
		lines = 24
	}
	if t.got = r.read(ctx, t.query.sized(max(1, lines-otherRows))); t.got.err != nil { // before the screen is ours
		return t.got.err
	}
	t.fresh = true
	screen, err := tcell.NewScreen()
	if err == nil {
		err = screen.Init()
	}
	if err != nil {
		return fail(exitSystem, "cannot use the terminal: %w", err)
	}
	return t.run(ctx, screen)
}

// top is one call of top, on its screen.
type top struct {
	*topReader
	screen tcell.Screen
	every  time.Duration

	query   topQuery
	before  []topQuery         // the pages before this one
	got     topResult          // what was read last
	fresh   bool               // it is of the query
	pages   int                // pages to go on when it is
	number  int                // the number of the reading that is wanted
	cancel  context.CancelFunc // of it, nil if it is there
	results chan topResult

	readings sync.WaitGroup // in the background

	view     topView
	selected int    // a row of the list
	scroll   int    // the first line of a text
	aside    int    // the first column of a text
	typing   bool   // the prefix
	typed    string // so far
	problem  string // with what was typed
	rows     int    // of the list that fit
	lines    int    // of a text that fit
}

// topView is what is on the screen.
type topView int

const (
	viewList topView = iota
	viewName
	viewLosses
	viewHelp
)

// run shows the locks until a key or a signal ends it. Then the terminal is as it was before.
func (t *top) run(ctx context.Context, screen tcell.Screen) error {
	t.screen = screen
	ctx, cancel := context.WithCancel(ctx)
	defer t.endReadings(cancel)
	defer screen.Fini()
	stopping, release := supervise.CatchStop()
	defer release()
	events, quit := make(chan tcell.Event), make(chan struct{})
	defer close(quit)
	go screen.ChannelEvents(events, quit)
	t.results = make(chan topResult)
	tick := time.NewTicker(t.every)
	defer tick.Stop()
	t.draw()
	t.begin(ctx)
	for {
		select {
		case <-ctx.Done():
			return nil
		case ev, ok := <-events:
			if !ok || t.handle(ctx, ev) {
				return nil
			}
		case got := <-t.results:
			t.take(got)
			t.nextPages(ctx)
		case <-tick.C:
			if t.cancel == nil {
				t.begin(ctx)
			}
		case <-stopping:
			t.suspend()
		}
		t.draw()
	}
}

// begin reads in the background what the screen shows. What was being read is not wanted any more.
func (t *top) begin(ctx context.Context) {
	if t.cancel != nil {
		t.cancel()
	}
	reading, cancel := context.WithTimeout(ctx, readTimeout)
	t.cancel = cancel
	t.number++
	query, number := t.query.sized(max(1, t.rows)), t.number
	t.readings.Go(func() {
		defer cancel()
		got := t.read(reading, query)
		got.number = number
		select {
		case t.results <- got:
		case <-ctx.Done():
		}
	})
}

// endReadings waits for them, because they use what is closed after them.
func (t *top) endReadings(cancel context.CancelFunc) {
	cancel()
	ctx, enough := context.WithTimeout(context.Background(), closeTimeout)
	defer enough()
	within(ctx, t.readings.Wait)
}

// take shows what was read, unless something else is wanted by now.
func (t *top) take(got topResult) {
	if got.number != t.number {
		return
	}
	t.cancel = nil
	if t.got.err = got.err; got.err != nil { // what was read before stays
		return
	}
	if t.query.name != "" { // the list stays
		t.got.info, t.got.changes = got.info, got.changes
		return
	}
	t.got, t.fresh = got, true
	t.selected = max(0, min(t.selected, len(got.rows)-1))
}

// suspend gives the terminal back while this process is stopped.
func (t *top) suspend() {
	if t.screen.Suspend() == nil {
		supervise.Suspend()
		_ = t.screen.Resume()
	}
}

// request reads another query from its first page on.
func (t *top) request(ctx context.Context, q topQuery) {
	t.query, t.before, t.selected, t.fresh, t.pages = q, nil, 0, false, 0
	t.begin(ctx)
}

// nextPages goes to the next page, and the one after it, as often as that was asked for. What
// follows a page is known when the page was read.
func (t *top) nextPages(ctx context.Context) {
	if !t.fresh || t.pages == 0 || t.view != viewList {
		return
	}
	pages := t.pages - 1
	if t.got.next == nil {
		t.pages = 0
		return
	}
	before := append(t.before, t.query)
	t.request(ctx, *t.got.next)
	t.before, t.pages = before, pages
}

const (
	// readTimeout bounds one reading.
	readTimeout = 20 * time.Second
	// manyInterval is how often all names are read if there are more than a thousand.
	manyInterval = 10 * time.Second
)

// topReader reads what top shows.
type topReader struct {
	*action
	locks   *sqllock.Locker // which the action forgets at its end
	sampler *monitor.Sampler
	watches *monitor.Watches
	ordered orderedNames
}

func newTopReader(o *action) *topReader {
	every := o.cmd.Duration("interval")
	return &topReader{action: o, locks: o.locks, sampler: monitor.NewSampler(o.locks, every, manyInterval), watches: monitor.NewWatches(o.locks, every)}
}

func (r *topReader) close() {
	ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
	defer cancel()
	within(ctx, r.watches.Close)
}

// topHelp fits into 80 columns.
const topHelp = `   ↑ ↓ j k          select a name
   Enter            show all of the name, its queue and its history
   PgDn PgUp n p    next page, page before; Home g is the first
   /                show the names that begin with what you type
   s                sort by name, waiters, age, or time left
   f                show free names, too
   l                show the longest queues, and what was lost lately
   r                read again now
   ← →              move a long text
   Esc              back
   ? h              help
   q Ctrl-C         end

   STATE  held; detached: given away, not adopted yet; expired: the holder
          crashed, everybody can take the name; kept: by a minimum hold or a
          lock delay
   SINCE  how long it has been held
   LEFT   time until the lease expires unless it is renewed; negative: since
          when that is over; session: a session of the database keeps the name
   WAIT   how many wait for it, in unique mode`

const topDescription = `top shows on the terminal what "sqllock web" shows in a browser: who holds which name and
since when, how many wait, readers, permits, and what was lost lately. It only reads. With
PREFIX, it begins with the names that begin with it.

` + topHelp + `

It reads the names that it shows each --interval. It reads all names, 20,000 at most, to
count them and for the other orders than by name: as often, but only each ten seconds if
there are more than a thousand.

SIGINT, SIGTERM and SIGHUP end it. The terminal is then as it was before.

Examples:

   sqllock top
   sqllock top --interval 500ms invoice/
   sqllock top --mode advisory

Exit codes: 0, also when a signal ended it,
   64   wrong usage, or there is no terminal
   69   the database is unreachable or not usable
   71   the terminal cannot be used`
