-- +goose Up

-- qseq is the number of the last ticket of the name. What stands up to qhead is over.
ALTER TABLE "sqllock_lock" ADD COLUMN qseq INTEGER NOT NULL DEFAULT 0;
ALTER TABLE "sqllock_lock" ADD COLUMN qhead INTEGER NOT NULL DEFAULT 0;

-- value goes back to where it stood, which is last.
ALTER TABLE "sqllock_lock" RENAME COLUMN value TO value_before;
ALTER TABLE "sqllock_lock" ADD COLUMN value BLOB;
UPDATE "sqllock_lock" SET value = value_before WHERE value_before IS NOT NULL;
ALTER TABLE "sqllock_lock" DROP COLUMN value_before;

-- Who waits for a name, in line, numbered in the order in which they came. Until when
-- the last ticket of a name lives stands in wait_until of its row, or later. ttl and
-- handed are for how long the row keeps the name when it is handed over, by the same
-- client or by another. carries are acquisitions that the waiter holds, 16 bytes each.
-- value stands last: a large one is not read to get at what stands before it.
CREATE TABLE IF NOT EXISTS "sqllock_ticket" (
	name       TEXT NOT NULL COLLATE BINARY,
	seq        INTEGER NOT NULL,
	acq        BLOB NOT NULL,
	owner      TEXT NOT NULL,
	instance   BLOB NOT NULL,
	label      TEXT NOT NULL,
	shared     INTEGER NOT NULL,
	ttl        INTEGER NOT NULL,
	handed     INTEGER NOT NULL,
	entered_at INTEGER NOT NULL,
	expires_at INTEGER NOT NULL,
	carries    BLOB,
	value      BLOB,
	PRIMARY KEY (name, seq),
	UNIQUE (acq)
) STRICT, WITHOUT ROWID;

CREATE INDEX IF NOT EXISTS "sqllock_ticket_carries" ON "sqllock_ticket" (name, seq) WHERE carries IS NOT NULL;

UPDATE "sqllock_meta" SET schema_version = 20261121000004;

-- +goose Down

UPDATE "sqllock_meta" SET schema_version = 20261121000003;

DROP TABLE IF EXISTS "sqllock_ticket";
ALTER TABLE "sqllock_lock" DROP COLUMN qhead;
ALTER TABLE "sqllock_lock" DROP COLUMN qseq;
