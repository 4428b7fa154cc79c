package workload

import (
	"fmt"

	"github.com/sqllock/sqllock/bench/internal/server"
)

// Statements that count. Postgres counts those of sessions that asked for it, see
// contender.Site; MariaDB counts all, SHOW itself too.
//
// What Postgres has logged is that of the counted statements, without the records of
// commits: the log has no part of its own for a database.
var (
	postgresTexts = countTexts{
		setup: `CREATE EXTENSION IF NOT EXISTS pg_stat_statements`,
		load: `SELECT coalesce(sum(s.calls), 0), coalesce(max(d.tup_inserted + d.tup_updated + d.tup_deleted), 0), coalesce(sum(s.wal_bytes), 0)
			FROM pg_stat_database d LEFT JOIN pg_stat_statements s ON s.dbid = d.datid WHERE d.datname = $1`,
		conns:    `SELECT count(*) FROM pg_stat_activity WHERE datname = $1 AND backend_type = 'client backend'`,
		sessions: `SELECT pid FROM pg_stat_activity WHERE datname = $1`,
		kill:     `SELECT pg_terminate_backend($1)`,
	}
	mariadbTexts = countTexts{
		load: `SELECT coalesce(sum(CASE WHEN variable_name = 'QUESTIONS' THEN variable_value END), 0),
			(SELECT coalesce(sum(rows_changed), 0) FROM information_schema.table_statistics WHERE table_schema = ?),
			coalesce(sum(CASE WHEN variable_name = 'INNODB_LSN_CURRENT' THEN variable_value END), 0)
			FROM information_schema.global_status WHERE variable_name IN ('QUESTIONS', 'INNODB_LSN_CURRENT')`,
		rowsOn:   `SET GLOBAL userstat = 1`,
		rowsOff:  `SET GLOBAL userstat = 0`,
		conns:    `SELECT count(*) FROM information_schema.processlist WHERE db = ?`,
		sessions: `SELECT id FROM information_schema.processlist WHERE db = ?`,
		kill:     `KILL ?`,
	}
)

const countLocks = `SELECT count(*) FROM sqllock_lock`

// countWaiting counts those who wait for any name.
const countWaiting = `SELECT coalesce(sum(waiting), 0) FROM sqllock_lock`

// countExpired counts claims that wait for any name and whose Locker has no row that says
// that it lives, by server.
var countExpired = map[string]string{
	server.Postgres: countNotAlive + `(date_part('epoch', clock_timestamp()) * 1000000)::bigint`,
	server.MariaDB:  countNotAlive + `TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))`,
}

const countNotAlive = `SELECT count(*) FROM sqllock_claim c LEFT JOIN sqllock_waiter w ON w.locker = c.locker
	WHERE c.state = 0 AND coalesce(w.expires_at, 0) <= `

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
