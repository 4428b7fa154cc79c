package lockpg

import "strings"

// The SQL of this package. Every value is a parameter; what varies is the name of
// the tables, which is checked and quoted. Requests come as arrays, one per
// column, so that a statement is the same for any number of them.
//
// now is the server's clock at the moment of evaluation, in microseconds since
// the epoch. It is not now(), which stands still from the start of the
// transaction, and would be old after a wait for a row lock; and it is not extract(),
// which computes with numeric: a double tells microseconds apart until 2041.
const now = `(date_part('epoch', clock_timestamp()) * 1000000)::bigint`

// open says that nothing but one holder keeps a name from a newcomer.
const open = `(l.others = 0 OR l.others_until <= ` + now + `)
	AND l.not_before <= ` + now + ` AND l.wait_until <= ` + now

// gate says until when anything but holders keeps a name from a newcomer.
const gate = `greatest(l.not_before, l.wait_until)`

// flushed makes the transaction wait for its flush even where the role or the
// database is set not to; a wait for a row lock ends after a second. Both
// settings end with the transaction.
const flushed = `settings AS MATERIALIZED (
	SELECT set_config('lock_timeout', '1s', true),
	       CASE current_setting('synchronous_commit')
	       WHEN 'off' THEN set_config('synchronous_commit', 'on', true) END
)`

// unflushed is for what may be lost in a crash: a release, after which the name
// is merely free later.
const unflushed = `settings AS MATERIALIZED (
	SELECT set_config('lock_timeout', '1s', true), set_config('synchronous_commit', 'off', true)
)`

// The requests of a statement, a row each.
const (
	grants = `req AS MATERIALIZED (
	SELECT * FROM unnest($1::text[], $2::uuid[], $3::text[], $4::bigint[], $5::bytea[])
		WITH ORDINALITY AS r(name, acq, owner, ttl, value, ord)
)`
	renewals = `req AS MATERIALIZED (
	SELECT * FROM unnest($1::text[], $2::uuid[], $3::bigint[], $4::bigint[], $5::integer[])
		WITH ORDINALITY AS r(name, acq, version, ttl, holds, ord)
)`
	releases = `req AS MATERIALIZED (
	SELECT * FROM unnest($1::text[], $2::uuid[], $3::bigint[], $4::bigint[])
		WITH ORDINALITY AS r(name, acq, version, min_hold, ord)
)`
)

// holder is who holds or last held a name, since and until when, and whether that
// is together with others.
const (
	holderColumns = `l.acq, l.owner, l.label, l.version, l.acquired_at, l.expires_at, l.others, l.others_until`
	holder        = `l.acq::text, l.owner, l.label, l.version, l.acquired_at,
	CASE WHEN ` + together + ` THEN l.others_until ELSE l.expires_at END, coalesce(` + together + `, false)`
)

// ended is what all ends of a term have in common. minHold keeps the name from
// others for a time after the grant.
const (
	ended   = `acq = NULL, owner = NULL, instance = NULL, label = NULL, holds = 0, value = NULL`
	minHold = `CASE WHEN r.min_hold > 0 THEN greatest(l.not_before, l.acquired_at + r.min_hold) ELSE l.not_before END`
)

