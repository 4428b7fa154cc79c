package workload

import (
	"fmt"

	"github.com/sqllock/sqllock/bench/internal/server"
)

// Statements that the workloads run themselves. Postgres counts those of sessions
// that asked for it, see contender.Site; MariaDB counts all, SHOW itself too.
const (
	postgresExtension  = `CREATE EXTENSION IF NOT EXISTS pg_stat_statements`
	postgresStatements = `SELECT coalesce(sum(s.calls), 0) FROM pg_stat_statements s JOIN pg_database d ON d.oid = s.dbid WHERE d.datname = $1`
	postgresConns      = `SELECT count(*) FROM pg_stat_activity WHERE datname = $1`

	mariadbStatements = `SELECT variable_value FROM information_schema.global_status WHERE variable_name = 'QUESTIONS'`
	mariadbConns      = `SELECT count(*) FROM information_schema.processlist WHERE db = ?`

	countLocks = `SELECT count(*) FROM sqllock_lock`
)

// fillStatements insert idle rows named 1 to n. The table is named by this
// program, not by a user.
func fillStatements(engine, table string, n int) []string {
	const numbers = `WITH RECURSIVE s(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM s WHERE n < %d)`
	switch engine {
	case server.Postgres:
		return []string{
			fmt.Sprintf(`INSERT INTO %s (name, version) SELECT n::text, n FROM generate_series(1, %d) n`, table, n),
			`VACUUM ANALYZE ` + table,
		}
	case server.MariaDB:
		return []string{
			`SET max_recursive_iterations = 2000000`,
			fmt.Sprintf(`INSERT INTO %s (name, version) `+numbers+` SELECT n, n FROM s`, table, n),
			`ANALYZE TABLE ` + table,
		}
	}
	return []string{fmt.Sprintf(`INSERT INTO %s (name, version) `+numbers+` SELECT n, n FROM s`, table, n), `ANALYZE`}
}
