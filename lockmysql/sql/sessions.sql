-- The statements of the modes that keep locks in sessions, for MySQL 8.0 and MariaDB 10.6 or
-- newer. Package termstore says what those do that are about the table of terms. See
-- unique.sql for batches, digits, and how rows are locked. In {term}, {pin} and {meta} the
-- names of the tables are filled in, in {mode} the number of the mode: 2 is for update, 3 is
-- advisory. {now} is as there.
--
-- A term is, in results: the place in the batch, name, now, acq, owner, label, version,
-- acquired_at, ended_at, holds, not_before, delay, ended, revoked, whether its holder is asked to
-- give it up, whether the session lives by which it was begun, 0, 0, whether the server takes
-- writes, and the value. The server tells which session has a lock of GET_LOCK, and lets go of it
-- with the session; in for-update mode it is a lock that the session keeps for that. pid tells
-- the session apart from one that has a lock of advisory mode next.

-- name: look
SELECT r.i - 1, l.name, {now}, HEX(l.acq), l.owner, l.label, l.version, l.acquired_at, l.ended_at, l.holds,
	l.not_before, l.delay, l.ended, l.revoked, l.revoke_for IS NOT NULL,
	IF(l.lock_key IS NULL, 0, COALESCE(IS_USED_LOCK(CONVERT(l.lock_key USING utf8mb4)) = l.pid, 0)),
	0, 0, UPPER(CONCAT(@@GLOBAL.read_only)) IN ('0', 'OFF'), NULL
FROM JSON_TABLE(?, '$[*]' COLUMNS (i FOR ORDINALITY, name VARCHAR(510) CHARACTER SET ascii PATH '$[0]')) r
LEFT JOIN {term} l FORCE INDEX (PRIMARY) ON l.mode = {mode} AND l.name = UNHEX(r.name)
LIMIT 1000000;

-- name: look_values
SELECT r.i - 1, l.name, {now}, HEX(l.acq), l.owner, l.label, l.version, l.acquired_at, l.ended_at, l.holds,
	l.not_before, l.delay, l.ended, l.revoked, l.revoke_for IS NOT NULL,
	IF(l.lock_key IS NULL, 0, COALESCE(IS_USED_LOCK(CONVERT(l.lock_key USING utf8mb4)) = l.pid, 0)),
	0, 0, UPPER(CONCAT(@@GLOBAL.read_only)) IN ('0', 'OFF'), l.value
FROM JSON_TABLE(?, '$[*]' COLUMNS (i FOR ORDINALITY, name VARCHAR(510) CHARACTER SET ascii PATH '$[0]')) r
LEFT JOIN {term} l FORCE INDEX (PRIMARY) ON l.mode = {mode} AND l.name = UNHEX(r.name)
LIMIT 1000000;

-- name: page
SELECT 0, k.name, {now}, HEX(k.acq), k.owner, k.label, k.version, k.acquired_at, k.ended_at, k.holds,
	k.not_before, k.delay, k.ended, k.revoked, k.revoke_for IS NOT NULL,
	IF(k.lock_key IS NULL, 0, COALESCE(IS_USED_LOCK(CONVERT(k.lock_key USING utf8mb4)) = k.pid, 0)),
	0, 0, UPPER(CONCAT(@@GLOBAL.read_only)) IN ('0', 'OFF'), NULL
FROM {term} k FORCE INDEX (PRIMARY)
WHERE k.mode = {mode} AND k.name > UNHEX(?)
ORDER BY k.name LIMIT ?;

-- name: make_rows
-- It makes rows, which say nothing yet.
INSERT IGNORE INTO {term} (mode, name)
SELECT {mode}, UNHEX(r.name)
FROM JSON_TABLE(?, '$[*]' COLUMNS (i FOR ORDINALITY, name VARCHAR(510) CHARACTER SET ascii PATH '$[0]')) r;

-- name: draw
-- It begins a term, if nobody has drawn since the term was seen that follows the first five
-- parameters. A term that is not recorded, because others may share it or a transaction of the
-- application has the lock, is over as soon as it has begun.
UPDATE (
	SELECT l.name, UNHEX(NULLIF(?, x'')) AS acq, UNHEX(?) AS owner, UNHEX(?) AS lock_key,
		CAST(? AS SIGNED) AS keep, CAST(? AS SIGNED) AS delay
	FROM {term} l FORCE INDEX (PRIMARY)
	WHERE l.mode = {mode} AND l.name = UNHEX(?) AND l.version = ? AND l.acq <=> UNHEX(NULLIF(?, x''))
	LIMIT 1000000 FOR UPDATE /*!80000 OF l */ SKIP LOCKED
) d STRAIGHT_JOIN {term} l FORCE INDEX (PRIMARY) ON l.mode = {mode} AND l.name = d.name
SET
	l.acq = d.acq, l.owner = IF(d.acq IS NULL, NULL, d.owner),
	l.instance = IF(d.acq IS NULL, NULL, UNHEX(?)), l.label = IF(d.acq IS NULL, NULL, UNHEX(?)),
	l.lock_key = IF(d.acq IS NULL, NULL, d.lock_key), l.pid = IF(d.acq IS NULL, NULL, ?), l.started = NULL,
	l.version = GREATEST(l.version + 1, LAST_INSERT_ID({now})), l.holds = IF(d.acq IS NULL, 0, 1),
	l.acquired_at = {now}, l.ended_at = IF(d.acq IS NULL, {now}, 0), l.ended = IF(d.acq IS NULL, 1, l.ended),
	l.not_before = IF(d.keep > 0, {now} + d.keep, l.not_before), l.delay = d.delay, l.revoke_for = NULL,
	l.value = UNHEX(NULLIF(?, x''));

