-- The statements about keys, see sqllock.Locker.Once, for SQLite 3.38 or newer. Package
-- rowstore says what each of them does. In {done} the name of the table is filled in. The
-- head of unique.sql says how a batch is given, and which clock is read.

-- name: keys
SELECT d.name, d.key, d.attempt, d.since, d.at
FROM json_each(?1) AS r
CROSS JOIN {done} AS d ON d.name = r.value ->> 0 AND d.key = r.value ->> 1;

-- name: floors
SELECT r.value ->> 0, coalesce((
	SELECT max(d.key) FROM {done} AS d WHERE d.since = 0 AND d.name = r.value ->> 0), '')
FROM json_each(?1) AS r;

-- name: write_keys
INSERT INTO {done} AS d (name, key, attempt, since, at)
SELECT r.value ->> 0, r.value ->> 1, r.value ->> 2, r.value ->> 3, r.value ->> 4
FROM json_each(?1) AS r
WHERE true
ON CONFLICT (name, key) DO UPDATE
SET attempt = excluded.attempt, since = excluded.since, at = excluded.at;

-- name: last_keys
SELECT d.name, d.key, d.attempt, d.since, d.at
FROM json_each(?1) AS r
CROSS JOIN {done} AS d ON d.name = r.value ->> 0 AND d.at = (
	SELECT max(m.at) FROM {done} AS m WHERE m.name = r.value ->> 0)
WHERE d.at > 0;

-- name: old_keys
WITH clock(now) AS (SELECT CAST(round((julianday('now') - 2440587.5) * 86400000) AS INTEGER) * 1000)
SELECT d.name, d.key, d.at, coalesce((
	SELECT max(f.key) FROM {done} AS f WHERE f.since = 0 AND f.name = d.name), '')
FROM clock
CROSS JOIN {done} AS d ON d.since > 0 AND d.since < clock.now - ?1 AND d.at < clock.now - ?1
ORDER BY d.since
LIMIT ?2;

-- name: raise_floors
UPDATE {done} AS d SET since = 0
FROM json_each(?1) AS r
WHERE d.name = r.value ->> 0 AND d.key = r.value ->> 1 AND d.at > 0;

-- name: purge_keys
DELETE FROM {done} AS d
WHERE (d.name, d.key) IN (SELECT r.value ->> 0, r.value ->> 1 FROM json_each(?1) AS r)
  AND d.since < CAST(round((julianday('now') - 2440587.5) * 86400000) AS INTEGER) * 1000 - ?2
  AND d.at < CAST(round((julianday('now') - 2440587.5) * 86400000) AS INTEGER) * 1000 - ?2;

-- name: complete
-- It runs in a transaction of the application.
UPDATE {done} SET at = CAST(round((julianday('now') - 2440587.5) * 86400000) AS INTEGER) * 1000
WHERE name = ?1 AND key = ?2 AND at = 0;

-- name: completed
-- It runs in a transaction of the application.
SELECT coalesce(max(d.at), 0) FROM {done} AS d WHERE d.name = ?1 AND d.key = ?2;
