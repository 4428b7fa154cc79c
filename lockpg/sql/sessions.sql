-- The statements of the modes that keep locks in sessions, for Postgres 12 or newer. Package
-- termstore says what those do that are about the table of terms. In {term}, {pin}, {meta},
-- {token} and {try} the names of the tables, the sequence and the function are filled in, in
-- {mode} the number of the mode: 2 is for update, 3 is advisory. {now} stands for
-- (date_part('epoch', clock_timestamp()) * 1000000)::bigint, see unique.sql.
--
-- A statement sets for itself, until its transaction ends, how long it waits for a row, and
-- whether it waits for its flush. It does even where the role or the database is set not to, but
-- for what may be lost in a crash: a release, after which the name is merely free later.
--
-- Advisory locks of 64 bits are told apart from pairs of 32 by objsubid. A server is named by
-- when it was started. A server that takes writes is no standby, and nobody has it refuse them,
-- as before a switchover. The uuid of zeros in revoke_for means whoever has the name with a
-- version up to revoked.

-- name: look_values
-- In for-update mode a session is the one of a term if it has its number and began when it did,
-- as far as that may be seen.
--
-- The keys of the locks that live are one object, in which each row looks up its own. How many
-- they are is not known when a plan is made: a join might compare each row with each of them.
-- The rows are looked up one by one for the same reason.
WITH live AS MATERIALIZED (
	SELECT jsonb_object_agg(k.key, jsonb_build_array(k.readers, k.pid)) AS keys
	FROM (
		SELECT (classid::bigint << 32) | objid::bigint AS key,
		       count(*) FILTER (WHERE mode = 'ShareLock') AS readers,
		       max(pid) FILTER (WHERE mode = 'ExclusiveLock') AS pid
		FROM pg_locks
		WHERE {mode} = 3 AND locktype = 'advisory' AND objsubid = 1 AND granted
		  AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
		GROUP BY 1
	) k
)
SELECT r.ord - 1, t.name, {now}, t.acq::text, t.owner, t.label, t.version, t.acquired_at, t.ended_at,
       t.holds, t.not_before, t.delay, t.ended, t.revoked,
       t.acq IS NOT NULL AND coalesce(t.revoke_for <> '00000000-0000-0000-0000-000000000000'::uuid OR t.version <= t.revoked, false),
       CASE WHEN t.acq IS NULL THEN false WHEN {mode} = 3 THEN coalesce((v.lock ->> 1)::bigint = t.pid, false)
       WHEN t.pid IS NULL THEN false ELSE EXISTS (
	       SELECT FROM pg_stat_get_activity(t.pid::integer) a
	       WHERE a.backend_start IS NULL OR (extract(epoch FROM a.backend_start) * 1000000)::bigint = t.started
       ) END,
       v.lock IS NOT NULL, CASE WHEN t.acq IS NULL THEN coalesce((v.lock ->> 0)::bigint, 0) ELSE 0 END,
       NOT pg_is_in_recovery() AND NOT current_setting('default_transaction_read_only')::boolean, t.value
FROM unnest($1::text[], $2::bigint[]) WITH ORDINALITY AS r(name, key, ord)
CROSS JOIN LATERAL (SELECT (SELECT l.keys FROM live l) -> r.key::text AS lock OFFSET 0) v
LEFT JOIN LATERAL (SELECT x.* FROM {term} x WHERE x.mode = {mode} AND x.name = r.name OFFSET 0) t ON true
ORDER BY r.ord;

-- name: page
-- It looks up locks as look_values does.
WITH live AS MATERIALIZED (
	SELECT jsonb_object_agg(k.key, jsonb_build_array(k.readers, k.pid)) AS keys
	FROM (
		SELECT (classid::bigint << 32) | objid::bigint AS key,
		       count(*) FILTER (WHERE mode = 'ShareLock') AS readers,
		       max(pid) FILTER (WHERE mode = 'ExclusiveLock') AS pid
		FROM pg_locks
		WHERE {mode} = 3 AND locktype = 'advisory' AND objsubid = 1 AND granted
		  AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
		GROUP BY 1
	) k
)
SELECT 0, t.name, {now}, t.acq::text, t.owner, t.label, t.version, t.acquired_at, t.ended_at,
       t.holds, t.not_before, t.delay, t.ended, t.revoked,
       t.acq IS NOT NULL AND coalesce(t.revoke_for <> '00000000-0000-0000-0000-000000000000'::uuid OR t.version <= t.revoked, false),
       CASE WHEN t.acq IS NULL THEN false WHEN {mode} = 3 THEN coalesce((v.lock ->> 1)::bigint = t.pid, false)
       WHEN t.pid IS NULL THEN false ELSE EXISTS (
	       SELECT FROM pg_stat_get_activity(t.pid::integer) a
	       WHERE a.backend_start IS NULL OR (extract(epoch FROM a.backend_start) * 1000000)::bigint = t.started
       ) END,
       v.lock IS NOT NULL, CASE WHEN t.acq IS NULL THEN coalesce((v.lock ->> 0)::bigint, 0) ELSE 0 END,
       NOT pg_is_in_recovery() AND NOT current_setting('default_transaction_read_only')::boolean, NULL::bytea
