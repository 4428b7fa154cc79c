//go:build matrix && pgbouncer

package drivers

import (
	"database/sql"
	"testing"

	_ "github.com/jackc/pgx/v5/stdlib" // the driver "pgx"

	"github.com/sqllock/sqllock/internal/pairs"
	"github.com/sqllock/sqllock/internal/testdb"
	"github.com/sqllock/sqllock/lockpg"
	"github.com/sqllock/sqllock/sqllocktest"
)

var ways = []through{
	pgbouncer("transaction", unique),
	pgbouncer("session", unique, forUpdate, advisory),
}

// pgbouncer is Postgres through a pooler in a pool_mode.
func pgbouncer(mode string, modes ...func(*pairs.Engine) sqllocktest.Harness) through {
	var addr string
	var opts []lockpg.Option
	if mode == "session" {
		opts = append(opts, lockpg.AllowSessionPooler())
	}
	e := &pairs.Engine{
		Name: testdb.Postgres, Harness: pairs.Postgres, Kill: pairs.KillPostgres,
		Open:   func(db *sql.DB) pairs.Database { return lockpg.DB(db, opts...) },
		Source: func(d *testdb.Database) string { return d.DSNVia(addr) },
	}
	return through{
		name: "pgbouncer in " + mode + " mode", engine: e, modes: modes,
		begin: func(t *testing.T) { addr = testdb.StartPooler(t, testdb.New(t, testdb.Postgres), mode) },
		// It knows no parameter default_transaction_read_only, and in transaction mode the settings
		// are those of any session.
		adapt: func(h *sqllocktest.Harness) {
			h.ReadOnly = nil
			if mode == "transaction" {
				h.Settings = nil
			}
		},
	}
}
