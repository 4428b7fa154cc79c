package doctor

import (
	"context"
	"database/sql"
	"errors"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/go-sql-driver/mysql"
)

// The SQL of doctor on MySQL and MariaDB.
const (
	myServer = `SELECT VERSION()`

	mySettings = `SHOW SESSION VARIABLES WHERE Variable_name IN ('autocommit', 'binlog_format', 'innodb_flush_log_at_trx_commit',
	'innodb_read_only', 'log_bin', 'max_execution_time', 'max_statement_time', 'read_only', 'super_read_only', 'sync_binlog',
	'transaction_isolation', 'transaction_read_only', 'tx_isolation', 'tx_read_only', 'wait_timeout', 'wsrep_on',
	'wsrep_sync_wait')`

	myRedo = `SHOW GLOBAL STATUS LIKE 'Innodb_redo_log_enabled'`

	myNow = `SELECT TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))`

	myTables = `SELECT TABLE_NAME, coalesce(ENGINE, '') FROM information_schema.TABLES
WHERE TABLE_SCHEMA = DATABASE() AND TABLE_NAME IN (?, ?, ?, ?, ?, ?, ?) AND TABLE_TYPE = 'BASE TABLE'`

	myIndexes = `SELECT INDEX_NAME, GROUP_CONCAT(COLUMN_NAME ORDER BY SEQ_IN_INDEX) FROM information_schema.STATISTICS
WHERE TABLE_SCHEMA = DATABASE() AND TABLE_NAME = ? AND NON_UNIQUE = 0 GROUP BY INDEX_NAME`

	myIndex = `SELECT COUNT(*), COALESCE(SUM(INDEX_NAME = ?), 0) FROM information_schema.STATISTICS WHERE TABLE_SCHEMA = DATABASE() AND TABLE_NAME = ?`

	// myOldest knows that InnoDB tells times in the time zone of the host.
	myOldest = `SELECT COALESCE(MAX(TIMESTAMPDIFF(SECOND, trx_started, CONVERT_TZ(UTC_TIMESTAMP(), '+00:00', 'SYSTEM'))), 0) FROM information_schema.INNODB_TRX
WHERE trx_mysql_thread_id <> CONNECTION_ID()`
)

// mysqlChecker is the check of a MySQL or MariaDB database.
type mysqlChecker struct {
	*checker
	settings map[string]string
}

func mysqlChecks(c *checker) []check {
	m := &mysqlChecker{checker: c}
	return []check{
		{"server", m.server}, {"settings", m.readSettings}, {"writes", m.writes}, {"durability", m.durability}, {"replication", m.replication},
		{"isolation", m.isolation}, {"clock", func(ctx context.Context) error { return m.clock(ctx, myNow) }}, {"time-outs", m.timeouts},
		{"tables", m.checkTables}, {"migrations", m.withTables(m.version)}, {"privileges", m.withTables(m.privileges)},
		{"index", m.withTables(m.index)}, {"transactions", m.transactions},
	}
}

var mysqlVersion = regexp.MustCompile(`^(?:5\.5\.5-)?(\d+)\.(\d+)\.`) // some MariaDB hide behind 5.5.5

func (m *mysqlChecker) server(ctx context.Context) error {
	var version string
	if err := m.one(ctx, myServer, nil, &version); err != nil {
		return err
	}
	name, oldest := "MySQL "+version, 8_00
	if strings.Contains(version, "MariaDB") {
		name, oldest = "MariaDB "+version, 10_06
	}
	numbers := mysqlVersion.FindStringSubmatch(version)
	if numbers == nil {
		numbers = []string{"", "0", "0"}
	}
	major, _ := strconv.Atoi(numbers[1])
	minor, _ := strconv.Atoi(numbers[2])
	if 100*major+minor < oldest {
		m.unusable = true
		m.bad("server", name+" is too old or something else", "sqllock works with MySQL 8.0 or newer and MariaDB 10.6 or newer")
		return nil
	}
	m.ok("server", name)
	return nil
}

// read reads the variables as this session has them.
func (m *mysqlChecker) readSettings(ctx context.Context) error {
	m.settings = make(map[string]string)
	add := func(rows *sql.Rows) error {
		var name, value string
		err := rows.Scan(&name, &value)
		m.settings[name] = value
		return err
	}
	if err := m.each(ctx, mySettings, nil, add); err != nil {
		return err
	}
	return m.each(ctx, myRedo, nil, add)
}

