-- The statements of the unique mode, for SQLite 3.38 or newer. Package rowstore says what
-- each of them does. In {lock}, {claim}, {waiter}, {meta} and {fence} the names of the
-- tables are filled in.
--
-- A batch is ?1, a JSON array with an array for each row. Ids and values cannot stand in
-- JSON, and unhex is newer than the oldest SQLite that we serve. They are in ?2, one behind
-- the other. JSON says where: the position of the first byte of an id, and of a value the
-- position and the number of bytes. If nothing in a batch is an id or a value, there is no
-- such parameter. Further parameters follow. A statement whose name ends with _one is for one row,
-- whose columns are parameters: to take a column out of JSON costs more than to write it.
--
-- SQLite's clock has milliseconds. Rounding takes away what julianday loses as a
-- floating-point number. A statement reads the clock after it has got its lock on the
-- database. SQLite has no row locks: the transaction of a visit has locked the database.
-- So there are no statements that lock rows or claims.

-- name: clock
SELECT CAST(round((julianday('now') - 2440587.5) * 86400000) AS INTEGER) * 1000;

-- name: rows
SELECT l.name, CAST(round((julianday('now') - 2440587.5) * 86400000) AS INTEGER) * 1000,
       l.version, lower(hex(l.acq)), coalesce(l.owner, ''), coalesce(l.label, ''),
       lower(hex(l.locker)), l.value, l.holds, l.since, l.expires_at, l.limit_at, l.delay,
       l.not_before, l.permits, l.waiting, l.holding, l.seq, l.ended, l.revoked
FROM json_each(?1) AS r
CROSS JOIN {lock} AS l ON l.name = r.value ->> 0;

-- name: rows_one
-- It is rows for one name.
SELECT l.name, CAST(round((julianday('now') - 2440587.5) * 86400000) AS INTEGER) * 1000,
       l.version, lower(hex(l.acq)), coalesce(l.owner, ''), coalesce(l.label, ''),
       lower(hex(l.locker)), l.value, l.holds, l.since, l.expires_at, l.limit_at, l.delay,
       l.not_before, l.permits, l.waiting, l.holding, l.seq, l.ended, l.revoked
FROM {lock} AS l
WHERE l.name = ?1;

-- name: claims_that_hold
WITH clock(now) AS (SELECT CAST(round((julianday('now') - 2440587.5) * 86400000) AS INTEGER) * 1000)
SELECT c.name, clock.now, lower(hex(c.acq)), c.state, c.kind, c.slot, c.seq, c.token, c.holds,
       c.ttl, c.handed, c.max_hold, c.since, c.expires_at, c.limit_at, c.delay,
       lower(hex(c.locker)), c.owner, c.label, c.value,
       EXISTS (SELECT 1 FROM {waiter} AS w WHERE w.locker = c.locker AND w.expires_at > clock.now)
FROM clock, json_each(?1) AS r
CROSS JOIN {claim} AS c ON c.name = r.value ->> 0 AND c.state = 1;

-- name: claims_that_wait
WITH clock(now) AS (SELECT CAST(round((julianday('now') - 2440587.5) * 86400000) AS INTEGER) * 1000)
SELECT c.name, clock.now, lower(hex(c.acq)), c.state, c.kind, c.slot, c.seq, c.token, c.holds,
       c.ttl, c.handed, c.max_hold, c.since, c.expires_at, c.limit_at, c.delay,
       lower(hex(c.locker)), c.owner, c.label, c.value,
       EXISTS (SELECT 1 FROM {waiter} AS w WHERE w.locker = c.locker AND w.expires_at > clock.now)
FROM clock, json_each(?1) AS r
CROSS JOIN {claim} AS c ON c.name = r.value ->> 0 AND c.state = 0 AND c.seq IN (
	SELECT q.seq
	FROM {claim} AS q LEFT JOIN {waiter} AS w ON w.locker = q.locker
	WHERE q.name = r.value ->> 0 AND q.state = 0
	  AND (w.expires_at > clock.now OR lower(hex(q.locker)) = ?3)
	ORDER BY q.seq
	LIMIT ?2);

