-- +goose Up

-- One row per name that was ever locked. acq says who holds the name alone. It is NULL,
-- as are owner, locker, label and value, if nobody does. Those who hold the name together
-- with others, and those who wait for it, have a row each in the table of claims. waiting
-- and holding count them. seq is the highest number that any of them ever had.
--
-- While a term is detached, nobody renews it: acq is a hash of the secret with which it can
-- be adopted, and owner and locker say nothing. asked is the version of the last term whose
-- holder was asked to end it.
--
-- Times are microseconds since the epoch, UTC, by this server's clock. version is the
-- token. ended is how the last term ended (1 released, 2 expired, 3 revoked), revoked the
-- version of the last term that was revoked. No renewal goes beyond limit_at, unless it is
-- 0.
CREATE TABLE "sqllock_lock" (
	name       text COLLATE "C" PRIMARY KEY,
	acq        uuid,
	owner      text,
	locker     uuid,
	label      text,
	version    bigint NOT NULL,
	holds      integer NOT NULL DEFAULT 0,
	since      bigint NOT NULL DEFAULT 0,
	expires_at bigint NOT NULL DEFAULT 0,
	limit_at   bigint NOT NULL DEFAULT 0,
	delay      bigint NOT NULL DEFAULT 0,
	not_before bigint NOT NULL DEFAULT 0,
	permits    integer NOT NULL DEFAULT 0,
	waiting    integer NOT NULL DEFAULT 0,
	holding    integer NOT NULL DEFAULT 0,
	seq        bigint NOT NULL DEFAULT 0,
	ended      smallint NOT NULL DEFAULT 0,
	revoked    bigint NOT NULL DEFAULT 0,
	asked      bigint NOT NULL DEFAULT 0,
	value      bytea
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.02);

-- Who waits for a name (state 0), in the order of seq, and who holds it together with
-- others (state 1). kind is 0 exclusive, 1 shared, 2 a permit, which has a slot. A claim
-- that is handed the name keeps it for ttl if its own Locker does that, else for handed.
-- carries are acquisitions that the waiter holds, 16 bytes each. A renewal changes holds,
-- expires_at and limit_at alone, which stand in no index.
CREATE TABLE "sqllock_claim" (
	name       text COLLATE "C" NOT NULL,
	state      smallint NOT NULL,
	seq        bigint NOT NULL,
	acq        uuid NOT NULL UNIQUE,
	kind       smallint NOT NULL,
	slot       integer NOT NULL,
	token      bigint NOT NULL,
	holds      integer NOT NULL,
	ttl        bigint NOT NULL,
	handed     bigint NOT NULL,
	max_hold   bigint NOT NULL,
	since      bigint NOT NULL,
	expires_at bigint NOT NULL,
	limit_at   bigint NOT NULL,
	delay      bigint NOT NULL,
	locker     uuid NOT NULL,
	owner      text NOT NULL,
	label      text NOT NULL,
	value      bytea,
	carries    bytea,
	PRIMARY KEY (name, state, seq)
) WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.02);

CREATE INDEX ON "sqllock_claim" (locker);
CREATE INDEX ON "sqllock_claim" (since) WHERE carries IS NOT NULL;

-- One row per Locker that waits for anything: until when the database takes it for alive.
CREATE TABLE "sqllock_waiter" (
	locker     uuid PRIMARY KEY,
	expires_at bigint NOT NULL
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.02);

-- Which keys of a name are complete: what ran under the name with that key ran to its end.
-- attempt counts how often it was begun, since is when that was last, at when it was
-- completed, or 0. Rows are deleted some time after that. Of keys that are times, the
-- highest that would be deleted stays, with a since of 0: all keys up to it are complete.
CREATE TABLE "sqllock_done" (
	name    text COLLATE "C" NOT NULL,
	key     text COLLATE "C" NOT NULL,
	attempt bigint NOT NULL,
	since   bigint NOT NULL,
	at      bigint NOT NULL,
	PRIMARY KEY (name, key)
) WITH (autovacuum_vacuum_scale_factor = 0.02);

CREATE INDEX ON "sqllock_done" (since, name);
CREATE INDEX ON "sqllock_done" (name, at);

-- The highest token that each resource has seen, for writes under a lock of another
-- database.
CREATE TABLE "sqllock_fence" (
	resource text COLLATE "C" PRIMARY KEY,
	token    bigint NOT NULL
);

