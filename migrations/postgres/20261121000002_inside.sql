-- +goose Up

-- value is what the holder has to say. ended is how the last term was ended (1
-- released, 2 expired, 3 revoked), revoked the version of the last term that was
-- revoked: so its holder learns why, even if somebody else has the name by then.
ALTER TABLE "sqllock_lock"
	ADD COLUMN value   bytea,
	ADD COLUMN ended   smallint NOT NULL DEFAULT 0,
	ADD COLUMN revoked bigint NOT NULL DEFAULT 0;

-- The highest token that each resource has seen, for writes under a lock of
-- another database.
CREATE TABLE IF NOT EXISTS "sqllock_fence" (
	resource text COLLATE "C" PRIMARY KEY,
	token    bigint NOT NULL
);

-- When somebody last set out to clean up.
ALTER TABLE "sqllock_meta" ADD COLUMN swept_at bigint NOT NULL DEFAULT 0;

CREATE OR REPLACE VIEW "sqllock_locks" AS
SELECT name,
       acq IS NOT NULL AND expires_at > (extract(epoch FROM clock_timestamp()) * 1000000)::bigint AS held,
       owner,
       label,
       version AS token,
       holds,
       CASE WHEN acq IS NOT NULL THEN to_timestamp(acquired_at / 1000000.0) END AS held_since,
       to_timestamp(expires_at / 1000000.0) AS expires_at,
       CASE WHEN not_before > (extract(epoch FROM clock_timestamp()) * 1000000)::bigint
            THEN to_timestamp(not_before / 1000000.0) END AS kept_until,
       CASE WHEN acq IS NOT NULL THEN NULL WHEN ended = 2 THEN 'expired' WHEN ended = 3 THEN 'forced' ELSE 'released' END AS ended
FROM "sqllock_lock";

UPDATE "sqllock_meta" SET schema_version = 20261121000002;

-- +goose Down

UPDATE "sqllock_meta" SET schema_version = 20261121000001;

DROP VIEW "sqllock_locks";
CREATE VIEW "sqllock_locks" AS
SELECT name,
       acq IS NOT NULL AND expires_at > (extract(epoch FROM clock_timestamp()) * 1000000)::bigint AS held,
       owner,
       label,
       version AS token,
       holds,
       CASE WHEN acq IS NOT NULL THEN to_timestamp(acquired_at / 1000000.0) END AS held_since,
       to_timestamp(expires_at / 1000000.0) AS expires_at
FROM "sqllock_lock";

DROP TABLE IF EXISTS "sqllock_fence";
ALTER TABLE "sqllock_meta" DROP COLUMN swept_at;
ALTER TABLE "sqllock_lock" DROP COLUMN value, DROP COLUMN ended, DROP COLUMN revoked;
