package main

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
	'transaction_isolation', 'transaction_read_only', 'tx_isolation', 'tx_read_only', 'wait_timeout', 'wsrep_on')`

	myRedo = `SHOW GLOBAL STATUS LIKE 'Innodb_redo_log_enabled'`

	myNow = `SELECT TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))`

	myTables = `SELECT TABLE_NAME, coalesce(ENGINE, '') FROM information_schema.TABLES
WHERE TABLE_SCHEMA = DATABASE() AND TABLE_NAME IN (?, ?, ?, ?, ?, ?) AND TABLE_TYPE = 'BASE TABLE'`

	myIndexes = `SELECT INDEX_NAME, GROUP_CONCAT(COLUMN_NAME ORDER BY SEQ_IN_INDEX) FROM information_schema.STATISTICS
WHERE TABLE_SCHEMA = DATABASE() AND TABLE_NAME = ? AND NON_UNIQUE = 0 GROUP BY INDEX_NAME`

	myOldest = `SELECT COALESCE(MAX(TIMESTAMPDIFF(SECOND, trx_started, NOW())), 0) FROM information_schema.INNODB_TRX
WHERE trx_mysql_thread_id <> CONNECTION_ID()`
)

// mysqlExam is the exam of a MySQL or MariaDB database.
type mysqlExam struct {
	*exam
	settings map[string]string
}

func examineMySQL(e *exam, _ *database) []check {
	m := &mysqlExam{exam: e}
	return []check{
		{"server", m.server}, {"settings", m.read}, {"writes", m.writes}, {"durability", m.durability}, {"replication", m.replication},
		{"isolation", m.isolation}, {"clock", func(ctx context.Context) error { return m.clock(ctx, myNow) }}, {"time-outs", m.timeouts},
		{"tables", m.tablesThere}, {"migrations", m.ifThere(m.version)}, {"privileges", m.ifThere(m.privileges)},
		{"index", m.ifThere(m.index)}, {"transactions", m.transactions},
	}
}

var mysqlVersion = regexp.MustCompile(`^(?:5\.5\.5-)?(\d+)\.(\d+)\.`) // some MariaDB hide behind 5.5.5

func (m *mysqlExam) server(ctx context.Context) error {
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
		m.hopeless = true
		m.bad("server", name+" is too old or something else", "sqllock works with MySQL 8.0 or newer and MariaDB 10.6 or newer")
		return nil
	}
	m.ok("server", name)
	return nil
}

// read reads the variables as this session has them.
func (m *mysqlExam) read(ctx context.Context) error {
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
func (m *mysqlExam) on(name string) bool {
	switch strings.ToUpper(m.settings[name]) {
	case "", "OFF", "0":
		return false
	}
	return true
}

func (m *mysqlExam) writes(context.Context) error {
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

func (m *mysqlExam) durability(context.Context) error {
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

func (m *mysqlExam) replication(context.Context) error {
	sound := true
	if m.on("log_bin") && strings.EqualFold(m.settings["binlog_format"], "STATEMENT") {
		sound = false
		m.warn("replication", "binlog_format is STATEMENT: a replica may come to differ", "set it to ROW or MIXED")
	}
	if m.on("wsrep_on") {
		sound = false
		m.warn("replication", "the server is a node of a Galera cluster: conflicts between nodes show as errors at commit, which are tried again",
			"connect to one node; if connections go to several, set wsrep_sync_wait=7 in the DSN")
	}
	if sound {
		m.ok("replication", "nothing to object to")
	}
	return nil
}

func (m *mysqlExam) isolation(context.Context) error {
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

func (m *mysqlExam) timeouts(context.Context) error {
	seconds := func(name string, unit time.Duration) time.Duration {
		n, _ := strconv.ParseFloat(m.settings[name], 64) // 0 where there is none
		return time.Duration(n * float64(unit))
	}
	m.limits(map[string]time.Duration{
		"max_execution_time": seconds("max_execution_time", time.Millisecond), // of MySQL
		"max_statement_time": seconds("max_statement_time", time.Second),      // of MariaDB
		"wait_timeout":       seconds("wait_timeout", time.Second),
	})
	return nil
}

// index looks for the two that statements name.
func (m *mysqlExam) index(ctx context.Context) error {
	found := make(map[string]string)
	err := m.each(ctx, myIndexes, []any{m.lockName}, func(rows *sql.Rows) error {
		var name, columns string
		err := rows.Scan(&name, &columns)
		found[name] = columns
		return err
	})
	if err != nil || m.old {
		return err
	}
	switch {
	case found["PRIMARY"] != "name":
		m.bad("index", "the names are not the primary key of "+m.lock, "ALTER TABLE "+m.lock+" ADD PRIMARY KEY (name)")
	case found["sqllock_guard"] != "version,name":
		m.bad("index", "index sqllock_guard of "+m.lock+" is missing", "ALTER TABLE "+m.lock+" ADD UNIQUE INDEX sqllock_guard (version, name)")
	default:
		m.ok("index", "the primary key and sqllock_guard are there")
	}
	return nil
}

func (m *mysqlExam) transactions(ctx context.Context) error {
	age, err := m.oldest(ctx)
	if e := (*mysql.MySQLError)(nil); errors.As(err, &e) && e.Number == 1227 { // ER_SPECIFIC_ACCESS_DENIED_ERROR
		m.ok("transactions", "this could not be looked at, which takes the privilege PROCESS")
		return nil
	}
	if err != nil {
		return err
	}
	m.age(age, "", "InnoDB keeps old versions of rows, and names that are locked often get slow", "look in information_schema.INNODB_TRX who it is")
	return nil
}

func (m *mysqlExam) oldest(ctx context.Context) (time.Duration, error) {
	var seconds int64
	err := m.one(ctx, myOldest, nil, &seconds)
	return time.Duration(seconds) * time.Second, err
}
