-- The statements of the unique mode, for Postgres 12 or newer. Package rowstore says what
-- each of them does. In {lock}, {claim}, {waiter}, {meta} and {fence} the names of the
-- tables are filled in.
--
-- A batch is one array for each column, so that a statement is the same for any number of
-- rows. Further parameters follow.
--
-- The clock is that of the moment when it is read, in microseconds. It is not now(), which
-- stands still from the start of the transaction and is old after a wait for a row. It is
-- not extract(), which computes with numeric.
--
-- Grants and renewals wait for their flush even where the role or the database is set not
-- to. What a crash may undo does not wait: a release, after which the name is merely free
-- later. A statement that stands alone sets that itself, and how long it waits for a row.

-- name: plans
-- It comes first in every transaction, if the driver can send it together with what follows.
-- A plan is made once for a session, perhaps while the tables are empty. It must look rows up
-- by their key although an empty table is read more cheaply as a whole, and it must not
-- depend on how many rows a batch has: so a batch names the keys once more, beside the join.
SELECT set_config('plan_cache_mode', 'force_generic_plan', true),
       set_config('enable_seqscan', 'off', true), set_config('enable_bitmapscan', 'off', true),
       set_config('enable_nestloop', 'off', true), set_config('jit', 'off', true);

-- name: keep_plans
-- It gives these settings to the session, for as long as a Locker keeps it to itself, and
-- returns those that it had. Through a pooler a process other than $1 may serve the session,
-- and may serve others too: then nothing changes.
SELECT s.name, s.before, set_config(s.name, s.value, false)
FROM (
	SELECT r.name, r.value, current_setting(r.name) AS before
	FROM (VALUES ('plan_cache_mode', 'force_generic_plan'), ('enable_seqscan', 'off'),
	             ('enable_bitmapscan', 'off'), ('enable_nestloop', 'off'), ('jit', 'off')
	     ) AS r(name, value)
	WHERE pg_backend_pid() = $1::bigint
	OFFSET 0
) s;

-- name: restore
-- It gives settings back to the session.
SELECT set_config(s.name, s.value, false) FROM unnest($1::text[], $2::text[]) AS s(name, value);

-- name: visit
-- It begins the transaction of a visit. The server ends the transaction if its client is
-- silent in it for $1 milliseconds.
SELECT set_config('lock_timeout', '1s', true),
       set_config('idle_in_transaction_session_timeout', $1::text, true),
       CASE current_setting('synchronous_commit')
       WHEN 'off' THEN set_config('synchronous_commit', 'on', true) END;

-- name: unflushed
-- It is for a visit after which nobody trusts in anything that a crash could undo.
SELECT set_config('synchronous_commit', 'off', true);

-- name: clock
SELECT (date_part('epoch', clock_timestamp()) * 1000000)::bigint;

-- name: rows
SELECT l.name, (date_part('epoch', clock_timestamp()) * 1000000)::bigint, l.version,
       coalesce(encode(uuid_send(l.acq), 'hex'), ''), coalesce(l.owner, ''),
       coalesce(l.label, ''), coalesce(encode(uuid_send(l.locker), 'hex'), ''), l.value, l.holds,
       l.since, l.expires_at, l.limit_at, l.delay, l.not_before, l.permits, l.waiting, l.holding,
       l.seq, l.ended, l.revoked
FROM {lock} l
WHERE l.name = ANY ($1::text[]);

-- name: claims
SELECT c.name, (date_part('epoch', clock_timestamp()) * 1000000)::bigint,
       encode(uuid_send(c.acq), 'hex'), c.state, c.kind, c.slot, c.seq, c.token, c.holds, c.ttl,
       c.handed, c.max_hold, c.since, c.expires_at, c.limit_at, c.delay,
       encode(uuid_send(c.locker), 'hex'), c.owner, c.label, c.value,
       EXISTS (
	       SELECT FROM {waiter} w
	       WHERE w.locker = c.locker
	         AND w.expires_at > (date_part('epoch', clock_timestamp()) * 1000000)::bigint
       )::integer
FROM unnest($1::text[]) AS r(name)
CROSS JOIN LATERAL (
	SELECT h.* FROM {claim} h WHERE h.name = r.name AND h.state = 1
	UNION ALL (
		SELECT q.* FROM {claim} q
		WHERE q.name = r.name AND q.state = 0
		  AND (q.locker = $3::uuid OR EXISTS (
			SELECT FROM {waiter} w
			WHERE w.locker = q.locker
			  AND w.expires_at > (date_part('epoch', clock_timestamp()) * 1000000)::bigint))
		ORDER BY q.seq
		LIMIT $2::bigint
	)
) c;

-- name: claims_of
SELECT c.name, (date_part('epoch', clock_timestamp()) * 1000000)::bigint,
       encode(uuid_send(c.acq), 'hex'), c.state, c.kind, c.slot, c.seq, c.token, c.holds, c.ttl,
       c.handed, c.max_hold, c.since, c.expires_at, c.limit_at, c.delay,
       encode(uuid_send(c.locker), 'hex'), c.owner, c.label, c.value,
       EXISTS (
	       SELECT FROM {waiter} w
	       WHERE w.locker = c.locker
	         AND w.expires_at > (date_part('epoch', clock_timestamp()) * 1000000)::bigint
       )::integer
FROM unnest($1::text[], $2::uuid[]) AS r(name, acq)
CROSS JOIN LATERAL (SELECT k.* FROM {claim} k WHERE k.acq = r.acq OFFSET 0) c
WHERE c.name = r.name;

-- name: all_claims
SELECT c.name, (date_part('epoch', clock_timestamp()) * 1000000)::bigint,
       encode(uuid_send(c.acq), 'hex'), c.state, c.kind, c.slot, c.seq, c.token, c.holds, c.ttl,
       c.handed, c.max_hold, c.since, c.expires_at, c.limit_at, c.delay,
       encode(uuid_send(c.locker), 'hex'), c.owner, c.label, c.value,
       coalesce((
	       SELECT CASE WHEN w.expires_at > t.now THEN 1
	                   WHEN w.expires_at > t.now - $2::bigint THEN 0
	                   ELSE 2 END
	       FROM {waiter} w
	       CROSS JOIN (SELECT (date_part('epoch', clock_timestamp()) * 1000000)::bigint AS now) t
	       WHERE w.locker = c.locker
       ), 2)
FROM {claim} c
WHERE c.name = ANY ($1::text[]);

-- name: page
SELECT l.name, (date_part('epoch', clock_timestamp()) * 1000000)::bigint, l.version,
       coalesce(encode(uuid_send(l.acq), 'hex'), ''), coalesce(l.owner, ''),
       coalesce(l.label, ''), coalesce(encode(uuid_send(l.locker), 'hex'), ''), NULL::bytea,
       l.holds, l.since, l.expires_at, l.limit_at, l.delay, l.not_before, l.permits, l.waiting,
       l.holding, l.seq, l.ended, l.revoked
FROM (SELECT p.* FROM {lock} p WHERE p.name > $1::text ORDER BY p.name LIMIT $2::bigint) l
WHERE $3::bigint = 1 OR l.acq IS NOT NULL OR l.holding > 0
   OR l.not_before > (date_part('epoch', clock_timestamp()) * 1000000)::bigint
ORDER BY l.name;

-- name: page_end
SELECT count(*), coalesce(max(l.name), '')
FROM (SELECT p.name FROM {lock} p WHERE p.name > $1::text ORDER BY p.name LIMIT $2::bigint) l;

-- name: readers
SELECT c.name, c.kind, count(*), max(c.expires_at)
FROM {claim} c
WHERE c.name = ANY ($1::text[]) AND c.state = 1
  AND c.expires_at > (date_part('epoch', clock_timestamp()) * 1000000)::bigint
GROUP BY c.name, c.kind;

-- name: together
SELECT c.name, encode(uuid_send(c.acq), 'hex'), c.kind, c.slot, c.owner, c.label, c.token, c.since,
       c.expires_at
FROM unnest($1::text[]) AS r(name)
CROSS JOIN LATERAL (
	SELECT h.* FROM {claim} h
	WHERE h.name = r.name AND h.state = 1
	  AND h.expires_at > (date_part('epoch', clock_timestamp()) * 1000000)::bigint
	ORDER BY h.slot, h.seq
	LIMIT $2::bigint
) c
ORDER BY c.name, c.slot, c.seq;

-- name: queues
-- Whether a Locker is alive is looked up for each claim: a join might compare each with each.
SELECT c.name, c.waiters, c.label, c.since, c.kind
FROM unnest($1::text[]) AS r(name)
CROSS JOIN LATERAL (
	SELECT q.name, q.seq, q.label, q.since, q.kind, count(*) OVER () AS waiters
	FROM {claim} q
	WHERE q.name = r.name AND q.state = 0
	  AND (SELECT w.expires_at FROM {waiter} w WHERE w.locker = q.locker)
	      > (date_part('epoch', clock_timestamp()) * 1000000)::bigint
	ORDER BY q.seq
	LIMIT $2::bigint
) c
ORDER BY c.name, c.seq;

-- name: waits
SELECT c.name, encode(uuid_send(c.acq), 'hex'), c.label, c.seq, c.since, c.kind,
       encode(c.carries, 'hex')
FROM (SELECT k.* FROM {claim} k WHERE k.carries IS NOT NULL ORDER BY k.since OFFSET 0) c
WHERE c.state = 0
  AND (c.locker = $1::uuid OR EXISTS (
	SELECT FROM {waiter} w
	WHERE w.locker = c.locker
	  AND w.expires_at > (date_part('epoch', clock_timestamp()) * 1000000)::bigint))
ORDER BY c.since;

-- name: holders
SELECT l.name, encode(uuid_send(l.acq), 'hex')
FROM {lock} l
WHERE l.name = ANY ($1::text[]) AND l.acq IS NOT NULL
  AND l.expires_at > (date_part('epoch', clock_timestamp()) * 1000000)::bigint
UNION ALL
SELECT c.name, encode(uuid_send(c.acq), 'hex')
FROM {claim} c
WHERE c.name = ANY ($1::text[]) AND c.state = 1
  AND c.expires_at > (date_part('epoch', clock_timestamp()) * 1000000)::bigint;

