//go:build matrix && mattn

package drivers

import (
	sqldriver "database/sql/driver"

	"github.com/mattn/go-sqlite3"
)

var ways = []through{sqlite("mattn", "_busy_timeout=5000&_journal_mode=WAL&_synchronous=NORMAL")}

func isDriver(d sqldriver.Driver) bool { _, ok := d.(*sqlite3.SQLiteDriver); return ok }
