package conformance

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/sqllock/sqllock"
)

var hookPromises = []promise{
	{sentence: "hooks tell of each acquisition and each Unlock, in order", test: testHookOrder},
	{sentence: "re-entry calls no hook", test: testHookReentry},
	{sentence: "a hook tells of the statements that grant, renew and release", test: testHookStatements},
	{sentence: "a loss calls the hook once, with the reason", test: testHookLost},
	{sentence: "a hook that blocks delays no renewal, no Lock and no Unlock", test: testHookBlocks},
	{sentence: "a log handler that blocks delays no renewal, no Lock and no Unlock", test: testLogBlocks},
	{sentence: "a hook that panics is survived", test: testHookPanics},
	{sentence: "a log handler that panics is survived", test: testLogPanics},
	{sentence: "names, owners and values are not logged above debug level while all is well", test: testQuietLog},
}

// journal collects what hooks and logs say.
type journal struct {
	mu      sync.Mutex
	entries []string
}

func (j *journal) add(format string, args ...any) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.entries = append(j.entries, fmt.Sprintf(format, args...))
}

func (j *journal) read() []string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return slices.Clone(j.entries)
}

func (j *journal) has(text string) bool {
	return slices.ContainsFunc(j.read(), func(entry string) bool { return strings.Contains(entry, text) })
}

func (j *journal) hooks() *sqllock.Hooks {
	return &sqllock.Hooks{
		Acquired: func(ev sqllock.AcquiredEvent) { j.add("acquired %s %d", ev.Name, ev.Token) },
		Jeopardy: func(ev sqllock.JeopardyEvent) { j.add("jeopardy %s %d", ev.Name, ev.Token) },
		Lost:     func(ev sqllock.LostEvent) { j.add("lost %s %d %s", ev.Name, ev.Token, ev.Err.Reason) },
		Unlocked: func(ev sqllock.UnlockedEvent) { j.add("unlocked %s %d %v", ev.Name, ev.Token, ev.Err) },
	}
}

// Handle, Enabled, WithAttrs and WithGroup make a journal a slog.Handler.
func (j *journal) Handle(_ context.Context, r slog.Record) error {
	entry := r.Level.String() + " " + r.Message
	r.Attrs(func(a slog.Attr) bool { entry += " " + a.String(); return true })
	j.add("%s", entry)
	return nil
}
func (j *journal) Enabled(context.Context, slog.Level) bool { return true }
func (j *journal) WithAttrs([]slog.Attr) slog.Handler       { return j }
func (j *journal) WithGroup(string) slog.Handler            { return j }

func testHookOrder(e *env) {
	var j journal
	l := e.looseLocker(e.handle(), &Options{TTL: long, Hooks: j.hooks()})
	var want []string
	for range 20 {
		lease := e.lock(l, e.name("k"))
		e.unlock(lease)
		want = append(want,
			fmt.Sprintf("acquired %s %d", lease.Name(), lease.Token()),
			fmt.Sprintf("unlocked %s %d <nil>", lease.Name(), lease.Token()))
	}
	if err := l.Close(e.ctx()); err != nil { // after it all hooks have been called
		e.Errorf("Close: %v", err)
	}
	if got := j.read(); !slices.Equal(got, want) {
		e.Errorf("want %q, got %q", want, got)
	}
}

func testHookReentry(e *env) {
	var j journal
	l := e.looseLocker(e.handle(), &Options{TTL: long, Hooks: j.hooks()})
	outer := e.lock(l, e.name("k"))
	inner := e.lockWith(outer.Context(), l, outer.Name())
	e.unlock(outer)
	e.unlock(inner)
	if err := l.Close(e.ctx()); err != nil {
		e.Errorf("Close: %v", err)
	}
	if got := j.read(); len(got) != 2 {
		e.Errorf("want one acquisition and one Unlock, got %q", got)
	}
}

func testHookStatements(e *env) {
	var mu sync.Mutex
	requests := make(map[string]int)
	l := e.looseLocker(e.handle(), &Options{TTL: e.ttl(2 * time.Second), Hooks: &sqllock.Hooks{Statement: func(ev sqllock.StatementEvent) {
		mu.Lock()
		defer mu.Unlock()
		if requests[ev.Operation] += ev.Requests; ev.Requests < 1 || ev.Took < 0 {
			e.Errorf("%+v", ev)
		}
	}}})
	lease := e.lock(l, e.name("k"))
	e.eventually(timeLimit, "the hook tells of a renewal", func() bool {
		mu.Lock()
		defer mu.Unlock()
		return requests["renew"] > 0
	})
	e.unlock(lease)
	if err := l.Close(e.ctx()); err != nil {
		e.Errorf("Close: %v", err)
	}
	if requests["acquire"] < 1 || requests["release"] < 1 {
		e.Errorf("the hook told of the requests %v", requests)
	}
}