-- name: make_rows
-- A row is new, however low its version is: cleanups leave it alone for the retention.
INSERT INTO {lock} (name, version, expires_at)
SELECT r.name, 0, (date_part('epoch', clock_timestamp()) * 1000000)::bigint
FROM unnest($1::text[]) AS r(name)
WHERE NOT EXISTS (SELECT FROM {lock} l WHERE l.name = r.name AND l.name = ANY ($1::text[]))
ORDER BY r.name COLLATE "C"
ON CONFLICT (name) DO NOTHING;

-- name: lock_rows
-- A guard goes on: it locks the key alone.
WITH mine AS MATERIALIZED (
	SELECT l.* FROM {lock} l
	WHERE l.name = ANY ($1::text[])
	ORDER BY l.name
	FOR NO KEY UPDATE
)
SELECT l.name, (date_part('epoch', clock_timestamp()) * 1000000)::bigint, l.version,
       coalesce(encode(uuid_send(l.acq), 'hex'), ''), coalesce(l.owner, ''),
       coalesce(l.label, ''), coalesce(encode(uuid_send(l.locker), 'hex'), ''), l.value, l.holds,
       l.since, l.expires_at, l.limit_at, l.delay, l.not_before, l.permits, l.waiting, l.holding,
       l.seq, l.ended, l.revoked
FROM mine l
ORDER BY l.name;

-- name: lock_free_rows
WITH mine AS MATERIALIZED (
	SELECT l.* FROM {lock} l
	WHERE l.name = ANY ($1::text[])
	ORDER BY l.name
	FOR NO KEY UPDATE SKIP LOCKED
)
SELECT l.name, (date_part('epoch', clock_timestamp()) * 1000000)::bigint, l.version,
       coalesce(encode(uuid_send(l.acq), 'hex'), ''), coalesce(l.owner, ''),
       coalesce(l.label, ''), coalesce(encode(uuid_send(l.locker), 'hex'), ''), l.value, l.holds,
       l.since, l.expires_at, l.limit_at, l.delay, l.not_before, l.permits, l.waiting, l.holding,
       l.seq, l.ended, l.revoked
FROM mine l
ORDER BY l.name;

-- name: unpinned
-- The transaction has locked the rows. Only a guard can be in the way of more. A row that is
-- changed after that turns guards with an old snapshot away, so it is not asked for where
-- somebody only enters the queue, or leaves it.
WITH mine AS MATERIALIZED (
	SELECT l.name FROM {lock} l
	WHERE l.name = ANY ($1::text[])
	  AND ($2::bigint = 1 OR l.acq IS NULL
	    OR l.expires_at <= (date_part('epoch', clock_timestamp()) * 1000000)::bigint)
	ORDER BY l.name
	FOR UPDATE SKIP LOCKED
)
SELECT l.name, (date_part('epoch', clock_timestamp()) * 1000000)::bigint
FROM mine l
ORDER BY l.name;

-- name: lock_claims
SELECT c.name, encode(uuid_send(c.acq), 'hex')
FROM {claim} c
WHERE c.name = ANY ($1::text[]) AND c.state = 1
  AND ($2::bigint = 1
    OR c.expires_at <= (date_part('epoch', clock_timestamp()) * 1000000)::bigint)
FOR UPDATE SKIP LOCKED;

-- name: write_rows
UPDATE {lock} l
SET version = r.version, acq = r.acq, owner = CASE WHEN r.acq IS NOT NULL THEN r.owner END,
    label = CASE WHEN r.acq IS NOT NULL THEN r.label END, locker = r.locker,
    value = nullif(r.value, ''), holds = r.holds, since = r.since, expires_at = r.expires_at,
    limit_at = r.limit_at, delay = r.delay, not_before = r.not_before, permits = r.permits,
    waiting = r.waiting, holding = r.holding, seq = r.seq, ended = r.ended, revoked = r.revoked
FROM unnest($1::text[], $2::bigint[], $3::uuid[], $4::text[], $5::text[], $6::uuid[], $7::bytea[],
            $8::bigint[], $9::bigint[], $10::bigint[], $11::bigint[], $12::bigint[], $13::bigint[],
            $14::bigint[], $15::bigint[], $16::bigint[], $17::bigint[], $18::bigint[],
            $19::bigint[])
     AS r(name, version, acq, owner, label, locker, value, holds, since, expires_at, limit_at,
          delay, not_before, permits, waiting, holding, seq, ended, revoked)
WHERE l.name = r.name AND l.name = ANY ($1::text[]);

-- name: delete_claims
DELETE FROM {claim} c
USING unnest($1::text[], $2::uuid[]) AS r(name, acq)
WHERE c.acq = r.acq AND c.acq = ANY ($2::uuid[]);

-- name: insert_claims
INSERT INTO {claim} (name, acq, state, kind, slot, seq, token, holds, ttl, handed, max_hold, since,
                     expires_at, limit_at, delay, locker, owner, label, value, carries)
SELECT r.name, r.acq, r.state, r.kind, r.slot, r.seq, r.token, r.holds, r.ttl, r.handed, r.max_hold,
       r.since, r.expires_at, r.limit_at, r.delay, r.locker, r.owner, r.label,
       nullif(r.value, ''), nullif(r.carries, '')
FROM unnest($1::text[], $2::uuid[], $3::bigint[], $4::bigint[], $5::bigint[], $6::bigint[],
            $7::bigint[], $8::bigint[], $9::bigint[], $10::bigint[], $11::bigint[], $12::bigint[],
            $13::bigint[], $14::bigint[], $15::bigint[], $16::uuid[], $17::text[], $18::text[],
            $19::bytea[], $20::bytea[])
     AS r(name, acq, state, kind, slot, seq, token, holds, ttl, handed, max_hold, since,
          expires_at, limit_at, delay, locker, owner, label, value, carries);

-- name: queue_quickly
-- It enters new claims of names that somebody holds alone, as the row says when it is locked. A name
-- that is free by then is granted to who wants it alone. Each name is there once. The result tells
-- who holds the name, and whether another claim comes first. See grant_quickly for the order of the
-- locks, and for when a term begins.
WITH settings AS MATERIALIZED (
	SELECT set_config('lock_timeout', '1s', true), CASE current_setting('synchronous_commit')
	       WHEN 'off' THEN set_config('synchronous_commit', 'on', true) END
), changed AS (
	UPDATE {lock} l
	SET (acq, owner, locker, label, value, version, holds, since, expires_at, limit_at, delay, ended,
	     waiting, seq) = (
		SELECT r.acq, r.owner, $9::uuid, $10::text, nullif(r.value, ''),
		       greatest(l.version + 1, t.now), 1, t.now, t.now + r.ttl, 0, 0, 0, l.waiting, l.seq
		FROM (SELECT (date_part('epoch', clock_timestamp()) * 1000000)::bigint AS now) t
		WHERE l.acq IS NULL
		UNION ALL
		SELECT l.acq, l.owner, l.locker, l.label, l.value, l.version, l.holds, l.since, l.expires_at,
		       l.limit_at, l.delay, l.ended, l.waiting + 1, greatest(l.seq + 1, t.now)
		FROM (SELECT (date_part('epoch', clock_timestamp()) * 1000000)::bigint AS now) t
		WHERE l.acq IS NOT NULL)
	FROM unnest($1::text[], $2::uuid[], $3::bigint[], $4::bigint[], $5::bigint[], $6::text[],
	            $7::bytea[], $8::bytea[])
	     WITH ORDINALITY AS r(name, acq, kind, ttl, handed, owner, value, carries, place)
	CROSS JOIN settings
	WHERE l.name = r.name AND l.name = ANY ($1::text[])
	  AND CASE WHEN l.acq IS NULL THEN r.kind = 0 AND l.waiting = 0 AND l.holding = 0
	           AND l.not_before <= (date_part('epoch', clock_timestamp()) * 1000000)::bigint
	           AND l.version < 9223372036854775807
	      ELSE l.acq <> r.acq
	           AND l.expires_at > (date_part('epoch', clock_timestamp()) * 1000000)::bigint END
	  AND NOT EXISTS (SELECT FROM {claim} k WHERE k.acq = r.acq AND k.acq = ANY ($2::uuid[]))
	RETURNING r.*, (date_part('epoch', clock_timestamp()) * 1000000)::bigint AS now, l.seq,
	          l.waiting, l.acq AS holder, l.owner AS held_by, l.label, l.version, l.since,
	          l.expires_at
), entered AS (
	INSERT INTO {claim} (name, acq, state, kind, slot, seq, token, holds, ttl, handed, max_hold,
	                     since, expires_at, limit_at, delay, locker, owner, label, value, carries)
	SELECT c.name, c.acq, 0, c.kind, 0, c.seq, 0, 0, c.ttl, c.handed, 0, c.now, 0, 0, 0, $9::uuid,
	       c.owner, $10::text, nullif(c.value, ''), nullif(c.carries, '')
	FROM changed c
	WHERE c.holder <> c.acq
), unflushed AS MATERIALIZED (
	SELECT CASE WHEN NOT EXISTS (SELECT FROM changed c WHERE c.holder = c.acq)
	       THEN set_config('synchronous_commit', 'off', true) END
)
SELECT h.place, CASE WHEN h.holder = h.acq THEN h.since ELSE h.now END,
       encode(uuid_send(h.holder), 'hex'), coalesce(h.held_by, ''),
       coalesce(h.label, ''), h.version, h.since, h.expires_at,
       CASE WHEN h.holder = h.acq OR h.waiting = 1 THEN 0 ELSE coalesce((
	       SELECT 1 FROM {claim} q
	       WHERE q.name = h.name AND q.state = 0
	         AND (q.locker = $9::uuid OR EXISTS (
		       SELECT FROM {waiter} w
		       WHERE w.locker = q.locker
		         AND w.expires_at > (date_part('epoch', clock_timestamp()) * 1000000)::bigint))
	       ORDER BY q.seq
	       LIMIT 1
       ), 0) END
FROM changed h CROSS JOIN unflushed;

