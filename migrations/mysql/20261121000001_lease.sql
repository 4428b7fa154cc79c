-- MySQL commits each of these statements by itself, so each can be repeated: a
-- migration that ended half-way is finished by the next.

-- +goose Up

-- One row per name that was ever locked. acq says who holds it now; NULL is
-- free. Times are microseconds since the epoch, UTC, by this server's clock.
-- The gates (not_before, others, wait_until) keep the name from newcomers for
-- reasons other than a holder; every version of the library respects them.
-- Texts are UTF-8 in binary columns: no collation makes two names one.
CREATE TABLE IF NOT EXISTS `sqllock_lock` (
	name         VARBINARY(255) NOT NULL PRIMARY KEY,
	acq          BINARY(16),
	owner        VARBINARY(255),
	instance     BINARY(16),
	label        VARBINARY(255),
	version      BIGINT NOT NULL,
	holds        INT NOT NULL DEFAULT 0,
	acquired_at  BIGINT NOT NULL DEFAULT 0,
	expires_at   BIGINT NOT NULL DEFAULT 0,
	not_before   BIGINT NOT NULL DEFAULT 0,
	others       INT NOT NULL DEFAULT 0,
	others_until BIGINT NOT NULL DEFAULT 0,
	wait_until   BIGINT NOT NULL DEFAULT 0
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC DEFAULT CHARACTER SET utf8mb4;

-- One row: who this database is, and which library can work with its tables.
CREATE TABLE IF NOT EXISTS `sqllock_meta` (
	one             TINYINT NOT NULL DEFAULT 1 PRIMARY KEY,
	id              BINARY(16) NOT NULL,
	schema_version  BIGINT NOT NULL,
	compatible_from BIGINT NOT NULL
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC DEFAULT CHARACTER SET utf8mb4;

INSERT INTO `sqllock_meta` (one, id, schema_version, compatible_from)
VALUES (1, UNHEX(LEFT(SHA2(CONCAT(UUID(), RAND(), UTC_TIMESTAMP(6)), 256), 32)), 20261121000001, 20261121000001)
ON DUPLICATE KEY UPDATE
	schema_version = GREATEST(schema_version, 20261121000001),
	compatible_from = GREATEST(compatible_from, 20261121000001);

-- For people: the same rows with times as timestamps, UTC.
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

-- +goose Down

DROP VIEW IF EXISTS `sqllock_locks`;
DROP TABLE IF EXISTS `sqllock_meta`;
DROP TABLE IF EXISTS `sqllock_lock`;