-- name: claims_that_wait_one
-- It is claims_that_wait for one name.
SELECT c.name, CAST(round((julianday('now') - 2440587.5) * 86400000) AS INTEGER) * 1000,
       lower(hex(c.acq)), c.state, c.kind, c.slot, c.seq, c.token, c.holds, c.ttl, c.handed,
       c.max_hold, c.since, c.expires_at, c.limit_at, c.delay, lower(hex(c.locker)), c.owner,
       c.label, c.value,
       coalesce(
	       w.expires_at > CAST(round((julianday('now') - 2440587.5) * 86400000) AS INTEGER) * 1000,
	       0)
FROM {claim} AS c LEFT JOIN {waiter} AS w ON w.locker = c.locker
WHERE c.name = ?1 AND c.state = 0
  AND (w.expires_at > CAST(round((julianday('now') - 2440587.5) * 86400000) AS INTEGER) * 1000
    OR lower(hex(c.locker)) = ?3)
ORDER BY c.seq
LIMIT ?2;

-- name: claims_of
WITH clock(now) AS (SELECT CAST(round((julianday('now') - 2440587.5) * 86400000) AS INTEGER) * 1000)
SELECT c.name, clock.now, lower(hex(c.acq)), c.state, c.kind, c.slot, c.seq, c.token, c.holds,
       c.ttl, c.handed, c.max_hold, c.since, c.expires_at, c.limit_at, c.delay,
       lower(hex(c.locker)), c.owner, c.label, c.value,
       EXISTS (SELECT 1 FROM {waiter} AS w WHERE w.locker = c.locker AND w.expires_at > clock.now)
FROM clock, json_each(?1) AS r
CROSS JOIN {claim} AS c ON c.acq = substr(?2, r.value ->> 1, 16)
                       AND c.name = r.value ->> 0;

-- name: all_claims
WITH clock(now) AS (SELECT CAST(round((julianday('now') - 2440587.5) * 86400000) AS INTEGER) * 1000)
SELECT c.name, clock.now, lower(hex(c.acq)), c.state, c.kind, c.slot, c.seq, c.token, c.holds,
       c.ttl, c.handed, c.max_hold, c.since, c.expires_at, c.limit_at, c.delay,
       lower(hex(c.locker)), c.owner, c.label, c.value,
       coalesce((SELECT CASE WHEN w.expires_at > clock.now THEN 1
                             WHEN w.expires_at > clock.now - ?2 THEN 0
                             ELSE 2 END
                 FROM {waiter} AS w WHERE w.locker = c.locker), 2)
FROM clock, json_each(?1) AS r
CROSS JOIN {claim} AS c ON c.name = r.value ->> 0;

-- name: page
-- The value stands last in the table: what stands before it is read without it.
WITH clock(now) AS (SELECT CAST(round((julianday('now') - 2440587.5) * 86400000) AS INTEGER) * 1000)
SELECT l.name, clock.now, l.version, lower(hex(l.acq)), coalesce(l.owner, ''),
       coalesce(l.label, ''), lower(hex(l.locker)), NULL, l.holds, l.since, l.expires_at,
       l.limit_at, l.delay, l.not_before, l.permits, l.waiting, l.holding, l.seq, l.ended, l.revoked
FROM clock
CROSS JOIN (SELECT name FROM {lock} WHERE name > ?1 ORDER BY name LIMIT ?2) AS p
CROSS JOIN {lock} AS l ON l.name = p.name
WHERE ?3 = 1 OR l.acq IS NOT NULL OR l.holding > 0 OR l.not_before > clock.now
ORDER BY l.name;

-- name: page_end
SELECT count(*), coalesce(max(p.name), '')
FROM (SELECT name FROM {lock} WHERE name > ?1 ORDER BY name LIMIT ?2) AS p;

-- name: readers
WITH clock(now) AS (SELECT CAST(round((julianday('now') - 2440587.5) * 86400000) AS INTEGER) * 1000)
SELECT c.name, c.kind, count(*), max(c.expires_at)
FROM clock, json_each(?1) AS r
CROSS JOIN {claim} AS c ON c.name = r.value ->> 0 AND c.state = 1
                       AND c.expires_at > clock.now
