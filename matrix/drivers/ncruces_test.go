//go:build matrix && ncruces

package drivers

import (
	sqldriver "database/sql/driver"

	"github.com/ncruces/go-sqlite3/driver"
	_ "github.com/ncruces/go-sqlite3/embed" // SQLite itself
)

var ways = []through{sqlite("ncruces", "_pragma=busy_timeout(5000)&_pragma=journal_mode(WAL)&_pragma=synchronous(NORMAL)")}

func isDriver(d sqldriver.Driver) bool { _, ok := d.(*driver.SQLite); return ok }