FROM (
	SELECT p.* FROM {term} p WHERE p.mode = {mode} AND p.name > $1::text ORDER BY p.name LIMIT $2::bigint
) t CROSS JOIN LATERAL (SELECT (SELECT l.keys FROM live l) -> t.lock_key::text AS lock OFFSET 0) v
ORDER BY t.name;

-- name: make_rows
INSERT INTO {term} (mode, name)
SELECT {mode}, r.name FROM unnest($1::text[]) AS r(name)
ORDER BY r.name
ON CONFLICT (mode, name) DO NOTHING
RETURNING {now};

-- name: draw
-- It draws a token for whoever has the lock of a name, and writes who that is if $11. It waits for
-- nobody: a row that somebody has locked, also to guard the former holder's lease, is passed over.
-- It ends the term of a holder whose lock is gone, and keeps its delay. A session other than that
-- which draws may have the lock of for-update mode by now, if the draw comes late: it has if the
-- session lives by which the term was begun, which is looked at when the row is locked. Of a session
-- whose start may not be seen it is said that it does not live: it may be another one of that number.
-- A draw from the sequence keeps that from being lifted, see lift.
WITH settings AS MATERIALIZED (
	SELECT set_config('lock_timeout', '1s', true),
	       CASE current_setting('synchronous_commit')
	       WHEN 'off' THEN set_config('synchronous_commit', 'on', true) END
), unlifted AS MATERIALIZED (
	SELECT CASE WHEN {mode} = 3 THEN pg_advisory_xact_lock_shared($13::bigint) END FROM settings
), clock AS MATERIALIZED (
	SELECT {now} AS now FROM settings CROSS JOIN unlifted
), was AS MATERIALIZED (
	SELECT t.* FROM {term} t CROSS JOIN settings
	WHERE t.mode = {mode} AND t.name = $1::text
	FOR UPDATE OF t SKIP LOCKED
), other AS MATERIALIZED (
	SELECT CASE WHEN {mode} = 2 AND t.pid BETWEEN 1 AND 2147483647 THEN EXISTS (
		SELECT FROM pg_stat_get_activity(t.pid::integer) a
		WHERE (extract(epoch FROM a.backend_start) * 1000000)::bigint = t.started
	) ELSE false END AS stands FROM was t WHERE t.acq <> $2::uuid
), seen AS MATERIALIZED (
	SELECT c.now, t.name IS NOT NULL AS mine, t.version,
	       EXISTS (SELECT FROM {term} x WHERE x.mode = {mode} AND x.name = $1::text) AS known,
	       coalesce(o.stands, false) AS stands, coalesce(NOT o.stands, false) AS crashed,
	       CASE WHEN t.acq = $2::uuid OR o.stands THEN 0 ELSE
	       greatest(coalesce(t.not_before, 0), CASE WHEN t.acq IS NOT NULL AND t.delay > 0 THEN c.now + t.delay ELSE 0 END) END AS gate
	FROM clock c LEFT JOIN was t ON true LEFT JOIN other o ON true
), decided AS MATERIALIZED (
	SELECT s.*, (s.mine OR NOT s.known) AND NOT s.stands AND s.gate <= s.now AS won FROM seen s
), drawn AS MATERIALIZED (
	SELECT d.*, d.won AND $11::boolean AS named, CASE WHEN NOT d.won THEN NULL
	       WHEN {mode} = 3 THEN nextval('{token}') ELSE greatest(coalesce(d.version, 0) + 1, d.now) END AS token FROM decided d
), changed AS (
	UPDATE {term} t SET
		lock_key = $12::bigint, version = coalesce(d.token, t.version), revoke_for = NULL,
		acq = CASE WHEN d.named THEN $2::uuid END, owner = CASE WHEN d.named THEN $3::text END,
		instance = CASE WHEN d.named THEN $4::uuid END, label = CASE WHEN d.named THEN $5::text END,
		holds = CASE WHEN d.named THEN 1 ELSE 0 END, delay = CASE WHEN d.named THEN $6::bigint ELSE 0 END,
		value = CASE WHEN d.named THEN nullif($8::text::bytea, '') END,
		pid = CASE WHEN d.named THEN $9::bigint END, started = CASE WHEN d.named THEN $10::bigint END,
		acquired_at = CASE WHEN d.named THEN d.now ELSE t.acquired_at END,
		ended_at = CASE WHEN d.named THEN t.ended_at ELSE d.now END,
		not_before = CASE WHEN d.named AND $7::bigint > 0 THEN greatest(t.not_before, d.now + $7::bigint) ELSE greatest(t.not_before, d.gate) END,
		ended = CASE WHEN d.crashed THEN 2 WHEN d.won THEN 1 ELSE t.ended END
	FROM drawn d
	WHERE t.mode = {mode} AND t.name = $1::text AND d.mine AND (d.won OR d.crashed)
	RETURNING t.name
), added AS (
	INSERT INTO {term} AS t (mode, name, lock_key, version, acq, owner, instance, label, holds, delay, value, pid, started,
		acquired_at, ended_at, not_before, ended)
	SELECT {mode}, $1::text, $12::bigint, d.token, CASE WHEN d.named THEN $2::uuid END, CASE WHEN d.named THEN $3::text END,
	       CASE WHEN d.named THEN $4::uuid END, CASE WHEN d.named THEN $5::text END, CASE WHEN d.named THEN 1 ELSE 0 END,
	       CASE WHEN d.named THEN $6::bigint ELSE 0 END, CASE WHEN d.named THEN nullif($8::text::bytea, '') END,
	       CASE WHEN d.named THEN $9::bigint END, CASE WHEN d.named THEN $10::bigint END,
	       d.now, CASE WHEN d.named THEN 0 ELSE d.now END, CASE WHEN d.named AND $7::bigint > 0 THEN d.now + $7::bigint ELSE 0 END, 1
	FROM drawn d
	WHERE d.won AND NOT d.known
	ON CONFLICT (mode, name) DO NOTHING
	RETURNING t.name
)
SELECT d.won AND (EXISTS (SELECT FROM changed) OR EXISTS (SELECT FROM added)), coalesce(d.token, 0),
       d.crashed AND EXISTS (SELECT FROM changed), d.gate, d.now, t.acq::text, t.owner, t.label, t.version, t.acquired_at
