//go:build unix

package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

func TestAPausedRunEndsItsCommand(t *testing.T) {
	t.Parallel()
	onAll(t, func(t *testing.T, u client) {
		p := u.shell(t, "trap 'echo told; exit 3' TERM; @UP; while :; do sleep 0.05; done", "--ttl", "1s", "n")
		p.signal(syscall.SIGSTOP)
		time.Sleep(1200 * time.Millisecond)
		u.run(t, "run", "--wait", "30s", "n", "--", "echo", "ran").want(t, 0, "ran", "")
		p.signal(syscall.SIGCONT)
		p.wait().want(t, exitLost, "told", "lost")
	})
}

// family is a script with a child, and children of children, that write to a
// file, one line after the other, for as long as they live.
const family = `B='while :; do echo $0 >>%s; sleep 0.02; done'
sh -c "$B" child & (sh -c "$B" grandchild; :) & @UP; sh -c "$B" other; :`

// The next one comes within the TTL and a second, with a higher token, and finds
// nobody of the old command.
func TestTheCommandDiesWithRun(t *testing.T) {
	t.Parallel()
	onAll(t, func(t *testing.T, u client) {
		const ttl = 10 * time.Second
		log, token := filepath.Join(u.home, "log"), filepath.Join(u.home, "token")
		p := u.shell(t, "echo $SQLLOCK_TOKEN >"+token+"; "+fmt.Sprintf(family, log), "--ttl", ttl.String(), "n")
		waiting := u.start(t, "run", "--ttl", ttl.String(), "n", "--", "sh", "-c", "echo next >>"+log+"; sleep 0.3; echo $SQLLOCK_TOKEN")
		for _, who := range []string{"child\n", "grandchild\n", "other\n"} {
			eventually(t, who+" writes", func() bool { return strings.Contains(file(log), who) })
		}
		time.Sleep(time.Duration(time.Now().UnixNano()) % (ttl / 3)) // anywhere between two renewals
		killed := time.Now()
		p.signal(syscall.SIGKILL)
		p.wait()
		eventually(t, "the next one comes", func() bool { return strings.Contains(file(log), "next\n") })
		if took := time.Since(killed); took > ttl+time.Second+waitSlack() {
			t.Errorf("the next one came after %v", took)
		}
		r := waiting.wait()
		r.want(t, 0, "", "")
		if !strings.HasSuffix(file(log), "next\n") {
			t.Error("somebody wrote after the next one had come")
		}
		old, _ := strconv.Atoi(strings.TrimSpace(file(token)))
		if next, _ := strconv.Atoi(strings.TrimSpace(r.out)); next <= old || old == 0 {
			t.Errorf("token %d after %d", next, old)
		}
	})
}

// However early run is killed, nobody of its command survives.
func TestNoMomentIsTooEarlyToKillRun(t *testing.T) {
	t.Parallel()
	u := newClient(t)
	u.run(t, "migrate", "up").want(t, 0, "", "")
	for i := range 40 {
		mark := fmt.Sprintf("%d%04d", os.Getpid(), i)
		p := u.start(t, "run", "--ttl", "100ms", "n", "--", "sh", "-c", "sleep "+mark+" & sleep "+mark+"; :")
		time.Sleep(time.Duration(i) * time.Millisecond)
		p.signal(syscall.SIGKILL)
		p.wait()
		eventually(t, "all processes are gone", func() bool {
			return !slices.ContainsFunc(processes(t), func(l listed) bool { return strings.Contains(l.args, "sleep "+mark) })
		})
	}
}

