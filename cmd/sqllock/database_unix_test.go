//go:build unix

package main

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/sqllock/sqllock/internal/testdb"
)

// clientDB is a client with a migrated database, and a handle on that database.
type clientDB struct {
	client
	d  *testdb.Database
	db *sql.DB
}

func onEachDB(t *testing.T, test func(t *testing.T, s *clientDB)) {
	for _, engine := range testdb.All() {
		t.Run(engine, func(t *testing.T) {
			t.Parallel()
			test(t, newClientDB(t, testdb.New(t, engine)))
		})
	}
}

func newClientDB(t testing.TB, d *testdb.Database) *clientDB {
	t.Helper()
	s := &clientDB{client: client{home: t.TempDir(), dsn: dsn(t, d, "")}, d: d, db: d.Open(t)}
	s.run(t, "migrate", "up").want(t, 0, "", "")
	return s
}

func (s *clientDB) exec(t testing.TB, query string, args ...any) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), testTimeout)
	defer cancel()
	if _, err := s.db.ExecContext(ctx, query, args...); err != nil {
		t.Fatalf("%s: %v", query, err)
	}
}

// parameter is how the n-th parameter is written.
func (s *clientDB) parameter(n int) string {
	if s.d.Engine() == testdb.Postgres {
		return fmt.Sprintf("$%d", n)
	}
	return "?"
}

// put writes a row that is held until a time, without the library.
func (s *clientDB) put(t *testing.T, name, label string, until time.Time) {
	t.Helper()
	acq, text := any(name16(name)), any(name)
	if s.d.Engine() == testdb.Postgres {
		acq = fmt.Sprintf("%x", name16(name))
	}
	var values []string
	for n := range 9 {
		values = append(values, s.parameter(n+1))
	}
	s.exec(t, `INSERT INTO sqllock_lock (name, acq, locker, owner, label, version, holds, since, expires_at) VALUES (`+strings.Join(values, ", ")+`)`,
		text, acq, acq, "owner of "+name, label, 7, 1, until.Add(-time.Minute).UnixMicro(), until.UnixMicro())
}

func name16(name string) []byte { return []byte(fmt.Sprintf("%-16s", name)[:16]) }

// entry is a line of ls --json.
type entry struct {
	Name, State, Label, Owner, Value string
	Mode                             mode
	ValueHex                         string `json:"value_hex"`
	Token                            int64
	Holds, Readers, Waiters          int
	Holders                          []holderInfo
	Queue                            []waiterInfo
	Since, Until, Now                time.Time
	KeptUntil                        time.Time `json:"kept_until"`
}

func entries(t *testing.T, text string) (found []entry) {
	t.Helper()
	for l := range strings.Lines(text) {
		var x entry
		if err := json.Unmarshal([]byte(l), &x); err != nil {
			t.Errorf("%s: %v", l, err)
		}
		found = append(found, x)
	}
	return found
}