FROM drawn d LEFT JOIN was t ON true;

-- name: end_term
-- It ends a term whose session is gone, and keeps the name for its lock delay.
WITH settings AS MATERIALIZED (
	SELECT set_config('lock_timeout', '1s', true), set_config('synchronous_commit', 'off', true)
), mine AS MATERIALIZED (
	SELECT t.name FROM {term} t CROSS JOIN settings
	WHERE t.mode = {mode} AND t.name = $1::text AND t.version = $2::bigint
	  AND t.acq IS NOT DISTINCT FROM $3::uuid
	FOR UPDATE OF t SKIP LOCKED
)
UPDATE {term} t SET
	acq = NULL, owner = NULL, instance = NULL, label = NULL, holds = 0, value = NULL, pid = NULL,
	started = NULL, delay = 0, revoke_for = NULL, ended_at = {now},
	ended = 2,
	not_before = CASE WHEN t.delay > 0 THEN greatest(t.not_before, {now} + t.delay) ELSE t.not_before END
FROM mine m
WHERE t.mode = {mode} AND t.name = m.name
RETURNING t.ended_at;

-- name: release
-- It frees all of the names or none of them; a guard has locked the row of its term. The draw has
-- written until when a minimum hold keeps the name; a release without one, of a call that failed,
-- takes that back.
WITH settings AS MATERIALIZED (
	SELECT set_config('lock_timeout', '1s', true), set_config('synchronous_commit', 'off', true)
), req AS MATERIALIZED (
	SELECT * FROM unnest($1::text[], $2::uuid[], $3::bigint[], $4::bigint[]) AS r(name, acq, version, keep)
), mine AS MATERIALIZED (
	SELECT t.name FROM {term} t JOIN req r ON r.name = t.name CROSS JOIN settings
	WHERE t.mode = {mode} AND t.acq = r.acq AND t.version = r.version
	ORDER BY t.name
	FOR UPDATE OF t SKIP LOCKED
)
UPDATE {term} t SET
	acq = NULL, owner = NULL, instance = NULL, label = NULL, holds = 0, value = NULL, pid = NULL,
	started = NULL, delay = 0, revoke_for = NULL, ended_at = {now},
	ended = CASE WHEN coalesce(t.revoke_for <> '00000000-0000-0000-0000-000000000000'::uuid OR t.version <= t.revoked, false) THEN 3 ELSE 1 END,
	revoked = CASE WHEN coalesce(t.revoke_for <> '00000000-0000-0000-0000-000000000000'::uuid OR t.version <= t.revoked, false) THEN t.version ELSE t.revoked END,
	not_before = CASE WHEN coalesce(t.revoke_for <> '00000000-0000-0000-0000-000000000000'::uuid OR t.version <= t.revoked, false) OR r.keep = 0 THEN 0 ELSE t.not_before END
