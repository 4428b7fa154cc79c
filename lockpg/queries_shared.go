package lockpg

// The SQL for names that are held together, see queries.go. The row of the name
// says how many hold it and until when the last of them expires, so that others
// need not look further; who they are stands in rows of their own. Whoever changes
// these has locked the row of the name before, and changes both in one transaction.

// together says that a name is held by those who share it.
const together = `(l.acq IS NULL AND l.others > 0 AND l.others_until > ` + now + `)`

// ungated says that no gate keeps a name from those who would share it.
const ungated = `l.not_before <= ` + now + ` AND l.wait_until <= ` + now

// miscounted says that fewer hold a name than its row says, or not for as long:
// some have expired, or who had it for longest has let it go.
const miscounted = `(SELECT count(*) < l.others OR coalesce(max(h.expires_at), 0) < l.others_until
	FROM {holder} h WHERE h.name = l.name AND h.version = l.version AND h.expires_at > ` + now + `)`

// joined is what the row of a name says when {n} more share it. The clock is read
// once: it decides whether a term begins and when it ends.
const joined = `(version, acquired_at, others, others_until) = (
		SELECT CASE WHEN t.begins THEN greatest(l.version + 1, t.now) ELSE l.version END,
		       CASE WHEN t.begins THEN t.now ELSE l.acquired_at END,
		       CASE WHEN t.begins THEN {n} ELSE l.others + {n} END,
		       CASE WHEN t.begins THEN t.now + t.ttl ELSE greatest(l.others_until, t.now + t.ttl) END
		FROM (SELECT c.now, {ttl} AS ttl, l.acq IS NOT NULL OR l.others <= 0 OR l.others_until <= c.now AS begins
		      FROM (SELECT ` + now + ` AS now) c) t)`

// entered writes who they are. Nobody of them lasts longer than the row of the name
// says.
const entered = `added AS (
	INSERT INTO {holder} AS h (name, acq, owner, instance, label, version, holds, acquired_at, expires_at)
	SELECT w.name, r.acq, r.owner, $5::uuid, $6::text, w.version, 1, t.now, least(t.now + r.ttl, w.others_until)
	FROM won w JOIN req r ON r.name = w.name CROSS JOIN (SELECT ` + now + ` AS now) t`

// sharings are grants without a value.
const sharings = `req AS MATERIALIZED (
	SELECT * FROM unnest($1::text[], $2::uuid[], $3::text[], $4::bigint[])
		WITH ORDINALITY AS r(name, acq, owner, ttl, ord)
)`

