//go:build unix

package main

import (
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/sqllock/sqllock/internal/testdb"
)

// term is a script that writes a line for each term that it sees, with its token, and
// runs until it is told to end.
const term = `trap 'echo told; exit 3' TERM; echo $SQLLOCK_TOKEN >>%LOG; while :; do sleep 0.05; done`

// startElect starts a call of elect whose CMD is term. The lines come into the log.
func (u client) startElect(t *testing.T, log string, args ...string) *call {
	t.Helper()
	script := strings.ReplaceAll(term, "%LOG", log)
	return u.start(t, append(append([]string{"elect"}, args...), "--", "sh", "-c", script)...)
}

// tokens waits until n terms have begun, and returns their tokens.
func tokens(t *testing.T, log string, n int) (all []int64) {
	t.Helper()
	eventually(t, strconv.Itoa(n)+" terms have begun", func() bool { return strings.Count(file(log), "\n") >= n })
	for text := range strings.Lines(file(log)) {
		token, err := strconv.ParseInt(strings.TrimSpace(text), 10, 64)
		if err != nil || len(all) > 0 && token <= all[len(all)-1] {
			t.Fatalf("the tokens are %q", file(log))
		}
		all = append(all, token)
	}
	if len(all) != n {
		t.Fatalf("%d terms have begun, want %d", len(all), n)
	}
	return all
}

func TestOneLeadsAtATimeAndLeaderTellsWho(t *testing.T) {
	t.Parallel()
	onEachMode(t, func(t *testing.T, s *clientDB, m mode) {
		log, of := filepath.Join(s.home, "log"), "--mode="+string(m)
		s.run(t, "leader", of, "n").want(t, exitNo, "", "nobody leads n")
		if r := s.run(t, "leader", of, "-q", "n"); r != (result{code: exitNo}) {
			t.Errorf("leader -q: %+v", r)
		}
		first := s.startElect(t, log, of, "--identity", "first", "--label", "the first", "--value", "10.0.0.7\n", "n")
		token := tokens(t, log, 1)[0]
		s.run(t, "leader", of, "n").want(t, 0, "first", "")
		s.run(t, "leader", of, "n").want(t, 0, "\"10.0.0.7\\n\"", "")
		r := s.run(t, "leader", "--json", of, "n")
		r.want(t, 0, `"identity":"first","label":"the first","token":`+strconv.FormatInt(token, 10)+`,"since":"2`, "")
		r.want(t, 0, `"value":"10.0.0.7\n"}`, "")
		s.run(t, "inspect", of, "n").want(t, 0, "first", "")
		second := s.startElect(t, log, of, "--identity", "second", "n")
		s.run(t, "run", of, "--try", "n", "--", "echo", "ran").want(t, exitHeld, "", "held") // to lead is to hold
		time.Sleep(300 * time.Millisecond)
		tokens(t, log, 1)
		first.end(t).want(t, 3, "told", "") // CMD has ended, not because the lead was lost
		tokens(t, log, 2)
		s.run(t, "leader", of, "n").want(t, 0, "second", "")
		second.end(t).want(t, 3, "told", "")
		s.run(t, "leader", of, "n").want(t, exitNo, "", "nobody leads n")
	})
}

func TestElectEndsWithTheCodeOfItsCommand(t *testing.T) {
	t.Parallel()
	u := newClient(t)
	u.run(t, "elect", "n", "--", "sh", "-c", "exit 7").want(t, 7, "", "")
	u.run(t, "elect", "n", "--", "sh", "-c", "kill -KILL $$").want(t, exitSignal+9, "", "")
	u.run(t, "elect", "n", "--", "/nonexistent").want(t, exitNotFound, "", "elect: ")
	u.run(t, "elect", "n", "--", u.home).want(t, exitNotRunnable, "", "elect: ")
	u.run(t, "leader", "n").want(t, exitNo, "", "nobody leads")
}