FROM mine m JOIN req r ON r.name = m.name
WHERE t.mode = {mode} AND t.name = m.name AND t.acq = r.acq AND (SELECT count(*) FROM mine) = $5::bigint
RETURNING t.ended_at;

-- name: set_value
-- It changes no key of the row, so that it passes those who guard the term.
WITH settings AS MATERIALIZED (
	SELECT set_config('lock_timeout', '1s', true),
	       CASE current_setting('synchronous_commit')
	       WHEN 'off' THEN set_config('synchronous_commit', 'on', true) END
), mine AS MATERIALIZED (
	SELECT t.name FROM {term} t CROSS JOIN settings
	WHERE t.mode = {mode} AND t.name = $1::text AND t.version = $2::bigint
	  AND t.acq IS NOT DISTINCT FROM $3::uuid
	FOR NO KEY UPDATE OF t
)
UPDATE {term} t SET value = nullif($4::text::bytea, '')
FROM mine m
WHERE t.mode = {mode} AND t.name = m.name AND t.acq = $3::uuid AND t.version = $2::bigint
RETURNING {now};

-- name: revoke_holder
-- It asks a holder to give the name up.
WITH settings AS MATERIALIZED (
	SELECT set_config('lock_timeout', '1s', true),
	       CASE current_setting('synchronous_commit')
	       WHEN 'off' THEN set_config('synchronous_commit', 'on', true) END
)
UPDATE {term} t SET revoke_for = t.instance
FROM settings
WHERE t.mode = {mode} AND t.name = $1::text AND t.version = $2::bigint AND t.acq = $3::uuid
RETURNING {now};

-- name: revoke_anybody
-- Whoever has a lock of advisory mode without having written who that is is asked by version.
WITH settings AS MATERIALIZED (
	SELECT set_config('lock_timeout', '1s', true),
	       CASE current_setting('synchronous_commit')
	       WHEN 'off' THEN set_config('synchronous_commit', 'on', true) END
)
INSERT INTO {term} AS t (mode, name, lock_key, revoke_for, revoked, ended)
SELECT {mode}, r.name, r.key, '00000000-0000-0000-0000-000000000000'::uuid, nextval('{token}'), 3
FROM unnest($1::text[], $2::bigint[]) AS r(name, key) CROSS JOIN settings
ON CONFLICT (mode, name) DO UPDATE SET revoke_for = excluded.revoke_for, revoked = excluded.revoked, ended = 3
WHERE t.acq IS NULL
RETURNING {now};

-- name: revoke
-- It ends what keeps a name that no session has.
WITH settings AS MATERIALIZED (
	SELECT set_config('lock_timeout', '1s', true),
	       CASE current_setting('synchronous_commit')
	       WHEN 'off' THEN set_config('synchronous_commit', 'on', true) END
), mine AS MATERIALIZED (
	SELECT t.name FROM {term} t CROSS JOIN settings
	WHERE t.mode = {mode} AND t.name = $1::text AND t.version = $2::bigint
	  AND t.acq IS NOT DISTINCT FROM $3::uuid
	FOR UPDATE OF t SKIP LOCKED
)
UPDATE {term} t SET
	acq = NULL, owner = NULL, instance = NULL, label = NULL, holds = 0, value = NULL, pid = NULL,
	started = NULL, delay = 0, revoke_for = NULL, ended_at = {now},
	ended = 3, revoked = t.version, not_before = 0
FROM mine m
WHERE t.mode = {mode} AND t.name = m.name
RETURNING t.ended_at;

