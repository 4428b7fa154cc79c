-- The statements about records, for Postgres 12 or newer. In {record} the name of the table is
-- filled in. The first four run with autocommit.

-- name: get
SELECT record, version, token FROM {record} WHERE name = $1::text;

-- name: clock
-- It reads no table. It is in microseconds.
SELECT (date_part('epoch', clock_timestamp()) * 1000000)::bigint;

-- name: create
-- A crash of the server must not undo what it says.
INSERT INTO {record} (name, record, version, token)
SELECT $1::text, $2::text, $3::bigint, $4::bigint
WHERE CASE current_setting('synchronous_commit')
      WHEN 'off' THEN set_config('synchronous_commit', 'on', true) ELSE 'on' END <> ''
ON CONFLICT (name) DO NOTHING;

-- name: update
-- token is a column of a unique index: if it changes, the statement waits for transactions that
-- guard the term. If it does not change, the leader renews, and it does not wait.
UPDATE {record} SET record = $1::text, version = $2::bigint, token = $3::bigint
WHERE name = $4::text AND version = $5::bigint
  AND CASE current_setting('synchronous_commit')
      WHEN 'off' THEN set_config('synchronous_commit', 'on', true) ELSE 'on' END <> '';

-- name: guard
-- It runs in a transaction of the application.
SELECT token FROM {record} WHERE name = $1::text AND token = $2::bigint FOR KEY SHARE;