// on also takes for on what a later version may know besides OFF.
func (m *mysqlChecker) on(name string) bool {
	switch strings.ToUpper(m.settings[name]) {
	case "", "OFF", "0":
		return false
	}
	return true
}

func (m *mysqlChecker) writes(context.Context) error {
	sound := true
	for _, name := range []string{"read_only", "super_read_only", "innodb_read_only", "transaction_read_only", "tx_read_only"} {
		if m.on(name) {
			sound = false
			m.bad("writes", "the server or this session is read-only: "+name+" is "+m.settings[name], "connect to the primary, or take the setting away")
		}
	}
	if !m.on("autocommit") {
		sound = false
		m.bad("writes", "autocommit is off in this session: nothing would be kept", "take it from the DSN, or from init_connect")
	}
	if sound {
		m.ok("writes", "the server takes writes, and commits them")
	}
	return nil
}

func (m *mysqlChecker) durability(context.Context) error {
	const harm = ": after a crash the server may have forgotten who holds what"
	switch {
	case strings.EqualFold(m.settings["Innodb_redo_log_enabled"], "OFF"):
		m.bad("durability", "the redo log of InnoDB is disabled"+harm, "ALTER INSTANCE ENABLE INNODB REDO_LOG")
	case m.settings["innodb_flush_log_at_trx_commit"] != "1":
		m.bad("durability", "innodb_flush_log_at_trx_commit is "+m.settings["innodb_flush_log_at_trx_commit"]+harm, "set it to 1")
	case m.on("log_bin") && m.settings["sync_binlog"] != "1":
		m.warn("durability", "sync_binlog is "+m.settings["sync_binlog"]+": when the server's host crashes, grants that the binary log has not may be undone", "set it to 1")
	default:
		m.ok("durability", "what is committed is flushed")
	}
	return nil
}

func (m *mysqlChecker) replication(context.Context) error {
	sound := true
	if m.on("log_bin") && strings.EqualFold(m.settings["binlog_format"], "STATEMENT") {
		sound = false
		m.warn("replication", "binlog_format is STATEMENT: a replica may come to differ", "set it to ROW or MIXED")
	}
	if m.on("wsrep_on") {
		sound = false
		fix := "connect to one node; if connections go to several, set wsrep_sync_wait=7 in the DSN"
		if m.settings["wsrep_sync_wait"] == "7" {
			fix = "keep the clocks of the nodes together"
		}
		m.warn("replication", "the server is a node of a Galera cluster, whose nodes exclude each other when they commit: unique mode alone works, and a transaction "+
			"with Guard, InTx or UnlockTx fails with error 1213 if another node has changed who holds the name or waits for it", fix)
	}
	if sound {
		m.ok("replication", "nothing to object to")
	}
	return nil
}

func (m *mysqlChecker) isolation(context.Context) error {
	level := m.settings["transaction_isolation"] + m.settings["tx_isolation"] // MariaDB had the second only
	if m.settings["transaction_isolation"] != "" {
		level = m.settings["transaction_isolation"]
	}
	if strings.EqualFold(level, "READ-UNCOMMITTED") {
		m.warn("isolation", "the default is "+level+": sqllock sets READ COMMITTED for each look, which costs round trips", "set transaction_isolation for this account or in the DSN")
		return nil
	}
	m.ok("isolation", level)
	return nil
}

func (m *mysqlChecker) timeouts(context.Context) error {
	seconds := func(name string, unit time.Duration) time.Duration {
		n, _ := strconv.ParseFloat(m.settings[name], 64) // 0 where there is none
		return time.Duration(n * float64(unit))
	}
	m.reportTimeouts(map[string]time.Duration{
		"max_execution_time": seconds("max_execution_time", time.Millisecond), // of MySQL
		"max_statement_time": seconds("max_statement_time", time.Second),      // of MariaDB
		"wait_timeout":       seconds("wait_timeout", time.Second),
	})
	return nil
}

// otherIndexes are those of other tables that statements name: without one of them they fail.
var otherIndexes = []struct{ table, name, kind, columns string }{
	{"claim", "sqllock_claim_acq", "UNIQUE INDEX", "acq"},
	{"claim", "sqllock_claim_locker", "INDEX", "locker"},
	{"done", "sqllock_done_since", "INDEX", "since, name"},
	{"done", "sqllock_done_at", "INDEX", "name, at"},
	{"term", "sqllock_revoke", "INDEX", "revoke_for"},
}

