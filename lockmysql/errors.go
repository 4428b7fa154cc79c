package lockmysql

import (
	"database/sql"
	sqldriver "database/sql/driver"
	"errors"
	"net"

	"github.com/go-sql-driver/mysql"

	"github.com/sqllock/sqllock/driver"
	"github.com/sqllock/sqllock/internal/rowstore"
)

// unusableError says that a connection is not to be used, and that nothing was done on
// it: another one may do.
type unusableError struct{ error }

func (e *unusableError) Unwrap() []error { return []error{e.error, sqldriver.ErrBadConn} }

// errLocked says that somebody else has locked a row for too long.
var errLocked = rowstore.ErrLocked

// errVanished says that somebody has deleted rows of names that were held.
var errVanished = errors.New("lockmysql: rows of leases are missing")

// errTooLarge says that a value cannot be sent.
var errTooLarge = errors.New("lockmysql: the value is longer than the server takes")

// Classify implements driver.UniqueDatabase.
func (d *Database) Classify(err error) driver.Fault { return classify(err) }

func classify(err error) driver.Fault {
	var partly *rowstore.PartlyError
	var network *net.OpError
	switch {
	case err == nil, errors.As(err, &partly):
		return driver.Unclear
	case errors.Is(err, errLocked), errors.Is(err, rowstore.ErrRolledBack):
		return driver.Again
	case errors.Is(err, driver.ErrNoConnection), errors.Is(err, sql.ErrConnDone),
		errors.Is(err, sqldriver.ErrBadConn), // nothing was sent, see sqlconn.Pool.Unsure
		errors.As(err, &network) && network.Op == "dial":
		return driver.Unreachable
	case numberOf(err) != 0:
		return classifyNumber(numberOf(err))
	case isClosed(err), errors.Is(err, errTooLarge),
		errors.Is(err, mysql.ErrPktTooLarge): // for the client, before it was sent
		return driver.Refused
	}
	return driver.Unclear
}

// isInTheWay reports that a statement that waits for no lock has changed nothing, because a
// row is locked.
func isInTheWay(err error) bool { return numberOf(err) == 1205 } // ER_LOCK_WAIT_TIMEOUT

// isMismatch reports that free_quickly has changed nothing, because a term is not as it
// should be.
func isMismatch(err error) bool { return numberOf(err) == 1690 } // ER_DATA_OUT_OF_RANGE

// isUnusual reports that a block was undone, because a row or a claim is not as it should be.
func isUnusual(err error) bool {
	switch numberOf(err) {
	case 1644, // ER_SIGNAL_EXCEPTION
		1062, // ER_DUP_ENTRY: the same request is under way twice
		1213: // ER_LOCK_DEADLOCK
		return true
	}
	return false
}

// isUnprepared reports that the server does not prepare a statement, because it has as many as it
// keeps, or for a reason that it has against the text, too. The transaction goes on. After any other
// error it may be undone: what is sent then commits by itself.
func isUnprepared(err error) bool {
	return numberOf(err) == 1461 || numberOf(err) != 0 && classify(err) == driver.Refused // ER_MAX_PREPARED_STMT_COUNT_REACHED
}

// numberOf is the number of an error of the server, 0 if it is none.
func numberOf(err error) uint16 {
	if err == nil { // errors.As would take memory
		return 0
	}
	if server := (*mysql.MySQLError)(nil); errors.As(err, &server) {
		return server.Number
	}
	return 0
}

func classifyNumber(number uint16) driver.Fault {
	switch number {
	case 1020, // ER_CHECKREAD: the row changed since the snapshot (MariaDB)
		1037, 1038, 1041, // ER_OUTOFMEMORY and kin
		1047, // ER_UNKNOWN_COM_ERROR: a Galera node without its cluster
		1062, // ER_DUP_ENTRY: the same request was answered at the same time
		1114, // ER_RECORD_FILE_FULL
		1205, // ER_LOCK_WAIT_TIMEOUT
		1206, // ER_LOCK_TABLE_FULL
		1213, // ER_LOCK_DEADLOCK, on Galera also a conflict with another node
		1461, // ER_MAX_PREPARED_STMT_COUNT_REACHED
		1615, // ER_NEED_REPREPARE
		1637, // ER_TOO_MANY_CONCURRENT_TRXS
		3024, // ER_QUERY_TIMEOUT: max_execution_time of MySQL
		3100, // ER_RUN_HOOK_ERROR: the replication group did not accept the commit
		3101, // ER_TRANSACTION_ROLLBACK_DURING_COMMIT: conflict in a replication group
		3572: // ER_LOCK_NOWAIT
		return driver.Again
	case 1040, // ER_CON_COUNT_ERROR
		1129, // ER_HOST_IS_BLOCKED
		1203, // ER_TOO_MANY_USER_CONNECTIONS
		1226, // ER_USER_LIMIT_REACHED
		errInactive,
		// After a fail-over this is the wrong server: another connection may reach the
		// right one.
		1290, // ER_OPTION_PREVENTS_STATEMENT: read_only
		1792, // ER_CANT_EXECUTE_IN_READ_ONLY_TRANSACTION
		1836, // ER_READ_ONLY_MODE
		3032: // ER_SERVER_OFFLINE_MODE
		return driver.Unreachable
	case 1053, // ER_SERVER_SHUTDOWN: also for a statement that was running
		1105,                   // ER_UNKNOWN_ERROR: what proxies say
		1158, 1159, 1160, 1161, // ER_NET_READ_ERROR and kin
		1180, // ER_ERROR_DURING_COMMIT: Galera lost its quorum meanwhile
		1317, // ER_QUERY_INTERRUPTED: was undone, unless it was killed while it committed
		1969, // ER_STATEMENT_TIMEOUT: max_statement_time of MariaDB; likewise
		1927: // ER_CONNECTION_KILLED
		return driver.Unclear
	}
	return driver.Refused
}
