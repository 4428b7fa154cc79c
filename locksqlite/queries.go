package locksqlite

import "strings"

// Every SQL text of this database stands here, under the names that the other
// databases use too. What varies is the name of the tables, which is checked and quoted.
//
// A batch is one JSON array, one inner array per request, so that the text of a
// statement does not depend on the number of requests. Ids cannot stand in JSON
// as they are, and unhex is newer than the oldest SQLite that we serve; they
// come as one blob, 16 bytes per request, cut up by the index of the request.
// Values come as one blob too, whose cuts stand in the JSON.

// now is the time in microseconds since the epoch. SQLite's clock has
// milliseconds; rounding takes away what julianday loses as a floating-point
// number. It is one value for the whole statement, read after the statement has
// got its lock on the database. unixepoch('subsec') is too new.
const now = `(CAST(round((julianday('now') - 2440587.5) * 86400000) AS INTEGER) * 1000)`

// open says that nothing but one holder keeps a name from a newcomer.
const open = `(l.others = 0 OR l.others_until <= ` + now + `)
	AND l.not_before <= ` + now + `
	AND l.wait_until <= ` + now

// gate says until when anything but holders keeps a name from a newcomer.
const gate = `coalesce(max(l.not_before, l.wait_until), 0)`

// holder is who holds or last held a name, since and until when, and whether that
// is together with others.
const holder = `l.acq, coalesce(l.owner, ''), coalesce(l.label, ''),
       coalesce(l.version, 0), coalesce(l.acquired_at, 0),
       coalesce(CASE WHEN ` + together + ` THEN l.others_until ELSE l.expires_at END, 0), coalesce(` + together + `, 0)`

// ended is what all ends of a term have in common. minHold keeps the name from
// others for a time after the grant.
const (
	ended   = `acq = NULL, owner = NULL, instance = NULL, label = NULL, holds = 0, value = NULL`
	minHold = `CASE WHEN json_extract(r.value, '$[1]') > 0
           THEN max(l.not_before, l.acquired_at + json_extract(r.value, '$[1]'))
           ELSE l.not_before END`
)

