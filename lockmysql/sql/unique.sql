-- The statements of unique mode, for MySQL 8.0 and MariaDB 10.6 or newer. Package rowstore
-- says what each of them does. In {lock}, {claim}, {waiter}, {meta} and {fence} the names of
-- the tables are filled in. {now} stands for
-- TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)): the server's clock when the
-- statement began, which no time zone can bend. PREPARE and EXECUTE … USING run a statement.
--
-- A batch is one parameter: a JSON array with an array for each row. Names, texts, ids and
-- values are hexadecimal digits, so that no character set of a connection can bend them. No
-- digits stand for NULL. Texts beside a batch are hexadecimal digits, too.
--
-- A column of the type MEDIUMTEXT costs the server a temporary table on disk. The lines with
-- the words value and carries are left out of grant_new, grant, insert_claims and write_rows if
-- no row of a batch has any, and none had one before.
--
-- The library puts bounds before each statement, see bounded in queries.go: one that meets a
-- locked table gives up after a second. A locked row is passed over. FORCE INDEX keeps the
-- optimizer of a small table from locking all of its rows. STRAIGHT_JOIN keeps the order of
-- the batch, which is that of the names. LIMIT takes the place of sql_select_limit, and
-- makes that a derived table stays one. A statement that changes rows locks them in a
-- derived table: that is the one way to pass over locked rows that works on both products.

-- name: clock
SELECT {now};

-- name: rows
SELECT l.name, {now}, l.version, LOWER(HEX(l.acq)), COALESCE(l.owner, ''), COALESCE(l.label, ''),
	LOWER(HEX(l.locker)), l.value, l.holds, l.since, l.expires_at, l.limit_at, l.delay,
	l.not_before, l.permits, l.waiting, l.holding, l.seq, l.ended, l.revoked
FROM JSON_TABLE(?, '$[*]' COLUMNS (name VARCHAR(510) CHARACTER SET ascii PATH '$[0]')) r
STRAIGHT_JOIN {lock} l FORCE INDEX (PRIMARY) ON l.name = UNHEX(r.name)
LIMIT 1000000;

-- name: rows_one
-- It is rows of one name.
SELECT l.name, {now}, l.version, LOWER(HEX(l.acq)), COALESCE(l.owner, ''), COALESCE(l.label, ''),
	LOWER(HEX(l.locker)), l.value, l.holds, l.since, l.expires_at, l.limit_at, l.delay,
	l.not_before, l.permits, l.waiting, l.holding, l.seq, l.ended, l.revoked
FROM {lock} l FORCE INDEX (PRIMARY)
WHERE l.name = UNHEX(?);

-- name: claims
-- To find where a window ends reads no more than the window. To read what stands before
-- reads all claims of the name. A claim of a Locker that is passed over by others is read
-- besides the window.
WITH b AS (
	SELECT UNHEX(r.name) AS name
	FROM JSON_TABLE(?, '$[*]' COLUMNS (name VARCHAR(510) CHARACTER SET ascii PATH '$[0]')) r
	LIMIT 1000000
), d AS (
	SELECT b.name, (
		SELECT q.seq
		FROM {claim} q FORCE INDEX (PRIMARY) STRAIGHT_JOIN {waiter} v ON v.locker = q.locker
		WHERE q.name = b.name AND q.state = 0 AND v.expires_at > {now}
		ORDER BY q.seq LIMIT ?, 1) AS behind
	FROM b
	LIMIT 1000000
)
SELECT c.name, {now}, LOWER(HEX(c.acq)), c.state, c.kind, c.slot, c.seq, c.token, c.holds,
	c.ttl, c.handed, c.max_hold, c.since, c.expires_at, c.limit_at, c.delay,
	LOWER(HEX(c.locker)), c.owner, c.label, c.value, COALESCE(w.expires_at > {now}, 0)
FROM d STRAIGHT_JOIN {claim} c FORCE INDEX (PRIMARY) ON c.name = d.name
LEFT JOIN {waiter} w FORCE INDEX (PRIMARY) ON w.locker = c.locker
WHERE c.state = 1 OR (d.behind IS NULL OR c.seq < d.behind)
	AND (w.expires_at > {now} OR c.locker = UNHEX(?))
LIMIT 1000000;

-- name: claims_one
-- It is claims of one name. It reads no more than the window.
(SELECT c.name, {now}, LOWER(HEX(c.acq)), c.state, c.kind, c.slot, c.seq, c.token, c.holds,
	c.ttl, c.handed, c.max_hold, c.since, c.expires_at, c.limit_at, c.delay,
	LOWER(HEX(c.locker)), c.owner, c.label, c.value, 0
FROM {claim} c FORCE INDEX (PRIMARY)
WHERE c.name = UNHEX(?) AND c.state = 1
LIMIT 1000000)
UNION ALL
(SELECT c.name, {now}, LOWER(HEX(c.acq)), c.state, c.kind, c.slot, c.seq, c.token, c.holds,
	c.ttl, c.handed, c.max_hold, c.since, c.expires_at, c.limit_at, c.delay,
	LOWER(HEX(c.locker)), c.owner, c.label, c.value, COALESCE(w.expires_at > {now}, 0)
FROM {claim} c FORCE INDEX (PRIMARY) LEFT JOIN {waiter} w FORCE INDEX (PRIMARY) ON w.locker = c.locker
WHERE c.name = UNHEX(?) AND c.state = 0 AND (w.expires_at > {now} OR c.locker = UNHEX(?))
ORDER BY c.seq LIMIT ?);

-- name: claims_of
SELECT c.name, {now}, LOWER(HEX(c.acq)), c.state, c.kind, c.slot, c.seq, c.token, c.holds,
	c.ttl, c.handed, c.max_hold, c.since, c.expires_at, c.limit_at, c.delay,
	LOWER(HEX(c.locker)), c.owner, c.label, c.value, COALESCE(w.expires_at > {now}, 0)
FROM JSON_TABLE(?, '$[*]' COLUMNS (
	name VARCHAR(510) CHARACTER SET ascii PATH '$[0]',
	acq CHAR(32) CHARACTER SET ascii PATH '$[1]')) r
STRAIGHT_JOIN {claim} c FORCE INDEX (sqllock_claim_acq)
	ON c.acq = UNHEX(r.acq) AND c.name = UNHEX(r.name)
LEFT JOIN {waiter} w FORCE INDEX (PRIMARY) ON w.locker = c.locker
LIMIT 1000000;

-- name: claims_of_one
-- It is claims_of for one claim.
SELECT c.name, {now}, LOWER(HEX(c.acq)), c.state, c.kind, c.slot, c.seq, c.token, c.holds,
	c.ttl, c.handed, c.max_hold, c.since, c.expires_at, c.limit_at, c.delay,
	LOWER(HEX(c.locker)), c.owner, c.label, c.value, COALESCE(w.expires_at > {now}, 0)
FROM {claim} c FORCE INDEX (sqllock_claim_acq) LEFT JOIN {waiter} w FORCE INDEX (PRIMARY) ON w.locker = c.locker
WHERE c.acq = UNHEX(?) AND c.name = UNHEX(?);

-- name: all_claims
SELECT c.name, {now}, LOWER(HEX(c.acq)), c.state, c.kind, c.slot, c.seq, c.token, c.holds,
	c.ttl, c.handed, c.max_hold, c.since, c.expires_at, c.limit_at, c.delay,
	LOWER(HEX(c.locker)), c.owner, c.label, c.value,
	CASE WHEN w.expires_at > {now} THEN 1 WHEN w.expires_at > {now} - p.gone THEN 0 ELSE 2 END
FROM JSON_TABLE(?, '$[*]' COLUMNS (name VARCHAR(510) CHARACTER SET ascii PATH '$[0]')) r
STRAIGHT_JOIN (SELECT CAST(? AS SIGNED) AS gone) p
STRAIGHT_JOIN {claim} c FORCE INDEX (PRIMARY) ON c.name = UNHEX(r.name)
LEFT JOIN {waiter} w FORCE INDEX (PRIMARY) ON w.locker = c.locker
LIMIT 1000000;

