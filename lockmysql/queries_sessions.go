package lockmysql

import (
	"fmt"
	"strings"
)

// The SQL of sessions and of the locks that they hold, see queries.go.

// What is set on a session that holds locks. The server ends it when it has been
// silent for so many seconds, also in the middle of a packet (net_read_timeout is for
// the data of LOAD DATA), or has not taken an answer. MariaDB has others for a
// transaction, which may have been set to less. MySQL has no other way to bound the
// wait for a row to a second.
var (
	settingsMariaDB = []string{"wait_timeout", "net_write_timeout",
		"idle_transaction_timeout", "idle_readonly_transaction_timeout", "idle_write_transaction_timeout"}
	settingsMySQL = []string{"wait_timeout", "net_write_timeout", "innodb_lock_wait_timeout"}
)

// querySettings reads where the connection leads, its id, and settings.
func querySettings(names []string) string {
	return queryHost + `, CONNECTION_ID(), @@SESSION.` + strings.Join(names, `, @@SESSION.`)
}

func querySet(names []string) string {
	return `SET @@SESSION.` + strings.Join(names, ` = ?, @@SESSION.`) + ` = ?`
}

const (
	queryHost     = `SELECT ` + hostColumns
	queryWritable = `SELECT ` + readOnly

	queryBegin    = `START TRANSACTION`
	queryCommit   = `COMMIT`
	queryRollback = `ROLLBACK`

	// A lock of a session of one's own, by which others can tell that it lives.
	queryMark   = `SELECT GET_LOCK(?, 0), CONNECTION_ID()`
	queryMarked = `SELECT COALESCE(IS_USED_LOCK(?), 0), IS_FREE_LOCK(?), CONNECTION_ID()`
	queryUnmark = `SELECT RELEASE_LOCK(?)`

	queryNodes = `SHOW SESSION VARIABLES WHERE Variable_name IN ('autocommit', 'wsrep_on', 'group_replication_single_primary_mode', 'innodb_rollback_on_timeout')`

	queryWaitTimeout = `SELECT @@SESSION.innodb_lock_wait_timeout`
	querySetTimeout  = `SET @@SESSION.innodb_lock_wait_timeout = ?`
)

// The rows that the mode for update locks.
const (
	queryPin   = doSelect + `1` + fromPin
	fromPin    = ` FROM {pin} p FORCE INDEX (PRIMARY) WHERE p.name = UNHEX(?)`
	forUpdate  = ` FOR UPDATE`
	forShare   = ` /*M!100600 LOCK IN SHARE MODE */ /*!80000 FOR SHARE */`
	noWait     = ` NOWAIT`
	skipLocked = ` SKIP LOCKED`

	queryIdentity = doSelect + hostColumns + fromPin + forShare

	queryPins     = doSelect + `HEX(p.name) FROM {pin} p FORCE INDEX (PRIMARY) WHERE p.name IN (UNHEX(?), UNHEX(?))`
	queryPinNew   = bounded + `INSERT` + hint + `IGNORE INTO {pin} (name) VALUES (UNHEX(?))`
	queryPinPurge = doDelete + `p FROM (
	SELECT p.name FROM ` + withName + asRows + ` STRAIGHT_JOIN {pin} p FORCE INDEX (PRIMARY) ON p.name = UNHEX(r.name)
	LIMIT 1000000 FOR UPDATE /*!80000 OF p */ SKIP LOCKED) d STRAIGHT_JOIN {pin} p FORCE INDEX (PRIMARY) ON p.name = d.name`
)

// The locks of advisory mode, see slots.
const (
	withKey = withName + `, k CHAR(32) CHARACTER SET ascii PATH '$[1]'`
	mainKey = `CONCAT('` + keyPrefix + `', r.k)`
)

var (
	// queryLock takes locks alone: 1 if it has one, 0 if somebody else has, -1 if
	// others share it. NULL is an error. It tells of the terms too, as they were
	// before.
	queryLock = doSelect + queryTerm + `, r.i - 1, CASE GET_LOCK(` + mainKey + `, 0) WHEN 1 THEN
	IF(` + eachSlot(" AND ", `IS_FREE_LOCK(%s) = 1`) + `, 1, IF(RELEASE_LOCK(` + mainKey + `) = 1, -1, NULL)) WHEN 0 THEN 0 END
	FROM ` + withKey + leftNamed

	// queryLockShared takes a slot of each lock, and the lock itself for as long as
	// that takes: 2 and more is the number of the slot and 2, 0 and -1 are as above.
	// The slots are tried from the one on that the last column names.
	queryLockShared = doSelect + queryTerm + `, r.i - 1, CASE GET_LOCK(` + mainKey + `, 0) WHEN 1 THEN CASE` +
		anySlot() + ` ELSE IF(RELEASE_LOCK(` + mainKey + `) = 1, -1, NULL) END WHEN 0 THEN 0 END
	FROM ` + withKey + `, slot INT PATH '$[2]'` + leftNamed

	queryUnlock = doSelect + `r.i - 1, RELEASE_LOCK(CONVERT(UNHEX(r.name) USING utf8mb4)) FROM ` + withName + asRows + ` LIMIT 1000000`

	// queryReaders counts the sessions that share locks.
	queryReaders = doSelect + `r.i - 1, ` + eachSlot(" + ", `(IS_FREE_LOCK(%s) = 0)`) + ` FROM ` + withKey + asRows + ` LIMIT 1000000`
)

// eachSlot joins an expression over the key of each slot.
func eachSlot(join, format string) string {
	all := make([]string, slots)
	for i := range all {
		all[i] = fmt.Sprintf(format, slotKey(fmt.Sprint(i)))
	}
	return strings.Join(all, join)
}

// anySlot are the branches of a CASE that try the slots. Each gives the lock itself
// back when it has got a slot, and not before.
func anySlot() string {
	var b strings.Builder
	for i := range slots {
		slot := fmt.Sprintf("(r.slot + %d) %% %d", i, slots)
		fmt.Fprintf(&b, "\n\tWHEN GET_LOCK(%s, 0) = 1 THEN IF(RELEASE_LOCK(%s) = 1, 2 + %s, NULL)", slotKey(slot), mainKey, slot)
	}
	return b.String()
}

// slotKey is the name of a slot's lock; number is SQL.
func slotKey(number string) string {
	return `CONCAT('` + keyPrefix + `', r.k, ':', ` + number + `)`
}
