-- +goose Up

-- Who holds a name of the unique mode together with others. How many there are,
-- and until when the last of them expires, stands in the row of the name (others,
-- others_until). A row whose version is not that of the name is left over.
CREATE TABLE IF NOT EXISTS "sqllock_holder" (
	name        text COLLATE "C" NOT NULL,
	acq         uuid NOT NULL,
	owner       text NOT NULL,
	instance    uuid NOT NULL,
	label       text NOT NULL,
	version     bigint NOT NULL,
	holds       integer NOT NULL,
	acquired_at bigint NOT NULL,
	expires_at  bigint NOT NULL,
	PRIMARY KEY (name, acq)
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.02);

-- What the modes for update (2) and advisory (3) commit apart from the session
-- that holds the lock: the version, who holds, what outlives a crash. lock_key is
-- that of pg_locks, for mode 3. pid and started tell the session. delay is the lock
-- delay of the current term, in microseconds; revoke_for is the Locker that is asked
-- to give the name up.
CREATE TABLE IF NOT EXISTS "sqllock_term" (
	mode        smallint NOT NULL,
	name        text COLLATE "C" NOT NULL,
	lock_key    bigint,
	acq         uuid,
	owner       text,
	instance    uuid,
	label       text,
	version     bigint NOT NULL DEFAULT 0,
	holds       integer NOT NULL DEFAULT 0,
	acquired_at bigint NOT NULL DEFAULT 0,
	ended_at    bigint NOT NULL DEFAULT 0,
	not_before  bigint NOT NULL DEFAULT 0,
	delay       bigint NOT NULL DEFAULT 0,
	pid         bigint,
	started     bigint,
	revoke_for  uuid,
	ended       smallint NOT NULL DEFAULT 0,
	revoked     bigint NOT NULL DEFAULT 0,
	value       bytea,
	PRIMARY KEY (mode, name)
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.02);

CREATE INDEX ON "sqllock_term" (revoke_for) WHERE revoke_for IS NOT NULL;

-- What the mode for update locks: a row per name, which never changes.
CREATE TABLE IF NOT EXISTS "sqllock_pin" (
	name text COLLATE "C" PRIMARY KEY
);

-- The fencing tokens of the mode advisory. It is lifted to the clock before a
-- session draws from it for the first time.
CREATE SEQUENCE IF NOT EXISTS "sqllock_token" AS bigint CACHE 1;

-- What keeps a name of the mode advisory from whoever has just got its lock: until
-- when, or -1 if its row names somebody, or 0. It is a function because one that is
-- VOLATILE sees what was committed until it is called, while the statement that calls
-- it, and takes the lock, sees what was committed before it began.
CREATE OR REPLACE FUNCTION "sqllock_gate"(text) RETURNS bigint LANGUAGE sql VOLATILE AS
'SELECT coalesce((
	SELECT CASE WHEN t.acq IS NOT NULL THEN -1
	            WHEN t.not_before > (extract(epoch FROM clock_timestamp()) * 1000000)::bigint THEN t.not_before ELSE 0 END
	FROM "sqllock_term" t WHERE t.mode = 3 AND t.name = $1), 0)';

CREATE OR REPLACE VIEW "sqllock_locks" AS
SELECT name,
       (acq IS NOT NULL AND expires_at > (extract(epoch FROM clock_timestamp()) * 1000000)::bigint
       OR others > 0 AND others_until > (extract(epoch FROM clock_timestamp()) * 1000000)::bigint) AS held,
       owner,
       label,
       version AS token,
       holds,
       CASE WHEN acq IS NOT NULL THEN to_timestamp(acquired_at / 1000000.0) END AS held_since,
       to_timestamp(expires_at / 1000000.0) AS expires_at,
       CASE WHEN not_before > (extract(epoch FROM clock_timestamp()) * 1000000)::bigint
            THEN to_timestamp(not_before / 1000000.0) END AS kept_until,
       CASE WHEN acq IS NOT NULL THEN NULL WHEN ended = 2 THEN 'expired' WHEN ended = 3 THEN 'forced' ELSE 'released' END AS ended,
       CASE WHEN others_until > (extract(epoch FROM clock_timestamp()) * 1000000)::bigint THEN others ELSE 0 END AS readers
FROM "sqllock_lock";

UPDATE "sqllock_meta" SET schema_version = 20261121000003;

-- +goose Down

UPDATE "sqllock_meta" SET schema_version = 20261121000002;

DROP VIEW "sqllock_locks";
CREATE VIEW "sqllock_locks" AS
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

DROP FUNCTION IF EXISTS "sqllock_gate"(text);
DROP SEQUENCE IF EXISTS "sqllock_token";
DROP TABLE IF EXISTS "sqllock_pin";
DROP TABLE IF EXISTS "sqllock_term";
DROP TABLE IF EXISTS "sqllock_holder";
