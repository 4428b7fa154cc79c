package lockmysql

// The SQL for those who stand in line, see queries.go. A ticket is made, and taken
// out of the line, by who has locked the row of the name: so whoever reads the
// tickets after having locked that row misses none. It has to be the first thing in
// the transaction that is read without a lock, for in REPEATABLE READ that is when
// time stands still. Tickets are changed by their primary key only, which locks no
// gap between them.
//
// A ticket that is alive may be prolonged without a lock on the row of the name, as
// far as that says that somebody waits. Who says that nobody does has deleted all
// tickets.

// unawaited says that nobody stands in line.
const unawaited = `l.wait_until <= ` + now

// ticketed says that there are tickets, be they of nobody who is alive.
const ticketed = `EXISTS (SELECT 1 FROM ` + ticketTable + ` WHERE t.name = l.name)`

const (
	ticketTable   = `{ticket} t FORCE INDEX (PRIMARY)`
	ticketColumns = `t.seq, t.acq, t.shared, t.expires_at`
	headColumns   = ticketColumns + `, t.owner, t.instance, t.label, t.ttl, t.handed`
	theTicket     = ` STRAIGHT_JOIN ` + ticketTable + ` ON t.name = UNHEX(r.name) AND t.seq = r.seq`

	withSeq    = withName + `, acq CHAR(32) CHARACTER SET ascii PATH '$[1]', seq BIGINT PATH '$[2]'`
	withUntil  = withSeq + `, until BIGINT PATH '$[3]'`
	withSeen   = withName + `, value MEDIUMTEXT CHARACTER SET ascii PATH '$[2]'`
	withQueue  = withName + `, qseq BIGINT PATH '$[2]', qhead BIGINT PATH '$[3]', wait_until BIGINT PATH '$[4]'`
	withSeated = withJoined + `, instance CHAR(32) CHARACTER SET ascii PATH '$[6]', label VARCHAR(510) CHARACTER SET ascii PATH '$[7]'`
	withTicket = withUntil + `, owner VARCHAR(510) CHARACTER SET ascii PATH '$[4]', shared TINYINT PATH '$[5]', ttl BIGINT PATH '$[6]', handed BIGINT PATH '$[7]',
	entered_at BIGINT PATH '$[8]', value MEDIUMTEXT CHARACTER SET ascii PATH '$[9]', carries MEDIUMTEXT CHARACTER SET ascii PATH '$[10]'`
	withMove = withName + `, acq CHAR(32) CHARACTER SET ascii PATH '$[1]', rise INT PATH '$[2]', owner VARCHAR(510) CHARACTER SET ascii PATH '$[3]', instance CHAR(32) CHARACTER SET ascii PATH '$[4]', label VARCHAR(510) CHARACTER SET ascii PATH '$[5]',
	since BIGINT PATH '$[6]', expires_at BIGINT PATH '$[7]', others INT PATH '$[8]', others_until BIGINT PATH '$[9]',
	ended TINYINT PATH '$[10]', revoked BIGINT PATH '$[11]', not_before BIGINT PATH '$[12]',
	qseq BIGINT PATH '$[13]', qhead BIGINT PATH '$[14]', wait_until BIGINT PATH '$[15]', seq BIGINT PATH '$[16]'`

	ofTicket = ` LIMIT 1000000) d STRAIGHT_JOIN ` + ticketTable + ` ON t.name = d.name AND t.seq = d.seq`
)

