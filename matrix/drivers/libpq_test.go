//go:build matrix && libpq

package drivers

import (
	"database/sql"

	_ "github.com/lib/pq" // the driver "postgres"

	"github.com/sqllock/sqllock/internal/pairs"
	"github.com/sqllock/sqllock/internal/testdb"
	"github.com/sqllock/sqllock/lockpg"
	"github.com/sqllock/sqllock/sqllocktest"
)

var ways = []through{{
	name: "lib/pq",
	engine: &pairs.Engine{
		Name: testdb.Postgres, Kill: pairs.KillPostgres,
		Harness: throughPQ(),
		Open:    func(db *sql.DB) pairs.Database { return lockpg.DB(db) },
		Source:  func(d *testdb.Database) string { return d.DSN() },
	},
	modes:  []func(*pairs.Engine) sqllocktest.Harness{unique, forUpdate, advisory},
	direct: true,
	// It describes each statement before it runs it, and sends one at a time.
	adapt: func(h *sqllocktest.Harness) {
		network := *h.Network
		network.RoundTrips *= 2
		h.Network = &network
		h.AllStatements, h.NewStatements, h.UnlockStatements, h.GuardStatements = 0, 0, 0, 0
	},
}}

func throughPQ() sqllocktest.Harness {
	h := pairs.Postgres
	h.Driver = "postgres"
	return h
}