-- name: revocations
-- A server that takes no writes any more would answer for ever.
SELECT c.now, NOT pg_is_in_recovery() AND NOT current_setting('default_transaction_read_only')::boolean, t.name, t.acq::text, CASE WHEN t.revoke_for = '00000000-0000-0000-0000-000000000000'::uuid THEN t.revoked ELSE 0 END
FROM (SELECT {now} AS now) c
LEFT JOIN {term} t ON t.mode = {mode} AND t.revoke_for IN ($1::uuid, '00000000-0000-0000-0000-000000000000'::uuid);

-- name: find_sweep
-- The row of a name that no lock has says when somebody last began to clean up, and in delay for how
-- long nobody does so after that.
SELECT t.version <= {now} - greatest($1::bigint, t.delay) OR t.version > {now}
FROM {term} t
WHERE t.mode = {mode} AND t.name = '';

-- name: sweep_due
WITH settings AS MATERIALIZED (
	SELECT set_config('lock_timeout', '1s', true), set_config('synchronous_commit', 'off', true)
)
UPDATE {term} t SET version = {now}
FROM settings
WHERE t.mode = {mode} AND t.name = '' AND (t.version <= {now} - greatest($1::bigint, t.delay) OR t.version > {now})
RETURNING t.version;

-- name: sweep_pause
WITH settings AS MATERIALIZED (
	SELECT set_config('lock_timeout', '1s', true), set_config('synchronous_commit', 'off', true)
)
UPDATE {term} t SET delay = $1::bigint
FROM settings
WHERE t.mode = {mode} AND t.name = ''
RETURNING t.version;

-- name: purge_pins
-- A row that is locked is in use.
WITH settings AS MATERIALIZED (
	SELECT set_config('lock_timeout', '1s', true), set_config('synchronous_commit', 'off', true)
), free AS MATERIALIZED (
	SELECT p.name FROM {pin} p CROSS JOIN settings
	WHERE p.name = ANY ($1::text[])
	ORDER BY p.name
	FOR UPDATE OF p SKIP LOCKED
)
DELETE FROM {pin} p USING free f WHERE p.name = f.name
RETURNING {now};

-- name: purge
-- A name whose pin somebody has locked is in use.
WITH settings AS MATERIALIZED (
	SELECT set_config('lock_timeout', '1s', true), set_config('synchronous_commit', 'off', true)
), idle AS MATERIALIZED (
	SELECT t.name FROM {term} t CROSS JOIN settings
	WHERE t.mode = {mode} AND t.name = ANY ($1::text[]) AND t.acq IS NULL AND t.not_before <= {now}
	  AND t.ended_at <= {now} - $2::bigint AND t.version < {now} - $2::bigint
	  AND NOT ({mode} = 2 AND EXISTS (SELECT FROM {pin} p WHERE p.name = t.name))
	ORDER BY t.name
	FOR UPDATE OF t SKIP LOCKED
)
DELETE FROM {term} t USING idle i WHERE t.mode = {mode} AND t.name = i.name AND t.acq IS NULL
RETURNING {now};

-- name: server
SELECT (date_part('epoch', pg_postmaster_start_time()) * 1000000)::bigint, NOT pg_is_in_recovery() AND NOT current_setting('default_transaction_read_only')::boolean;

-- name: pin
-- It locks a name's pin, together with others if $9, and waits for it if $10. It tells whether there
-- is one, and who holds the name, as far as is known. The settings end with the transaction. The
-- server ends a session that is silent for the TTL; if the network is, by what it says to the other
-- side's kernel. What it does not know it is not told: transaction_timeout, and, before version 14
-- and on Windows, to look while it works whether its client is there.
WITH settings AS MATERIALIZED (
	SELECT set_config('lock_timeout', $2::text, true) AS done, set_config('synchronous_commit', 'off', true),
	       set_config('statement_timeout', '0', true),
	       set_config('idle_in_transaction_session_timeout', $3::text, true),
	       set_config('tcp_user_timeout', $4::text, true), set_config('tcp_keepalives_idle', $5::text, true),
	       set_config('tcp_keepalives_interval', $6::text, true), set_config('tcp_keepalives_count', $7::text, true),
	       CASE WHEN current_setting('transaction_timeout', true) IS NOT NULL
	       THEN set_config('transaction_timeout', '0', true) END,
	       CASE WHEN current_setting('client_connection_check_interval', true) IS NOT NULL
	              AND version() !~* 'visual c|mingw|windows|msvc'
	       THEN set_config('client_connection_check_interval', $8::text, true) END
)
SELECT coalesce(a.name, b.name, c.name, d.name) IS NOT NULL, EXISTS (SELECT FROM {pin} x WHERE x.name = $1::text),
       pg_backend_pid(),
       (SELECT (extract(epoch FROM a.backend_start) * 1000000)::bigint FROM pg_stat_get_activity(pg_backend_pid()) a),
       (date_part('epoch', pg_postmaster_start_time()) * 1000000)::bigint, NOT pg_is_in_recovery() AND NOT current_setting('default_transaction_read_only')::boolean, {now},
       t.acq::text, t.owner, t.label, t.version, t.acquired_at