-- name: page
-- It reads no value.
SELECT l.name, {now}, l.version, LOWER(HEX(l.acq)), COALESCE(l.owner, ''), COALESCE(l.label, ''),
	LOWER(HEX(l.locker)), NULL, l.holds, l.since, l.expires_at, l.limit_at, l.delay,
	l.not_before, l.permits, l.waiting, l.holding, l.seq, l.ended, l.revoked
FROM (
	SELECT k.name FROM {lock} k FORCE INDEX (PRIMARY) WHERE k.name > UNHEX(?) ORDER BY k.name LIMIT ?
) d STRAIGHT_JOIN {lock} l FORCE INDEX (PRIMARY) ON l.name = d.name
WHERE ? = 1 OR l.acq IS NOT NULL OR l.holding > 0 OR l.not_before > {now}
ORDER BY l.name LIMIT 1000000;

-- name: page_end
SELECT COUNT(*), COALESCE(MAX(d.name), '')
FROM (
	SELECT k.name FROM {lock} k FORCE INDEX (PRIMARY) WHERE k.name > UNHEX(?) ORDER BY k.name LIMIT ?
) d;

-- name: readers
SELECT c.name, c.kind, COUNT(*), MAX(c.expires_at)
FROM JSON_TABLE(?, '$[*]' COLUMNS (name VARCHAR(510) CHARACTER SET ascii PATH '$[0]')) r
STRAIGHT_JOIN {claim} c FORCE INDEX (PRIMARY) ON c.name = UNHEX(r.name) AND c.state = 1
WHERE c.expires_at > {now}
GROUP BY c.name, c.kind
LIMIT 1000000;

-- name: together
SELECT h.name, LOWER(HEX(h.acq)), h.kind, h.slot, h.owner, h.label, h.token, h.since, h.expires_at
FROM (
	SELECT c.*, ROW_NUMBER() OVER (PARTITION BY c.name ORDER BY c.slot, c.seq) AS place
	FROM JSON_TABLE(?, '$[*]' COLUMNS (name VARCHAR(510) CHARACTER SET ascii PATH '$[0]')) r
	STRAIGHT_JOIN {claim} c FORCE INDEX (PRIMARY) ON c.name = UNHEX(r.name) AND c.state = 1
	WHERE c.expires_at > {now}
) h
WHERE h.place <= ?
ORDER BY h.name, h.place LIMIT 1000000;

-- name: queues
SELECT q.name, q.waiters, q.label, q.since, q.kind
FROM (
	SELECT c.name, c.label, c.since, c.kind,
		COUNT(*) OVER (PARTITION BY c.name) AS waiters,
		ROW_NUMBER() OVER (PARTITION BY c.name ORDER BY c.seq) AS place
	FROM JSON_TABLE(?, '$[*]' COLUMNS (name VARCHAR(510) CHARACTER SET ascii PATH '$[0]')) r
	STRAIGHT_JOIN {claim} c FORCE INDEX (PRIMARY) ON c.name = UNHEX(r.name) AND c.state = 0
	STRAIGHT_JOIN {waiter} w FORCE INDEX (PRIMARY) ON w.locker = c.locker AND w.expires_at > {now}
) q
WHERE q.place <= ?
ORDER BY q.name, q.place LIMIT 1000000;

-- name: waits
SELECT c.name, LOWER(HEX(c.acq)), c.label, c.seq, c.since, c.kind, LOWER(HEX(c.carries))
FROM {claim} c LEFT JOIN {waiter} w FORCE INDEX (PRIMARY) ON w.locker = c.locker
WHERE c.state = 0 AND c.carries IS NOT NULL AND (w.expires_at > {now} OR c.locker = UNHEX(?))
LIMIT 1000000;

-- name: holders
SELECT l.name, LOWER(HEX(IF(l.expires_at > {now}, COALESCE(l.acq, c.acq), c.acq)))
FROM JSON_TABLE(?, '$[*]' COLUMNS (name VARCHAR(510) CHARACTER SET ascii PATH '$[0]')) r
STRAIGHT_JOIN {lock} l FORCE INDEX (PRIMARY) ON l.name = UNHEX(r.name)
LEFT JOIN {claim} c FORCE INDEX (PRIMARY)
	ON c.name = l.name AND c.state = 1 AND c.expires_at > {now}
WHERE l.acq IS NOT NULL AND l.expires_at > {now} OR c.acq IS NOT NULL
LIMIT 1000000;

-- name: make_rows
-- It does not try to insert what exists: that would lock the row. The version is
-- that before the clock's, so that the first term has the clock's. With a lower one, the entry
-- of the row could meet a guard, below whose entry there is no room.
INSERT IGNORE INTO {lock} (name, version, expires_at)
SELECT UNHEX(r.name), {now} - 1, {now}
FROM JSON_TABLE(?, '$[*]' COLUMNS (name VARCHAR(510) CHARACTER SET ascii PATH '$[0]')) r
WHERE NOT EXISTS (SELECT 1 FROM {lock} l FORCE INDEX (PRIMARY) WHERE l.name = UNHEX(r.name));

-- name: lock_rows
SELECT l.name, {now}, l.version, LOWER(HEX(l.acq)), COALESCE(l.owner, ''), COALESCE(l.label, ''),
	LOWER(HEX(l.locker)), l.value, l.holds, l.since, l.expires_at, l.limit_at, l.delay,
	l.not_before, l.permits, l.waiting, l.holding, l.seq, l.ended, l.revoked
FROM JSON_TABLE(?, '$[*]' COLUMNS (name VARCHAR(510) CHARACTER SET ascii PATH '$[0]')) r
STRAIGHT_JOIN {lock} l FORCE INDEX (PRIMARY) ON l.name = UNHEX(r.name)
LIMIT 1000000 FOR UPDATE /*!80000 OF l */ SKIP LOCKED;

-- name: lock_rows_one
-- It is lock_rows for one name. It fails if somebody else has locked the row: MariaDB knows no
-- NOWAIT in a block. Where the call has time, MariaDB waits for a second instead, and then the clock
-- is read after the wait, see nowLocked in queries.go.
/*M!100600 SET STATEMENT lock_wait_timeout = 1, innodb_lock_wait_timeout = 0 FOR */
SELECT l.name, {now}, l.version, LOWER(HEX(l.acq)), COALESCE(l.owner, ''), COALESCE(l.label, ''),
	LOWER(HEX(l.locker)), l.value, l.holds, l.since, l.expires_at, l.limit_at, l.delay,
	l.not_before, l.permits, l.waiting, l.holding, l.seq, l.ended, l.revoked
FROM {lock} l FORCE INDEX (PRIMARY)
WHERE l.name = UNHEX(?)
FOR UPDATE /*!80000 NOWAIT */;

-- name: lock_free_rows
SELECT l.name, {now}, l.version, LOWER(HEX(l.acq)), COALESCE(l.owner, ''), COALESCE(l.label, ''),
	LOWER(HEX(l.locker)), l.value, l.holds, l.since, l.expires_at, l.limit_at, l.delay,
	l.not_before, l.permits, l.waiting, l.holding, l.seq, l.ended, l.revoked
FROM JSON_TABLE(?, '$[*]' COLUMNS (name VARCHAR(510) CHARACTER SET ascii PATH '$[0]')) r
STRAIGHT_JOIN {lock} l FORCE INDEX (PRIMARY) ON l.name = UNHEX(r.name)
LIMIT 1000000 FOR UPDATE /*!80000 OF l */ SKIP LOCKED;

-- name: count_rows
-- How many of the names have a row. It fails if somebody else has locked one. It locks them,
-- because in REPEATABLE READ a statement that does not would fix what the transaction reads,
-- before the claims are locked.
SELECT COUNT(*)
FROM JSON_TABLE(?, '$[*]' COLUMNS (name VARCHAR(510) CHARACTER SET ascii PATH '$[0]')) r
STRAIGHT_JOIN {lock} l FORCE INDEX (PRIMARY) ON l.name = UNHEX(r.name)
FOR UPDATE /*!80000 OF l */ NOWAIT;

