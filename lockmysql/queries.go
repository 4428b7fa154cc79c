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
// digits, so that no character set of a connection can bend them.
//
// A statement that runs by itself, with autocommit, reads what is committed and locks what
// it finds, whatever the session's isolation level. The exception is a look in a session
// that is READ UNCOMMITTED, see engine.read.
//
// now is the server's clock when the statement began, in microseconds since the
// epoch; it is the same all over one statement. No time zone comes
// near it.
const now = `TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))`

// nowLocked is that clock when a statement of MariaDB has the row that it has waited for: SYSDATE
// is read then, and NOW when the statement began. Both are in the time zone of the session, which
// may jump between the two, and a session may have a NOW of its own. Nobody waits for two seconds
// here. So a longer time is no wait, and does not count.
const (
	nowLocked = `(` + now + ` + IF(` + waited + ` BETWEEN 0 AND 2000000, LEAST(` + waited + `, 2000000), 0))`
	waited    = `TIMESTAMPDIFF(MICROSECOND, NOW(6), SYSDATE(6))`
)

// A statement that meets a locked table gives up after a second. MariaDB takes
// the bound before the statement and MySQL after its verb; each takes the other's
// for a comment. Only MariaDB knows a bound of the wait for a row in a statement. There a
// row that is locked is waited for by the statements whose names end in patiently, and by an
// INSERT that meets one of the same name, as it is by MySQL.
//
// MariaDB is also told not to mind that the requests of a batch have no index,
// and, where that is its default, not to fail when a row has changed since the
// statement began: that is what the condition on the row is for.
const (
	bounded = `/*M!100600 SET STATEMENT lock_wait_timeout = 1, innodb_lock_wait_timeout = 1, sql_safe_updates = 0 */` +
		`/*M!110602 , innodb_snapshot_isolation = 0 */ /*M!100600 FOR */ `
	hint = ` /*+ SET_VAR(lock_wait_timeout = 1) */ `
)

var (
	//go:embed sql/open.sql
	openFile string
	//go:embed sql/unique.sql
	uniqueFile string
	//go:embed sql/once.sql
	onceFile string
	//go:embed sql/sessions.sql
	sessionsFile string

	openTexts = sqltext.Parse(openFile, strings.NewReplacer())
)

// queries are the statements of the unique mode for one table prefix.
type queries struct {
	prefix string // not quoted
	texts  map[string]string
	short  map[string]string // without values, of those that have them
	asking map[string]string // those that guard, asking whether the server is a node of Galera
}

// unbounded are the statements that run in transactions of the application, whose settings
// are its own, and those that read no table.
var unbounded = map[string]bool{"guard": true, "guard_all": true, "guard_shared": true, "guard_galera": true, "guard_shared_galera": true, "database": true, "fence": true, "fence_token": true,
	"complete": true, "completed": true, "server": true, "settings": true, "writable": true, "mark": true, "marked": true, "unmark": true}

var (
	verb    = regexp.MustCompile(`(?m)^\(?(SELECT|INSERT|UPDATE|DELETE)`)
	valued  = regexp.MustCompile(`(?m)^.*\b(value|carries)\b.*\n`)
	byTable sync.Map // *queries by prefix
)

// newQueries are the statements of the unique mode.
func newQueries(prefix string) *queries {
	if q, ok := byTable.Load(prefix); ok {
		return q.(*queries)
	}
	q := &queries{prefix: prefix, texts: parseFile(uniqueFile+onceFile, newWords(prefix, "")), short: make(map[string]string),
		asking: make(map[string]string)}
	wait := strings.NewReplacer(" SKIP LOCKED", "", "innodb_lock_wait_timeout = 0", "innodb_lock_wait_timeout = 1")
	for _, name := range []string{"renew", "renew_shared", "lock_rows_one", "queue_quickly", "hand_over_quickly"} {
		q.texts[name+"_patiently"] = wait.Replace(q.texts[name])
	}
	q.texts["lock_rows_one_patiently"] = strings.Replace(q.texts["lock_rows_one_patiently"], now, nowLocked, 1)
	for _, name := range []string{"insert_claims", "write_rows", "grant_new", "grant"} {
		q.short[name] = valued.ReplaceAllString(q.texts[name], "")
	}
	for _, name := range []string{"guard", "guard_all", "guard_shared"} {
		q.asking[name] = strings.Replace(q.texts[name], "0 AS galera", "@@SESSION.wsrep_on AS galera", 1)
	}
	byTable.Store(prefix, q)
	return q
}

// sessionTexts are the statements of a mode that keeps locks in sessions.
func sessionTexts(prefix, mode string) map[string]string {
	return parseFile(sessionsFile, newWords(prefix, mode))
}

// parseFile reads statements, and puts bounds on them, but on those that bring their own.
func parseFile(file string, words *strings.Replacer) map[string]string {
	texts := sqltext.Parse(file, words)
	for name, text := range texts {
		if at := verb.FindStringIndex(text); !unbounded[name] && !strings.HasPrefix(text, "SET STATEMENT") {
			texts[name] = bounded + text[:at[1]] + hint + text[at[1]:]
		}
	}
	return texts
}

// newWords fills in what the statements leave open.
func newWords(prefix, mode string) *strings.Replacer {
	words := []string{"{now}", now, "{mode}", mode}
	for _, table := range []string{"lock", "claim", "waiter", "meta", "fence", "done", "term", "pin"} {
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

const (
	queryBegin    = `START TRANSACTION`
	queryCommit   = `COMMIT`
	queryRollback = `ROLLBACK`

	querySavepoint = `SAVEPOINT sqllock`
	queryRelease   = `RELEASE SAVEPOINT sqllock`

	queryWaitTimeout = `SELECT @@SESSION.innodb_lock_wait_timeout`
	querySetTimeout  = `SET @@SESSION.innodb_lock_wait_timeout = ?`
)

// What is set on a session that holds locks. The server ends it when it has been
// silent for so many seconds, also in the middle of a packet (net_read_timeout is for
// the data of LOAD DATA), or has not taken an answer. MariaDB has others for a
// transaction, which may have been set to less. MySQL has no other way to bound the
// wait for a row to a second.
var (
	settingsMariaDB = []string{"wait_timeout", "net_write_timeout",
		"idle_transaction_timeout", "idle_readonly_transaction_timeout", "idle_write_transaction_timeout"}
	settingsMySQL = []string{"wait_timeout", "net_write_timeout", "innodb_lock_wait_timeout"}
)

func querySet(names []string) string {
	return `SET @@SESSION.` + strings.Join(names, ` = ?, @@SESSION.`) + ` = ?`
}
