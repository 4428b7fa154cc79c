-- The statements about records, for MySQL 8.0 and MariaDB 10.6 or newer. In {record} the name of
-- the table is filled in. The first four run with autocommit.

-- name: get
SELECT record, version, token FROM {record} WHERE name = ?;

-- name: clock
-- It reads no table. It is in microseconds.
SELECT TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6));

-- name: create
INSERT IGNORE INTO {record} (name, record, version, token) VALUES (?, ?, ?, ?);

-- name: update
-- If token changes, the statement waits for transactions that guard the term, at the entry in
-- the index that they have locked. If it does not change, the leader renews, and it does not
-- come near the index.
UPDATE {record} SET record = ?, version = ?, token = ? WHERE name = ? AND version = ?;

-- name: guard
-- It runs in a transaction of the application. It locks the entry in the index, and not the row.
SELECT token FROM {record} FORCE INDEX (sqllock_record_guard)
WHERE name = ? AND token = ? LOCK IN SHARE MODE;

-- name: galera
-- It runs in a transaction of the application, before guard. Not every server knows the variable.
SHOW SESSION VARIABLES LIKE 'wsrep_on';
