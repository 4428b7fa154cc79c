package lockmysql_test

import (
	"context"
	"database/sql"
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/go-sql-driver/mysql"

	"github.com/sqllock/sqllock/driver"
	"github.com/sqllock/sqllock/internal/difftest"
	"github.com/sqllock/sqllock/lockmysql"
)

func TestGeneratedStepsDoWhatTheStateMachineSays(t *testing.T) {
	eachServer(t, func(t *testing.T, f *fixture) {
		var clock atomic.Int64
		db := openClocked(t, f.DSN("interpolateParams=true"), &clock)
		db.SetMaxOpenConns(1) // the clock is that of its session
		reserved, err := f.Open(t).Conn(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = reserved.Close() }()
		stores := 0
		difftest.Run(t, difftest.Fixture{
			DB: db,
			Open: func(tb testing.TB, client driver.Client) driver.Store {
				s, err := lockmysql.DB(db).OpenUnique(tb.Context(), client)
				if err != nil {
					tb.Fatal(err)
				}
				if stores++; stores > 1 { // its statements are prepared
					s = lockmysql.OnConn(s, reserved)
				}
				return s
			},
			SetClock: func(tb testing.TB, to int64) {
				clock.Store(to)
				exec(t, db, "SET timestamp = "+timestamp(to))
				exec(t, reserved, "SET timestamp = "+timestamp(to))
			},
			ID:        "LOWER(HEX(%s))",
			Text:      "COALESCE(%s, '')",
			Parameter: "?",
		}, difftest.Steps())
	})
}

// openClocked opens a handle whose new sessions have the time that clock shows: a loaded machine
// may lose one.
func openClocked(t *testing.T, dsn string, clock *atomic.Int64) *sql.DB {
	t.Helper()
	cfg, err := mysql.ParseDSN(dsn)
	if err == nil {
		err = cfg.Apply(mysql.BeforeConnect(func(_ context.Context, c *mysql.Config) error {
			if c.Params == nil {
				c.Params = make(map[string]string)
			}
			c.Params["timestamp"] = timestamp(clock.Load())
			return nil
		}))
	}
	if err != nil {
		t.Fatal(err)
	}
	connector, err := mysql.NewConnector(cfg)
	if err != nil {
		t.Fatal(err)
	}
	db := sql.OpenDB(connector)
	t.Cleanup(func() { _ = db.Close() })
	return db
}

// timestamp is a time in microseconds as the server reads it.
func timestamp(micros int64) string { return fmt.Sprintf("%d.%06d", micros/1e6, micros%1e6) }