-- name: queue_quickly_one
-- It is queue_quickly for one name.
WITH changed AS (
	UPDATE {lock} l
	SET (acq, owner, locker, label, value, version, holds, since, expires_at, limit_at, delay, ended,
	     waiting, seq) = (
		SELECT $2::uuid, $6::text, $9::uuid, $10::text, nullif($7::bytea, ''),
		       greatest(l.version + 1, t.now), 1, t.now, t.now + $4::bigint, 0, 0, 0, l.waiting, l.seq
		FROM (SELECT (date_part('epoch', clock_timestamp()) * 1000000)::bigint AS now) t
		WHERE l.acq IS NULL
		UNION ALL
		SELECT l.acq, l.owner, l.locker, l.label, l.value, l.version, l.holds, l.since, l.expires_at,
		       l.limit_at, l.delay, l.ended, l.waiting + 1, greatest(l.seq + 1, t.now)
		FROM (SELECT (date_part('epoch', clock_timestamp()) * 1000000)::bigint AS now) t
		WHERE l.acq IS NOT NULL)
	WHERE l.name = $1::text
	  AND CASE WHEN l.acq IS NULL THEN $3::bigint = 0 AND l.waiting = 0 AND l.holding = 0
	           AND l.not_before <= (date_part('epoch', clock_timestamp()) * 1000000)::bigint
	           AND l.version < 9223372036854775807
	      ELSE l.acq <> $2::uuid
	           AND l.expires_at > (date_part('epoch', clock_timestamp()) * 1000000)::bigint END
	  AND NOT EXISTS (SELECT FROM {claim} k WHERE k.acq = $2::uuid)
	  AND set_config('lock_timeout', '1s', true) <> ''
	  AND CASE current_setting('synchronous_commit')
	      WHEN 'off' THEN set_config('synchronous_commit', 'on', true) ELSE 'on' END <> ''
	RETURNING l.name, (date_part('epoch', clock_timestamp()) * 1000000)::bigint AS now, l.seq,
	          l.waiting, l.acq, l.owner, l.label, l.version, l.since, l.expires_at
), entered AS (
	INSERT INTO {claim} (name, acq, state, kind, slot, seq, token, holds, ttl, handed, max_hold,
	                     since, expires_at, limit_at, delay, locker, owner, label, value, carries)
	SELECT c.name, $2::uuid, 0, $3::bigint, 0, c.seq, 0, 0, $4::bigint, $5::bigint, 0, c.now, 0, 0, 0,
	       $9::uuid, $6::text, $10::text, nullif($7::bytea, ''), nullif($8::bytea, '')
	FROM changed c
	WHERE CASE WHEN c.acq <> $2::uuid THEN set_config('synchronous_commit', 'off', true) END <> ''
)
SELECT 1::bigint, CASE WHEN h.acq = $2::uuid THEN h.since ELSE h.now END,
       encode(uuid_send(h.acq), 'hex'), coalesce(h.owner, ''), coalesce(h.label, ''), h.version,
       h.since, h.expires_at, CASE WHEN h.acq = $2::uuid OR h.waiting = 1 THEN 0 ELSE coalesce((
	       SELECT 1 FROM {claim} q
	       WHERE q.name = $1::text AND q.state = 0
	         AND (q.locker = $9::uuid OR EXISTS (
		       SELECT FROM {waiter} w
		       WHERE w.locker = q.locker
		         AND w.expires_at > (date_part('epoch', clock_timestamp()) * 1000000)::bigint))
	       ORDER BY q.seq
	       LIMIT 1
       ), 0) END
FROM changed h;

-- name: hand_over_quickly
-- It ends exclusive terms that were never guarded, and hands each name over to the first claim
-- that waits for it and whose Locker lives, if that claim wants the name alone. Each name is
-- there once. The result tells how many wait for the name, and to whom it was handed over. If
-- there is anything else to do, nothing changes: a visit does it.
--
-- The row may be waited for, and the claims are those that were committed before that. It is
-- enough. They enter with rising seq under the lock of the row: one that is seen has nobody
-- before it who is not. One that has left meanwhile is not there to be deleted, and then the row
-- stays as it is. Those that have come meanwhile come later. Nobody changes the row between its
-- lock and its update, so no claim is deleted without the update. A Locker lives if it did when
-- the statement began, as its beats are seen: by a later clock a beat that has come meanwhile
-- would be missing.
WITH settings AS MATERIALIZED (
	SELECT set_config('lock_timeout', '1s', true), CASE current_setting('synchronous_commit')
	       WHEN 'off' THEN set_config('synchronous_commit', 'on', true) END
), mine AS MATERIALIZED (
	SELECT r.place, r.min_hold, l.*
	FROM unnest($1::text[], $2::uuid[], $3::bigint[], $4::bigint[])
	     WITH ORDINALITY AS r(name, acq, version, min_hold, place)
	JOIN {lock} l ON l.name = r.name CROSS JOIN settings
	WHERE l.name = ANY ($1::text[]) AND l.acq = r.acq AND l.version = r.version
	ORDER BY l.name
	FOR NO KEY UPDATE OF l
), ended AS MATERIALIZED (
	SELECT m.*, (date_part('epoch', clock_timestamp()) * 1000000)::bigint AS now FROM mine m
), next AS MATERIALIZED (
	SELECT m.name, m.now, q.acq
	FROM ended m
	CROSS JOIN LATERAL (
		SELECT k.acq, k.kind FROM {claim} k
		WHERE k.name = m.name AND k.state = 0
		  AND (k.locker = $5::uuid OR EXISTS (
			SELECT FROM {waiter} w
			WHERE w.locker = k.locker
			  AND w.expires_at > (date_part('epoch', statement_timestamp()) * 1000000)::bigint))
		ORDER BY k.seq
		LIMIT 1
	) q
	WHERE m.waiting > 0 AND m.holding = 0 AND m.not_before <= m.now AND q.kind = 0
	  AND (m.min_hold <= 0 OR m.since + m.min_hold <= m.now)
	  AND m.version < 9223372036854775807
), admitted AS (
	DELETE FROM {claim} c
	WHERE c.acq = ANY (ARRAY(SELECT n.acq FROM next n))
	RETURNING c.*
), handed AS (
	UPDATE {lock} l
	SET acq = a.acq, owner = a.owner, locker = a.locker, label = a.label, value = a.value,
	    version = greatest(l.version + 1, n.now), holds = 1, since = n.now, ended = 0,
	    expires_at = n.now + least(CASE a.locker WHEN $5::uuid THEN a.ttl ELSE a.handed END,
	                               CASE WHEN a.max_hold > 0 THEN a.max_hold + a.delay END),
	    limit_at = CASE WHEN a.max_hold > 0 THEN n.now + a.max_hold + a.delay ELSE 0 END,
	    delay = a.delay, waiting = l.waiting - 1
	FROM admitted a JOIN next n ON n.acq = a.acq
	WHERE l.name = n.name AND l.name = ANY ($1::text[])
	RETURNING l.name, l.acq, l.locker, l.version, l.expires_at
), freed AS (
	UPDATE {lock} l
	SET acq = NULL, owner = NULL, locker = NULL, label = NULL, value = NULL, holds = 0, limit_at = 0,
	    delay = 0, ended = 1, expires_at = least(l.expires_at, m.now),
	    not_before = CASE WHEN m.min_hold > 0 AND m.since + m.min_hold > m.now
	                 THEN greatest(l.not_before, m.since + m.min_hold) ELSE l.not_before END
	FROM ended m
	WHERE l.name = m.name AND l.name = ANY ($1::text[]) AND m.waiting = 0
), unflushed AS MATERIALIZED (
	SELECT CASE WHEN NOT EXISTS (SELECT FROM handed)
	       THEN set_config('synchronous_commit', 'off', true) END
)
SELECT m.place, m.now, m.waiting, coalesce(encode(uuid_send(h.acq), 'hex'), ''),
       coalesce(encode(uuid_send(h.locker), 'hex'), ''), coalesce(h.version, 0),
       coalesce(h.expires_at, 0), 0
FROM ended m CROSS JOIN unflushed LEFT JOIN handed h ON h.name = m.name;

-- name: hand_over_quickly_one
-- It is hand_over_quickly for one name.
WITH ended AS MATERIALIZED (
	SELECT l.waiting, l.holding, l.not_before, l.since, l.version, l.expires_at,
	       (date_part('epoch', clock_timestamp()) * 1000000)::bigint AS now
	FROM (
		SELECT k.* FROM {lock} k
		WHERE k.name = $1::text AND k.acq = $2::uuid AND k.version = $3::bigint
		  AND set_config('lock_timeout', '1s', true) <> ''
		  AND CASE current_setting('synchronous_commit')
		      WHEN 'off' THEN set_config('synchronous_commit', 'on', true) ELSE 'on' END <> ''
		FOR NO KEY UPDATE
	) l
), admitted AS (
	DELETE FROM {claim} c
	WHERE c.acq = (
		SELECT CASE q.kind WHEN 0 THEN q.acq END
		FROM ended m
		CROSS JOIN LATERAL (
			SELECT k.acq, k.kind FROM {claim} k
			WHERE k.name = $1::text AND k.state = 0
			  AND (k.locker = $5::uuid OR EXISTS (
				SELECT FROM {waiter} w
				WHERE w.locker = k.locker
				  AND w.expires_at > (date_part('epoch', statement_timestamp()) * 1000000)::bigint))
			ORDER BY k.seq
			LIMIT 1
		) q
		WHERE m.waiting > 0 AND m.holding = 0 AND m.not_before <= m.now
		  AND ($4::bigint <= 0 OR m.since + $4::bigint <= m.now)
		  AND m.version < 9223372036854775807
	)
	RETURNING c.*
), changed AS (
	UPDATE {lock} l
	SET acq = a.acq, owner = a.owner, locker = a.locker, label = a.label, value = a.value,
	    version = CASE WHEN a.acq IS NULL THEN l.version ELSE greatest(l.version + 1, m.now) END,
	    holds = CASE WHEN a.acq IS NULL THEN 0 ELSE 1 END,
	    since = CASE WHEN a.acq IS NULL THEN l.since ELSE m.now END,
	    ended = CASE WHEN a.acq IS NULL THEN 1 ELSE 0 END,
	    expires_at = CASE WHEN a.acq IS NULL THEN least(l.expires_at, m.now)
	                 ELSE m.now + least(CASE a.locker WHEN $5::uuid THEN a.ttl ELSE a.handed END,
	                                    CASE WHEN a.max_hold > 0 THEN a.max_hold + a.delay END) END,
	    limit_at = CASE WHEN a.max_hold > 0 THEN m.now + a.max_hold + a.delay ELSE 0 END,
	    delay = coalesce(a.delay, 0),
	    not_before = CASE WHEN a.acq IS NULL AND $4::bigint > 0 AND m.since + $4::bigint > m.now
	                 THEN greatest(l.not_before, m.since + $4::bigint) ELSE l.not_before END,
	    waiting = CASE WHEN a.acq IS NULL THEN 0 ELSE l.waiting - 1 END
	FROM ended m LEFT JOIN admitted a ON true
	WHERE l.name = $1::text AND (a.acq IS NOT NULL OR m.waiting = 0)
	RETURNING l.acq, l.locker, l.version, l.expires_at
)
SELECT 1::bigint, m.now, m.waiting, coalesce(encode(uuid_send(h.acq), 'hex'), ''),
       coalesce(encode(uuid_send(h.locker), 'hex'), ''), coalesce(h.version, 0),
       coalesce(h.expires_at, 0),
       CASE WHEN h.acq IS NULL
       THEN (set_config('synchronous_commit', 'off', true) <> 'off')::integer ELSE 0 END
