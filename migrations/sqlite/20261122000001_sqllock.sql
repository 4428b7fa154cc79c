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
-- Times are microseconds since the epoch, UTC, by this host's clock. version is the token.
-- ended is how the last term ended (1 released, 2 expired, 3 revoked), revoked the version
-- of the last term that was revoked. No renewal goes beyond limit_at, unless it is 0.
-- value stands last: a large one is not read to get at what stands before it.
CREATE TABLE "sqllock_lock" (
	name       TEXT PRIMARY KEY COLLATE BINARY,
	acq        BLOB,
	owner      TEXT,
	locker     BLOB,
	label      TEXT,
	version    INTEGER NOT NULL,
	holds      INTEGER NOT NULL DEFAULT 0,
	since      INTEGER NOT NULL DEFAULT 0,
	expires_at INTEGER NOT NULL DEFAULT 0,
	limit_at   INTEGER NOT NULL DEFAULT 0,
	delay      INTEGER NOT NULL DEFAULT 0,
	not_before INTEGER NOT NULL DEFAULT 0,
	permits    INTEGER NOT NULL DEFAULT 0,
	waiting    INTEGER NOT NULL DEFAULT 0,
	holding    INTEGER NOT NULL DEFAULT 0,
	seq        INTEGER NOT NULL DEFAULT 0,
	ended      INTEGER NOT NULL DEFAULT 0,
	revoked    INTEGER NOT NULL DEFAULT 0,
	asked      INTEGER NOT NULL DEFAULT 0,
	value      BLOB
) STRICT, WITHOUT ROWID;

-- Who waits for a name (state 0), in the order of seq, and who holds it together with
-- others (state 1). kind is 0 exclusive, 1 shared, 2 a permit, which has a slot. A claim
-- that is handed the name keeps it for ttl if its own Locker does that, else for handed.
-- carries are acquisitions that the waiter holds, 16 bytes each.
CREATE TABLE "sqllock_claim" (
	name       TEXT NOT NULL COLLATE BINARY,
	state      INTEGER NOT NULL,
	seq        INTEGER NOT NULL,
	acq        BLOB NOT NULL UNIQUE,
	kind       INTEGER NOT NULL,
	slot       INTEGER NOT NULL,
	token      INTEGER NOT NULL,
	holds      INTEGER NOT NULL,
	ttl        INTEGER NOT NULL,
	handed     INTEGER NOT NULL,
	max_hold   INTEGER NOT NULL,
	since      INTEGER NOT NULL,
	expires_at INTEGER NOT NULL,
	limit_at   INTEGER NOT NULL,
	delay      INTEGER NOT NULL,
	locker     BLOB NOT NULL,
	owner      TEXT NOT NULL,
	label      TEXT NOT NULL,
	carries    BLOB,
	value      BLOB,
	PRIMARY KEY (name, state, seq)
) STRICT, WITHOUT ROWID;

CREATE INDEX "sqllock_claim_locker" ON "sqllock_claim" (locker);
CREATE INDEX "sqllock_claim_carries" ON "sqllock_claim" (since) WHERE carries IS NOT NULL;

