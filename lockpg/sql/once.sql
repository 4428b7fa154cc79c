-- The statements about keys, see sqllock.Locker.Once, for Postgres 12 or newer. Package
-- rowstore says what each of them does. In {done} the name of the table is filled in. The
-- head of unique.sql says how a batch is given, and which clock is read.

-- name: keys
SELECT d.name, d.key, d.attempt, d.since, d.at
FROM unnest($1::text[], $2::text[]) AS r(name, key)
CROSS JOIN LATERAL (
	SELECT k.* FROM {done} k WHERE k.name = r.name AND k.key = r.key OFFSET 0
) d;

-- name: floors
SELECT r.name, coalesce((SELECT max(d.key) FROM {done} d WHERE d.since = 0 AND d.name = r.name), '')
FROM unnest($1::text[]) AS r(name);

-- name: lock_keys
SELECT d.name, d.key, d.attempt, d.since, d.at
FROM unnest($1::text[], $2::text[]) AS r(name, key)
CROSS JOIN LATERAL (
	SELECT k.* FROM {done} k WHERE k.name = r.name AND k.key = r.key OFFSET 0 FOR UPDATE
) d;

-- name: write_keys
INSERT INTO {done} AS d (name, key, attempt, since, at)
SELECT r.name, r.key, r.attempt, r.since, r.at
FROM unnest($1::text[], $2::text[], $3::bigint[], $4::bigint[], $5::bigint[])
     AS r(name, key, attempt, since, at)
ON CONFLICT (name, key) DO UPDATE
SET attempt = excluded.attempt, since = excluded.since, at = excluded.at;

-- name: last_keys
SELECT d.name, d.key, d.attempt, d.since, d.at
FROM unnest($1::text[]) AS r(name)
JOIN {done} d ON d.name = r.name AND d.at > 0
 AND d.at = (SELECT max(m.at) FROM {done} m WHERE m.name = r.name);

-- name: old_keys
SELECT d.name, d.key, d.at,
       coalesce((SELECT max(f.key) FROM {done} f WHERE f.since = 0 AND f.name = d.name), '')
FROM (
	SELECT k.*
	FROM {done} k
	WHERE k.since > 0
	  AND k.since < (date_part('epoch', clock_timestamp()) * 1000000)::bigint - $1::bigint
	  AND k.at < (date_part('epoch', clock_timestamp()) * 1000000)::bigint - $1::bigint
	ORDER BY k.since
	LIMIT $2::bigint
) d;

-- name: raise_floors
WITH settings AS MATERIALIZED (
	SELECT set_config('lock_timeout', '1s', true)
)
UPDATE {done} d SET since = 0
FROM settings
WHERE d.at > 0 AND d.ctid = ANY (ARRAY(
	SELECT k.ctid
	FROM unnest($1::text[], $2::text[]) AS r(name, key)
	CROSS JOIN LATERAL (
		SELECT h.ctid FROM {done} h WHERE h.name = r.name AND h.key = r.key OFFSET 0 FOR UPDATE
	) k));

-- name: purge_keys
-- What must be so of a row is asked under its lock. Rows that are locked are passed over.
WITH settings AS MATERIALIZED (
	SELECT set_config('lock_timeout', '1s', true), set_config('synchronous_commit', 'off', true)
)
DELETE FROM {done} d
USING settings
WHERE d.ctid = ANY (ARRAY(
	SELECT k.ctid
	FROM unnest($1::text[], $2::text[]) AS r(name, key)
	CROSS JOIN LATERAL (
		SELECT h.ctid, h.since, h.at
		FROM {done} h
		WHERE h.name = r.name AND h.key = r.key OFFSET 0
		FOR UPDATE SKIP LOCKED
	) k
	WHERE k.since < (date_part('epoch', clock_timestamp()) * 1000000)::bigint - $3::bigint
	  AND k.at < (date_part('epoch', clock_timestamp()) * 1000000)::bigint - $3::bigint));

-- name: complete
-- It runs in a transaction of the application.
UPDATE {done} SET at = (date_part('epoch', clock_timestamp()) * 1000000)::bigint
WHERE name = $1::text AND key = $2::text AND at = 0;

-- name: completed
-- It runs in a transaction of the application.
SELECT coalesce(max(d.at), 0) FROM {done} d WHERE d.name = $1::text AND d.key = $2::text;