GROUP BY c.name, c.kind;

-- name: together
WITH clock(now) AS (SELECT CAST(round((julianday('now') - 2440587.5) * 86400000) AS INTEGER) * 1000)
SELECT h.name, lower(hex(h.acq)), h.kind, h.slot, h.owner, h.label, h.token, h.since, h.expires_at
FROM (
	SELECT c.*, row_number() OVER (PARTITION BY c.name ORDER BY c.slot, c.seq) AS place
	FROM clock, json_each(?1) AS r
	CROSS JOIN {claim} AS c ON c.name = r.value ->> 0 AND c.state = 1
	                       AND c.expires_at > clock.now
) AS h
WHERE h.place <= ?2
ORDER BY h.name, h.place;

-- name: queues
WITH clock(now) AS (SELECT CAST(round((julianday('now') - 2440587.5) * 86400000) AS INTEGER) * 1000)
SELECT q.name, q.waiters, q.label, q.since, q.kind
FROM (
	SELECT c.name, c.label, c.since, c.kind,
	       count(*) OVER (PARTITION BY c.name) AS waiters,
	       row_number() OVER (PARTITION BY c.name ORDER BY c.seq) AS place
	FROM clock, json_each(?1) AS r
	CROSS JOIN {claim} AS c ON c.name = r.value ->> 0 AND c.state = 0
	CROSS JOIN {waiter} AS w ON w.locker = c.locker AND w.expires_at > clock.now
) AS q
WHERE q.place <= ?2
ORDER BY q.name, q.place;

-- name: waits
WITH clock(now) AS (SELECT CAST(round((julianday('now') - 2440587.5) * 86400000) AS INTEGER) * 1000)
SELECT c.name, lower(hex(c.acq)), c.label, c.seq, c.since, c.kind, lower(hex(c.carries))
FROM clock, {claim} AS c
WHERE c.carries IS NOT NULL AND c.state = 0
  AND (lower(hex(c.locker)) = ?1
    OR EXISTS (SELECT 1 FROM {waiter} AS w WHERE w.locker = c.locker AND w.expires_at > clock.now));

-- name: holders
WITH clock(now) AS (SELECT CAST(round((julianday('now') - 2440587.5) * 86400000) AS INTEGER) * 1000)
SELECT l.name, lower(hex(l.acq))
FROM clock, json_each(?1) AS r
CROSS JOIN {lock} AS l ON l.name = r.value ->> 0
WHERE l.acq IS NOT NULL AND l.expires_at > clock.now
UNION ALL
SELECT c.name, lower(hex(c.acq))
FROM clock, json_each(?1) AS r
CROSS JOIN {claim} AS c ON c.name = r.value ->> 0 AND c.state = 1
WHERE c.expires_at > clock.now;

-- name: make_rows
-- A row is new, however low its version is: cleanups leave it alone for the retention.
INSERT INTO {lock} (name, version, expires_at)
SELECT r.value ->> 0, 0, CAST(round((julianday('now') - 2440587.5) * 86400000) AS INTEGER) * 1000
FROM json_each(?1) AS r
WHERE true
ON CONFLICT (name) DO NOTHING;

-- name: write_rows
UPDATE {lock} AS l
SET version    = r.value ->> 1,
    acq        = substr(?2, r.value ->> 2, 16),
    owner      = iif(r.value ->> 2 IS NULL, NULL, r.value ->> 3),
    label      = iif(r.value ->> 2 IS NULL, NULL, r.value ->> 4),
    locker     = substr(?2, r.value ->> 5, 16),
    value      = substr(?2, r.value ->> '$[6][0]', r.value ->> '$[6][1]'),
    holds      = r.value ->> 7,
    since      = r.value ->> 8,
    expires_at = r.value ->> 9,
    limit_at   = r.value ->> 10,
    delay      = r.value ->> 11,
    not_before = r.value ->> 12,
    permits    = r.value ->> 13,
    waiting    = r.value ->> 14,
    holding    = r.value ->> 15,
    seq        = r.value ->> 16,
    ended      = r.value ->> 17,
    revoked    = r.value ->> 18
