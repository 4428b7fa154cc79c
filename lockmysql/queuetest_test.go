package lockmysql_test

import (
	"slices"
	"testing"

	"github.com/sqllock/sqllock/driver"
	"github.com/sqllock/sqllock/internal/queuetest"
	"github.com/sqllock/sqllock/internal/testdb"
	"github.com/sqllock/sqllock/lockmysql"
)

func TestQueueAndSharedTermsInEverySession(t *testing.T) {
	t.Parallel()
	eachServer(t, func(t *testing.T, f *fixture) {
		all := sessions(t, f)
		all["many settings"] = []string{"clientFoundRows=true", "interpolateParams=true", "charset=latin1", "sql_safe_updates=1",
			"sql_mode='ANSI,NO_BACKSLASH_ESCAPES,HIGH_NOT_PRECEDENCE'", "time_zone='-07:30'", "parseTime=true", "loc=Asia/Kolkata"}
		for _, name := range []string{"plain", "READ UNCOMMITTED", "READ COMMITTED", "SERIALIZABLE", "many settings"} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				f := &fixture{testdb.New(t, f.Engine())}
				f.migrate(t)
				// A server that logs statements, if one can be started, has the long tests.
				f.queue(t, name != "plain" || slices.Contains(testdb.Startable(), f.Engine()), all[name]...)
			})
		}
	})
}

// A server that logs statements takes no writes in READ COMMITTED.
func TestQueueAndSharedTermsOnAServerThatLogsStatements(t *testing.T) {
	t.Parallel()
	for _, engine := range testdb.Startable() {
		if engine == testdb.Postgres {
			continue
		}
		t.Run(engine, func(t *testing.T) {
			f := &fixture{testdb.StartServer(t, engine, "--log-bin", "--sync-binlog=1", "--binlog-format=STATEMENT").Database}
			f.migrate(t)
			for _, level := range []string{"REPEATABLE-READ", "SERIALIZABLE"} {
				t.Run(level, func(t *testing.T) {
					for _, table := range []string{"lock", "claim", "waiter"} {
						exec(t, f.Open(t), "DELETE FROM `sqllock_"+table+"`")
					}
					before := deadlocks(t, f)
					f.queue(t, level != "REPEATABLE-READ", f.isolation(t, level))
					if n := deadlocks(t, f) - before; n > 50 { // of thousands of transactions
						t.Errorf("%d deadlocks", n)
					}
				})
			}
		})
	}
}

// deadlocks is how many the server has met.
func deadlocks(t *testing.T, f *fixture) (n int) {
	t.Helper()
	text := "SELECT VARIABLE_VALUE FROM information_schema.GLOBAL_STATUS WHERE VARIABLE_NAME = 'Innodb_deadlocks'"
	if f.Engine() == testdb.MySQL {
		text = "SELECT COUNT FROM information_schema.INNODB_METRICS WHERE NAME = 'lock_deadlocks'"
	}
	if err := f.Open(t).QueryRow(text).Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

func (f *fixture) queue(t *testing.T, short bool, params ...string) {
	queuetest.Run(t, queuetest.Fixture{
		DB: f.Open(t),
		Open: func(tb testing.TB, client driver.Client) driver.Store {
			return openClient(tb, f.Open(tb, params...), client)
		},
		Clock:    clock,
		Classify: new(lockmysql.Database).Classify,
		Rows:     true,
		Short:    short || testing.Short(),
	})
}

func TestAStoreKeepsAConnectionUntilItIsIdle(t *testing.T) {
	t.Parallel()
	eachServer(t, func(t *testing.T, f *fixture) {
		db := f.Open(t)
		queuetest.KeepsAConnection(t, db, func(c driver.Client) driver.Store { return openClient(t, db, c) }, lockmysql.Classify)
	})
}
