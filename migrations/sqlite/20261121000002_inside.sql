-- +goose Up

-- ended is how the last term was ended (1 released, 2 expired, 3 revoked), revoked
-- the version of the last term that was revoked: so its holder learns why, even if
-- somebody else has the name by then. value is what the holder has to say. It
-- stands last: a large one is not read to get at what stands before it.
ALTER TABLE "sqllock_lock" ADD COLUMN ended INTEGER NOT NULL DEFAULT 0;
ALTER TABLE "sqllock_lock" ADD COLUMN revoked INTEGER NOT NULL DEFAULT 0;
ALTER TABLE "sqllock_lock" ADD COLUMN value BLOB;

-- The highest token that each resource has seen, for writes under a lock of
-- another database.
CREATE TABLE IF NOT EXISTS "sqllock_fence" (
	resource TEXT PRIMARY KEY COLLATE BINARY,
	token    INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- When somebody last set out to clean up.
ALTER TABLE "sqllock_meta" ADD COLUMN swept_at INTEGER NOT NULL DEFAULT 0;

DROP VIEW "sqllock_locks";
CREATE VIEW "sqllock_locks" AS
SELECT name,
       acq IS NOT NULL AND expires_at > (julianday('now') - 2440587.5) * 86400000000 AS held,
       owner,
       label,
       version AS token,
       holds,
       CASE WHEN acq IS NOT NULL THEN strftime('%Y-%m-%d %H:%M:%f', acquired_at / 1000000.0, 'unixepoch') END AS held_since,
       strftime('%Y-%m-%d %H:%M:%f', expires_at / 1000000.0, 'unixepoch') AS expires_at,
       CASE WHEN not_before > (julianday('now') - 2440587.5) * 86400000000
            THEN strftime('%Y-%m-%d %H:%M:%f', not_before / 1000000.0, 'unixepoch') END AS kept_until,
       CASE WHEN acq IS NOT NULL THEN NULL WHEN ended = 2 THEN 'expired' WHEN ended = 3 THEN 'forced' ELSE 'released' END AS ended
FROM "sqllock_lock";

UPDATE "sqllock_meta" SET schema_version = 20261121000002;

-- +goose Down

UPDATE "sqllock_meta" SET schema_version = 20261121000001;

DROP VIEW "sqllock_locks";
CREATE VIEW "sqllock_locks" AS
SELECT name,
       acq IS NOT NULL AND expires_at > (julianday('now') - 2440587.5) * 86400000000 AS held,
       owner,
       label,
       version AS token,
       holds,
       CASE WHEN acq IS NOT NULL THEN strftime('%Y-%m-%d %H:%M:%f', acquired_at / 1000000.0, 'unixepoch') END AS held_since,
       strftime('%Y-%m-%d %H:%M:%f', expires_at / 1000000.0, 'unixepoch') AS expires_at
FROM "sqllock_lock";

DROP TABLE IF EXISTS "sqllock_fence";
ALTER TABLE "sqllock_meta" DROP COLUMN swept_at;
ALTER TABLE "sqllock_lock" DROP COLUMN revoked;
ALTER TABLE "sqllock_lock" DROP COLUMN ended;
ALTER TABLE "sqllock_lock" DROP COLUMN value;