FROM json_each(?1) AS r
WHERE l.name = r.value ->> 0;

-- name: write_rows_one
-- It is write_rows for one row.
UPDATE {lock}
SET version = ?2, acq = ?3, owner = iif(?3 IS NULL, NULL, ?4), label = iif(?3 IS NULL, NULL, ?5),
    locker = ?6, value = ?7, holds = ?8, since = ?9, expires_at = ?10, limit_at = ?11, delay = ?12,
    not_before = ?13, permits = ?14, waiting = ?15, holding = ?16, seq = ?17, ended = ?18,
    revoked = ?19
WHERE name = ?1;

-- name: delete_claims
DELETE FROM {claim}
WHERE acq IN (SELECT substr(?2, r.value ->> 1, 16) FROM json_each(?1) AS r);

-- name: delete_claims_one
-- It is delete_claims for one claim.
DELETE FROM {claim} WHERE acq = ?2 AND name = ?1;

-- name: insert_claims
INSERT INTO {claim} (name, acq, state, kind, slot, seq, token, holds, ttl, handed, max_hold, since,
                     expires_at, limit_at, delay, locker, owner, label, value, carries)
SELECT r.value ->> 0,
       substr(?2, r.value ->> 1, 16),
       r.value ->> 2,
       r.value ->> 3,
       r.value ->> 4,
       r.value ->> 5,
       r.value ->> 6,
       r.value ->> 7,
       r.value ->> 8,
       r.value ->> 9,
       r.value ->> 10,
       r.value ->> 11,
       r.value ->> 12,
       r.value ->> 13,
       r.value ->> 14,
       substr(?2, r.value ->> 15, 16),
       r.value ->> 16,
       r.value ->> 17,
       substr(?2, r.value ->> '$[18][0]', r.value ->> '$[18][1]'),
       substr(?2, r.value ->> '$[19][0]', r.value ->> '$[19][1]')
FROM json_each(?1) AS r;

-- name: insert_claims_one
-- It is insert_claims for one claim.
INSERT INTO {claim} (name, acq, state, kind, slot, seq, token, holds, ttl, handed, max_hold, since,
                     expires_at, limit_at, delay, locker, owner, label, value, carries)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18, ?19, ?20);

-- name: grant_permits
-- It grants permits of names that have a row with that many permits, and that nobody has, waits
-- for or is kept from: it changes the rows. Then enter_permits makes the claims, in the same
-- transaction. A request for a permit has no lowest version.
UPDATE {lock} AS l
SET version = max(l.version + 1, r.now), seq = max(l.seq + 1, r.now), since = r.now,
    holding = 1, ended = 0
FROM (SELECT value ->> 0 AS name,
             value ->> 1 AS permits,
             CAST(round((julianday('now') - 2440587.5) * 86400000) AS INTEGER) * 1000 AS now
      FROM json_each(?1)) AS r
WHERE l.name = r.name AND l.permits = r.permits AND l.acq IS NULL AND l.waiting = 0
  AND l.holding = 0 AND l.not_before <= r.now
RETURNING name, version, seq, since;

-- name: grant_permits_one
-- It is grant_permits for one name.
UPDATE {lock} AS l
SET version = max(l.version + 1, r.now), seq = max(l.seq + 1, r.now), since = r.now,
    holding = 1, ended = 0
FROM (SELECT CAST(round((julianday('now') - 2440587.5) * 86400000) AS INTEGER) * 1000 AS now) AS r
WHERE l.name = ?1 AND l.permits = ?2 AND l.acq IS NULL AND l.waiting = 0
  AND l.holding = 0 AND l.not_before <= r.now
RETURNING name, version, seq, since;

-- name: enter_permits
-- It makes the claims of permits that were granted. The subquery with a LIMIT takes each column out
-- of JSON once.
INSERT INTO {claim} (name, acq, state, kind, slot, seq, token, holds, ttl, handed, max_hold, since,
                     expires_at, limit_at, delay, locker, owner, label, value)
