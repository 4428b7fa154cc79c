-- +goose Up

-- qseq is the number of the last ticket of the name, qhead that of the last one
-- that was served: what stands before it is over.
ALTER TABLE "sqllock_lock" ADD COLUMN qseq INTEGER NOT NULL DEFAULT 0;
ALTER TABLE "sqllock_lock" ADD COLUMN qhead INTEGER NOT NULL DEFAULT 0;

-- Who waits for a name, in line, numbered in the order in which they came. Until when
-- the last ticket of a name lives stands in wait_until of its row. ttl and handed are
-- for how long the row keeps the name when it is handed over, by the same client or by
-- another. carries are acquisitions that the waiter holds, 16 bytes each.
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
	value      BLOB,
	carries    BLOB,
	entered_at INTEGER NOT NULL,
	expires_at INTEGER NOT NULL,
	PRIMARY KEY (name, seq),
	UNIQUE (acq)
) STRICT, WITHOUT ROWID;

UPDATE "sqllock_meta" SET schema_version = 20261121000004;

-- +goose Down

UPDATE "sqllock_meta" SET schema_version = 20261121000003;

DROP TABLE IF EXISTS "sqllock_ticket";
ALTER TABLE "sqllock_lock" DROP COLUMN qhead;
ALTER TABLE "sqllock_lock" DROP COLUMN qseq;
