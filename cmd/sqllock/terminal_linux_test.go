package main

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// ttyProcess is a program with a terminal of its own, and the keys of that terminal.
type ttyProcess struct {
	t   *testing.T
	cmd *exec.Cmd
	key *os.File

	mu     sync.Mutex
	screen strings.Builder
}

// startOnTTY starts a program as the leader of a session on a new terminal.
func startOnTTY(t *testing.T, u client, argv ...string) *ttyProcess {
	t.Helper()
	main, tty := openTerminal(t)
	s := &ttyProcess{t: t, cmd: exec.Command(argv[0], argv[1:]...), key: main}
	s.cmd.Env = []string{"HOME=" + u.home, "PATH=" + os.Getenv("PATH"), "PS1=$ ", "S=" + binary}
	s.cmd.Stdin, s.cmd.Stdout, s.cmd.Stderr = tty, tty, tty
	s.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	if err := s.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	_ = tty.Close()
	read := make(chan struct{})
	go func() {
		defer close(read)
		_, _ = io.Copy(s, main) // ends with an error when the last one has left the terminal
	}()
	t.Cleanup(func() {
		_ = s.cmd.Process.Kill()
		_ = main.Close()
		<-read
		if t.Failed() {
			t.Logf("on the screen:\n%s", s.screen.String())
		}
	})
	return s
}

func openTerminal(t *testing.T) (main, tty *os.File) {
	t.Helper()
	main, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	conn, err := main.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	var n int
	_ = conn.Control(func(fd uintptr) {
		if err = unix.IoctlSetPointerInt(int(fd), unix.TIOCSPTLCK, 0); err == nil {
			n, err = unix.IoctlGetInt(int(fd), unix.TIOCGPTN)
		}
	})
	if err == nil {
		tty, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|syscall.O_NOCTTY, 0)
	}
	if err != nil {
		t.Fatal(err)
	}
	return main, tty
}

// Write implements io.Writer for what appears on the screen.
func (s *ttyProcess) Write(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.screen.Write(b)
}

func (s *ttyProcess) see(text string) {
	s.t.Helper()
	eventually(s.t, fmt.Sprintf("%q on the screen", text), func() bool { return strings.Contains(s.text(), text) })
}

func (s *ttyProcess) text() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.screen.String()
}

func (s *ttyProcess) press(keys string) {
	s.t.Helper()
	if _, err := s.key.WriteString(keys); err != nil {
		s.t.Error(err)
	}
}

// Press them at a shell only when it starts no program in its foreground. While dash starts one
// by vfork, the stop key can stop the child before it becomes the program: dash then waits for the
// child and does not stop. The interrupt key can pass the child by: dash waits for the program.
const (
	ctrlC = "\x03"
	ctrlZ = "\x1a"
)

func (s *ttyProcess) code() int {
	_ = s.cmd.Wait()
	return s.cmd.ProcessState.ExitCode()
}

func TestTheCommandReadsFromTheTerminal(t *testing.T) {
	t.Parallel()
	s := startOnTTY(t, newClient(t), binary, "run", "n", "--", "sh", "-c", `echo ask"ing"; read x; echo "got <$x>"; exit 5`)
	s.see("asking")
	s.press("hello\n")
	s.see("got <hello>")
	if code := s.code(); code != 5 {
		t.Errorf("exit code %d, want 5", code)
	}
}

func TestTheInterruptKeyReachesTheCommandOnce(t *testing.T) {
	t.Parallel()
	s := startOnTTY(t, newClient(t), binary, "run", "n", "--", "sh", "-c",
		`trap 'echo int"errupted"' INT; echo u"p"; i=0; while [ $i -lt 10 ]; do sleep 0.05; i=$((i+1)); done; exit 6`)
	s.see("up\r")
	s.press(ctrlC)
	if code := s.code(); code != 6 {
		t.Errorf("exit code %d, want 6", code)
	}
	s.see("interrupted")
	if n := strings.Count(s.text(), "interrupted"); n != 1 {
		t.Errorf("interrupted %d times, want once", n)
	}
}

