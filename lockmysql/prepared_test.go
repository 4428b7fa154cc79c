package lockmysql_test

import (
	"database/sql"
	sqldriver "database/sql/driver"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/sqllock/sqllock/driver"
	"github.com/sqllock/sqllock/internal/testdb"
	"github.com/sqllock/sqllock/lockmysql"
)

// statementCount is what the server says of a session, or of all sessions.
func statementCount(t *testing.T, db *sql.DB, name string) (n int) {
	t.Helper()
	if err := db.QueryRow("SHOW GLOBAL STATUS LIKE '"+name+"'").Scan(new(string), &n); err != nil {
		t.Fatal(err)
	}
	return n
}

// cycles locks and unlocks names, one after the other.
func cycles(t *testing.T, s driver.Store, n int) {
	t.Helper()
	for range n {
		reqs := requests(1, "a name %d")
		if freed := release(t, s, releases(reqs, take(t, s, reqs...))...); !freed[0] {
			t.Error("not freed")
		}
	}
}

func TestStatementsOfTheReservedConnectionArePreparedOnce(t *testing.T) {
	t.Parallel()
	for _, engine := range testdb.Startable() {
		if engine == testdb.Postgres {
			continue
		}
		t.Run(engine, func(t *testing.T) {
			f := &fixture{testdb.StartServer(t, engine).Database}
			f.migrate(t)
			for _, params := range []string{"interpolateParams=false", "interpolateParams=true"} {
				s, db := f.store(t, params)
				db.SetMaxOpenConns(2)
				own, err := lockmysql.Reserve(t.Context(), s)
				if err != nil {
					t.Fatal(err)
				}
				cycles(t, own, 3)
				prepared, kept := statementCount(t, db, "Com_stmt_prepare"), statementCount(t, db, "Prepared_stmt_count")
				if kept == 0 {
					t.Error("no statement is prepared")
				}
				cycles(t, own, 20)
				if n := statementCount(t, db, "Com_stmt_prepare") - prepared; n > 0 {
					t.Errorf("%s: 20 cycles prepared %d statements", params, n)
				}
				if err := own.Close(); err != nil {
					t.Fatal(err)
				}
				for n, until := -1, time.Now().Add(20*time.Second); n != 0; time.Sleep(time.Millisecond) {
					if n = statementCount(t, db, "Prepared_stmt_count"); time.Now().After(until) {
						t.Fatalf("%s: %d statements are left on a connection that was given back", params, n)
					}
				}

				// A server that keeps no more takes them as text.
				exec(t, db, "SET GLOBAL max_prepared_stmt_count = 0")
				if params == "interpolateParams=true" {
					cycles(t, reserve(t, s), 3)
				}
				exec(t, db, "SET GLOBAL max_prepared_stmt_count = 1000")
			}
		})
	}
}

// Nothing is sent on a connection that is known to be dead. Then it is replaced.
func TestAPreparedStatementOnADeadConnectionWasNotSent(t *testing.T) {
	t.Parallel()
	eachServer(t, func(t *testing.T, f *fixture) {
		s, db := f.store(t)
		db.SetMaxOpenConns(2)
		for _, runs := range []int{1, 3} {
			own := reserve(t, s)
			cycles(t, own, runs)
			admin := f.Open(t)
			rows, err := admin.Query("SELECT id FROM information_schema.processlist WHERE db = DATABASE() AND id <> CONNECTION_ID()")
			if err != nil {
				t.Fatal(err)
			}
			var ids []int
			for rows.Next() {
				var id int
				if err := rows.Scan(&id); err != nil {
					t.Fatal(err)
				}
				ids = append(ids, id)
			}
			if err := rows.Close(); err != nil {
				t.Fatal(err)
			}
			for _, id := range ids {
				exec(t, admin, fmt.Sprintf("KILL CONNECTION %d", id)) // MySQL does not prepare it
			}
			for end := time.Now().Add(minute); time.Now().Before(end); time.Sleep(time.Millisecond) { // the server ends them a moment later
				var left int
				err := admin.QueryRow("SELECT COUNT(*) FROM information_schema.processlist WHERE db = DATABASE() AND id <> CONNECTION_ID()").Scan(&left)
				if err != nil {
					t.Fatal(err)
				}
				if left == 0 {
					break
				}
			}
			if _, err := own.Acquire(t.Context(), requests(1, "a name %d")); err == nil {
				t.Error("a grant on a session that was ended")
			}
			_, err = own.Acquire(t.Context(), requests(1, "a name %d"))
			if !errors.Is(err, sqldriver.ErrBadConn) || lockmysql.Classify(err) != driver.Unreachable {
				t.Errorf("after %d cycles: %v", runs, err)
			}
		}
	})
}
