-- +goose Up

ALTER TABLE "sqllock_lock" ADD COLUMN note text;

-- A function that changes is a new one. It stands beside the one that older libraries call.
-- +goose StatementBegin
DO $$
BEGIN
	EXECUTE (SELECT replace(pg_get_functiondef(p.oid), 'sqllock_try_1', 'sqllock_try_2')
		FROM pg_proc p JOIN pg_class c ON c.relnamespace = p.pronamespace
		WHERE c.oid = $q$"sqllock_meta"$q$::regclass AND p.proname = left(c.relname::text, -4) || 'try_1');
END
$$;
-- +goose StatementEnd

UPDATE "sqllock_meta" SET schema_version = 20991231000001;

-- +goose Down

UPDATE "sqllock_meta" SET schema_version = 20261122000001;
DROP FUNCTION IF EXISTS "sqllock_try_2"(bigint[], bigint[], boolean[], text[], boolean[], bigint);
ALTER TABLE "sqllock_lock" DROP COLUMN note;