const (
	// queryStand tells of each request what the row of its name says, what it holds
	// together with others, and its ticket.
	queryStand = doSelect + lockedState + `, r.i - 1, h.version, h.expires_at, t.seq, t.expires_at
FROM ` + withVersion + asRows + ` LEFT JOIN ` + lockTable + ` ON l.name = UNHEX(r.name)
LEFT JOIN ` + holderTable + ` ON h.name = UNHEX(r.name) AND h.acq = UNHEX(r.acq)
LEFT JOIN {ticket} t FORCE INDEX (sqllock_ticket_acq) ON t.acq = UNHEX(r.acq) AND t.name = UNHEX(r.name) LIMIT 1000000`

	// queryHeads reads the first ticket of each name of somebody who is alive, and the
	// number of the last; queryLine and queryTickets read all tickets.
	queryHeads = doSelect + `d.i, d.last, ` + headColumns + ` FROM (
	SELECT r.i - 1 AS i, UNHEX(r.name) AS name, (` + first + ` LIMIT 1) AS head, (` + first + ` DESC LIMIT 1) AS last
	FROM ` + withName + asRows + ` LIMIT 1000000) d
	STRAIGHT_JOIN ` + ticketTable + ` ON t.name = d.name AND t.seq = d.head LIMIT 1000000`
	queryLine    = doSelect + `r.i - 1, NULL, ` + headColumns + ofLine
	queryTickets = doSelect + `r.i - 1, ` + ticketColumns + ofLine
	ofLine       = ` FROM ` + withName + asRows + ` STRAIGHT_JOIN ` + ticketTable + ` ON t.name = UNHEX(r.name) LIMIT 1000000`

	// queryTogether reads who holds names together, or did.
	queryTogether = doSelect + heldColumns

	// queryEntries locks what a guard locks, of versions that rows that are locked have.
	queryEntries = doSelect + `r.i - 1 FROM ` + withVersion + asRows + ` STRAIGHT_JOIN {lock} g FORCE INDEX (sqllock_guard)
	ON g.version = r.version AND g.name = UNHEX(r.name) LIMIT 1000000 FOR UPDATE /*!80000 OF g */ SKIP LOCKED`

	// queryHeldTerms locks the terms of those who are about to let go, and queryRevokable
	// those that are about to be revoked.
	queryHeldTerms = doSelect + lockedState + `, r.i - 1 FROM ` + withVersion + joinTerm + `
	WHERE l.acq = UNHEX(r.acq) AND l.version = r.version` + lockedTerm
	queryRevokable = doSelect + lockedState + `, r.i - 1 FROM ` + withVersion + joinTerm + `
	WHERE l.version = r.version AND l.acq <=> UNHEX(NULLIF(r.acq, '')) AND ` + kept + lockedTerm

	// queryMove begins or ends terms of rows that are locked. The value is that of a
	// ticket, if any. The version rises to what the clock says now, and not when the row
	// was locked: below the entry of a guard there may be no room, see queryCrashed.
	queryMove = doUpdate + `(
	SELECT UNHEX(r.name) AS name, UNHEX(NULLIF(r.acq, '')) AS acq, UNHEX(r.owner) AS owner, UNHEX(r.instance) AS instance, UNHEX(r.label) AS label,
	r.rise, r.since, r.expires_at, r.others, r.others_until, r.ended, r.revoked, r.not_before, r.qseq, r.qhead, r.wait_until, r.seq
	FROM ` + withMove + asRows + ` LIMIT 1000000` + mine + `
SET l.acq = d.acq, l.owner = IF(d.acq IS NULL, NULL, d.owner), l.instance = IF(d.acq IS NULL, NULL, d.instance),
	l.label = IF(d.acq IS NULL, NULL, d.label), l.holds = IF(d.acq IS NULL, 0, 1),
	l.version = IF(d.rise > 0, GREATEST(l.version + d.rise, LAST_INSERT_ID(` + now + `)), l.version),
	l.acquired_at = d.since, l.expires_at = d.expires_at, l.others = d.others, l.others_until = d.others_until,
	l.ended = d.ended, l.revoked = d.revoked, l.not_before = d.not_before, ` + setQueue + `,
	l.value = IF(d.seq > 0, (SELECT t.value FROM ` + ticketTable + ` WHERE t.name = d.name AND t.seq = d.seq), NULL)`

	// queryQueue writes how long the line is, and nothing else.
	queryQueue = doUpdate + `(
	SELECT UNHEX(r.name) AS name, r.qseq, r.qhead, r.wait_until FROM ` + withQueue + asRows + ` LIMIT 1000000` + mine + `
SET ` + setQueue
	setQueue = `l.qseq = d.qseq, l.qhead = d.qhead, l.wait_until = d.wait_until`

	// queryValues writes what new holders have to say.
	queryValues = doUpdate + `(
	SELECT UNHEX(r.name) AS name, UNHEX(r.value) AS value FROM ` + withSeen + asRows + ` LIMIT 1000000` + mine + `
SET l.value = d.value`

	// querySeat writes who holds names together. What is left of one who held it before
	// is overwritten.
	querySeat = bounded + `INSERT` + hint + `INTO {holder} (name, acq, owner, instance, label, version, holds, acquired_at, expires_at)
SELECT UNHEX(r.name), UNHEX(r.acq), UNHEX(r.owner), UNHEX(r.instance), UNHEX(r.label), r.version, 1, r.since, r.until
FROM ` + withSeated + asRows + `
ON DUPLICATE KEY UPDATE owner = VALUES(owner), instance = VALUES(instance), label = VALUES(label), version = VALUES(version),
	holds = 1, acquired_at = VALUES(acquired_at), expires_at = VALUES(expires_at)`

	queryTicket = bounded + `INSERT` + hint + `INTO {ticket} (name, seq, acq, owner, instance, label, shared, ttl, handed, value, carries, entered_at, expires_at)
SELECT UNHEX(r.name), r.seq, UNHEX(r.acq), UNHEX(r.owner), UNHEX(?), UNHEX(?), r.shared, r.ttl, r.handed,
	UNHEX(NULLIF(r.value, '')), UNHEX(NULLIF(r.carries, '')), r.entered_at, r.until FROM ` + withTicket + asRows

	// queryStay prolongs tickets of those who are alive, whose names are not locked.
	// queryLast does it for names that are.
	queryStay = doUpdate + `(
	SELECT t.name, t.seq, r.until FROM ` + withUntil + asRows + theTicket + `
	WHERE t.acq = UNHEX(r.acq) AND t.expires_at > ` + now + `
	LIMIT 1000000 FOR UPDATE /*!80000 OF t */ SKIP LOCKED) d STRAIGHT_JOIN ` + ticketTable + ` ON t.name = d.name AND t.seq = d.seq
SET t.expires_at = GREATEST(t.expires_at, d.until)`
	queryLast = doUpdate + `(
	SELECT UNHEX(r.name) AS name, r.seq, r.until FROM ` + withUntil + asRows + ofTicket + `
SET t.expires_at = d.until`

	queryGone = doDelete + `t FROM (
	SELECT UNHEX(r.name) AS name, r.seq FROM ` + withSeq + asRows + ofTicket

	// queryDead tells of tickets that nobody will miss, and queryBury deletes them.
	queryDead = doSelect + `r.i - 1, t.seq FROM ` + withName + asRows + ` STRAIGHT_JOIN ` + ticketTable + `
	ON t.name = UNHEX(r.name) WHERE ` + dead + ` LIMIT 1000000`
	queryBury = doDelete + `t FROM (
	SELECT t.name, t.seq FROM ` + withSeq + asRows + theTicket + ` WHERE ` + dead + `
	LIMIT 1000000 FOR UPDATE /*!80000 OF t */ SKIP LOCKED) d STRAIGHT_JOIN ` + ticketTable + ` ON t.name = d.name AND t.seq = d.seq`
	dead = `t.expires_at <= ` + now + ` - 60000000`

	// queryWaits reads who waits and keeps others waiting. Of several who hold a name
	// together each has a row.
	queryWaits = doSelect + `t.name, t.acq, t.label, t.seq, t.entered_at, t.shared, t.carries,
	COALESCE(IF(l.expires_at > ` + now + `, l.acq, NULL), h.acq)
FROM {ticket} t LEFT JOIN ` + lockTable + ` ON l.name = t.name
LEFT JOIN ` + holderTable + ` ON l.acq IS NULL AND l.others > 0 AND h.name = l.name AND h.version = l.version AND h.expires_at > ` + now + `
WHERE t.carries IS NOT NULL AND t.expires_at > ` + now + ` LIMIT 1000000`
)

// first is the number of the first ticket of somebody who is alive or, with DESC, of
// the last.
const first = `SELECT a.seq FROM {ticket} a FORCE INDEX (PRIMARY) WHERE a.name = UNHEX(r.name) AND a.expires_at > ` + now + ` ORDER BY a.seq`

// lineQueries are the texts for those who stand in line.
type lineQueries struct {
	stand, heads, line, tickets, readers, entries, heldTerms, revokable string
	move, queue, values, seat, ticket, stay, last, gone                 string
	dead, bury, waits                                                   string
}

func newLineQueries(text func(string) string) lineQueries {
	return lineQueries{
		stand: text(queryStand), heads: text(queryHeads), line: text(queryLine), tickets: text(queryTickets),
		readers: text(queryTogether), entries: text(queryEntries), heldTerms: text(queryHeldTerms), revokable: text(queryRevokable),
		move: text(queryMove), queue: text(queryQueue), values: text(queryValues), seat: text(querySeat), ticket: text(queryTicket),
		stay: text(queryStay), last: text(queryLast), gone: text(queryGone),
		dead: text(queryDead), bury: text(queryBury), waits: text(queryWaits),
	}
}
