//go:build unix

package main

import (
	"strings"
	"testing"
	"time"

	"github.com/sqllock/sqllock/internal/output/outputtest"
)

func TestInspectShowsAllThereIs(t *testing.T) {
	t.Parallel()
	onEachDB(t, func(t *testing.T, s *clientDB) {
		holding := s.shell(t, "@UP; sleep 60", "n", "--label", "the holder", "--value", "hello\u202e\nthere")
		r := s.run(t, "inspect", "n")
		r.want(t, 0, `"hello\u202e\nthere"`, "")
		shown := strings.Join(strings.Fields(r.out), " ")
		for _, part := range []string{"name n mode unique state held", `holder "the holder" owner `, "token 1", "holds 1 since 2", "s ago until 2", " in 29", "value "} {
			if !strings.Contains(shown, part) {
				t.Errorf("%q is missing in\n%s", part, r.out)
			}
		}
		outputtest.CheckHarmless(t, "inspect", r.out)
		x := entries(t, s.run(t, "inspect", "--json", "n").out)[0]
		if x.State != "held" || x.Value != "hello\u202e\nthere" || x.Label != "the holder" {
			t.Errorf("as JSON: %+v", x)
		}
		holding.end(t)
		s.run(t, "inspect", "n").want(t, 0, "released", "")
		s.run(t, "inspect", "never").want(t, exitNo, "unknown", "")
		if x := entries(t, s.run(t, "inspect", "--json", "never").out)[0]; x.State != "unknown" || x.Name != "never" {
			t.Errorf("an unknown name as JSON: %+v", x)
		}
		s.put(t, "bytes", "l", time.Now().Add(time.Hour))
		s.exec(t, "UPDATE sqllock_lock SET value = "+s.parameter(1)+" WHERE name = 'bytes'", []byte{0xff, 0, 1})
		s.run(t, "inspect", "bytes").want(t, 0, "ff0001", "")
		if x := entries(t, s.run(t, "inspect", "--json", "bytes").out)[0]; x.ValueHex != "ff0001" || x.Value != "" {
			t.Errorf("bytes as JSON: %+v", x)
		}
	})
}

func TestInspectAndListShowWhoWaits(t *testing.T) {
	t.Parallel()
	onEachDB(t, func(t *testing.T, s *clientDB) {
		holding := s.shell(t, "@UP; sleep 60", "n", "--label", "the holder")
		var waiting []*call
		for i, args := range [][]string{{"--label", "the first"}, {"--label", "x\u202ey", "--shared"}} {
			waiting = append(waiting, s.start(t, append(append([]string{"run"}, args...), "n", "--", "true")...))
			eventually(t, "it waits in the queue", func() bool { return s.waitingFor(t, "n") == i+1 })
		}
		r := s.run(t, "inspect", "n")
		r.want(t, 0, "waiters", "")
		outputtest.CheckHarmless(t, "inspect", r.out)
		shown := strings.Join(strings.Fields(r.out), " ")
		for _, part := range []string{"waiters 2 waiter exclusive since 2", `s ago "the first" waiter shared since 2`, `s ago "x\u202ey"`} {
			if !strings.Contains(shown, part) {
				t.Errorf("%q is missing in\n%s", part, r.out)
			}
		}
		x := entries(t, s.run(t, "inspect", "--json", "n").out)[0]
		if x.Waiters != 2 || len(x.Queue) != 2 || x.Queue[0].Label != "the first" || x.Queue[1].Kind != "shared" || x.Queue[0].Since == "" {
			t.Errorf("as JSON: %+v", x)
		}
		if x := entries(t, s.run(t, "ls", "--json").out)[0]; x.Waiters != 2 || x.Queue != nil {
			t.Errorf("listed as JSON: %+v", x)
		}
		if r := s.run(t, "ls"); !strings.Contains(strings.Join(strings.Fields(r.out), " "), ` - 2 "the holder"`) {
			t.Errorf("listed:\n%s", r.out)
		}
		holding.end(t)
		for _, p := range waiting {
			p.wait().want(t, 0, "", "")
		}
		if x := entries(t, s.run(t, "inspect", "--json", "n").out)[0]; x.Waiters > 0 || x.Queue != nil {
			t.Errorf("in the end: %+v", x)
		}
	})
}

func TestInspectShowsWhoWaitsForAPermit(t *testing.T) {
	t.Parallel()
	onEachDB(t, func(t *testing.T, s *clientDB) {
		holding := s.shell(t, "@UP; sleep 60", "--permits", "1", "n")
		waiting := s.start(t, "run", "--permits", "1", "--label", "the waiter", "n", "--", "true")
		eventually(t, "it waits in the queue", func() bool { return s.waitingFor(t, "n") == 1 })
		r := s.run(t, "inspect", "n")
		r.want(t, 0, "waiters", "")
		shown := strings.Join(strings.Fields(r.out), " ")
		for _, part := range []string{"waiters 1 waiter permit since 2", `s ago "the waiter"`} {
			if !strings.Contains(shown, part) {
				t.Errorf("%q is missing in\n%s", part, r.out)
			}
		}
		x := entries(t, s.run(t, "inspect", "--json", "n").out)[0]
		if x.Waiters != 1 || len(x.Queue) != 1 || x.Queue[0].Label != "the waiter" || x.Queue[0].Kind != "permit" || x.Queue[0].Since == "" {
			t.Errorf("as JSON: %+v", x)
		}
		holding.end(t)
		waiting.wait().want(t, 0, "", "")
	})
}

func TestInspectLooksAtTheLockOfOneMode(t *testing.T) {
	t.Parallel()
	onSessionModes(t, func(t *testing.T, s *clientDB, m mode) {
		s.run(t, "inspect", "--mode", string(m), "n").want(t, exitNo, "unknown", "")
		holding := s.shell(t, "@UP; sleep 60", "--mode", string(m), "n", "--label", "the holder", "--value", "hello\nthere")
		s.run(t, "inspect", "n").want(t, exitNo, "unknown", "")
		r := s.run(t, "inspect", "--mode", string(m), "n")
		r.want(t, 0, "until   its session ends", "")
		shown := strings.Join(strings.Fields(r.out), " ")
		for _, part := range []string{"name n mode " + string(m) + " state held", `holder "the holder" owner `, "token 1", "since 2", `value "hello\nthere"`} {
			if !strings.Contains(shown, part) {
				t.Errorf("%q is missing in\n%s", part, r.out)
			}
		}
		x := entries(t, s.run(t, "inspect", "--mode", string(m), "--json", "n").out)[0]
		if x.Mode != m || x.State != "held" || x.Value != "hello\nthere" || !x.Until.IsZero() {
			t.Errorf("as JSON: %+v", x)
		}
		holding.end(t)
		s.run(t, "inspect", "--mode", string(m), "n").want(t, 0, "released", "")
	})
}
