package lockpg

// The SQL for looking inside and for cleaning up, see queries.go.

// row is what is known of a name.
const row = holder + `, l.holds, CASE WHEN ` + together + ` THEN l.others END, l.not_before, l.ended, l.revoked, ` + now

// kept says that a name is held, if by one who has expired, or kept for its minimum
// hold time.
const kept = `(l.acq IS NOT NULL OR l.not_before > ` + now + ` OR ` + together + `)`

// crashed and idle say what a sweep cleans up. Of a version that is younger than
// the retention it cannot be said that the clock will be past it.
const (
	crashed = `l.acq IS NOT NULL AND l.expires_at <= ` + now
	idle    = `l.acq IS NULL AND l.expires_at <= ` + now + ` - $3::bigint AND l.version < ` + now + ` - $3::bigint AND ` + open + `
	AND NOT EXISTS (SELECT FROM {ticket} t WHERE t.name = l.name)`
)

// leftOver says that somebody is to be told of, or taken away, who held a name
// together with others. untidy adds that the row of the name does not say what is.
const (
	leftOver = `EXISTS (SELECT FROM {holder} h WHERE h.name = l.name AND (h.expires_at <= ` + now + ` OR h.version <> l.version))`
	untidy   = `CASE WHEN l.others > 0 THEN ` + miscounted + ` ELSE false END`
)

// buried is how long a ticket has been dead that a sweep deletes, in microseconds.
const buried = `60000000`

const (
	queryLook = `
SELECT r.name, ` + row + `, l.value
FROM unnest($1::text[]) WITH ORDINALITY AS r(name, ord)
LEFT JOIN {lock} l ON l.name = r.name
ORDER BY r.ord`

	// queryList reads a window of the primary key. It returns the last row of the
	// window in any case.
	queryList = `
WITH seen AS MATERIALIZED (
	SELECT l.name, ` + holderColumns + `, l.holds, l.ended, l.revoked, l.not_before, l.wait_until
	FROM {lock} l WHERE l.name > $1::text
	ORDER BY l.name LIMIT $2::integer
), total AS MATERIALIZED (
	SELECT count(*) AS rows, max(name) AS last FROM seen
), wanted AS MATERIALIZED (
	SELECT l.*, $3::boolean OR l.acq IS NOT NULL OR NOT (` + open + `) AS wanted FROM seen l
)
SELECT l.name, ` + row + `, NULL::bytea, l.wanted, t.rows
FROM wanted l CROSS JOIN total t
WHERE l.wanted OR l.name = t.last
ORDER BY l.name`

	// queryRevoke waits for whoever has locked a row, be it to guard the lease. It ends
	// the terms that it saw before that wait and no later one: its client may have gone
	// meanwhile. The last column tells of a name that has got another term. What it frees
	// is handed over. A term counts as revoked only if it was held: the holder of one that
	// it had released itself has lost nothing.
	queryRevoke = `
WITH ` + flushed + `, req AS MATERIALIZED (
	SELECT * FROM unnest($1::text[], $3::bigint[]) WITH ORDINALITY AS r(name, version, ord)
), seen AS MATERIALIZED (
	SELECT l.name, l.acq, l.version FROM {lock} l JOIN req r ON r.name = l.name WHERE r.version IN (0, l.version)
), mine AS MATERIALIZED (
	SELECT l.* FROM {lock} l JOIN seen s ON s.name = l.name CROSS JOIN settings
	WHERE ` + kept + ` AND l.version = s.version AND l.acq IS NOT DISTINCT FROM s.acq
	ORDER BY l.name
	FOR UPDATE OF l
), done AS (
	UPDATE {lock} l SET ` + ended + `, ended = 3,
		revoked = CASE WHEN l.acq IS NOT NULL OR ` + together + ` THEN l.version ELSE l.revoked END,
		version = greatest(l.version + 1, ` + now + `), expires_at = ` + now + `, not_before = 0, others = 0, others_until = 0
	FROM mine m
	WHERE l.name = m.name AND ` + kept + `
	RETURNING l.name, l AS now_is, l.wait_until > ` + now + ` AS awaited
), was AS MATERIALIZED (
	SELECT m.* FROM mine m
	UNION ALL
	SELECT l.* FROM {lock} l JOIN req r ON r.name = l.name WHERE l.name NOT IN (SELECT m.name FROM mine m)
)
SELECT r.name, ` + row + `, l.value, d.name IS NOT NULL,
       CASE WHEN d.awaited THEN ({advance}(d.now_is, false, $2::uuid, false, NULL)).term END,
       coalesce(d.name IS NULL AND r.version IN (0, l.version) AND ` + kept + `, false)
FROM req r
LEFT JOIN was l ON l.name = r.name
LEFT JOIN done d ON d.name = r.name
ORDER BY r.ord`

	// querySweep cleans up a window of the primary key. What must be so of a row is
	// asked three times: to find it, when it is locked, and when it is changed.
	querySweep = `
WITH ` + unflushed + `, seen AS MATERIALIZED (
	SELECT l.name, l.crashed, l.idle AND NOT l.left_over AS idle, l.left_over OR l.untidy AND NOT l.idle AS untidy
	FROM (SELECT l.name, ` + crashed + ` AS crashed, ` + idle + ` AS idle, ` + leftOver + ` AS left_over, ` + untidy + ` AS untidy
	      FROM {lock} l WHERE l.name > $1::text
	      ORDER BY l.name LIMIT $2::integer) l
), gone AS MATERIALIZED (
	SELECT l.name, ` + holderColumns + ` FROM seen s JOIN {lock} l ON l.name = s.name
	WHERE s.crashed AND ` + crashed + `
	ORDER BY l.name
	FOR UPDATE OF l SKIP LOCKED
), freed AS (
	UPDATE {lock} l SET ` + ended + `, ended = 2
	FROM gone g CROSS JOIN settings
	WHERE l.name = g.name AND ` + crashed + `
	RETURNING g.*
), old AS MATERIALIZED (
	SELECT l.name FROM seen s JOIN {lock} l ON l.name = s.name
	WHERE s.idle AND ` + idle + `
	ORDER BY l.name
	FOR UPDATE OF l SKIP LOCKED
), purged AS (
	DELETE FROM {lock} l USING old o CROSS JOIN settings
	WHERE l.name = o.name AND ` + idle + `
	RETURNING l.name
), given_up AS MATERIALIZED (
	SELECT t.name, t.seq FROM {ticket} t
	WHERE t.name > $1::text AND t.name <= (SELECT max(s.name) FROM seen s) AND t.expires_at <= ` + now + ` - ` + buried + `
	FOR UPDATE OF t SKIP LOCKED
), buried AS (
	DELETE FROM {ticket} t USING given_up g CROSS JOIN settings
	WHERE t.name = g.name AND t.seq = g.seq
), total AS MATERIALIZED (
	SELECT (SELECT count(*) FROM seen) AS seen, (SELECT coalesce(max(name), '') FROM seen) AS last,
	       (SELECT count(*) FROM purged) AS purged,
	       (SELECT coalesce(json_agg(s.name ORDER BY s.name)::text, '') FROM seen s WHERE s.untidy) AS untidy
)
SELECT t.seen, t.last, t.purged, t.untidy, l.name, ` + holder + `
FROM total t LEFT JOIN freed l ON true
ORDER BY l.name`

	queryTurn = `
WITH ` + unflushed + `
UPDATE {meta} m SET swept_at = ` + now + `
FROM settings
WHERE m.swept_at <= ` + now + ` - $1::bigint OR m.swept_at > ` + now + `
RETURNING true`
)
