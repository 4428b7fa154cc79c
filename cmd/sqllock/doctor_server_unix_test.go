//go:build unix

package main

import (
	"context"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sqllock/sqllock/internal/testdb"
)

func onPostgres(t *testing.T, test func(t *testing.T, s *clientDB)) {
	onServers(t, test, testdb.Postgres)
}

func onMySQL(t *testing.T, test func(t *testing.T, s *clientDB)) {
	onServers(t, test, testdb.MariaDB, testdb.MySQL)
}

// with returns a client with more parameters in its DSN.
func (s *clientDB) with(t *testing.T, params ...string) client {
	t.Helper()
	u, err := url.Parse(s.dsn)
	if err != nil {
		t.Fatal(err)
	}
	q := u.Query()
	for _, p := range params {
		key, value, _ := strings.Cut(p, "=")
		q.Set(key, value)
	}
	u.RawQuery = strings.ReplaceAll(q.Encode(), "+", "%20")
	return client{home: s.home, dsn: u.String()}
}

func TestDoctorOnSessionsOfPostgres(t *testing.T) {
	t.Parallel()
	onPostgres(t, func(t *testing.T, s *clientDB) {
		s.with(t, "default_transaction_read_only=on").finds(t, exitNo, "bad", "writes", "default_transaction_read_only")
		s.with(t, "default_transaction_isolation=serializable").finds(t, 0, "warn", "isolation", "serializable")
		s.with(t, "synchronous_commit=off").finds(t, 0, "ok", "durability", "switched on for each grant")
		s.with(t, "statement_timeout=500").finds(t, 0, "warn", "time-outs", "statement_timeout is 500ms")
		s.with(t, "lock_timeout=1").finds(t, 0, "ok", "time-outs")
		s.finds(t, 0, "ok", "pooler")
		s.finds(t, 0, "ok", "clock")
	})
}

func TestDoctorOnTablesOfPostgres(t *testing.T) {
	t.Parallel()
	onPostgres(t, func(t *testing.T, s *clientDB) {
		s.exec(t, "ALTER TABLE sqllock_lock SET UNLOGGED")
		s.finds(t, exitNo, "bad", "tables", "unlogged", "SET LOGGED")
		s.exec(t, "ALTER TABLE sqllock_lock SET LOGGED")
		s.exec(t, "CREATE INDEX useless ON sqllock_lock (expires_at)")
		s.finds(t, 0, "warn", "index", "useless", "drop")
		s.exec(t, "DROP INDEX useless")
		s.exec(t, "ALTER TABLE sqllock_lock SET (autovacuum_enabled = false)")
		s.exec(t, "INSERT INTO sqllock_lock (name, version) SELECT i::text, 1 FROM generate_series(1, 20000) i")
		s.exec(t, "DELETE FROM sqllock_lock")
		eventually(t, "the server has counted", func() bool {
			return strings.Contains(s.run(t, "doctor").out, "20000 are dead")
		})
		s.finds(t, 0, "warn", "dead rows", "VACUUM")
		s.exec(t, "CREATE SCHEMA other")
		s.exec(t, "ALTER TABLE sqllock_lock SET SCHEMA other")
		s.finds(t, exitNo, "bad", "tables", "schema other", "--schema")
	})
}

// openTransaction starts a transaction that has written, and returns when it is over a second old.
func (s *clientDB) openTransaction(t *testing.T) {
	t.Helper()
	tx, err := s.db.BeginTx(context.Background(), nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = tx.Rollback() })
	if _, err := tx.Exec("INSERT INTO sqllock_lock (name, version) VALUES ('open', 1)"); err != nil {
		t.Fatal(err)
	}
	time.Sleep(2100 * time.Millisecond)
}

func TestDoctorOnSessionsOfMySQL(t *testing.T) {
	t.Parallel()
	onMySQL(t, func(t *testing.T, s *clientDB) {
		s.with(t, "autocommit=0").finds(t, exitNo, "bad", "writes", "autocommit")
		s.with(t, "wait_timeout=5").finds(t, 0, "warn", "time-outs", "wait_timeout is 5s")
		var isolation, readOnly string
		for what, name := range map[string]*string{"isolation": &isolation, "read_only": &readOnly} {
			if err := s.db.QueryRow("SHOW VARIABLES WHERE Variable_name IN (?, ?)", "tx_"+what, "transaction_"+what).Scan(name, new(string)); err != nil {
				t.Fatal(err)
			}
		}
		s.with(t, isolation+"='READ-UNCOMMITTED'").finds(t, 0, "warn", "isolation", "READ-UNCOMMITTED")
		s.with(t, isolation+"='SERIALIZABLE'").finds(t, 0, "ok", "isolation", "SERIALIZABLE")
		s.with(t, readOnly+"=1").finds(t, exitNo, "bad", "writes", readOnly)
	})
}

// indexesInStatements are those that statements of MySQL name, without which they fail.
func indexesInStatements(t *testing.T) (indexes []string) {
	t.Helper()
	files, err := filepath.Glob("../../lockmysql/sql/*.sql")
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, match := range regexp.MustCompile(`FORCE INDEX \((sqllock_\w+)\)`).FindAllSubmatch(text, -1) {
			indexes = append(indexes, string(match[1]))
		}
	}
	slices.Sort(indexes)
	return slices.Compact(indexes)
}

