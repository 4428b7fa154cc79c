package main

import (
	"bytes"
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/gdamore/tcell/v2"

	"github.com/sqllock/sqllock"
	"github.com/sqllock/sqllock/internal/monitor"
	"github.com/sqllock/sqllock/internal/output"
)

var (
	plain    = tcell.StyleDefault
	bar      = tcell.StyleDefault.Reverse(true)
	heading  = tcell.StyleDefault.Bold(true)
	bad      = tcell.StyleDefault.Foreground(tcell.ColorRed)
	awaited  = tcell.StyleDefault.Foreground(tcell.ColorYellow)
	topKeys  = "Enter show  / filter  s sort  f free  n p page  l losses  ? help  q quit"
	textKeys = "Esc back  ↑ ↓ ← → n p scroll  r read again  ? help  q quit"
)

// draw draws the screen. What strangers have chosen passes through output.Word or output.Line
// before it gets here.
func (t *top) draw() {
	t.screen.Clear()
	t.screen.HideCursor()
	width, height := t.screen.Size()
	t.rows, t.lines = max(0, height-otherRows), max(1, height-3)
	t.drawTitle(width)
	switch t.view {
	case viewList:
		t.drawCounts(width)
		t.drawList(width)
	case viewName:
		t.drawText(width, t.nameLines())
	case viewLosses:
		t.drawText(width, t.lossLines())
	case viewHelp:
		t.drawText(width, strings.Split(topHelp, "\n"))
	}
	t.drawLast(width, height-1)
	t.screen.Show()
}

// put writes a text that is cut at a width. The rest of the width gets the style, too.
func (t *top) put(x, y, width int, text string, style tcell.Style) {
	for end := x + width; x < end; {
		rest, columns := " ", 0
		if text != "" {
			rest, columns = t.screen.Put(x, y, text, style)
			if x+columns > end { // half of a wide character
				rest, columns = "", 0
			}
			text = rest
		}
		if columns == 0 {
			t.screen.Put(x, y, " ", style)
			columns = 1
		}
		x += columns
	}
}

// cell writes a text into a column of a table, with a mark if it is cut.
func (t *top) cell(x, y, width int, text string, style tcell.Style) {
	if cut := output.Cut(text, width); cut != text && width > 1 {
		text = output.Cut(text, width-1) + "…"
	}
	t.put(x, y, width, text, style)
}

func (t *top) drawTitle(width int) {
	text := fmt.Sprintf(" sqllock top   %s mode   every %v", t.mode(), t.every)
	clock := time.Now().Format(time.TimeOnly) + " "
	t.put(0, 0, width, text, bar)
	if at := width - len(clock); at > len(text)+1 {
		t.put(at, 0, len(clock), clock, bar)
	}
}

// drawCounts draws what is counted over all names.
func (t *top) drawCounts(width int) {
	o := t.got.overview
	if o == nil {
		return
	}
	more := ""
	if o.More {
		more = "+"
	}
	t.put(0, 1, width, fmt.Sprintf(" held %d%s  waiting %d for %s  readers %d  permits %d of %d",
		o.Held, more, o.Waiting, count(o.Awaited, "name"), o.Readers, o.PermitsHeld, o.Permits), plain)
	rates := "grants –  hand-overs –"
	if o.Rates {
		rates = fmt.Sprintf("grants %.1f/s  hand-overs %.1f/s", o.Grants, o.HandOvers)
	}
	style := plain
	if o.Expired > 0 {
		style = bad
	}
	t.put(0, 2, width, fmt.Sprintf(" expired %d  detached %d  kept %d  lost %d  %s", o.Expired, o.Detached, o.Kept, len(t.got.losses), rates), style)
}

func count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return strconv.Itoa(n) + " " + what + "s"
}

const (
	firstRow  = 5            // of the list, below its heading
	otherRows = firstRow + 1 // with the last line
)

// drawList draws the names of a page.
func (t *top) drawList(width int) {
	what := "names"
	if t.query.free {
		what += ", free ones too"
	}
	what += ", sorted by " + t.query.order.String()
	if page := len(t.before) + 1; page > 1 || t.got.next != nil {
		what += ", page " + strconv.Itoa(page)
	}
	if t.query.prefix != "" {
		what += ", that begin with " + output.Word(t.query.prefix)
	}
	if !t.fresh {
		what = "reading " + what
	}
	t.put(0, 3, width, " "+what, plain)
	c := t.columns(width)
	t.drawRow(c, firstRow-1, []string{"NAME", "STATE", "SINCE", "LEFT", "WAIT", "HOLDER"}, heading, heading)
	for n := range t.got.rows {
		if n < t.rows {
			t.drawName(c, firstRow+n, &t.got.rows[n], n == t.selected)
		}
	}
	if len(t.got.rows) == 0 {
		t.put(1, firstRow, width-1, "no name is "+map[bool]string{true: "known", false: "held"}[t.query.free], plain)
	}
}

// topColumns are where the columns of the list begin, and where the last one ends.
type topColumns [7]int