FROM ended m LEFT JOIN changed h ON true;

-- name: queue_for_permits
-- It is queue_quickly for claims on permits, of names that have that many permits, all of which
-- are held. Some may be held that were granted after the statement began: they have not expired.
WITH settings AS MATERIALIZED (
	SELECT set_config('lock_timeout', '1s', true), set_config('synchronous_commit', 'off', true)
), held AS (
	UPDATE {lock} l
	SET waiting = l.waiting + 1,
	    seq = greatest(l.seq + 1, (date_part('epoch', clock_timestamp()) * 1000000)::bigint)
	FROM unnest($1::text[], $2::uuid[], $3::bigint[], $4::bigint[], $5::bigint[], $6::text[],
	            $7::bytea[], $8::bytea[])
	     WITH ORDINALITY AS r(name, acq, permits, ttl, handed, owner, value, carries, place)
	CROSS JOIN settings
	WHERE l.name = r.name AND l.name = ANY ($1::text[]) AND l.acq IS NULL
	  AND l.permits = r.permits AND l.holding >= l.permits
	  AND l.not_before <= (date_part('epoch', clock_timestamp()) * 1000000)::bigint
	  AND NOT EXISTS (
		SELECT FROM {claim} h
		WHERE h.name = r.name AND h.state = 1 AND (h.kind <> 2
		   OR h.expires_at <= (date_part('epoch', clock_timestamp()) * 1000000)::bigint))
	  AND NOT EXISTS (SELECT FROM {claim} k WHERE k.acq = r.acq AND k.acq = ANY ($2::uuid[]))
	RETURNING r.*, (date_part('epoch', clock_timestamp()) * 1000000)::bigint AS now, l.seq,
	          l.waiting, l.version, l.since
), entered AS (
	INSERT INTO {claim} (name, acq, state, kind, slot, seq, token, holds, ttl, handed, max_hold,
	                     since, expires_at, limit_at, delay, locker, owner, label, value, carries)
	SELECT h.name, h.acq, 0, 2, 0, h.seq, 0, 0, h.ttl, h.handed, 0, h.now, 0, 0, 0, $9::uuid,
	       h.owner, $10::text, nullif(h.value, ''), nullif(h.carries, '')
	FROM held h
)
SELECT h.place, h.now, h.version, h.since, coalesce((
	       SELECT min(k.expires_at) FROM {claim} k WHERE k.name = h.name AND k.state = 1
       ), 0),
       CASE WHEN h.waiting = 1 THEN 0 ELSE coalesce((
	       SELECT 1 FROM {claim} q
	       WHERE q.name = h.name AND q.state = 0
	         AND (q.locker = $9::uuid OR EXISTS (
		       SELECT FROM {waiter} w
		       WHERE w.locker = q.locker
		         AND w.expires_at > (date_part('epoch', clock_timestamp()) * 1000000)::bigint))
	       ORDER BY q.seq
	       LIMIT 1
       ), 0) END
FROM held h;

-- name: grant_permits
-- It grants permits of names that have a row with that many permits, if nothing is unusual:
-- nobody has the name alone or waits for it, some permits are free, and the others have not
-- expired. Each name is there once. See grant_quickly for the order of the locks.
--
-- The claims are those that were committed when the statement began. If the row has the seq and
-- the number of holders that it had then, they hold still, and nobody else does: a claim that
-- enters raises seq, and without one the number can only fall. A row that somebody has locked
-- is not waited for, unless nobody held the name: it would have changed then. If it is waited
-- for and somebody holds the name, his claim was not seen, and the number does not match.
WITH settings AS MATERIALIZED (
	SELECT set_config('lock_timeout', '1s', true), CASE current_setting('synchronous_commit')
	       WHEN 'off' THEN set_config('synchronous_commit', 'on', true) END
), granted AS (
	UPDATE {lock} l
	SET (version, seq, since) = (
		SELECT greatest(l.version + 1, t.now), greatest(l.seq + 1, t.now), t.now
		FROM (SELECT (date_part('epoch', clock_timestamp()) * 1000000)::bigint AS now) t),
	    holding = l.holding + 1, ended = 0
	FROM unnest($1::text[], $2::uuid[], $3::text[], $4::bigint[], $5::bytea[], $6::bigint[])
	     WITH ORDINALITY AS r(name, acq, owner, ttl, value, permits, place)
	CROSS JOIN settings
	WHERE l.name = r.name AND l.name = ANY ($1::text[]) AND l.acq IS NULL AND l.waiting = 0
	  AND l.permits = r.permits AND l.holding < l.permits
	  AND l.not_before <= (date_part('epoch', clock_timestamp()) * 1000000)::bigint
	  AND l.version < 9223372036854775807 AND l.seq < 9223372036854775807
	  AND (l.holding = 0 OR l.holding = (
		SELECT count(*) FROM {claim} h
		WHERE h.name = l.name AND h.state = 1 AND h.kind = 2 AND h.acq <> r.acq
		  AND h.expires_at > (date_part('epoch', clock_timestamp()) * 1000000)::bigint
	  ) AND EXISTS (
		SELECT FROM {lock} b
		WHERE b.name = l.name AND b.seq = l.seq AND b.holding = l.holding
		FOR NO KEY UPDATE SKIP LOCKED
	  ))
	RETURNING r.*, l.version, l.seq, l.since, CASE WHEN l.holding = 1 THEN 0 ELSE (
		SELECT coalesce(min(k.place) FILTER (WHERE k.slot > k.place), count(*))
		FROM (
			SELECT h.slot, row_number() OVER (ORDER BY h.slot) - 1 AS place FROM {claim} h
			WHERE h.name = l.name AND h.state = 1
		) k
	) END AS slot
), entered AS (
	INSERT INTO {claim} (name, acq, state, kind, slot, seq, token, holds, ttl, handed, max_hold,
	                     since, expires_at, limit_at, delay, locker, owner, label, value)
	SELECT g.name, g.acq, 1, 2, g.slot, g.seq, g.version, 1, g.ttl, g.ttl, 0, g.since,
	       g.since + g.ttl, 0, 0, $7::uuid, g.owner, $8::text, nullif(g.value, '')
	FROM granted g
)
SELECT g.place, g.version, g.slot, g.since, g.since + g.ttl FROM granted g;

-- name: grant_permits_one
-- It is grant_permits for one name. Settings in a WHERE cost less than those in a WITH.
WITH granted AS (
	UPDATE {lock} l
	SET (version, seq, since) = (
		SELECT greatest(l.version + 1, t.now), greatest(l.seq + 1, t.now), t.now
		FROM (SELECT (date_part('epoch', clock_timestamp()) * 1000000)::bigint AS now) t),
	    holding = l.holding + 1, ended = 0
	WHERE l.name = $1::text AND l.acq IS NULL AND l.waiting = 0
	  AND l.permits = $6::bigint AND l.holding < l.permits
	  AND l.not_before <= (date_part('epoch', clock_timestamp()) * 1000000)::bigint
	  AND l.version < 9223372036854775807 AND l.seq < 9223372036854775807
	  AND set_config('lock_timeout', '1s', true) <> ''
	  AND CASE current_setting('synchronous_commit')
	      WHEN 'off' THEN set_config('synchronous_commit', 'on', true) ELSE 'on' END <> ''
	  AND (l.holding = 0 OR l.holding = (
		SELECT count(*) FROM {claim} h
		WHERE h.name = $1::text AND h.state = 1 AND h.kind = 2 AND h.acq <> $2::uuid
		  AND h.expires_at > (date_part('epoch', clock_timestamp()) * 1000000)::bigint
	  ) AND EXISTS (
		SELECT FROM {lock} b
		WHERE b.name = $1::text AND b.seq = l.seq AND b.holding = l.holding
		FOR NO KEY UPDATE SKIP LOCKED
	  ))
	RETURNING l.version, l.seq, l.since, CASE WHEN l.holding = 1 THEN 0 ELSE (
		SELECT coalesce(min(k.place) FILTER (WHERE k.slot > k.place), count(*))
		FROM (
			SELECT h.slot, row_number() OVER (ORDER BY h.slot) - 1 AS place FROM {claim} h
			WHERE h.name = $1::text AND h.state = 1
		) k
	) END AS slot
), entered AS (
	INSERT INTO {claim} (name, acq, state, kind, slot, seq, token, holds, ttl, handed, max_hold,
	                     since, expires_at, limit_at, delay, locker, owner, label, value)
	SELECT $1::text, $2::uuid, 1, 2, g.slot, g.seq, g.version, 1, $4::bigint, $4::bigint, 0,
	       g.since, g.since + $4::bigint, 0, 0, $7::uuid, $3::text, $8::text,
	       nullif($5::bytea, '')
	FROM granted g
)
SELECT 1::bigint, g.version, g.slot, g.since, g.since + $4::bigint FROM granted g;