-- name: draw_many
-- It is draw for all of the names or none of them: after a part nobody could tell which, of those
-- that are not recorded.
UPDATE (
	SELECT l.name, UNHEX(NULLIF(r.acq, '')) AS acq, UNHEX(r.owner) AS owner, UNHEX(r.lock_key) AS lock_key, r.keep,
		r.delay, COUNT(*) OVER () AS found
	FROM JSON_TABLE(?, '$[*]' COLUMNS (
		name VARCHAR(510) CHARACTER SET ascii PATH '$[0]',
		acq CHAR(32) CHARACTER SET ascii PATH '$[1]',
		version BIGINT PATH '$[2]',
		was CHAR(32) CHARACTER SET ascii PATH '$[3]',
		owner VARCHAR(510) CHARACTER SET ascii PATH '$[4]',
		lock_key VARCHAR(128) CHARACTER SET ascii PATH '$[5]',
		keep BIGINT PATH '$[6]',
		delay BIGINT PATH '$[7]')) r
	STRAIGHT_JOIN {term} l FORCE INDEX (PRIMARY) ON l.mode = {mode} AND l.name = UNHEX(r.name)
	WHERE l.version = r.version AND l.acq <=> UNHEX(NULLIF(r.was, ''))
	LIMIT 1000000 FOR UPDATE /*!80000 OF l */ SKIP LOCKED
) d STRAIGHT_JOIN {term} l FORCE INDEX (PRIMARY) ON l.mode = {mode} AND l.name = d.name
SET
	l.acq = d.acq, l.owner = IF(d.acq IS NULL, NULL, d.owner),
	l.instance = IF(d.acq IS NULL, NULL, UNHEX(?)), l.label = IF(d.acq IS NULL, NULL, UNHEX(?)),
	l.lock_key = IF(d.acq IS NULL, NULL, d.lock_key), l.pid = IF(d.acq IS NULL, NULL, ?), l.started = NULL,
	l.version = GREATEST(l.version + 1, LAST_INSERT_ID({now})), l.holds = IF(d.acq IS NULL, 0, 1),
	l.acquired_at = {now}, l.ended_at = IF(d.acq IS NULL, {now}, 0), l.ended = IF(d.acq IS NULL, 1, l.ended),
	l.not_before = IF(d.keep > 0, {now} + d.keep, l.not_before), l.delay = d.delay, l.revoke_for = NULL,
	l.value = NULL
WHERE d.found = ?;

-- name: end_term
-- It ends a term whose session is gone, and keeps the name for its lock delay.
UPDATE (
	SELECT l.name, l.delay
	FROM {term} l FORCE INDEX (PRIMARY)
	WHERE l.mode = {mode} AND l.name = UNHEX(?) AND l.version = ? AND l.acq <=> UNHEX(NULLIF(?, x''))
	LIMIT 1000000 FOR UPDATE /*!80000 OF l */ SKIP LOCKED
) d STRAIGHT_JOIN {term} l FORCE INDEX (PRIMARY) ON l.mode = {mode} AND l.name = d.name
SET
	l.acq = NULL, l.owner = NULL, l.instance = NULL, l.label = NULL, l.lock_key = NULL, l.pid = NULL,
	l.started = NULL, l.holds = 0, l.delay = 0, l.revoke_for = NULL, l.value = NULL,
	l.ended = 2, l.ended_at = LAST_INSERT_ID({now}),
	l.not_before = IF(d.delay > 0, GREATEST(l.not_before, {now} + d.delay), l.not_before);

-- name: release
-- It frees all of the names or none of them. A term whose holder was asked to give it up counts as
-- revoked; then no gate is left. The draw has written until when a minimum hold keeps the name; a
-- release without one, of a call that failed, takes that back.
UPDATE (
	SELECT l.name, l.version, l.revoke_for IS NOT NULL AS revoked, r.keep, COUNT(*) OVER () AS found
	FROM JSON_TABLE(?, '$[*]' COLUMNS (
		name VARCHAR(510) CHARACTER SET ascii PATH '$[0]',
		acq CHAR(32) CHARACTER SET ascii PATH '$[1]',
		version BIGINT PATH '$[2]',
		keep BIGINT PATH '$[3]')) r
	STRAIGHT_JOIN {term} l FORCE INDEX (PRIMARY) ON l.mode = {mode} AND l.name = UNHEX(r.name)
	WHERE l.acq = UNHEX(r.acq) AND l.version = r.version
	LIMIT 1000000 FOR UPDATE /*!80000 OF l */ SKIP LOCKED
) d STRAIGHT_JOIN {term} l FORCE INDEX (PRIMARY) ON l.mode = {mode} AND l.name = d.name
SET
	l.acq = NULL, l.owner = NULL, l.instance = NULL, l.label = NULL, l.lock_key = NULL, l.pid = NULL,
	l.started = NULL, l.holds = 0, l.delay = 0, l.revoke_for = NULL, l.value = NULL,
	l.ended = IF(d.revoked, 3, 1), l.revoked = IF(d.revoked, d.version, l.revoked), l.ended_at = {now},
	l.not_before = IF(d.revoked OR d.keep = 0, 0, l.not_before)