func TestDoctorOnTablesOfMySQL(t *testing.T) {
	t.Parallel()
	onMySQL(t, func(t *testing.T, s *clientDB) {
		s.exec(t, "ALTER TABLE sqllock_lock DROP INDEX sqllock_guard")
		s.finds(t, exitNo, "bad", "index", "sqllock_guard", "ADD UNIQUE INDEX")
		s.exec(t, "ALTER TABLE sqllock_lock ADD UNIQUE INDEX sqllock_guard (version, name)")
		s.finds(t, 0, "ok", "index")
		for _, index := range indexesInStatements(t) {
			var table string
			if err := s.db.QueryRow("SELECT MAX(TABLE_NAME) FROM information_schema.STATISTICS WHERE TABLE_SCHEMA = DATABASE() AND INDEX_NAME = ?", index).Scan(&table); err != nil {
				t.Fatal(err)
			}
			s.exec(t, "ALTER TABLE "+table+" DROP INDEX "+index)
			report := s.finds(t, exitNo, "bad", "index", index, "ADD ")
			s.exec(t, regexp.MustCompile(`ALTER TABLE \S+ ADD .*\)`).FindString(report))
			s.finds(t, 0, "ok", "index")
		}
		s.exec(t, "ALTER TABLE sqllock_lock ENGINE = MyISAM")
		s.finds(t, exitNo, "bad", "tables", "MyISAM", "ENGINE = InnoDB")
	})
}

func TestDoctorSeesTheTransactionsOfOthersIfItMay(t *testing.T) {
	t.Parallel()
	onEachServer(t, func(t *testing.T, s *clientDB) {
		u := s.account(t, s.all()...)
		s.openTransaction(t)
		u.finds(t, 0, "ok", "transactions", "could not be looked at")
	})
}

// A server of its own is set up badly.
func badServer(t *testing.T, engine string, args ...string) *clientDB {
	t.Helper()
	server := testdb.StartServer(t, engine, args...)
	return &clientDB{client: client{home: t.TempDir(), dsn: dsn(t, server.Database, "")}, d: server.Database, db: server.Open(t)}
}

func TestServersThatForgetAreBadAndRefusedUnlessAllowed(t *testing.T) {
	t.Parallel()
	settings := map[string][][2]string{
		testdb.Postgres: {{"fsync=off", "fsync is off"}, {"full_page_writes=off", "full_page_writes is off"}},
		testdb.MariaDB:  {{"--innodb-flush-log-at-trx-commit=2", "innodb_flush_log_at_trx_commit is 2"}},
	}
	for _, engine := range testdb.Startable() {
		for _, setting := range settings[engine] {
			t.Run(setting[0], func(t *testing.T) {
				args := []string{setting[0]}
				if engine == testdb.Postgres {
					args = []string{"-c", setting[0]}
				}
				s := badServer(t, engine, args...)
				s.run(t, "migrate", "up").want(t, 0, "", "")
				s.finds(t, exitNo, "bad", "durability", setting[1])
				for _, m := range []string{"unique", "forupdate", "advisory"} {
					s.run(t, "run", "--mode", m, m, "--", "true").want(t, exitUnavailable, "", "; --allow-unsafe-durability accepts that")
					s.run(t, "run", "--mode", m, "--allow-unsafe-durability", m, "--", "echo", "ran").want(t, 0, "ran", "warning: ")
				}
				s.run(t, "ls").want(t, exitUnavailable, "", "; --allow-unsafe-durability accepts that")
				r := s.run(t, "--allow-unsafe-durability", "ls", "--all")
				if r.want(t, 0, "unique ", ""); r.err != "" {
					t.Errorf("ls says %s", r.err)
				}
			})
		}
	}
}

func TestDoctorOnServersThatAreSetUpBadly(t *testing.T) {
	t.Parallel()
	for _, engine := range testdb.Startable() {
		t.Run(engine, func(t *testing.T) {
			if engine == testdb.Postgres {
				s := badServer(t, engine, "-c", "autovacuum=off")
				s.run(t, "migrate", "up").want(t, 0, "", "")
				s.finds(t, 0, "warn", "dead rows", "autovacuum is off")
				s.exec(t, "UPDATE pg_index SET indisvalid = false WHERE indrelid = 'sqllock_lock'::regclass")
				s.finds(t, exitNo, "bad", "index", "sqllock_lock_pkey is not valid", "REINDEX")
				s.exec(t, "REINDEX TABLE sqllock_lock")
				s.finds(t, 0, "ok", "index", "sqllock_lock_pkey")
				return
			}
			s := badServer(t, engine, "--log-bin=bin", "--sync-binlog=0", "--binlog-format=STATEMENT")
			s.run(t, "migrate", "up").want(t, 0, "", "")
			s.finds(t, 0, "warn", "durability", "sync_binlog is 0")
			s.finds(t, 0, "warn", "replication", "STATEMENT")
			s.exec(t, "SET GLOBAL read_only = 1")
			s.finds(t, exitNo, "bad", "writes", "read_only is ON")
		})
	}
}

func TestDoctorOnAStandby(t *testing.T) {
	t.Parallel()
	for _, engine := range testdb.Startable() {
		if engine != testdb.Postgres {
			continue
		}
		server := testdb.StartServer(t, engine)
		s := newClientDB(t, server.Database)
		// With this file a server starts in recovery and waits for a primary for ever.
		var signal string
		if err := s.db.QueryRow("SELECT current_setting('data_directory') || '/standby.signal'").Scan(&signal); err != nil {
			t.Fatal(err)
		}
		s.exec(t, "COPY (SELECT WHERE false) TO '"+signal+"'")
		server.Restart()
		out := s.finds(t, exitNo, "bad", "server", "standby", "primary")
		if strings.Contains(out, "could not be looked at") {
			t.Errorf("on a standby:\n%s", out)
		}
	}
}