SELECT r.name, r.acq, 1, 2, 0, r.seq, r.token, 1, r.ttl, r.ttl, 0, r.since, r.since + r.ttl, 0, 0,
       ?3, r.owner, ?4, r.value
FROM (SELECT value ->> 0 AS name,
             substr(?2, value ->> 1, 16) AS acq,
             value ->> 2 AS owner,
             value ->> 3 AS ttl,
             substr(?2, value ->> '$[4][0]', value ->> '$[4][1]') AS value,
             value ->> 5 AS token,
             value ->> 6 AS seq,
             value ->> 7 AS since
      FROM json_each(?1)
      LIMIT 1000000) AS r;

-- name: enter_permits_one
-- It is enter_permits for one claim.
INSERT INTO {claim} (name, acq, state, kind, slot, seq, token, holds, ttl, handed, max_hold, since,
                     expires_at, limit_at, delay, locker, owner, label, value)
VALUES (?1, ?2, 1, 2, 0, ?7, ?6, 1, ?4, ?4, 0, ?8, ?8 + ?4, 0, 0, ?9, ?3, ?10, ?5);

-- name: free_claims
-- It ends terms that are held together with others, of names that nobody waits for: it changes the
-- rows, and says how many others hold each name. Then delete_claims deletes the claims, in the same
-- transaction.
UPDATE {lock} AS l
SET holding = l.holding - 1,
    expires_at = iif(l.holding = 1, min(r.expires_at, r.now), l.expires_at),
    ended = iif(l.holding = 1, 1, l.ended)
FROM (SELECT c.name, c.expires_at,
             CAST(round((julianday('now') - 2440587.5) * 86400000) AS INTEGER) * 1000 AS now
      FROM json_each(?1) AS e
      CROSS JOIN {claim} AS c ON c.acq = substr(?2, e.value ->> 1, 16)
                             AND c.name = e.value ->> 0
                             AND c.state = 1 AND c.token = e.value ->> 2) AS r
WHERE l.name = r.name AND l.waiting = 0
RETURNING name, holding;

-- name: free_claims_one
-- It is free_claims for one name.
UPDATE {lock} AS l
SET holding = l.holding - 1,
    expires_at = iif(l.holding = 1, min(r.expires_at, r.now), l.expires_at),
    ended = iif(l.holding = 1, 1, l.ended)
FROM (SELECT c.expires_at,
             CAST(round((julianday('now') - 2440587.5) * 86400000) AS INTEGER) * 1000 AS now
      FROM {claim} AS c
      WHERE c.acq = ?2 AND c.name = ?1 AND c.state = 1 AND c.token = ?3) AS r
WHERE l.name = ?1 AND l.waiting = 0
RETURNING name, holding;

-- name: beat
INSERT INTO {waiter} AS w (locker, expires_at)
VALUES (?1, CAST(round((julianday('now') - 2440587.5) * 86400000) AS INTEGER) * 1000 + ?2)
ON CONFLICT (locker) DO UPDATE SET expires_at = max(w.expires_at, excluded.expires_at);

-- name: claims_of_locker
WITH clock(now) AS (SELECT CAST(round((julianday('now') - 2440587.5) * 86400000) AS INTEGER) * 1000)
SELECT c.name, lower(hex(c.acq))
FROM clock
CROSS JOIN {claim} AS c ON c.locker = ?1 AND c.state = 0 AND c.since <= clock.now - ?2
ORDER BY c.name;

-- name: set_value
UPDATE {lock} AS l
SET value = substr(?2, r.value ->> '$[3][0]', r.value ->> '$[3][1]')
FROM json_each(?1) AS r
WHERE l.name = r.value ->> 0
  AND l.acq = substr(?2, r.value ->> 1, 16)
  AND l.version = r.value ->> 2
  AND (r.value ->> 4 = 0 OR l.value IS NULL OR l.value <= substr(?2, r.value ->> '$[3][0]', r.value ->> '$[3][1]'))
  AND l.expires_at > CAST(round((julianday('now') - 2440587.5) * 86400000) AS INTEGER) * 1000;

