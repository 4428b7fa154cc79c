package locksqlite

import (
	_ "embed"
	"maps"
	"strings"

	"github.com/sqllock/sqllock/internal/sqltext"
)

//go:embed sql/open.sql
var openSQL string

//go:embed sql/unique.sql
var uniqueSQL string

//go:embed sql/once.sql
var onceSQL string

// A PRAGMA takes no parameters.
const (
	queryJournal  = `PRAGMA journal_mode`
	queryBusy     = `PRAGMA busy_timeout`
	queryBusySet  = `PRAGMA busy_timeout = ` // and milliseconds
	queryBegin    = `BEGIN IMMEDIATE`        // the transaction has the write lock from its start
	queryCommit   = `COMMIT`
	queryRollback = `ROLLBACK`
)

// texts returns the statements of all files by their names. The tables have a prefix.
func texts(prefix string) map[string]string {
	var names []string
	for _, table := range []string{"lock", "claim", "waiter", "meta", "fence", "done"} {
		names = append(names, "{"+table+"}", `"`+prefix+table+`"`)
	}
	tables := strings.NewReplacer(names...)
	all := sqltext.Parse(openSQL, tables)
	maps.Copy(all, sqltext.Parse(uniqueSQL, tables))
	maps.Copy(all, sqltext.Parse(onceSQL, tables))
	return all
}