const (
	// queryServer fails on every other database.
	queryServer = `SELECT sqlite_version()`

	// queryProduct is for a handle that failed queryServer.
	queryProduct = `SELECT version()`

	// queryFile returns '' for a database that only its connection sees.
	queryFile = `SELECT coalesce(file, '') FROM pragma_database_list WHERE name = 'main'`

	queryJournal     = `PRAGMA journal_mode`
	querySynchronous = `PRAGMA synchronous`
	queryBusy        = `PRAGMA busy_timeout`
	queryBusySet     = `PRAGMA busy_timeout = ` // and milliseconds; a PRAGMA takes no parameters

	// A transaction that has the write lock from its start.
	queryBegin    = `BEGIN IMMEDIATE`
	queryCommit   = `COMMIT`
	queryRollback = `ROLLBACK`

	// queryCheck counts the tables of ours that exist. SQLite finds a table
	// whatever the case of its name.
	queryCheck = `
SELECT count(*) FROM sqlite_schema
WHERE type = 'table' AND lower(name) IN (lower(?1), lower(?2))`

	// queryWritable changes nothing, but needs the write lock. BEGIN IMMEDIATE
	// succeeds on a read-only database.
	queryWritable = `UPDATE {meta} SET id = id WHERE one = 0`

	queryMeta = `SELECT schema_version, compatible_from, id FROM {meta}`

	// queryGuard changes nothing, but needs the write lock, which the caller's
	// transaction keeps.
	queryID    = `SELECT id FROM {meta}`
	queryGuard = `
UPDATE {lock} SET version = version
WHERE name = ?1 AND acq = ?2 AND version = ?3
RETURNING version`

	// queryFence changes no row if the resource has seen a higher token.
	queryFence = `
INSERT INTO {fence} AS f (resource, token) VALUES (?1, ?2)
ON CONFLICT (resource) DO UPDATE SET token = excluded.token WHERE f.token <= excluded.token`

	// queryState reads what a grant has to know of each name: it takes no lock that
	// a writer could hold, so losing costs the winner nothing.
	queryState = `
SELECT r.key,
       coalesce((l.acq IS NULL OR l.expires_at <= ` + now + `) AND ` + open + `, 1),
       CASE WHEN ` + together + ` THEN ` + miscounted + ` ELSE 0 END,
       ` + gate + `,
       ` + now + `,
       ` + holder + `
FROM json_each(?1) AS r
LEFT JOIN {lock} AS l ON l.name = r.value`

	// queryGrant takes each name that is free at this moment, new names included,
	// and if ?6 is 1 also those whose holder has expired. Who shared a name before and has
	// expired is forgotten: if the clock went back, they would be back.
	queryGrant = `
INSERT INTO {lock} AS l
       (name, acq, owner, instance, label, version, holds, acquired_at, expires_at, value)
SELECT json_extract(r.value, '$[0]'),
       substr(?2, 1 + 16 * r.key, 16),
       json_extract(r.value, '$[1]'),
       ?3,
       ?4,
       ` + now + `,
       1,
       ` + now + `,
       ` + now + ` + json_extract(r.value, '$[2]'),
       nullif(substr(?5, 1 + json_extract(r.value, '$[3]'), json_extract(r.value, '$[4]')), x'')
FROM json_each(?1) AS r
WHERE true
ON CONFLICT (name) DO UPDATE
SET acq = excluded.acq,
    owner = excluded.owner,
    instance = excluded.instance,
    label = excluded.label,
    version = max(l.version + 1, excluded.version),
    holds = 1,
    acquired_at = excluded.acquired_at,
    expires_at = excluded.expires_at,
    value = excluded.value,
    others = 0,
    others_until = 0
WHERE (l.acq IS NULL OR ?6 = 1 AND l.expires_at <= ` + now + `) AND ` + open + `
RETURNING name, version, acquired_at, expires_at`

	queryRenew = `
UPDATE {lock} AS l
SET expires_at = max(l.expires_at, ` + now + ` + json_extract(r.value, '$[2]')),
    holds = json_extract(r.value, '$[3]')
FROM json_each(?1) AS r
WHERE l.name = json_extract(r.value, '$[0]')
  AND l.acq = substr(?2, 1 + 16 * r.key, 16)
  AND l.version = json_extract(r.value, '$[1]')
  AND l.expires_at > ` + now + `
RETURNING name, ` + now

	// queryRevoked is for a batch of queryRenew that was not renewed as a whole.
	queryRevoked = `
SELECT r.key, coalesce(l.revoked = json_extract(r.value, '$[1]'), 0), ` + now + `
FROM json_each(?1) AS r
LEFT JOIN {lock} AS l ON l.name = json_extract(r.value, '$[0]')`

	// queryRelease frees names and keeps their rows: the version must go on rising.
	// Unless ?3 is 1, not those for which somebody waits.
	queryRelease = `
UPDATE {lock} AS l
SET ` + ended + `, ended = 1, expires_at = ` + now + `, not_before = ` + minHold + `
FROM json_each(?1) AS r
WHERE l.name = json_extract(r.value, '$[0]')
  AND l.acq = substr(?2, 1 + 16 * r.key, 16)
  AND l.version = json_extract(r.value, '$[2]')
  AND (?3 = 1 OR l.wait_until <= ` + now + `)
RETURNING name`

	// queryAbandon is queryRelease for acquisitions whose version is not known.
	queryAbandon = `
UPDATE {lock} AS l
SET ` + ended + `, ended = 1, expires_at = ` + now + `, not_before = ` + minHold + `
FROM json_each(?1) AS r
WHERE l.name = json_extract(r.value, '$[0]')
  AND l.acq = substr(?2, 1 + 16 * r.key, 16)
RETURNING name, wait_until > ` + now
)

// queries are the texts that name a table, for one prefix.
type queries struct {
	lockTable, metaTable string // not quoted
	database             string // its id, once it was opened

	meta, writable, state, grant, renew, revoked, release, abandon string
	look, list, revoke, window, holders, sweep, purge, due, turn   string
	id, guard, fence, resume, proclaim                             string
	shared                                                         sharedQueries
	line                                                           lineQueries
}

func newQueries(prefix string) queries {
	q := queries{lockTable: prefix + "lock", metaTable: prefix + "meta"}
	text := strings.NewReplacer("{lock}", `"`+q.lockTable+`"`, "{meta}", `"`+q.metaTable+`"`,
		"{holder}", `"`+prefix+`holder"`, "{ticket}", `"`+prefix+`ticket"`).Replace
	q.meta = text(queryMeta)
	q.writable = text(queryWritable)
	q.state = text(queryState)
	q.grant = text(queryGrant)
	q.renew = text(queryRenew)
	q.revoked = text(queryRevoked)
	q.release = text(queryRelease)
	q.abandon = text(queryAbandon)
	q.look = text(queryLook)
	q.list = text(queryList)
	q.revoke = text(queryRevoke)
	q.resume, q.proclaim = text(queryResume), text(queryProclaim)
	q.window = text(queryWindow)
	q.holders = text(queryHolders)
	q.sweep = text(querySweep)
	q.purge = text(queryPurge)
	q.due = text(queryDue)
	q.turn = text(queryTurn)
	q.id = text(queryID)
	q.guard = text(queryGuard)
	q.shared = newSharedQueries(text)
	q.line = newLineQueries(text)
	q.fence = strings.ReplaceAll(queryFence, "{fence}", `"`+prefix+`fence"`)
	return q
}
