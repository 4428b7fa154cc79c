package lockmysql

import (
	_ "embed"
	"fmt"
	"regexp"
	"strings"
	"sync"

	"github.com/sqllock/sqllock/internal/rowstore"
	"github.com/sqllock/sqllock/internal/sqltext"
)

// The SQL of this package. Every value is a parameter; what varies is the name of
// the tables, which is checked and quoted. Texts and ids travel as hexadecimal
// digits, so that no character set of a connection can bend them. The statements of the
// unique mode are in a file; those of the modes that keep locks in sessions are put together
// from parts.
//
// A statement that runs by itself, with autocommit, reads what is committed and locks what
// it finds, whatever the session's isolation level. The exception is a look in a session
// that is READ UNCOMMITTED, see engine.read.
//
// now is the server's clock when the statement began, in microseconds since the
// epoch; it is the same wherever it stands in one statement. No time zone comes
// near it.
const now = `TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))`

// A statement that meets a locked table gives up after a second. MariaDB takes
// the bound before the statement and MySQL after its verb; each takes the other's
// for a comment. A row that is locked is never waited for, see locked, but by an
// INSERT that meets one of the same name: there only MariaDB knows a bound.
//
// MariaDB is also told not to mind that the requests of a batch have no index,
// and, where that is its default, not to fail when a row has changed since the
// statement began: that is what the condition on the row is for.
const (
	bounded = `/*M!100600 SET STATEMENT lock_wait_timeout = 1, innodb_lock_wait_timeout = 1, sql_safe_updates = 0 */` +
		`/*M!110602 , innodb_snapshot_isolation = 0 */ /*M!100600 FOR */ `
	hint = ` /*+ SET_VAR(lock_wait_timeout = 1) */ `

	doSelect = bounded + `SELECT` + hint
	doUpdate = bounded + `UPDATE` + hint
	doDelete = bounded + `DELETE` + hint
)

//go:embed sql/unique.sql
var uniqueFile string

// queries are the statements of the unique mode for one table prefix.
type queries struct {
	prefix string // not quoted
	texts  map[string]string
	short  map[string]string // without values, of those that have them
}

// inApplication are the statements that run in transactions of the application, whose
// settings are its own.
var inApplication = map[string]bool{"guard": true, "guard_shared": true, "database": true, "fence": true, "fence_token": true}

var (
	verb    = regexp.MustCompile(`(?m)^\(?(SELECT|INSERT|UPDATE|DELETE)`)
	valued  = regexp.MustCompile(`(?m)^.*\b(value|carries)\b.*\n`)
	byTable sync.Map // *queries by prefix
)

// newQueries puts bounds on the statements, but on those that bring their own.
func newQueries(prefix string) *queries {
	if q, ok := byTable.Load(prefix); ok {
		return q.(*queries)
	}
	q := &queries{prefix: prefix, texts: sqltext.Parse(uniqueFile, newWords(prefix)), short: make(map[string]string)}
	for name, text := range q.texts {
		if at := verb.FindStringIndex(text); !inApplication[name] && !strings.HasPrefix(text, "SET STATEMENT") {
			q.texts[name] = bounded + text[:at[1]] + hint + text[at[1]:]
		}
	}
	for _, name := range []string{"insert_claims", "write_rows", "grant_new", "grant"} {
		q.short[name] = valued.ReplaceAllString(q.texts[name], "")
	}
	byTable.Store(prefix, q)
	return q
}

// newWords fills in what the statements leave open.
func newWords(prefix string) *strings.Replacer {
	words := []string{"{now}", now}
	for _, table := range []string{"lock", "claim", "waiter", "meta", "fence"} {
		words = append(words, "{"+table+"}", "`"+prefix+table+"`")
	}
	return strings.NewReplacer(words...)
}

// text is that of a statement, the short one if its batch has no values.
func (q *queries) text(s *rowstore.Statement) string {
	short := q.short[s.Name]
	for _, column := range s.Batch {
		values, _ := column.([][]byte)
		for _, v := range values {
			if len(v) > 0 {
				short = ""
			}
		}
	}
	if short != "" {
		return short
	}
	text, ok := q.texts[s.Name]
	if !ok {
		panic(fmt.Sprintf("bug: there is no statement %q", s.Name))
	}
	return text
}

// Statements over rows that exist lock them in a derived table first and change
// them in the outer statement. That is the one way to pass over locked rows in a
// statement that changes rows; MySQL has no other way to bound the wait for them
// either. FORCE INDEX keeps the optimizer of a small table from locking every row
// of it, and STRAIGHT_JOIN keeps the order of the requests, which is that of the
// names. The limit makes that the derived table stays one.
const locked = ` LIMIT 1000000 FOR UPDATE /*!80000 OF l */ SKIP LOCKED`

// Requests come as a JSON array of arrays, see batch, so that a statement is the
// same for any number of them. Their texts are digits, whatever the character set of the
// database, which would be the columns' otherwise.
const (
	withName    = `JSON_TABLE(?, '$[*]' COLUMNS (i FOR ORDINALITY, name VARCHAR(510) CHARACTER SET ascii PATH '$[0]'`
	withVersion = withName + `, acq CHAR(32) CHARACTER SET ascii PATH '$[1]', version BIGINT PATH '$[2]'`
	withKeep    = withVersion + `, keep BIGINT PATH '$[3]'`
	asRows      = `)) r`
)

const (
	queryVersion = `SELECT VERSION()`

	queryCheck = `SHOW SESSION VARIABLES WHERE Variable_name IN ('autocommit', 'binlog_format', 'character_set_connection', 'completion_type',
	'innodb_flush_log_at_trx_commit', 'innodb_read_only', 'log_bin', 'max_allowed_packet', 'read_only', 'sql_mode', 'super_read_only', 'sync_binlog',
	'transaction_isolation', 'transaction_read_only', 'tx_isolation', 'tx_read_only', 'wsrep_on')`

	queryRedo = `SHOW GLOBAL STATUS LIKE 'Innodb_redo_log_enabled'`

	queryEngine = `SELECT DATABASE(), (SELECT ENGINE FROM information_schema.TABLES
	WHERE TABLE_SCHEMA = DATABASE() AND TABLE_NAME = ?)`

	queryID = `SELECT HEX(id) FROM {meta}`
)

// What bounds, in seconds, how long the server waits for a client in the middle of a
// transaction. MySQL knows no other bound than that of a session.
var (
	silentMySQL   = []string{"wait_timeout"}
	silentMariaDB = []string{"wait_timeout", "idle_transaction_timeout", "idle_readonly_transaction_timeout", "idle_write_transaction_timeout"}
)

// queryBound has the server end a session that is silent for a second, and remembers
// what was set. The isolation level is that of the next transaction alone. A server that
// logs statements takes no writes in READ COMMITTED. In REPEATABLE READ time stands still
// when the first thing is read without a lock, which is after the rows were locked.
func queryBound(settings []string, isolation, level string) string {
	return setEach(settings, `@sqllock_%[1]s = @@SESSION.%[1]s, @@SESSION.%[1]s = 1`) + `, @@` + isolation + ` = '` + level + `'`
}

// queryUnbound undoes queryBound.
func queryUnbound(settings []string) string {
	return setEach(settings, `@@SESSION.%[1]s = @sqllock_%[1]s`)
}

func setEach(settings []string, format string) string {
	parts := make([]string, len(settings))
	for i, name := range settings {
		parts[i] = fmt.Sprintf(format, name)
	}
	return `SET ` + strings.Join(parts, ", ")
}
