-- MySQL commits each of these statements by itself, so each can be repeated: a
-- migration that ended half-way is finished by the next. It has no ADD COLUMN IF
-- NOT EXISTS; each change of columns is one statement, which happens or does not.

-- +goose Up

-- value is what the holder has to say. ended is how the last term was ended (1
-- released, 2 expired, 3 revoked), revoked the version of the last term that was
-- revoked: so its holder learns why, even if somebody else has the name by then.
-- The index is what a guard locks: renewals do not touch it, a new holder does. In
-- REPEATABLE READ a guard on MariaDB also keeps new entries from the gap below its
-- own. No entry comes to stand there, because versions rise, and they go first.
SET @sqllock_change = (SELECT IF(COUNT(*) > 0, 'DO 0',
	'ALTER TABLE `sqllock_lock` ADD COLUMN value MEDIUMBLOB, ADD COLUMN ended TINYINT NOT NULL DEFAULT 0, ADD COLUMN revoked BIGINT NOT NULL DEFAULT 0, ADD UNIQUE INDEX sqllock_guard (version, name)')
	FROM information_schema.COLUMNS
	WHERE TABLE_SCHEMA = DATABASE() AND TABLE_NAME = REPLACE('`sqllock_lock`', '`', '') AND COLUMN_NAME = 'revoked');
PREPARE sqllock_change FROM @sqllock_change;
EXECUTE sqllock_change;

-- The highest token that each resource has seen, for writes under a lock of
-- another database.
CREATE TABLE IF NOT EXISTS `sqllock_fence` (
	resource VARBINARY(255) NOT NULL PRIMARY KEY,
	token    BIGINT NOT NULL
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC DEFAULT CHARACTER SET utf8mb4;

-- When somebody last set out to clean up.
SET @sqllock_change = (SELECT IF(COUNT(*) > 0, 'DO 0',
	'ALTER TABLE `sqllock_meta` ADD COLUMN swept_at BIGINT NOT NULL DEFAULT 0')
	FROM information_schema.COLUMNS
	WHERE TABLE_SCHEMA = DATABASE() AND TABLE_NAME = REPLACE('`sqllock_meta`', '`', '') AND COLUMN_NAME = 'swept_at');
PREPARE sqllock_change FROM @sqllock_change;
EXECUTE sqllock_change;
DEALLOCATE PREPARE sqllock_change;

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

UPDATE `sqllock_meta` SET schema_version = GREATEST(schema_version, 20261121000002) WHERE one = 1;

-- +goose Down

UPDATE `sqllock_meta` SET schema_version = LEAST(schema_version, 20261121000001) WHERE one = 1;

CREATE OR REPLACE SQL SECURITY INVOKER VIEW `sqllock_locks` AS
SELECT CONVERT(name USING utf8mb4) AS name,
       acq IS NOT NULL AND expires_at > TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)) AS held,
       CONVERT(owner USING utf8mb4) AS owner,
       CONVERT(label USING utf8mb4) AS label,
       version AS token,
       holds,
       CASE WHEN acq IS NOT NULL THEN TIMESTAMPADD(MICROSECOND, acquired_at, TIMESTAMP'1970-01-01 00:00:00.000000') END AS held_since,
       TIMESTAMPADD(MICROSECOND, expires_at, TIMESTAMP'1970-01-01 00:00:00.000000') AS expires_at
FROM `sqllock_lock`;

DROP TABLE IF EXISTS `sqllock_fence`;
SET @sqllock_change = (SELECT IF(COUNT(*) = 0, 'DO 0',
	'ALTER TABLE `sqllock_meta` DROP COLUMN swept_at')
	FROM information_schema.COLUMNS
	WHERE TABLE_SCHEMA = DATABASE() AND TABLE_NAME = REPLACE('`sqllock_meta`', '`', '') AND COLUMN_NAME = 'swept_at');
PREPARE sqllock_change FROM @sqllock_change;
EXECUTE sqllock_change;

SET @sqllock_change = (SELECT IF(COUNT(*) = 0, 'DO 0',
	'ALTER TABLE `sqllock_lock` DROP INDEX sqllock_guard, DROP COLUMN value, DROP COLUMN ended, DROP COLUMN revoked')
	FROM information_schema.COLUMNS
	WHERE TABLE_SCHEMA = DATABASE() AND TABLE_NAME = REPLACE('`sqllock_lock`', '`', '') AND COLUMN_NAME = 'revoked');
PREPARE sqllock_change FROM @sqllock_change;
EXECUTE sqllock_change;
DEALLOCATE PREPARE sqllock_change;
