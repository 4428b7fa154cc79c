-- MySQL commits each of these statements by itself, so each can be repeated. It has no ADD
-- COLUMN IF NOT EXISTS; each change of columns is one statement, which happens or does not.

-- +goose Up

SET @sqllock_change = (SELECT IF(COUNT(*) > 0, 'DO 0', 'ALTER TABLE `sqllock_lock` ADD COLUMN note VARBINARY(255)')
	FROM information_schema.COLUMNS
	WHERE TABLE_SCHEMA = DATABASE() AND TABLE_NAME = REPLACE('`sqllock_lock`', '`', '') AND COLUMN_NAME = 'note');
PREPARE sqllock_change FROM @sqllock_change;
EXECUTE sqllock_change;
DEALLOCATE PREPARE sqllock_change;

UPDATE `sqllock_meta` SET schema_version = GREATEST(schema_version, 20991231000001) WHERE one = 1;

-- +goose Down

UPDATE `sqllock_meta` SET schema_version = LEAST(schema_version, 20261122000001) WHERE one = 1;

SET @sqllock_change = (SELECT IF(COUNT(*) = 0, 'DO 0', 'ALTER TABLE `sqllock_lock` DROP COLUMN note')
	FROM information_schema.COLUMNS
	WHERE TABLE_SCHEMA = DATABASE() AND TABLE_NAME = REPLACE('`sqllock_lock`', '`', '') AND COLUMN_NAME = 'note');
PREPARE sqllock_change FROM @sqllock_change;
EXECUTE sqllock_change;
DEALLOCATE PREPARE sqllock_change;
