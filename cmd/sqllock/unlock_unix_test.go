//go:build unix

package main

import (
	"syscall"
	"testing"
	"time"

	"github.com/sqllock/sqllock/internal/testdb"
)

func TestUnlockTakesTheLockAwayByForceOnly(t *testing.T) {
	t.Parallel()
	onEachDB(t, func(t *testing.T, s *clientDB) {
		s.run(t, "unlock", "n").want(t, exitNo, "", "not held")
		s.run(t, "unlock", "n", "--force").want(t, exitNo, "", "not held")
		holding := s.shell(t, "@UP; sleep 60", "n", "--label", "the holder", "--ttl", "15s")
		s.run(t, "unlock", "n").want(t, exitUsage, "", "the holder")
		s.run(t, "run", "--try", "n", "--", "true").want(t, exitHeld, "", "the holder")
		s.run(t, "unlock", "n", "--force").want(t, 0, `unlocked n, which was held by "the holder"`, "")
		s.run(t, "run", "--try", "n", "--", "echo", "ran").want(t, 0, "ran", "")
		holding.wait().want(t, exitLost, "", "revoked")
		s.run(t, "unlock", "--force", "n").want(t, exitNo, "", "not held")
		s.run(t, "run", "--min-hold", "1h", "kept", "--", "true").want(t, 0, "", "")
		s.run(t, "run", "--try", "kept", "--", "true").want(t, exitHeld, "", "kept until")
		s.run(t, "unlock", "kept").want(t, exitUsage, "", "minimum hold or a lock delay")
		s.run(t, "unlock", "kept", "--force").want(t, 0, "kept", "")
		s.run(t, "run", "--try", "kept", "--", "true").want(t, 0, "", "")
	})
}

func TestUnlockTakesAllPermitsAndSaysHowManyAreHeld(t *testing.T) {
	t.Parallel()
	onEachDB(t, func(t *testing.T, s *clientDB) {
		one := s.shell(t, "@UP; sleep 60", "--permits", "3", "--ttl", "15s", "n")
		two := s.shell(t, "@UP; sleep 60", "--permits", "3", "--ttl", "15s", "n")
		r := s.run(t, "unlock", "n")
		r.want(t, exitUsage, "", "held by 2 of 3 permits")
		r.want(t, exitUsage, "", "all of them would lose it")
		s.run(t, "unlock", "n", "--force").want(t, 0, "unlocked n", "")
		one.wait().want(t, exitLost, "", "revoked")
		two.wait().want(t, exitLost, "", "revoked")
	})
}

func TestUnlockSaysThatReadersOfASessionKeepTheName(t *testing.T) {
	t.Parallel()
	for _, engine := range testdb.Engines() {
		onModes(t, engine, []mode{advisory}, func(t *testing.T, s *clientDB, m mode) {
			holding := s.shell(t, "@UP; sleep 60", "--mode", string(m), "--shared", "n")
			s.listed(t, m, "n")
			s.run(t, "unlock", "--mode", string(m), "n").want(t, exitUsage, "", "a lock that is shared cannot be taken away")
			holding.end(t)
		})
	}
}

func TestUnlockWaitsForARowThatIsLockedAndNotForEver(t *testing.T) {
	t.Parallel()
	onEachDB(t, func(t *testing.T, s *clientDB) {
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
	onEachDB(t, func(t *testing.T, s *clientDB) {
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

func TestUnlockAsksTheHolderOfASession(t *testing.T) {
	t.Parallel()
	onSessionModes(t, func(t *testing.T, s *clientDB, m mode) {
		unlock := func(code int, out, err string, flags ...string) {
			t.Helper()
			s.run(t, append([]string{"unlock", "--mode", string(m), "n"}, flags...)...).want(t, code, out, err)
		}
		unlock(exitNo, "", "not held")
		unlock(exitNo, "", "not held", "--force")
		holding := s.shell(t, "@UP; sleep 60", "--mode", string(m), "n", "--label", "the holder")
		s.listed(t, m, "n")
		s.run(t, "unlock", "n", "--force").want(t, exitNo, "", "not held")
		unlock(exitUsage, "", "asked to let go")
		s.run(t, "run", "--mode", string(m), "--try", "n", "--", "true").want(t, exitHeld, "", "held")
		began := time.Now()
		unlock(0, `unlocked n, which was held by "the holder"`, "", "--force")
		if took := time.Since(began); took > 5*time.Second { // the TTL is 30 s
			t.Errorf("it took %v", took)
		}
		s.run(t, "run", "--mode", string(m), "--try", "n", "--", "echo", "ran").want(t, 0, "ran", "")
		holding.wait().want(t, exitLost, "", "revoked")
		unlock(exitNo, "", "not held", "--force")
	})
}

func TestUnlockWaitsForAHolderThatDoesNotAnswerUntilTheServerEndsIt(t *testing.T) {
	t.Parallel()
	onSessionModes(t, func(t *testing.T, s *clientDB, m mode) {
		holding := s.shell(t, "trap '' TERM; @UP; sleep 60", "--mode", string(m), "--ttl", "10s", "--grace", "1s", "n")
		s.listed(t, m, "n")
		holding.signal(syscall.SIGSTOP)
		s.run(t, "unlock", "--mode", string(m), "--force", "--wait", "1s", "n").want(t, exitUnavailable, "", "was asked and has not let go")
		s.run(t, "run", "--mode", string(m), "--try", "n", "--", "true").want(t, exitHeld, "", "held")
		s.run(t, "unlock", "--mode", string(m), "--force", "--wait", "1m", "n").want(t, 0, "unlocked n", "")
		s.run(t, "run", "--mode", string(m), "--try", "n", "--", "echo", "ran").want(t, 0, "ran", "")
		holding.signal(syscall.SIGCONT)
		holding.wait().want(t, exitLost, "", "lost")
	})
}