WHERE d.found = ?;

-- name: set_value
UPDATE (
	SELECT l.name
	FROM {term} l FORCE INDEX (PRIMARY)
	WHERE l.mode = {mode} AND l.name = UNHEX(?) AND l.version = ? AND l.acq <=> UNHEX(NULLIF(?, x''))
	LIMIT 1000000 FOR UPDATE /*!80000 OF l */ SKIP LOCKED
) d STRAIGHT_JOIN {term} l FORCE INDEX (PRIMARY) ON l.mode = {mode} AND l.name = d.name
SET l.value = UNHEX(NULLIF(?, x''));

-- name: revoke_holder
-- It asks a holder to give the name up.
UPDATE (
	SELECT l.name, l.instance
	FROM {term} l FORCE INDEX (PRIMARY)
	WHERE l.mode = {mode} AND l.name = UNHEX(?) AND l.version = ? AND l.acq <=> UNHEX(NULLIF(?, x''))
	LIMIT 1000000 FOR UPDATE /*!80000 OF l */ SKIP LOCKED
) d STRAIGHT_JOIN {term} l FORCE INDEX (PRIMARY) ON l.mode = {mode} AND l.name = d.name
SET l.revoke_for = d.instance;

-- name: revoke
-- It ends what keeps a name that no session has.
UPDATE (
	SELECT l.name, l.version
	FROM {term} l FORCE INDEX (PRIMARY)
	WHERE l.mode = {mode} AND l.name = UNHEX(?) AND l.version = ? AND l.acq <=> UNHEX(NULLIF(?, x''))
	LIMIT 1000000 FOR UPDATE /*!80000 OF l */ SKIP LOCKED
) d STRAIGHT_JOIN {term} l FORCE INDEX (PRIMARY) ON l.mode = {mode} AND l.name = d.name
SET
	l.acq = NULL, l.owner = NULL, l.instance = NULL, l.label = NULL, l.lock_key = NULL, l.pid = NULL,
	l.started = NULL, l.holds = 0, l.delay = 0, l.revoke_for = NULL, l.value = NULL,
	l.ended = 3, l.ended_at = {now}, l.revoked = d.version, l.not_before = 0;

-- name: revocations
-- Which of its terms a Locker is asked to give up. A server that takes no writes any more would
-- answer for ever.
SELECT {now}, UPPER(CONCAT(@@GLOBAL.read_only)) IN ('0', 'OFF'), l.name, HEX(l.acq), 0
FROM (SELECT 1) o
LEFT JOIN {term} l FORCE INDEX (sqllock_revoke) ON l.revoke_for = UNHEX(?) AND l.mode = {mode}
LIMIT 1000000;

-- name: purge_pins
-- A row that is locked is in use.
DELETE p FROM (
	SELECT p.name
	FROM JSON_TABLE(?, '$[*]' COLUMNS (i FOR ORDINALITY, name VARCHAR(510) CHARACTER SET ascii PATH '$[0]')) r
	STRAIGHT_JOIN {pin} p FORCE INDEX (PRIMARY) ON p.name = UNHEX(r.name)
	LIMIT 1000000 FOR UPDATE /*!80000 OF p */ SKIP LOCKED
) d STRAIGHT_JOIN {pin} p FORCE INDEX (PRIMARY) ON p.name = d.name;

-- name: purge
-- Any row that is not locked can be deleted, because whoever needs it makes it again.
DELETE l FROM (
	SELECT l.name, p.age
	FROM JSON_TABLE(?, '$[*]' COLUMNS (i FOR ORDINALITY, name VARCHAR(510) CHARACTER SET ascii PATH '$[0]')) r
	STRAIGHT_JOIN (SELECT CAST(? AS SIGNED) AS age) p
	STRAIGHT_JOIN {term} l FORCE INDEX (PRIMARY) ON l.mode = {mode} AND l.name = UNHEX(r.name)
	WHERE l.acq IS NULL AND GREATEST(l.ended_at, l.version + 1) <= {now} - p.age AND l.not_before <= {now}
	LIMIT 1000000 FOR UPDATE /*!80000 OF l */ SKIP LOCKED
) d STRAIGHT_JOIN {term} l FORCE INDEX (PRIMARY) ON l.mode = {mode} AND l.name = d.name
WHERE l.acq IS NULL AND GREATEST(l.ended_at, l.version + 1) <= {now} - d.age AND l.not_before <= {now};