-- name: free_claims
-- It ends terms that were never guarded, of readers and of permits, for which nobody waits. Each
-- name is there once. A claim that was there when the statement began may have ended while it
-- waited for the row: then the last division fails the statement.
WITH settings AS MATERIALIZED (
	SELECT set_config('lock_timeout', '1s', true), set_config('synchronous_commit', 'off', true)
), freed AS (
	UPDATE {lock} l
	SET holding = l.holding - 1, (expires_at, ended, not_before) = (
		SELECT CASE WHEN l.holding = 1 THEN least(c.expires_at, t.now) ELSE l.expires_at END,
		       CASE WHEN l.holding = 1 THEN 1 ELSE l.ended END,
		       CASE WHEN r.min_hold > 0 AND c.since + r.min_hold > t.now
		       THEN greatest(l.not_before, c.since + r.min_hold) ELSE l.not_before END
		FROM (SELECT (date_part('epoch', clock_timestamp()) * 1000000)::bigint AS now) t)
	FROM unnest($1::text[], $2::uuid[], $3::bigint[], $4::bigint[])
	     WITH ORDINALITY AS r(name, acq, token, min_hold, place)
	CROSS JOIN settings
	CROSS JOIN LATERAL (SELECT k.* FROM {claim} k WHERE k.acq = r.acq OFFSET 0) c
	WHERE l.name = r.name AND l.name = ANY ($1::text[]) AND l.waiting = 0
	  AND c.name = r.name AND c.state = 1 AND c.token = r.token
	RETURNING r.place, r.acq
), gone AS (
	DELETE FROM {claim} c
	USING freed f
	WHERE c.acq = f.acq AND c.acq = ANY ($2::uuid[])
	RETURNING f.place
)
SELECT f.place, 1 / (g.place IS NOT NULL)::integer
FROM freed f LEFT JOIN gone g ON g.place = f.place;

-- name: free_claims_one
-- It is free_claims for one name.
WITH freed AS (
	UPDATE {lock} l
	SET holding = l.holding - 1, (expires_at, ended, not_before) = (
		SELECT CASE WHEN l.holding = 1 THEN least(c.expires_at, t.now) ELSE l.expires_at END,
		       CASE WHEN l.holding = 1 THEN 1 ELSE l.ended END,
		       CASE WHEN $4::bigint > 0 AND c.since + $4::bigint > t.now
		       THEN greatest(l.not_before, c.since + $4::bigint) ELSE l.not_before END
		FROM (SELECT (date_part('epoch', clock_timestamp()) * 1000000)::bigint AS now) t)
	FROM (SELECT k.* FROM {claim} k WHERE k.acq = $2::uuid OFFSET 0) c
	WHERE l.name = $1::text AND l.waiting = 0
	  AND c.name = $1::text AND c.state = 1 AND c.token = $3::bigint
	  AND set_config('lock_timeout', '1s', true) <> ''
	  AND set_config('synchronous_commit', 'off', true) <> ''
	RETURNING c.acq
), gone AS (
	DELETE FROM {claim} c
	USING freed f
	WHERE c.acq = f.acq AND c.acq = $2::uuid
	RETURNING c.acq
)
SELECT 1::bigint, 1 / (g.acq IS NOT NULL)::integer FROM freed f LEFT JOIN gone g ON g.acq = f.acq;

-- name: hand_over_permits
-- It ends terms of permits that were never guarded, and hands each permit over to the first claim
-- that waits for the name and whose Locker lives, if that claim wants a permit, all permits are
-- held, and none of the others has expired. Each name is there once. The result tells how many
-- wait for the name, and to whom the permit was handed over. If there is anything else to do,
-- nothing changes: a visit does it.
--
-- See hand_over_quickly for claims that are older than the row. Those who hold are still the same
-- if the row has the version and the number of holders that it had when the statement began: while
-- permits are held nobody comes but with a permit, and a permit raises the version. So the claim
-- that ends is there when the other one is taken out of the queue.
WITH settings AS MATERIALIZED (
	SELECT set_config('lock_timeout', '1s', true), CASE current_setting('synchronous_commit')
	       WHEN 'off' THEN set_config('synchronous_commit', 'on', true) END
), seen AS MATERIALIZED (
	SELECT l.name, l.version, l.holding FROM {lock} l WHERE l.name = ANY ($1::text[])
), mine AS MATERIALIZED (
	SELECT r.place, r.acq AS ending, r.token, r.min_hold, l.*
	FROM unnest($1::text[], $2::uuid[], $3::bigint[], $4::bigint[])
	     WITH ORDINALITY AS r(name, acq, token, min_hold, place)
	JOIN {lock} l ON l.name = r.name CROSS JOIN settings
	WHERE l.name = ANY ($1::text[])
	ORDER BY l.name
	FOR NO KEY UPDATE OF l
), ended AS MATERIALIZED (
	SELECT m.*, (date_part('epoch', clock_timestamp()) * 1000000)::bigint AS now FROM mine m
), next AS MATERIALIZED (
	SELECT m.name, m.ending, m.now, q.acq, greatest(m.version + 1, m.now) AS version,
	       greatest(m.seq + 1, m.now) AS seq, CASE WHEN m.holding = 1 THEN 0 ELSE (
		SELECT CASE WHEN count(*) = m.holding - 1 AND bool_and(k.usual)
		       THEN coalesce(min(k.place) FILTER (WHERE k.slot > k.place), count(*)) END
		FROM (
			SELECT h.slot, row_number() OVER (ORDER BY h.slot) - 1 AS place,
			       h.kind = 2 AND h.expires_at > m.now AS usual
			FROM {claim} h
			WHERE h.name = m.name AND h.state = 1 AND h.acq <> m.ending
		) k
	) END AS slot
	FROM ended m
	JOIN seen s ON s.name = m.name AND s.version = m.version AND s.holding = m.holding
	CROSS JOIN LATERAL (SELECT h.* FROM {claim} h WHERE h.acq = m.ending OFFSET 0) c
	CROSS JOIN LATERAL (
		SELECT k.acq, k.kind FROM {claim} k
		WHERE k.name = m.name AND k.state = 0
		  AND (k.locker = $5::uuid OR EXISTS (
			SELECT FROM {waiter} w
			WHERE w.locker = k.locker
			  AND w.expires_at > (date_part('epoch', statement_timestamp()) * 1000000)::bigint))
		ORDER BY k.seq
		LIMIT 1
	) q
	WHERE m.acq IS NULL AND m.waiting > 0 AND m.holding = m.permits AND m.not_before <= m.now
	  AND c.name = m.name AND c.state = 1 AND c.kind = 2 AND c.token = m.token
	  AND (m.min_hold <= 0 OR c.since + m.min_hold <= m.now) AND q.kind = 2
	  AND m.version < 9223372036854775807 AND m.seq < 9223372036854775807
), admitted AS (
	UPDATE {claim} c
	SET state = 1, slot = n.slot, seq = n.seq, token = n.version, holds = 1, since = n.now,
	    expires_at = n.now + least(CASE c.locker WHEN $5::uuid THEN c.ttl ELSE c.handed END,
	                               CASE WHEN c.max_hold > 0 THEN c.max_hold + c.delay END),
	    limit_at = CASE WHEN c.max_hold > 0 THEN n.now + c.max_hold + c.delay ELSE 0 END,
	    carries = NULL
	FROM next n
	WHERE c.acq = n.acq AND c.acq = ANY (ARRAY(SELECT o.acq FROM next o))
	  AND n.slot IS NOT NULL
	RETURNING n.name, n.ending, n.now, c.acq, c.locker, c.slot, c.seq, c.token, c.expires_at
), gone AS (
	DELETE FROM {claim} c
	USING admitted a
	WHERE c.acq = a.ending AND c.acq = ANY ($2::uuid[])
	RETURNING a.*, c.expires_at AS until
), handed AS (
	UPDATE {lock} l
	SET version = o.token, seq = o.seq, since = o.now, ended = 0, waiting = l.waiting - 1,
	    expires_at = CASE WHEN l.holding = 1 THEN least(o.until, o.now) ELSE l.expires_at END
	FROM gone o
	WHERE l.name = o.name AND l.name = ANY ($1::text[])
	RETURNING o.name, o.acq, o.locker, o.slot, o.token, o.expires_at
), unflushed AS MATERIALIZED (
	SELECT CASE WHEN NOT EXISTS (SELECT FROM handed)
	       THEN set_config('synchronous_commit', 'off', true) END
)
SELECT m.place, m.now, m.waiting, coalesce(encode(uuid_send(h.acq), 'hex'), ''),
       coalesce(encode(uuid_send(h.locker), 'hex'), ''), coalesce(h.token, 0),
       coalesce(h.expires_at, 0), coalesce(h.slot, 0)
FROM ended m CROSS JOIN unflushed LEFT JOIN handed h ON h.name = m.name;

-- name: wake_permits
-- It is wake_holders for those who hold the permits that were granted last.
WITH settings AS MATERIALIZED (
	SELECT set_config('lock_timeout', '1s', true), set_config('synchronous_commit', 'off', true)
)
SELECT pg_notify('sqllock_' || encode(uuid_send(c.locker), 'hex'), c.acq::text)
FROM {lock} l CROSS JOIN settings
CROSS JOIN LATERAL (
	SELECT h.locker, h.acq FROM {claim} h
	WHERE h.name = l.name AND h.state = 1 AND h.token = l.version
	OFFSET 0
) c
WHERE l.name = ANY ($1::text[]) AND c.locker <> $2::uuid;

-- name: wake
-- It comes after the commit: a transaction that notifies keeps all others that do waiting
-- until its own flush. Each Locker listens to a channel of its own.
WITH settings AS MATERIALIZED (
	SELECT set_config('lock_timeout', '1s', true), set_config('synchronous_commit', 'off', true)
)
SELECT pg_notify('sqllock_' || encode(uuid_send(r.locker), 'hex'), r.acq::text)
FROM unnest($1::uuid[], $2::uuid[]) AS r(locker, acq) CROSS JOIN settings;

-- name: wake_holders
-- It is wake for Lockers other than $2 that hold the names by now. It comes right behind a
-- hand-over, whose result it does not know. If nothing was handed over, it does no harm.
WITH settings AS MATERIALIZED (
	SELECT set_config('lock_timeout', '1s', true), set_config('synchronous_commit', 'off', true)
)
SELECT pg_notify('sqllock_' || encode(uuid_send(l.locker), 'hex'), l.acq::text)
FROM {lock} l CROSS JOIN settings
WHERE l.name = ANY ($1::text[]) AND l.locker <> $2::uuid;

-- name: wake_holders_one
-- It is wake_holders for one name.
SELECT pg_notify('sqllock_' || encode(uuid_send(l.locker), 'hex'), l.acq::text)
FROM {lock} l
WHERE l.name = $1::text AND l.locker <> $2::uuid
  AND set_config('lock_timeout', '1s', true) <> ''
  AND set_config('synchronous_commit', 'off', true) <> '';

-- name: beat
WITH settings AS MATERIALIZED (
	SELECT set_config('lock_timeout', '1s', true), set_config('synchronous_commit', 'off', true)
)
INSERT INTO {waiter} AS w (locker, expires_at)
SELECT $1::uuid, (date_part('epoch', clock_timestamp()) * 1000000)::bigint + $2::bigint
FROM settings
ON CONFLICT (locker) DO UPDATE SET expires_at = greatest(w.expires_at, excluded.expires_at);

