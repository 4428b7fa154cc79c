//go:build unix

package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// end ends a call that may be running, by a signal.
func (p *call) end(t *testing.T) result {
	t.Helper()
	p.signal(syscall.SIGTERM)
	return p.wait()
}

func (p *call) signal(sig syscall.Signal) {
	p.t.Helper()
	if err := p.Process.Signal(sig); err != nil {
		p.t.Error(err)
	}
}

// shell starts a call of run whose CMD is a shell script, and waits until the
// script has come to @UP.
func (u client) shell(t *testing.T, script string, args ...string) *call {
	t.Helper()
	p, up := u.shellCommand(t, script, args...)
	p.start()
	up()
	return p
}

// shellCommand prepares a call of [client.shell]. up waits until the script is up.
func (u client) shellCommand(t *testing.T, script string, args ...string) (p *call, up func()) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "up")
	script = strings.ReplaceAll(script, "@UP", "echo >"+path)
	p = u.command(t, append(append([]string{"run"}, args...), "--", "sh", "-c", script)...)
	return p, func() {
		t.Helper()
		eventually(t, "the command is up", func() bool {
			_, err := os.Stat(path)
			return err == nil
		})
	}
}

// waitListening waits until a call of run catches signals, which it does before
// it starts its watchdog.
func (p *call) waitListening() {
	p.t.Helper()
	eventually(p.t, "the watchdog is there", func() bool {
		return slices.ContainsFunc(processes(p.t), func(l listed) bool { return l.parent == p.Process.Pid })
	})
}

func TestRunWaitsInTheQueue(t *testing.T) {
	onEachDB(t, func(t *testing.T, s *clientDB) {
		holding := s.shell(t, "@UP; sleep 60", "n")
		var waiting []*call
		for i := range 4 {
			waiting = append(waiting, s.start(t, "run", "n", "--", "sh", "-c", "echo $SQLLOCK_TOKEN"))
			eventually(t, "it waits in the queue", func() bool { return s.waitingFor(t, "n") == i+1 })
		}
		s.run(t, "run", "--try", "n", "--", "echo", "ran").want(t, exitHeld, "", "held")
		s.run(t, "wait", "--wait", "100ms", "n").want(t, exitNo, "", "")
		eventually(t, "all of them wait still", func() bool { return s.waitingFor(t, "n") == len(waiting) })
		holding.end(t)
		var tokens []string
		for _, p := range waiting {
			r := p.wait()
			r.want(t, 0, "", "")
			tokens = append(tokens, r.out)
		}
		if !slices.IsSorted(tokens) { // they have as many digits
			t.Errorf("the tokens of those who came one after the other are %q", tokens)
		}
	})
}

// waitingFor returns how many callers are in the queue for a name.
func (s *clientDB) waitingFor(t *testing.T, name string) (n int) {
	t.Helper()
	const living = "SELECT count(*) FROM sqllock_claim c JOIN sqllock_waiter w ON w.locker = c.locker WHERE c.state = 0 AND c.name = %s AND w.expires_at > %s"
	if err := s.db.QueryRowContext(t.Context(), fmt.Sprintf(living, s.parameter(1), s.parameter(2)), name, time.Now().UnixMicro()).Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

func TestTheCommandHasNameAndToken(t *testing.T) {
	t.Parallel()
	u := newClient(t)
	script := "echo $SQLLOCK_NAME $SQLLOCK_TOKEN"
	last := 0
	for _, args := range [][]string{
		{"run", "nightly", "--", "sh", "-c", script},
		{"run", "nightly", "sh", "-c", script},
		{"run", "--ttl", "5s", "nightly", "--", "sh", "-c", script},
		{"run", "nightly", "--ttl", "5s", "--", "sh", "-c", script},
		{"run", "outer", "--", binary, "run", "nightly", "--", "sh", "-c", script},
	} {
		r := u.run(t, args...)
		r.want(t, 0, "nightly ", "")
		token, err := strconv.Atoi(strings.TrimSpace(strings.TrimPrefix(r.out, "nightly ")))
		if err != nil || token <= last || r.err != "" {
			t.Errorf("%q: token %d after %d, %v, stderr %q", args, token, last, err, r.err)
		}
		last = token
	}
}

func TestTheCommandHasOneNameInItsEnvironment(t *testing.T) {
	t.Parallel()
	r := newClient(t).run(t, "run", "outer", "--", binary, "run", "inner", "--", "env")
	r.want(t, 0, "SQLLOCK_NAME=inner\n", "")
	if strings.Count(r.out, "SQLLOCK_NAME=") != 1 || strings.Count(r.out, "SQLLOCK_TOKEN=") != 1 {
		t.Errorf("want one of each:\n%s", r.out)
	}
}

func TestStandardInputAndOtherFilesReachTheCommand(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "three")
	cmd := exec.Command("sh", "-c", `echo hello | "$0" run n -- sh -c "cat; echo three >&3" 3>"$1"`, binary, path)
	cmd.Env = []string{"HOME=" + t.TempDir(), "PATH=" + os.Getenv("PATH")}
	if out, err := cmd.CombinedOutput(); err != nil || string(out) != "hello\n" || file(path) != "three\n" {
		t.Errorf("got %q, %v, and %q in file 3", out, err, file(path))
	}
}