-- name: find_sweep
-- The row of a name that no lock has says when somebody last began to clean up, and in delay for how
-- long nobody does so after that. See unique.sql.
SELECT l.version <= {now} - GREATEST(p.every, l.delay) OR l.version > {now} + 10000000
FROM {term} l FORCE INDEX (PRIMARY) STRAIGHT_JOIN (SELECT CAST(? AS SIGNED) AS every) p
WHERE l.mode = {mode} AND l.name = '';

-- name: sweep_due
UPDATE (
	SELECT l.name
	FROM {term} l FORCE INDEX (PRIMARY) STRAIGHT_JOIN (SELECT CAST(? AS SIGNED) AS every) p
	WHERE l.mode = {mode} AND l.name = ''
	  AND (l.version <= {now} - GREATEST(p.every, l.delay) OR l.version > {now} + 10000000)
	LIMIT 1000000 FOR UPDATE /*!80000 OF l */ SKIP LOCKED
) d STRAIGHT_JOIN {term} l FORCE INDEX (PRIMARY) ON l.mode = {mode} AND l.name = d.name
SET l.version = {now};

-- name: sweep_pause
UPDATE (
	SELECT l.name, p.pause
	FROM {term} l FORCE INDEX (PRIMARY) STRAIGHT_JOIN (SELECT CAST(? AS SIGNED) AS pause) p
	WHERE l.mode = {mode} AND l.name = ''
	LIMIT 1000000 FOR UPDATE /*!80000 OF l */ SKIP LOCKED
) d STRAIGHT_JOIN {term} l FORCE INDEX (PRIMARY) ON l.mode = {mode} AND l.name = d.name
SET l.delay = d.pause;

-- name: guard
-- It runs in a transaction of the application and locks the row of the term: who would begin the
-- next has to change it. The holder does not change it before it lets go. A session that lives
-- where the transaction is makes them of one server.
SELECT HEX((SELECT m.id FROM {meta} m)), UPPER(CONCAT(@@GLOBAL.read_only)) IN ('0', 'OFF')
	AND l.lock_key IS NOT NULL AND COALESCE(IS_USED_LOCK(CONVERT(l.lock_key USING utf8mb4)) = l.pid, 0)
FROM {term} l FORCE INDEX (PRIMARY)
WHERE l.mode = {mode} AND l.name = UNHEX(?) AND l.version = ? AND l.acq = UNHEX(?) LOCK IN SHARE MODE;

-- name: database
SELECT HEX(id) FROM {meta};

-- name: find_pins
SELECT LOWER(HEX(p.name))
FROM {pin} p FORCE INDEX (PRIMARY)
WHERE p.name IN (UNHEX(?), UNHEX(?))
LIMIT 1000000;

-- name: make_pin
INSERT IGNORE INTO {pin} (name) VALUES (UNHEX(?));

-- name: pin
-- The lock of for-update mode, in a session of the library's own.
SELECT 1
FROM {pin} p FORCE INDEX (PRIMARY)
WHERE p.name = UNHEX(?)
FOR UPDATE;

-- name: pin_now
SELECT 1
FROM {pin} p FORCE INDEX (PRIMARY)
WHERE p.name = UNHEX(?)
FOR UPDATE NOWAIT;

-- name: pin_skip
SELECT 1
FROM {pin} p FORCE INDEX (PRIMARY)
WHERE p.name = UNHEX(?)
FOR UPDATE SKIP LOCKED;

-- name: pin_shared
SELECT 1
FROM {pin} p FORCE INDEX (PRIMARY)
WHERE p.name = UNHEX(?)
/*M!100600 LOCK IN SHARE MODE */ /*!80000 FOR SHARE */;

-- name: pin_shared_now
SELECT 1
FROM {pin} p FORCE INDEX (PRIMARY)
WHERE p.name = UNHEX(?)
/*M!100600 LOCK IN SHARE MODE */ /*!80000 FOR SHARE */ NOWAIT;

-- name: pin_shared_skip
SELECT 1
FROM {pin} p FORCE INDEX (PRIMARY)
WHERE p.name = UNHEX(?)
/*M!100600 LOCK IN SHARE MODE */ /*!80000 FOR SHARE */ SKIP LOCKED;

-- name: pin_server
-- On which server a transaction of the application runs, and whether in this database.
SELECT UPPER(CONCAT(@@GLOBAL.read_only)) IN ('0', 'OFF'), @@hostname, @@port, @@server_id,
	/*M!100600 @@datadir */ /*!80000 @@server_uuid */
FROM {pin} p FORCE INDEX (PRIMARY)
WHERE p.name = UNHEX(?)
/*M!100600 LOCK IN SHARE MODE */ /*!80000 FOR SHARE */;

-- name: server
SELECT UPPER(CONCAT(@@GLOBAL.read_only)) IN ('0', 'OFF'), @@hostname, @@port, @@server_id,
	/*M!100600 @@datadir */ /*!80000 @@server_uuid */;

