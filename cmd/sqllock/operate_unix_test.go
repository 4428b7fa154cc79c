//go:build unix

package main

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/sqllock/sqllock"
	"github.com/sqllock/sqllock/internal/output/outputtest"
	"github.com/sqllock/sqllock/internal/testdb"
)

func TestListShowsWhoHoldsWhat(t *testing.T) {
	t.Parallel()
	onEachSite(t, func(t *testing.T, s *site) {
		holding := s.shell(t, "@UP; sleep 60", "b/held", "--label", "the holder", "--value", "hello\nthere")
		s.run(t, "run", "--min-hold", "1h", "c/kept", "--", "true").want(t, 0, "", "")
		s.run(t, "run", "d/free", "--", "true").want(t, 0, "", "")
		s.put(t, "a/expired", "who crashed", time.Now().Add(-time.Hour))

		r := s.run(t, "ls")
		r.want(t, 0, "", "")
		lines := strings.Split(strings.TrimSpace(r.out), "\n")
		if r.err != "" || len(lines) != 4 {
			t.Fatalf("want a heading and three names:\n%s%s", r.out, r.err)
		}
		for i, want := range [][]string{
			{"NAME", "MODE", "STATE", "TOKEN", "SINCE", "UNTIL", "HOLDER"},
			{"a/expired", "unique", "expired", "7", "-", "1h0m ago", `"who crashed"`},
			{"b/held", "unique", "held", "s ago", "in ", `"the holder"`},
			{"c/kept", "unique", "kept", "-", "in 59m", "-"},
		} {
			for _, part := range want {
				if _, rest, ok := strings.Cut(lines[i], part); !ok {
					t.Errorf("line %d lacks %q: %s", i, part, lines[i])
				} else {
					lines[i] = rest
				}
			}
		}
		if r := s.run(t, "ls", "--all"); !strings.Contains(r.out, "d/free") || !strings.Contains(r.out, "released") {
			t.Errorf("all:\n%s", r.out)
		}
		if r := s.run(t, "ls", "-a", "d/"); strings.Count(r.out, "\n") != 2 || !strings.Contains(r.out, "d/free") {
			t.Errorf("those that begin with d/:\n%s", r.out)
		}

		all := entries(t, s.run(t, "ls", "--json", "--all").out)
		if len(all) != 4 {
			t.Fatalf("as JSON: %+v", all)
		}
		if x := all[1]; x.Name != "b/held" || x.State != "held" || x.Label != "the holder" || len(x.Owner) != 32 || x.Holds != 1 || x.Token < 1e15 ||
			x.Until.Sub(x.Since) < 30*time.Second || !x.Now.Before(x.Until) || x.Value != "" || !x.KeptUntil.IsZero() {
			t.Errorf("b/held as JSON: %+v", x)
		}
		if x := all[2]; x.State != "released" || x.KeptUntil.Sub(x.Since) != time.Hour || x.Owner+x.Label != "" {
			t.Errorf("c/kept as JSON: %+v", x)
		}
		if x := all[0]; x.State != "expired" || x.Token != 7 || x.Label != "who crashed" {
			t.Errorf("a/expired as JSON: %+v", x)
		}
		holding.end(t)
	})
}