func TestAnEmptyEnvironmentIsEnough(t *testing.T) {
	t.Parallel()
	state := t.TempDir() // so that the home of whoever tests stays clean
	cmd := exec.Command(binary, "run", "n", "--", "/bin/sh", "-c", "echo $SQLLOCK_NAME")
	cmd.Env = []string{"XDG_STATE_HOME=" + state}
	if out, err := cmd.CombinedOutput(); err != nil || string(out) != "n\n" {
		t.Errorf("got %q, %v", out, err)
	}
	info, err := os.Stat(filepath.Join(state, "sqllock"))
	if err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("the directory of the file: %v, %v, want mode 0700", info, err)
	}
}

func TestExitCodes(t *testing.T) {
	t.Parallel()
	u := newClient(t)
	plain := filepath.Join(u.home, "plain")
	empty := filepath.Join(u.home, "empty")
	lost := filepath.Join(u.home, "lost")
	for path, text := range map[string]string{plain: "x", empty: "", lost: "#!/nonexistent/interpreter\n"} {
		if err := os.WriteFile(path, []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Chmod(plain, 0o644); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		code    int
		command []string
	}{
		{0, []string{"true"}},
		{1, []string{"false"}},
		{7, []string{"sh", "-c", "exit 7"}},
		{255, []string{"sh", "-c", "exit 255"}},
		{128 + 9, []string{"sh", "-c", "kill -9 $$"}},
		{128 + 15, []string{"sh", "-c", "kill -15 $$"}},
		{exitNotRunnable, []string{plain}},
		{exitNotRunnable, []string{u.home}},
		{exitNotRunnable, []string{empty}}, // an exec format error, found when the lock is held
		{exitNotFound, []string{lost}},     // the same
		{exitNotFound, []string{filepath.Join(u.home, "nothing")}},
		{exitNotFound, []string{"no-such-command-anywhere"}},
		{exitNotFound, []string{""}},
	} {
		t.Run(strings.Join(c.command, " "), func(t *testing.T) {
			u.run(t, append([]string{"run", "n", "--"}, c.command...)...).want(t, c.code, "", "")
			u.run(t, "run", "--try", "n", "--", "true").want(t, 0, "", "") // it was given back
		})
	}
}

func TestOthersAreKeptOut(t *testing.T) {
	t.Parallel()
	u := newClient(t)
	holding := u.shell(t, "@UP; sleep 60", "n", "--label", "the holder")
	u.run(t, "run", "--try", "n", "--", "echo", "ran").want(t, exitHeld, "", "the holder")
	u.run(t, "run", "--try", "-E", "42", "n", "--", "echo", "ran").want(t, 42, "", "held")
	u.run(t, "run", "--try", "-E", "0", "n", "--", "echo", "ran").want(t, 0, "", "held")
	u.run(t, "run", "--wait", "0", "n", "--", "echo", "ran").want(t, exitHeld, "", "held")
	u.run(t, "run", "n", "--conflict-exit-code=43", "--wait", "2s", "--", "echo", "ran").want(t, 43, "", "held")
	if r := u.run(t, "run", "-q", "--try", "n", "--", "echo", "ran"); r != (result{code: exitHeld}) {
		t.Errorf("quietly: %+v", r)
	}
	u.run(t, "run", "--try", "N", "--", "echo", "ran").want(t, 0, "ran", "")
	start := time.Now()
	waiting := u.start(t, "run", "--wait", "30s", "n", "--", "echo", "ran")
	time.Sleep(300 * time.Millisecond)
	holding.end(t)
	waiting.wait().want(t, 0, "ran", "")
	if took := time.Since(start); took > 10*time.Second {
		t.Errorf("waited for %v", took)
	}
}

func TestSignalsReachTheCommand(t *testing.T) {
	t.Parallel()
	u := newClient(t)
	for name, sig := range map[string]syscall.Signal{
		"INT": syscall.SIGINT, "TERM": syscall.SIGTERM, "HUP": syscall.SIGHUP, "QUIT": syscall.SIGQUIT,
		"USR1": syscall.SIGUSR1, "USR2": syscall.SIGUSR2, "WINCH": syscall.SIGWINCH, "CONT": syscall.SIGCONT,
	} {
		t.Run(name, func(t *testing.T) {
			p := u.shell(t, "trap 'echo got "+name+"; exit 3' "+name+"; @UP; while :; do sleep 0.05; done", "n")
			p.signal(sig)
			p.wait().want(t, 3, "got "+name, "")
		})
	}
	t.Run("not handled", func(t *testing.T) {
		p := u.shell(t, "@UP; exec sleep 60", "n")
		p.signal(syscall.SIGUSR1)
		p.wait().want(t, 128+int(syscall.SIGUSR1), "", "")
	})
}

func TestIgnoredSignalsStayIgnored(t *testing.T) {
	t.Parallel()
	u := newClient(t)
	p := u.command(t)
	p.Path, p.Args = "/bin/sh", []string{"sh", "-c", `trap '' HUP; exec "$0" run n -- sh -c 'kill -HUP $PPID; sleep 0.3; kill -HUP $$; echo alive'`, binary}
	p.start()
	p.wait().want(t, 0, "alive", "")
}

func TestASignalEndsTheWait(t *testing.T) {
	t.Parallel()
	u := newClient(t)
	holding := u.shell(t, "@UP; sleep 60", "n")
	for _, sig := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT, syscall.SIGUSR1} {
		waiting := u.start(t, "run", "n", "--", "echo", "ran")
		waiting.waitListening()
		time.Sleep(100 * time.Millisecond) // so that most wait for the lock
		waiting.signal(syscall.SIGWINCH)   // not this one
		time.Sleep(50 * time.Millisecond)
		waiting.signal(sig)
		if r := waiting.wait(); r.code != 128+int(sig) || r.out != "" {
			t.Errorf("%v: %+v", sig, r)
		}
	}
	holding.end(t)
	u.run(t, "run", "--try", "n", "--", "true").want(t, 0, "", "")
}

