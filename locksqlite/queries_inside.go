package locksqlite

// The SQL for looking inside and for cleaning up, see queries.go.

// row is what is known of a name, but for the value.
const row = holder + `,
       coalesce(l.holds, 0), coalesce(CASE WHEN ` + together + ` THEN l.others END, 0), coalesce(l.not_before, 0),
       coalesce(l.ended, 0), coalesce(l.revoked, 0), ` + now

// crashed and idle say what a sweep cleans up; ?1 is the retention. Of a version
// that is younger than the retention it cannot be said that the clock will be
// past it. Holders that are left over are to be told of first.
const (
	crashed = `l.acq IS NOT NULL AND l.expires_at <= ` + now
	idle    = `l.acq IS NULL AND l.expires_at <= ` + now + ` - ?1 AND l.version < ` + now + ` - ?1
	AND ` + open + ` AND ` + none + `
	AND NOT EXISTS (SELECT 1 FROM {ticket} AS t WHERE t.name = l.name AND NOT ` + longDead + `)`
)

// untidy says that what a row says of those who hold its name together is not
// right, or that some are left over of whom it says nothing.
const untidy = `(l.others > 0 AND ` + miscounted + `
	OR EXISTS (SELECT 1 FROM {holder} AS h WHERE h.name = l.name AND (h.expires_at <= ` + now + ` OR h.version <> l.version)))`

// due says that a pass over the table is due; ?1 is the time between two. A time
// to come was written before the clock was set back.
const due = `swept_at <= ` + now + ` - ?1 OR swept_at > ` + now

const (
	queryLook = `
SELECT r.key, ` + row + `, l.value
FROM json_each(?1) AS r
LEFT JOIN {lock} AS l ON l.name = r.value`

	// queryList reads a window of the primary key. The value is the last column of
	// the table: what stands before it is read without it.
	queryList = `
SELECT l.name, ` + row + `
FROM {lock} AS l
WHERE l.name > ?1
ORDER BY l.name
LIMIT ?2`

	// queryRevoke counts a term as revoked only if it was held: the holder of one that it
	// had released itself has lost nothing.
	queryRevoke = `
UPDATE {lock} AS l
SET ` + ended + `, ended = 3,
    revoked = CASE WHEN l.acq IS NOT NULL OR ` + together + ` THEN l.version ELSE l.revoked END, version = max(l.version + 1, ` + now + `),
    expires_at = ` + now + `, not_before = 0, others = 0, others_until = 0
WHERE l.name IN (SELECT r.value FROM json_each(?1) AS r)
  AND (l.acq IS NOT NULL OR l.not_before > ` + now + ` OR ` + together + `)
RETURNING name, wait_until > ` + now

	// queryWindow finds what there is to clean up in a window of the primary key,
	// as JSON for the statements that do it.
	queryWindow = `
SELECT count(*),
       coalesce(max(l.name), ''),
       json_group_array(l.name) FILTER (WHERE ` + crashed + `),
       json_group_array(l.name) FILTER (WHERE ` + untidy + `),
       json_group_array(l.name) FILTER (WHERE EXISTS (SELECT 1 FROM {ticket} AS t WHERE t.name = l.name AND ` + longDead + `)),
       json_group_array(l.name) FILTER (WHERE ` + idle + `)
FROM (SELECT name, acq, version, expires_at, not_before, others, others_until, wait_until
      FROM {lock}
      WHERE name > ?2
      ORDER BY name
      LIMIT ?3) AS l`

	// queryHolders, in the transaction of querySweep, tells whose terms that may end.
	queryHolders = `
SELECT l.name, ` + holder + `
FROM json_each(?1) AS r
JOIN {lock} AS l ON l.name = r.value
ORDER BY r.key`

	querySweep = `
UPDATE {lock} AS l
SET ` + ended + `, ended = 2
WHERE l.name IN (SELECT r.value FROM json_each(?1) AS r)
  AND ` + crashed + `
RETURNING name`

	// queryPurge asks again what queryWindow has asked: without it a row would be
	// deleted that was granted meanwhile.
	queryPurge = `
DELETE FROM {lock} AS l
WHERE l.name IN (SELECT r.value FROM json_each(?2) AS r)
  AND ` + idle

	queryDue = `SELECT ` + due + ` FROM {meta}`

	queryTurn = `UPDATE {meta} SET swept_at = ` + now + ` WHERE ` + due
)