-- name: raise
UPDATE {lock} AS l
SET version = r.value ->> 2
FROM json_each(?1) AS r
WHERE l.name = r.value ->> 0
  AND l.acq = substr(?2, r.value ->> 1, 16)
  AND l.version <= r.value ->> 2
  AND l.expires_at > CAST(round((julianday('now') - 2440587.5) * 86400000) AS INTEGER) * 1000;

-- name: asked
SELECT l.name, l.asked FROM json_each(?1) AS r CROSS JOIN {lock} AS l ON l.name = r.value ->> 0;

-- name: ask_to_resign
UPDATE {lock} AS l SET asked = l.version
FROM json_each(?1) AS r
WHERE l.name = r.value ->> 0 AND l.version = r.value ->> 1
  AND l.acq IS NOT NULL AND l.asked <> l.version
  AND l.expires_at > CAST(round((julianday('now') - 2440587.5) * 86400000) AS INTEGER) * 1000;

-- name: sweep_window
-- What costs is to read the rows: each is read once, and claims are looked up only of rows that
-- count some. What needs nothing is not returned, but for the last row.
WITH clock(now) AS (SELECT CAST(round((julianday('now') - 2440587.5) * 86400000) AS INTEGER) * 1000),
page AS MATERIALIZED (
	SELECT l.name,
	       l.acq IS NOT NULL AND l.expires_at <= clock.now
	       OR (l.waiting <> 0 OR l.holding <> 0) AND EXISTS (
		       SELECT 1 FROM {claim} AS c
		       WHERE c.name = l.name AND CASE c.state
			       WHEN 1 THEN c.expires_at <= clock.now
			       ELSE NOT EXISTS (
				       SELECT 1 FROM {waiter} AS w
				       WHERE w.locker = c.locker AND w.expires_at > clock.now - ?3)
			       END) AS visit,
	       l.acq IS NULL AND l.waiting = 0 AND l.holding = 0 AND l.not_before <= clock.now
	       AND l.expires_at < clock.now - ?4 AND l.version < clock.now - ?4
	       AND NOT EXISTS (SELECT 1 FROM {claim} AS c WHERE c.name = l.name) AS idle
	FROM clock
	CROSS JOIN {lock} AS l
	WHERE l.name > ?1
	ORDER BY l.name
	LIMIT ?2
)
SELECT r.name, r.visit, r.idle, e.seen
FROM (SELECT count(*) AS seen, max(k.name) AS last FROM page AS k) AS e
CROSS JOIN page AS r
WHERE r.visit OR r.idle OR r.name = e.last
ORDER BY r.name;

-- name: purge
DELETE FROM {lock} AS l
WHERE l.name IN (SELECT r.value ->> 0 FROM json_each(?1) AS r)
  AND l.acq IS NULL AND l.waiting = 0 AND l.holding = 0
  AND l.not_before <= CAST(round((julianday('now') - 2440587.5) * 86400000) AS INTEGER) * 1000
  AND l.expires_at < CAST(round((julianday('now') - 2440587.5) * 86400000) AS INTEGER) * 1000 - ?2
  AND l.version < CAST(round((julianday('now') - 2440587.5) * 86400000) AS INTEGER) * 1000 - ?2
  AND NOT EXISTS (SELECT 1 FROM {claim} AS c WHERE c.name = l.name);

-- name: purge_waiters
DELETE FROM {waiter} AS w
WHERE w.expires_at <= CAST(round((julianday('now') - 2440587.5) * 86400000) AS INTEGER) * 1000 - ?1
  AND NOT EXISTS (SELECT 1 FROM {claim} AS c WHERE c.locker = w.locker);

-- name: find_waiters
-- Whether purge_waiters would delete any: it needs no write lock.
SELECT EXISTS (
	SELECT 1 FROM {waiter} AS w
	WHERE w.expires_at <= CAST(round((julianday('now') - 2440587.5) * 86400000) AS INTEGER) * 1000 - ?1
	  AND NOT EXISTS (SELECT 1 FROM {claim} AS c WHERE c.locker = w.locker));

