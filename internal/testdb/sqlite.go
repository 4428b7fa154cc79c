package testdb

import (
	"database/sql"
	"path/filepath"

	_ "modernc.org/sqlite" // the driver "sqlite"
)

type sqliteDialect struct{}

var _ dialect = sqliteDialect{}

func (sqliteDialect) driver() string                   { return "sqlite" }
func (sqliteDialect) open(dsn string) (*sql.DB, error) { return sql.Open("sqlite", dsn) }
func (sqliteDialect) addr(string) string               { return "" }

func (sqliteDialect) dsn(path, _, _ string, params []string) string {
	all := append([]string{"_pragma=busy_timeout(5000)", "_pragma=journal_mode(WAL)"}, params...)
	return "file:" + filepath.ToSlash(path) + "?" + query(all)
}
