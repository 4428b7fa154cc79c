-- MySQL commits each of these statements by itself, so each can be repeated: a
-- migration that ended half-way is finished by the next.

-- +goose Up

-- One row per name that was ever locked. acq says who holds the name alone. It is NULL,
-- as are owner, locker, label and value, if nobody does. Those who hold the name together
-- with others, and those who wait for it, have a row each in the table of claims. waiting
-- and holding count them. seq is the highest number that any of them ever had.
--
-- While a term is detached, nobody renews it: acq is a hash of the secret with which it can
-- be adopted, and owner and locker say nothing. asked is the version of the last term whose
-- holder was asked to end it.
--
-- Times are microseconds since the epoch, UTC, by this server's clock. version is the
-- token. ended is how the last term ended (1 released, 2 expired, 3 revoked), revoked the
-- version of the last term that was revoked. No renewal goes beyond limit_at, unless it is
-- 0. Texts are UTF-8 in binary columns: no collation makes two names one.
--
-- The index is what a guard locks: renewals do not touch it, a new holder does. In
-- REPEATABLE READ a guard on MariaDB also keeps new entries from the gap below its
-- own. No entry comes to stand there, because versions rise, and they go first.
CREATE TABLE IF NOT EXISTS `sqllock_lock` (
	name       VARBINARY(255) NOT NULL PRIMARY KEY,
	acq        BINARY(16),
	owner      VARBINARY(255),
	locker     BINARY(16),
	label      VARBINARY(255),
	version    BIGINT NOT NULL,
	holds      INT NOT NULL DEFAULT 0,
	since      BIGINT NOT NULL DEFAULT 0,
	expires_at BIGINT NOT NULL DEFAULT 0,
	limit_at   BIGINT NOT NULL DEFAULT 0,
	delay      BIGINT NOT NULL DEFAULT 0,
	not_before BIGINT NOT NULL DEFAULT 0,
	permits    INT NOT NULL DEFAULT 0,
	waiting    INT NOT NULL DEFAULT 0,
	holding    INT NOT NULL DEFAULT 0,
	seq        BIGINT NOT NULL DEFAULT 0,
	ended      TINYINT NOT NULL DEFAULT 0,
	revoked    BIGINT NOT NULL DEFAULT 0,
	asked      BIGINT NOT NULL DEFAULT 0,
	value      MEDIUMBLOB,
	UNIQUE INDEX sqllock_guard (version, name)
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC DEFAULT CHARACTER SET utf8mb4;

-- Who waits for a name (state 0), in the order of seq, and who holds it together with
-- others (state 1). kind is 0 exclusive, 1 shared, 2 a permit, which has a slot. A claim
-- that is handed the name keeps it for ttl if its own Locker does that, else for handed.
-- carries are acquisitions that the waiter holds, 16 bytes each. A renewal changes holds,
-- expires_at and limit_at alone, which stand in no index.
CREATE TABLE IF NOT EXISTS `sqllock_claim` (
	name       VARBINARY(255) NOT NULL,
	state      TINYINT NOT NULL,
	seq        BIGINT NOT NULL,
	acq        BINARY(16) NOT NULL,
	kind       TINYINT NOT NULL,
	slot       INT NOT NULL,
	token      BIGINT NOT NULL,
	holds      INT NOT NULL,
	ttl        BIGINT NOT NULL,
	handed     BIGINT NOT NULL,
	max_hold   BIGINT NOT NULL,
	since      BIGINT NOT NULL,
	expires_at BIGINT NOT NULL,
	limit_at   BIGINT NOT NULL,
	delay      BIGINT NOT NULL,
	locker     BINARY(16) NOT NULL,
	owner      VARBINARY(255) NOT NULL,
	label      VARBINARY(255) NOT NULL,
	value      MEDIUMBLOB,
	carries    MEDIUMBLOB,
	PRIMARY KEY (name, state, seq),
	UNIQUE INDEX sqllock_claim_acq (acq),
	INDEX sqllock_claim_locker (locker)
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC DEFAULT CHARACTER SET utf8mb4;

-- One row per Locker that waits for anything: until when the database takes it for alive.
CREATE TABLE IF NOT EXISTS `sqllock_waiter` (
	locker     BINARY(16) NOT NULL PRIMARY KEY,
	expires_at BIGINT NOT NULL
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC DEFAULT CHARACTER SET utf8mb4;

-- Which keys of a name are complete: what ran under the name with that key ran to its end.
-- attempt counts how often it was begun, since is when that was last, at when it was
-- completed, or 0. Rows are deleted some time after that. Of keys that are times, the
-- highest that would be deleted stays, with a since of 0: all keys up to it are complete.
CREATE TABLE IF NOT EXISTS `sqllock_done` (
	name    VARBINARY(255) NOT NULL,
	`key`   VARBINARY(255) NOT NULL,
	attempt BIGINT NOT NULL,
	since   BIGINT NOT NULL,
	at      BIGINT NOT NULL,
	PRIMARY KEY (name, `key`),
	INDEX sqllock_done_since (since, name),
	INDEX sqllock_done_at (name, at)
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC DEFAULT CHARACTER SET utf8mb4;

-- The highest token that each resource has seen, for writes under a lock of another
-- database. writes counts, so that each write changes the row: on Galera, nodes exclude each
-- other by the rows that they change.
CREATE TABLE IF NOT EXISTS `sqllock_fence` (
	resource VARBINARY(255) NOT NULL PRIMARY KEY,
	token    BIGINT NOT NULL,
	writes   BIGINT NOT NULL DEFAULT 0
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC DEFAULT CHARACTER SET utf8mb4;

-- Who leads each election of Kubernetes' kind, see package k8slock: the record of client-go, as
-- JSON. version changes with each change of the record. token is the version with which the
-- term began. The index is what a guard locks: a renewal does not touch it, a change of token
-- does. A version is a clock, so new entries come to stand behind those that are guarded.
CREATE TABLE IF NOT EXISTS `sqllock_record` (
	name    VARBINARY(255) NOT NULL PRIMARY KEY,
	record  BLOB NOT NULL,
	version BIGINT NOT NULL,
	token   BIGINT NOT NULL,
	UNIQUE INDEX sqllock_record_guard (token, name)
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC DEFAULT CHARACTER SET utf8mb4;

-- What for update (mode 2) and advisory mode (mode 3) commit apart from the session that
-- holds the lock: the version, who holds, what outlives a crash. lock_key is the name for
-- GET_LOCK, in advisory mode. pid and started tell the session. delay is the lock delay
-- of the current term, in microseconds. revoke_for is the Locker that is asked to give
-- the name up.
CREATE TABLE IF NOT EXISTS `sqllock_term` (
	mode        TINYINT NOT NULL,
	name        VARBINARY(255) NOT NULL,
	lock_key    VARBINARY(64),
	acq         BINARY(16),
	owner       VARBINARY(255),
	instance    BINARY(16),
	label       VARBINARY(255),
	version     BIGINT NOT NULL DEFAULT 0,
	holds       INT NOT NULL DEFAULT 0,
	acquired_at BIGINT NOT NULL DEFAULT 0,
	ended_at    BIGINT NOT NULL DEFAULT 0,
	not_before  BIGINT NOT NULL DEFAULT 0,
	delay       BIGINT NOT NULL DEFAULT 0,
	pid         BIGINT UNSIGNED,
	started     BIGINT,
	revoke_for  BINARY(16),
	ended       TINYINT NOT NULL DEFAULT 0,
	revoked     BIGINT NOT NULL DEFAULT 0,
	value       MEDIUMBLOB,
	PRIMARY KEY (mode, name),
	INDEX sqllock_revoke (revoke_for)
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC DEFAULT CHARACTER SET utf8mb4;

-- What for update locks: a row per name, which never changes. A name that begins with NUL
-- is not that of a lock: it tells whose table this is. The last of these is there so that
-- looking for another in vain locks no gap between names of locks.
CREATE TABLE IF NOT EXISTS `sqllock_pin` (
	name VARBINARY(255) NOT NULL PRIMARY KEY
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC DEFAULT CHARACTER SET utf8mb4;

INSERT IGNORE INTO `sqllock_pin` (name) VALUES (X'00FFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFF');

-- For people: times as timestamps, UTC. Only those who are alive count.
CREATE OR REPLACE SQL SECURITY INVOKER VIEW `sqllock_locks` AS
SELECT CONVERT(l.name USING utf8mb4) AS name,
       (l.acq IS NOT NULL AND l.expires_at > l.at_time OR l.shared_until IS NOT NULL) AS held,
       CONVERT(l.owner USING utf8mb4) AS owner,
       CONVERT(l.label USING utf8mb4) AS label,
       l.version AS token,
       l.holds,
       CASE WHEN l.acq IS NOT NULL OR l.shared_until IS NOT NULL
            THEN TIMESTAMPADD(MICROSECOND, l.since, TIMESTAMP'1970-01-01 00:00:00.000000') END AS held_since,
       TIMESTAMPADD(MICROSECOND, COALESCE(l.shared_until, l.expires_at), TIMESTAMP'1970-01-01 00:00:00.000000') AS expires_at,
       CASE WHEN l.not_before > l.at_time
            THEN TIMESTAMPADD(MICROSECOND, l.not_before, TIMESTAMP'1970-01-01 00:00:00.000000') END AS kept_until,
       CASE WHEN l.acq IS NOT NULL OR l.shared_until IS NOT NULL THEN NULL
            WHEN l.ended = 2 THEN 'expired' WHEN l.ended = 3 THEN 'forced' ELSE 'released' END AS ended,
       (SELECT COUNT(*) FROM `sqllock_claim` h
        WHERE h.name = l.name AND h.state = 1 AND h.kind = 1 AND h.expires_at > l.at_time) AS readers,
       (SELECT COUNT(*) FROM `sqllock_claim` q JOIN `sqllock_waiter` w ON w.locker = q.locker
        WHERE q.name = l.name AND q.state = 0 AND w.expires_at > l.at_time) AS waiters
FROM (
	SELECT k.*, TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)) AS at_time,
	       (SELECT MAX(h.expires_at) FROM `sqllock_claim` h WHERE h.name = k.name AND h.state = 1
	        AND h.expires_at > TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))) AS shared_until
	FROM `sqllock_lock` k
) l;

-- One row: who this database is, and which library can work with its tables. swept_at is
-- when somebody last set out to clean up, sweep_pause for how long nobody does so after that.
CREATE TABLE IF NOT EXISTS `sqllock_meta` (
	one             TINYINT NOT NULL DEFAULT 1 PRIMARY KEY,
	id              BINARY(16) NOT NULL,
	schema_version  BIGINT NOT NULL,
	compatible_from BIGINT NOT NULL,
	swept_at        BIGINT NOT NULL DEFAULT 0,
	sweep_pause     BIGINT NOT NULL DEFAULT 0
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC DEFAULT CHARACTER SET utf8mb4;

INSERT INTO `sqllock_meta` (one, id, schema_version, compatible_from)
VALUES (1, UNHEX(LEFT(SHA2(CONCAT(UUID(), RAND(), UTC_TIMESTAMP(6)), 256), 32)), 20261122000001, 20261122000001)
ON DUPLICATE KEY UPDATE
	schema_version = GREATEST(schema_version, 20261122000001),
	compatible_from = GREATEST(compatible_from, 20261122000001);

-- +goose Down

DROP TABLE IF EXISTS `sqllock_meta`;
DROP VIEW IF EXISTS `sqllock_locks`;
DROP TABLE IF EXISTS `sqllock_pin`;
DROP TABLE IF EXISTS `sqllock_term`;
DROP TABLE IF EXISTS `sqllock_record`;
DROP TABLE IF EXISTS `sqllock_fence`;
DROP TABLE IF EXISTS `sqllock_done`;
DROP TABLE IF EXISTS `sqllock_waiter`;
DROP TABLE IF EXISTS `sqllock_claim`;
DROP TABLE IF EXISTS `sqllock_lock`;