-- name: sweep_due
-- A time to come was written before the clock was set back.
UPDATE {meta}
SET swept_at = CAST(round((julianday('now') - 2440587.5) * 86400000) AS INTEGER) * 1000
WHERE swept_at <= CAST(round((julianday('now') - 2440587.5) * 86400000) AS INTEGER) * 1000 - max(?1, sweep_pause)
   OR swept_at > CAST(round((julianday('now') - 2440587.5) * 86400000) AS INTEGER) * 1000;

-- name: find_sweep
-- Whether sweep_due would change anything: it needs no write lock.
WITH clock(now) AS (SELECT CAST(round((julianday('now') - 2440587.5) * 86400000) AS INTEGER) * 1000)
SELECT swept_at <= clock.now - max(?1, sweep_pause) OR swept_at > clock.now FROM clock, {meta};

-- name: sweep_pause
UPDATE {meta} SET sweep_pause = ?1;

-- name: grant
-- ?5 says that a request has a value, ?6 that one has a lowest version: JSON is slow.
INSERT INTO {lock} AS l (name, acq, owner, locker, label, version, holds, since, expires_at, value)
SELECT r.value ->> 0,
       substr(?2, r.value ->> 1, 16),
       r.value ->> 2,
       ?4,
       ?3,
       iif(?6, max(clock.now, r.value ->> 5), clock.now),
       1,
       clock.now,
       clock.now + r.value ->> 3,
       iif(?5, substr(?2, r.value ->> '$[4][0]', r.value ->> '$[4][1]'), NULL)
FROM (SELECT CAST(round((julianday('now') - 2440587.5) * 86400000) AS INTEGER) * 1000 AS now)
     AS clock,
     json_each(?1) AS r
WHERE true
ON CONFLICT (name) DO UPDATE
SET acq = excluded.acq,
    owner = excluded.owner,
    locker = excluded.locker,
    label = excluded.label,
    version = max(l.version + 1, excluded.version),
    holds = 1,
    since = excluded.since,
    expires_at = excluded.expires_at,
    limit_at = 0,
    delay = 0,
    ended = 0,
    value = excluded.value
WHERE l.acq IS NULL AND l.waiting = 0 AND l.holding = 0 AND l.not_before <= excluded.since
RETURNING name, version, since, expires_at;

-- name: grant_all
-- It is grant for all of the names or none. The write lock is taken before it looks.
WITH clock AS MATERIALIZED (
	SELECT CAST(round((julianday('now') - 2440587.5) * 86400000) AS INTEGER) * 1000 AS now
), held AS MATERIALIZED (
	SELECT count(*) AS names
	FROM clock, json_each(?1) AS r JOIN {lock} AS h ON h.name = r.value ->> 0
	WHERE h.acq IS NOT NULL OR h.waiting <> 0 OR h.holding <> 0 OR h.not_before > clock.now
)
INSERT INTO {lock} AS l (name, acq, owner, locker, label, version, holds, since, expires_at, value)
SELECT r.value ->> 0,
       substr(?2, r.value ->> 1, 16),
       r.value ->> 2,
       ?4,
       ?3,
       iif(?6, max(clock.now, r.value ->> 5), clock.now),
       1,
       clock.now,
       clock.now + r.value ->> 3,
       iif(?5, substr(?2, r.value ->> '$[4][0]', r.value ->> '$[4][1]'), NULL)
FROM clock, held, json_each(?1) AS r
WHERE held.names = 0
ON CONFLICT (name) DO UPDATE
SET acq = excluded.acq,
    owner = excluded.owner,
    locker = excluded.locker,
    label = excluded.label,
    version = max(l.version + 1, excluded.version),
    holds = 1,
    since = excluded.since,
    expires_at = excluded.expires_at,
    limit_at = 0,
    delay = 0,
    ended = 0,
    value = excluded.value
RETURNING name, version, since, expires_at;

-- name: free
UPDATE {lock} AS l
SET acq = NULL, owner = NULL, locker = NULL, label = NULL, value = NULL,
    holds = 0, limit_at = 0, delay = 0, ended = 1,
    expires_at = min(l.expires_at, r.now),
    not_before = iif(r.min_hold > 0 AND l.since + r.min_hold > r.now, max(l.not_before, l.since + r.min_hold),
                     l.not_before)
