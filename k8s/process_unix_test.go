//go:build unix

package k8slock_test

import (
	"database/sql"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/sqllock/sqllock/internal/process"
	"github.com/sqllock/sqllock/internal/testdb"
)

// leads reads the token with which a process leads.
func leads(t *testing.T, p *process.Process) (token int64) {
	t.Helper()
	line := p.Read()
	token, err := strconv.ParseInt(strings.TrimPrefix(line, "leads "), 10, 64)
	if err != nil {
		t.Fatalf("it says %q", line)
	}
	return token
}

func TestAnotherLeadsWhenTheLeaderIsKilled(t *testing.T) {
	onEach(t, testdb.All(), func(t *testing.T, d *testdb.Database, _ *sql.DB) {
		first := start(t, d, "a", asElector)
		token := leads(t, first)
		second := start(t, d, "b", asElector)
		first.Signal(syscall.SIGKILL)
		if next := leads(t, second); next <= token {
			t.Errorf("token %d after %d", next, token)
		}
	})
}

// Not on SQLite: a process that is stopped while it writes keeps all others from writing.
func TestAPausedLeaderIsFencedAndStops(t *testing.T) {
	kinds := map[string]string{testdb.Postgres: asManager}
	onEach(t, testdb.Engines(), func(t *testing.T, d *testdb.Database, db *sql.DB) {
		mustExec(t, db, `CREATE TABLE journal (id BIGINT PRIMARY KEY, token BIGINT NOT NULL)`)
		kind := asElector
		if k, ok := kinds[d.Engine()]; ok {
			kind = k
		}
		first := start(t, d, "a", kind)
		token := leads(t, first)
		first.Tell("wrote")
		first.Signal(syscall.SIGSTOP)
		second := start(t, d, "b", kind)
		next := leads(t, second)
		if next <= token {
			t.Errorf("token %d after %d", next, token)
		}
		second.Tell("wrote")
		first.Signal(syscall.SIGCONT)
		first.Tell("fenced")
		if line := first.Read(); line != "stopped" {
			t.Errorf("it says %q", line)
		}
		second.Tell("wrote")
		var writes, tokens int
		if err := db.QueryRowContext(t.Context(), `SELECT COUNT(*), COUNT(DISTINCT token) FROM journal`).Scan(&writes, &tokens); err != nil {
			t.Fatal(err)
		}
		if writes != 3 || tokens != 2 {
			t.Errorf("%d writes with %d tokens", writes, tokens)
		}
	})
}
