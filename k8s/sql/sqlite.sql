-- The statements about records, for SQLite 3.38 or newer. In {record} the name of the table is
-- filled in. The first three run with autocommit.

-- name: get
SELECT record, version, token FROM {record} WHERE name = ?1;

-- name: create
INSERT INTO {record} (name, record, version, token) VALUES (?1, ?2, ?3, ?4)
ON CONFLICT (name) DO NOTHING;

-- name: update
UPDATE {record} SET record = ?1, version = ?2, token = ?3 WHERE name = ?4 AND version = ?5;

-- name: guard
-- It changes nothing, but takes the write lock, which the application's transaction keeps.
UPDATE {record} SET token = token WHERE name = ?1 AND token = ?2 RETURNING token;
