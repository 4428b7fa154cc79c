-- +goose Up

-- Who holds a name together with others. How many there are, and until when the
-- last of them expires, stands in the row of the name (others, others_until). A row
-- whose version is not that of the name is left over.
CREATE TABLE IF NOT EXISTS "sqllock_holder" (
	name        TEXT NOT NULL COLLATE BINARY,
	acq         BLOB NOT NULL,
	owner       TEXT NOT NULL,
	instance    BLOB NOT NULL,
	label       TEXT NOT NULL,
	version     INTEGER NOT NULL,
	holds       INTEGER NOT NULL,
	acquired_at INTEGER NOT NULL,
	expires_at  INTEGER NOT NULL,
	PRIMARY KEY (name, acq)
) STRICT, WITHOUT ROWID;

DROP VIEW "sqllock_locks";
CREATE VIEW "sqllock_locks" AS
SELECT name,
       (acq IS NOT NULL AND expires_at > (julianday('now') - 2440587.5) * 86400000000
       OR others > 0 AND others_until > (julianday('now') - 2440587.5) * 86400000000) AS held,
       owner,
       label,
       version AS token,
       holds,
       CASE WHEN acq IS NOT NULL THEN strftime('%Y-%m-%d %H:%M:%f', acquired_at / 1000000.0, 'unixepoch') END AS held_since,
       strftime('%Y-%m-%d %H:%M:%f', expires_at / 1000000.0, 'unixepoch') AS expires_at,
       CASE WHEN not_before > (julianday('now') - 2440587.5) * 86400000000
            THEN strftime('%Y-%m-%d %H:%M:%f', not_before / 1000000.0, 'unixepoch') END AS kept_until,
       CASE WHEN acq IS NOT NULL THEN NULL WHEN ended = 2 THEN 'expired' WHEN ended = 3 THEN 'forced' ELSE 'released' END AS ended,
       CASE WHEN others_until > (julianday('now') - 2440587.5) * 86400000000 THEN others ELSE 0 END AS readers
FROM "sqllock_lock";

UPDATE "sqllock_meta" SET schema_version = 20261121000003;

-- +goose Down

UPDATE "sqllock_meta" SET schema_version = 20261121000002;

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

DROP TABLE IF EXISTS "sqllock_holder";
