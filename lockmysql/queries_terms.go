package lockmysql

import "strings"

// The SQL over the table of terms, for the modes that keep locks in sessions; see
// queries.go for the ways. {mode} is the number of the mode.

// alive says that the session that a row names lives and has the lock: the server
// tells who has a lock of GET_LOCK, and lets go of it with the session. In the mode
// for update it is one that the session keeps for that. pid tells apart who has a
// lock of advisory mode next.
const alive = `IF(l.lock_key IS NULL, 0, COALESCE(IS_USED_LOCK(CONVERT(l.lock_key USING utf8mb4)) = l.pid, 0))`

const (
	terms      = `{term} l FORCE INDEX (PRIMARY)`
	ofMode     = `l.mode = {mode}`
	joinNamed  = asRows + ` STRAIGHT_JOIN ` + terms + ` ON ` + ofMode + ` AND l.name = UNHEX(r.name)`
	leftNamed  = asRows + ` LEFT JOIN ` + terms + ` ON ` + ofMode + ` AND l.name = UNHEX(r.name) LIMIT 1000000`
	mineOfMode = `) d STRAIGHT_JOIN ` + terms + ` ON ` + ofMode + ` AND l.name = d.name`

	// seen asks for the term that was seen: nobody has drawn since.
	seen = ofMode + ` AND l.name = UNHEX(?) AND l.version = ? AND l.acq <=> UNHEX(NULLIF(?, x''))`

	withDraw = withVersion + `, was CHAR(32) CHARACTER SET ascii PATH '$[3]', owner VARCHAR(510) CHARACTER SET ascii PATH '$[4]', lock_key VARCHAR(128) CHARACTER SET ascii PATH '$[5]',
	hold BIGINT PATH '$[6]', delay BIGINT PATH '$[7]'`
)

// What a draw writes. A term that is not recorded, because others may share it or a
// transaction of the application has the lock, is over as soon as it has begun.
const (
	setDrawn = `l.acq = d.acq, l.owner = IF(d.acq IS NULL, NULL, d.owner),
	l.instance = IF(d.acq IS NULL, NULL, UNHEX(?)), l.label = IF(d.acq IS NULL, NULL, UNHEX(?)),
	l.lock_key = IF(d.acq IS NULL, NULL, d.lock_key), l.pid = IF(d.acq IS NULL, NULL, ?), l.started = NULL,
	l.version = GREATEST(l.version + 1, LAST_INSERT_ID(` + now + `)), l.holds = IF(d.acq IS NULL, 0, 1),
	l.acquired_at = ` + now + `, l.ended_at = IF(d.acq IS NULL, ` + now + `, 0), l.ended = IF(d.acq IS NULL, 1, l.ended),
	l.not_before = IF(d.hold > 0, ` + now + ` + d.hold, l.not_before), l.delay = d.delay, l.revoke_for = NULL`

	setOver = `l.acq = NULL, l.owner = NULL, l.instance = NULL, l.label = NULL, l.lock_key = NULL, l.pid = NULL, l.started = NULL,
	l.holds = 0, l.delay = 0, l.revoke_for = NULL, l.value = NULL`
)