-- name: settings
-- Where a connection leads, its id, and what is set on it while it holds locks.
SELECT UPPER(CONCAT(@@GLOBAL.read_only)) IN ('0', 'OFF'), @@hostname, @@port, @@server_id,
	/*M!100600 @@datadir */ /*!80000 @@server_uuid */, CONNECTION_ID(), @@SESSION.wait_timeout, @@SESSION.net_write_timeout
	/*M!100600 , @@SESSION.idle_transaction_timeout, @@SESSION.idle_readonly_transaction_timeout,
		@@SESSION.idle_write_transaction_timeout */ /*!80000 , @@SESSION.innodb_lock_wait_timeout */;

-- name: writable
SELECT UPPER(CONCAT(@@GLOBAL.read_only)) IN ('0', 'OFF');

-- name: mark
-- It takes a lock of a session's own, by which others can tell that it lives.
SELECT GET_LOCK(?, 0), CONNECTION_ID();

-- name: marked
SELECT COALESCE(IS_USED_LOCK(?), 0), IS_FREE_LOCK(?), CONNECTION_ID();

-- name: unmark
SELECT RELEASE_LOCK(?);

-- name: lock
-- It takes locks of advisory mode alone: behind the term, as it was before, stands 1 for a lock that
-- it has got, 0 if somebody else has it, -1 if others share it. NULL is an error. Those who share a
-- lock have one of 32 others, named after it.
SELECT r.i - 1, l.name, {now}, HEX(l.acq), l.owner, l.label, l.version, l.acquired_at, l.ended_at, l.holds,
	l.not_before, l.delay, l.ended, l.revoked, l.revoke_for IS NOT NULL,
	IF(l.lock_key IS NULL, 0, COALESCE(IS_USED_LOCK(CONVERT(l.lock_key USING utf8mb4)) = l.pid, 0)),
	0, 0, UPPER(CONCAT(@@GLOBAL.read_only)) IN ('0', 'OFF'), NULL,
	CASE GET_LOCK(CONCAT('sqllock:', r.k), 0) WHEN 1 THEN IF(
		IS_FREE_LOCK(CONCAT('sqllock:', r.k, ':0')) = 1 AND IS_FREE_LOCK(CONCAT('sqllock:', r.k, ':1')) = 1 AND
		IS_FREE_LOCK(CONCAT('sqllock:', r.k, ':2')) = 1 AND IS_FREE_LOCK(CONCAT('sqllock:', r.k, ':3')) = 1 AND
		IS_FREE_LOCK(CONCAT('sqllock:', r.k, ':4')) = 1 AND IS_FREE_LOCK(CONCAT('sqllock:', r.k, ':5')) = 1 AND
		IS_FREE_LOCK(CONCAT('sqllock:', r.k, ':6')) = 1 AND IS_FREE_LOCK(CONCAT('sqllock:', r.k, ':7')) = 1 AND
		IS_FREE_LOCK(CONCAT('sqllock:', r.k, ':8')) = 1 AND IS_FREE_LOCK(CONCAT('sqllock:', r.k, ':9')) = 1 AND
		IS_FREE_LOCK(CONCAT('sqllock:', r.k, ':10')) = 1 AND IS_FREE_LOCK(CONCAT('sqllock:', r.k, ':11')) = 1 AND
		IS_FREE_LOCK(CONCAT('sqllock:', r.k, ':12')) = 1 AND IS_FREE_LOCK(CONCAT('sqllock:', r.k, ':13')) = 1 AND
		IS_FREE_LOCK(CONCAT('sqllock:', r.k, ':14')) = 1 AND IS_FREE_LOCK(CONCAT('sqllock:', r.k, ':15')) = 1 AND
		IS_FREE_LOCK(CONCAT('sqllock:', r.k, ':16')) = 1 AND IS_FREE_LOCK(CONCAT('sqllock:', r.k, ':17')) = 1 AND
		IS_FREE_LOCK(CONCAT('sqllock:', r.k, ':18')) = 1 AND IS_FREE_LOCK(CONCAT('sqllock:', r.k, ':19')) = 1 AND
		IS_FREE_LOCK(CONCAT('sqllock:', r.k, ':20')) = 1 AND IS_FREE_LOCK(CONCAT('sqllock:', r.k, ':21')) = 1 AND
		IS_FREE_LOCK(CONCAT('sqllock:', r.k, ':22')) = 1 AND IS_FREE_LOCK(CONCAT('sqllock:', r.k, ':23')) = 1 AND
		IS_FREE_LOCK(CONCAT('sqllock:', r.k, ':24')) = 1 AND IS_FREE_LOCK(CONCAT('sqllock:', r.k, ':25')) = 1 AND
		IS_FREE_LOCK(CONCAT('sqllock:', r.k, ':26')) = 1 AND IS_FREE_LOCK(CONCAT('sqllock:', r.k, ':27')) = 1 AND
		IS_FREE_LOCK(CONCAT('sqllock:', r.k, ':28')) = 1 AND IS_FREE_LOCK(CONCAT('sqllock:', r.k, ':29')) = 1 AND
		IS_FREE_LOCK(CONCAT('sqllock:', r.k, ':30')) = 1 AND IS_FREE_LOCK(CONCAT('sqllock:', r.k, ':31')) = 1,
		1, IF(RELEASE_LOCK(CONCAT('sqllock:', r.k)) = 1, -1, NULL)) WHEN 0 THEN 0 END
