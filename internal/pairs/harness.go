package pairs

import (
	"context"
	"database/sql"
	"fmt"
	"net"
	"os"
	"strings"

	"github.com/go-sql-driver/mysql"
	"github.com/sqllock/sqllock/sqllocktest"
)

// What the conformance suite needs to know of each database.

// SQLite is for SQLite through modernc.org/sqlite.
var SQLite = sqllocktest.Harness{
	Driver: "sqlite",
	Table:  sqllocktest.LeaseTable("?", "BEGIN IMMEDIATE", ""),
	// The last write to the file and to its write-ahead log.
	Traces: func(ctx context.Context, db *sql.DB) (string, error) {
		var path, all string
		if err := db.QueryRowContext(ctx, `SELECT file FROM pragma_database_list WHERE name = 'main'`).Scan(&path); err != nil {
			return "", err
		}
		for _, p := range []string{path, path + "-wal"} {
			info, err := os.Stat(p)
			if err != nil {
				return "", err
			}
			all += fmt.Sprint(info.Size(), " bytes at ", info.ModTime().UnixNano(), "; ")
		}
		return all, nil
	},
	Settings: func(ctx context.Context, conn *sql.Conn) (string, error) {
		var all []string
		for _, name := range []string{"busy_timeout", "journal_mode", "synchronous", "foreign_keys", "query_only", "read_uncommitted"} {
			var value string
			if err := conn.QueryRowContext(ctx, "PRAGMA "+name).Scan(&value); err != nil {
				return "", err
			}
			all = append(all, name+" = "+value)
		}
		return strings.Join(all, "\n"), nil
	},
	ReadOnly: func(dsn string) string { return dsn + "&mode=ro" },

	// A look and a write; three set a time-out and put it back.
	AllStatements: 2 + 3, NewStatements: 2 + 3, UnlockStatements: 1 + 3, GuardStatements: 2,
}

// Postgres is for Postgres through pgx.
var Postgres = sqllocktest.Harness{
	Driver: "pgx",
	Table:  sqllocktest.LeaseTable("$1", "BEGIN", `SELECT 1 FROM sqllock_lock WHERE name = $1 FOR UPDATE`),
	Network: &sqllocktest.Network{
		Address: func(dsn string) string {
			rest := dsn[strings.Index(dsn, "@")+1:]
			return rest[:strings.Index(rest, "/")]
		},
		Via: func(dsn, addr string) string {
			before, rest, _ := strings.Cut(dsn, "@")
			return before + "@" + addr + rest[strings.Index(rest, "/"):]
		},
		RoundTrips: 2,
	},
	Traces: func(ctx context.Context, db *sql.DB) (s string, err error) {
		err = db.QueryRowContext(ctx, `SELECT pg_current_wal_insert_lsn() || ' ' || txid_snapshot_xmax(txid_current_snapshot())`).Scan(&s)
		return s, err
	},
	Settings: func(ctx context.Context, conn *sql.Conn) (s string, err error) {
		// Those of PL/pgSQL are there from the first call of a function on.
		err = conn.QueryRowContext(ctx, `SELECT string_agg(name || ' = ' || setting, chr(10) ORDER BY name) FROM pg_settings WHERE name NOT LIKE 'plpgsql.%'`).Scan(&s)
		return s, err
	},
	ReadOnly: func(dsn string) string { return dsn + "&default_transaction_read_only=on" },

	AllStatements: 1, NewStatements: 1, UnlockStatements: 1, GuardStatements: 1,
}

// MariaDB and MySQL are for servers of these, through go-sql-driver.
var (
	MariaDB = ofMySQL("tx_read_only", 4, 2, 8)          // a look comes first, but for names just freed; new names are visited
	MySQL   = ofMySQL("transaction_read_only", 6, 0, 0) // a look comes first; visits all; not measured
)

// ofMySQL is for MySQL and MariaDB, which differ in the name of a variable, and in the statements
// that lock names. Each of these is prepared and executed.
func ofMySQL(readOnly string, trips, all, fresh int) sqllocktest.Harness {
	return sqllocktest.Harness{
		Driver: "mysql",
		Table:  sqllocktest.LeaseTable("?", "START TRANSACTION", `SELECT 1 FROM sqllock_lock WHERE name = ? FOR UPDATE`),
		Network: &sqllocktest.Network{
			Address: func(dsn string) string { return Parsed(dsn).Addr },
			Via: func(dsn, addr string) string {
				cfg := Parsed(dsn)
				cfg.Net, cfg.Addr = "tcp", addr
				return cfg.FormatDSN()
			},
			RoundTrips: trips,
		},
		// How much was written to the redo log. MySQL does not tell its position at once.
		Traces: func(ctx context.Context, db *sql.DB) (string, error) {
			return showAll(ctx, db, `SHOW GLOBAL STATUS WHERE Variable_name IN ('Innodb_lsn_current', 'Innodb_log_write_requests')`)
		},
		Settings: func(ctx context.Context, conn *sql.Conn) (string, error) {
			return showAll(ctx, conn, `SHOW SESSION VARIABLES WHERE Variable_name NOT IN ('timestamp', 'pseudo_thread_id',
				'rand_seed1', 'rand_seed2', 'last_insert_id', 'identity', 'insert_id', 'error_count', 'warning_count', 'statement_id')
				AND Variable_name NOT LIKE '%gtid%'`)
		},
		ReadOnly: func(dsn string) string {
			cfg := Parsed(dsn)
			cfg.Params = map[string]string{readOnly: "1"}
			return cfg.FormatDSN()
		},

		AllStatements: all, NewStatements: fresh, UnlockStatements: 1, GuardStatements: 3, // a look comes first
	}
}

// Parsed is a DSN of MySQL that testdb made.
func Parsed(dsn string) *mysql.Config {
	cfg, err := mysql.ParseDSN(dsn)
	if err != nil {
		panic(fmt.Sprintf("bug: testdb made the DSN: %v", err))
	}
	if _, _, err := net.SplitHostPort(cfg.Addr); err != nil {
		panic(fmt.Sprintf("bug: %v", err))
	}
	return cfg
}

// showAll reads the answer of a SHOW statement.
func showAll(ctx context.Context, db interface {
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
}, query string) (string, error) {
	rows, err := db.QueryContext(ctx, query)
	if err != nil {
		return "", err
	}
	defer func() { _ = rows.Close() }()
	var all []string
	for rows.Next() {
		var name, value string
		if err := rows.Scan(&name, &value); err != nil {
			return "", err
		}
		all = append(all, name+" = "+value)
	}
	return strings.Join(all, "\n"), rows.Err()
}

// KillPostgres and KillMySQL list the statements that end all other sessions of the database.
const (
	KillPostgres = `SELECT 'SELECT pg_terminate_backend(' || pid || ')' FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()`
	KillMySQL    = `SELECT concat('KILL ', id) FROM information_schema.processlist WHERE db = database() AND id <> connection_id()`
)

// killAll runs the statements that a query lists. A session may be gone already.
func killAll(ctx context.Context, db *sql.DB, query string) error {
	conn, err := db.Conn(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	rows, err := conn.QueryContext(ctx, query)
	if err != nil {
		return err
	}
	defer func() { _ = rows.Close() }()
	var all []string
	for rows.Next() {
		var statement string
		if err := rows.Scan(&statement); err != nil {
			return err
		}
		all = append(all, statement)
	}
	for _, statement := range all {
		_, _ = conn.ExecContext(ctx, statement)
	}
	return rows.Err()
}
