-- The statements about keys, see sqllock.Locker.Once, for MySQL 8.0 and MariaDB 10.6 or
-- newer. Package rowstore says what each of them does. In {done} the name of the table is
-- filled in. The head of unique.sql says how a batch is given, and what {now} stands for.

-- name: keys
SELECT d.name, d.`key`, d.attempt, d.since, d.at
FROM JSON_TABLE(?, '$[*]' COLUMNS (
	name VARCHAR(510) CHARACTER SET ascii PATH '$[0]',
	k VARCHAR(510) CHARACTER SET ascii PATH '$[1]')) r
STRAIGHT_JOIN {done} d FORCE INDEX (PRIMARY) ON d.name = UNHEX(r.name) AND d.`key` = UNHEX(r.k)
LIMIT 1000000;

-- name: floors
SELECT UNHEX(r.name), COALESCE((
	SELECT MAX(d.`key`) FROM {done} d FORCE INDEX (sqllock_done_since)
	WHERE d.since = 0 AND d.name = UNHEX(r.name)), '')
FROM JSON_TABLE(?, '$[*]' COLUMNS (name VARCHAR(510) CHARACTER SET ascii PATH '$[0]')) r
LIMIT 1000000;

-- name: lock_keys
SELECT d.name, d.`key`, d.attempt, d.since, d.at
FROM JSON_TABLE(?, '$[*]' COLUMNS (
	name VARCHAR(510) CHARACTER SET ascii PATH '$[0]',
	k VARCHAR(510) CHARACTER SET ascii PATH '$[1]')) r
STRAIGHT_JOIN {done} d FORCE INDEX (PRIMARY) ON d.name = UNHEX(r.name) AND d.`key` = UNHEX(r.k)
LIMIT 1000000 FOR UPDATE /*!80000 OF d */ NOWAIT;

-- name: write_keys
INSERT INTO {done} (name, `key`, attempt, since, at)
SELECT UNHEX(r.name), UNHEX(r.k), r.attempt, r.since, r.at
FROM JSON_TABLE(?, '$[*]' COLUMNS (
	name VARCHAR(510) CHARACTER SET ascii PATH '$[0]',
	k VARCHAR(510) CHARACTER SET ascii PATH '$[1]',
	attempt BIGINT PATH '$[2]',
	since BIGINT PATH '$[3]',
	at BIGINT PATH '$[4]')) r
ON DUPLICATE KEY UPDATE attempt = VALUES(attempt), since = VALUES(since), at = VALUES(at);

-- name: last_keys
SELECT d.name, d.`key`, d.attempt, d.since, d.at
FROM JSON_TABLE(?, '$[*]' COLUMNS (name VARCHAR(510) CHARACTER SET ascii PATH '$[0]')) r
STRAIGHT_JOIN {done} d FORCE INDEX (sqllock_done_at) ON d.name = UNHEX(r.name) AND d.at = (
	SELECT MAX(m.at) FROM {done} m FORCE INDEX (sqllock_done_at) WHERE m.name = UNHEX(r.name))
WHERE d.at > 0
LIMIT 1000000;

-- name: old_keys
SELECT d.name, d.`key`, d.at, COALESCE((
	SELECT MAX(f.`key`) FROM {done} f FORCE INDEX (sqllock_done_since)
	WHERE f.since = 0 AND f.name = d.name), '')
FROM {done} d FORCE INDEX (sqllock_done_since)
STRAIGHT_JOIN (SELECT CAST(? AS SIGNED) AS retention) p
WHERE d.since > 0 AND d.since < {now} - p.retention AND d.at < {now} - p.retention
ORDER BY d.since LIMIT ?;

-- name: raise_floors
UPDATE (
	SELECT d.name, d.`key`
	FROM JSON_TABLE(?, '$[*]' COLUMNS (
		name VARCHAR(510) CHARACTER SET ascii PATH '$[0]',
		k VARCHAR(510) CHARACTER SET ascii PATH '$[1]')) r
	STRAIGHT_JOIN {done} d FORCE INDEX (PRIMARY) ON d.name = UNHEX(r.name) AND d.`key` = UNHEX(r.k)
	WHERE d.at > 0
	LIMIT 1000000 FOR UPDATE /*!80000 OF d */ NOWAIT
) h STRAIGHT_JOIN {done} d FORCE INDEX (PRIMARY) ON d.name = h.name AND d.`key` = h.`key`
SET d.since = 0;

-- name: purge_keys
-- What must be so of a row is asked under its lock. Rows that are locked are passed over.
DELETE d FROM (
	SELECT d.name, d.`key`
	FROM JSON_TABLE(?, '$[*]' COLUMNS (
		name VARCHAR(510) CHARACTER SET ascii PATH '$[0]',
		k VARCHAR(510) CHARACTER SET ascii PATH '$[1]')) r
	STRAIGHT_JOIN (SELECT CAST(? AS SIGNED) AS retention) p
	STRAIGHT_JOIN {done} d FORCE INDEX (PRIMARY) ON d.name = UNHEX(r.name) AND d.`key` = UNHEX(r.k)
	WHERE d.since < {now} - p.retention AND d.at < {now} - p.retention
	LIMIT 1000000 FOR UPDATE /*!80000 OF d */ SKIP LOCKED
) h STRAIGHT_JOIN {done} d FORCE INDEX (PRIMARY) ON d.name = h.name AND d.`key` = h.`key`;

-- name: complete
-- It runs in a transaction of the application.
UPDATE {done} SET at = {now} WHERE name = UNHEX(?) AND `key` = UNHEX(?) AND at = 0;

-- name: completed
-- It runs in a transaction of the application.
SELECT COALESCE(MAX(d.at), 0) FROM {done} d FORCE INDEX (PRIMARY)
WHERE d.name = UNHEX(?) AND d.`key` = UNHEX(?);