const (
	queryVersion = `SELECT version()`

	// queryBound has the server end a transaction whose client is silent in it for so
	// many milliseconds.
	queryBound = `SELECT set_config('idle_in_transaction_session_timeout', $1::text, true)`

	queryCheck = `
SELECT current_setting('server_version_num')::integer,
       pg_is_in_recovery(),
       current_setting('transaction_read_only') = 'on',
       current_setting('fsync') = 'on',
       current_setting('full_page_writes') = 'on',
       current_setting('default_transaction_isolation') = 'read committed',
       coalesce(m.home::text, ''),
       coalesce((SELECT c.relpersistence::text FROM pg_class c WHERE c.relnamespace = m.oid AND c.relname = $2::text::name), '')
FROM (SELECT to_regclass($1::text) AS meta) r
LEFT JOIN LATERAL (
	SELECT n.oid, n.nspname AS home FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE c.oid = r.meta
) m ON true`

	// queryUnfit tells which of the functions $3 are not in the schema $1, or name tables
	// of another schema, or of none: then those are meant that a session's search_path
	// finds. $2 is the prefix, $4 is how a name of theirs begins with the schema, and $5
	// without.
	queryUnfit = `
SELECT coalesce(string_agg($4::text || f.name || '"', ', ' ORDER BY f.name), '')
FROM unnest(string_to_array($3::text, ',')) AS f(name)
WHERE NOT EXISTS (
	SELECT FROM pg_proc p JOIN pg_namespace n ON n.oid = p.pronamespace
	WHERE n.nspname = $1::text AND p.proname = ($2::text || f.name)::name AND strpos(replace(p.prosrc, $4::text, ''), $5::text) = 0
)`

	queryMeta = `SELECT schema_version, compatible_from, id::text FROM {meta}`

	// queryGrant grants names that are free, see the migrations. An attempt that finds a
	// holder writes nothing and locks nothing.
	queryGrant = `
SELECT f.clock, f.ords::text, f.versions::text, f.ord, f.fresh, f.untidy,
       f.acq::text, f.owner, f.label, f.version, f.since, f.until, f.shared, f.gate
FROM {grant}($1::text[], $2::uuid[], $3::text[], $4::bigint[], $5::bytea[], $6::uuid, $7::text) f`

	// queryTakeOver grants names whose holder has expired. FOR UPDATE waits for
	// nobody: a row that somebody has locked, be it to guard the expired lease, is
	// passed over. It returns who it was.
	queryTakeOver = `
WITH ` + flushed + `, ` + grants + `, gone AS MATERIALIZED (
	SELECT l.name, ` + holderColumns + ` FROM {lock} l JOIN req r ON r.name = l.name
	WHERE l.acq IS NOT NULL AND l.expires_at <= ` + now + ` AND ` + open + `
	ORDER BY l.name
	FOR UPDATE OF l SKIP LOCKED
), won AS (
	UPDATE {lock} l SET
		acq = r.acq, owner = r.owner, instance = $6::uuid, label = $7::text,
		version = greatest(l.version + 1, ` + now + `), holds = 1, acquired_at = ` + now + `,
		expires_at = ` + now + ` + r.ttl, value = nullif(r.value, '')
	FROM gone g JOIN req r ON r.name = g.name CROSS JOIN settings
	WHERE l.name = g.name AND l.acq IS NOT NULL AND l.expires_at <= ` + now + ` AND ` + open + `
	RETURNING l.name, l.version
)
SELECT w.version, ` + holder + `, ` + now + `
FROM req r
LEFT JOIN won w ON w.name = r.name
LEFT JOIN gone l ON l.name = r.name
ORDER BY r.ord`

	// queryRenew passes over rows that somebody has locked. It also tells of each
	// lease whether it was held, and whether it was revoked, when the statement
	// began.
	queryRenew = `
WITH ` + flushed + `, ` + renewals + `, mine AS MATERIALIZED (
	SELECT l.name FROM {lock} l JOIN req r ON r.name = l.name CROSS JOIN settings
	WHERE l.acq = r.acq AND l.version = r.version AND l.expires_at > ` + now + `
	ORDER BY l.name
	FOR NO KEY UPDATE OF l {skip}
), done AS (
	UPDATE {lock} l SET expires_at = greatest(l.expires_at, ` + now + ` + r.ttl), holds = r.holds
	FROM mine m JOIN req r ON r.name = m.name
	WHERE l.name = m.name AND l.acq = r.acq AND l.version = r.version AND l.expires_at > ` + now + `
	RETURNING l.name, l.acq
)
SELECT d.name IS NOT NULL,
       coalesce(l.acq = r.acq AND l.version = r.version AND l.expires_at > ` + now + `, false),
       coalesce(l.revoked = r.version, false), ` + now + `
FROM req r
LEFT JOIN done d ON d.name = r.name AND d.acq = r.acq
LEFT JOIN {lock} l ON l.name = r.name
ORDER BY r.ord`

	// queryRelease frees names that nobody waits for and keeps their rows: the version
	// must go on rising. It tells what it has not freed, and of that whether it is held.
	queryRelease = `
SELECT f.ord, f.held FROM {release}($1::text[], $2::uuid[], $3::bigint[], $4::bigint[]) f`

	// queryReleaseGuarded is queryRelease for leases that were guarded: the row leaves its
	// holder with a lock that no guard lets through, and that a guard with an old snapshot
	// notices.
	queryReleaseGuarded = `
WITH ` + unflushed + `, ` + releases + `, mine AS MATERIALIZED (
	SELECT l.name FROM {lock} l JOIN req r ON r.name = l.name CROSS JOIN settings
	WHERE l.acq = r.acq AND l.version = r.version AND l.wait_until <= ` + now + `
	ORDER BY l.name
	FOR UPDATE OF l SKIP LOCKED
), done AS (
	UPDATE {lock} l SET ` + ended + `, ended = 1, expires_at = ` + now + `, not_before = ` + minHold + `
	FROM mine m JOIN req r ON r.name = m.name
	WHERE l.name = m.name AND l.acq = r.acq AND l.version = r.version AND l.wait_until <= ` + now + `
	RETURNING l.name
)
SELECT r.ord, EXISTS (SELECT FROM {lock} l WHERE l.name = r.name AND l.acq = r.acq AND l.version = r.version)
FROM req r LEFT JOIN done d ON d.name = r.name
WHERE d.name IS NULL
ORDER BY r.ord`
)

