//go:build unix

package main

import (
	"testing"

	"github.com/sqllock/sqllock/internal/testdb"
)

// A new server is no reason to refuse the flag that is for older ones.
func TestFlagsThatAllowMoreChangeNothingWhereNothingIsRefused(t *testing.T) {
	t.Parallel()
	onPostgres(t, func(t *testing.T, s *clientDB) {
		allow := []string{"--allow-unsafe-durability", "--allow-session-pooler", "--allow-silent-holders"}
		s.run(t, append(allow, "run", "--mode", "advisory", "n", "--", "echo", "ran")...).want(t, 0, "ran", "")
		if r := s.run(t, append(allow, "ls", "--all")...); r.code != 0 || r.err != "" {
			t.Errorf("ls: %+v", r)
		}
	})
}

// The tests of lockpg report it if there is no pooler here.
func TestAPoolerInSessionModeIsAcceptedIfAllowed(t *testing.T) {
	t.Parallel()
	for _, engine := range testdb.Startable() {
		if engine != testdb.Postgres || testdb.PoolerReason() != "" {
			continue
		}
		s := newClientDB(t, testdb.StartServer(t, engine).Database)
		s.dsn = dsn(t, s.d, testdb.StartPooler(t, s.d, "session"))
		u := s.with(t, "default_query_exec_mode=exec")
		for _, m := range []mode{forUpdate, advisory} {
			u.run(t, "run", "--mode", string(m), "n", "--", "true").want(t, exitUnavailable, "", "; --allow-session-pooler accepts a pooler in session mode")
			u.run(t, "run", "--mode", string(m), "--allow-session-pooler", "n", "--", "echo", "ran").want(t, 0, "ran", "")
		}
		u.run(t, "ls").want(t, 0, "NAME", "without the mode forupdate: ")
		if r := u.run(t, "--allow-session-pooler", "ls"); r.code != 0 || r.err != "" {
			t.Errorf("ls: %+v", r)
		}
	}
}
