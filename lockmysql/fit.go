package lockmysql

import (
	"context"
	"database/sql"
	sqldriver "database/sql/driver"
	"errors"
	"fmt"
	"reflect"
	"strings"

	"github.com/sqllock/sqllock/driver"
)

// What the server says of a session with each reply.
const (
	statusInTrans    = 1 << 0
	statusAutocommit = 1 << 1
)

// What a connection changes must be committed at once. One that the application gave
// back inside a transaction is ended: then the transaction is rolled back, as it would be
// if its process died. Nothing was done on it.
var (
	errInTransaction = &unusableError{errors.New("lockmysql: the application gave a connection back inside a transaction")}
	errNoAutocommit  = &unusableError{fmt.Errorf("%w: autocommit is 0 in this session: what is locked would not be kept; "+
		"remove autocommit from the DSN, or from init_connect", driver.ErrUnsupported)}
)

// fit looks at what the server has said last. Where a driver hides that, it costs a
// statement.
func fit(ctx context.Context, conn *sql.Conn) error {
	var status uint64
	var known bool
	err := conn.Raw(func(c any) error {
		status, known = statusOf(c)
		return nil
	})
	switch {
	case err != nil:
		return err
	case !known:
		_, err = conn.ExecContext(ctx, queryRollback)
		if err != nil && strings.Contains(err.Error(), "no transaction is active") { // so says SQLite, and the next statement tells
			return nil
		}
		return err
	case status&statusInTrans != 0:
		return errInTransaction
	case status&statusAutocommit == 0:
		return errNoAutocommit
	}
	return nil
}

// statusOf reads a field that go-sql-driver keeps for itself: it has no method for it,
// and to ask the server would cost each call a round trip.
func statusOf(c any) (status uint64, known bool) {
	if wrapped, ok := c.(interface{ Raw() sqldriver.Conn }); ok {
		c = wrapped.Raw()
	}
	v := reflect.ValueOf(c)
	if v.Kind() != reflect.Pointer || v.Elem().Kind() != reflect.Struct || v.Elem().Type().PkgPath() != "github.com/go-sql-driver/mysql" {
		return 0, false
	}
	field := v.Elem().FieldByName("status")
	if !field.IsValid() || !field.CanUint() {
		return 0, false
	}
	return field.Uint(), true
}
