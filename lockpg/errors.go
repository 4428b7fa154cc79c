package lockpg

import (
	"context"
	"database/sql"
	sqldriver "database/sql/driver"
	"errors"
	"fmt"
	"net"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/sqllock/sqllock/driver"
	"github.com/sqllock/sqllock/internal/rowstore"
	"github.com/sqllock/sqllock/internal/sqlconn"
)

// Classify implements driver.UniqueDatabase.
func (d *Database) Classify(err error) driver.Fault { return classify(err) }

func classify(err error) driver.Fault {
	var connect *pgconn.ConnectError
	var dial *net.OpError
	switch {
	case err == nil:
		return driver.Unclear
	case errors.As(err, new(*rowstore.PartlyError)):
		return driver.Unclear
	case errors.Is(err, rowstore.ErrLocked):
		return driver.Again
	case errors.Is(err, driver.ErrNoConnection), errors.Is(err, sqldriver.ErrBadConn), errors.Is(err, sql.ErrConnDone),
		errors.Is(err, errNotPrimary), errors.Is(err, errOtherServer), errors.As(err, &connect), errors.As(err, &dial) && dial.Op == "dial":
		return driver.Unreachable
	}
	if state, ok := stateOf(err); ok {
		return classifyState(state)
	}
	if isClosed(err) {
		return driver.Refused
	}
	if isUnsent(err) {
		return driver.Unreachable
	}
	return driver.Unclear
}

// isUnsent reports that an error of pgx says that nothing was sent: writing has failed, or the
// context was over before. pgx says so also of a batch that was sent, if the connection breaks before
// its answer comes (5.12): then the error is that the connection is closed.
func isUnsent(err error) bool {
	if err == nil { // errors.As would take memory
		return false
	}
	var write *net.OpError
	return pgconn.SafeToRetry(err) &&
		(errors.As(err, &write) && write.Op == "write" || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded))
}

// stateOf is the code of an error of the server, if it is one. pgx and lib/pq both
// tell it this way.
func stateOf(err error) (state string, ok bool) {
	var coded interface{ SQLState() string }
	if errors.As(err, &coded) {
		return coded.SQLState(), true
	}
	return "", false
}

// unsent says as a driver would that nothing was run, if the server has ended the session
// before, because it was idle (idle_session_timeout): it says so when the next statement
// comes, without looking at it.
func unsent(err error) error {
	if err == nil {
		return nil
	}
	if state, _ := stateOf(err); state == "57P05" && !errors.Is(err, sqldriver.ErrBadConn) {
		return sqlconn.Repeatable(err)
	}
	return err
}

// migrationConflict reports an error that another migration explains which runs
// at the same time, also of a process that was killed; and that a table which
// was there a moment ago is gone.
func migrationConflict(err error) bool {
	state, _ := stateOf(err)
	return classify(err) == driver.Again || state == "42P01" // undefined_table
}

// overtaken says of a claim that another connection has entered or ended that it is so.
func overtaken(err error) error {
	if state, _ := stateOf(err); state == uniqueViolation || state == divisionByZero {
		return fmt.Errorf("%w: %w", rowstore.ErrOvertaken, err)
	}
	return err
}

// uniqueViolation is the code of an error: the same request was answered at the same time.
const uniqueViolation = "23505"

func classifyState(state string) driver.Fault {
	switch state {
	case uniqueViolation,
		"40001", // serialization_failure
		"40P01", // deadlock_detected
		"55P03", // lock_not_available
		"25P04", // transaction_timeout of the role's: the transaction was undone
		"57014", // query_canceled: a statement_timeout of the role's
		"25P03": // idle_in_transaction_session_timeout: the client was paused, the transaction was undone
		return driver.Again
	case "57P03", // cannot_connect_now
		"25006": // read_only_sql_transaction: a fail-over is under way, another connection may help
		return driver.Unreachable
	}
	switch state[:min(2, len(state))] {
	case "53": // insufficient resources: connections, memory, disk
		return driver.Unreachable
	case "0A", "22", "23", "25", "28", "3D", "3F", "42": // what is asked for is wrong, or not allowed
		return driver.Refused
	}
	return driver.Unclear // shutdowns, broken connections, internal errors
}