// columns gives the name and the holder what they need, or half of the space each.
func (t *top) columns(width int) (c topColumns) {
	names, holders := 4, 6
	for i := range t.got.rows {
		names = max(names, output.Columns(output.Word(t.got.rows[i].Name)))
		holders = max(holders, output.Columns(holder(&t.got.rows[i])))
	}
	const between = 9 + 9 + 9 + 6 // state, since, left, waiters
	space := max(10, width-2-between)
	if names+holders > space {
		names = min(names, max(space/2, space-holders))
	}
	c[0] = 1
	for i, w := range []int{names + 1, 9, 9, 9, 6} {
		c[i+1] = c[i] + w
	}
	c[6] = max(width, c[5]+1)
	return c
}

func (t *top) drawRow(c topColumns, y int, cells []string, style, waiters tcell.Style) {
	for i, text := range cells {
		s := style
		if i == 4 {
			s = waiters
			text = fmt.Sprintf("%4s", text)
		}
		width := c[i+1] - c[i]
		t.put(c[i], y, width, "", style)
		if i < 5 {
			width--
		}
		t.cell(c[i], y, width, text, s)
	}
}

func (t *top) drawName(c topColumns, y int, i *sqllock.Info, selected bool) {
	since, style, waiting := "-", plain, plain
	if monitor.IsHeld(i) {
		since = output.Duration(i.Now.Sub(i.Since))
	}
	if i.State == sqllock.StateExpired {
		style, waiting = bad, bad
	}
	if i.Waiters > 0 {
		waiting = awaited
	}
	if selected {
		style, waiting = bar, bar
		t.put(0, y, c[6], "", bar)
	}
	t.drawRow(c, y, []string{output.Word(i.Name), state(i), since, left(i), waiters(i), holder(i)}, style, waiting)
}

// left is the time until a name becomes free if nothing happens. It is negative if that is over.
func left(i *sqllock.Info) string {
	end := i.Until
	if end.Before(i.KeptUntil) {
		end = i.KeptUntil
	}
	switch d := end.Sub(i.Now); {
	case heldBySession(i):
		return "session"
	case isFree(i) && i.State != sqllock.StateExpired || end.IsZero():
		return "-"
	case d < 0:
		return "-" + output.Duration(-d)
	default:
		return output.Duration(d)
	}
}

// nameLines are all that is known of a name, and its history.
func (t *top) nameLines() (lines []string) {
	found := &lockInfo{t.mode(), t.got.info}
	for line := range bytes.Lines(found.fields()) {
		lines = append(lines, strings.TrimRight(string(line), "\n"))
	}
	if more := t.got.info.Waiters - len(t.got.info.Queue); len(t.got.info.Queue) > 0 && more > 0 {
		lines = append(lines, fmt.Sprintf("and %d more behind them", more))
	}
	lines = append(lines, "", "history, while it is shown")
	for i := range t.got.changes {
		c := &t.got.changes[i]
		lines = append(lines, fmt.Sprintf("%s  %-8s  token %d  %s", c.Now.UTC().Format("15:04:05.000"), state(c), c.Token, holder(c)))
	}
	return lines
}

// lossLines are the longest queues, and what was lost lately.
func (t *top) lossLines() (lines []string) {
	lines = append(lines, "longest queues")
	if t.got.overview == nil || len(t.got.overview.Queues) == 0 {
		lines = append(lines, "  nobody waits, as far as the database knows")
	} else {
		for _, q := range t.got.overview.Queues {
			lines = append(lines, fmt.Sprintf("  %6d  %s", q.Waiters, output.Word(q.Name)))
		}
	}
	lines = append(lines, "", "lost lately, as seen in the database")
	if len(t.got.losses) == 0 {
		lines = append(lines, "  nothing since this began")
	}
	for _, l := range t.got.losses {
		lines = append(lines, fmt.Sprintf("  %s  token %d  %s", l.At.UTC().Format(time.DateTime), l.Token, l.What),
			"    "+output.Word(l.Name)+"  "+output.Word(l.Holder))
	}
	return lines
}

// drawText draws the lines that fit, from where they were scrolled to.
func (t *top) drawText(width int, lines []string) {
	t.scroll = max(0, min(t.scroll, len(lines)-t.lines))
	for y, line := range lines[t.scroll:min(len(lines), t.scroll+t.lines)] {
		t.cell(1, y+2, width-1, without(line, t.aside), plain)
	}
}

// without returns a line without its first characters, and without the marks on the last of them:
// a terminal would put those on something else.
func without(line string, n int) string {
	for i, r := range line {
		if n <= 0 && !unicode.Is(unicode.M, r) && output.Columns(string(r)) > 0 {
			return line[i:]
		}
		n--
	}
	return ""
}

// drawLast draws the last line: what is wrong, what is typed, or the keys.
func (t *top) drawLast(width, y int) {
	switch {
	case t.typing:
		text := " names that begin with: " + output.Line(t.typed)
		t.put(0, y, width, text+"  "+t.problem, heading)
		t.screen.ShowCursor(min(width-1, output.Columns(text)), y)
	case t.got.err != nil:
		t.put(0, y, width, " "+output.Line(redact(t.db.failure(t.got.err).Error())), bad.Reverse(true))
	case t.view == viewList:
		t.put(0, y, width, " "+topKeys, bar)
	default:
		t.put(0, y, width, " "+textKeys, bar)
	}
}
