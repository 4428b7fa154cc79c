package lockpg

// The SQL of advisory mode, see queries_sessions.go.

// lifting keeps the sequence of tokens from being lifted until the transaction ends:
// who draws from it has this lock, together with others, who lifts it has it alone.
func lifting(key string) string {
	return `unlifted AS MATERIALIZED (SELECT pg_advisory_xact_lock_shared(` + key + `::bigint) FROM settings)`
}

// unguarded says that nobody has the key of a guard. It is had for a moment only, not
// until the transaction has been flushed: others who are granted the same name, to
// share it, look too. A guard that comes later finds that its session is dead.
const unguarded = `CASE WHEN pg_try_advisory_lock(r.guard) THEN pg_advisory_unlock(r.guard) ELSE false END`

const (
	// queryLift makes sure that no token is drawn twice, whatever a crash has undone.
	//
	// The server logs the sequence ahead, 32 values at a time, and who draws one of
	// those waits for no flush: a crash may undo the log of values that were handed
	// out. It ends all sessions too, so that each session lifts the sequence before it
	// draws for the first time: over what may be lost, and to the clock, which is past
	// all that a restored backup or a standby may not know of. The lift itself is
	// flushed; so what was handed out since lies above it by less than the 32 values
	// for each session that waited for its flush.
	//
	// setval could give back what others draw between the reading and the setting. So
	// nobody draws meanwhile, and pg_sequence_last_value, which sees the present and not
	// a snapshot, is called after the lock was taken.
	queryLift = `
WITH ` + flushed + `, alone AS MATERIALIZED (
	SELECT pg_advisory_xact_lock($1::bigint) FROM settings
)
SELECT setval('{token}', greatest(coalesce(pg_sequence_last_value('{token}'), 0) + 65536, ` + now + `)) FROM alone`

	// queryTry takes locks and draws tokens for them, see the migrations.
	queryTry = `
SELECT f.clock, f.tokens::text, f.gates::text
FROM {try}($1::bigint[], $2::bigint[], $3::boolean[], $4::text[], $5::boolean[], $6::bigint) f`

	// queryPass draws tokens for locks that the caller has had for a while.
	queryPass = `
WITH ` + flushed + `, unlifted AS MATERIALIZED (
	SELECT pg_advisory_xact_lock_shared($3::bigint) FROM settings
), req AS MATERIALIZED (
	SELECT * FROM unnest($1::text[], $2::uuid[]) WITH ORDINALITY AS r(name, acq, ord)
), found AS MATERIALIZED (
	SELECT r.ord, t.acq IS NOT NULL AS named, coalesce(t.acq <> r.acq, false) AS crashed, coalesce(t.not_before, 0) AS gate, c.now
	FROM req r CROSS JOIN unlifted CROSS JOIN (SELECT ` + now + ` AS now) c
	LEFT JOIN {term} t ON t.mode = {mode} AND t.name = r.name
), drawn AS MATERIALIZED (
	SELECT f.*, CASE WHEN NOT f.named AND f.gate <= f.now THEN nextval('{token}') ELSE 0 END AS token FROM found f
)
SELECT d.token, d.named, d.gate, d.now FROM drawn d ORDER BY d.ord`

	// queryUnlock lets go, and tells of which locks the session did not have. A
	// transaction that guards a lease now keeps none from being let go: see
	// queryCheckGuards.
	queryUnlock = `
SELECT coalesce(array_agg(r.ord) FILTER (WHERE NOT
	CASE WHEN r.shared THEN pg_advisory_unlock_shared(r.key) ELSE pg_advisory_unlock(r.key) END), '{}')::text
FROM unnest($1::bigint[], $2::boolean[]) WITH ORDINALITY AS r(key, shared, ord)`

	// queryCheckGuards says whether no transaction guards any of the leases.
	queryCheckGuards = `
WITH req AS MATERIALIZED (SELECT * FROM unnest($1::bigint[]) AS r(guard))
SELECT coalesce(bool_and(` + unguarded + `), true) FROM req r`

	// queryOwnLocks are the advisory locks of the session.
	queryOwnLocks = `
SELECT (classid::bigint << 32) | objid::bigint, mode = 'ShareLock'
FROM pg_locks
WHERE locktype = 'advisory' AND objsubid = 1 AND granted AND pid = pg_backend_pid()
  AND database = (SELECT oid FROM pg_database WHERE datname = current_database())`

	// queryNote writes who has locks, for people.
	queryNote = `
WITH ` + unflushed + `
INSERT INTO {term} AS t (mode, name, lock_key, acq, owner, version, holds, acquired_at, instance, label, pid, started)
SELECT {mode}, r.name, r.key, r.acq, r.owner, r.version, r.holds, r.since, $8::uuid, $9::text, $10::bigint, $11::bigint
FROM unnest($1::text[], $2::bigint[], $3::uuid[], $4::text[], $5::bigint[], $6::integer[], $7::bigint[])
	AS r(name, key, acq, owner, version, holds, since) CROSS JOIN settings
ORDER BY r.name
ON CONFLICT (mode, name) DO UPDATE SET
	lock_key = excluded.lock_key, acq = excluded.acq, owner = excluded.owner, version = excluded.version, holds = excluded.holds,
	acquired_at = excluded.acquired_at, instance = excluded.instance, label = excluded.label, pid = excluded.pid, started = excluded.started,
	value = NULL, delay = 0
WHERE t.acq IS NULL OR t.acq = excluded.acq`

	// queryNoteShared writes which names are shared, so that a list can tell. How many
	// share them the server knows.
	queryNoteShared = `
WITH ` + unflushed + `
INSERT INTO {term} AS t (mode, name, lock_key, version, acquired_at, ended_at)
SELECT {mode}, r.name, r.key, r.version, r.since, ` + now + `
FROM unnest($1::text[], $2::bigint[], $3::bigint[], $4::bigint[]) AS r(name, key, version, since) CROSS JOIN settings
ORDER BY r.name
ON CONFLICT (mode, name) DO UPDATE SET lock_key = excluded.lock_key, version = greatest(t.version, excluded.version),
	acquired_at = excluded.acquired_at, ended_at = excluded.ended_at
WHERE t.acq IS NULL`

	// querySession prepares a connection: it changes the settings that exist and tells
	// what they were, and takes the lock by which others see that the session lives.
	querySession = `
WITH was AS MATERIALIZED (
	SELECT s.name, s.setting, s.source = 'session' AS chosen, r.setting AS wanted
	FROM pg_settings s JOIN unnest($1::text[], $2::text[]) AS r(name, setting) ON r.name = s.name
	WHERE s.name <> 'client_connection_check_interval' OR ` + checkable + `
), done AS MATERIALIZED (
	SELECT w.*, set_config(w.name, w.wanted, false) AS now FROM was w
), own AS MATERIALIZED (
	SELECT pg_try_advisory_lock($3::bigint) AS locked, pg_backend_pid() AS pid,
	       (SELECT (extract(epoch FROM a.backend_start) * 1000000)::bigint FROM pg_stat_get_activity(pg_backend_pid()) a) AS started
)
SELECT o.locked, o.pid, o.started, ` + thisServer + `, ` + writable + `, d.name, d.setting, d.chosen FROM own o LEFT JOIN done d ON true`

	queryRestore = `SELECT set_config($1::text, $2::text, false)`

	// queryGuardLock runs in a transaction of the application. Whoever would be the next
	// holder must get the guard's key alone, for a moment, after it has got the lock. So if
	// the session has the lock now, after the guard's key was taken, nobody got it before.
	// To ask for the key of the session alone is not enough: a server that ends a session
	// lets its locks go one after the other, and the name may have a new holder while the
	// session's key is still taken. That key is asked for last: it says that the process is
	// still the one of the session. 0 is foreign, 1 busy, 2 dead, 3 guarded.
	queryGuardLock = `
SELECT CASE WHEN m.id <> $1::uuid THEN 0 WHEN NOT pg_try_advisory_xact_lock_shared($2::bigint) THEN 1
       WHEN NOT EXISTS (SELECT FROM pg_locks l
		WHERE l.locktype = 'advisory' AND l.objsubid = 1 AND l.granted AND l.pid = $4::bigint AND m.id = $1::uuid
		  AND (l.classid::bigint << 32) | l.objid::bigint = $5::bigint
		  AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())) THEN 2
       WHEN pg_try_advisory_xact_lock_shared($3::bigint) THEN 2 ELSE 3 END
FROM {meta} m`

	queryTryLockTx = `
SELECT m.id = $2::uuid, ` + thisServer + `,
       CASE WHEN m.id = $2::uuid AND ` + thisServer + ` = $3::bigint THEN pg_try_advisory_xact_lock{shared}($1::bigint) ELSE false END
FROM {meta} m`
)
