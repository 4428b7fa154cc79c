//go:build matrix && (mattn || ncruces)

package drivers

import (
	"database/sql"
	"path/filepath"
	"testing"

	"github.com/sqllock/sqllock/internal/pairs"
	"github.com/sqllock/sqllock/internal/testdb"
	"github.com/sqllock/sqllock/locksqlite"
	"github.com/sqllock/sqllock/sqllocktest"
)

// sqlite is SQLite through another driver than modernc.org/sqlite. That driver never opens a file
// of these tests: two implementations of SQLite in one process drop each other's locks.
func sqlite(name, settings string) through {
	e := &pairs.Engine{Name: testdb.SQLite, Harness: pairs.SQLite, Open: func(db *sql.DB) pairs.Database { return locksqlite.DB(db) }}
	e.Harness.Driver = "sqlite3"
	e.Source = func(d *testdb.Database) string { return "file:" + filepath.ToSlash(d.Path()) + "?" + settings }
	return through{name: name, engine: e, modes: []func(*pairs.Engine) sqllocktest.Harness{unique}}
}

func TestTheDriverIsTheOneOfTheTag(t *testing.T) {
	db, err := ways[0].engine.Harness.OpenDB("file:" + filepath.Join(t.TempDir(), "test.db"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = db.Close() }()
	if !isDriver(db.Driver()) {
		t.Errorf("the driver is %T", db.Driver())
	}
}
