-- MySQL commits each of these statements by itself, so each can be repeated: a
-- migration that ended half-way is finished by the next.

-- +goose Up

-- Who holds a name of the unique mode together with others. How many there are,
-- and until when the last of them expires, stands in the row of the name (others,
-- others_until). A row whose version is not that of the name is left over.
CREATE TABLE IF NOT EXISTS `sqllock_holder` (
	name        VARBINARY(255) NOT NULL,
	acq         BINARY(16) NOT NULL,
	owner       VARBINARY(255) NOT NULL,
	instance    BINARY(16) NOT NULL,
	label       VARBINARY(255) NOT NULL,
	version     BIGINT NOT NULL,
	holds       INT NOT NULL,
	acquired_at BIGINT NOT NULL,
	expires_at  BIGINT NOT NULL,
	PRIMARY KEY (name, acq)
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC DEFAULT CHARACTER SET utf8mb4;

-- What the modes for update (2) and advisory (3) commit apart from the session
-- that holds the lock: the version, who holds, what outlives a crash. lock_key is
-- the name for GET_LOCK, for mode 3. pid and started tell the session. delay is the
-- lock delay of the current term, in microseconds; revoke_for is the Locker that is
-- asked to give the name up.
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
	KEY sqllock_revoke (revoke_for)
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC DEFAULT CHARACTER SET utf8mb4;

-- What the mode for update locks: a row per name, which never changes. A
-- name that begins with NUL is not that of a lock: it tells whose table this is. The
-- last of these is there so that looking for another in vain locks no gap between
-- names of locks.
CREATE TABLE IF NOT EXISTS `sqllock_pin` (
	name VARBINARY(255) NOT NULL PRIMARY KEY
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC DEFAULT CHARACTER SET utf8mb4;

INSERT IGNORE INTO `sqllock_pin` (name) VALUES (X'00FFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFF');

CREATE OR REPLACE SQL SECURITY INVOKER VIEW `sqllock_locks` AS
SELECT CONVERT(name USING utf8mb4) AS name,
       (acq IS NOT NULL AND expires_at > TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))
       OR others > 0 AND others_until > TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))) AS held,
       CONVERT(owner USING utf8mb4) AS owner,
       CONVERT(label USING utf8mb4) AS label,
       version AS token,
       holds,
       CASE WHEN acq IS NOT NULL THEN TIMESTAMPADD(MICROSECOND, acquired_at, TIMESTAMP'1970-01-01 00:00:00.000000') END AS held_since,
       TIMESTAMPADD(MICROSECOND, expires_at, TIMESTAMP'1970-01-01 00:00:00.000000') AS expires_at,
       CASE WHEN not_before > TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))
            THEN TIMESTAMPADD(MICROSECOND, not_before, TIMESTAMP'1970-01-01 00:00:00.000000') END AS kept_until,
       CASE WHEN acq IS NOT NULL THEN NULL WHEN ended = 2 THEN 'expired' WHEN ended = 3 THEN 'forced' ELSE 'released' END AS ended,
       CASE WHEN others_until > TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)) THEN others ELSE 0 END AS readers
FROM `sqllock_lock`;

UPDATE `sqllock_meta` SET schema_version = GREATEST(schema_version, 20261121000003) WHERE one = 1;

-- +goose Down

UPDATE `sqllock_meta` SET schema_version = LEAST(schema_version, 20261121000002) WHERE one = 1;

CREATE OR REPLACE SQL SECURITY INVOKER VIEW `sqllock_locks` AS
SELECT CONVERT(name USING utf8mb4) AS name,
       acq IS NOT NULL AND expires_at > TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)) AS held,
       CONVERT(owner USING utf8mb4) AS owner,
       CONVERT(label USING utf8mb4) AS label,
       version AS token,
       holds,
       CASE WHEN acq IS NOT NULL THEN TIMESTAMPADD(MICROSECOND, acquired_at, TIMESTAMP'1970-01-01 00:00:00.000000') END AS held_since,
       TIMESTAMPADD(MICROSECOND, expires_at, TIMESTAMP'1970-01-01 00:00:00.000000') AS expires_at,
       CASE WHEN not_before > TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))
            THEN TIMESTAMPADD(MICROSECOND, not_before, TIMESTAMP'1970-01-01 00:00:00.000000') END AS kept_until,
       CASE WHEN acq IS NOT NULL THEN NULL WHEN ended = 2 THEN 'expired' WHEN ended = 3 THEN 'forced' ELSE 'released' END AS ended
FROM `sqllock_lock`;

DROP TABLE IF EXISTS `sqllock_pin`;
DROP TABLE IF EXISTS `sqllock_term`;
DROP TABLE IF EXISTS `sqllock_holder`;
