-- What is asked of a database when it is opened.

-- name: server
-- It fails on every other product.
SELECT sqlite_version();

-- name: product
-- For a handle that failed the first.
SELECT version();

-- name: file
-- It is empty for a database that only its connection sees.
SELECT coalesce(file, '') FROM pragma_database_list WHERE name = 'main';

-- name: synchronous
PRAGMA synchronous;

-- name: isolation
PRAGMA read_uncommitted;

-- name: tables
-- It counts those that exist. SQLite finds a table whatever the case of its name.
SELECT count(*) FROM sqlite_schema
WHERE type = 'table' AND lower(name) IN (lower(?1), lower(?2));

-- name: meta
SELECT schema_version, compatible_from, id FROM {meta};

-- name: writable
-- It changes nothing, but needs the write lock. BEGIN IMMEDIATE succeeds on a read-only
-- database.
UPDATE {meta} SET id = id WHERE one = 0;
