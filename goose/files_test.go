package gooselock_test

import (
	"database/sql"
	"fmt"
	"io/fs"
	"testing"
	"testing/fstest"
	"time"

	"github.com/sqllock/sqllock/internal/testdb"
)

// all are the versions of the files, in their order.
var all = []int{1, 2, 3, 4}

// slow is the version that takes longer than the TTL, in a transaction.
const slow = 3

// files are migrations of which none can run twice unnoticed: each leaves a row. The
// slow one takes as long as is said.
func files(engine string, takes time.Duration) fs.FS {
	sleep := `DO sleep(%v)`
	if engine == testdb.Postgres {
		sleep = `SELECT pg_sleep(%v)`
	}
	sleep = fmt.Sprintf(sleep, takes.Seconds())
	return fstest.MapFS{
		"00001_tables.sql": {Data: []byte(`-- +goose Up
CREATE TABLE runs (version INTEGER NOT NULL);
INSERT INTO runs VALUES (1);
`)},
		"00002_column.sql": {Data: []byte(`-- +goose Up
ALTER TABLE runs ADD COLUMN note VARCHAR(20);
INSERT INTO runs (version) VALUES (2);
`)},
		"00003_slow.sql": {Data: []byte(`-- +goose Up
INSERT INTO runs (version) VALUES (3);
` + sleep + `;
`)},
		"00004_outside.sql": {Data: []byte(`-- +goose NO TRANSACTION
-- +goose Up
INSERT INTO runs (version) VALUES (4);
`)},
	}
}

// sleeping reports whether a session of the database is in the middle of slow.
func sleeping(t *testing.T, engine string, db *sql.DB) bool {
	t.Helper()
	query := `SELECT count(*) FROM information_schema.processlist
		WHERE db = database() AND id <> connection_id() AND info LIKE 'DO sleep%'`
	if engine == testdb.Postgres {
		query = `SELECT count(*) FROM pg_stat_activity
			WHERE datname = current_database() AND state = 'active' AND query LIKE 'SELECT pg_sleep%'`
	}
	var n int
	if err := db.QueryRowContext(t.Context(), query).Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n > 0
}