-- name: unpinned
-- It locks the entry that a guard locks, in the index of versions. Renewals do not come near
-- it. The entry comes after the row, which says that there is one: to look for an entry in
-- vain would lock a gap. The sum keeps the optimizer from looking for the entry first.
SELECT l.name, {now}
FROM JSON_TABLE(?, '$[*]' COLUMNS (name VARCHAR(510) CHARACTER SET ascii PATH '$[0]')) r
STRAIGHT_JOIN {lock} l FORCE INDEX (PRIMARY) ON l.name = UNHEX(r.name)
STRAIGHT_JOIN {lock} g FORCE INDEX (sqllock_guard) ON g.name = l.name AND g.version = l.version + 0
WHERE ? = 1 OR l.acq IS NULL OR l.expires_at <= {now}
LIMIT 1000000 FOR UPDATE /*!80000 OF l, g */ SKIP LOCKED;

-- name: lock_claims
-- It locks the row of a claim, which renewals lock, and its entry in the index of
-- acquisitions, which guards lock.
SELECT c.name, LOWER(HEX(c.acq))
FROM JSON_TABLE(?, '$[*]' COLUMNS (name VARCHAR(510) CHARACTER SET ascii PATH '$[0]')) r
STRAIGHT_JOIN {claim} c FORCE INDEX (PRIMARY) ON c.name = UNHEX(r.name) AND c.state = 1
STRAIGHT_JOIN {claim} g FORCE INDEX (sqllock_claim_acq) ON g.acq = c.acq
WHERE ? = 1 OR c.expires_at <= {now}
LIMIT 1000000 FOR UPDATE /*!80000 OF c, g */ SKIP LOCKED;

-- name: write_rows
UPDATE (
	SELECT
		UNHEX(NULLIF(r.value, '')) AS value,
		UNHEX(r.name) AS name, r.version, UNHEX(NULLIF(r.acq, '')) AS acq, UNHEX(r.owner) AS owner,
		UNHEX(r.label) AS label, UNHEX(NULLIF(r.locker, '')) AS locker, r.holds, r.since, r.expires_at,
		r.limit_at, r.delay, r.not_before, r.permits, r.waiting, r.holding, r.seq, r.ended, r.revoked
	FROM JSON_TABLE(?, '$[*]' COLUMNS (
		name VARCHAR(510) CHARACTER SET ascii PATH '$[0]',
		version BIGINT PATH '$[1]',
		acq CHAR(32) CHARACTER SET ascii PATH '$[2]',
		owner VARCHAR(510) CHARACTER SET ascii PATH '$[3]',
		label VARCHAR(510) CHARACTER SET ascii PATH '$[4]',
		locker CHAR(32) CHARACTER SET ascii PATH '$[5]',
		value MEDIUMTEXT CHARACTER SET ascii PATH '$[6]',
		holds INT PATH '$[7]',
		since BIGINT PATH '$[8]',
		expires_at BIGINT PATH '$[9]',
		limit_at BIGINT PATH '$[10]',
		delay BIGINT PATH '$[11]',
		not_before BIGINT PATH '$[12]',
		permits INT PATH '$[13]',
		waiting INT PATH '$[14]',
		holding INT PATH '$[15]',
		seq BIGINT PATH '$[16]',
		ended TINYINT PATH '$[17]',
		revoked BIGINT PATH '$[18]')) r
	LIMIT 1000000
) d STRAIGHT_JOIN {lock} l FORCE INDEX (PRIMARY) ON l.name = d.name
SET
	l.value = d.value,
	l.version = d.version, l.acq = d.acq, l.owner = IF(d.acq IS NULL, NULL, d.owner),
	l.label = IF(d.acq IS NULL, NULL, d.label), l.locker = d.locker, l.holds = d.holds,
	l.since = d.since, l.expires_at = d.expires_at, l.limit_at = d.limit_at, l.delay = d.delay,
	l.not_before = d.not_before, l.permits = d.permits, l.waiting = d.waiting,
	l.holding = d.holding, l.seq = d.seq, l.ended = d.ended, l.revoked = d.revoked;

-- name: write_rows_one
-- It is write_rows for one row.
UPDATE {lock} l FORCE INDEX (PRIMARY)
SET
	l.version = ?, l.acq = UNHEX(NULLIF(?, x'')), l.owner = UNHEX(NULLIF(?, x'')),
	l.label = UNHEX(NULLIF(?, x'')), l.locker = UNHEX(NULLIF(?, x'')),
	l.value = UNHEX(NULLIF(?, x'')), l.holds = ?, l.since = ?, l.expires_at = ?, l.limit_at = ?,
	l.delay = ?, l.not_before = ?, l.permits = ?, l.waiting = ?, l.holding = ?, l.seq = ?,
	l.ended = ?, l.revoked = ?
WHERE l.name = UNHEX(?);

-- name: delete_claims
DELETE c FROM (
	SELECT UNHEX(r.name) AS name, UNHEX(r.acq) AS acq
	FROM JSON_TABLE(?, '$[*]' COLUMNS (
		name VARCHAR(510) CHARACTER SET ascii PATH '$[0]',
		acq CHAR(32) CHARACTER SET ascii PATH '$[1]')) r
	LIMIT 1000000
) d STRAIGHT_JOIN {claim} c FORCE INDEX (sqllock_claim_acq) ON c.acq = d.acq AND c.name = d.name;

-- name: delete_claims_one
-- It is delete_claims for one claim.
DELETE c FROM {claim} c FORCE INDEX (sqllock_claim_acq)
WHERE c.acq = UNHEX(?) AND c.name = UNHEX(?);

-- name: insert_claims
INSERT INTO {claim} (
	value,
	carries,
	name, acq, state, kind, slot, seq, token, holds, ttl, handed, max_hold, since, expires_at,
	limit_at, delay, locker, owner, label)
SELECT
	UNHEX(NULLIF(r.value, '')),
	UNHEX(NULLIF(r.carries, '')),
	UNHEX(r.name), UNHEX(r.acq), r.state, r.kind, r.slot, r.seq, r.token, r.holds, r.ttl, r.handed,
	r.max_hold, r.since, r.expires_at, r.limit_at, r.delay, UNHEX(r.locker), UNHEX(r.owner), UNHEX(r.label)
FROM JSON_TABLE(?, '$[*]' COLUMNS (
	name VARCHAR(510) CHARACTER SET ascii PATH '$[0]',
	acq CHAR(32) CHARACTER SET ascii PATH '$[1]',
	state TINYINT PATH '$[2]',
	kind TINYINT PATH '$[3]',
	slot INT PATH '$[4]',
	seq BIGINT PATH '$[5]',
	token BIGINT PATH '$[6]',
	holds INT PATH '$[7]',
	ttl BIGINT PATH '$[8]',
	handed BIGINT PATH '$[9]',
	max_hold BIGINT PATH '$[10]',
	since BIGINT PATH '$[11]',
	expires_at BIGINT PATH '$[12]',
	limit_at BIGINT PATH '$[13]',
	delay BIGINT PATH '$[14]',
	locker CHAR(32) CHARACTER SET ascii PATH '$[15]',
	owner VARCHAR(510) CHARACTER SET ascii PATH '$[16]',
	value MEDIUMTEXT CHARACTER SET ascii PATH '$[18]',
	carries MEDIUMTEXT CHARACTER SET ascii PATH '$[19]',
	label VARCHAR(510) CHARACTER SET ascii PATH '$[17]')) r;

-- name: insert_claims_one
-- It is insert_claims for one claim.
INSERT INTO {claim} (
	name, acq, state, kind, slot, seq, token, holds, ttl, handed, max_hold, since, expires_at,
	limit_at, delay, locker, owner, label, value, carries)
VALUES (
	UNHEX(?), UNHEX(?), ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?,
	UNHEX(?), UNHEX(?), UNHEX(?), UNHEX(NULLIF(?, x'')), UNHEX(NULLIF(?, x'')));

-- name: beat
INSERT INTO {waiter} (locker, expires_at) VALUES (UNHEX(?), {now} + ?)
ON DUPLICATE KEY UPDATE expires_at = GREATEST(expires_at, VALUES(expires_at));

-- name: claims_of_locker
SELECT c.name, LOWER(HEX(c.acq))
FROM {claim} c FORCE INDEX (sqllock_claim_locker)
WHERE c.locker = UNHEX(?) AND c.state = 0 AND c.since <= {now} - ?
ORDER BY c.name LIMIT 1000000;