-- One row per Locker that waits for anything: until when the database takes it for alive.
CREATE TABLE "sqllock_waiter" (
	locker     BLOB PRIMARY KEY NOT NULL,
	expires_at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- Which keys of a name are complete: what ran under the name with that key ran to its end.
-- attempt counts how often it was begun, since is when that was last, at when it was
-- completed, or 0. Rows are deleted some time after that. Of keys that are times, the
-- highest that would be deleted stays, with a since of 0: all keys up to it are complete.
CREATE TABLE "sqllock_done" (
	name    TEXT NOT NULL COLLATE BINARY,
	key     TEXT NOT NULL COLLATE BINARY,
	attempt INTEGER NOT NULL,
	since   INTEGER NOT NULL,
	at      INTEGER NOT NULL,
	PRIMARY KEY (name, key)
) STRICT, WITHOUT ROWID;

CREATE INDEX "sqllock_done_since" ON "sqllock_done" (since, name);
CREATE INDEX "sqllock_done_at" ON "sqllock_done" (name, at);

-- The highest token that each resource has seen, for writes under a lock of another
-- database.
CREATE TABLE "sqllock_fence" (
	resource TEXT PRIMARY KEY COLLATE BINARY,
	token    INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- Who leads each election of Kubernetes' kind, see package k8slock: the record of client-go, as
-- JSON. version changes with each change of the record. token is the version with which the
-- term began.
CREATE TABLE "sqllock_record" (
	name    TEXT PRIMARY KEY COLLATE BINARY,
	record  TEXT NOT NULL,
	version INTEGER NOT NULL,
	token   INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- For people: times as text, UTC. Only those who are alive count.
CREATE VIEW "sqllock_locks" AS
SELECT l.name,
       l.acq IS NOT NULL AND l.expires_at > l.at OR l.shared_until IS NOT NULL AS held,
       l.owner,
       l.label,
       l.version AS token,
       l.holds,
       CASE WHEN l.acq IS NOT NULL OR l.shared_until IS NOT NULL
            THEN strftime('%Y-%m-%d %H:%M:%f', l.since / 1000000.0, 'unixepoch') END AS held_since,
       strftime('%Y-%m-%d %H:%M:%f', coalesce(l.shared_until, l.expires_at) / 1000000.0, 'unixepoch') AS expires_at,
       CASE WHEN l.not_before > l.at THEN strftime('%Y-%m-%d %H:%M:%f', l.not_before / 1000000.0, 'unixepoch') END AS kept_until,
       CASE WHEN l.acq IS NOT NULL OR l.shared_until IS NOT NULL THEN NULL
            WHEN l.ended = 2 THEN 'expired' WHEN l.ended = 3 THEN 'forced' ELSE 'released' END AS ended,
       (SELECT count(*) FROM "sqllock_claim" h
        WHERE h.name = l.name AND h.state = 1 AND h.kind = 1 AND h.expires_at > l.at) AS readers,
       (SELECT count(*) FROM "sqllock_claim" q JOIN "sqllock_waiter" w ON w.locker = q.locker
        WHERE q.name = l.name AND q.state = 0 AND w.expires_at > l.at) AS waiters
FROM (
	SELECT k.*, n.at,
	       (SELECT max(h.expires_at) FROM "sqllock_claim" h
	        WHERE h.name = k.name AND h.state = 1 AND h.expires_at > n.at) AS shared_until
	FROM "sqllock_lock" k, (SELECT CAST((julianday('now') - 2440587.5) * 86400000000 AS INTEGER) AS at) n
) l;

-- One row: who this database is, and which library can work with its tables. swept_at is
-- when somebody last set out to clean up, sweep_pause for how long nobody does so after that.
CREATE TABLE "sqllock_meta" (
	one             INTEGER PRIMARY KEY CHECK (one = 1),
	id              BLOB NOT NULL,
	schema_version  INTEGER NOT NULL,
	compatible_from INTEGER NOT NULL,
	swept_at        INTEGER NOT NULL DEFAULT 0,
	sweep_pause     INTEGER NOT NULL DEFAULT 0
) STRICT;

INSERT INTO "sqllock_meta" (id, schema_version, compatible_from)
VALUES (randomblob(16), 20261122000001, 20261122000001);

-- +goose Down

DROP TABLE IF EXISTS "sqllock_meta";
DROP VIEW IF EXISTS "sqllock_locks";
DROP TABLE IF EXISTS "sqllock_record";
DROP TABLE IF EXISTS "sqllock_fence";
DROP TABLE IF EXISTS "sqllock_done";
DROP TABLE IF EXISTS "sqllock_waiter";
DROP TABLE IF EXISTS "sqllock_claim";
DROP TABLE IF EXISTS "sqllock_lock";
