package lockmysql

// The SQL of MariaDB for the ordinary case: names that were released and that nobody
// shares, guards or waits for, and their releases. MariaDB can be told to wait for no
// lock at all. So these statements change rows as they meet them, where others lock
// them in a derived table first. If somebody has locked one of the rows, or guards
// one, the statement fails at once, nothing is changed, and the others are tried.
const hasty = `/*M!100600 SET STATEMENT lock_wait_timeout = 0, innodb_lock_wait_timeout = 0, sql_safe_updates = 0 */` +
	`/*M!110602 , innodb_snapshot_isolation = 0 */ /*M!100600 FOR */ `

// clean says that a name was released and may be had. The version is asked for because
// then the next one is what the clock says, whatever it was; a clock that went back is
// the business of the others. Rows without a holder have no value either.
const clean = `(l.acq IS NULL AND l.others = 0 AND l.not_before <= ` + now + `
	AND l.wait_until <= ` + now + ` AND l.version < ` + now + `)`

// Statements over a batch keep to what they need: the server spends most of its time
// on the columns of the requests. An owner that is left out is the acquisition, as
// text.
const (
	withTerm = `JSON_TABLE(?, '$[*]' COLUMNS (name VARCHAR(510) CHARACTER SET ascii PATH '$[0]', acq CHAR(32) CHARACTER SET ascii PATH '$[1]', version BIGINT PATH '$[2]'`
	withAsk  = `JSON_TABLE(?, '$[*]' COLUMNS (name VARCHAR(510) CHARACTER SET ascii PATH '$[0]', acq CHAR(32) CHARACTER SET ascii PATH '$[1]', ttl BIGINT PATH '$[2]',
	owner VARCHAR(510) CHARACTER SET ascii PATH '$[3]'`
)

const (
	// queryUnclean is queryLookMany for names that are not clean.
	queryUnclean = doSelect + queryState + `, r.i - 1, NULL FROM ` + withName + asRows + ` LEFT JOIN ` + lockTable + `
	ON l.name = UNHEX(r.name) WHERE NOT COALESCE(` + clean + `, FALSE) LIMIT 1000000`

	// queryGrantClean takes the names that are clean, and gives all of them the version
	// that LAST_INSERT_ID tells.
	queryGrantClean = hasty + `UPDATE ` + withAsk + join + `
SET l.acq = UNHEX(r.acq), l.owner = COALESCE(UNHEX(r.owner), r.acq), l.instance = UNHEX(?), l.label = UNHEX(?),
	l.version = LAST_INSERT_ID(` + now + `), l.holds = 1, l.acquired_at = ` + now + `, l.expires_at = ` + now + ` + r.ttl
WHERE ` + clean

	// queryGrantOne is queryGrant for a name that was seen to be clean.
	queryGrantOne = hasty + `UPDATE ` + lockTable + `
SET l.acq = UNHEX(?), l.owner = UNHEX(?), l.instance = UNHEX(?), l.label = UNHEX(?),
	l.version = LAST_INSERT_ID(` + now + `), l.holds = 1, l.acquired_at = ` + now + `, l.expires_at = ` + now + ` + ?,
	l.value = UNHEX(NULLIF(?, x''))
WHERE l.name = UNHEX(?) AND ` + clean

	// queryReleaseClean frees all of the names that have a row, or none of them. For a
	// term that is not as it should be the sum is too large for its type, which fails
	// the statement. Values are left to queryReleaseMany: a column of their kind, if only
	// to empty it, costs a batch a table on disk.
	queryReleaseClean = hasty + `UPDATE ` + withTerm + join + `
SET ` + setVacant + `, l.ended = 1, l.expires_at = ` + now + ` +
	IF(l.acq = UNHEX(r.acq) AND l.version = r.version AND l.value IS NULL AND ` + unawaited + `, 0, 9223372036854775807)`

	queryReleaseOne = hasty + `UPDATE ` + lockTable + `
SET ` + setEnded + `, l.ended = 1, l.expires_at = ` + now + `
WHERE l.name = UNHEX(?) AND l.acq = UNHEX(?) AND l.version = ? AND ` + unawaited
)

// cleanQueries are the texts of the ordinary case.
type cleanQueries struct {
	unclean, grant, grantOne, release, releaseOne string
}

func newCleanQueries(text func(string) string) cleanQueries {
	return cleanQueries{
		unclean: text(queryUnclean), grant: text(queryGrantClean), grantOne: text(queryGrantOne),
		release: text(queryReleaseClean), releaseOne: text(queryReleaseOne),
	}
}
