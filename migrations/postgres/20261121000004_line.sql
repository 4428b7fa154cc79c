-- +goose Up

-- qseq is the number of the last ticket of the name, qhead that of the last one
-- that was served: what stands before it is over.
ALTER TABLE "sqllock_lock"
	ADD COLUMN qseq  bigint NOT NULL DEFAULT 0,
	ADD COLUMN qhead bigint NOT NULL DEFAULT 0;

-- Who waits for a name of the unique mode, in line. A ticket is written in a
-- transaction that has changed the row of the name before: so the numbers are in the
-- order of the commits, and whoever frees the name cannot miss one. until when the
-- last ticket of a name lives stands in wait_until of its row. ttl and handed are for
-- how long the row keeps the name when it is handed over, by the same client or by
-- another. carries are acquisitions that the waiter holds, 16 bytes each.
CREATE TABLE IF NOT EXISTS "sqllock_ticket" (
	name       text COLLATE "C" NOT NULL,
	seq        bigint NOT NULL,
	acq        uuid NOT NULL,
	owner      text NOT NULL,
	instance   uuid NOT NULL,
	label      text NOT NULL,
	shared     boolean NOT NULL,
	ttl        bigint NOT NULL,
	handed     bigint NOT NULL,
	value      bytea,
	carries    bytea,
	entered_at bigint NOT NULL,
	expires_at bigint NOT NULL,
	PRIMARY KEY (name, seq),
	UNIQUE (acq)
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.02);

CREATE INDEX ON "sqllock_ticket" (entered_at) WHERE carries IS NOT NULL;

UPDATE "sqllock_meta" SET schema_version = 20261121000004;

-- +goose Down

UPDATE "sqllock_meta" SET schema_version = 20261121000003;

DROP TABLE IF EXISTS "sqllock_ticket";
ALTER TABLE "sqllock_lock" DROP COLUMN qseq, DROP COLUMN qhead;