// queryGuard runs in a transaction of the application. A renewal changes no key of
// the row and passes; whoever makes somebody else the holder locks the row FOR
// UPDATE first and does not.
const queryGuard = `
SELECT m.id = $4::uuid, g.name IS NOT NULL
FROM {meta} m
LEFT JOIN LATERAL (
	SELECT l.name FROM {lock} l
	WHERE l.name = $1::text AND l.acq = $2::uuid AND l.version = $3::bigint
	FOR KEY SHARE
) g ON true`

// queryFence changes no row if the resource has seen a higher token.
const queryFence = `
INSERT INTO {fence} AS f (resource, token) VALUES ($1::text, $2::bigint)
ON CONFLICT (resource) DO UPDATE SET token = excluded.token WHERE f.token <= excluded.token`

// queries are the texts for one schema and prefix.
type queries struct {
	schema, prefix       string // schema is "" where search_path is to find it
	lockTable, metaTable string // quoted
	id                   string // of the database, once it was opened

	meta, grant, takeOver, renew, renewWait, release string
	releaseGuarded, guard, fence                     string
	look, list, revoke, sweep, turn                  string
	resume, proclaim                                 string
	shared                                           sharedQueries
	line                                             lineQueries
}

func newQueries(schema, prefix string) queries {
	q := queries{schema: schema, prefix: prefix, lockTable: quote(schema, prefix+"lock"), metaTable: quote(schema, prefix+"meta")}
	// text fills in the tables and what else has a place in a text.
	text := func(text string, more ...string) string {
		more = append(more, "{lock}", q.lockTable, "{meta}", q.metaTable, "{holder}", quote(schema, prefix+"holder"),
			"{fence}", quote(schema, prefix+"fence"), "{ticket}", quote(schema, prefix+"ticket"),
			"{advance}", quote(schema, prefix+"advance"), "{grant}", quote(schema, prefix+"grant"),
			"{release}", quote(schema, prefix+"release"))
		return strings.NewReplacer(more...).Replace(text)
	}
	q.meta = text(queryMeta)
	q.grant = text(queryGrant)
	q.takeOver = text(queryTakeOver)
	q.renew = text(queryRenew, "{skip}", "SKIP LOCKED")
	q.renewWait = text(queryRenew, "{skip}", "")
	q.release = text(queryRelease)
	q.releaseGuarded = text(queryReleaseGuarded)
	q.guard = text(queryGuard)
	q.fence = text(queryFence)
	q.look = text(queryLook)
	q.list = text(queryList)
	q.revoke = text(queryRevoke)
	q.sweep = text(querySweep)
	q.turn = text(queryTurn)
	q.resume, q.proclaim = text(queryResume), text(queryProclaim)
	q.shared = newSharedQueries(text)
	q.line = newLineQueries(text, func(name string) string { return quote(schema, prefix+name) })
	return q
}

// quote makes a quoted name. The table is checked; the schema may be any that the server
// has.
func quote(schema, table string) string {
	if schema == "" {
		return `"` + table + `"`
	}
	return `"` + strings.ReplaceAll(schema, `"`, `""`) + `"."` + table + `"`
}