func TestElectCampaignsAgainAfterALoss(t *testing.T) {
	t.Parallel()
	onEachMode(t, func(t *testing.T, s *clientDB, m mode) {
		log := filepath.Join(s.home, "log")
		p := s.startElect(t, log, "--mode", string(m), "--ttl", "9s", "n")
		for terms := range 3 {
			tokens(t, log, terms+1)
			s.run(t, "unlock", "--mode", string(m), "--force", "n").want(t, 0, "", "")
		}
		tokens(t, log, 4)
		r := p.end(t)
		r.want(t, 3, "told", "ending the command")
		if n := strings.Count(r.out, "told"); n != 4 {
			t.Errorf("CMD was told to end %d times", n)
		}
	})
}

func TestAPausedElectEndsItsCommandAndCampaignsAgain(t *testing.T) {
	t.Parallel()
	onAll(t, func(t *testing.T, u client) {
		log := filepath.Join(u.home, "log")
		p := u.startElect(t, log, "--ttl", "9s", "n")
		tokens(t, log, 1)
		p.signal(syscall.SIGSTOP)
		u.run(t, "run", "n", "--", "echo", "ran").want(t, 0, "ran", "")
		p.signal(syscall.SIGCONT)
		tokens(t, log, 2)
		p.end(t).want(t, 3, "told", "lost")
	})
}

func TestElectThatIsStartedAnewResumesItsTerm(t *testing.T) {
	t.Parallel()
	onEachDB(t, func(t *testing.T, s *clientDB) {
		log := filepath.Join(s.home, "log")
		p := s.startElect(t, log, "--ttl", "1h", "--identity", "me", "--lock-delay", "1h", "n")
		tokens(t, log, 1)
		p.signal(syscall.SIGKILL)
		p.wait()
		other := s.start(t, "elect", "n", "--", "echo", "ran")
		next := s.startElect(t, log, "--identity", "me", "n")
		tokens(t, log, 2) // not an hour later, and before those who wait
		next.end(t).want(t, 3, "told", "")
		other.wait().want(t, 0, "ran", "")
	})
}

func TestASignalWhileTheCommandIsEndedAfterALossEndsElect(t *testing.T) {
	t.Parallel()
	u := newClient(t)
	log := filepath.Join(u.home, "log")
	p := u.start(t, "elect", "--ttl", "9s", "--grace", "8s", "n", "--", "sh", "-c", "echo 1 >>"+log+"; trap 'echo told >>"+log+"' TERM; while :; do sleep 0.05; done")
	eventually(t, "the command is up", func() bool { return file(log) != "" })
	u.run(t, "unlock", "--force", "n").want(t, 0, "", "")
	eventually(t, "the command is told", func() bool { return strings.Contains(file(log), "told") })
	p.signal(syscall.SIGTERM)
	eventually(t, "the command hears the signal", func() bool { return strings.Count(file(log), "told") == 2 })
	p.wait().want(t, exitLost, "", "ending the command")
}

func TestASignalEndsAnElectThatWaits(t *testing.T) {
	t.Parallel()
	u := newClient(t)
	holding := u.shell(t, "@UP; sleep 60", "n")
	p := u.start(t, "elect", "n", "--", "echo", "ran")
	p.waitListening()
	if r := p.end(t); r.code != exitSignal+int(syscall.SIGTERM) || r.out != "" {
		t.Errorf("%+v", r)
	}
	holding.end(t)
}

func TestALeaderThatMayResignDoesSoWhenAsked(t *testing.T) {
	t.Parallel()
	s := newClientDB(t, testdb.New(t, testdb.SQLite))
	log := filepath.Join(s.home, "log")
	s.run(t, "elect", "--resign", "n").want(t, exitNo, "", "nobody leads n")
	first := s.startElect(t, log, "--may-resign", "--identity", "first", "n")
	tokens(t, log, 1)
	second := s.startElect(t, log, "--identity", "second", "n")
	eventually(t, "the second waits in the queue", func() bool { return s.waitingFor(t, "n") == 1 })
	s.run(t, "elect", "--resign", "n").want(t, 0, "", "")
	tokens(t, log, 2)
	s.run(t, "leader", "n").want(t, 0, "second", "")
	s.run(t, "elect", "--resign", "--wait", "2s", "n").want(t, exitNo, "", "second")
	second.end(t).want(t, 3, "told", "")
	tokens(t, log, 3)
	s.run(t, "leader", "n").want(t, 0, "first", "")
	first.end(t).want(t, 3, "told", "resign requested")
}