-- name: claims_of_locker
SELECT c.name, encode(uuid_send(c.acq), 'hex')
FROM (SELECT k.* FROM {claim} k WHERE k.locker = $1::uuid OFFSET 0) c
WHERE c.state = 0
  AND c.since <= (date_part('epoch', clock_timestamp()) * 1000000)::bigint - $2::bigint
ORDER BY c.name;

-- name: set_value
-- It passes those who guard the term: it changes no key.
WITH settings AS MATERIALIZED (
	SELECT set_config('lock_timeout', '1s', true), CASE current_setting('synchronous_commit')
	       WHEN 'off' THEN set_config('synchronous_commit', 'on', true) END
), mine AS MATERIALIZED (
	SELECT l.name, r.acq, r.version, r.value
	FROM unnest($1::text[], $2::uuid[], $3::bigint[], $4::bytea[], $5::bigint[]) AS r(name, acq, version, value, rising)
	JOIN {lock} l ON l.name = r.name CROSS JOIN settings
	WHERE l.name = ANY ($1::text[]) AND l.acq = r.acq AND l.version = r.version
	  AND (r.rising = 0 OR l.value IS NULL OR l.value <= r.value)
	  AND l.expires_at > (date_part('epoch', clock_timestamp()) * 1000000)::bigint
	ORDER BY l.name
	FOR NO KEY UPDATE OF l
)
UPDATE {lock} l SET value = nullif(m.value, '')
FROM mine m
WHERE l.name = m.name AND l.name = ANY ($1::text[])
  AND l.acq = m.acq AND l.version = m.version
  AND l.expires_at > (date_part('epoch', clock_timestamp()) * 1000000)::bigint;

-- name: raise
WITH settings AS MATERIALIZED (
	SELECT set_config('lock_timeout', '1s', true), CASE current_setting('synchronous_commit')
	       WHEN 'off' THEN set_config('synchronous_commit', 'on', true) END
), mine AS MATERIALIZED (
	SELECT l.name, r.version
	FROM unnest($1::text[], $2::uuid[], $3::bigint[]) AS r(name, acq, version)
	JOIN {lock} l ON l.name = r.name CROSS JOIN settings
	WHERE l.name = ANY ($1::text[]) AND l.acq = r.acq AND l.version <= r.version
	  AND l.expires_at > (date_part('epoch', clock_timestamp()) * 1000000)::bigint
	ORDER BY l.name
	FOR NO KEY UPDATE OF l
)
UPDATE {lock} l SET version = m.version
FROM mine m
WHERE l.name = m.name AND l.name = ANY ($1::text[]);

-- name: asked
SELECT l.name, l.asked FROM {lock} l WHERE l.name = ANY ($1::text[]);

-- name: ask_to_resign
-- It passes those who guard the term: it changes no key.
WITH settings AS MATERIALIZED (
	SELECT set_config('lock_timeout', '1s', true)
), mine AS MATERIALIZED (
	SELECT l.name, r.version
	FROM unnest($1::text[], $2::bigint[]) AS r(name, version)
	JOIN {lock} l ON l.name = r.name CROSS JOIN settings
	WHERE l.name = ANY ($1::text[]) AND l.version = r.version AND l.acq IS NOT NULL
	  AND l.asked <> l.version
	  AND l.expires_at > (date_part('epoch', clock_timestamp()) * 1000000)::bigint
	ORDER BY l.name
	FOR NO KEY UPDATE OF l
)
UPDATE {lock} l SET asked = l.version
FROM mine m
WHERE l.name = m.name AND l.name = ANY ($1::text[])
  AND l.version = m.version AND l.acq IS NOT NULL
  AND l.expires_at > (date_part('epoch', clock_timestamp()) * 1000000)::bigint;

-- name: sweep_window
-- What costs is to read the rows: each is read once, and claims are looked up only of rows that
-- count some. A subquery with a LIMIT does that row by row; EXISTS might read all claims. What
-- needs nothing stays on the server, but for the last row.
WITH page AS MATERIALIZED (
	SELECT l.name,
	       l.acq IS NOT NULL AND l.expires_at <= l.now
	       OR (l.waiting <> 0 OR l.holding <> 0) AND (
		SELECT true FROM {claim} c
		WHERE c.name = l.name AND CASE c.state
			WHEN 1 THEN c.expires_at <= l.now
			ELSE coalesce((SELECT w.expires_at FROM {waiter} w WHERE w.locker = c.locker), 0)
			     <= l.now - $3::bigint
			END
		LIMIT 1) IS NOT NULL AS visit,
	       l.acq IS NULL AND l.waiting = 0 AND l.holding = 0 AND l.not_before <= l.now
	       AND l.expires_at < l.now - $4::bigint AND l.version < l.now - $4::bigint
	       AND (SELECT true FROM {claim} c WHERE c.name = l.name LIMIT 1) IS NULL AS idle
	FROM (
		SELECT p.*, (date_part('epoch', clock_timestamp()) * 1000000)::bigint AS now
		FROM {lock} p
		WHERE p.name > $1::text
		ORDER BY p.name
		LIMIT $2::bigint
	) l
)
SELECT r.name, r.visit::integer, r.idle::integer, e.seen
FROM (SELECT count(*) AS seen, max(k.name) AS last FROM page k) e
CROSS JOIN page r
WHERE r.visit OR r.idle OR r.name = e.last
ORDER BY r.name;

-- name: purge
-- What must be so of a row is asked three times: to find it, when it is locked, and when it
-- is deleted.
WITH settings AS MATERIALIZED (
	SELECT set_config('lock_timeout', '1s', true), set_config('synchronous_commit', 'off', true)
), clock AS MATERIALIZED (
	SELECT (date_part('epoch', clock_timestamp()) * 1000000)::bigint AS now FROM settings
), idle AS MATERIALIZED (
	SELECT l.name FROM {lock} l CROSS JOIN clock t
	WHERE l.name = ANY ($1::text[]) AND l.acq IS NULL AND l.waiting = 0 AND l.holding = 0
	  AND l.not_before <= t.now AND l.expires_at < t.now - $2::bigint
	  AND l.version < t.now - $2::bigint
	  AND (SELECT true FROM {claim} c WHERE c.name = l.name LIMIT 1) IS NULL
	ORDER BY l.name
	FOR UPDATE OF l SKIP LOCKED
)
DELETE FROM {lock} l
USING idle i CROSS JOIN clock t
WHERE l.name = i.name AND l.name = ANY ($1::text[])
  AND l.acq IS NULL AND l.waiting = 0 AND l.holding = 0
  AND l.not_before <= t.now AND l.expires_at < t.now - $2::bigint
  AND l.version < t.now - $2::bigint;

-- name: purge_waiters
WITH settings AS MATERIALIZED (
	SELECT set_config('lock_timeout', '1s', true), set_config('synchronous_commit', 'off', true)
)
DELETE FROM {waiter} w
USING settings
WHERE w.expires_at <= (date_part('epoch', clock_timestamp()) * 1000000)::bigint - $1::bigint
  AND (SELECT true FROM {claim} c WHERE c.locker = w.locker LIMIT 1) IS NULL;

-- name: sweep_due
-- A time to come was written before the clock was set back.
WITH settings AS MATERIALIZED (
	SELECT set_config('lock_timeout', '1s', true), set_config('synchronous_commit', 'off', true)
)
UPDATE {meta} m
SET swept_at = (date_part('epoch', clock_timestamp()) * 1000000)::bigint
FROM settings
WHERE m.swept_at <= (date_part('epoch', clock_timestamp()) * 1000000)::bigint - greatest($1::bigint, m.sweep_pause)
   OR m.swept_at > (date_part('epoch', clock_timestamp()) * 1000000)::bigint;

-- name: sweep_pause
WITH settings AS MATERIALIZED (
	SELECT set_config('lock_timeout', '1s', true), set_config('synchronous_commit', 'off', true)
)
UPDATE {meta} m
SET sweep_pause = $1::bigint
FROM settings;

-- name: grant
-- An attempt that finds a holder writes nothing and locks nothing: a conflict alone would
-- lock the row before it looks at it. The term begins after a wait for the row.
WITH settings AS MATERIALIZED (
	SELECT set_config('lock_timeout', '1s', true), CASE current_setting('synchronous_commit')
	       WHEN 'off' THEN set_config('synchronous_commit', 'on', true) END
), clock AS MATERIALIZED (
	SELECT (date_part('epoch', clock_timestamp()) * 1000000)::bigint AS now FROM settings
)
INSERT INTO {lock} AS l (name, acq, owner, locker, label, value, version, holds, since, expires_at)
SELECT r.name, r.acq, r.owner, $6::uuid, $7::text, nullif(r.value, ''), greatest(t.now, r.floor), 1,
       t.now, t.now + r.ttl
FROM unnest($1::text[], $2::uuid[], $3::text[], $4::bigint[], $5::bytea[], $8::bigint[])
     AS r(name, acq, owner, ttl, value, floor)
CROSS JOIN clock t
WHERE NOT EXISTS (
	SELECT FROM {lock} k
	WHERE k.name = r.name AND k.name = ANY ($1::text[])
	  AND NOT (k.acq IS NULL AND k.waiting = 0 AND k.holding = 0 AND k.not_before <= t.now))
ORDER BY r.name COLLATE "C"
ON CONFLICT (name) DO UPDATE
SET (acq, owner, locker, label, value, version, holds, since, expires_at, ended) = (
	SELECT excluded.acq, excluded.owner, excluded.locker, excluded.label, excluded.value,
	       greatest(l.version + 1, t.now, excluded.version), 1, t.now,
	       t.now + excluded.expires_at - excluded.since, 0
	FROM (SELECT (date_part('epoch', clock_timestamp()) * 1000000)::bigint AS now) t)
WHERE l.acq IS NULL AND l.waiting = 0 AND l.holding = 0
  AND l.not_before <= (date_part('epoch', clock_timestamp()) * 1000000)::bigint
RETURNING l.name, l.version, l.since, l.expires_at;

