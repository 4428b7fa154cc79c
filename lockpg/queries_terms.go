package lockpg

// The SQL for looking at terms and for cleaning up, see queries_sessions.go. {live}
// is what the server knows of the locks of sessions: nothing in the mode for update,
// where a row says whose session it is, and that one lives or not.

var insideForUpdate = []string{
	"{live}", `live AS MATERIALIZED (SELECT NULL::bigint AS key, 0::bigint AS readers, NULL::bigint AS pid WHERE false)`,
	"{alive}", `CASE WHEN t.pid IS NULL THEN false ELSE EXISTS (SELECT FROM pg_stat_get_activity(t.pid::integer) a
		WHERE a.backend_start IS NULL OR ` + sameStart + `) END`,
	"{anonymous}", `false`,
	"{mark}", `t.version`, "{mark_new}", `0`,
}

// Keys of 64 bits are told apart from pairs of 32 by objsubid.
var insideAdvisory = []string{
	"{live}", `live AS MATERIALIZED (
	SELECT (classid::bigint << 32) | objid::bigint AS key, count(*) FILTER (WHERE mode = 'ShareLock') AS readers,
	       max(pid) FILTER (WHERE mode = 'ExclusiveLock') AS pid
	FROM pg_locks
	WHERE locktype = 'advisory' AND objsubid = 1 AND granted
	  AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
	GROUP BY 1
)`,
	"{alive}", `coalesce(v.pid = t.pid, false)`,
	"{anonymous}", `v.key IS NOT NULL`,
	"{mark}", `nextval('{token}')`, "{mark_new}", `nextval('{token}')`,
}

// term is what is known of a name, see scanRow. Of a holder whose session is gone it is
// not known since when.
const term = `t.acq::text, t.owner, t.label, t.version, t.acquired_at,
	CASE WHEN t.acq IS NOT NULL THEN CASE WHEN t.alive THEN 0 ELSE t.acquired_at END WHEN t.sharing > 0 THEN 0 ELSE t.ended_at END,
	t.sharing > 0, t.holds, t.sharing, t.not_before, t.ended, t.revoked, ` + now

// seenTerm adds to a row of terms what is known of its locks.
const seenTerm = `t.*, t.acq IS NOT NULL AND {alive} AS alive,
	CASE WHEN t.acq IS NULL THEN coalesce(v.readers, 0) ELSE 0 END AS sharing,
	CASE WHEN t.acq IS NOT NULL THEN {alive} ELSE v.key IS NOT NULL END AS by_session`

const (
	deadTerm = `(t.acq IS NOT NULL AND NOT {alive})`
	idleTerm = `(t.acq IS NULL AND t.ended_at <= ` + now + ` - $3::bigint AND t.version < ` + now + ` - $3::bigint
		AND t.not_before <= ` + now + ` AND v.key IS NULL)`

	// crashedTerm is what is left of a term whose session is gone.
	crashedTerm = noTerm + `, ended = 2, not_before = CASE WHEN t.delay > 0 THEN greatest(t.not_before, ` + now + ` + t.delay) ELSE t.not_before END`
)