-- name: set_value
-- It changes the row only, not the entry that a guard locks.
UPDATE (
	SELECT l.name, UNHEX(NULLIF(r.value, '')) AS value
	FROM JSON_TABLE(?, '$[*]' COLUMNS (
		name VARCHAR(510) CHARACTER SET ascii PATH '$[0]',
		acq CHAR(32) CHARACTER SET ascii PATH '$[1]',
		version BIGINT PATH '$[2]',
		value MEDIUMTEXT CHARACTER SET ascii PATH '$[3]',
		rising TINYINT PATH '$[4]')) r
	STRAIGHT_JOIN {lock} l FORCE INDEX (PRIMARY) ON l.name = UNHEX(r.name)
	WHERE l.acq = UNHEX(r.acq) AND l.version = r.version AND l.expires_at > {now}
	  AND (r.rising = 0 OR l.value IS NULL OR l.value <= UNHEX(r.value))
	LIMIT 1000000 FOR UPDATE /*!80000 OF l */ SKIP LOCKED
) d STRAIGHT_JOIN {lock} l FORCE INDEX (PRIMARY) ON l.name = d.name
SET l.value = d.value;

-- name: raise
UPDATE (
	SELECT l.name, r.version
	FROM JSON_TABLE(?, '$[*]' COLUMNS (
		name VARCHAR(510) CHARACTER SET ascii PATH '$[0]',
		acq CHAR(32) CHARACTER SET ascii PATH '$[1]',
		version BIGINT PATH '$[2]')) r
	STRAIGHT_JOIN {lock} l FORCE INDEX (PRIMARY) ON l.name = UNHEX(r.name)
	WHERE l.acq = UNHEX(r.acq) AND l.version <= r.version AND l.expires_at > {now}
	LIMIT 1000000 FOR UPDATE /*!80000 OF l */ SKIP LOCKED
) d STRAIGHT_JOIN {lock} l FORCE INDEX (PRIMARY) ON l.name = d.name
SET l.version = d.version;

-- name: asked
SELECT l.name, l.asked
FROM JSON_TABLE(?, '$[*]' COLUMNS (name VARCHAR(510) CHARACTER SET ascii PATH '$[0]')) r
STRAIGHT_JOIN {lock} l FORCE INDEX (PRIMARY) ON l.name = UNHEX(r.name)
LIMIT 1000000;

-- name: ask_to_resign
-- It changes the row only, not the entry that a guard locks.
UPDATE (
	SELECT l.name
	FROM JSON_TABLE(?, '$[*]' COLUMNS (
		name VARCHAR(510) CHARACTER SET ascii PATH '$[0]',
		version BIGINT PATH '$[1]')) r
	STRAIGHT_JOIN {lock} l FORCE INDEX (PRIMARY) ON l.name = UNHEX(r.name)
	WHERE l.version = r.version AND l.acq IS NOT NULL AND l.asked <> l.version
	  AND l.expires_at > {now}
	LIMIT 1000000 FOR UPDATE /*!80000 OF l */ SKIP LOCKED
) d STRAIGHT_JOIN {lock} l FORCE INDEX (PRIMARY) ON l.name = d.name
SET l.asked = l.version;

-- name: sweep_window
-- What costs is to read the rows: claims are looked up only of rows that count some, and what
-- needs nothing stays on the server. The end of the window is read apart, from the same index:
-- that is cheaper than a window function, and MariaDB would read a common table twice, too.
SELECT r.name, r.visit, r.idle, r.seen
FROM (
	SELECT d.name, d.visit, d.idle, 0 AS seen
	FROM (
		SELECT k.name,
			k.acq IS NOT NULL AND k.expires_at <= {now}
			OR (k.waiting <> 0 OR k.holding <> 0) AND EXISTS (
				SELECT 1 FROM {claim} c FORCE INDEX (PRIMARY)
				LEFT JOIN {waiter} w FORCE INDEX (PRIMARY) ON w.locker = c.locker
				WHERE c.name = k.name AND (c.state = 1 AND c.expires_at <= {now}
					OR c.state = 0 AND COALESCE(w.expires_at, 0) <= {now} - ?)) AS visit,
			k.acq IS NULL AND k.waiting = 0 AND k.holding = 0 AND k.not_before <= {now}
				AND GREATEST(k.expires_at, k.version) < {now} - ?
				AND NOT EXISTS (
					SELECT 1 FROM {claim} c FORCE INDEX (PRIMARY) WHERE c.name = k.name) AS idle
		FROM {lock} k FORCE INDEX (PRIMARY)
		WHERE k.name > UNHEX(?) ORDER BY k.name LIMIT ?
	) d
	WHERE d.visit OR d.idle
	UNION ALL
	SELECT COALESCE(MAX(e.name), ''), 0, 0, COUNT(*)
	FROM (
		SELECT k.name FROM {lock} k FORCE INDEX (PRIMARY)
		WHERE k.name > UNHEX(?) ORDER BY k.name LIMIT ?
	) e
) r
ORDER BY r.seen, r.name LIMIT 1000000;

-- name: purge
DELETE l FROM (
	SELECT l.name
	FROM JSON_TABLE(?, '$[*]' COLUMNS (name VARCHAR(510) CHARACTER SET ascii PATH '$[0]')) r
	STRAIGHT_JOIN {lock} l FORCE INDEX (PRIMARY) ON l.name = UNHEX(r.name)
	WHERE l.acq IS NULL AND l.waiting = 0 AND l.holding = 0 AND l.not_before <= {now}
		AND GREATEST(l.expires_at, l.version) < {now} - ?
	LIMIT 1000000 FOR UPDATE /*!80000 OF l */ SKIP LOCKED
) d STRAIGHT_JOIN {lock} l FORCE INDEX (PRIMARY) ON l.name = d.name
WHERE l.acq IS NULL AND l.waiting = 0 AND l.holding = 0 AND l.not_before <= {now};

-- name: purge_waiters
DELETE w FROM (
	SELECT v.locker
	FROM {waiter} v
	WHERE v.expires_at <= {now} - ? AND NOT EXISTS (
		SELECT 1 FROM {claim} c FORCE INDEX (sqllock_claim_locker) WHERE c.locker = v.locker)
	LIMIT 1000000 FOR UPDATE /*!80000 OF v */ SKIP LOCKED
) d STRAIGHT_JOIN {waiter} w ON w.locker = d.locker;

-- name: find_waiters
-- Whether purge_waiters would delete any: to look for one in vain with it would leave a trace.
SELECT EXISTS (
	SELECT 1 FROM {waiter} v
	WHERE v.expires_at <= {now} - ? AND NOT EXISTS (
		SELECT 1 FROM {claim} c FORCE INDEX (sqllock_claim_locker) WHERE c.locker = v.locker));

-- name: find_sweep
-- Whether sweep_due would change the row.
SELECT m.swept_at <= {now} - GREATEST(p.every, m.sweep_pause) OR m.swept_at > {now} + 10000000
FROM {meta} m STRAIGHT_JOIN (SELECT CAST(? AS SIGNED) AS every) p
WHERE m.one = 1;

-- name: sweep_due
-- A clock that was set back does not keep everybody waiting. Ten seconds are more than a
-- statement takes that began before another set the time that it finds.
UPDATE (
	SELECT m.one
	FROM {meta} m STRAIGHT_JOIN (SELECT CAST(? AS SIGNED) AS every) p
	WHERE m.one = 1
	  AND (m.swept_at <= {now} - GREATEST(p.every, m.sweep_pause) OR m.swept_at > {now} + 10000000)
	LIMIT 1 FOR UPDATE /*!80000 OF m */ SKIP LOCKED
) d STRAIGHT_JOIN {meta} m ON m.one = d.one
SET m.swept_at = {now};

-- name: sweep_pause
UPDATE (
	SELECT m.one, p.pause
	FROM {meta} m STRAIGHT_JOIN (SELECT CAST(? AS SIGNED) AS pause) p
	WHERE m.one = 1
	LIMIT 1 FOR UPDATE /*!80000 OF m */ SKIP LOCKED
) d STRAIGHT_JOIN {meta} m ON m.one = d.one
SET m.sweep_pause = d.pause;