-- Who leads each election of Kubernetes' kind, see package k8slock: the record of client-go, as
-- JSON. version changes with each change of the record. token is the version with which the
-- term began. It is a column of a unique index: a change of it waits for those who guard the
-- term, a renewal does not.
CREATE TABLE "sqllock_record" (
	name    text COLLATE "C" PRIMARY KEY,
	record  text NOT NULL,
	version bigint NOT NULL,
	token   bigint NOT NULL,
	UNIQUE (token, name)
) WITH (fillfactor = 50);

-- What for update (mode 2) and advisory mode (mode 3) commit apart from the session that
-- holds the lock: the version, who holds, what outlives a crash. lock_key is that of
-- pg_locks, in advisory mode. pid and started tell the session. delay is the lock delay
-- of the current term, in microseconds. revoke_for is the Locker that is asked to give
-- the name up.
CREATE TABLE "sqllock_term" (
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

-- What for update locks: a row per name, which never changes.
CREATE TABLE "sqllock_pin" (
	name text COLLATE "C" PRIMARY KEY
);

-- The fencing tokens of advisory mode. It is lifted to the clock before a session draws
-- from it for the first time.
CREATE SEQUENCE "sqllock_token" AS bigint CACHE 1;

-- Takes locks of advisory mode for the session, and then looks, of those that were free,
-- whether a transaction guards a lease of the former holder: then the lock is let go at
-- once. Of what it has got it draws the tokens that are asked for, unless something else
-- keeps the name. tokens has an answer for each: a token, or 0: others have the lock, -1: a
-- transaction guards it, -2: it is locked, and nothing was drawn. gates says of each until
-- when the name is kept, -1 if its row names somebody, or 0; it is null if none is kept.
--
-- It is a function because each statement of one that is VOLATILE sees what was committed
-- until the statement began: what a former holder has written until it let the lock go is
-- seen. The key of a guard is had for a moment only, not until the transaction has been
-- flushed: others who are granted the same name, to share it, look too. A guard that comes
-- later finds that its session is dead.
--
-- The number in the name is a version: a library calls the function that it knows, so a
-- later migration makes another one beside it.
-- +goose StatementBegin
CREATE FUNCTION "sqllock_try_1"(
	keys bigint[], guards bigint[], together boolean[], names text[], draws boolean[], lift bigint,
	OUT clock bigint, OUT tokens bigint[], OUT gates bigint[]
) LANGUAGE plpgsql VOLATILE SET enable_seqscan = off SET plan_cache_mode = force_generic_plan SET lock_timeout = '1s' AS $$
BEGIN
	IF current_setting('synchronous_commit') = 'off' THEN
		PERFORM set_config('synchronous_commit', 'on', true);
	END IF;
	PERFORM pg_advisory_xact_lock_shared(lift);
	SELECT array_agg(CASE
		WHEN NOT CASE WHEN r.shared THEN pg_try_advisory_lock_shared(r.key) ELSE pg_try_advisory_lock(r.key) END THEN 0
		WHEN CASE WHEN pg_try_advisory_lock(r.guard) THEN pg_advisory_unlock(r.guard) ELSE false END THEN -2
		WHEN CASE WHEN r.shared THEN pg_advisory_unlock_shared(r.key) ELSE pg_advisory_unlock(r.key) END THEN -1
		ELSE -1 END) INTO tokens -- the last condition is there for what it does
	FROM unnest(keys, guards, together) r(key, guard, shared);
	clock := (date_part('epoch', clock_timestamp()) * 1000000)::bigint;
	IF EXISTS (
		SELECT FROM unnest(names) r(name)
		WHERE (SELECT t.acq IS NOT NULL OR t.not_before > clock FROM "sqllock_term" t WHERE t.mode = 3 AND t.name = r.name)
	) THEN
		SELECT array_agg(coalesce((
			SELECT CASE WHEN t.acq IS NOT NULL THEN -1 WHEN t.not_before > clock THEN t.not_before ELSE 0 END
			FROM "sqllock_term" t WHERE t.mode = 3 AND t.name = r.name), 0)) INTO gates
		FROM unnest(names) r(name);
	END IF;
	IF gates IS NULL THEN
		SELECT array_agg(CASE WHEN r.token = -2 AND r.draws THEN nextval($q$"sqllock_token"$q$) ELSE r.token END) INTO tokens
		FROM unnest(tokens, draws) r(token, draws);
	ELSE
		SELECT array_agg(CASE WHEN r.token = -2 AND r.draws AND r.gate = 0 THEN nextval($q$"sqllock_token"$q$) ELSE r.token END) INTO tokens
		FROM unnest(tokens, draws, gates) r(token, draws, gate);
	END IF;
END
$$;
-- +goose StatementEnd

-- Puts the schema of the tables into the functions, which name the tables: so they mean
-- these tables in every session, whatever its search_path is. It is called once here, and
-- is for you to call after ALTER SCHEMA … RENAME. prefix is that of the tables.
-- +goose StatementBegin
CREATE FUNCTION "sqllock_bind_1"(home text, prefix text) RETURNS void LANGUAGE plpgsql VOLATILE AS $$
DECLARE
	-- A backslash in a replacement is special. A session decides how one is written in a string.
	there text := replace('"' || replace(home, '"', '""') || '"."' || prefix, chr(92), repeat(chr(92), 2));
	f     record;
BEGIN
	FOR f IN
		SELECT p.oid, p.prosrc, regexp_replace(p.prosrc, '("([^"]|"")+"[.])?"' || prefix, there, 'g') AS bound
		FROM pg_proc p JOIN pg_namespace n ON n.oid = p.pronamespace
		WHERE n.nspname = home AND p.proname ~ ('^' || prefix || 'try_[0-9]+$')
	LOOP
		EXECUTE replace(pg_get_functiondef(f.oid), f.prosrc, f.bound);
	END LOOP;
END
$$;
-- +goose StatementEnd

-- For people: times as timestamps. Only those who are alive count.
CREATE VIEW "sqllock_locks" AS
SELECT l.name,
       l.acq IS NOT NULL AND l.expires_at > n.at OR c.shared_until IS NOT NULL AS held,
       l.owner,
       l.label,
       l.version AS token,
       l.holds,
       CASE WHEN l.acq IS NOT NULL OR c.shared_until IS NOT NULL THEN to_timestamp(l.since / 1000000.0) END AS held_since,
       to_timestamp(coalesce(c.shared_until, l.expires_at) / 1000000.0) AS expires_at,
       CASE WHEN l.not_before > n.at THEN to_timestamp(l.not_before / 1000000.0) END AS kept_until,
       CASE WHEN l.acq IS NOT NULL OR c.shared_until IS NOT NULL THEN NULL
            WHEN l.ended = 2 THEN 'expired' WHEN l.ended = 3 THEN 'forced' ELSE 'released' END AS ended,
       c.readers,
       (SELECT count(*) FROM "sqllock_claim" q JOIN "sqllock_waiter" w ON w.locker = q.locker
        WHERE q.name = l.name AND q.state = 0 AND w.expires_at > n.at) AS waiters
FROM "sqllock_lock" l
CROSS JOIN (SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint AS at) n
CROSS JOIN LATERAL (
	SELECT max(h.expires_at) AS shared_until, count(*) FILTER (WHERE h.kind = 1) AS readers
	FROM "sqllock_claim" h WHERE h.name = l.name AND h.state = 1 AND h.expires_at > n.at
) c;

-- One row: who this database is, and which library can work with its tables. swept_at is
-- when somebody last set out to clean up, sweep_pause for how long nobody does so after that.
CREATE TABLE "sqllock_meta" (
	one             boolean PRIMARY KEY DEFAULT true CHECK (one),
	id              uuid NOT NULL,
	schema_version  bigint NOT NULL,
	compatible_from bigint NOT NULL,
	swept_at        bigint NOT NULL DEFAULT 0,
	sweep_pause     bigint NOT NULL DEFAULT 0
);

INSERT INTO "sqllock_meta" (id, schema_version, compatible_from)
VALUES (md5(random()::text || clock_timestamp()::text)::uuid, 20261122000001, 20261122000001);

-- +goose StatementBegin
DO $$
BEGIN
	PERFORM "sqllock_bind_1"(n.nspname, left(c.relname::text, -4))
	FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE c.oid = $q$"sqllock_meta"$q$::regclass;
END
$$;
-- +goose StatementEnd

-- +goose Down

DROP TABLE IF EXISTS "sqllock_meta";
DROP VIEW IF EXISTS "sqllock_locks";
DROP FUNCTION IF EXISTS "sqllock_bind_1"(text, text);
DROP FUNCTION IF EXISTS "sqllock_try_1"(bigint[], bigint[], boolean[], text[], boolean[], bigint);
DROP SEQUENCE IF EXISTS "sqllock_token";
DROP TABLE IF EXISTS "sqllock_pin";
DROP TABLE IF EXISTS "sqllock_term";
DROP TABLE IF EXISTS "sqllock_record";
DROP TABLE IF EXISTS "sqllock_fence";
DROP TABLE IF EXISTS "sqllock_done";
DROP TABLE IF EXISTS "sqllock_waiter";
DROP TABLE IF EXISTS "sqllock_claim";
DROP TABLE IF EXISTS "sqllock_lock";