FROM settings s
LEFT JOIN LATERAL (
	SELECT p.name FROM {pin} p WHERE p.name = $1::text AND s.done IS NOT NULL AND NOT $9::boolean AND NOT $10::boolean FOR UPDATE SKIP LOCKED
) a ON true
LEFT JOIN LATERAL (
	SELECT p.name FROM {pin} p WHERE p.name = $1::text AND s.done IS NOT NULL AND NOT $9::boolean AND $10::boolean FOR UPDATE
) b ON true
LEFT JOIN LATERAL (
	SELECT p.name FROM {pin} p WHERE p.name = $1::text AND s.done IS NOT NULL AND $9::boolean AND NOT $10::boolean FOR SHARE SKIP LOCKED
) c ON true
LEFT JOIN LATERAL (
	SELECT p.name FROM {pin} p WHERE p.name = $1::text AND s.done IS NOT NULL AND $9::boolean AND $10::boolean FOR SHARE
) d ON true
LEFT JOIN {term} t ON t.mode = {mode} AND t.name = $1::text;

-- name: make_pin
INSERT INTO {pin} (name) SELECT $1::text
WHERE NOT EXISTS (SELECT FROM {pin} p WHERE p.name = $1::text)
ON CONFLICT (name) DO NOTHING;

-- name: set_holds
WITH settings AS MATERIALIZED (
	SELECT set_config('lock_timeout', '250ms', true), set_config('synchronous_commit', 'off', true)
)
UPDATE {term} t SET holds = r.holds
FROM unnest($1::text[], $2::uuid[], $3::integer[]) AS r(name, acq, holds) CROSS JOIN settings
WHERE t.mode = {mode} AND t.name = r.name AND t.acq = r.acq;

-- name: guarded
-- Whether somebody has locked the row of a term.
SELECT l.name IS NULL
FROM {term} t
LEFT JOIN LATERAL (
	SELECT x.name FROM {term} x WHERE x.mode = {mode} AND x.name = t.name FOR UPDATE SKIP LOCKED
) l ON true
WHERE t.mode = {mode} AND t.name = $1::text AND t.acq = $2::uuid;

-- name: guard
-- It runs in a transaction of the application, see unique.sql.
SELECT m.id = $4::uuid, g.name IS NOT NULL
FROM {meta} m
LEFT JOIN LATERAL (
	SELECT t.name FROM {term} t
	WHERE m.id = $4::uuid AND t.mode = {mode} AND t.name = $1::text AND t.acq = $2::uuid AND t.version = $3::bigint
	FOR KEY SHARE
) g ON true;

-- name: try_pin
-- It runs in a transaction of the application. Nothing is locked in another database, or on another
-- server than that of the connection that draws the token.
SELECT m.id = $2::uuid, (date_part('epoch', pg_postmaster_start_time()) * 1000000)::bigint, EXISTS (SELECT FROM {pin} x WHERE x.name = $1::text),
       coalesce(a.name, b.name) IS NOT NULL
FROM {meta} m
LEFT JOIN LATERAL (
	SELECT p.name FROM {pin} p WHERE p.name = $1::text AND m.id = $2::uuid AND NOT $4::boolean
	  AND (date_part('epoch', pg_postmaster_start_time()) * 1000000)::bigint = $3::bigint FOR UPDATE SKIP LOCKED
) a ON true
LEFT JOIN LATERAL (
	SELECT p.name FROM {pin} p WHERE p.name = $1::text AND m.id = $2::uuid AND $4::boolean
	  AND (date_part('epoch', pg_postmaster_start_time()) * 1000000)::bigint = $3::bigint FOR SHARE SKIP LOCKED
) b ON true;

