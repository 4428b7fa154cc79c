package lockmysql

// The SQL for names that are held together, see queries.go. The row of the name
// says how many hold it and until when the last of them expires, so that others
// need not look further; who they are stands in rows of their own. Whoever changes
// these has locked the row of the name, and changes both in one transaction. All
// reads in it lock what they read, and so see what is committed, whatever the
// isolation level; what is to be written follows from what was read.

// together says that a name is held by those who share it.
const together = `(l.acq IS NULL AND l.others > 0 AND l.others_until > ` + now + `)`

// joinable says that a name can be had together with those who have it.
const joinable = `(l.acq IS NULL OR l.expires_at <= ` + now + ` AND (l.others = 0 OR l.others_until <= ` + now + `))
	AND l.not_before <= ` + now + ` AND l.wait_until <= ` + now

// untidy says that fewer hold a name than its row says, or not for as long: some
// have expired, or who had it for longest has let it go. leftOver says that there is
// somebody to be told of, or taken away.
const (
	untidy = `IF(l.others > 0, (SELECT COUNT(*) < l.others OR COALESCE(MAX(h.expires_at), 0) < l.others_until FROM ` + holderTable + `
	WHERE h.name = l.name AND h.version = l.version AND h.expires_at > ` + now + `), 0)`
	leftOver = `EXISTS (SELECT 1 FROM ` + holderTable + ` WHERE h.name = l.name AND (h.expires_at <= ` + now + ` OR h.version <> l.version))`
)

const (
	holderTable = `{holder} h FORCE INDEX (PRIMARY)`
	theHolder   = ` STRAIGHT_JOIN ` + holderTable + ` ON h.name = l.name AND h.acq = UNHEX(r.acq)`
	withJoined  = withVersion + `, owner VARCHAR(510) CHARACTER SET ascii PATH '$[3]', since BIGINT PATH '$[4]', until BIGINT PATH '$[5]'`
	withCount   = withVersion + `, since BIGINT PATH '$[3]', others INT PATH '$[4]', others_until BIGINT PATH '$[5]',
	expires_at BIGINT PATH '$[6]', ended TINYINT PATH '$[7]', not_before BIGINT PATH '$[8]'`
	counts = doUpdate + `(
	SELECT UNHEX(r.name) AS name, r.version, r.since, r.others, r.others_until, r.expires_at, r.ended, r.not_before
	FROM ` + withCount + asRows + ` LIMIT 1000000` + mine + `
SET `
	lockedBoth = ` LIMIT 1000000 FOR UPDATE /*!80000 OF l, h */ SKIP LOCKED`
)

const (
	// queryLookShared also tells what a requester holds already.
	queryLookShared = doSelect + queryState + `, r.i - 1, h.version, h.expires_at
FROM ` + withVersion + asRows + ` LEFT JOIN ` + lockTable + ` ON l.name = UNHEX(r.name)
LEFT JOIN ` + holderTable + ` ON h.name = UNHEX(r.name) AND h.acq = UNHEX(r.acq) LIMIT 1000000`

	// queryFree makes rows for names that have none, which nobody holds.
	queryFree = doInsert + `(name, version) SELECT UNHEX(r.name), 0 FROM ` + withName + asRows

	// queryJoinable locks the rows of names that can be shared. A new term changes
	// the entry that a guard locks.
	queryJoinable = doSelect + lockedState + `, r.i - 1 FROM ` + withVersion + joinTerm + ` WHERE ` + joinable + lockedTerm

	queryJoin = counts + setEnded + `, l.version = d.version, l.acquired_at = d.since, l.others = d.others, l.others_until = d.others_until`

	queryEnter = bounded + `INSERT` + hint + `INTO {holder} (name, acq, owner, instance, label, version, holds, acquired_at, expires_at)
SELECT UNHEX(r.name), UNHEX(r.acq), UNHEX(r.owner), UNHEX(?), UNHEX(?), r.version, 1, r.since, r.until
FROM ` + withJoined + asRows

	// queryRenewShared extends what is held by those who share and, if needed, for how
	// long the row of the name says so. Of one name there may be several.
	queryRenewShared = doUpdate + `(
	SELECT h.name, h.acq, r.ttl, r.holds, MAX(r.ttl) OVER (PARTITION BY h.name) AS longest FROM ` + withHolds + join + theHolder + `
	WHERE h.version = r.version AND h.expires_at > ` + now + ` AND l.version = r.version AND ` + together + lockedBoth + mine + `
	STRAIGHT_JOIN ` + holderTable + ` ON h.name = d.name AND h.acq = d.acq
SET h.expires_at = GREATEST(h.expires_at, LAST_INSERT_ID(` + now + `) + d.ttl), h.holds = d.holds,
	l.others_until = GREATEST(l.others_until, ` + now + ` + d.longest)`

	// queryLeaving locks those who are about to leave, of a term or of whatever term,
	// with the rows of their names.
	queryLeaving = doSelect + lockedState + `, r.i - 1, h.version, h.acquired_at, h.expires_at FROM ` + withVersion + join + theHolder + `
	WHERE h.version = r.version` + lockedBoth
	queryQuitting = doSelect + lockedState + `, r.i - 1, h.version, h.acquired_at, h.expires_at FROM ` + withVersion + join + theHolder + lockedBoth

	queryLeave = doDelete + `h FROM (
	SELECT UNHEX(r.name) AS name, UNHEX(r.acq) AS acq FROM ` + withVersion + asRows + ` LIMIT 1000000) d
	STRAIGHT_JOIN ` + holderTable + ` ON h.name = d.name AND h.acq = d.acq`

	queryCount = counts + `l.others = d.others, l.others_until = d.others_until,
	l.expires_at = d.expires_at, l.ended = d.ended, l.not_before = d.not_before`

	// queryHold locks the rows of names, and queryHeld those who hold them together.
	queryHold   = doSelect + lockedState + `, r.i - 1 FROM ` + withName + join + locked
	queryHeld   = doSelect + heldColumns + ` FOR UPDATE /*!80000 OF h */`
	heldColumns = `r.i - 1, h.acq, h.owner, h.label, h.version, h.acquired_at, h.expires_at
FROM ` + withName + asRows + ` STRAIGHT_JOIN ` + holderTable + ` ON h.name = UNHEX(r.name) LIMIT 1000000`

	// queryDrop takes away whose term was revoked.
	queryDrop = doDelete + `h FROM (
	SELECT h.name, h.acq FROM ` + withVersion + asRows + ` STRAIGHT_JOIN ` + holderTable + ` ON h.name = UNHEX(r.name)
	WHERE h.version = r.version LIMIT 1000000 FOR UPDATE /*!80000 OF h */ SKIP LOCKED) d
	STRAIGHT_JOIN ` + holderTable + ` ON h.name = d.name AND h.acq = d.acq`
)

// sharedQueries are the texts for those who share.
type sharedQueries struct {
	look, free, joinable, join, enter, renew          string
	leaving, quitting, leave, count, hold, held, drop string
}

func newSharedQueries(text func(string) string) sharedQueries {
	return sharedQueries{
		look: text(queryLookShared), free: text(queryFree), joinable: text(queryJoinable), join: text(queryJoin),
		enter: text(queryEnter), renew: text(queryRenewShared),
		leaving: text(queryLeaving), quitting: text(queryQuitting), leave: text(queryLeave), count: text(queryCount),
		hold: text(queryHold), held: text(queryHeld), drop: text(queryDrop),
	}
}
