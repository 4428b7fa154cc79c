-- +goose Up

-- One row per name that was ever locked. acq says who holds it now; NULL is
-- free. Times are microseconds since the epoch, UTC, by this server's clock.
-- The gates (not_before, others, wait_until) keep the name from newcomers for
-- reasons other than a holder; every version of the library respects them.
CREATE TABLE "sqllock_lock" (
	name         text COLLATE "C" PRIMARY KEY,
	acq          uuid,
	owner        text,
	instance     uuid,
	label        text,
	version      bigint NOT NULL,
	holds        integer NOT NULL DEFAULT 0,
	acquired_at  bigint NOT NULL DEFAULT 0,
	expires_at   bigint NOT NULL DEFAULT 0,
	not_before   bigint NOT NULL DEFAULT 0,
	others       integer NOT NULL DEFAULT 0,
	others_until bigint NOT NULL DEFAULT 0,
	wait_until   bigint NOT NULL DEFAULT 0
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.02);

-- One row: who this database is, and which library can work with its tables.
CREATE TABLE "sqllock_meta" (
	one             boolean PRIMARY KEY DEFAULT true CHECK (one),
	id              uuid NOT NULL,
	schema_version  bigint NOT NULL,
	compatible_from bigint NOT NULL
);

INSERT INTO "sqllock_meta" (id, schema_version, compatible_from)
VALUES (md5(random()::text || clock_timestamp()::text)::uuid, 20261121000001, 20261121000001);

-- For people: the same rows with times as timestamps.
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

-- +goose Down

DROP VIEW "sqllock_locks";
DROP TABLE "sqllock_meta";
DROP TABLE "sqllock_lock";