FROM (SELECT value ->> 0 AS name,
             substr(?2, value ->> 1, 16) AS acq,
             value ->> 2 AS version,
             value ->> 3 AS min_hold,
             CAST(round((julianday('now') - 2440587.5) * 86400000) AS INTEGER) * 1000 AS now
      FROM json_each(?1)) AS r
WHERE l.name = r.name AND l.acq = r.acq AND l.version = r.version AND l.waiting = 0
RETURNING name;

-- name: renew
UPDATE {lock} AS l
SET expires_at = max(l.expires_at,
                     iif(l.limit_at = 0, r.now + r.ttl, min(r.now + r.ttl, l.limit_at))),
    holds = r.holds
FROM (SELECT value ->> 0 AS name,
             substr(?2, value ->> 1, 16) AS acq,
             value ->> 2 AS version,
             value ->> 3 AS ttl,
             value ->> 4 AS holds,
             CAST(round((julianday('now') - 2440587.5) * 86400000) AS INTEGER) * 1000 AS now
      FROM json_each(?1)) AS r
WHERE l.name = r.name AND l.acq = r.acq AND l.version = r.version
  AND l.expires_at > r.now
RETURNING name, lower(hex(acq)),
          CAST(round((julianday('now') - 2440587.5) * 86400000) AS INTEGER) * 1000;

-- name: renew_shared
UPDATE {claim} AS c
SET expires_at = max(c.expires_at,
                     iif(c.limit_at = 0, r.now + r.ttl, min(r.now + r.ttl, c.limit_at))),
    holds = r.holds
FROM (SELECT value ->> 0 AS name,
             substr(?2, value ->> 1, 16) AS acq,
             value ->> 2 AS token,
             value ->> 3 AS ttl,
             value ->> 4 AS holds,
             CAST(round((julianday('now') - 2440587.5) * 86400000) AS INTEGER) * 1000 AS now
      FROM json_each(?1)) AS r
WHERE c.acq = r.acq AND c.name = r.name AND c.state = 1 AND c.token = r.token
  AND c.expires_at > r.now
RETURNING name, lower(hex(acq)),
          CAST(round((julianday('now') - 2440587.5) * 86400000) AS INTEGER) * 1000;

-- name: guard
-- It changes nothing, but takes the write lock, which the caller's transaction keeps.
UPDATE {lock} SET version = version
WHERE name = ?1 AND acq = ?2 AND version = ?3
RETURNING version;

-- name: guard_all
-- It is guard for several names, and returns a row for each term that is the current one.
UPDATE {lock} AS l SET version = l.version
FROM (SELECT value ->> 0 AS name, substr(?2, value ->> 1, 16) AS acq, value ->> 2 AS version
      FROM json_each(?1)) AS r
WHERE l.name = r.name AND l.acq = r.acq AND l.version = r.version
RETURNING version;

-- name: guard_shared
-- It is guard for a term that is held together with others.
UPDATE {claim} SET token = token
WHERE name = ?1 AND acq = ?2 AND state = 1 AND token = ?3
RETURNING token;

-- name: end_term
-- It takes the write lock as guard does, and ends the term in the caller's transaction. It
-- asks nothing of the claims.
UPDATE {lock}
SET acq = NULL, owner = NULL, locker = NULL, label = NULL, value = NULL,
    holds = 0, limit_at = 0, delay = 0, ended = 1,
    expires_at = min(expires_at,
                     CAST(round((julianday('now') - 2440587.5) * 86400000) AS INTEGER) * 1000),
    not_before = iif(
	    ?4 > 0 AND since + ?4
	        > CAST(round((julianday('now') - 2440587.5) * 86400000) AS INTEGER) * 1000,
	    max(not_before, since + ?4),
	    not_before)
WHERE name = ?1 AND acq = ?2 AND version = ?3
RETURNING waiting;

-- name: database
SELECT id FROM {meta};

-- name: fence
-- It changes no row if the resource has seen a higher token.
INSERT INTO {fence} AS f (resource, token) VALUES (?1, ?2)
ON CONFLICT (resource) DO UPDATE SET token = excluded.token WHERE f.token <= excluded.token;
