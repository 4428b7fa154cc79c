package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"golang.org/x/sys/unix"

	"github.com/sqllock/sqllock/internal/output/outputtest"
	"github.com/sqllock/sqllock/internal/testdb"
)

func TestListWatchesInPlaceOnATerminal(t *testing.T) {
	t.Parallel()
	s := newClientDB(t, testdb.New(t, testdb.SQLite))
	for i := range 30 {
		s.put(t, fmt.Sprintf("n%02d", i), "\x1b[31m"+strings.Repeat("long ", 30), time.Now().Add(time.Hour))
	}
	w := startOnTTY(t, s.client, "/bin/sh", "-c", `until [ -e "$HOME/go" ]; do sleep 0.01; done; exec "$S" --dsn "$0" ls --watch --interval 100ms`, s.dsn)
	if err := unix.IoctlSetWinsize(int(w.key.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Row: 12, Col: 60}); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(s.home, "go"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	w.see("… and 22 more")
	s.put(t, "a new one", "l", time.Now().Add(time.Hour))
	w.see(`"a new one"`)
	w.press(ctrlC)
	if code := w.code(); code != 0 {
		t.Errorf("exit code %d", code)
	}
	frames := strings.Split(strings.ReplaceAll(w.text(), "\r\n", "\n"), clearScreen)
	if len(frames) < 3 {
		t.Fatalf("%d frames", len(frames))
	}
	for _, frame := range frames[1 : len(frames)-1] {
		outputtest.CheckHarmless(t, "frame", frame)
		lines := strings.Split(frame, "\n")
		if len(lines) > 12 {
			t.Errorf("%d lines on a screen of 12", len(lines))
		}
		for _, l := range lines {
			if utf8.RuneCountInString(l) > 60 {
				t.Errorf("%d columns on a screen of 60: %s", utf8.RuneCountInString(l), l)
			}
		}
	}
}