func TestTheInterruptKeyEndsALoopThatRunsSqllock(t *testing.T) {
	t.Parallel()
	u := newClient(t)
	script := filepath.Join(u.home, "script")
	if err := os.WriteFile(script, []byte(`$S run n -- sh -c 'echo u"p"; exec sleep 60'; echo went o"n"`), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, line := range map[string]string{
		"a loop of the shell":      `for i in 1 2; do $S run n -- sh -c 'echo u"p"; exec sleep 60'; done; echo went o"n"`,
		"a loop that writes files": `for i in 1 2; do $S run n -- sh -c 'echo u"p" >&2; exec sleep 60' >/dev/null; done; echo went o"n"`,
		"a script":                 "/bin/sh " + script,
	} {
		t.Run(name, func(t *testing.T) {
			s := startOnTTY(t, u, "/bin/sh", "-i")
			s.press(line + "\n")
			s.see("up\r")
			s.press(ctrlC)
			s.press("echo $? the e'n'd\n")
			s.see("130 the end")
			if screen := s.text(); strings.Contains(screen, "went on") || strings.Count(screen, "up\r") != 1 {
				t.Error("it went on")
			}
			s.press("exit\n")
			s.code()
		})
	}
}

// What reads from the command may read from the terminal, too. If the terminal were the command's, the
// kernel would stop it, and sqllock with it, which is of the same job.
func TestAPagerKeepsTheTerminal(t *testing.T) {
	t.Parallel()
	s := startOnTTY(t, newClient(t), "/bin/sh", "-i")
	s.press(`$S run n -- sh -c 'echo u"p" >&2; sleep 2; echo do"ne" >&2' | sh -c 'read x </dev/tty; echo "pager <$x>"'; echo code $? here` + "\n")
	s.see("up\r")
	s.press("hello\n")
	s.see("pager <hello>")
	s.see("code 0 here")
	s.see("done")
	if strings.Contains(s.text(), "Stopped") {
		t.Error("the job was stopped")
	}
	s.press("exit 0\n")
	s.code()
}

func TestTheStopKeyStopsTheJob(t *testing.T) {
	t.Parallel()
	for where, stdout := range map[string]string{"on the terminal": "", "to a file": ">/dev/null"} {
		t.Run(where, func(t *testing.T) {
			t.Parallel()
			testStopKey(t, stdout)
		})
	}
}

func testStopKey(t *testing.T, stdout string) {
	s := startOnTTY(t, newClient(t), "/bin/sh", "-i")
	s.press(`$S run n -- sh -c 'echo u"p" >&2; read x; echo "got <$x>" >&2; exit 7' ` + stdout + `; echo code $? here` + "\n")
	s.see("up\r")
	s.press(ctrlZ)
	s.see("code 147 here") // 128 + SIGSTOP: the shell has the terminal again
	s.press("$S run --try n -- true; echo try $? fin'ished'\n")
	s.see("try 1 finished") // it is held still
	s.press("fg; echo code $? after\n")
	s.press("hello\n")
	s.see("got <hello>")
	s.see("code 7 after")
	s.press("exit 0\n")
	if code := s.code(); code != 0 {
		t.Errorf("exit code %d of the shell, want 0", code)
	}
}

func TestAJobThatWasStoppedForTooLongIsEnded(t *testing.T) {
	t.Parallel()
	s := startOnTTY(t, newClient(t), "/bin/sh", "-i")
	s.press(`$S run --ttl 3s n -- sh -c 'trap "echo to\"ld\"; exit 3" TERM; sleep 60 & echo u"p"; wait'` + "\n")
	s.see("up\r")
	s.press(ctrlZ)
	s.see("Stopped")
	time.Sleep(3500 * time.Millisecond)
	s.press("fg; echo code $? after\n")
	s.see("told")
	s.see("code 75 after")
	s.press("exit\n")
	s.code()
}

func TestAJobInTheBackgroundGetsTheTerminalWhenItIsContinuedInTheForeground(t *testing.T) {
	t.Parallel()
	s := startOnTTY(t, newClient(t), "/bin/sh", "-i")
	s.press(`$S run n -- sh -c 'echo u"p"; read x; echo "got <$x>"; exit 8' &` + "\n")
	s.see("up\r")
	s.press("sleep 0.3; echo still h'ere'\n")
	s.see("still here")
	s.press("fg; echo code $? after\n")
	s.press("hello\n")
	s.see("got <hello>")
	s.see("code 8 after")
	s.press("exit\n")
	s.code()
}

// Who has no terminal at all cannot be stopped by one.
func TestAStopSignalFromElsewhereStopsTheCommandToo(t *testing.T) {
	t.Parallel()
	u := newClient(t)
	p, up := u.shellCommand(t, "@UP; i=0; while [ $i -lt 10 ]; do sleep 0.05; i=$((i+1)); done; exit 9", "n")
	// The first group of a session is not stopped, and the tests may run in it.
	p.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	p.start()
	up()
	p.signal(syscall.SIGTSTP)
	eventually(t, "run is stopped", func() bool {
		return strings.Contains(file(fmt.Sprintf("/proc/%d/stat", p.Process.Pid)), ") T ")
	})
	time.Sleep(700 * time.Millisecond)
	p.signal(syscall.SIGCONT)
	p.wait().want(t, 9, "", "")
}