-- name: grant_quickly
-- It is grant for names that have a row, and takes two thirds of the time: no row is locked
-- before it is changed. Where the settings of "plans" are, it finds the rows in the order of
-- the names, by their key. With other plans two batches could lock rows in different orders. If a
-- row was locked, but not changed, the term begins before the wait for it: Postgres computes it once
-- more only for a row that was changed.
WITH settings AS MATERIALIZED (
	SELECT set_config('lock_timeout', '1s', true), CASE current_setting('synchronous_commit')
	       WHEN 'off' THEN set_config('synchronous_commit', 'on', true) END
)
UPDATE {lock} l
SET (acq, owner, locker, label, value, version, holds, since, expires_at, ended) = (
	SELECT r.acq, r.owner, $6::uuid, $7::text, nullif(r.value, ''),
	       greatest(l.version + 1, t.now, r.floor), 1, t.now, t.now + r.ttl, 0
	FROM (SELECT (date_part('epoch', clock_timestamp()) * 1000000)::bigint AS now) t)
FROM unnest($1::text[], $2::uuid[], $3::text[], $4::bigint[], $5::bytea[], $8::bigint[])
     WITH ORDINALITY AS r(name, acq, owner, ttl, value, floor, place)
CROSS JOIN settings
WHERE l.name = r.name AND l.name = ANY ($1::text[])
  AND l.acq IS NULL AND l.waiting = 0 AND l.holding = 0
  AND l.not_before <= (date_part('epoch', clock_timestamp()) * 1000000)::bigint
RETURNING r.place, l.version, l.since, l.expires_at;

-- name: grant_one
-- It is grant for one name. Settings in a WHERE cost less than those in a WITH.
INSERT INTO {lock} AS l (name, acq, owner, locker, label, value, version, holds, since, expires_at)
SELECT $1::text, $2::uuid, $3::text, $6::uuid, $7::text, nullif($5::bytea, ''),
       greatest(t.now, $8::bigint), 1, t.now, t.now + $4::bigint
FROM (
	SELECT (date_part('epoch', clock_timestamp()) * 1000000)::bigint AS now
	WHERE set_config('lock_timeout', '1s', true) <> ''
	  AND CASE current_setting('synchronous_commit')
	      WHEN 'off' THEN set_config('synchronous_commit', 'on', true) ELSE 'on' END <> ''
	OFFSET 0
) t
WHERE NOT EXISTS (
	SELECT FROM {lock} k
	WHERE k.name = $1::text
	  AND NOT (k.acq IS NULL AND k.waiting = 0 AND k.holding = 0 AND k.not_before <= t.now))
ON CONFLICT (name) DO UPDATE
SET (acq, owner, locker, label, value, version, holds, since, expires_at, ended) = (
	SELECT excluded.acq, excluded.owner, excluded.locker, excluded.label, excluded.value,
	       greatest(l.version + 1, t.now, excluded.version), 1, t.now,
	       t.now + excluded.expires_at - excluded.since, 0
	FROM (SELECT (date_part('epoch', clock_timestamp()) * 1000000)::bigint AS now) t)
WHERE l.acq IS NULL AND l.waiting = 0 AND l.holding = 0
  AND l.not_before <= (date_part('epoch', clock_timestamp()) * 1000000)::bigint
RETURNING l.name, l.version, l.since, l.expires_at;

-- name: grant_all
-- It is grant for all of the names or none. It looks first: an attempt that finds a holder
-- writes nothing and locks nothing. Then it locks the rows in the order of the names, and looks
-- at each once more. If one was taken meanwhile it writes nothing. Only a name without a row
-- can still be lost then, to somebody who makes the row first: that division fails the statement.
WITH settings AS MATERIALIZED (
	SELECT set_config('lock_timeout', '1s', true), CASE current_setting('synchronous_commit')
	       WHEN 'off' THEN set_config('synchronous_commit', 'on', true) END
), clock AS MATERIALIZED (
	SELECT (date_part('epoch', clock_timestamp()) * 1000000)::bigint AS now FROM settings
), seen AS MATERIALIZED (
	SELECT count(*) AS known, coalesce(bool_and(l.acq IS NULL AND l.waiting = 0 AND l.holding = 0
	       AND l.not_before <= t.now), true) AS free
	FROM clock t CROSS JOIN {lock} l
	WHERE l.name = ANY ($1::text[])
), mine AS MATERIALIZED (
	SELECT l.name FROM {lock} l
	WHERE l.name = ANY ($1::text[]) AND (SELECT s.free FROM seen s)
	  AND l.acq IS NULL AND l.waiting = 0 AND l.holding = 0
	  AND l.not_before <= (date_part('epoch', clock_timestamp()) * 1000000)::bigint
	ORDER BY l.name
	FOR NO KEY UPDATE
), granted AS (
	INSERT INTO {lock} AS l (name, acq, owner, locker, label, value, version, holds, since,
	                         expires_at)
	SELECT r.name, r.acq, r.owner, $6::uuid, $7::text, nullif(r.value, ''), greatest(t.now, r.floor), 1,
	       t.now, t.now + r.ttl
	FROM unnest($1::text[], $2::uuid[], $3::text[], $4::bigint[], $5::bytea[], $8::bigint[])
	     AS r(name, acq, owner, ttl, value, floor)
	CROSS JOIN clock t
	WHERE (SELECT s.free AND s.known = (SELECT count(*) FROM mine) FROM seen s)
	ORDER BY r.name COLLATE "C"
	ON CONFLICT (name) DO UPDATE
	SET (acq, owner, locker, label, value, version, holds, since, expires_at, ended) = (
		SELECT excluded.acq, excluded.owner, excluded.locker, excluded.label, excluded.value,
		       greatest(l.version + 1, t.now, excluded.version), 1, t.now,
		       t.now + excluded.expires_at - excluded.since, 0
		FROM (SELECT (date_part('epoch', clock_timestamp()) * 1000000)::bigint AS now) t)
	WHERE l.acq IS NULL AND l.waiting = 0 AND l.holding = 0
	  AND l.not_before <= (date_part('epoch', clock_timestamp()) * 1000000)::bigint
	RETURNING l.name, l.version, l.since, l.expires_at
)
SELECT g.name, g.version, g.since, g.expires_at,
       1 / (count(*) OVER () = cardinality($1::text[]))::integer
FROM granted g;

-- name: free
WITH settings AS MATERIALIZED (
	SELECT set_config('lock_timeout', '1s', true), set_config('synchronous_commit', 'off', true)
), mine AS MATERIALIZED (
	SELECT l.name, r.acq, r.version, r.min_hold
	FROM unnest($1::text[], $2::uuid[], $3::bigint[], $4::bigint[])
	     AS r(name, acq, version, min_hold)
	JOIN {lock} l ON l.name = r.name CROSS JOIN settings
	WHERE l.name = ANY ($1::text[]) AND l.acq = r.acq AND l.version = r.version AND l.waiting = 0
	ORDER BY l.name
	FOR NO KEY UPDATE OF l
)
UPDATE {lock} l
SET acq = NULL, owner = NULL, locker = NULL, label = NULL, value = NULL, holds = 0, limit_at = 0,
    delay = 0, ended = 1, (expires_at, not_before) = (
	SELECT least(l.expires_at, t.now), CASE WHEN m.min_hold > 0 AND l.since + m.min_hold > t.now
	       THEN greatest(l.not_before, l.since + m.min_hold) ELSE l.not_before END
	FROM (SELECT (date_part('epoch', clock_timestamp()) * 1000000)::bigint AS now) t)
FROM mine m
WHERE l.name = m.name AND l.name = ANY ($1::text[])
  AND l.acq = m.acq AND l.version = m.version AND l.waiting = 0
RETURNING l.name;

-- name: free_quickly
-- It is free without a lock before the change, see grant_quickly.
WITH settings AS MATERIALIZED (
	SELECT set_config('lock_timeout', '1s', true), set_config('synchronous_commit', 'off', true)
)
UPDATE {lock} l
SET acq = NULL, owner = NULL, locker = NULL, label = NULL, value = NULL, holds = 0, limit_at = 0,
    delay = 0, ended = 1, (expires_at, not_before) = (
	SELECT least(l.expires_at, t.now), CASE WHEN r.min_hold > 0 AND l.since + r.min_hold > t.now
	       THEN greatest(l.not_before, l.since + r.min_hold) ELSE l.not_before END
	FROM (SELECT (date_part('epoch', clock_timestamp()) * 1000000)::bigint AS now) t)
FROM unnest($1::text[], $2::uuid[], $3::bigint[], $4::bigint[])
     WITH ORDINALITY AS r(name, acq, version, min_hold, place)
CROSS JOIN settings
WHERE l.name = r.name AND l.name = ANY ($1::text[])
  AND l.acq = r.acq AND l.version = r.version AND l.waiting = 0
RETURNING r.place;

-- name: free_one
-- It is free for one name. The settings are made when the row is found, before it is locked.
UPDATE {lock} l
SET acq = NULL, owner = NULL, locker = NULL, label = NULL, value = NULL, holds = 0, limit_at = 0,
    delay = 0, ended = 1, (expires_at, not_before) = (
	SELECT least(l.expires_at, t.now), CASE WHEN $4::bigint > 0 AND l.since + $4::bigint > t.now
	       THEN greatest(l.not_before, l.since + $4::bigint) ELSE l.not_before END
	FROM (SELECT (date_part('epoch', clock_timestamp()) * 1000000)::bigint AS now) t)
WHERE l.name = $1::text AND l.acq = $2::uuid AND l.version = $3::bigint AND l.waiting = 0
  AND set_config('lock_timeout', '1s', true) <> ''
  AND set_config('synchronous_commit', 'off', true) <> ''
RETURNING l.name;

-- name: free_guarded
-- It is free for leases that were guarded: the row leaves its holder with a lock that no
-- guard lets through, and that a guard with an old snapshot notices.
WITH settings AS MATERIALIZED (
	SELECT set_config('lock_timeout', '1s', true), set_config('synchronous_commit', 'off', true)
), mine AS MATERIALIZED (
	SELECT l.name, r.acq, r.version, r.min_hold
	FROM unnest($1::text[], $2::uuid[], $3::bigint[], $4::bigint[])
	     AS r(name, acq, version, min_hold)
	JOIN {lock} l ON l.name = r.name CROSS JOIN settings
	WHERE l.name = ANY ($1::text[]) AND l.acq = r.acq AND l.version = r.version AND l.waiting = 0
	ORDER BY l.name
	FOR UPDATE OF l SKIP LOCKED
)
UPDATE {lock} l
SET acq = NULL, owner = NULL, locker = NULL, label = NULL, value = NULL, holds = 0, limit_at = 0,
    delay = 0, ended = 1, (expires_at, not_before) = (
	SELECT least(l.expires_at, t.now), CASE WHEN m.min_hold > 0 AND l.since + m.min_hold > t.now
	       THEN greatest(l.not_before, l.since + m.min_hold) ELSE l.not_before END
	FROM (SELECT (date_part('epoch', clock_timestamp()) * 1000000)::bigint AS now) t)