// hasOtherIndexes reports those of them that are missing in tables that are there.
func (m *mysqlChecker) hasOtherIndexes(ctx context.Context) (all bool, err error) {
	all = true
	for _, r := range m.optional {
		for _, i := range otherIndexes {
			if r.name != m.prefix+i.table {
				continue
			}
			var columns, its int // of all indexes, of this one
			if err := m.one(ctx, myIndex, []any{i.name, r.name}, &columns, &its); err != nil {
				return false, err
			}
			if columns > 0 && its == 0 { // else the table is missing
				all = false
				m.bad("index", "index "+i.name+" of "+r.sql+" is missing", "ALTER TABLE "+r.sql+" ADD "+i.kind+" "+i.name+" ("+i.columns+")")
			}
		}
	}
	return all, nil
}

// index looks for those that statements name.
func (m *mysqlChecker) index(ctx context.Context) error {
	found := make(map[string]string)
	err := m.each(ctx, myIndexes, []any{m.lockName}, func(rows *sql.Rows) error {
		var name, columns string
		err := rows.Scan(&name, &columns)
		found[name] = columns
		return err
	})
	if err != nil || m.outdated {
		return err
	}
	others, err := m.hasOtherIndexes(ctx)
	switch {
	case err != nil:
		return err
	case found["PRIMARY"] != "name":
		m.bad("index", "the names are not the primary key of "+m.lock, "ALTER TABLE "+m.lock+" ADD PRIMARY KEY (name)")
	case found["sqllock_guard"] != "version,name":
		m.bad("index", "index sqllock_guard of "+m.lock+" is missing", "ALTER TABLE "+m.lock+" ADD UNIQUE INDEX sqllock_guard (version, name)")
	case others:
		m.ok("index", "the primary keys are there, and the indexes that statements name")
	}
	return nil
}

func (m *mysqlChecker) transactions(ctx context.Context) error {
	age, err := m.oldestTransaction(ctx)
	if e := (*mysql.MySQLError)(nil); errors.As(err, &e) && e.Number == 1227 { // ER_SPECIFIC_ACCESS_DENIED_ERROR
		m.ok("transactions", "this could not be looked at, which takes the privilege PROCESS")
		return nil
	}
	if err != nil {
		return err
	}
	m.reportOldest(age, "", "InnoDB keeps old versions of rows, and names that are locked often get slow", "look in information_schema.INNODB_TRX who it is")
	return nil
}

func (m *mysqlChecker) oldestTransaction(ctx context.Context) (time.Duration, error) {
	var seconds int64
	err := m.one(ctx, myOldest, nil, &seconds)
	return time.Duration(seconds) * time.Second, err
}

func (m *mysqlChecker) checkTables(ctx context.Context) error {
	names := []any{m.lockName, m.metaName}
	for _, r := range m.optional {
		names = append(names, r.name)
	}
	engines := make(map[string]string)
	err := m.each(ctx, myTables, names, func(rows *sql.Rows) error {
		var name, engine string
		err := rows.Scan(&name, &engine)
		engines[strings.ToLower(name)] = engine
		return err
	})
	if err != nil {
		return err
	}
	_, hasLock := engines[strings.ToLower(m.lockName)]
	_, hasMeta := engines[strings.ToLower(m.metaName)]
	if m.hasTables = hasLock && hasMeta; !m.hasTables {
		return m.checkHidden(ctx)
	}
	m.reportEngines(engines)
	return nil
}

// unseen tells of the lock table and the table of metadata, of which one is not to be seen:
// it does not exist, or the account has no privilege on it.
func (m *mysqlChecker) checkHidden(ctx context.Context) error {
	hidden := false
	for _, table := range []string{m.lock, m.meta} {
		err := m.each(ctx, "SELECT 1 FROM "+table+" WHERE 1 = 0", nil, func(*sql.Rows) error { return nil })
		switch {
		case IsDenied(err):
			hidden = true
		case isNoTable(err):
			m.unmigrated("tables", "table "+table+" does not exist", "")
		case err != nil:
			return err
		}
	}
	if !hidden {
		return nil
	}
	m.warn("tables", "the server tells this account nothing of them", "if a GRANT fails as there is no such table, make the tables first")
	return m.privileges(ctx)
}

