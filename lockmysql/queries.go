package lockmysql

import (
	"fmt"
	"strings"
)

// The SQL of this package. Every value is a parameter; what varies is the name of
// the tables, which is checked and quoted. Texts and ids travel as hexadecimal
// digits, so that no character set of a connection can bend them.
//
// Each statement runs by itself, with autocommit: then it reads what is committed
// and locks what it finds, whatever the session's isolation level. The exception is
// a look in a session that is READ UNCOMMITTED, see store.read.
//
// now is the server's clock when the statement began, in microseconds since the
// epoch; it is the same wherever it stands in one statement. No time zone comes
// near it.
const now = `TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))`

// open says that neither a gate nor readers keep the name, grantable that nobody does.
const (
	open = `(l.others = 0 OR l.others_until <= ` + now + `)
	AND l.not_before <= ` + now + ` AND l.wait_until <= ` + now
	grantable = `(l.acq IS NULL OR l.expires_at <= ` + now + `) AND ` + open
)

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
	doInsert = bounded + `INSERT` + hint + `IGNORE INTO {lock} `
	doUpdate = bounded + `UPDATE` + hint
	doDelete = bounded + `DELETE` + hint
)

// Statements over rows that exist lock them in a derived table first and change
// them in the outer statement. That is the one way to pass over locked rows in a
// statement that changes rows; MySQL has no other way to bound the wait for them
// either. FORCE INDEX keeps the optimizer of a small table from locking every row
// of it, and STRAIGHT_JOIN keeps the order of the requests, which is that of the
// names. The limit makes that the derived table stays one.
const (
	lockTable = `{lock} l FORCE INDEX (PRIMARY)`
	locked    = ` LIMIT 1000000 FOR UPDATE /*!80000 OF l */ SKIP LOCKED`
	mine      = `) d STRAIGHT_JOIN ` + lockTable + ` ON l.name = d.name`
)

// What may make somebody else the holder locks besides the row its entry in the
// index which a guard locks: see queryGuard. Renewals do not come near it. The entry
// comes after the row, which says that there is one: to look for an entry in vain
// would lock a gap. The sum keeps the optimizer from doing so all the same.
const (
	entry      = ` STRAIGHT_JOIN {lock} g FORCE INDEX (sqllock_guard) ON g.name = l.name AND g.version = l.version + 0`
	termTable  = lockTable + entry
	joinTerm   = join + entry
	lockedTerm = ` LIMIT 1000000 FOR UPDATE /*!80000 OF l, g */ SKIP LOCKED`
)

// Requests come as a JSON array of arrays, see batch, so that a statement is the
// same for any number of them. Their texts are digits, whatever the character set of the
// database, which would be the columns' otherwise.
const (
	withName    = `JSON_TABLE(?, '$[*]' COLUMNS (i FOR ORDINALITY, name VARCHAR(510) CHARACTER SET ascii PATH '$[0]'`
	withVersion = withName + `, acq CHAR(32) CHARACTER SET ascii PATH '$[1]', version BIGINT PATH '$[2]'`
	withTTL     = withVersion + `, ttl BIGINT PATH '$[3]'`
	withHolds   = withTTL + `, holds INT PATH '$[4]'`
	withOwner   = withTTL + `, owner VARCHAR(510) CHARACTER SET ascii PATH '$[4]', was CHAR(32) CHARACTER SET ascii PATH '$[5]'`
	withValue   = withOwner + `, value MEDIUMTEXT CHARACTER SET ascii PATH '$[6]'` // which costs a temporary table on disk
	withKeep    = withVersion + `, keep BIGINT PATH '$[3]'`

	asRows = `)) r`
	join   = asRows + ` STRAIGHT_JOIN ` + lockTable + ` ON l.name = UNHEX(r.name)`
)

// LAST_INSERT_ID brings the server's clock back with the reply, whether the
// connection counts found rows or changed ones. The expressions of one SET do not
// build on each other, because MySQL would take the new values.
const (
	setWon = `l.instance = UNHEX(?), l.label = UNHEX(?),
	l.version = GREATEST(l.version + 1, LAST_INSERT_ID(` + now + `)), l.holds = 1, l.acquired_at = ` + now + `,
	l.others = 0, l.others_until = 0` // or they would be back if the clock went back

	setVacant = `l.acq = NULL, l.owner = NULL, l.instance = NULL, l.label = NULL, l.holds = 0`
	setEnded  = setVacant + `, l.value = NULL`

	setFreed = setEnded + `, l.ended = 1, l.expires_at = ` + now + `,
	l.not_before = IF(d.keep > 0, GREATEST(l.not_before, l.acquired_at + d.keep), l.not_before)`
)