const (
	queryLookTerms = `
WITH {live}
SELECT r.name, ` + term + `, t.value, coalesce(t.by_session, v.key IS NOT NULL), coalesce(v.readers, 0)
FROM unnest($1::text[], $2::bigint[]) WITH ORDINALITY AS r(name, key, ord)
LEFT JOIN live v ON v.key = r.key
LEFT JOIN LATERAL (SELECT ` + seenTerm + ` FROM {term} t WHERE t.mode = {mode} AND t.name = r.name) t ON true
ORDER BY r.ord`

	// queryListTerms reads a window of the primary key, as queryList does. The row
	// without a name is that of queryTurnTerms.
	queryListTerms = `
WITH {live}, part AS MATERIALIZED (
	SELECT t.* FROM {term} t WHERE t.mode = {mode} AND t.name > $1::text
	ORDER BY t.name LIMIT $2::integer
), total AS MATERIALIZED (
	SELECT count(*) AS rows, max(name) AS last FROM part
), seen AS MATERIALIZED (
	SELECT ` + seenTerm + ` FROM part t LEFT JOIN live v ON v.key = t.lock_key
), wanted AS MATERIALIZED (
	SELECT t.*, $3::boolean OR t.acq IS NOT NULL OR t.by_session OR t.not_before > ` + now + ` AS wanted FROM seen t
)
SELECT t.name, ` + term + `, NULL::bytea, t.by_session, t.wanted, c.rows
FROM wanted t CROSS JOIN total c
WHERE t.wanted OR t.name = c.last
ORDER BY t.name`

	// queryRevokeTerms asks holders who live, and ends what else keeps a name. It does
	// not wait for a row that is locked to be ended. Whoever has the lock without having
	// written who that is is asked by version, but not for a request that means another
	// term.
	queryRevokeTerms = `
WITH ` + flushed + `, {live}, req AS MATERIALIZED (
	SELECT * FROM unnest($1::text[], $2::bigint[], $3::bigint[]) WITH ORDINALITY AS r(name, key, version, ord)
), was AS MATERIALIZED (
	SELECT r.ord, r.key, r.version AS wanted, ` + seenTerm + `
	FROM req r JOIN {term} t ON t.mode = {mode} AND t.name = r.name LEFT JOIN live v ON v.key = r.key
), asked AS (
	UPDATE {term} t SET revoke_for = coalesce(w.instance, ` + anybody + `),
		revoked = CASE WHEN w.acq IS NULL THEN {mark} ELSE t.revoked END, ended = CASE WHEN w.acq IS NULL THEN 3 ELSE t.ended END
	FROM was w CROSS JOIN settings
	WHERE t.mode = {mode} AND t.name = w.name AND w.by_session AND t.acq IS NOT DISTINCT FROM w.acq
	  AND (w.wanted = 0 OR w.acq IS NOT NULL AND w.wanted = w.version)
	RETURNING t.name
), added AS (
	INSERT INTO {term} AS t (mode, name, lock_key, revoke_for, revoked, ended)
	SELECT {mode}, r.name, r.key, ` + anybody + `, {mark_new}, 3
	FROM req r JOIN live v ON v.key = r.key CROSS JOIN settings
	WHERE {anonymous} AND r.version = 0 AND r.name NOT IN (SELECT w.name FROM was w)
	ON CONFLICT (mode, name) DO NOTHING
	RETURNING t.name
), over AS MATERIALIZED (
	SELECT t.name, t.acq FROM {term} t JOIN was w ON w.name = t.name CROSS JOIN settings
	WHERE t.mode = {mode} AND NOT w.by_session AND (t.acq IS NOT NULL OR t.not_before > ` + now + `) AND t.acq IS NOT DISTINCT FROM w.acq
	  AND w.wanted IN (0, w.version)
	ORDER BY t.name
	FOR UPDATE OF t SKIP LOCKED
), ended AS (
	UPDATE {term} t SET ` + noTerm + `, ended = 3, revoked = t.version, not_before = 0
	FROM over o
	WHERE t.mode = {mode} AND t.name = o.name AND t.acq IS NOT DISTINCT FROM o.acq
	RETURNING t.name
)
SELECT r.name, ` + term + `, t.value, coalesce(t.by_session, v.key IS NOT NULL),
       r.name IN (SELECT a.name FROM asked a UNION ALL SELECT a.name FROM added a UNION ALL SELECT e.name FROM ended e),
       coalesce(NOT t.by_session AND (t.acq IS NOT NULL OR t.not_before > ` + now + `) AND t.wanted IN (0, t.version), false)
FROM req r
LEFT JOIN live v ON v.key = r.key
LEFT JOIN was t ON t.name = r.name
ORDER BY r.ord`

	// querySweepTerms cleans up a window of the primary key. A pin is deleted with its
	// term, unless somebody has locked it.
	querySweepTerms = `
WITH ` + unflushed + `, {live}, part AS MATERIALIZED (
	SELECT t.* FROM {term} t WHERE t.mode = {mode} AND t.name > $1::text
	ORDER BY t.name LIMIT $2::integer
), seen AS MATERIALIZED (
	SELECT t.name, t.acq, t.version, ` + deadTerm + ` AS dead, ` + idleTerm + ` AS idle FROM part t LEFT JOIN live v ON v.key = t.lock_key
), gone AS MATERIALIZED (
	SELECT t.* FROM seen s JOIN {term} t ON t.mode = {mode} AND t.name = s.name
	WHERE s.dead AND t.acq = s.acq AND t.version = s.version
	ORDER BY t.name
	FOR UPDATE OF t SKIP LOCKED
), freed AS (
	UPDATE {term} t SET ` + crashedTerm + `
	FROM gone g CROSS JOIN settings
	WHERE t.mode = {mode} AND t.name = g.name AND t.acq = g.acq
	RETURNING g.*
), old AS MATERIALIZED (
	SELECT t.name FROM seen s JOIN {term} t ON t.mode = {mode} AND t.name = s.name
	WHERE s.idle AND t.acq IS NULL AND t.version = s.version AND t.not_before <= ` + now + `
	ORDER BY t.name
	FOR UPDATE OF t SKIP LOCKED
), pins AS MATERIALIZED (
	SELECT p.name FROM old o JOIN {pin} p ON p.name = o.name
	ORDER BY p.name
	FOR UPDATE OF p SKIP LOCKED
), purged AS (
	DELETE FROM {term} t USING old o CROSS JOIN settings
	WHERE t.mode = {mode} AND t.name = o.name AND t.acq IS NULL
	  AND ({mode} <> 2 OR t.name IN (SELECT p.name FROM pins p) OR NOT EXISTS (SELECT FROM {pin} p WHERE p.name = t.name))
	RETURNING t.name
), unpinned AS (
	DELETE FROM {pin} p USING purged t WHERE {mode} = 2 AND p.name = t.name
), total AS MATERIALIZED (
	SELECT (SELECT count(*) FROM seen) AS seen, (SELECT coalesce(max(name), '') FROM seen) AS last,
	       (SELECT count(*) FROM purged) AS purged
)
SELECT c.seen, c.last, c.purged, t.name, ` + termHolder + `
FROM total c LEFT JOIN freed t ON true
ORDER BY t.name`

	// queryTurnTerms keeps when somebody last set out to clean up in the row of a name
	// that no lock has.
	queryTurnTerms = `
WITH ` + unflushed + `
INSERT INTO {term} AS t (mode, name, version)
SELECT {mode}, '', ` + now + ` FROM settings
WHERE NOT EXISTS (SELECT FROM {term} x WHERE x.mode = {mode} AND x.name = ''
	AND x.version > ` + now + ` - $1::bigint AND x.version <= ` + now + `)
ON CONFLICT (mode, name) DO UPDATE SET version = ` + now + `
WHERE t.version <= ` + now + ` - $1::bigint OR t.version > ` + now + `
RETURNING true`

	// queryProclaimTerm changes no key of the row, so that it passes those who guard the term.
	queryProclaimTerm = `
WITH ` + flushed + `, mine AS MATERIALIZED (
	SELECT t.name FROM {term} t CROSS JOIN settings
	WHERE t.mode = {mode} AND t.name = $1::text AND t.acq = $2::uuid AND t.version = $3::bigint
	FOR NO KEY UPDATE OF t
)
UPDATE {term} t SET value = nullif($4::text::bytea, '')
FROM mine m
WHERE t.mode = {mode} AND t.name = m.name AND t.acq = $2::uuid AND t.version = $3::bigint
RETURNING true`
)
