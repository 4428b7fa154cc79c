package main

import (
	"regexp"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/sqllock/sqllock/internal/output"
	"github.com/sqllock/sqllock/internal/output/outputtest"
	"github.com/sqllock/sqllock/internal/testdb"
)

// resize sets the size of the terminal.
func (s *ttyProcess) resize(rows, columns uint16) {
	s.t.Helper()
	if err := unix.IoctlSetWinsize(int(s.key.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Row: rows, Col: columns}); err != nil {
		s.t.Fatal(err)
	}
}

func TestProgressShowsThePlaceInTheQueueAndTheHolder(t *testing.T) {
	t.Parallel()
	onEachMode(t, func(t *testing.T, s *clientDB, m mode) {
		holding := s.shell(t, "@UP; sleep 60", "--mode", string(m), "--label", "who holds it", "n")
		first := s.start(t, "run", "--mode", string(m), "n", "--", "true")
		if m == unique {
			eventually(t, "it waits in the queue", func() bool { return s.waitingFor(t, "n") == 1 })
		}
		u := s.client
		w := startOnTTY(t, u, binary, "--dsn", u.dsn, "run", "--mode", string(m), "--progress", "n", "--", "echo", "it", "runs")
		w.resize(24, 120)
		w.see("sqllock: waiting for ")
		if m == unique {
			w.see(", place 2 of 2, for n; held since ")
		}
		if m != advisory { // of which the names are known later
			w.see(`by "who holds it"`)
		}
		holding.end(t)
		first.wait().want(t, 0, "", "")
		w.see("it runs")
		if code := w.code(); code != 0 {
			t.Errorf("exit code %d", code)
		}
		if before, _, _ := strings.Cut(w.text(), "it runs"); !strings.HasSuffix(before, clearLine) {
			t.Errorf("the line is not cleared: %q", before)
		}
		for frame := range strings.SplitSeq(w.text(), clearLine) {
			outputtest.CheckHarmless(t, "line", strings.ReplaceAll(frame, "\r\n", "\n"))
		}
	})
}

func TestProgressFitsIntoALineAndIsHarmless(t *testing.T) {
	t.Parallel()
	s := newClientDB(t, testdb.New(t, testdb.SQLite))
	const name = "\x1b[31m\u202e\x07日本語日本語日本語日本語日本語日本語"
	holding := s.shell(t, "@UP; sleep 60", "--label", strings.Repeat(name, 3), name)
	w := startOnTTY(t, s.client, binary, "--dsn", s.dsn, "run", "--wait", "3s", "--progress", name, "--", "true")
	w.resize(24, 60)
	w.see(`, for "\x1b[31m\u202e`)
	if code := w.code(); code != exitHeld {
		t.Errorf("exit code %d", code)
	}
	w.see(" is held")
	all := strings.Split(w.text(), clearLine)
	for i, frame := range all {
		outputtest.CheckHarmless(t, "line", strings.ReplaceAll(frame, "\r\n", "\n"))
		if i > 0 && i < len(all)-1 && len([]rune(output.Cut(frame, 59))) != len([]rune(frame)) && !strings.HasSuffix(frame, "\n") {
			t.Errorf("it does not fit: %q", frame)
		}
	}
	if last := all[len(all)-1]; !strings.HasPrefix(last, "sqllock: lock ") && !strings.Contains(last, "held") {
		t.Errorf("the message is %q", last)
	}
	holding.end(t)
}

func TestProgressIsClearedWhenAKeyInterrupts(t *testing.T) {
	t.Parallel()
	u := newClient(t)
	holding := u.shell(t, "@UP; sleep 60", "n")
	w := startOnTTY(t, u, binary, "run", "--progress", "n", "--", "true")
	w.see(", place 1 of 1, for n; held")
	w.press(ctrlC)
	if code := w.code(); code != 130 {
		t.Errorf("exit code %d", code)
	}
	echo := regexp.MustCompile(`\^C`)
	eventually(t, "the line is cleared", func() bool {
		return strings.HasSuffix(echo.ReplaceAllString(w.text(), ""), clearLine)
	})
	holding.end(t)
}

func TestProgressIsSilentWithoutATerminal(t *testing.T) {
	t.Parallel()
	u := newClient(t)
	holding := u.shell(t, "@UP; sleep 60", "n")
	p := u.start(t, "run", "--progress", "--quiet", "--wait", "2s", "n", "--", "true")
	if r := p.wait(); r.code != exitHeld || r.out+r.err != "" {
		t.Errorf("%+v", r)
	}
	w := startOnTTY(t, u, "/bin/sh", "-c", `TERM=dumb "$S" run --progress --quiet --wait 1s n true; echo code $?`)
	w.see("code 1")
	w.code()
	if strings.Contains(w.text(), "waiting") {
		t.Errorf("on a dumb terminal: %q", w.text())
	}
	w = startOnTTY(t, u, "/bin/sh", "-ic", `stty tostop; "$S" run --progress --quiet --wait 1500ms n true & wait; echo co"de" of it`)
	w.see("code of it")
	w.code()
	if strings.Contains(w.text(), "waiting for") {
		t.Errorf("in the background: %q", w.text())
	}
	holding.end(t)
}