FROM mine m
WHERE l.name = m.name AND l.name = ANY ($1::text[])
  AND l.acq = m.acq AND l.version = m.version AND l.waiting = 0
RETURNING l.name;

-- name: renew
WITH settings AS MATERIALIZED (
	SELECT set_config('lock_timeout', '1s', true), CASE current_setting('synchronous_commit')
	       WHEN 'off' THEN set_config('synchronous_commit', 'on', true) END
), mine AS MATERIALIZED (
	SELECT l.name, r.acq, r.version, r.ttl, r.holds
	FROM unnest($1::text[], $2::uuid[], $3::bigint[], $4::bigint[], $5::bigint[])
	     AS r(name, acq, version, ttl, holds)
	JOIN {lock} l ON l.name = r.name CROSS JOIN settings
	WHERE l.name = ANY ($1::text[]) AND l.acq = r.acq AND l.version = r.version
	  AND l.expires_at > (date_part('epoch', clock_timestamp()) * 1000000)::bigint
	ORDER BY l.name
	FOR NO KEY UPDATE OF l SKIP LOCKED
)
UPDATE {lock} l
SET holds = m.holds, expires_at = greatest(l.expires_at, least(
	(date_part('epoch', clock_timestamp()) * 1000000)::bigint + m.ttl, nullif(l.limit_at, 0)))
FROM mine m
WHERE l.name = m.name AND l.name = ANY ($1::text[])
  AND l.acq = m.acq AND l.version = m.version
  AND l.expires_at > (date_part('epoch', clock_timestamp()) * 1000000)::bigint
RETURNING l.name, (date_part('epoch', clock_timestamp()) * 1000000)::bigint;

-- name: renew_wait
-- It is renew that waits for rows that others have locked.
WITH settings AS MATERIALIZED (
	SELECT set_config('lock_timeout', '1s', true), CASE current_setting('synchronous_commit')
	       WHEN 'off' THEN set_config('synchronous_commit', 'on', true) END
), mine AS MATERIALIZED (
	SELECT l.name, r.acq, r.version, r.ttl, r.holds
	FROM unnest($1::text[], $2::uuid[], $3::bigint[], $4::bigint[], $5::bigint[])
	     AS r(name, acq, version, ttl, holds)
	JOIN {lock} l ON l.name = r.name CROSS JOIN settings
	WHERE l.name = ANY ($1::text[]) AND l.acq = r.acq AND l.version = r.version
	  AND l.expires_at > (date_part('epoch', clock_timestamp()) * 1000000)::bigint
	ORDER BY l.name
	FOR NO KEY UPDATE OF l
)
UPDATE {lock} l
SET holds = m.holds, expires_at = greatest(l.expires_at, least(
	(date_part('epoch', clock_timestamp()) * 1000000)::bigint + m.ttl, nullif(l.limit_at, 0)))
FROM mine m
WHERE l.name = m.name AND l.name = ANY ($1::text[])
  AND l.acq = m.acq AND l.version = m.version
  AND l.expires_at > (date_part('epoch', clock_timestamp()) * 1000000)::bigint
RETURNING l.name, (date_part('epoch', clock_timestamp()) * 1000000)::bigint;

-- name: renew_shared
-- A claim that waits has no token.
WITH settings AS MATERIALIZED (
	SELECT set_config('lock_timeout', '1s', true), CASE current_setting('synchronous_commit')
	       WHEN 'off' THEN set_config('synchronous_commit', 'on', true) END
), mine AS MATERIALIZED (
	SELECT c.acq, r.token, r.ttl, r.holds
	FROM unnest($1::text[], $2::uuid[], $3::bigint[], $4::bigint[], $5::bigint[])
	     AS r(name, acq, token, ttl, holds)
	JOIN {claim} c ON c.acq = r.acq CROSS JOIN settings
	WHERE c.acq = ANY ($2::uuid[]) AND c.token = r.token
	  AND c.expires_at > (date_part('epoch', clock_timestamp()) * 1000000)::bigint
	ORDER BY r.name COLLATE "C", r.acq
	FOR NO KEY UPDATE OF c SKIP LOCKED
)
UPDATE {claim} c
SET holds = m.holds, expires_at = greatest(c.expires_at, least(
	(date_part('epoch', clock_timestamp()) * 1000000)::bigint + m.ttl, nullif(c.limit_at, 0)))
FROM mine m
WHERE c.acq = m.acq AND c.acq = ANY ($2::uuid[]) AND c.token = m.token
  AND c.expires_at > (date_part('epoch', clock_timestamp()) * 1000000)::bigint
RETURNING encode(uuid_send(c.acq), 'hex'),
          (date_part('epoch', clock_timestamp()) * 1000000)::bigint;

-- name: renew_shared_wait
-- It is renew_shared that waits for rows that others have locked.
WITH settings AS MATERIALIZED (
	SELECT set_config('lock_timeout', '1s', true), CASE current_setting('synchronous_commit')
	       WHEN 'off' THEN set_config('synchronous_commit', 'on', true) END
), mine AS MATERIALIZED (
	SELECT c.acq, r.token, r.ttl, r.holds
	FROM unnest($1::text[], $2::uuid[], $3::bigint[], $4::bigint[], $5::bigint[])
	     AS r(name, acq, token, ttl, holds)
	JOIN {claim} c ON c.acq = r.acq CROSS JOIN settings
	WHERE c.acq = ANY ($2::uuid[]) AND c.token = r.token
	  AND c.expires_at > (date_part('epoch', clock_timestamp()) * 1000000)::bigint
	ORDER BY r.name COLLATE "C", r.acq
	FOR NO KEY UPDATE OF c
)
UPDATE {claim} c
SET holds = m.holds, expires_at = greatest(c.expires_at, least(
	(date_part('epoch', clock_timestamp()) * 1000000)::bigint + m.ttl, nullif(c.limit_at, 0)))
FROM mine m
WHERE c.acq = m.acq AND c.acq = ANY ($2::uuid[]) AND c.token = m.token
  AND c.expires_at > (date_part('epoch', clock_timestamp()) * 1000000)::bigint
RETURNING encode(uuid_send(c.acq), 'hex'),
          (date_part('epoch', clock_timestamp()) * 1000000)::bigint;

-- name: guard
-- It runs in a transaction of the application. A renewal changes no key of the row and
-- passes. Whoever makes somebody else the holder locks the row FOR UPDATE first and does not.
-- It also says whether the transaction has a snapshot that may be older than the lock: where a
-- row has several lockers, its change is no conflict for such a transaction. Then the row is read
-- again outside of it, when it is locked.
SELECT m.id = $4::uuid, g.name IS NOT NULL,
       current_setting('transaction_isolation') IN ('repeatable read', 'serializable')
FROM {meta} m
LEFT JOIN LATERAL (
	SELECT l.name FROM {lock} l
	WHERE l.name = $1::text AND l.acq = $2::uuid AND l.version = $3::bigint
	FOR KEY SHARE
) g ON true;

-- name: guard_all
-- It is guard for several names, locked in their order. It says how many of the terms are the
-- current ones.
WITH mine AS MATERIALIZED (
	SELECT l.name FROM unnest($1::text[], $2::uuid[], $3::bigint[]) AS r(name, acq, version)
	JOIN {lock} l ON l.name = r.name
	WHERE l.name = ANY ($1::text[]) AND l.acq = r.acq AND l.version = r.version
	ORDER BY l.name
	FOR KEY SHARE OF l
)
SELECT m.id = $4::uuid, (SELECT count(*) FROM mine),
       current_setting('transaction_isolation') IN ('repeatable read', 'serializable')
FROM {meta} m;

-- name: guard_shared
-- It is guard for a term that is held together with others. What ends the term locks the claim
-- FOR UPDATE, or deletes it: a transaction with an old snapshot notices that.
SELECT m.id = $4::uuid, g.name IS NOT NULL, false
FROM {meta} m
LEFT JOIN LATERAL (
	SELECT c.name FROM {claim} c
	WHERE c.acq = $2::uuid AND c.name = $1::text AND c.state = 1 AND c.token = $3::bigint
	FOR KEY SHARE
) g ON true;

-- name: end_term
-- It runs in a transaction of the application, like guard, and ends the term in it. What
-- another transaction has locked is passed over. It says how many wait, -1 if it has ended
-- nothing, and whether the term was to be seen. It asks nothing of the claims, which the
-- transaction may see as they were before. The row leaves its holder as in free_guarded.
WITH mine AS MATERIALIZED (
	SELECT l.name FROM {lock} l
	WHERE l.name = $1::text AND l.acq = $2::uuid AND l.version = $3::bigint
	FOR UPDATE SKIP LOCKED
), done AS (
	UPDATE {lock} l
	SET acq = NULL, owner = NULL, locker = NULL, label = NULL, value = NULL, holds = 0,
	    limit_at = 0, delay = 0, ended = 1, (expires_at, not_before) = (
		SELECT least(l.expires_at, t.now),
		       CASE WHEN $4::bigint > 0 AND l.since + $4::bigint > t.now
		       THEN greatest(l.not_before, l.since + $4::bigint) ELSE l.not_before END
		FROM (SELECT (date_part('epoch', clock_timestamp()) * 1000000)::bigint AS now) t)
	FROM mine m
	WHERE l.name = m.name AND l.acq = $2::uuid AND l.version = $3::bigint
	RETURNING l.waiting
)
SELECT m.id = $5::uuid, coalesce((SELECT d.waiting FROM done d), -1), EXISTS (
	SELECT FROM {lock} l WHERE l.name = $1::text AND l.acq = $2::uuid AND l.version = $3::bigint)
FROM {meta} m;

-- name: fence
-- It changes no row if the resource has seen a higher token.
INSERT INTO {fence} AS f (resource, token) VALUES ($1::text, $2::bigint)
ON CONFLICT (resource) DO UPDATE SET token = excluded.token WHERE f.token <= excluded.token;