const (
	queryVersion = `SELECT VERSION()`

	queryCheck = `SHOW SESSION VARIABLES WHERE Variable_name IN ('autocommit', 'binlog_format', 'character_set_connection', 'completion_type',
	'innodb_flush_log_at_trx_commit', 'innodb_read_only', 'log_bin', 'max_allowed_packet', 'read_only', 'sql_mode', 'super_read_only', 'sync_binlog',
	'transaction_isolation', 'transaction_read_only', 'tx_isolation', 'tx_read_only', 'wsrep_on')`

	queryRedo = `SHOW GLOBAL STATUS LIKE 'Innodb_redo_log_enabled'`

	queryEngine = `SELECT DATABASE(), (SELECT ENGINE FROM information_schema.TABLES
	WHERE TABLE_SCHEMA = DATABASE() AND TABLE_NAME = ?)`

	queryMeta = doSelect + `schema_version, compatible_from, HEX(id) FROM {meta}`

	// What the row of a name says, and for those who lock nothing whether it is so.
	queryState   = stateColumns + untidy
	lockedState  = stateColumns + `NULL`
	stateColumns = now + `, l.name, l.acq, l.owner, l.label, l.version, l.acquired_at, l.expires_at,
	l.holds, l.not_before, l.wait_until, l.qseq, l.qhead, l.ended, l.revoked, ` + grantable + `, l.others, l.others_until, `

	// queryLook tells what the row of a name says. It locks nothing, not even in a
	// session that is SERIALIZABLE.
	queryLook = doSelect + queryState + ` FROM ` + lockTable + ` WHERE l.name = UNHEX(?)`
	// Its limit takes the place of sql_select_limit.
	queryLookMany = doSelect + queryState + `, r.i - 1, NULL` + ofNames
	ofNames       = ` FROM ` + withName + asRows + ` LEFT JOIN ` + lockTable + ` ON l.name = UNHEX(r.name) LIMIT 1000000`

	// queryInsert takes names that have no row yet.
	queryInsert       = insertNew + `NULL FROM ` + withOwner + asRows
	queryInsertValues = insertNew + `UNHEX(NULLIF(r.value, '')) FROM ` + withValue + asRows
	insertNew         = doInsert + `(name, acq, owner, instance, label, version, holds, acquired_at, expires_at, value)
SELECT UNHEX(r.name), UNHEX(r.acq), UNHEX(r.owner), UNHEX(?), UNHEX(?), LAST_INSERT_ID(` + now + `), 1, ` + now + `, ` + now + ` + r.ttl, `

	// queryGrant takes a name whose row was seen to be grantable. It asks for the
	// version that was seen, so the one who takes it knows the new version too; and
	// for the holder, so that a crash is told by one, be it by a sweep.
	queryGrant = doUpdate + `(
	SELECT l.name FROM ` + termTable + `
	WHERE l.name = UNHEX(?) AND l.version = ? AND l.acq <=> UNHEX(NULLIF(?, x'')) AND ` + grantable + lockedTerm + mine + `
SET l.acq = UNHEX(?), l.owner = UNHEX(?), ` + setWon + `, l.expires_at = ` + now + ` + ?, l.value = UNHEX(NULLIF(?, x''))`

	queryGrantMany   = grantEach + `NULL AS value FROM ` + withOwner + granted
	queryGrantValues = grantEach + `UNHEX(NULLIF(r.value, '')) AS value FROM ` + withValue + granted
	grantEach        = doUpdate + `(
	SELECT l.name, UNHEX(r.acq) AS acq, UNHEX(r.owner) AS owner, r.ttl, `
	granted = joinTerm + `
	WHERE l.version = r.version AND l.acq <=> UNHEX(NULLIF(r.was, '')) AND ` + grantable + lockedTerm + mine + `
SET l.acq = d.acq, l.owner = d.owner, ` + setWon + `, l.expires_at = ` + now + ` + d.ttl, l.value = d.value`

	queryRenew = doUpdate + `(
	SELECT l.name, r.ttl, r.holds FROM ` + withHolds + join + `
	WHERE l.acq = UNHEX(r.acq) AND l.version = r.version AND l.expires_at > ` + now + locked + mine + `
SET l.expires_at = GREATEST(l.expires_at, LAST_INSERT_ID(` + now + `) + d.ttl), l.holds = d.holds`

	// queryRelease frees a name and keeps its row: the version must go on rising. What
	// somebody waits for is handed over, see queries_line.go.
	queryRelease = doUpdate + `(
	SELECT l.name, CAST(? AS SIGNED) AS keep FROM ` + termTable + `
	WHERE l.name = UNHEX(?) AND l.acq = UNHEX(?) AND l.version = ? AND ` + unawaited + lockedTerm + mine + `
SET ` + setFreed

	// queryReleaseMany frees all of the names or none of them: after a part of them
	// nobody could tell which, because the next holder may have them already.
	queryReleaseMany = doUpdate + `(
	SELECT l.name, r.keep, COUNT(*) OVER () AS found FROM ` + withKeep + joinTerm + `
	WHERE l.acq = UNHEX(r.acq) AND l.version = r.version AND ` + unawaited + lockedTerm + mine + `
SET ` + setFreed + `
WHERE d.found = ?`

	// queryAbandon is queryRelease for acquisitions whose version is not known.
	queryAbandon = doUpdate + `(
	SELECT l.name, r.keep FROM ` + withKeep + joinTerm + `
	WHERE l.acq = UNHEX(r.acq) AND ` + unawaited + lockedTerm + mine + `
SET ` + setFreed
)

