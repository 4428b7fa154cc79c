package doctor

import (
	"database/sql"
	"testing"
	"time"

	"github.com/sqllock/sqllock/internal/testdb"
)

func TestMain(m *testing.M) { testdb.Main(m) }

func TestOpenTransactionsAreSeen(t *testing.T) {
	t.Parallel()
	for _, engine := range testdb.Engines() {
		t.Run(engine, func(t *testing.T) {
			t.Parallel()
			db := testdb.New(t, engine).Open(t)
			if _, err := db.Exec("CREATE TABLE t (id INTEGER)"); err != nil {
				t.Fatal(err)
			}
			conn, err := db.Conn(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = conn.Close() }()
			writeAndStayOpen(t, db)
			time.Sleep(2100 * time.Millisecond) // ages are whole seconds
			c := &checker{conn: conn}
			var age time.Duration
			if engine == testdb.Postgres {
				age, _, err = (&postgresChecker{checker: c}).oldestTransaction(t.Context())
			} else {
				age, err = (&mysqlChecker{checker: c}).oldestTransaction(t.Context())
			}
			if err != nil || age < time.Second {
				t.Errorf("the oldest transaction is %v old, %v", age, err)
			}
		})
	}
}

// writeAndStayOpen begins a transaction that has changed something, until the end of the test.
func writeAndStayOpen(t *testing.T, db *sql.DB) {
	t.Helper()
	tx, err := db.Begin()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = tx.Rollback() })
	if _, err := tx.Exec("INSERT INTO t (id) VALUES (1)"); err != nil {
		t.Fatal(err)
	}
}
