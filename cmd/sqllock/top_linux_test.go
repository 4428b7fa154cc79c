package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/gdamore/tcell/v2"
	"golang.org/x/sys/unix"

	"github.com/sqllock/sqllock/internal/output"
	"github.com/sqllock/sqllock/internal/output/outputtest"
	"github.com/sqllock/sqllock/internal/testdb"
)

// topCall is a call of top on a terminal.
type topCall struct {
	*ttyProcess
	before unix.Termios

	emulated *screen
	fed      int // of the text
}

// top starts top on a terminal of that size. An empty call is one with "top" as its arguments.
func (u client) top(t *testing.T, rows, columns int, args ...string) *topCall {
	t.Helper()
	ready := filepath.Join(t.TempDir(), "ready") // a client may call it several times
	script := `until [ -e "$1" ]; do sleep 0.01; done; shift; export TERM=xterm-256color; exec "$S" --dsn "$0" top --interval 100ms "$@"`
	s := startOnTTY(t, u, append([]string{"/bin/sh", "-c", script, u.dsn, ready}, args...)...)
	s.resize(uint16(rows), uint16(columns))
	p := &topCall{ttyProcess: s, before: s.termios(), emulated: newScreen(rows, columns)}
	if err := os.WriteFile(ready, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	return p
}

func (s *ttyProcess) termios() unix.Termios {
	s.t.Helper()
	state, err := unix.IoctlGetTermios(int(s.key.Fd()), unix.TCGETS)
	if err != nil {
		s.t.Fatal(err)
	}
	return *state
}

// screen is what the terminal shows now.
func (p *topCall) screen() *screen {
	text := p.text()
	p.fed = len(text) - len(p.emulated.feed(text[p.fed:]))
	return p.emulated
}

// shows waits until all parts are on the screen.
func (p *topCall) shows(parts ...string) string {
	p.t.Helper()
	shown := ""
	defer func() {
		if p.t.Failed() {
			p.t.Logf("the screen is\n%s", shown)
		}
	}()
	eventually(p.t, fmt.Sprintf("%q on the screen", parts), func() bool { // and it is drawn to its end
		s := p.screen()
		shown = s.String()
		return !s.modes["2026"] && !slices.ContainsFunc(parts, func(part string) bool { return !strings.Contains(shown, part) })
	})
	return shown
}

// left checks that top has ended so, and left the terminal as it was.
func (p *topCall) left(code int) {
	p.t.Helper()
	late := time.AfterFunc(testTimeout, func() { _ = p.cmd.Process.Kill() })
	defer late.Stop()
	if got := p.code(); got != code {
		p.t.Errorf("exit code %d, want %d", got, code)
	}
	p.restored()
}

func (p *topCall) restored() {
	p.t.Helper()
	eventually(p.t, "the terminal is as it was", func() bool {
		m := p.screen().modes
		return p.termios() == p.before && !m["1049"] && m["25"] && m["7"] && !m["1"] && !m["keyboard"] && !m["9001"] && !m["2004"] && !m["1000"]
	})
	if odd := p.screen().odd; odd != nil {
		p.t.Errorf("the terminal got %q", odd)
	}
}

func TestTopShowsWhatIsHeldAndWhoWaits(t *testing.T) {
	t.Parallel()
	onEachDB(t, func(t *testing.T, s *clientDB) {
		s.put(t, "expired", "who crashed", time.Now().Add(-time.Minute))
		for i := range 30 {
			s.put(t, fmt.Sprintf("invoice/%03d", i), "worker", time.Now().Add(time.Duration(100-i)*time.Minute))
		}
		s.run(t, "run", "was-free", "--", "true").want(t, 0, "", "")
		holding := s.shell(t, "@UP; sleep 60", "--label", "db-1/cron", "--value", "10.0.0.7:8443", "nightly")
		waiting := s.start(t, "run", "--label", "who waits", "nightly", "--", "true")
		reading := s.shell(t, "@UP; sleep 60", "--shared", "report")
		permit := s.shell(t, "@UP; sleep 60", "--permits", "4", "pool")
		p := s.top(t, 24, 80)
		p.shows("unique mode", "held 33  waiting 1 for 1 name  readers 1  permits 1 of 4", "expired 1", "sorted by name, page 1", `"who crashed"`)
		p.press("n")
		p.shows("page 2", "nightly", "db-1/cron", "1 of 4 permits", "1 reader")
		p.press("p")
		p.shows("page 1", "invoice/000")
		p.press("s")
		p.shows("by waiters")
		p.shows("\n names, sorted by waiters")
		p.press("\r") // the first of them
		p.shows("10.0.0.7:8443", `"who waits"`, "history, while it is shown", "held      token")
		waiting.signal(syscall.SIGTERM)
		waiting.wait()
		holding.end(t)
		p.shows("released  token")
		p.press("\x1b")
		p.shows("by waiters", "waiting 0 for 0 names")
		p.press("ss")
		text := p.shows("\n names, sorted by time left, page 1")
		if first, second := strings.Index(text, "invoice/029"), strings.Index(text, "invoice/028"); first < 0 || second < first {
			t.Errorf("the order is\n%s", text)
		}
		p.press("sf/was\r")
		p.shows("\n names, free ones too, sorted by name, that begin with was\n", "was-free", "released")
		p.press("f")
		p.shows("no name is held")
		p.press("l")
		p.shows("nobody waits", "lost lately")
		p.press("?")
		p.shows("q Ctrl-C         end", "WAIT   how many wait")
		p.press("\x1b")
		p.shows("that begin with was")
		p.press("/\x15no\x7f") // all is deleted, and a letter
		p.shows("that begin with: n\n")
		p.press("\x1b") // not wanted
		p.shows("that begin with was", "q quit")
		p.press("\x1b")
		p.shows("\n names, sorted by name, page 1\n")
		p.press("q")
		p.left(0)
		p = s.top(t, 24, 80, "--all", "was")
		p.shows("\n names, free ones too, sorted by name, that begin with was\n", "was-free")
		p.press("q")
		p.left(0)
		reading.end(t)
		permit.end(t)
	})
}

func TestTopShowsTheLocksOfAMode(t *testing.T) {
	t.Parallel()
	onSessionModes(t, func(t *testing.T, s *clientDB, m mode) {
		holding := s.shell(t, "@UP; sleep 60", "--mode", string(m), "in-session", "--label", "the-holder", "--value", "v")
		p := s.top(t, 24, 80, "--mode", string(m))
		p.shows("held 1 ", "in-session", "the-holder")
		p.press("q")
		p.left(0)
		holding.end(t)
	})
}

func TestTopShowsHostileTextsHarmlessly(t *testing.T) {
	t.Parallel()
	s := newClientDB(t, testdb.New(t, testdb.SQLite))
	var names []string
	for _, name := range slices.Concat(outputtest.Hostile, outputtest.Markup, outputtest.Harmless) {
		if utf8.ValidString(name) {
			names = append(names, name)
			s.put(t, name, name, time.Now().Add(time.Hour))
		}
	}
	s.exec(t, "UPDATE sqllock_lock SET value = CAST(name AS BLOB)")
	slices.Sort(names)
	const rows, page = 46, 40
	p := s.top(t, rows, 500)
	for first := 0; first < len(names); first += page {
		shown := p.shows(fmt.Sprintf("\n names, sorted by name, page %d\n", first/page+1), " "+output.Word(names[first])+" ")
		outputtest.CheckHarmless(t, "the screen", shown)
		for _, name := range names[first:min(len(names), first+page)] {
			if strings.Count(shown, " "+output.Cut(output.Word(name), 90)) < 2 {
				t.Errorf("%s is not shown twice on\n%s", output.Word(name), shown)
			}
		}
		p.press("\r")
		shown = p.shows("history, while it is shown", "value   ", "name    "+strings.TrimRight(output.Word(names[first]), " "))
		outputtest.CheckHarmless(t, "the screen of a name", shown)
		p.press("\x1b")
		p.shows(fmt.Sprintf("page %d\n", first/page+1))
		p.press("n")
	}
	p.press("/\u202e\u009b")
	p.shows(`that begin with: \u202e\u009b`)
	p.press("\r") // no name begins so
	p.shows(`, that begin with "\u202e\u009b"`, "no name is held")
	p.press("q")
	p.left(0)
}

func TestTopLeavesTheTerminalAsItWas(t *testing.T) {
	t.Parallel()
	s := newClientDB(t, testdb.New(t, testdb.SQLite))
	for name, end := range map[string]func(p *topCall){
		"q":       func(p *topCall) { p.press("q") },
		"Ctrl-C":  func(p *topCall) { p.press(ctrlC) },
		"SIGINT":  func(p *topCall) { _ = p.cmd.Process.Signal(syscall.SIGINT) },
		"SIGTERM": func(p *topCall) { _ = p.cmd.Process.Signal(syscall.SIGTERM) },
		"SIGHUP":  func(p *topCall) { _ = p.cmd.Process.Signal(syscall.SIGHUP) },
	} {
		t.Run(name, func(t *testing.T) {
			p := s.top(t, 24, 80)
			p.shows("no name is held")
			if m := p.screen().modes; !m["1049"] || p.termios() == p.before {
				t.Error("the screen is not its own")
			}
			end(p)
			p.left(0)
		})
	}
}

func TestTopSaysWhatTheTerminalCannotDo(t *testing.T) {
	t.Parallel()
	s := newClientDB(t, testdb.New(t, testdb.SQLite))
	p := startOnTTY(t, s.client, "/bin/sh", "-c", `TERM=bogus "$S" --dsn "$0" top; echo code $?`, s.dsn)
	before := p.termios()
	p.see("cannot use the terminal")
	p.see("code 71")
	if p.termios() != before {
		t.Error("the terminal is not as it was")
	}
	p.code()
	s.run(t, "top").want(t, exitUsage, "", "must be a terminal")
}

func TestAPanicOfTopLeavesTheTerminalAsItWas(t *testing.T) {
	t.Parallel()
	ended := make(chan bool, 1)
	defer func() {
		if recover() == nil || len(ended) == 0 {
			t.Error("the screen was not given back")
		}
	}()
	var broken *topReader // nobody can read with it
	_ = (&top{topReader: broken, every: time.Second}).run(t.Context(), endedScreen{tcell.NewSimulationScreen(""), ended})
}

// endedScreen tells that it was given back.
type endedScreen struct {
	tcell.Screen
	ended chan bool
}

func (s endedScreen) Fini() {
	s.Screen.Fini()
	s.ended <- true
}

func TestTopCanBeStoppedAndContinued(t *testing.T) {
	t.Parallel()
	s := newClientDB(t, testdb.New(t, testdb.SQLite))
	s.put(t, "n", "l", time.Now().Add(time.Hour))
	sh := startOnTTY(t, s.client, "/bin/sh", "-i")
	sh.resize(24, 80)
	p := &topCall{ttyProcess: sh, before: sh.termios(), emulated: newScreen(24, 80)}
	sh.press("TERM=xterm-256color $S --dsn " + s.dsn + " top; echo code $? then\n")
	p.shows("names, sorted by name")
	sh.press(ctrlZ)
	sh.see("code 147 then") // the shell has the terminal
	if p.screen().modes["1049"] {
		t.Error("the screen of top is still there")
	}
	from := len(sh.text())
	sh.press("fg; echo code $? after\n")
	eventually(t, "it is drawn again", func() bool { return strings.Contains(sh.text()[from:], "sorted by name") })
	sh.press("q")
	sh.see("code 0 after")
	p.restored()
	sh.press("exit\n")
	sh.code()
}

func TestTopFitsIntoAnyTerminal(t *testing.T) {
	t.Parallel()
	s := newClientDB(t, testdb.New(t, testdb.SQLite))
	for i := range 50 {
		s.put(t, fmt.Sprintf("日本語%02d", i)+strings.Repeat("x", 90), strings.Repeat("日本語", 20), time.Now().Add(time.Hour))
	}
	p := s.top(t, 24, 80)
	text := p.shows("日本語17", "日本語00x", "… held ", "日本語日本語", "…\n")
	if n := strings.Count(text, "\n"); n != 24 {
		t.Errorf("%d lines", n)
	}
	for _, size := range [][2]int{{5, 10}, {1, 1}, {6, 30}, {12, 60}, {50, 200}, {24, 80}} {
		p.screen()
		p.emulated = newScreen(size[0], size[1])
		p.resize(uint16(size[0]), uint16(size[1]))
		if size[0] > 6 {
			p.shows("日本語00")
		} else {
			time.Sleep(200 * time.Millisecond)
		}
	}
	p.shows("日本語17")
	p.press("q")
	p.left(0)
}

func TestTopGoesOnWhenTheDatabaseFails(t *testing.T) {
	t.Parallel()
	s := newClientDB(t, testdb.New(t, testdb.SQLite))
	s.put(t, "n", "l", time.Now().Add(time.Hour))
	p := s.top(t, 24, 80)
	p.shows(" n    held", "q quit")
	s.exec(t, "ALTER TABLE sqllock_lock RENAME TO elsewhere")
	p.shows("no such table", "NAME")
	s.exec(t, "ALTER TABLE elsewhere RENAME TO sqllock_lock")
	p.shows("q quit")
	p.press("q")
	p.left(0)
}

func TestTopReadsAPageAndNotAllNames(t *testing.T) {
	t.Parallel()
	if !slices.Contains(testdb.Engines(), testdb.Postgres) {
		t.Log("not on Postgres")
		return
	}
	s := newClientDB(t, testdb.New(t, testdb.Postgres))
	const names = 10_000
	s.exec(t, `INSERT INTO sqllock_lock (name, acq, locker, owner, label, version, holds, since, expires_at)
		SELECT 'invoice/' || to_char(i, 'FM000000'), md5(i::text)::uuid, md5(i::text)::uuid, md5(i::text), 'host/program/123', i, 1, 1700000000000000 + i, 9000000000000000 FROM generate_series(1, 10000) i`)
	s.exec(t, `ANALYZE sqllock_lock`)
	read := func() (n int) {
		const query = `SELECT coalesce(seq_tup_read, 0) + coalesce(idx_tup_fetch, 0) FROM pg_stat_user_tables WHERE relname = 'sqllock_lock'`
		if err := s.db.QueryRowContext(t.Context(), query).Scan(&n); err != nil {
			t.Fatal(err)
		}
		return n
	}
	before := read()
	p := s.top(t, 24, 80)
	p.shows("held 10000  ", "invoice/000018")
	began := time.Now()
	for page := 2; page < 30; page++ {
		p.press("n")
		p.shows(fmt.Sprintf("page %d\n", page), fmt.Sprintf("invoice/%06d", (page-1)*18+1))
	}
	time.Sleep(max(0, 3*time.Second-time.Since(began))) // 30 times the interval
	p.press("q")
	p.left(0)
	all := 2 + int(time.Since(began)/manyInterval) // readings of all names, with one to spare
	eventually(t, "what the server has counted is there", func() bool { return read() > before })
	time.Sleep(time.Second)
	got := read() - before
	t.Logf("%d rows were read in %v", got, time.Since(began))
	if bound := (all + 1) * names; got > bound {
		t.Errorf("%d rows were read, want %d at most", got, bound)
	}
	p = s.top(t, 24, 80, "invoice/0099")
	p.press("ss") // waiters, age
	text := p.shows("sorted by age, page 1, that begin with invoice/0099", "invoice/009900")
	if strings.Contains(text, "invoice/010000") {
		t.Errorf("it shows\n%s", text)
	}
	p.press("q")
	p.left(0)
}

func TestTopOfAQuorum(t *testing.T) {
	t.Parallel()
	u, _ := newQuorumClient(t)
	holding := u.shell(t, "@UP; sleep 60", "held")
	one := client{home: u.home, dsn: u.dsns[0]}
	p := one.top(t, 24, 80, "--dsn", u.dsns[1], "--dsn", u.dsns[2])
	p.shows("quorum mode", "held")
	p.press("q")
	p.left(0)
	holding.end(t)
}
