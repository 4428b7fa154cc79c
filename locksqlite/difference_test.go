package locksqlite_test

import (
	"database/sql"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/sqllock/sqllock/driver"
	"github.com/sqllock/sqllock/internal/difftest"
	"github.com/sqllock/sqllock/locksqlite"
)

// clock is the expression of the clock in the statements of the library.
const clock = `CAST(round((julianday('now') - 2440587.5) * 86400000) AS INTEGER) * 1000`

func TestGeneratedStepsDoWhatTheStateMachineSays(t *testing.T) {
	t.Parallel()
	path := migrated(t)
	var now atomic.Int64
	db := sql.OpenDB(spyConnector{
		driver:  open(t, path).Driver(),
		dsn:     "file:" + path + "?_pragma=journal_mode(wal)&_pragma=synchronous(0)",
		before:  func(string) error { return nil },
		rewrite: func(text string) string { return strings.ReplaceAll(text, clock, strconv.FormatInt(now.Load(), 10)) },
	})
	t.Cleanup(func() { _ = db.Close() })
	difftest.Run(t, difftest.Fixture{
		DB: db,
		Open: func(tb testing.TB, client driver.Client) driver.Store {
			s, err := locksqlite.DB(db).OpenUnique(tb.Context(), client)
			if err != nil {
				tb.Fatal(err)
			}
			return s
		},
		SetClock:  func(_ testing.TB, to int64) { now.Store(to) },
		ID:        "lower(hex(%s))",
		Text:      "coalesce(%s, '')",
		Parameter: "?",
	}, difftest.Steps())
}