func TestInspectShowsAllThereIs(t *testing.T) {
	t.Parallel()
	onEachSite(t, func(t *testing.T, s *site) {
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

func TestUnlockTakesTheLockAwayByForceOnly(t *testing.T) {
	t.Parallel()
	onEachSite(t, func(t *testing.T, s *site) {
		s.run(t, "unlock", "n").want(t, exitNo, "", "not held")
		s.run(t, "unlock", "n", "--force").want(t, exitNo, "", "not held")
		holding := s.shell(t, "@UP; sleep 60", "n", "--label", "the holder", "--ttl", "2s")
		s.run(t, "unlock", "n").want(t, exitUsage, "", "the holder")
		s.run(t, "run", "--try", "n", "--", "true").want(t, exitHeld, "", "the holder")
		s.run(t, "unlock", "n", "--force").want(t, 0, `unlocked n, which was held by "the holder"`, "")
		s.run(t, "run", "--try", "n", "--", "echo", "ran").want(t, 0, "ran", "")
		holding.wait().want(t, exitLost, "", "revoked")
		s.run(t, "unlock", "--force", "n").want(t, exitNo, "", "not held")
		s.run(t, "run", "--min-hold", "1h", "kept", "--", "true").want(t, 0, "", "")
		s.run(t, "run", "--try", "kept", "--", "true").want(t, exitHeld, "", "kept until")
		s.run(t, "unlock", "kept").want(t, exitUsage, "", "minimum time")
		s.run(t, "unlock", "kept", "--force").want(t, 0, "kept", "")
		s.run(t, "run", "--try", "kept", "--", "true").want(t, 0, "", "")
	})
}

func TestUnlockWaitsForARowThatIsLockedAndNotForEver(t *testing.T) {
	t.Parallel()
	onEachSite(t, func(t *testing.T, s *site) {
		s.put(t, "n", "l", time.Now().Add(time.Hour))
		tx, err := s.db.BeginTx(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = tx.Rollback() }()
		if _, err := tx.Exec("UPDATE sqllock_lock SET holds = 2 WHERE name = 'n'"); err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		s.run(t, "unlock", "--force", "n", "--wait", "1500ms").want(t, exitUnavailable, "", "within 1.5s")
		if took := time.Since(began); took < time.Second {
			t.Errorf("it gave up after %v", took)
		}
		waiting := s.start(t, "unlock", "--force", "n", "--wait", "30s")
		time.Sleep(500 * time.Millisecond)
		if err := tx.Rollback(); err != nil {
			t.Fatal(err)
		}
		waiting.wait().want(t, 0, "unlocked n", "")
	})
}

func TestUnlockKnowsWhatBecameOfItWhenItGivesUp(t *testing.T) {
	t.Parallel()
	onEachSite(t, func(t *testing.T, s *site) {
		for _, after := range []time.Duration{1300 * time.Millisecond, 1600 * time.Millisecond, 1900 * time.Millisecond} {
			name := "after " + after.String()
			s.put(t, name, "l", time.Now().Add(time.Hour))
			tx, err := s.db.BeginTx(t.Context(), nil)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := tx.Exec("UPDATE sqllock_lock SET holds = 2 WHERE name = "+s.parameter(1), name); err != nil {
				t.Fatal(err)
			}
			began := time.Now()
			unlocking := s.start(t, "unlock", "--force", name, "--wait", "1200ms")
			time.Sleep(time.Until(began.Add(after)))
			if err := tx.Rollback(); err != nil {
				t.Fatal(err)
			}
			r := unlocking.wait()
			time.Sleep(1500 * time.Millisecond) // a statement that is on its way would have arrived
			if freed := s.run(t, "wait", "--wait", "0", name).code == 0; (r.code == 0) != freed {
				t.Errorf("%s: exit code %d, and the name is free: %v\n%s", name, r.code, freed, r.err)
			}
		}
	})
}

func TestWaitEndsWhenTheNameIsFree(t *testing.T) {
	t.Parallel()
	onEachSite(t, func(t *testing.T, s *site) {
		if r := s.run(t, "wait", "never"); r != (result{}) {
			t.Errorf("a name that was never locked: %+v", r)
		}
		holding := s.shell(t, "@UP; sleep 60", "n", "--label", "the holder", "--min-hold", "3s")
		held := time.Now()
		s.run(t, "wait", "--wait", "0", "n").want(t, exitNo, "", "the holder")
		s.run(t, "wait", "--wait", "300ms", "n").want(t, exitNo, "", "the holder")
		if r := s.run(t, "wait", "-q", "--wait", "300ms", "n"); r != (result{code: exitNo}) {
			t.Errorf("quietly: %+v", r)
		}
		waiting := s.start(t, "wait", "-v", "n")
		time.Sleep(200 * time.Millisecond)
		holding.end(t)
		r := waiting.wait()
		r.want(t, 0, "", "minimum time")
		if time.Since(held) < 2500*time.Millisecond || r.out != "" {
			t.Errorf("it ended %v after the name was locked for 3s, and said %q", time.Since(held), r.out)
		}
		s.run(t, "wait", "--wait", "0", "n").want(t, 0, "", "")
		s.put(t, "m", "l", time.Now().Add(2*time.Second)) // and crashes
		s.run(t, "wait", "--wait", "30s", "m").want(t, 0, "", "")
	})
}

func TestASignalEndsTheWaitForAFreeName(t *testing.T) {
	t.Parallel()
	s := newSite(t, testdb.New(t, testdb.SQLite))
	s.put(t, "n", "l", time.Now().Add(time.Hour))
	log, err := os.Create(filepath.Join(s.home, "log"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = log.Close() }()
	p := s.command(t, "wait", "-v", "n")
	p.Stderr = log
	p.start()
	eventually(t, "it waits", func() bool { return file(log.Name()) != "" })
	if r := p.end(t); r.code != 128+int(syscall.SIGTERM) {
		t.Errorf("%+v", r)
	}
}

func TestReapCleansUpOnce(t *testing.T) {
	t.Parallel()
	onEachSite(t, func(t *testing.T, s *site) {
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

// The reaper in the background makes its first pass after half a minute, which is too
// late to be seen.
func TestOperatorsAndRunDoNotReapInTheBackground(t *testing.T) {
	t.Parallel()
	if o := (&runner{app: testApp()}).lockerOptions().Reaper; o == nil || !o.Off {
		t.Errorf("run: %+v", o)
	}
	var reaper *sqllock.ReaperOptions
	action := testApp().operation(func(_ context.Context, o *operator) error {
		reaper = o.opts.Reaper
		return nil
	})
	if err := action(t.Context(), nil); err != nil || reaper == nil || !reaper.Off {
		t.Errorf("%+v, %v", reaper, err)
	}
}
