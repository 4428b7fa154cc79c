-- MySQL commits each of these statements by itself, so each can be repeated: a
-- migration that ended half-way is finished by the next.

-- +goose Up

-- Who waits for a name of the unique mode, in line. A ticket is written in a
-- transaction that has changed the row of the name before: so the numbers are in the
-- order of the commits, and whoever frees the name cannot miss one. qseq is the number
-- of the last ticket of a name, qhead that of the last one that was served; until when
-- the last ticket lives stands in wait_until. ttl and handed are for how long the row
-- keeps the name when it is handed over, by the same client or by another. carries are
-- acquisitions that the waiter holds, 16 bytes each.
CREATE TABLE IF NOT EXISTS `sqllock_ticket` (
	name       VARBINARY(255) NOT NULL,
	seq        BIGINT NOT NULL,
	acq        BINARY(16) NOT NULL,
	owner      VARBINARY(255) NOT NULL,
	instance   BINARY(16) NOT NULL,
	label      VARBINARY(255) NOT NULL,
	shared     TINYINT NOT NULL,
	ttl        BIGINT NOT NULL,
	handed     BIGINT NOT NULL,
	value      MEDIUMBLOB,
	carries    BLOB,
	entered_at BIGINT NOT NULL,
	expires_at BIGINT NOT NULL,
	PRIMARY KEY (name, seq),
	UNIQUE KEY sqllock_ticket_acq (acq)
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC DEFAULT CHARACTER SET utf8mb4;

SET @sqllock_change = (SELECT IF(COUNT(*) > 0, 'DO 0',
	'ALTER TABLE `sqllock_lock` ADD COLUMN qseq BIGINT NOT NULL DEFAULT 0, ADD COLUMN qhead BIGINT NOT NULL DEFAULT 0')
	FROM information_schema.COLUMNS
	WHERE TABLE_SCHEMA = DATABASE() AND TABLE_NAME = REPLACE('`sqllock_lock`', '`', '') AND COLUMN_NAME = 'qseq');
PREPARE sqllock_change FROM @sqllock_change;
EXECUTE sqllock_change;
DEALLOCATE PREPARE sqllock_change;

UPDATE `sqllock_meta` SET schema_version = GREATEST(schema_version, 20261121000004) WHERE one = 1;

-- +goose Down

UPDATE `sqllock_meta` SET schema_version = LEAST(schema_version, 20261121000003) WHERE one = 1;

DROP TABLE IF EXISTS `sqllock_ticket`;
SET @sqllock_change = (SELECT IF(COUNT(*) = 0, 'DO 0',
	'ALTER TABLE `sqllock_lock` DROP COLUMN qseq, DROP COLUMN qhead')
	FROM information_schema.COLUMNS
	WHERE TABLE_SCHEMA = DATABASE() AND TABLE_NAME = REPLACE('`sqllock_lock`', '`', '') AND COLUMN_NAME = 'qseq');
PREPARE sqllock_change FROM @sqllock_change;
EXECUTE sqllock_change;
DEALLOCATE PREPARE sqllock_change;
