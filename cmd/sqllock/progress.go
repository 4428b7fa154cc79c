package main

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/sqllock/sqllock"
	"github.com/sqllock/sqllock/internal/output"
)

const (
	progressDelay    = 300 * time.Millisecond // nothing is shown of a wait that is as short
	progressInterval = time.Second
	progressTimeout  = 5 * time.Second
)

// statusLine is a line on the terminal of stderr that is written again and again. The zero value
// and nil are not on the screen.
type statusLine struct {
	terminal *os.File
	messages *output.Messages

	mu      sync.Mutex
	visible bool
}

const clearLine = "\r\x1b[K"

// put replaces the line. It is as long as the terminal is wide, at most. In the background it
// does nothing: a terminal may stop those who write there.
func (l *statusLine) put(text string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	_, columns, ok := output.TerminalSize(l.terminal)
	if !ok || !output.Foreground(l.terminal) {
		return
	}
	l.visible = true
	l.messages.Write(l.terminal, clearLine+output.Cut(text, columns-1))
}

// without calls fn while the line is not on the screen.
func (l *statusLine) without(fn func()) {
	if l == nil {
		fn()
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.visible {
		l.messages.Write(l.terminal, clearLine)
	}
	l.visible = false
	fn()
}

// progress shows how a runner waits.
type progress struct {
	*runner
	began time.Time
	since time.Time // when this call entered the queue, by the clock of the database
}

// showProgress shows who holds the name, and the place of this call in the queue, until stop is
// called. It does nothing if stderr is no terminal that can show it.
func (r *runner) showProgress(ctx context.Context) (stop func()) {
	if !r.progress || !isTerminal(r.stderr) || r.getenv("TERM") == "dumb" {
		return func() {}
	}
	status := &statusLine{terminal: r.stderr, messages: &r.messages}
	r.status.Store(status)
	ctx, cancel := context.WithCancel(ctx)
	var shown sync.WaitGroup
	shown.Go(func() { (&progress{runner: r, began: time.Now()}).run(ctx) })
	return func() {
		cancel()
		shown.Wait()
		status.without(func() {})
	}
}

func (p *progress) run(ctx context.Context) {
	for wait := progressDelay; sleep(ctx, wait) == nil; wait = progressInterval {
		reading, cancel := context.WithTimeout(ctx, progressTimeout)
		info, err := p.locker.Inspect(reading, p.name)
		cancel()
		text := p.line(&info)
		if err != nil {
			text = p.waiting("") + "; the database does not answer"
		}
		if ctx.Err() == nil {
			p.status.Load().put(text)
		}
	}
}

// waiting is the beginning of the line, with as much of the name as leaves room for the rest.
func (p *progress) waiting(where string) string {
	const widest = 30
	name := output.Word(p.name)
	if cut := output.Cut(name, widest); cut != name {
		name = cut + "…"
	}
	return fmt.Sprintf("sqllock: waiting for %v%s, for %s", time.Since(p.began).Truncate(time.Second), where, name)
}

// line is what is shown. The label of the holder is last, see rowHeading.
func (p *progress) line(i *sqllock.Info) string {
	where := ""
	switch at := p.position(i); {
	case at > 0:
		where = fmt.Sprintf(", place %d of %d", at, i.Waiters)
	case len(i.Queue) > 0 && i.Waiters > len(i.Queue):
		where = fmt.Sprintf(", behind the first %d of %d", len(i.Queue), i.Waiters)
	}
	text := p.waiting(where)
	switch {
	case hasTerm(i):
		text += fmt.Sprintf("; %s since %s by %s", i.State, output.Relative(i.Since, i.Now), holder(i))
	case state(i) == "kept":
		text += fmt.Sprintf("; kept, %s more", output.Duration(i.KeptUntil.Sub(i.Now)))
	}
	return text
}

// isOurs reports that a label can be that of this call.
func (p *progress) isOurs(label string) bool {
	if p.label != "" {
		return label == p.label
	}
	host, _ := os.Hostname()
	return strings.HasPrefix(label, host) && strings.HasSuffix(label, strconv.Itoa(os.Getpid())) // see UniqueOptions.Label
}

// position is the place of this call among the first of the queue, or 0. Of several waiters with its
// label it is the one that entered the queue when this call began to wait, or soon after.
func (p *progress) position(i *sqllock.Info) int {
	entered := p.since
	if entered.IsZero() {
		entered = i.Now.Add(-time.Since(p.began))
	}
	best, least := 0, time.Duration(0)
	for n, w := range i.Queue {
		if off := w.Since.Sub(entered).Abs(); p.isOurs(w.Label) && (best == 0 || off < least) {
			best, least = n+1, off
		}
	}
	if best > 0 {
		p.since = i.Queue[best-1].Since
	}
	return best
}