-- name: look_many
-- Those of many names that cannot be granted at once, and whether they are new. As a rule
-- there is none.
SELECT UNHEX(r.name), l.name IS NULL
FROM JSON_TABLE(?, '$[*]' COLUMNS (name VARCHAR(510) CHARACTER SET ascii PATH '$[0]')) r
LEFT JOIN {lock} l FORCE INDEX (PRIMARY) ON l.name = UNHEX(r.name)
WHERE NOT COALESCE(l.acq IS NULL AND l.waiting = 0 AND l.holding = 0 AND l.not_before <= {now}
	AND l.version < {now}, FALSE)
LIMIT 1000000;

-- name: grant_new
-- LAST_INSERT_ID brings the clock back with the reply, whether the connection counts found
-- rows or changed ones. All versions that a grant of many gives are the clock, or the floors.
INSERT IGNORE INTO {lock} (
	value,
	name, acq, owner, locker, label, version, holds, since, expires_at)
SELECT
	UNHEX(NULLIF(r.value, '')),
	UNHEX(r.name), UNHEX(r.acq), UNHEX(r.owner), p.locker, p.label,
	GREATEST(LAST_INSERT_ID({now}), r.floor), 1, {now}, {now} + r.ttl
FROM JSON_TABLE(?, '$[*]' COLUMNS (
	name VARCHAR(510) CHARACTER SET ascii PATH '$[0]',
	acq CHAR(32) CHARACTER SET ascii PATH '$[1]',
	owner VARCHAR(510) CHARACTER SET ascii PATH '$[2]',
	value MEDIUMTEXT CHARACTER SET ascii PATH '$[3]',
	ttl BIGINT PATH '$[4]',
	floor BIGINT PATH '$[5]')) r
CROSS JOIN (SELECT UNHEX(?) AS locker, UNHEX(?) AS label) p;

-- name: grant_one
-- It is grant for one name, for MariaDB, which can be told to wait for no lock at all. If the
-- row is locked, or its entry by a guard, the statement fails at once.
SET STATEMENT lock_wait_timeout = 0, innodb_lock_wait_timeout = 0, sql_safe_updates = 0
	/*M!110602 , innodb_snapshot_isolation = 0 */ FOR
UPDATE {lock} l FORCE INDEX (PRIMARY)
SET l.acq = UNHEX(?), l.owner = UNHEX(?), l.locker = UNHEX(?), l.label = UNHEX(?),
	l.value = UNHEX(NULLIF(?, x'')), l.version = GREATEST(LAST_INSERT_ID({now}), ?), l.holds = 1,
	l.since = {now}, l.expires_at = {now} + ?, l.limit_at = 0, l.delay = 0, l.ended = 0
WHERE l.name = UNHEX(?) AND l.acq IS NULL AND l.waiting = 0 AND l.holding = 0
	AND l.not_before <= {now} AND l.version < GREATEST({now}, ?);

-- name: grant_quickly
-- It is grant for MariaDB, without values: a row without a holder has none. If one of the rows
-- is locked, nothing is changed.
SET STATEMENT lock_wait_timeout = 0, innodb_lock_wait_timeout = 0, sql_safe_updates = 0
	/*M!110602 , innodb_snapshot_isolation = 0 */ FOR
UPDATE JSON_TABLE(?, '$[*]' COLUMNS (
	name VARCHAR(510) CHARACTER SET ascii PATH '$[0]',
	acq CHAR(32) CHARACTER SET ascii PATH '$[1]',
	owner VARCHAR(510) CHARACTER SET ascii PATH '$[2]',
	ttl BIGINT PATH '$[4]',
	floor BIGINT PATH '$[5]')) r
STRAIGHT_JOIN {lock} l FORCE INDEX (PRIMARY) ON l.name = UNHEX(r.name)
SET l.acq = UNHEX(r.acq), l.owner = UNHEX(r.owner), l.locker = UNHEX(?), l.label = UNHEX(?),
	l.version = GREATEST(LAST_INSERT_ID({now}), r.floor), l.holds = 1, l.since = {now},
	l.expires_at = {now} + r.ttl, l.limit_at = 0, l.delay = 0, l.ended = 0
WHERE l.acq IS NULL AND l.waiting = 0 AND l.holding = 0 AND l.not_before <= {now}
	AND l.version < GREATEST({now}, r.floor);

-- name: grant_all
-- It is grant_quickly for all of the names or none. For a name that is held the sum is too large
-- for its type, which fails the statement: then nothing is changed.
SET STATEMENT lock_wait_timeout = 0, innodb_lock_wait_timeout = 0, sql_safe_updates = 0
	/*M!110602 , innodb_snapshot_isolation = 0 */ FOR
UPDATE JSON_TABLE(?, '$[*]' COLUMNS (
	name VARCHAR(510) CHARACTER SET ascii PATH '$[0]',
	acq CHAR(32) CHARACTER SET ascii PATH '$[1]',
	owner VARCHAR(510) CHARACTER SET ascii PATH '$[2]',
	ttl BIGINT PATH '$[4]',
	floor BIGINT PATH '$[5]')) r
STRAIGHT_JOIN {lock} l FORCE INDEX (PRIMARY) ON l.name = UNHEX(r.name)
SET l.expires_at = IF(
		l.acq IS NULL AND l.waiting = 0 AND l.holding = 0 AND l.not_before <= {now}
			AND l.version < GREATEST({now}, r.floor),
		{now} + r.ttl, GREATEST(l.version, 1) + 9223372036854775807),
	l.acq = UNHEX(r.acq), l.owner = UNHEX(r.owner), l.locker = UNHEX(?), l.label = UNHEX(?),
	l.version = GREATEST(LAST_INSERT_ID({now}), r.floor), l.holds = 1, l.since = {now},
	l.limit_at = 0, l.delay = 0, l.ended = 0;

-- name: grant
-- What makes somebody else the holder locks the row, and then the entry that a guard locks,
-- see unpinned.
UPDATE (
	SELECT
		UNHEX(NULLIF(r.value, '')) AS value,
		l.name, UNHEX(r.acq) AS acq, UNHEX(r.owner) AS owner, r.ttl,
		r.floor
	FROM JSON_TABLE(?, '$[*]' COLUMNS (
		name VARCHAR(510) CHARACTER SET ascii PATH '$[0]',
		acq CHAR(32) CHARACTER SET ascii PATH '$[1]',
		owner VARCHAR(510) CHARACTER SET ascii PATH '$[2]',
		value MEDIUMTEXT CHARACTER SET ascii PATH '$[3]',
		ttl BIGINT PATH '$[4]',
		floor BIGINT PATH '$[5]')) r
	STRAIGHT_JOIN {lock} l FORCE INDEX (PRIMARY) ON l.name = UNHEX(r.name)
	STRAIGHT_JOIN {lock} g FORCE INDEX (sqllock_guard) ON g.name = l.name AND g.version = l.version + 0
	WHERE l.acq IS NULL AND l.waiting = 0 AND l.holding = 0 AND l.not_before <= {now}
		AND l.version < GREATEST({now}, r.floor)
	LIMIT 1000000 FOR UPDATE /*!80000 OF l, g */ SKIP LOCKED
) d STRAIGHT_JOIN {lock} l FORCE INDEX (PRIMARY) ON l.name = d.name
SET
	l.value = d.value,
	l.acq = d.acq, l.owner = d.owner, l.locker = UNHEX(?), l.label = UNHEX(?),
	l.version = GREATEST(LAST_INSERT_ID({now}), d.floor), l.holds = 1, l.since = {now},
	l.expires_at = {now} + d.ttl, l.limit_at = 0, l.delay = 0, l.ended = 0;

-- name: granted
-- Which of the names a grant has granted that has granted only some.
SELECT r.i - 1, l.version, {now}, l.expires_at
FROM JSON_TABLE(?, '$[*]' COLUMNS (
	i FOR ORDINALITY,
	name VARCHAR(510) CHARACTER SET ascii PATH '$[0]',
	acq CHAR(32) CHARACTER SET ascii PATH '$[1]')) r
STRAIGHT_JOIN {lock} l FORCE INDEX (PRIMARY) ON l.name = UNHEX(r.name)
WHERE l.acq = UNHEX(r.acq)
LIMIT 1000000;

