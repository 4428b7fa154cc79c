package lockmysql_test

import (
	"fmt"
	"testing"

	"github.com/sqllock/sqllock/driver"
	"github.com/sqllock/sqllock/internal/difftest"
	"github.com/sqllock/sqllock/lockmysql"
)

func TestGeneratedStepsDoWhatTheStateMachineSays(t *testing.T) {
	eachServer(t, func(t *testing.T, f *fixture) {
		db := f.Open(t, "interpolateParams=true")
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
				text := fmt.Sprintf("SET timestamp = %d.%06d", to/1e6, to%1e6)
				exec(t, db, text)
				exec(t, reserved, text)
			},
			ID:        "LOWER(HEX(%s))",
			Text:      "COALESCE(%s, '')",
			Parameter: "?",
		}, difftest.Steps())
	})
}