// A shell dies of a signal at once, while what it has started may still have to
// clean up: the lock goes when that is done.
func TestTheLockIsNotFreeBeforeTheWholeCommandIsGone(t *testing.T) {
	t.Parallel()
	u := newClient(t)
	log := filepath.Join(u.home, "log")
	p := u.shell(t, `sh -c 'trap "sleep 0.7; echo cleaned >>`+log+`; exit 0" TERM; @UP; while :; do sleep 0.05; done'; echo not reached >>`+log, "n")
	waiting := u.start(t, "run", "n", "--", "sh", "-c", "echo next >>"+log)
	time.Sleep(200 * time.Millisecond)
	p.end(t).want(t, 128+int(syscall.SIGTERM), "", "")
	waiting.wait().want(t, 0, "", "")
	if got := file(log); got != "cleaned\nnext\n" {
		t.Errorf("got\n%s", got)
	}
}

func TestWhatTheCommandLeavesBehindIsNotWaitedFor(t *testing.T) {
	t.Parallel()
	u := newClient(t)
	path, flag := filepath.Join(u.home, "late"), filepath.Join(u.home, "flag")
	late := "for i in $(seq 600); do [ -e " + flag + " ] && break; sleep 0.05; done; echo late >" + path // 30 s at least, without the flag
	u.run(t, "run", "n", "--", "sh", "-c", "("+late+") >/dev/null 2>&1 & exit 4").want(t, 4, "", "")
	if file(path) != "" {
		t.Error("it was waited for")
	}
	if err := os.WriteFile(flag, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	eventually(t, "what was left behind goes on", func() bool { return file(path) == "late\n" })
}

func TestATablePrefixKeepsLocksApart(t *testing.T) {
	t.Parallel()
	u := newClient(t)
	holding := u.shell(t, "@UP; sleep 60", "n")
	u.run(t, "--table-prefix", "other_", "run", "--try", "n", "--", "echo", "ran").want(t, 0, "ran", "")
	holding.end(t)
}

func TestRunPassesOnTheOptionsOfAHold(t *testing.T) {
	t.Parallel()
	u := newClient(t)
	u.run(t, "run", "--min-hold", "1h", "n", "--", "true").want(t, 0, "", "")
	u.run(t, "run", "--try", "n", "--", "true").want(t, exitHeld, "", "kept until")
	u.run(t, "run", "--max-hold", "500ms", "m", "--", "sleep", "60").want(t, exitLost, "", "MaxHold")
	holding := u.shell(t, "@UP; sleep 60", "delayed", "--ttl", "30s", "--lock-delay", "1h", "--value", "some text")
	u.run(t, "inspect", "delayed").want(t, 0, `"some text"`, "")
	u.run(t, "inspect", "delayed").want(t, 0, "in 1h0m", "")
	holding.end(t)
	u.run(t, "run", "--try", "delayed", "--", "echo", "ran").want(t, 0, "ran", "")
}