FROM JSON_TABLE(?, '$[*]' COLUMNS (
	i FOR ORDINALITY,
	name VARCHAR(510) CHARACTER SET ascii PATH '$[0]',
	k CHAR(32) CHARACTER SET ascii PATH '$[1]')) r
LEFT JOIN {term} l FORCE INDEX (PRIMARY) ON l.mode = {mode} AND l.name = UNHEX(r.name)
LIMIT 1000000;

-- name: lock_shared
-- It takes one of the 32 locks, and the lock itself for as long as that takes: 2 and more is the
-- number of the one and 2, 0 and -1 are as above. They are tried from the number slot on. The lock
-- itself is given back when another one was got, and not before.
SELECT r.i - 1, l.name, {now}, HEX(l.acq), l.owner, l.label, l.version, l.acquired_at, l.ended_at, l.holds,
	l.not_before, l.delay, l.ended, l.revoked, l.revoke_for IS NOT NULL,
	IF(l.lock_key IS NULL, 0, COALESCE(IS_USED_LOCK(CONVERT(l.lock_key USING utf8mb4)) = l.pid, 0)),
	0, 0, UPPER(CONCAT(@@GLOBAL.read_only)) IN ('0', 'OFF'), NULL,
	CASE GET_LOCK(CONCAT('sqllock:', r.k), 0) WHEN 1 THEN CASE
		WHEN GET_LOCK(CONCAT('sqllock:', r.k, ':', (r.slot + 0) % 32), 0) = 1 THEN IF(RELEASE_LOCK(CONCAT('sqllock:', r.k)) = 1, 2 + (r.slot + 0) % 32, NULL)
		WHEN GET_LOCK(CONCAT('sqllock:', r.k, ':', (r.slot + 1) % 32), 0) = 1 THEN IF(RELEASE_LOCK(CONCAT('sqllock:', r.k)) = 1, 2 + (r.slot + 1) % 32, NULL)
		WHEN GET_LOCK(CONCAT('sqllock:', r.k, ':', (r.slot + 2) % 32), 0) = 1 THEN IF(RELEASE_LOCK(CONCAT('sqllock:', r.k)) = 1, 2 + (r.slot + 2) % 32, NULL)
		WHEN GET_LOCK(CONCAT('sqllock:', r.k, ':', (r.slot + 3) % 32), 0) = 1 THEN IF(RELEASE_LOCK(CONCAT('sqllock:', r.k)) = 1, 2 + (r.slot + 3) % 32, NULL)
		WHEN GET_LOCK(CONCAT('sqllock:', r.k, ':', (r.slot + 4) % 32), 0) = 1 THEN IF(RELEASE_LOCK(CONCAT('sqllock:', r.k)) = 1, 2 + (r.slot + 4) % 32, NULL)
		WHEN GET_LOCK(CONCAT('sqllock:', r.k, ':', (r.slot + 5) % 32), 0) = 1 THEN IF(RELEASE_LOCK(CONCAT('sqllock:', r.k)) = 1, 2 + (r.slot + 5) % 32, NULL)
		WHEN GET_LOCK(CONCAT('sqllock:', r.k, ':', (r.slot + 6) % 32), 0) = 1 THEN IF(RELEASE_LOCK(CONCAT('sqllock:', r.k)) = 1, 2 + (r.slot + 6) % 32, NULL)
		WHEN GET_LOCK(CONCAT('sqllock:', r.k, ':', (r.slot + 7) % 32), 0) = 1 THEN IF(RELEASE_LOCK(CONCAT('sqllock:', r.k)) = 1, 2 + (r.slot + 7) % 32, NULL)
		WHEN GET_LOCK(CONCAT('sqllock:', r.k, ':', (r.slot + 8) % 32), 0) = 1 THEN IF(RELEASE_LOCK(CONCAT('sqllock:', r.k)) = 1, 2 + (r.slot + 8) % 32, NULL)
		WHEN GET_LOCK(CONCAT('sqllock:', r.k, ':', (r.slot + 9) % 32), 0) = 1 THEN IF(RELEASE_LOCK(CONCAT('sqllock:', r.k)) = 1, 2 + (r.slot + 9) % 32, NULL)
		WHEN GET_LOCK(CONCAT('sqllock:', r.k, ':', (r.slot + 10) % 32), 0) = 1 THEN IF(RELEASE_LOCK(CONCAT('sqllock:', r.k)) = 1, 2 + (r.slot + 10) % 32, NULL)
		WHEN GET_LOCK(CONCAT('sqllock:', r.k, ':', (r.slot + 11) % 32), 0) = 1 THEN IF(RELEASE_LOCK(CONCAT('sqllock:', r.k)) = 1, 2 + (r.slot + 11) % 32, NULL)
		WHEN GET_LOCK(CONCAT('sqllock:', r.k, ':', (r.slot + 12) % 32), 0) = 1 THEN IF(RELEASE_LOCK(CONCAT('sqllock:', r.k)) = 1, 2 + (r.slot + 12) % 32, NULL)
		WHEN GET_LOCK(CONCAT('sqllock:', r.k, ':', (r.slot + 13) % 32), 0) = 1 THEN IF(RELEASE_LOCK(CONCAT('sqllock:', r.k)) = 1, 2 + (r.slot + 13) % 32, NULL)
		WHEN GET_LOCK(CONCAT('sqllock:', r.k, ':', (r.slot + 14) % 32), 0) = 1 THEN IF(RELEASE_LOCK(CONCAT('sqllock:', r.k)) = 1, 2 + (r.slot + 14) % 32, NULL)
		WHEN GET_LOCK(CONCAT('sqllock:', r.k, ':', (r.slot + 15) % 32), 0) = 1 THEN IF(RELEASE_LOCK(CONCAT('sqllock:', r.k)) = 1, 2 + (r.slot + 15) % 32, NULL)
		WHEN GET_LOCK(CONCAT('sqllock:', r.k, ':', (r.slot + 16) % 32), 0) = 1 THEN IF(RELEASE_LOCK(CONCAT('sqllock:', r.k)) = 1, 2 + (r.slot + 16) % 32, NULL)
		WHEN GET_LOCK(CONCAT('sqllock:', r.k, ':', (r.slot + 17) % 32), 0) = 1 THEN IF(RELEASE_LOCK(CONCAT('sqllock:', r.k)) = 1, 2 + (r.slot + 17) % 32, NULL)
		WHEN GET_LOCK(CONCAT('sqllock:', r.k, ':', (r.slot + 18) % 32), 0) = 1 THEN IF(RELEASE_LOCK(CONCAT('sqllock:', r.k)) = 1, 2 + (r.slot + 18) % 32, NULL)
		WHEN GET_LOCK(CONCAT('sqllock:', r.k, ':', (r.slot + 19) % 32), 0) = 1 THEN IF(RELEASE_LOCK(CONCAT('sqllock:', r.k)) = 1, 2 + (r.slot + 19) % 32, NULL)
		WHEN GET_LOCK(CONCAT('sqllock:', r.k, ':', (r.slot + 20) % 32), 0) = 1 THEN IF(RELEASE_LOCK(CONCAT('sqllock:', r.k)) = 1, 2 + (r.slot + 20) % 32, NULL)
		WHEN GET_LOCK(CONCAT('sqllock:', r.k, ':', (r.slot + 21) % 32), 0) = 1 THEN IF(RELEASE_LOCK(CONCAT('sqllock:', r.k)) = 1, 2 + (r.slot + 21) % 32, NULL)
		WHEN GET_LOCK(CONCAT('sqllock:', r.k, ':', (r.slot + 22) % 32), 0) = 1 THEN IF(RELEASE_LOCK(CONCAT('sqllock:', r.k)) = 1, 2 + (r.slot + 22) % 32, NULL)
		WHEN GET_LOCK(CONCAT('sqllock:', r.k, ':', (r.slot + 23) % 32), 0) = 1 THEN IF(RELEASE_LOCK(CONCAT('sqllock:', r.k)) = 1, 2 + (r.slot + 23) % 32, NULL)
		WHEN GET_LOCK(CONCAT('sqllock:', r.k, ':', (r.slot + 24) % 32), 0) = 1 THEN IF(RELEASE_LOCK(CONCAT('sqllock:', r.k)) = 1, 2 + (r.slot + 24) % 32, NULL)
		WHEN GET_LOCK(CONCAT('sqllock:', r.k, ':', (r.slot + 25) % 32), 0) = 1 THEN IF(RELEASE_LOCK(CONCAT('sqllock:', r.k)) = 1, 2 + (r.slot + 25) % 32, NULL)
		WHEN GET_LOCK(CONCAT('sqllock:', r.k, ':', (r.slot + 26) % 32), 0) = 1 THEN IF(RELEASE_LOCK(CONCAT('sqllock:', r.k)) = 1, 2 + (r.slot + 26) % 32, NULL)
		WHEN GET_LOCK(CONCAT('sqllock:', r.k, ':', (r.slot + 27) % 32), 0) = 1 THEN IF(RELEASE_LOCK(CONCAT('sqllock:', r.k)) = 1, 2 + (r.slot + 27) % 32, NULL)
		WHEN GET_LOCK(CONCAT('sqllock:', r.k, ':', (r.slot + 28) % 32), 0) = 1 THEN IF(RELEASE_LOCK(CONCAT('sqllock:', r.k)) = 1, 2 + (r.slot + 28) % 32, NULL)
		WHEN GET_LOCK(CONCAT('sqllock:', r.k, ':', (r.slot + 29) % 32), 0) = 1 THEN IF(RELEASE_LOCK(CONCAT('sqllock:', r.k)) = 1, 2 + (r.slot + 29) % 32, NULL)
		WHEN GET_LOCK(CONCAT('sqllock:', r.k, ':', (r.slot + 30) % 32), 0) = 1 THEN IF(RELEASE_LOCK(CONCAT('sqllock:', r.k)) = 1, 2 + (r.slot + 30) % 32, NULL)
		WHEN GET_LOCK(CONCAT('sqllock:', r.k, ':', (r.slot + 31) % 32), 0) = 1 THEN IF(RELEASE_LOCK(CONCAT('sqllock:', r.k)) = 1, 2 + (r.slot + 31) % 32, NULL)
		ELSE IF(RELEASE_LOCK(CONCAT('sqllock:', r.k)) = 1, -1, NULL) END WHEN 0 THEN 0 END