func isNoTable(err error) bool {
	e := (*mysql.MySQLError)(nil)
	return errors.As(err, &e) && e.Number == 1146 // ER_NO_SUCH_TABLE, which is not told to everybody
}

// reportEngines judges the engines of the tables that this account may see.
func (m *mysqlChecker) reportEngines(engines map[string]string) {
	sound, seen := true, []string{m.lock, m.meta}
	check := func(name, sql string) {
		if engine := engines[strings.ToLower(name)]; !strings.EqualFold(engine, "InnoDB") {
			sound = false
			m.bad("tables", "the engine of "+sql+" is "+engine+", which keeps no lock through a crash", "ALTER TABLE "+sql+" ENGINE = InnoDB")
		}
	}
	check(m.lockName, m.lock)
	for _, r := range m.optional {
		if _, visible := engines[strings.ToLower(r.name)]; visible {
			seen = append(seen, r.sql)
			check(r.name, r.sql)
		}
	}
	if sound {
		m.ok("tables", strings.Join(seen, ", "))
	}
}

// privilegeCheck is a privilege, and a statement that takes it.
type privilegeCheck struct{ table, privilege, statement string }

// privilegeChecks are the privileges of an account that does everything.
func (m *mysqlChecker) privilegeChecks() []privilegeCheck {
	list := []privilegeCheck{
		{m.lock, "SELECT", "SELECT name FROM " + m.lock + " WHERE 1 = 0"},
		{m.lock, "INSERT", "INSERT INTO " + m.lock + " (name, version) VALUES ('', 0)"},
		{m.lock, "UPDATE", "UPDATE " + m.lock + " SET holds = 0 WHERE 1 = 0"},
		{m.lock, "DELETE", "DELETE FROM " + m.lock + " WHERE 1 = 0"},
		{m.meta, "SELECT", "SELECT one FROM " + m.meta + " WHERE 1 = 0"},
		{m.meta, "UPDATE", "UPDATE " + m.meta + " SET one = 1 WHERE 1 = 0"},
	}
	rows := map[string]string{
		m.prefix + "claim": " (name, state, seq, acq, kind, slot, token, holds, ttl, handed, max_hold, since, expires_at, limit_at, delay," +
			" locker, owner, label) VALUES ('', 0, 0, '', 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, '', '', '')",
		m.prefix + "waiter": " (locker, expires_at) VALUES ('', 0)",
		m.prefix + "done":   " (name, `key`, attempt, since, at) VALUES ('', '', 0, 0, 0)",
		m.prefix + "term":   " (mode, name) VALUES (0, '')",
		m.prefix + "pin":    " (name) VALUES ('')",
	}
	for _, r := range m.optional {
		key := "name"
		if r.name == m.prefix+"waiter" {
			key = "locker"
		}
		list = append(list,
			privilegeCheck{r.sql, "SELECT", "SELECT " + key + " FROM " + r.sql + " WHERE 1 = 0"},
			privilegeCheck{r.sql, "INSERT", "INSERT INTO " + r.sql + rows[r.name]})
		if r.name != m.prefix+"pin" { // which nobody updates
			list = append(list, privilegeCheck{r.sql, "UPDATE", "UPDATE " + r.sql + " SET " + key + " = '' WHERE 1 = 0"})
		}
		list = append(list, privilegeCheck{r.sql, "DELETE", "DELETE FROM " + r.sql + " WHERE 1 = 0"})
	}
	return list
}

// privileges lets the server explain statements that change nothing: the server refuses that
// as it would refuse to run them, whatever it is that grants: a table, a role.
func (m *mysqlChecker) privileges(ctx context.Context) error {
	var missing []privilege
	absent := make(map[string]bool)
	for _, n := range m.privilegeChecks() {
		err := m.each(ctx, "EXPLAIN "+n.statement, nil, func(*sql.Rows) error { return nil })
		switch e := (*mysql.MySQLError)(nil); {
		case errors.As(err, &e) && (e.Number == 1142 || e.Number == 1143): // ER_TABLEACCESS_DENIED_ERROR, ER_COLUMNACCESS_DENIED_ERROR
			missing = append(missing, privilege{n.table, n.privilege})
		case isNoTable(err):
			if !absent[n.table] {
				m.unmigrated("tables", "table "+n.table+" does not exist", "")
			}
			absent[n.table] = true
		case err != nil:
			return err
		}
	}
	m.reportMissing(missing)
	return nil
}
