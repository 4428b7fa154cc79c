package main

import (
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/sqllock/sqllock/internal/testdb"
)

// echoes reports whether the terminal shows what is typed.
func (s *ttyProcess) echoes() bool {
	s.t.Helper()
	state, err := unix.IoctlGetTermios(int(s.key.Fd()), unix.TCGETS)
	if err != nil {
		s.t.Fatal(err)
	}
	return state.Lflag&unix.ECHO != 0
}

func TestInitAsksForTheDSNAndForAYes(t *testing.T) {
	t.Parallel()
	for _, engine := range testdb.Engines() {
		t.Run(engine, func(t *testing.T) {
			t.Parallel()
			u := client{home: t.TempDir(), dsn: dsn(t, testdb.New(t, engine), "")}
			parsed, err := url.Parse(u.dsn)
			if err != nil {
				t.Fatal(err)
			}
			if _, set := parsed.User.Password(); !set { // the server asks for none
				parsed.User = url.UserPassword(parsed.User.Username(), "hunter2")
			}
			typed := parsed.String()
			secret, _ := parsed.User.Password()
			for _, answer := range []string{"n", "yes"} {
				s := startOnTTY(t, u, binary, "init")
				s.see("empty: an SQLite file of this user): ")
				eventually(t, "the terminal shows nothing", func() bool { return !s.echoes() })
				s.press(typed + "\n")
				s.see("Apply this? [y/N] ")
				if !s.echoes() {
					t.Error("the terminal does not show what is typed")
				}
				s.press(answer + "\n")
				if code, want := s.code(), map[bool]int{true: 0, false: exitNo}[answer == "yes"]; code != want {
					t.Errorf("%q: exit code %d", answer, code)
				}
				s.see(map[bool]string{true: "sqllock: applied", false: "nothing was changed"}[answer == "yes"])
				screen := s.text()
				if strings.Contains(screen, "://"+parsed.User.String()) || secret != "" && strings.Contains(screen, secret) {
					t.Errorf("the DSN is on the screen:\n%s", screen)
				}
			}
			u.run(t, "run", "n", "--", "echo", "ran").want(t, 0, "ran", "")
		})
	}
}

func TestInitWithoutADSNUsesTheFileOfThisUser(t *testing.T) {
	t.Parallel()
	u := newClient(t)
	s := startOnTTY(t, u, binary, "init", "--yes")
	s.see("DSN (")
	s.press("\n")
	if code := s.code(); code != 0 {
		t.Errorf("exit code %d", code)
	}
	s.see("locksqlite")
	if _, err := os.Stat(filepath.Join(u.home, ".local", "state", "sqllock", "locks.db")); err != nil {
		t.Error(err)
	}
}

func TestInitLeavesTheTerminalAsItWasWhenItIsInterrupted(t *testing.T) {
	t.Parallel()
	s := startOnTTY(t, newClient(t), "/bin/sh", "-c", `"$S" init; echo code $? then`)
	s.see("DSN (")
	eventually(t, "the terminal shows nothing", func() bool { return !s.echoes() })
	for _, p := range processes(t) {
		if p.parent == s.cmd.Process.Pid {
			_ = syscall.Kill(p.pid, syscall.SIGTERM)
		}
	}
	s.see("code 143 then")
	if !s.echoes() {
		t.Error("the terminal does not show what is typed")
	}
	s.code()
}
