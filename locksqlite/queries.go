package locksqlite

import "strings"

// Every SQL text of this database stands here, under the names that the other
// databases use too. What varies is the name of the tables, which is checked and quoted.
//
// A batch is one JSON array, one inner array per request, so that the text of a
// statement does not depend on the number of requests. Ids cannot stand in JSON
// as they are, and unhex is newer than the oldest SQLite that we serve; they
// come as one blob, 16 bytes per request, cut up by the index of the request.

// now is the time in microseconds since the epoch. SQLite's clock has
// milliseconds; rounding takes away what julianday loses as a floating-point
// number. It is one value for the whole statement, read after the statement has
// got its lock on the database. unixepoch('subsec') is too new.
const now = `(CAST(round((julianday('now') - 2440587.5) * 86400000) AS INTEGER) * 1000)`

// grantable says that a row of the lock table can go to a new holder.
const grantable = `(l.acq IS NULL OR l.expires_at <= ` + now + `)
	AND (l.others = 0 OR l.others_until <= ` + now + `)
	AND l.not_before <= ` + now + `
	AND l.wait_until <= ` + now

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

	queryNow = `SELECT ` + now

	// queryCheck counts the tables of ours that exist. SQLite finds a table
	// whatever the case of its name.
	queryCheck = `
SELECT count(*) FROM sqlite_schema
WHERE type = 'table' AND lower(name) IN (lower(?1), lower(?2))`

	// queryWritable changes nothing, but needs the write lock. BEGIN IMMEDIATE
	// succeeds on a read-only database.
	queryWritable = `UPDATE {meta} SET id = id WHERE one = 0`

	queryMeta = `SELECT schema_version, compatible_from FROM {meta}`

	// queryLook reads what is known of each name: it takes no lock that a
	// writer could hold, so losing costs the winner nothing.
	queryLook = `
SELECT r.key,
       ` + now + `,
       coalesce(` + grantable + `, 1),
       l.acq,
       coalesce(l.owner, ''),
       coalesce(l.label, ''),
       coalesce(l.version, 0),
       coalesce(l.acquired_at, 0),
       coalesce(l.expires_at, 0)
FROM json_each(?1) AS r
LEFT JOIN {lock} AS l ON l.name = r.value`

	// queryGrant takes each name that is free at this moment, new names included.
	queryGrant = `
INSERT INTO {lock} AS l
       (name, acq, owner, instance, label, version, holds, acquired_at, expires_at)
SELECT json_extract(r.value, '$[0]'),
       substr(?2, 1 + 16 * r.key, 16),
       json_extract(r.value, '$[1]'),
       ?3,
       ?4,
       ` + now + `,
       1,
       ` + now + `,
       ` + now + ` + json_extract(r.value, '$[2]')
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
    expires_at = excluded.expires_at
WHERE ` + grantable + `
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

	queryRelease = `
UPDATE {lock} AS l
SET acq = NULL, owner = NULL, instance = NULL, label = NULL, holds = 0, expires_at = ` + now + `
FROM json_each(?1) AS r
WHERE l.name = json_extract(r.value, '$[0]')
  AND l.acq = substr(?2, 1 + 16 * r.key, 16)
  AND l.version = json_extract(r.value, '$[1]')
RETURNING name`

	queryAbandon = `
UPDATE {lock} AS l
SET acq = NULL, owner = NULL, instance = NULL, label = NULL, holds = 0, expires_at = ` + now + `
FROM json_each(?1) AS r
WHERE l.name = json_extract(r.value, '$[0]')
  AND l.acq = substr(?2, 1 + 16 * r.key, 16)`
)

// queries are the texts that name a table, for one prefix.
type queries struct {
	lockTable, metaTable string // not quoted

	meta, writable, look, grant, renew, release, abandon string
}

func newQueries(prefix string) queries {
	q := queries{lockTable: prefix + "lock", metaTable: prefix + "meta"}
	text := strings.NewReplacer("{lock}", `"`+q.lockTable+`"`, "{meta}", `"`+q.metaTable+`"`).Replace
	q.meta = text(queryMeta)
	q.writable = text(queryWritable)
	q.look = text(queryLook)
	q.grant = text(queryGrant)
	q.renew = text(queryRenew)
	q.release = text(queryRelease)
	q.abandon = text(queryAbandon)
	return q
}
