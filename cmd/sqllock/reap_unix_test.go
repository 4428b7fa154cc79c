//go:build unix

package main

import (
	"encoding/json"
	"strings"
	"syscall"
	"testing"
	"time"
)

func TestReapCleansUpOnce(t *testing.T) {
	t.Parallel()
	onEachDB(t, func(t *testing.T, s *clientDB) {
		s.put(t, "crashed", "who\ncrashed", time.Now().Add(-time.Hour))
		s.put(t, "held", "l", time.Now().Add(time.Hour))
		s.exec(t, "INSERT INTO sqllock_lock (name, version) VALUES ('old', 1)")
		s.run(t, "reap").want(t, 0, "crashed: crashed, held by \"who\\ncrashed\" (owner \"owner of crashed\", token 7)", "")
		s.exec(t, "INSERT INTO sqllock_lock (name, version, expires_at) VALUES ('older', 1, "+s.parameter(1)+")", time.Now().Add(-time.Hour).UnixMicro())
		r := s.run(t, "reap", "--batch", "1")
		r.want(t, 0, "3 seen, 0 crashed, 0 purged", "")
		s.run(t, "inspect", "old").want(t, exitNo, "", "")
		s.run(t, "inspect", "held").want(t, 0, "held", "")
		s.run(t, "inspect", "crashed").want(t, 0, "expired", "")
		s.exec(t, "DELETE FROM sqllock_lock WHERE name = 'crashed'")
		s.put(t, "crashed2", "l", time.Now().Add(-time.Hour))
		r = s.run(t, "reap", "--json", "--retention", "10m")
		r.want(t, 0, "", "")
		var report struct {
			Seen, Purged int
			TookMS       *int `json:"took_ms"`
			Crashed      []struct {
				Name, Label, Owner string
				Token              int64
				Since, Expired     time.Time
			}
		}
		if err := json.Unmarshal([]byte(r.out), &report); err != nil {
			t.Fatalf("%s: %v", r.out, err)
		}
		if c := report.Crashed; report.Seen != 3 || report.Purged != 1 || report.TookMS == nil || len(c) != 1 || c[0].Name != "crashed2" ||
			c[0].Token != 7 || c[0].Expired.Sub(c[0].Since) != time.Minute {
			t.Errorf("the report: %s", r.out)
		}
	})
}

func TestReapCleansUpInAllModes(t *testing.T) {
	t.Parallel()
	onEachServer(t, func(t *testing.T, s *clientDB) {
		s.put(t, "crashed", "l", time.Now().Add(-time.Hour))
		for _, m := range []mode{forUpdate, advisory} {
			p := s.shell(t, "@UP; sleep 60", "--mode", string(m), "--label", "who crashed", "crashed")
			s.listed(t, m, "crashed")
			p.signal(syscall.SIGKILL)
			p.wait()
			s.exec(t, "INSERT INTO sqllock_term (mode, name, version, ended_at) VALUES ("+map[mode]string{forUpdate: "2", advisory: "3"}[m]+", 'old', 1, 1)")
		}
		s.exec(t, "INSERT INTO sqllock_lock (name, version) VALUES ('old', 1)")
		holding := s.shell(t, "@UP; sleep 60", "--mode", "forupdate", "held")
		eventually(t, "the server knows that they are gone", func() bool { return !strings.Contains(s.run(t, "ls").out, "session  \"who") })
		r := s.run(t, "reap")
		r.want(t, 0, "3 crashed, 3 purged", "")
		for _, m := range modes {
			found := false
			for line := range strings.Lines(r.out) {
				found = found || strings.HasPrefix(line, "crashed: crashed, held by ") && strings.HasSuffix(line, ", mode "+string(m)+"\n") == m.sessions()
			}
			if !found {
				t.Errorf("no crash in the mode %s:\n%s", m, r.out)
			}
			s.run(t, "inspect", "--mode", string(m), "old").want(t, exitNo, "unknown", "")
			s.run(t, "inspect", "--mode", string(m), "crashed").want(t, 0, "expired", "")
		}
		s.run(t, "reap").want(t, 0, " 0 crashed, 0 purged", "")
		holding.end(t).want(t, 128+int(syscall.SIGTERM), "", "")
	})
}
