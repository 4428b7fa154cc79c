-- +goose Up

-- One row per name that was ever locked. acq says who holds it now; NULL is
-- free. Times are microseconds since the epoch, UTC, by this host's clock.
-- The gates (not_before, others, wait_until) keep the name from newcomers for
-- reasons other than a holder; every version of the library respects them.
CREATE TABLE "sqllock_lock" (
	name         TEXT PRIMARY KEY COLLATE BINARY,
	acq          BLOB,
	owner        TEXT,
	instance     BLOB,
	label        TEXT,
	version      INTEGER NOT NULL,
	holds        INTEGER NOT NULL DEFAULT 0,
	acquired_at  INTEGER NOT NULL DEFAULT 0,
	expires_at   INTEGER NOT NULL DEFAULT 0,
	not_before   INTEGER NOT NULL DEFAULT 0,
	others       INTEGER NOT NULL DEFAULT 0,
	others_until INTEGER NOT NULL DEFAULT 0,
	wait_until   INTEGER NOT NULL DEFAULT 0
) STRICT, WITHOUT ROWID;

-- One row: who this database is, and which library can work with its tables.
CREATE TABLE "sqllock_meta" (
	one             INTEGER PRIMARY KEY CHECK (one = 1),
	id              BLOB NOT NULL,
	schema_version  INTEGER NOT NULL,
	compatible_from INTEGER NOT NULL
) STRICT;

INSERT INTO "sqllock_meta" (id, schema_version, compatible_from)
VALUES (randomblob(16), 20261121000001, 20261121000001);

-- For people: the same rows with times as text, UTC.
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

-- +goose Down

DROP VIEW "sqllock_locks";
DROP TABLE "sqllock_meta";
DROP TABLE "sqllock_lock";