-- name: free_one
-- It is free for one name, for MariaDB: see grant_one. It asks no guard.
SET STATEMENT lock_wait_timeout = 0, innodb_lock_wait_timeout = 0, sql_safe_updates = 0
	/*M!110602 , innodb_snapshot_isolation = 0 */ FOR
UPDATE {lock} l FORCE INDEX (PRIMARY)
SET l.acq = NULL, l.owner = NULL, l.locker = NULL, l.label = NULL, l.value = NULL, l.holds = 0,
	l.ended = 1, l.expires_at = LEAST(l.expires_at, {now}), l.limit_at = 0, l.delay = 0
WHERE l.name = UNHEX(?) AND l.acq = UNHEX(?) AND l.version = ? AND l.waiting = 0;

-- name: free_quickly
-- It is free for MariaDB, for terms without values: a column of their kind, if only to empty
-- it, costs a table on disk. It asks no guard. For a term that is not as it should be the sum is
-- too large for its type, which fails the statement: then nothing is changed.
SET STATEMENT lock_wait_timeout = 0, innodb_lock_wait_timeout = 0, sql_safe_updates = 0
	/*M!110602 , innodb_snapshot_isolation = 0 */ FOR
UPDATE JSON_TABLE(?, '$[*]' COLUMNS (
	name VARCHAR(510) CHARACTER SET ascii PATH '$[0]',
	acq CHAR(32) CHARACTER SET ascii PATH '$[1]',
	version BIGINT PATH '$[2]')) r
STRAIGHT_JOIN {lock} l FORCE INDEX (PRIMARY) ON l.name = UNHEX(r.name)
SET l.expires_at = IF(
		l.acq = UNHEX(r.acq) AND l.version = r.version AND l.value IS NULL AND l.waiting = 0,
		LEAST(l.expires_at, {now}), GREATEST(l.version, 1) + 9223372036854775807),
	l.acq = NULL, l.owner = NULL, l.locker = NULL, l.label = NULL, l.holds = 0, l.ended = 1,
	l.limit_at = 0, l.delay = 0;

-- name: free
-- It frees all of the names or none: of a part nobody could tell which, because the next
-- holders may have them already.
UPDATE (
	SELECT l.name, r.min_hold, COUNT(*) OVER () AS found, p.wanted
	FROM JSON_TABLE(?, '$[*]' COLUMNS (
		name VARCHAR(510) CHARACTER SET ascii PATH '$[0]',
		acq CHAR(32) CHARACTER SET ascii PATH '$[1]',
		version BIGINT PATH '$[2]',
		min_hold BIGINT PATH '$[3]')) r
	STRAIGHT_JOIN (SELECT CAST(? AS SIGNED) AS wanted) p
	STRAIGHT_JOIN {lock} l FORCE INDEX (PRIMARY) ON l.name = UNHEX(r.name)
	STRAIGHT_JOIN {lock} g FORCE INDEX (sqllock_guard) ON g.name = l.name AND g.version = l.version + 0
	WHERE l.acq = UNHEX(r.acq) AND l.version = r.version AND l.waiting = 0
	LIMIT 1000000 FOR UPDATE /*!80000 OF l, g */ SKIP LOCKED
) d STRAIGHT_JOIN {lock} l FORCE INDEX (PRIMARY) ON l.name = d.name
SET l.acq = NULL, l.owner = NULL, l.locker = NULL, l.label = NULL, l.value = NULL, l.holds = 0,
	l.ended = 1, l.expires_at = LEAST(l.expires_at, {now}), l.limit_at = 0, l.delay = 0,
	l.not_before = IF(d.min_hold > 0 AND l.since + d.min_hold > {now}, GREATEST(l.not_before, l.since + d.min_hold), l.not_before)
WHERE d.found = d.wanted;

-- name: unheld_one
SELECT l.holding = 0 FROM {lock} l FORCE INDEX (PRIMARY) WHERE l.name = UNHEX(?);

-- name: hand_over_quickly
-- It ends an exclusive term that was never guarded, and hands the name over to the first claim that
-- waits for it and whose Locker lives, if that claim wants the name alone. It comes in a
-- transaction, for MariaDB. Then hand_over_claim deletes the claim, or free_one frees the name if
-- nobody waits for it, and handed_over says what has become of the name. If neither changes one row
-- the transaction fails: a visit does what is unusual.
--
-- The claim may be looked for before the row is locked. Claims enter with rising seq under the lock
-- of the row: one that is seen has nobody before it who is not. One that has left meanwhile is not
-- there to be deleted.
SET STATEMENT lock_wait_timeout = 0, innodb_lock_wait_timeout = 0, sql_safe_updates = 0
	/*M!110602 , innodb_snapshot_isolation = 0 */ FOR
UPDATE {lock} l FORCE INDEX (PRIMARY)
STRAIGHT_JOIN {claim} c FORCE INDEX (PRIMARY) ON c.name = l.name AND c.state = 0 AND c.seq = (
	SELECT q.seq FROM {claim} q FORCE INDEX (PRIMARY)
	WHERE q.name = UNHEX(?) AND q.state = 0 AND (q.locker = UNHEX(?) OR EXISTS (
		SELECT 1 FROM {waiter} w WHERE w.locker = q.locker AND w.expires_at > {now}))
	ORDER BY q.seq LIMIT 1)
SET l.acq = c.acq, l.owner = c.owner, l.locker = c.locker, l.label = c.label, l.value = c.value,
	l.version = GREATEST(l.version + 1, {now}), l.holds = 1, l.since = {now}, l.ended = 0,
	l.expires_at = {now} + LEAST(IF(c.locker = UNHEX(?), c.ttl, c.handed),
		IF(c.max_hold > 0, c.max_hold + c.delay, 9223372036854775807)),
	l.limit_at = IF(c.max_hold > 0, {now} + c.max_hold + c.delay, 0), l.delay = c.delay,
	l.waiting = l.waiting - 1
WHERE l.name = UNHEX(?) AND l.acq = UNHEX(?) AND l.version = ? AND l.since + ? <= {now}
	AND l.waiting > 0 AND l.holding = 0 AND l.not_before <= {now} AND c.kind = 0
	AND l.version < 9223372036854775807;

-- name: hand_over_claim
SET STATEMENT lock_wait_timeout = 0, innodb_lock_wait_timeout = 0, sql_safe_updates = 0
	/*M!110602 , innodb_snapshot_isolation = 0 */ FOR
DELETE c FROM {lock} l FORCE INDEX (PRIMARY)
STRAIGHT_JOIN {claim} c FORCE INDEX (sqllock_claim_acq) ON c.acq = l.acq AND c.name = l.name AND c.state = 0
WHERE l.name = UNHEX(?);

-- name: handed_over
SELECT 1, l.since, l.acq IS NOT NULL, LOWER(HEX(l.acq)), LOWER(HEX(l.locker)), l.version,
	l.expires_at, 0
FROM {lock} l FORCE INDEX (PRIMARY)
WHERE l.name = UNHEX(?);

-- name: queue_quickly
-- It makes room for a new claim of a name that somebody holds alone. It comes in a transaction, for
-- MariaDB, as hand_over_quickly does. queue_claim then enters the claim, and queued says who holds
-- the name, and whether another claim comes first. LAST_INSERT_ID hands the clock on.
SET STATEMENT lock_wait_timeout = 0, innodb_lock_wait_timeout = 0, sql_safe_updates = 0
	/*M!110602 , innodb_snapshot_isolation = 0 */ FOR
UPDATE {lock} l FORCE INDEX (PRIMARY)
SET l.seq = GREATEST(l.seq + 1, LAST_INSERT_ID({now})), l.waiting = l.waiting + 1
WHERE l.name = UNHEX(?) AND l.acq IS NOT NULL AND l.acq <> UNHEX(?) AND l.expires_at > {now}
	AND l.seq < 9223372036854775807;

-- name: queue_claim
SET STATEMENT lock_wait_timeout = 0, innodb_lock_wait_timeout = 0, sql_safe_updates = 0
	/*M!110602 , innodb_snapshot_isolation = 0 */ FOR
