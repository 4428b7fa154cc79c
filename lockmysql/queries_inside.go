package lockmysql

// The SQL for looking inside and for cleaning up, see queries.go.

// kept says that a name is held, if by one who has expired, or kept for its minimum
// hold time.
const kept = `(l.acq IS NOT NULL OR l.not_before > ` + now + ` OR ` + together + `)`

// idle says what is purged. Of a version that is younger than the retention it
// cannot be said that the clock will be past it.
const idle = `l.acq IS NULL AND l.expires_at <= ` + now + ` - ? AND l.version < ` + now + ` - ? AND ` + open

// expired says that this acquisition has crashed, or does nothing about its lease.
const expired = `l.acq = UNHEX(r.acq) AND l.version = r.version AND l.expires_at <= ` + now

const (
	queryLookValues = doSelect + queryState + `, r.i - 1, l.value` + ofNames

	// queryWindow reads on in the primary key.
	queryWindow = doSelect + queryState + `, ` + leftOver + `, ` + ticketed + ` FROM ` + lockTable + ` WHERE l.name > UNHEX(?) ORDER BY l.name LIMIT ?`

	// queryRevoke ends the terms that were seen, all of them or none. A term counts as
	// revoked only if it was held.
	queryRevoke = doUpdate + `(
	SELECT l.name, l.version, IF(l.acq IS NOT NULL OR ` + together + `, l.version, l.revoked) AS revoked, COUNT(*) OVER () AS found FROM ` + withVersion + joinTerm + `
	WHERE l.version = r.version AND l.acq <=> UNHEX(NULLIF(r.acq, '')) AND ` + kept + lockedTerm + mine + `
SET ` + setEnded + `, l.ended = 3, l.revoked = d.revoked, l.version = GREATEST(d.version + 1, ` + now + `),
	l.expires_at = ` + now + `, l.not_before = 0, l.others = 0, l.others_until = 0
WHERE d.found = ?`

	// queryCrashed locks the rows of which the next statement ends the terms, in one
	// transaction with it: so it is certain which they are.
	// The version rises, so that a guard finds no entry of the term any more: to the
	// clock, as all versions, because below the entry of a guard there may be no room.
	queryCrashed = doSelect + `r.i - 1 FROM ` + withVersion + joinTerm + ` WHERE ` + expired + lockedTerm
	queryEnd     = doUpdate + `(
	SELECT l.name FROM ` + withVersion + joinTerm + ` WHERE ` + expired + lockedTerm + mine + `
SET ` + setEnded + `, l.ended = 2, l.version = GREATEST(l.version + 1, ` + now + `)`

	queryPurge = doDelete + `l FROM (
	SELECT l.name FROM ` + withName + join + ` WHERE ` + idle + locked + mine + `
WHERE ` + idle

	queryDue  = doSelect + due + ` FROM {meta} m`
	queryTurn = doUpdate + `(
	SELECT m.one FROM {meta} m WHERE m.one = 1 AND (` + due + `)` + lockedMeta + `) d STRAIGHT_JOIN {meta} m ON m.one = d.one
SET m.swept_at = ` + now

	// A clock that was set back does not keep everybody waiting. Ten seconds are more
	// than a statement takes that began before another set the time it finds.
	due        = `m.swept_at <= ` + now + ` - ? OR m.swept_at > ` + now + ` + 10000000`
	lockedMeta = ` LIMIT 1 FOR UPDATE SKIP LOCKED`
)