const (
	// queryGrantShared is queryGrant for those who share. That somebody holds already
	// is for the answer to tell.
	queryGrantShared = `
WITH ` + flushed + `, ` + sharings + `, fresh AS (
	SELECT r.name, count(*) AS n, max(r.ttl) AS ttl FROM req r
	WHERE NOT EXISTS (SELECT FROM {lock} l WHERE l.name = r.name AND NOT (l.acq IS NULL AND ` + ungated + `))
	  AND NOT EXISTS (SELECT FROM {holder} h WHERE h.name = r.name AND h.acq = r.acq)
	GROUP BY r.name
), won AS (
	INSERT INTO {lock} AS l (name, version, acquired_at, others, others_until)
	SELECT r.name, t.now, t.now, r.n, t.now + r.ttl
	FROM fresh r CROSS JOIN settings CROSS JOIN (SELECT ` + now + ` AS now) t
	ORDER BY r.name COLLATE "C"
	ON CONFLICT (name) DO UPDATE SET ` + joined + `
	WHERE l.acq IS NULL AND ` + ungated + `
	RETURNING l.name, l.version, l.others_until
), ` + entered + `
	WHERE NOT EXISTS (SELECT FROM {holder} h WHERE h.name = r.name AND h.acq = r.acq)
)
SELECT w.version, h.acq IS NOT NULL,
       coalesce(` + together + ` AND h.version = l.version AND h.expires_at > ` + now + `, false), h.expires_at,
       ` + holder + `, ` + gate + `, ` + now + `
FROM req r
LEFT JOIN {lock} l ON l.name = r.name
LEFT JOIN {holder} h ON h.name = r.name AND h.acq = r.acq
LEFT JOIN won w ON w.name = r.name AND h.acq IS NULL
ORDER BY r.ord`

	// queryTakeOverShared is queryTakeOver for those who share.
	queryTakeOverShared = `
WITH ` + flushed + `, ` + sharings + `, gone AS MATERIALIZED (
	SELECT l.name, ` + holderColumns + ` FROM {lock} l JOIN (SELECT DISTINCT r.name FROM req r) r ON r.name = l.name
	WHERE l.acq IS NOT NULL AND l.expires_at <= ` + now + ` AND ` + open + `
	ORDER BY l.name
	FOR UPDATE OF l SKIP LOCKED
), won AS (
	UPDATE {lock} l SET ` + ended + `, ` + joined + `
	FROM gone g JOIN (SELECT r.name, count(*) AS n, max(r.ttl) AS ttl FROM req r GROUP BY r.name) r ON r.name = g.name
	CROSS JOIN settings
	WHERE l.name = g.name AND l.acq IS NOT NULL AND l.expires_at <= ` + now + ` AND ` + open + `
	RETURNING l.name, l.version, l.others_until
), ` + entered + `
	ON CONFLICT (name, acq) DO UPDATE SET owner = excluded.owner, instance = excluded.instance, label = excluded.label,
		version = excluded.version, holds = 1, acquired_at = excluded.acquired_at, expires_at = excluded.expires_at
)
SELECT w.version, ` + holder + `, ` + now + `
FROM req r
LEFT JOIN won w ON w.name = r.name
LEFT JOIN gone l ON l.name = r.name
ORDER BY r.ord`

	// queryRenewShared is queryRenew for those who share, of whom one name may have
	// several.
	queryRenewShared = `
WITH ` + flushed + `, ` + renewals + `, mine AS MATERIALIZED (
	SELECT l.name, l.version
	FROM (SELECT DISTINCT r.name FROM req r JOIN {holder} h ON h.name = r.name AND h.acq = r.acq AND h.version = r.version
	      WHERE h.expires_at > ` + now + `) r
	JOIN {lock} l ON l.name = r.name CROSS JOIN settings
	WHERE ` + together + `
	ORDER BY l.name
	FOR NO KEY UPDATE OF l {skip}
), done AS (
	UPDATE {holder} h SET expires_at = greatest(h.expires_at, ` + now + ` + r.ttl), holds = r.holds
	FROM req r JOIN mine m ON m.name = r.name AND m.version = r.version
	WHERE h.name = r.name AND h.acq = r.acq AND h.version = r.version AND h.expires_at > ` + now + `
	RETURNING h.name, h.acq, h.expires_at
), reach AS (
	UPDATE {lock} l SET others_until = greatest(l.others_until, d.until)
	FROM (SELECT d.name, max(d.expires_at) AS until FROM done d GROUP BY d.name) d
	WHERE l.name = d.name
)
SELECT d.name IS NOT NULL,
       coalesce(` + together + ` AND l.version = r.version AND h.version = r.version AND h.expires_at > ` + now + `, false),
       coalesce(l.revoked = r.version, false), ` + now + `
FROM req r
LEFT JOIN done d ON d.name = r.name AND d.acq = r.acq
LEFT JOIN {lock} l ON l.name = r.name
LEFT JOIN {holder} h ON h.name = r.name AND h.acq = r.acq
ORDER BY r.ord`

	// queryLeave is queryRelease for those who share. Who leaves a term that is over is
	// not counted any more.
	queryLeave = `
WITH ` + unflushed + `, ` + releases + `, mine AS MATERIALIZED (
	SELECT l.name, l.version
	FROM (SELECT DISTINCT r.name FROM req r JOIN {holder} h ON h.name = r.name AND h.acq = r.acq AND h.version = r.version) r
	JOIN {lock} l ON l.name = r.name CROSS JOIN settings
	WHERE l.wait_until <= ` + now + `
	ORDER BY l.name
	FOR NO KEY UPDATE OF l
), left_it AS (
	DELETE FROM {holder} h USING req r JOIN mine m ON m.name = r.name
	WHERE h.name = r.name AND h.acq = r.acq AND h.version = r.version
	RETURNING h.name, h.acq, h.version = m.version AS counted, h.expires_at > ` + now + ` AS live,
	          CASE WHEN r.min_hold > 0 THEN h.acquired_at + r.min_hold ELSE 0 END AS not_before
), counted_out AS (
	UPDATE {lock} l SET
		others = greatest(l.others - d.n, 0),
		others_until = CASE WHEN l.others > d.n THEN l.others_until ELSE 0 END,
		expires_at = CASE WHEN l.others > d.n THEN l.expires_at ELSE ` + now + ` END,
		ended = CASE WHEN l.others > d.n THEN l.ended ELSE 1 END,
		not_before = greatest(l.not_before, d.not_before)
	FROM (SELECT d.name, count(*) AS n, max(d.not_before) AS not_before FROM left_it d WHERE d.counted GROUP BY d.name) d
	WHERE l.name = d.name AND l.others > 0
)
SELECT r.ord, d.name IS NULL AND EXISTS (SELECT FROM {holder} h WHERE h.name = r.name AND h.acq = r.acq AND h.version = r.version)
FROM req r LEFT JOIN left_it d ON d.name = r.name AND d.acq = r.acq
WHERE NOT coalesce(d.counted AND d.live, false)
ORDER BY r.ord`

	// queryHold and queryMend, in one transaction, make right what the rows of names
	// say of those who hold them together. It takes two statements: the second sees
	// what was done before the first had locked the rows.
	queryHold = `
SELECT l.name FROM unnest($1::text[]) AS r(name) JOIN {lock} l ON l.name = r.name
ORDER BY l.name
FOR UPDATE OF l SKIP LOCKED`

	queryMend = `
WITH ` + unflushed + `, req AS MATERIALIZED (
	SELECT r.name, t.now FROM unnest($1::text[]) AS r(name) CROSS JOIN settings CROSS JOIN (SELECT ` + now + ` AS now) t
), dead AS (
	DELETE FROM {holder} h USING req r JOIN {lock} l ON l.name = r.name
	WHERE h.name = r.name AND (h.expires_at <= r.now OR h.version <> l.version)
	RETURNING h.name, h.acq, h.owner, h.label, h.version, h.acquired_at, h.expires_at, h.expires_at <= r.now AS expired
), live AS (
	SELECT r.name, r.now, count(h.acq) AS others, coalesce(max(h.expires_at), 0) AS others_until
	FROM req r
	LEFT JOIN {holder} h ON h.name = r.name AND NOT EXISTS (SELECT FROM dead d WHERE d.name = h.name AND d.acq = h.acq)
	GROUP BY r.name, r.now
), recounted AS (
	UPDATE {lock} l SET others = v.others, others_until = v.others_until,
		expires_at = CASE WHEN l.acq IS NULL AND v.others = 0 THEN greatest(l.expires_at, least(l.others_until, v.now)) ELSE l.expires_at END,
		ended = CASE WHEN l.acq IS NULL AND v.others = 0 THEN 2 ELSE l.ended END
	FROM live v
	WHERE l.name = v.name AND l.others > 0
)
SELECT d.name, d.acq::text, d.owner, d.label, d.version, d.acquired_at, d.expires_at, true
FROM dead d WHERE d.expired
ORDER BY d.name, d.expires_at`

	// queryDrop takes away whose term was revoked.
	queryDrop = `
WITH ` + unflushed + `, req AS MATERIALIZED (
	SELECT * FROM unnest($1::text[], $2::bigint[]) AS r(name, version)
), over AS MATERIALIZED (
	SELECT h.name, h.acq FROM {holder} h JOIN req r ON r.name = h.name AND r.version = h.version CROSS JOIN settings
	FOR UPDATE OF h SKIP LOCKED
)
DELETE FROM {holder} h USING over o WHERE h.name = o.name AND h.acq = o.acq`
)

// sharedQueries are the texts for those who share.
type sharedQueries struct {
	grant, takeOver, renew, renewWait, leave, hold, mend, drop string
}

func newSharedQueries(text func(string, ...string) string) sharedQueries {
	return sharedQueries{
		grant:     text(queryGrantShared, "{ttl}", "excluded.others_until - excluded.acquired_at", "{n}", "excluded.others"),
		takeOver:  text(queryTakeOverShared, "{ttl}", "r.ttl", "{n}", "r.n"),
		renew:     text(queryRenewShared, "{skip}", "SKIP LOCKED"),
		renewWait: text(queryRenewShared, "{skip}", ""),
		leave:     text(queryLeave),
		hold:      text(queryHold),
		mend:      text(queryMend),
		drop:      text(queryDrop),
	}
}