-- name: lift
-- It makes sure that no token is drawn twice, whatever a crash has undone.
--
-- The server logs the sequence ahead, 32 values at a time, and who draws one of those waits for no
-- flush: a crash may undo the log of values that were handed out. It ends all sessions too, so that
-- each session lifts the sequence before it draws for the first time: over what may be lost, and to
-- the clock, which is past all that a restored backup or a standby may not know of. The lift itself
-- is flushed; so what was handed out since lies above it by less than the 32 values for each session
-- that waited for its flush.
--
-- setval could give back what others draw between the reading and the setting. So nobody draws
-- meanwhile: who draws has the lock of the key, together with others. pg_sequence_last_value, which
-- sees the present and not a snapshot, is called after the lock was taken.
WITH settings AS MATERIALIZED (
	SELECT set_config('lock_timeout', '1s', true),
	       CASE current_setting('synchronous_commit')
	       WHEN 'off' THEN set_config('synchronous_commit', 'on', true) END
), sole AS MATERIALIZED (
	SELECT pg_advisory_xact_lock($1::bigint) FROM settings
)
SELECT setval('{token}', greatest(coalesce(pg_sequence_last_value('{token}'), 0) + 65536, {now})) FROM sole;

-- name: try
-- It takes locks and draws tokens for them, see the migrations.
SELECT f.clock, f.tokens::text, f.gates::text
FROM {try}($1::bigint[], $2::bigint[], $3::boolean[], $4::text[], $5::boolean[], $6::bigint) f;

-- name: pass
-- It draws tokens for locks that the caller has had for a while.
WITH settings AS MATERIALIZED (
	SELECT set_config('lock_timeout', '1s', true),
	       CASE current_setting('synchronous_commit')
	       WHEN 'off' THEN set_config('synchronous_commit', 'on', true) END
), unlifted AS MATERIALIZED (
	SELECT pg_advisory_xact_lock_shared($3::bigint) FROM settings
), req AS MATERIALIZED (
	SELECT * FROM unnest($1::text[], $2::uuid[]) WITH ORDINALITY AS r(name, acq, ord)
), found AS MATERIALIZED (
	SELECT r.ord, t.acq IS NOT NULL AS named, coalesce(t.acq <> r.acq, false) AS crashed, coalesce(t.not_before, 0) AS gate, c.now
	FROM req r CROSS JOIN unlifted CROSS JOIN (SELECT {now} AS now) c
	LEFT JOIN {term} t ON t.mode = {mode} AND t.name = r.name
), drawn AS MATERIALIZED (
	SELECT f.*, CASE WHEN NOT f.named AND f.gate <= f.now THEN nextval('{token}') ELSE 0 END AS token FROM found f
)
SELECT d.token, d.named, d.gate, d.now FROM drawn d ORDER BY d.ord;

-- name: unlock
-- It lets go, and tells of which locks the session did not have. A transaction that guards a lease now
-- keeps none from being let go: see check_guards.
SELECT coalesce(array_agg(r.ord) FILTER (WHERE NOT
	CASE WHEN r.shared THEN pg_advisory_unlock_shared(r.key) ELSE pg_advisory_unlock(r.key) END), '{}')::text
FROM unnest($1::bigint[], $2::boolean[]) WITH ORDINALITY AS r(key, shared, ord);

-- name: check_guards
-- Whether no transaction guards any of the leases. The key of a guard is had for a moment only, not
-- until the transaction has been flushed: others who are granted the same name, to share it, look
-- too. A guard that comes later finds that its session is dead.
WITH req AS MATERIALIZED (SELECT * FROM unnest($1::bigint[]) AS r(guard))
SELECT coalesce(bool_and(CASE WHEN pg_try_advisory_lock(r.guard) THEN pg_advisory_unlock(r.guard) ELSE false END), true) FROM req r;

-- name: own_locks
SELECT (classid::bigint << 32) | objid::bigint, mode = 'ShareLock'
FROM pg_locks
WHERE locktype = 'advisory' AND objsubid = 1 AND granted AND pid = pg_backend_pid()
  AND database = (SELECT oid FROM pg_database WHERE datname = current_database());

-- name: note
-- It writes who has locks, for people.
WITH settings AS MATERIALIZED (
	SELECT set_config('lock_timeout', '1s', true), set_config('synchronous_commit', 'off', true)
)
INSERT INTO {term} AS t (mode, name, lock_key, acq, owner, version, holds, acquired_at, instance, label, pid, started)
SELECT {mode}, r.name, r.key, r.acq, r.owner, r.version, r.holds, r.since, $8::uuid, $9::text, $10::bigint, $11::bigint
FROM unnest($1::text[], $2::bigint[], $3::uuid[], $4::text[], $5::bigint[], $6::integer[], $7::bigint[])
	AS r(name, key, acq, owner, version, holds, since) CROSS JOIN settings
