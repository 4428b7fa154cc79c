package lockmysql

import (
	"context"
	"database/sql"
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"github.com/sqllock/sqllock/driver"
)

// The oldest servers that know all that the statements need: JSON_TABLE, SKIP
// LOCKED and window functions.
var (
	oldestMySQL   = versionNumber{8, 0}
	oldestMariaDB = versionNumber{10, 6}
)

type versionNumber struct{ major, minor int }

func (v versionNumber) before(o versionNumber) bool {
	return v.major < o.major || v.major == o.major && v.minor < o.minor
}

// server is what a server says of itself.
type server struct {
	name      string // product and version
	version   versionNumber
	mariaDB   bool
	variables map[string]string
	noRedo    bool
}

func (s *server) is(variable string, values ...string) bool {
	for _, v := range values {
		if strings.EqualFold(s.variables[variable], v) {
			return true
		}
	}
	return false
}

// on also takes for on what a later version may know besides OFF.
func (s *server) on(variable string) bool { return !s.is(variable, "", "OFF", "0") }

// inspect refuses a server that cannot keep the promises, and tells the store what
// to know of it.
func (d *Database) inspect(ctx context.Context, c session, e *engine) (*server, error) {
	s, err := identify(ctx, c)
	if err != nil {
		return nil, err
	}
	if s.variables, err = pairs(ctx, c, openTexts["variables"]); err != nil {
		return nil, err
	}
	redo, err := pairs(ctx, c, openTexts["redo"])
	if err != nil {
		return nil, err
	}
	s.noRedo = strings.EqualFold(redo["Innodb_redo_log_enabled"], "OFF")
	if s.variables["autocommit"] == "" || s.variables["sync_binlog"] == "" { // the first and one of the last
		return nil, fmt.Errorf("%w: the server does not tell its variables; is sql_select_limit set for this session?", driver.ErrUnsupported)
	}
	e.info = driver.Info{Server: s.name}
	if err := d.refuse(s, &e.info); err != nil {
		return nil, err
	}
	e.mariaDB = s.mariaDB
	e.galera, e.wsrep = s.on("wsrep_on"), s.variables["wsrep_on"] != ""
	e.bound, e.unbound = s.bound(), openTexts["unbound"]
	if e.galera {
		e.commitNothing()
	}
	e.isolate = s.is(s.isolation(), uncommitted)
	e.maxPacket, _ = strconv.Atoi(s.variables["max_allowed_packet"]) // 0 if it is not known
	err = e.checkTables(ctx, c)
	e.info.Database = e.database
	if err != nil || d.readOnly {
		return s, err
	}
	// What the server does not understand, or the account may not do, should show
	// here and not at the first renewal. It finds no row and changes none.
	_, _, err = c.exec(ctx, e.queries.texts["renew"], newBatch(0).String())
	return s, err
}

// isolation is the name of a variable.
func (s *server) isolation() string {
	if s.variables["transaction_isolation"] == "" {
		return "tx_isolation"
	}
	return "transaction_isolation"
}

// bound is what sets a session before a transaction of the library's own.
func (s *server) bound() string {
	level := "READ-COMMITTED"
	if s.on("log_bin") && s.is("binlog_format", "STATEMENT") {
		level = "REPEATABLE-READ"
	}
	return strings.NewReplacer("{isolation}", s.isolation(), "{level}", level).Replace(openTexts["bound"])
}

const uncommitted = "READ-UNCOMMITTED"

var versionText = regexp.MustCompile(`^(?:5\.5\.5-)?(\d+)\.(\d+)\.`) // some MariaDB hide behind 5.5.5

// identify finds out whose server it is.
func identify(ctx context.Context, c session) (*server, error) {
	var version string
	if err := c.QueryRowContext(ctx, openTexts["version"]).Scan(&version); err != nil {
		if strings.Contains(err.Error(), "no such function") { // SQLite behind a driver that hides its name
			return nil, fmt.Errorf("%w: the handle is not of MySQL or MariaDB: %w", driver.ErrInvalidOption, err)
		}
		return nil, err
	}
	return parse(version)
}