INSERT INTO {claim} (
	name, acq, state, kind, slot, seq, token, holds, ttl, handed, max_hold, since, expires_at,
	limit_at, delay, locker, owner, label, carries)
SELECT l.name, UNHEX(?), 0, ?, 0, l.seq, 0, 0, ?, ?, 0, LAST_INSERT_ID(), 0, 0, 0, UNHEX(?),
	UNHEX(?), UNHEX(?), UNHEX(NULLIF(?, ''))
FROM {lock} l FORCE INDEX (PRIMARY)
WHERE l.name = UNHEX(?);

-- name: queued
SELECT 1, LAST_INSERT_ID(), LOWER(HEX(l.acq)), COALESCE(l.owner, ''), COALESCE(l.label, ''),
	l.version, l.since, l.expires_at, l.waiting > 1 AND EXISTS (
		SELECT 1 FROM {claim} q FORCE INDEX (PRIMARY)
		WHERE q.name = l.name AND q.state = 0 AND q.seq < l.seq
		  AND (q.locker = UNHEX(?) OR EXISTS (
			SELECT 1 FROM {waiter} w WHERE w.locker = q.locker AND w.expires_at > {now})))
FROM {lock} l FORCE INDEX (PRIMARY)
WHERE l.name = UNHEX(?);

-- name: grant_permits
-- It grants permits of names that nobody holds or waits for, and whose rows say that there are so
-- many. It comes in a transaction, for MariaDB, and waits for no lock. A guard of the last term
-- alone keeps the entry of the version from being changed. LAST_INSERT_ID hands the clock on.
SET STATEMENT lock_wait_timeout = 0, innodb_lock_wait_timeout = 0, sql_safe_updates = 0
	/*M!110602 , innodb_snapshot_isolation = 0 */ FOR
UPDATE JSON_TABLE(?, '$[*]' COLUMNS (
	name VARCHAR(510) CHARACTER SET ascii PATH '$[0]',
	permits INT PATH '$[4]')) r
STRAIGHT_JOIN {lock} l FORCE INDEX (PRIMARY) ON l.name = UNHEX(r.name)
SET l.version = LAST_INSERT_ID({now}), l.seq = {now}, l.since = {now}, l.holding = 1, l.ended = 0
WHERE l.acq IS NULL AND l.waiting = 0 AND l.holding = 0 AND l.permits = r.permits
	AND l.not_before <= {now} AND l.version < {now} AND l.seq < {now};

-- name: grant_permits_one
SET STATEMENT lock_wait_timeout = 0, innodb_lock_wait_timeout = 0, sql_safe_updates = 0
	/*M!110602 , innodb_snapshot_isolation = 0 */ FOR
UPDATE {lock} l FORCE INDEX (PRIMARY)
SET l.version = LAST_INSERT_ID({now}), l.seq = {now}, l.since = {now}, l.holding = 1, l.ended = 0
WHERE l.name = UNHEX(?) AND l.acq IS NULL AND l.waiting = 0 AND l.holding = 0 AND l.permits = ?
	AND l.not_before <= {now} AND l.version < {now} AND l.seq < {now};

-- name: enter_permits
-- It makes the claims, after grant_permits, if that has changed all of the rows.
SET STATEMENT lock_wait_timeout = 0, innodb_lock_wait_timeout = 0, sql_safe_updates = 0
	/*M!110602 , innodb_snapshot_isolation = 0 */ FOR
INSERT INTO {claim} (
	name, acq, state, kind, slot, seq, token, holds, ttl, handed, max_hold, since, expires_at,
	limit_at, delay, locker, owner, label)
SELECT UNHEX(r.name), UNHEX(r.acq), 1, 2, 0, p.now, p.now, 1, r.ttl, r.ttl, 0, p.now,
	p.now + r.ttl, 0, 0, p.locker, UNHEX(r.owner), p.label
FROM JSON_TABLE(?, '$[*]' COLUMNS (
	name VARCHAR(510) CHARACTER SET ascii PATH '$[0]',
	acq CHAR(32) CHARACTER SET ascii PATH '$[1]',
	owner VARCHAR(510) CHARACTER SET ascii PATH '$[2]',
	ttl BIGINT PATH '$[3]')) r
CROSS JOIN (SELECT UNHEX(?) AS locker, UNHEX(?) AS label, LAST_INSERT_ID() AS now) p;

-- name: enter_permits_one
SET STATEMENT lock_wait_timeout = 0, innodb_lock_wait_timeout = 0, sql_safe_updates = 0
	/*M!110602 , innodb_snapshot_isolation = 0 */ FOR
INSERT INTO {claim} (
	name, acq, state, kind, slot, seq, token, holds, ttl, handed, max_hold, since, expires_at,
	limit_at, delay, locker, owner, label)
SELECT UNHEX(?), UNHEX(?), 1, 2, 0, p.now, p.now, 1, p.ttl, p.ttl, 0, p.now, p.now + p.ttl, 0, 0,
	UNHEX(?), UNHEX(?), UNHEX(?)
FROM (SELECT LAST_INSERT_ID() AS now, CAST(? AS SIGNED) AS ttl) p;

-- name: granted_permits
SELECT LAST_INSERT_ID();

-- name: free_claims
-- It ends terms of those who hold together, for whose names nobody waits; delete_claims, after
-- it in the same transaction, deletes the claims. See grant_permits.
SET STATEMENT lock_wait_timeout = 0, innodb_lock_wait_timeout = 0, sql_safe_updates = 0
	/*M!110602 , innodb_snapshot_isolation = 0 */ FOR
UPDATE JSON_TABLE(?, '$[*]' COLUMNS (
	name VARCHAR(510) CHARACTER SET ascii PATH '$[0]',
	acq CHAR(32) CHARACTER SET ascii PATH '$[1]',
	version BIGINT PATH '$[2]')) r
STRAIGHT_JOIN {lock} l FORCE INDEX (PRIMARY) ON l.name = UNHEX(r.name)
STRAIGHT_JOIN {claim} c FORCE INDEX (sqllock_claim_acq) ON c.acq = UNHEX(r.acq) AND c.name = l.name
SET l.expires_at = IF(l.holding = 1, LEAST(c.expires_at, {now}), l.expires_at),
	l.ended = IF(l.holding = 1, 1, l.ended), l.holding = l.holding - 1
WHERE l.waiting = 0 AND c.state = 1 AND c.token = r.version;

-- name: free_claims_one
SET STATEMENT lock_wait_timeout = 0, innodb_lock_wait_timeout = 0, sql_safe_updates = 0
	/*M!110602 , innodb_snapshot_isolation = 0 */ FOR
UPDATE {lock} l FORCE INDEX (PRIMARY)
STRAIGHT_JOIN {claim} c FORCE INDEX (sqllock_claim_acq) ON c.acq = UNHEX(?) AND c.name = l.name
SET l.expires_at = IF(l.holding = 1, LEAST(c.expires_at, {now}), l.expires_at),
	l.ended = IF(l.holding = 1, 1, l.ended), l.holding = l.holding - 1
WHERE l.name = UNHEX(?) AND l.waiting = 0 AND c.state = 1 AND c.token = ?;

-- name: renew
UPDATE (
	SELECT l.name, r.ttl, r.holds
	FROM JSON_TABLE(?, '$[*]' COLUMNS (
		name VARCHAR(510) CHARACTER SET ascii PATH '$[0]',
		acq CHAR(32) CHARACTER SET ascii PATH '$[1]',
		version BIGINT PATH '$[2]',
		ttl BIGINT PATH '$[3]',
		holds INT PATH '$[4]')) r
	STRAIGHT_JOIN {lock} l FORCE INDEX (PRIMARY) ON l.name = UNHEX(r.name)
	WHERE l.acq = UNHEX(r.acq) AND l.version = r.version AND l.expires_at > {now}
	LIMIT 1000000 FOR UPDATE /*!80000 OF l */ SKIP LOCKED
) d STRAIGHT_JOIN {lock} l FORCE INDEX (PRIMARY) ON l.name = d.name
SET l.expires_at = GREATEST(l.expires_at,
		LEAST(LAST_INSERT_ID({now}) + d.ttl, IF(l.limit_at = 0, 9223372036854775807, l.limit_at))),
	l.holds = d.holds;