ORDER BY r.name
ON CONFLICT (mode, name) DO UPDATE SET
	lock_key = excluded.lock_key, acq = excluded.acq, owner = excluded.owner, version = excluded.version, holds = excluded.holds,
	acquired_at = excluded.acquired_at, instance = excluded.instance, label = excluded.label, pid = excluded.pid, started = excluded.started,
	value = NULL, delay = 0
WHERE t.acq IS NULL OR t.acq = excluded.acq;

-- name: note_shared
-- It writes which names are shared, so that a list can tell. How many share them the server knows.
WITH settings AS MATERIALIZED (
	SELECT set_config('lock_timeout', '1s', true), set_config('synchronous_commit', 'off', true)
)
INSERT INTO {term} AS t (mode, name, lock_key, version, acquired_at, ended_at)
SELECT {mode}, r.name, r.key, r.version, r.since, {now}
FROM unnest($1::text[], $2::bigint[], $3::bigint[], $4::bigint[]) AS r(name, key, version, since) CROSS JOIN settings
ORDER BY r.name
ON CONFLICT (mode, name) DO UPDATE SET lock_key = excluded.lock_key, version = greatest(t.version, excluded.version),
	acquired_at = excluded.acquired_at, ended_at = excluded.ended_at
WHERE t.acq IS NULL;

-- name: session
-- It prepares a connection: it changes the settings that exist and tells what they were, and takes
-- the lock by which others see that the session lives.
WITH was AS MATERIALIZED (
	SELECT s.name, s.setting, s.source = 'session' AS chosen, r.setting AS wanted
	FROM pg_settings s JOIN unnest($1::text[], $2::text[]) AS r(name, setting) ON r.name = s.name
	WHERE s.name <> 'client_connection_check_interval' OR current_setting('client_connection_check_interval', true) IS NOT NULL
	  AND version() !~* 'visual c|mingw|windows|msvc'
), done AS MATERIALIZED (
	SELECT w.*, set_config(w.name, w.wanted, false) AS now FROM was w
), own AS MATERIALIZED (
	SELECT pg_try_advisory_lock($3::bigint) AS locked, pg_backend_pid() AS pid,
	       (SELECT (extract(epoch FROM a.backend_start) * 1000000)::bigint FROM pg_stat_get_activity(pg_backend_pid()) a) AS started
)
SELECT o.locked, o.pid, o.started, (date_part('epoch', pg_postmaster_start_time()) * 1000000)::bigint, NOT pg_is_in_recovery() AND NOT current_setting('default_transaction_read_only')::boolean, d.name, d.setting, d.chosen FROM own o LEFT JOIN done d ON true;

-- name: restore
SELECT set_config($1::text, $2::text, false);

-- name: guard_lock
-- It runs in a transaction of the application. Whoever would be the next holder must get the guard's
-- key alone, for a moment, after it has got the lock. So if the session has the lock now, after the
-- guard's key was taken, nobody got it before. To ask for the key of the session alone is not enough:
-- a server that ends a session lets its locks go one after the other, and the name may have a new
-- holder while the session's key is still taken. That key is asked for last: it says that the process
-- is still the one of the session. 0 is foreign, 1 busy, 2 dead, 3 guarded.
SELECT CASE WHEN m.id <> $1::uuid THEN 0 WHEN NOT pg_try_advisory_xact_lock_shared($2::bigint) THEN 1
       WHEN NOT EXISTS (SELECT FROM pg_locks l
		WHERE l.locktype = 'advisory' AND l.objsubid = 1 AND l.granted AND l.pid = $4::bigint AND m.id = $1::uuid
		  AND (l.classid::bigint << 32) | l.objid::bigint = $5::bigint
		  AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())) THEN 2
       WHEN pg_try_advisory_xact_lock_shared($3::bigint) THEN 2 ELSE 3 END
FROM {meta} m;

-- name: try_lock
-- It is try_pin of advisory mode.
SELECT m.id = $2::uuid, (date_part('epoch', pg_postmaster_start_time()) * 1000000)::bigint,
       CASE WHEN m.id <> $2::uuid OR (date_part('epoch', pg_postmaster_start_time()) * 1000000)::bigint <> $3::bigint THEN false
       WHEN $4::boolean THEN pg_try_advisory_xact_lock_shared($1::bigint) ELSE pg_try_advisory_xact_lock($1::bigint) END
FROM {meta} m;