// parse reads what VERSION() said.
func parse(version string) (*server, error) {
	numbers := versionText.FindStringSubmatch(version)
	for _, other := range []string{"tidb", "vitess", "singlestore", "oceanbase"} {
		if strings.Contains(strings.ToLower(version), other) {
			numbers = nil
		}
	}
	if numbers == nil {
		return nil, fmt.Errorf("%w: the handle is not of MySQL or MariaDB but of %q", driver.ErrInvalidOption, version)
	}
	s := &server{name: "MySQL " + version, mariaDB: strings.Contains(version, "MariaDB")}
	if s.mariaDB {
		s.name = "MariaDB " + version
	}
	s.version.major, _ = strconv.Atoi(numbers[1])
	s.version.minor, _ = strconv.Atoi(numbers[2])
	return s, nil
}

// refuse says what is wrong with the server, or adds what is merely doubtful to
// info.
func (d *Database) refuse(s *server, info *driver.Info) error {
	switch {
	case s.mariaDB && s.version.before(oldestMariaDB):
		return fmt.Errorf("%w: %s is older than MariaDB %d.%d", driver.ErrUnsupported, s.name, oldestMariaDB.major, oldestMariaDB.minor)
	case !s.mariaDB && s.version.before(oldestMySQL):
		return fmt.Errorf("%w: %s is older than MySQL %d.%d", driver.ErrUnsupported, s.name, oldestMySQL.major, oldestMySQL.minor)
	case s.on("read_only"), s.on("super_read_only"), s.on("innodb_read_only"):
		// Also for an account that may write all the same: a read-only server is a
		// replica as a rule, and a lock there is seen by nobody else.
		return fmt.Errorf("%w: the server is read-only (read_only, super_read_only or innodb_read_only); locks need the primary", driver.ErrUnsupported)
	case s.on("transaction_read_only"), s.on("tx_read_only"):
		return fmt.Errorf("%w: transactions of this session are read-only (transaction_read_only)", driver.ErrUnsupported)
	case !s.on("autocommit"):
		return errNoAutocommit
	case !s.is("completion_type", "", "NO_CHAIN", "0"):
		return fmt.Errorf("%w: completion_type is %s in this session, not NO_CHAIN: what follows a transaction would not be kept; "+
			"remove completion_type from the DSN, from init_connect, or from the server's settings", driver.ErrUnsupported, s.variables["completion_type"])
	}
	if err := s.refuseLanguage(); err != nil {
		return err
	}
	return d.doubt(s, info)
}

// refuseLanguage refuses settings by which the server understands other than what is
// written in the .sql files.
func (s *server) refuseLanguage() error {
	for mode := range strings.SplitSeq(s.variables["sql_mode"], ",") {
		if mode == "ORACLE" || mode == "EMPTY_STRING_IS_NULL" {
			return fmt.Errorf("%w: sql_mode has %s in this session; set another one in the DSN, such as sql_mode='STRICT_TRANS_TABLES'", driver.ErrUnsupported, mode)
		}
	}
	switch set := s.variables["character_set_connection"]; set {
	case "utf16", "utf16le", "utf32", "ucs2":
		return fmt.Errorf("%w: character_set_connection is %s in this session; set charset=utf8mb4 in the DSN", driver.ErrUnsupported, set)
	}
	return nil
}

// refusePrimaries refuses a server of Group Replication beside which others take writes. Such a server
// certifies what a transaction changes, not what it has locked: a guard would keep nobody away.
func (s *server) refusePrimaries() error {
	if !s.is("group_replication_single_primary_mode", "OFF", "0") {
		return nil
	}
	return fmt.Errorf("%w: the server may be one of many primaries (group_replication_single_primary_mode is OFF), which do not see "+
		"what a transaction has locked on another; use a group with one primary", driver.ErrUnsupported)
}