func TestALostCommandThatEndsByItselfIsLost(t *testing.T) {
	t.Parallel()
	u := newClient(t)
	flag := filepath.Join(u.home, "flag")
	p := u.shell(t, "@UP; while [ ! -e "+flag+" ]; do sleep 0.05; done; echo done", "--ttl", "5s", "n")
	p.signal(syscall.SIGSTOP)
	if err := os.WriteFile(flag, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	time.Sleep(5500 * time.Millisecond)
	p.signal(syscall.SIGCONT)
	p.wait().want(t, exitLost, "done", "lost")
}

func TestACommandThatDoesNotEndIsKilledAfterTheGrace(t *testing.T) {
	t.Parallel()
	u := newClient(t)
	p := u.shell(t, "trap '' TERM; sleep 1000 & @UP; sleep 1000; sleep 1000", "--ttl", "5s", "--grace", "500ms", "n")
	p.signal(syscall.SIGSTOP)
	time.Sleep(5500 * time.Millisecond)
	start := time.Now()
	p.signal(syscall.SIGCONT)
	p.wait().want(t, exitLost, "", "lost")
	if took := time.Since(start); took < 500*time.Millisecond || took > 5*time.Second {
		t.Errorf("it took %v", took)
	}
}

// commandThatEnds prepares a run of a command that says so in a file when it is told to end.
func (u client) commandThatEnds(t *testing.T, ttl string) (p *call, path string) {
	path = filepath.Join(u.home, "told")
	script := "exec 2>/dev/null; trap 'echo told >" + path + "; exit 3' TERM; echo up; while :; do sleep 0.05; done"
	return u.command(t, "run", "--ttl", ttl, "n", "--", "sh", "-c", script), path
}

func pipe(t *testing.T) (r, w *os.File) {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	return r, w
}

func TestThatNobodyReadsOurMessagesHarmsNobody(t *testing.T) {
	t.Parallel()
	u := newClient(t)
	r, w := pipe(t)
	p, path := u.commandThatEnds(t, "1s")
	p.Stderr, p.Stdout = w, w
	p.start()
	_ = w.Close()
	if _, err := io.ReadFull(r, make([]byte, 3)); err != nil {
		t.Fatal(err)
	}
	_ = r.Close()
	p.signal(syscall.SIGSTOP)
	time.Sleep(1100 * time.Millisecond)
	p.signal(syscall.SIGCONT)
	p.wait().want(t, exitLost, "", "")
	if file(path) != "told\n" {
		t.Error("the command was not told")
	}
	u.run(t, "run", "n", "--", "sh", "-c", "kill -PIPE $$; echo ignored").want(t, 128+int(syscall.SIGPIPE), "", "")
}

func TestACommandIsEndedAlthoughNobodyReadsStderr(t *testing.T) {
	t.Parallel()
	u := newClient(t)
	r, w := pipe(t)
	defer func() { _, _ = r.Close(), w.Close() }()
	var err error
	for err == nil { // until it takes no more
		if err = w.SetWriteDeadline(time.Now().Add(100 * time.Millisecond)); err == nil {
			_, err = w.Write(make([]byte, 4096))
		}
	}
	if !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatal(err)
	}
	p, path := u.commandThatEnds(t, "9s")
	p.Stderr = w
	p.start()
	p.shows("up")
	u.run(t, "unlock", "--force", "n").want(t, 0, "unlocked n", "")
	p.wait().want(t, exitLost, "up", "")
	if file(path) != "told\n" {
		t.Error("the command was not told")
	}
}

func TestTheGraceIsForAllOfTheCommand(t *testing.T) {
	t.Parallel()
	u := newClient(t)
	p := u.shell(t, `sh -c 'trap "sleep 0.7; echo cleaned; exit 0" TERM; @UP; while :; do sleep 0.05; done'; echo not reached`,
		"--ttl", "1s", "n")
	p.signal(syscall.SIGSTOP)
	time.Sleep(1100 * time.Millisecond)
	p.signal(syscall.SIGCONT)
	p.wait().want(t, exitLost, "cleaned\n", "lost")
}

func TestAStoppedCommandIsEndedToo(t *testing.T) {
	t.Parallel()
	u := newClient(t)
	p := u.shell(t, "@UP; kill -STOP $$; echo went on", "--ttl", "1s", "n")
	time.Sleep(100 * time.Millisecond)
	p.signal(syscall.SIGSTOP)
	time.Sleep(1100 * time.Millisecond)
	p.signal(syscall.SIGCONT)
	if r := p.wait(); r.code != exitLost || r.out != "" {
		t.Errorf("%+v", r)
	}
}
