-- What is asked of a server before a mode is opened, and what is set on a session around a
-- transaction of the library's own.

-- name: version
SELECT VERSION();

-- name: variables
SHOW SESSION VARIABLES WHERE Variable_name IN (
	'autocommit', 'binlog_format', 'character_set_connection', 'completion_type',
	'group_replication_single_primary_mode', 'innodb_flush_log_at_trx_commit', 'innodb_read_only',
	'innodb_rollback_on_timeout', 'log_bin', 'max_allowed_packet', 'read_only', 'sql_mode',
	'super_read_only', 'sync_binlog', 'transaction_isolation', 'transaction_read_only',
	'tx_isolation', 'tx_read_only', 'wsrep_on', 'wsrep_sync_wait');

-- name: redo
SHOW GLOBAL STATUS LIKE 'Innodb_redo_log_enabled';

-- name: table
SELECT DATABASE(), (
	SELECT ENGINE FROM information_schema.TABLES
	WHERE TABLE_SCHEMA = DATABASE() AND TABLE_NAME = ?);

-- name: bound
-- The server ends a session that is silent for a second in the middle of a transaction. MySQL
-- knows no other bound than that of a session. What was set is remembered. The isolation level
-- is that of the next transaction alone: {isolation} is the variable, {level} is READ-COMMITTED.
-- A server that logs statements takes no writes in it, there it is REPEATABLE-READ: time stands
-- still when the first thing is read without a lock, which is after the rows were locked.
SET @sqllock_wait_timeout = @@SESSION.wait_timeout, @@SESSION.wait_timeout = 1,
	/*M!100600 @sqllock_idle_transaction_timeout = @@SESSION.idle_transaction_timeout,
	@@SESSION.idle_transaction_timeout = 1,
	@sqllock_idle_readonly_transaction_timeout = @@SESSION.idle_readonly_transaction_timeout,
	@@SESSION.idle_readonly_transaction_timeout = 1,
	@sqllock_idle_write_transaction_timeout = @@SESSION.idle_write_transaction_timeout,
	@@SESSION.idle_write_transaction_timeout = 1, */
	@@{isolation} = '{level}';

-- name: unbound
SET @@SESSION.wait_timeout = @sqllock_wait_timeout
	/*M!100600 , @@SESSION.idle_transaction_timeout = @sqllock_idle_transaction_timeout,
	@@SESSION.idle_readonly_transaction_timeout = @sqllock_idle_readonly_transaction_timeout,
	@@SESSION.idle_write_transaction_timeout = @sqllock_idle_write_transaction_timeout */;
