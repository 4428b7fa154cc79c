-- +goose Up

ALTER TABLE "sqllock_lock" ADD COLUMN note TEXT;
UPDATE "sqllock_meta" SET schema_version = 20991231000001;

-- +goose Down

UPDATE "sqllock_meta" SET schema_version = 20261122000001;
ALTER TABLE "sqllock_lock" DROP COLUMN note;