-- name: renewed
-- The leases that are held, and until when.
SELECT r.i - 1, {now}, l.expires_at, l.limit_at, 0
FROM JSON_TABLE(?, '$[*]' COLUMNS (
	i FOR ORDINALITY,
	name VARCHAR(510) CHARACTER SET ascii PATH '$[0]',
	acq CHAR(32) CHARACTER SET ascii PATH '$[1]',
	version BIGINT PATH '$[2]')) r
STRAIGHT_JOIN {lock} l FORCE INDEX (PRIMARY) ON l.name = UNHEX(r.name)
WHERE l.acq = UNHEX(r.acq) AND l.version = r.version AND l.expires_at > {now}
LIMIT 1000000;

-- name: renew_shared
-- It changes the row of a claim by its primary key: it does not come near the entry that a
-- guard locks.
UPDATE (
	SELECT c.name, c.seq, r.ttl, r.holds
	FROM JSON_TABLE(?, '$[*]' COLUMNS (
		name VARCHAR(510) CHARACTER SET ascii PATH '$[0]',
		acq CHAR(32) CHARACTER SET ascii PATH '$[1]',
		version BIGINT PATH '$[2]',
		ttl BIGINT PATH '$[3]',
		holds INT PATH '$[4]',
		seq BIGINT PATH '$[5]')) r
	STRAIGHT_JOIN {claim} c FORCE INDEX (PRIMARY)
		ON c.name = UNHEX(r.name) AND c.state = 1 AND c.seq = r.seq
	WHERE c.acq = UNHEX(r.acq) AND c.token = r.version AND c.expires_at > {now}
	LIMIT 1000000 FOR UPDATE /*!80000 OF c */ SKIP LOCKED
) d STRAIGHT_JOIN {claim} c FORCE INDEX (PRIMARY) ON c.name = d.name AND c.state = 1 AND c.seq = d.seq
SET c.expires_at = GREATEST(c.expires_at,
		LEAST(LAST_INSERT_ID({now}) + d.ttl, IF(c.limit_at = 0, 9223372036854775807, c.limit_at))),
	c.holds = d.holds;

-- name: renewed_shared
SELECT r.i - 1, {now}, c.expires_at, c.limit_at, c.seq
FROM JSON_TABLE(?, '$[*]' COLUMNS (
	i FOR ORDINALITY,
	name VARCHAR(510) CHARACTER SET ascii PATH '$[0]',
	acq CHAR(32) CHARACTER SET ascii PATH '$[1]',
	version BIGINT PATH '$[2]')) r
STRAIGHT_JOIN {claim} c FORCE INDEX (sqllock_claim_acq)
	ON c.acq = UNHEX(r.acq) AND c.name = UNHEX(r.name) AND c.state = 1
WHERE c.token = r.version AND c.expires_at > {now}
LIMIT 1000000;

-- name: meta
SELECT schema_version, compatible_from, HEX(id) FROM {meta};

-- name: look_guard
-- Whether a term is that of who has the name alone, and of one of those who share it.
SELECT COALESCE(l.acq = p.acq AND l.version = p.version, FALSE), EXISTS (
	SELECT 1 FROM {claim} c FORCE INDEX (sqllock_claim_acq)
	WHERE c.acq = p.acq AND c.name = p.name AND c.state = 1 AND c.token = p.version)
FROM (SELECT UNHEX(?) AS name, UNHEX(?) AS acq, CAST(? AS SIGNED) AS version) p
STRAIGHT_JOIN {lock} l FORCE INDEX (PRIMARY) ON l.name = p.name;

-- name: guard
-- It locks the entry of the term in an index that has nothing else: a renewal changes the row
-- only, and passes. What makes somebody else the holder has to change or lock the entry. Where the
-- server knows wsrep_on, the 0 is read from it.
SELECT HEX((SELECT m.id FROM {meta} m)), 0 AS galera
FROM {lock} l FORCE INDEX (sqllock_guard)
WHERE l.name = UNHEX(?) AND l.version = ? LOCK IN SHARE MODE;

-- name: look_guard_all
-- How many terms are those of who has the names alone.
SELECT COUNT(*)
FROM JSON_TABLE(?, '$[*]' COLUMNS (
	name VARCHAR(510) CHARACTER SET ascii PATH '$[0]',
	acq CHAR(32) CHARACTER SET ascii PATH '$[1]',
	version BIGINT PATH '$[2]')) r
STRAIGHT_JOIN {lock} l FORCE INDEX (PRIMARY) ON l.name = UNHEX(r.name)
WHERE l.acq = UNHEX(r.acq) AND l.version = r.version;

-- name: guard_all
-- It is guard for several names, in their order: a row for each term. MySQL cannot lock a table
-- that is made of JSON.
SELECT HEX((SELECT m.id FROM {meta} m)), 0 AS galera
FROM JSON_TABLE(?, '$[*]' COLUMNS (
	name VARCHAR(510) CHARACTER SET ascii PATH '$[0]',
	version BIGINT PATH '$[2]')) r
STRAIGHT_JOIN {lock} l FORCE INDEX (sqllock_guard) ON l.name = UNHEX(r.name) AND l.version = r.version
/*M!100600 LOCK IN SHARE MODE */ /*!80000 FOR SHARE OF l */;

-- name: guard_shared
-- It is guard for one of those who share a name: what ends its term deletes the entry.
SELECT HEX((SELECT m.id FROM {meta} m)), 0 AS galera
FROM {claim} c FORCE INDEX (sqllock_claim_acq)
WHERE c.acq = UNHEX(?) AND c.name = UNHEX(?) AND c.state = 1 LOCK IN SHARE MODE;

-- name: guard_galera
-- It is guard on a node of a Galera cluster, which does not see what another node has locked. It
-- changes the row, as does whatever makes somebody else the holder: of two transactions that
-- change one row on two nodes, the second one to commit is undone. No place in the queue was ever
-- promised to be the next number.
UPDATE {lock} l FORCE INDEX (PRIMARY)
SET l.seq = l.seq + 1
WHERE l.name = UNHEX(?) AND l.acq = UNHEX(?) AND l.version = ?;

-- name: guard_shared_galera
-- It is guard_shared there. Of a claim that holds, handed is read by nobody.
UPDATE {claim} c FORCE INDEX (sqllock_claim_acq)
SET c.handed = c.handed + 1
WHERE c.acq = UNHEX(?) AND c.name = UNHEX(?) AND c.state = 1 AND c.token = ?;

-- name: lock_term
-- It comes before end_term, in a transaction of the application. It locks the row of the term
-- and the entry that guards lock, and passes over what another transaction has locked.
SELECT l.waiting
FROM {lock} l FORCE INDEX (PRIMARY)
STRAIGHT_JOIN {lock} g FORCE INDEX (sqllock_guard) ON g.name = l.name AND g.version = l.version + 0
WHERE l.name = UNHEX(?) AND l.acq = UNHEX(?) AND l.version = ?
FOR UPDATE /*!80000 OF l, g */ SKIP LOCKED;

-- name: end_term
-- It asks nothing of the claims, which the transaction may see as they were before.
UPDATE {lock} l FORCE INDEX (PRIMARY)
SET l.acq = NULL, l.owner = NULL, l.locker = NULL, l.label = NULL, l.value = NULL, l.holds = 0,
	l.ended = 1, l.expires_at = LEAST(l.expires_at, {now}), l.limit_at = 0, l.delay = 0,
	l.not_before = IF(? > 0 AND l.since + ? > {now}, GREATEST(l.not_before, l.since + ?), l.not_before)
WHERE l.name = UNHEX(?) AND l.acq = UNHEX(?) AND l.version = ?;

-- name: database
SELECT HEX(id) FROM {meta};

-- name: fence
-- It locks the row of the resource, and changes it, whether it raises its token or not: nodes of a
-- Galera cluster exclude each other by what they change.
INSERT INTO {fence} (resource, token) VALUES (UNHEX(?), ?)
ON DUPLICATE KEY UPDATE token = GREATEST(token, VALUES(token)), writes = writes + 1;

-- name: fence_token
SELECT token FROM {fence} WHERE resource = UNHEX(?) FOR UPDATE;
