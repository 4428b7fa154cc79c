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
		difftest.Run(t, difftest.Fixture{
			DB: db,
			Open: func(tb testing.TB, client driver.Client) driver.Store {
				s, err := lockmysql.DB(db).OpenUnique(tb.Context(), client)
				if err != nil {
					tb.Fatal(err)
				}
				return s
			},
			SetClock: func(tb testing.TB, to int64) {
				exec(t, db, fmt.Sprintf("SET timestamp = %d.%06d", to/1e6, to%1e6))
			},
			ID:        "LOWER(HEX(%s))",
			Text:      "COALESCE(%s, '')",
			Parameter: "?",
		}, difftest.Steps())
	})
}