func testHookLost(e *env) {
	e.losable()
	var j journal
	l, other := e.looseLocker(e.handle(), &Options{TTL: e.ttl(2 * time.Second), Hooks: j.hooks(), Logger: slog.New(&j)}), e.locker(&Options{TTL: long})
	lease := e.lock(l, e.name("k"))
	next := e.lose(lease, other)
	lost := e.wantLost("Unlock", lease.Unlock(e.ctx()))
	e.wantReason(lost)
	if err := l.Close(e.ctx()); err != nil {
		e.Errorf("Close: %v", err)
	}
	want := fmt.Sprintf("lost %s %d %s", lease.Name(), lease.Token(), lost.Reason)
	n := 0
	for _, entry := range j.read() {
		if entry == want {
			n++
		} else if strings.HasPrefix(entry, "unlocked ") {
			e.Errorf("the Unlock of a lost lease was reported as one that freed the name: %s", entry)
		}
	}
	if n != 1 || !j.has("ERROR sqllock: lost name="+lease.Name()) {
		e.Errorf("want %q once, and a line in the log, got %q", want, j.read())
	}
	e.unlock(next)
}

// undelayed checks that a Locker works for several TTLs while what it tells is
// not taken.
func (e *env) undelayed(o *Options, entered <-chan struct{}, release func()) {
	e.Helper()
	ttl := e.ttl(2 * time.Second)
	o.TTL = ttl
	l, other := e.looseLocker(e.handle(), o), e.locker(&Options{TTL: ttl})
	lease := e.lock(l, e.name("k"))
	receive(e, entered, "the hook or handler is called")
	for end := time.Now().Add(2 * ttl); time.Now().Before(end); time.Sleep(ttl / 10) {
		e.live(lease)
		e.wantHeld(other, lease.Name())
		e.unlock(e.lock(l, e.name("k")))
	}
	e.unlock(lease)
	ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
	defer cancel()
	e.wantError("Close while a hook or handler blocks", l.Close(ctx), context.DeadlineExceeded)
	release()
	if err := l.Close(e.ctx()); err != nil {
		e.Errorf("Close: %v", err)
	}
}

func testHookBlocks(e *env) {
	entered, block := make(chan struct{}, 1), make(chan struct{})
	hook := func() {
		select {
		case entered <- struct{}{}:
		default:
		}
		<-block
	}
	e.undelayed(&Options{Hooks: &sqllock.Hooks{
		Acquired: func(sqllock.AcquiredEvent) { hook() },
		Unlocked: func(sqllock.UnlockedEvent) { hook() },
	}}, entered, func() { close(block) })
}

// handlerFunc is a log handler.
type handlerFunc func(slog.Record)

func (f handlerFunc) Handle(_ context.Context, r slog.Record) error { f(r); return nil }
func (f handlerFunc) Enabled(context.Context, slog.Level) bool      { return true }
func (f handlerFunc) WithAttrs([]slog.Attr) slog.Handler            { return f }
func (f handlerFunc) WithGroup(string) slog.Handler                 { return f }

func testLogBlocks(e *env) {
	entered, block := make(chan struct{}, 1), make(chan struct{})
	e.undelayed(&Options{Logger: slog.New(handlerFunc(func(slog.Record) {
		select {
		case entered <- struct{}{}:
		default:
		}
		<-block
	}))}, entered, func() { close(block) })
}

func testHookPanics(e *env) {
	var j journal
	hooks := j.hooks()
	hooks.Acquired = func(sqllock.AcquiredEvent) { panic("a hook's panic") }
	l := e.looseLocker(e.handle(), &Options{TTL: e.ttl(2 * time.Second), Hooks: hooks, Logger: slog.New(&j)})
	for range 3 {
		e.unlock(e.lock(l, e.name("k")))
	}
	if err := l.Close(e.ctx()); err != nil {
		e.Errorf("Close: %v", err)
	}
	if !j.has("unlocked ") || !j.has("a hook's panic") {
		e.Errorf("want later hooks called and the panic logged, got %q", j.read())
	}
}

func testLogPanics(e *env) {
	var j journal
	l := e.looseLocker(e.handle(), &Options{
		TTL: e.ttl(2 * time.Second), Hooks: j.hooks(),
		Logger: slog.New(handlerFunc(func(slog.Record) { panic("a handler's panic") })),
	})
	e.unlock(e.lock(l, e.name("k")))
	if err := l.Close(e.ctx()); err != nil {
		e.Errorf("Close: %v", err)
	}
}

func testQuietLog(e *env) {
	var j journal
	ttl := e.ttl(2 * time.Second)
	l := e.looseLocker(e.handle(), &Options{TTL: ttl, Logger: slog.New(&j)})
	lease := e.lockWith(sqllock.WithOwner(e.ctx(), "secret-owner"), l, e.name("secret-name"))
	time.Sleep(ttl)
	e.wantHeld(l, lease.Name())
	e.unlock(lease)
	if err := l.Close(e.ctx()); err != nil {
		e.Errorf("Close: %v", err)
	}
	for _, entry := range j.read() {
		if strings.Contains(entry, "secret") && !strings.HasPrefix(entry, "DEBUG") {
			e.Errorf("logged: %s", entry)
		}
	}
}