// doubt looks at what the server does when it crashes or is one of many.
func (d *Database) doubt(s *server, info *driver.Info) error {
	if err := s.refusePrimaries(); err != nil {
		return err
	}
	unsafe := ""
	switch {
	case s.noRedo:
		unsafe = "the redo log of InnoDB is disabled"
	case !s.is("innodb_flush_log_at_trx_commit", "1"):
		unsafe = "innodb_flush_log_at_trx_commit is " + s.variables["innodb_flush_log_at_trx_commit"] + ", not 1"
	}
	if unsafe != "" {
		unsafe += ": after a crash the server may have forgotten who holds what"
		if !d.unsafe {
			return fmt.Errorf("%w: %s; lockmysql.AllowUnsafeDurability accepts that in tests", driver.ErrUnsupported, unsafe)
		}
		info.Warnings = append(info.Warnings, unsafe)
	}
	if s.on("log_bin") && !s.is("sync_binlog", "1") {
		info.Warnings = append(info.Warnings, "sync_binlog is "+s.variables["sync_binlog"]+
			", not 1: when the host of the server crashes, transactions that are not in the binary log may be undone, and grants with them")
	}
	if s.on("log_bin") && s.is("binlog_format", "STATEMENT") {
		info.Warnings = append(info.Warnings, "binlog_format is STATEMENT: a replica may come to differ, and to forget after a fail-over who holds what; set it to ROW or MIXED")
	}
	if s.on("wsrep_on") {
		info.Warnings = append(info.Warnings, s.aboutGalera())
	}
	return nil
}

// aboutGalera says what is different on a node of a Galera cluster.
func (s *server) aboutGalera() string {
	about := "the server is a node of a Galera cluster, whose nodes exclude each other when they commit: locks and tokens are right as long as the cluster " +
		"keeps what it has committed and the clocks of the nodes agree; a transaction with Guard, InTx or UnlockTx fails with error 1213 if another node has " +
		"changed who holds the name or waits for it, and is to be repeated; renewals wait for it"
	if s.variables["wsrep_sync_wait"] != "7" {
		about += "; a handle whose connections go to several nodes needs wsrep_sync_wait=7 in its DSN, or a node that lags behind makes leases look lost"
	}
	return about
}

// checkTables refuses tables that are missing or do not fit, of those that all modes need.
func (e *engine) checkTables(ctx context.Context, c session) error {
	if err := checkEngine(ctx, c, e.queries.prefix+"lock"); err != nil {
		return err
	}
	var version, compatible int64
	if err := c.QueryRowContext(ctx, e.queries.texts["meta"]).Scan(&version, &compatible, &e.database); err != nil {
		return fmt.Errorf("%w: table `%smeta` cannot be read; migrations.Up or \"sqllock migrate up\" makes what is missing: %w",
			driver.ErrSchema, e.queries.prefix, err)
	}
	return driver.CheckSchema(version, compatible, SchemaVersion)
}

// checkClaims refuses tables that are missing or do not fit, of those that unique mode alone
// needs: an account of the session modes does not see them.
func (e *engine) checkClaims(ctx context.Context, c session) error {
	for _, table := range []string{"claim", "waiter", "done"} {
		if err := checkEngine(ctx, c, e.queries.prefix+table); err != nil {
			return err
		}
	}
	return nil
}

// checkEngine refuses a table that is missing or does not fit.
func checkEngine(ctx context.Context, c session, table string) error {
	var database, engine sql.NullString
	if err := c.QueryRowContext(ctx, openTexts["table"], table).Scan(&database, &engine); err != nil {
		return err
	}
	switch {
	case !database.Valid:
		return fmt.Errorf("%w: the DSN names no database", driver.ErrInvalidOption)
	case !engine.Valid:
		return fmt.Errorf("%w: table `%s` does not exist in database `%s`; create it with migrations.Up or \"sqllock migrate up\"",
			driver.ErrSchema, table, database.String)
	case !strings.EqualFold(engine.String, "InnoDB"):
		return fmt.Errorf("%w: the engine of table `%s` is %s, which locks no rows and keeps no lock through a crash; ALTER TABLE … ENGINE = InnoDB",
			driver.ErrUnsupported, table, engine.String)
	}
	return nil
}

// pairs reads the answer of a SHOW statement.
func pairs(ctx context.Context, c session, text string) (map[string]string, error) {
	m := make(map[string]string)
	err := query(ctx, c, text, nil, func(rows *sql.Rows) error {
		var name, value string
		err := rows.Scan(&name, &value)
		m[name] = value
		return err
	})
	return m, err
}