FROM JSON_TABLE(?, '$[*]' COLUMNS (
	i FOR ORDINALITY,
	name VARCHAR(510) CHARACTER SET ascii PATH '$[0]',
	k CHAR(32) CHARACTER SET ascii PATH '$[1]',
	slot INT PATH '$[2]')) r
LEFT JOIN {term} l FORCE INDEX (PRIMARY) ON l.mode = {mode} AND l.name = UNHEX(r.name)
LIMIT 1000000;

-- name: unlock
SELECT r.i - 1, RELEASE_LOCK(CONVERT(UNHEX(r.name) USING utf8mb4))
FROM JSON_TABLE(?, '$[*]' COLUMNS (i FOR ORDINALITY, name VARCHAR(510) CHARACTER SET ascii PATH '$[0]')) r
LIMIT 1000000;

-- name: readers
-- How many sessions share locks.
SELECT r.i - 1,
		(IS_FREE_LOCK(CONCAT('sqllock:', r.k, ':0')) = 0) + (IS_FREE_LOCK(CONCAT('sqllock:', r.k, ':1')) = 0) +
		(IS_FREE_LOCK(CONCAT('sqllock:', r.k, ':2')) = 0) + (IS_FREE_LOCK(CONCAT('sqllock:', r.k, ':3')) = 0) +
		(IS_FREE_LOCK(CONCAT('sqllock:', r.k, ':4')) = 0) + (IS_FREE_LOCK(CONCAT('sqllock:', r.k, ':5')) = 0) +
		(IS_FREE_LOCK(CONCAT('sqllock:', r.k, ':6')) = 0) + (IS_FREE_LOCK(CONCAT('sqllock:', r.k, ':7')) = 0) +
		(IS_FREE_LOCK(CONCAT('sqllock:', r.k, ':8')) = 0) + (IS_FREE_LOCK(CONCAT('sqllock:', r.k, ':9')) = 0) +
		(IS_FREE_LOCK(CONCAT('sqllock:', r.k, ':10')) = 0) + (IS_FREE_LOCK(CONCAT('sqllock:', r.k, ':11')) = 0) +
		(IS_FREE_LOCK(CONCAT('sqllock:', r.k, ':12')) = 0) + (IS_FREE_LOCK(CONCAT('sqllock:', r.k, ':13')) = 0) +
		(IS_FREE_LOCK(CONCAT('sqllock:', r.k, ':14')) = 0) + (IS_FREE_LOCK(CONCAT('sqllock:', r.k, ':15')) = 0) +
		(IS_FREE_LOCK(CONCAT('sqllock:', r.k, ':16')) = 0) + (IS_FREE_LOCK(CONCAT('sqllock:', r.k, ':17')) = 0) +
		(IS_FREE_LOCK(CONCAT('sqllock:', r.k, ':18')) = 0) + (IS_FREE_LOCK(CONCAT('sqllock:', r.k, ':19')) = 0) +
		(IS_FREE_LOCK(CONCAT('sqllock:', r.k, ':20')) = 0) + (IS_FREE_LOCK(CONCAT('sqllock:', r.k, ':21')) = 0) +
		(IS_FREE_LOCK(CONCAT('sqllock:', r.k, ':22')) = 0) + (IS_FREE_LOCK(CONCAT('sqllock:', r.k, ':23')) = 0) +
		(IS_FREE_LOCK(CONCAT('sqllock:', r.k, ':24')) = 0) + (IS_FREE_LOCK(CONCAT('sqllock:', r.k, ':25')) = 0) +
		(IS_FREE_LOCK(CONCAT('sqllock:', r.k, ':26')) = 0) + (IS_FREE_LOCK(CONCAT('sqllock:', r.k, ':27')) = 0) +
		(IS_FREE_LOCK(CONCAT('sqllock:', r.k, ':28')) = 0) + (IS_FREE_LOCK(CONCAT('sqllock:', r.k, ':29')) = 0) +
		(IS_FREE_LOCK(CONCAT('sqllock:', r.k, ':30')) = 0) + (IS_FREE_LOCK(CONCAT('sqllock:', r.k, ':31')) = 0)
FROM JSON_TABLE(?, '$[*]' COLUMNS (
	i FOR ORDINALITY,
	name VARCHAR(510) CHARACTER SET ascii PATH '$[0]',
	k CHAR(32) CHARACTER SET ascii PATH '$[1]')) r
LIMIT 1000000;