const (
	queryTerm = now + `, l.name, l.acq, l.owner, l.label, l.version, l.acquired_at, l.ended_at, l.holds,
	l.not_before, l.delay, l.ended, l.revoked, l.revoke_for IS NOT NULL, ` + readOnly + `, ` + alive

	queryTerms      = doSelect + queryTerm + `, r.i - 1, NULL FROM ` + withName + leftNamed
	queryTermValues = doSelect + queryTerm + `, r.i - 1, l.value FROM ` + withName + leftNamed
	queryTermWindow = doSelect + queryTerm + ` FROM ` + terms + ` WHERE ` + ofMode + ` AND l.name > UNHEX(?) ORDER BY l.name LIMIT ?`

	// queryTermNew makes rows, which say nothing yet.
	queryTermNew = bounded + `INSERT` + hint + `IGNORE INTO {term} (mode, name) SELECT {mode}, UNHEX(r.name) FROM ` + withName + asRows

	// queryDraw begins a term, and queryDrawMany all of its terms or none of them:
	// after a part nobody could tell which, of those that are not recorded.
	queryDraw = doUpdate + `(
	SELECT l.name, UNHEX(NULLIF(?, x'')) AS acq, UNHEX(?) AS owner, UNHEX(?) AS lock_key, CAST(? AS SIGNED) AS hold, CAST(? AS SIGNED) AS delay
	FROM ` + terms + ` WHERE ` + seen + locked + mineOfMode + `
SET ` + setDrawn + `, l.value = UNHEX(NULLIF(?, x''))`
	queryDrawMany = doUpdate + `(
	SELECT l.name, UNHEX(NULLIF(r.acq, '')) AS acq, UNHEX(r.owner) AS owner, UNHEX(r.lock_key) AS lock_key, r.hold, r.delay, COUNT(*) OVER () AS found
	FROM ` + withDraw + joinNamed + `
	WHERE l.version = r.version AND l.acq <=> UNHEX(NULLIF(r.was, ''))` + locked + mineOfMode + `
SET ` + setDrawn + `, l.value = NULL
WHERE d.found = ?`

	// queryTermEnd ends a term whose session is gone, and keeps the name for its lock
	// delay.
	queryTermEnd = doUpdate + `(
	SELECT l.name, l.delay FROM ` + terms + ` WHERE ` + seen + locked + mineOfMode + `
SET ` + setOver + `, l.ended = 2, l.ended_at = LAST_INSERT_ID(` + now + `),
	l.not_before = IF(d.delay > 0, GREATEST(l.not_before, ` + now + ` + d.delay), l.not_before)`

	// queryTermRelease frees all of the names or none of them. It says of a term that
	// its holder was asked to give up that it was revoked; then no gate is left. The draw
	// has written until when a minimum hold keeps the name; a release without one, of a
	// call that failed, takes that back.
	queryTermRelease = doUpdate + `(
	SELECT l.name, l.version, l.revoke_for IS NOT NULL AS asked, r.keep, COUNT(*) OVER () AS found FROM ` + withKeep + joinNamed + `
	WHERE l.acq = UNHEX(r.acq) AND l.version = r.version` + locked + mineOfMode + `
SET ` + setOver + `, l.ended = IF(d.asked, 3, 1), l.revoked = IF(d.asked, d.version, l.revoked), l.ended_at = ` + now + `,
	l.not_before = IF(d.asked OR d.keep = 0, 0, l.not_before)
WHERE d.found = ?`

	// queryProclaimTerm changes what the holder has to say.
	queryProclaimTerm = doUpdate + `(
	SELECT l.name FROM ` + terms + ` WHERE ` + seen + locked + mineOfMode + `
SET l.value = UNHEX(NULLIF(?, x''))`

	// queryTermAsk asks a holder to give up; queryTermRevoke clears what has none.
	queryTermAsk = doUpdate + `(
	SELECT l.name, l.instance FROM ` + terms + ` WHERE ` + seen + locked + mineOfMode + `
SET l.revoke_for = d.instance`
	queryTermRevoke = doUpdate + `(
	SELECT l.name, l.version FROM ` + terms + ` WHERE ` + seen + locked + mineOfMode + `
SET ` + setOver + `, l.ended = 3, l.ended_at = ` + now + `, l.revoked = d.version, l.not_before = 0`

	// queryAsked tells which of its terms a Locker is asked to give up, and whether the
	// server may be written to.
	queryAsked = doSelect + now + `, ` + readOnly + `, l.acq FROM (SELECT 1) o
	LEFT JOIN {term} l FORCE INDEX (sqllock_revoke) ON l.revoke_for = UNHEX(?) AND ` + ofMode + ` LIMIT 1000000`

	idleTerm       = `l.acq IS NULL AND l.ended_at <= ` + now + ` - ? AND l.version < ` + now + ` - ? AND l.not_before <= ` + now
	queryTermPurge = doDelete + `l FROM (
	SELECT l.name FROM ` + withName + joinNamed + ` WHERE ` + idleTerm + locked + mineOfMode + `
WHERE ` + idleTerm

	// When somebody last set out to clean up stands in a row whose name is none.
	turnTerm      = `l.version <= ` + now + ` - ? OR l.version > ` + now + ` + 10000000`
	queryTermDue  = doSelect + turnTerm + ` FROM ` + terms + ` WHERE ` + ofMode + ` AND l.name = ''`
	queryTermTurn = doUpdate + `(
	SELECT l.name FROM ` + terms + ` WHERE ` + ofMode + ` AND l.name = '' AND (` + turnTerm + `)` + locked + mineOfMode + `
SET l.version = ` + now

	// queryTermGuard locks the row of the term: who would begin the next has to change
	// it. The holder does not change it before it lets go. A session that lives where the
	// transaction is makes them of one server.
	queryTermGuard = `SELECT HEX((SELECT m.id FROM {meta} m)), ` + readOnly + `, ` + alive + ` FROM ` + terms + `
WHERE ` + ofMode + ` AND l.name = UNHEX(?) AND l.version = ? AND l.acq = UNHEX(?) LOCK IN SHARE MODE`
)

// termQueries are the texts for one table prefix and one mode.
type termQueries struct {
	termName, pinName string // not quoted

	look, lookValues, window, new, draw, drawMany, end, release string
	ask, revoke, asked, purge, due, turn, guard, id             string

	pins, pinNew, pinPurge string
	pin, pinNow, pinShared, pinSharedNow, pinSkip, pinSharedSkip,
	identity, proclaim string

	lock, lockShared, unlock, readers string
}

func newTermQueries(prefix, mode string) termQueries {
	q := termQueries{termName: prefix + "term", pinName: prefix + "pin"}
	text := strings.NewReplacer("{term}", "`"+q.termName+"`", "{pin}", "`"+q.pinName+"`", "{meta}", "`"+prefix+"meta`", "{mode}", mode).Replace
	q.look, q.lookValues, q.window = text(queryTerms), text(queryTermValues), text(queryTermWindow)
	q.new, q.draw, q.drawMany = text(queryTermNew), text(queryDraw), text(queryDrawMany)
	q.end, q.release = text(queryTermEnd), text(queryTermRelease)
	q.ask, q.revoke, q.asked = text(queryTermAsk), text(queryTermRevoke), text(queryAsked)
	q.purge, q.due, q.turn = text(queryTermPurge), text(queryTermDue), text(queryTermTurn)
	q.guard, q.id = text(queryTermGuard), text(queryID)
	q.proclaim = text(queryProclaimTerm)
	q.pins, q.pinNew, q.pinPurge = text(queryPins), text(queryPinNew), text(queryPinPurge)
	q.pin, q.pinNow, q.pinSkip = text(queryPin+forUpdate), text(queryPin+forUpdate+noWait), text(queryPin+forUpdate+skipLocked)
	q.pinShared, q.pinSharedNow, q.pinSharedSkip = text(queryPin+forShare), text(queryPin+forShare+noWait), text(queryPin+forShare+skipLocked)
	q.identity = text(queryIdentity)
	q.lock, q.lockShared = text(queryLock), text(queryLockShared)
	q.unlock, q.readers = queryUnlock, queryReaders
	return q
}
