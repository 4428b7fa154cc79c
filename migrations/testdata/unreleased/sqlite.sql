CREATE TABLE sqllock_migration (id INTEGER PRIMARY KEY, version_id INTEGER NOT NULL UNIQUE, is_applied INTEGER NOT NULL,
	tstamp TIMESTAMP DEFAULT (datetime('now')));
INSERT INTO sqllock_migration (version_id, is_applied) VALUES (0, true), (20261121000001, true), (20261121000002, true),
	(20261121000003, true), (20261121000004, true);
CREATE TABLE sqllock_lock (name TEXT PRIMARY KEY, acq BLOB, owner TEXT, instance BLOB, version INTEGER NOT NULL, expires_at INTEGER)
	STRICT, WITHOUT ROWID;
INSERT INTO sqllock_lock VALUES ('k', x'00000000000000000000000000000001', 'o', NULL, 7, 9000000000000000);
CREATE VIEW sqllock_locks AS SELECT name, owner FROM sqllock_lock;
CREATE TABLE sqllock_meta (one INTEGER PRIMARY KEY, id BLOB NOT NULL, schema_version INTEGER, compatible_from INTEGER) STRICT;
INSERT INTO sqllock_meta VALUES (1, x'00000000000000000000000000000002', 20261121000004, 20261121000001);
CREATE TABLE sqllock_fence (resource TEXT PRIMARY KEY, token INTEGER NOT NULL);
CREATE TABLE sqllock_holder (name TEXT PRIMARY KEY);
CREATE TABLE sqllock_ticket (name TEXT PRIMARY KEY);