// What bounds, in seconds, how long the server waits for a client in the middle of a
// transaction. MySQL knows no other bound than that of a session.
var (
	silentMySQL   = []string{"wait_timeout"}
	silentMariaDB = []string{"wait_timeout", "idle_transaction_timeout", "idle_readonly_transaction_timeout", "idle_write_transaction_timeout"}
)

// queryBound has the server end a session that is silent for a second, and remembers
// what was set.
func queryBound(settings []string) string {
	return setEach(settings, `@sqllock_%[1]s = @@SESSION.%[1]s, @@SESSION.%[1]s = 1`)
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

// queries are the texts for one table prefix.
type queries struct {
	lockName, metaName string // not quoted

	meta, look, lookMany, insert, insertValues, grant, grantMany, grantValues string
	renew, release, releaseMany, abandon                                      string
	lookValues, window, revoke, crashed, end, purge, due, turn                string
	resume, proclaim                                                          string
	guard, id, fence, fenceToken                                              string
	shared                                                                    sharedQueries
	line                                                                      lineQueries
	clean                                                                     cleanQueries

	database string // its id, once it was opened
}

func newQueries(prefix string) queries {
	q := queries{lockName: prefix + "lock", metaName: prefix + "meta"}
	text := strings.NewReplacer("{lock}", "`"+q.lockName+"`", "{meta}", "`"+q.metaName+"`", "{holder}", "`"+prefix+"holder`", "{ticket}", "`"+prefix+"ticket`").Replace
	q.meta = text(queryMeta)
	q.look, q.lookMany, q.lookValues = text(queryLook), text(queryLookMany), text(queryLookValues)
	q.insert, q.insertValues = text(queryInsert), text(queryInsertValues)
	q.grant, q.grantMany, q.grantValues = text(queryGrant), text(queryGrantMany), text(queryGrantValues)
	q.renew = text(queryRenew)
	q.release, q.releaseMany = text(queryRelease), text(queryReleaseMany)
	q.abandon = text(queryAbandon)
	q.window = text(queryWindow)
	q.revoke = text(queryRevoke)
	q.crashed, q.end, q.purge = text(queryCrashed), text(queryEnd), text(queryPurge)
	q.due, q.turn = text(queryDue), text(queryTurn)
	q.resume, q.proclaim = text(queryResume), text(queryProclaim)
	q.guard, q.id = text(queryGuard), text(queryID)
	q.shared, q.line, q.clean = newSharedQueries(text), newLineQueries(text), newCleanQueries(text)
	fence := strings.NewReplacer("{fence}", "`"+prefix+"fence`").Replace
	q.fence, q.fenceToken = fence(queryFence), fence(queryFenceToken)
	return q
}
