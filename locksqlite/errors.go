package locksqlite

import (
	"database/sql"
	sqldriver "database/sql/driver"
	"errors"
	"reflect"
	"strings"

	"github.com/sqllock/sqllock/driver"
	"github.com/sqllock/sqllock/internal/rowstore"
)

// Primary result codes of SQLite.
const (
	codeError      = 1
	codePerm       = 3
	codeBusy       = 5
	codeLocked     = 6
	codeReadOnly   = 8
	codeCorrupt    = 11
	codeFull       = 13
	codeCantOpen   = 14
	codeProtocol   = 15
	codeSchema     = 17
	codeTooBig     = 18
	codeConstraint = 19
	codeMismatch   = 20
	codeMisuse     = 21
	codeAuth       = 23
	codeRange      = 25
	codeNotADB     = 26
)

// Classify implements driver.UniqueDatabase.
func (d *Database) Classify(err error) driver.Fault { return classify(err) }

// classify tells what an error means. What is not listed stays unclear:
// SQLITE_INTERRUPT and SQLITE_IOERR, for example.
//
// A file that turned read-only refuses: unlike a server it has no successor
// that would be writable after a fail-over.
func classify(err error) driver.Fault {
	if errors.As(err, new(*rowstore.PartlyError)) {
		return driver.Unclear
	}
	if errors.Is(err, errBusyHere) || errors.Is(err, rowstore.ErrLocked) {
		return driver.Again
	}
	if errors.As(err, new(*movedError)) {
		return driver.Refused
	}
	if isUnreachable(err) {
		return driver.Unreachable
	}
	switch resultCode(err) {
	case codeBusy, codeLocked, codeProtocol, codeSchema:
		return driver.Again
	case codeCantOpen:
		return driver.Unreachable
	case codeError, codePerm, codeReadOnly, codeCorrupt, codeFull, codeTooBig, codeConstraint,
		codeMismatch, codeMisuse, codeAuth, codeRange, codeNotADB:
		return driver.Refused
	}
	return classifyText(err)
}

func isUnreachable(err error) bool {
	return errors.Is(err, driver.ErrNoConnection) ||
		errors.Is(err, sqldriver.ErrBadConn) || // see sqlconn.Pool.Unsure
		errors.Is(err, sql.ErrConnDone)
}

// classifyText is for errors without a code that we can find: another driver,
// or one that wraps its errors in text only.
func classifyText(err error) driver.Fault {
	if err == nil {
		return driver.Unclear
	}
	text := err.Error()
	for _, t := range []string{"database is locked", "database table is locked", "database schema has changed"} {
		if strings.Contains(text, t) {
			return driver.Again
		}
	}
	for _, t := range []string{"no such table", "no such column", "readonly database", "constraint failed", textClosed} {
		if strings.Contains(text, t) {
			return driver.Refused
		}
	}
	return driver.Unclear
}

// textClosed is the whole text of the error of a closed handle, which
// database/sql does not export.
const textClosed = "sql: database is closed"

// resultCode returns the primary result code that err carries, 0 if none. An
// extended code has it in its lowest byte.
func resultCode(err error) int {
	if err == nil {
		return 0
	}
	if code := ownCode(err) & 0xff; code != 0 {
		return code
	}
	switch wrapper := err.(type) {
	case interface{ Unwrap() error }:
		return resultCode(wrapper.Unwrap())
	case interface{ Unwrap() []error }:
		for _, e := range wrapper.Unwrap() {
			if code := resultCode(e); code != 0 {
				return code
			}
		}
	}
	return 0
}

// ownCode returns the code that err itself carries. The drivers agree on the
// name Code only: modernc has a method that returns an int, ncruces a method
// that returns a type of its own, mattn a field.
func ownCode(err error) int {
	if c, ok := err.(interface{ Code() int }); ok {
		return c.Code()
	}
	v := reflect.ValueOf(err)
	if m := v.MethodByName("Code"); m.IsValid() && m.Type().NumIn() == 0 && m.Type().NumOut() == 1 {
		return number(m.Call(nil)[0])
	}
	if v = reflect.Indirect(v); v.Kind() == reflect.Struct {
		return number(v.FieldByName("Code"))
	}
	return 0
}

func number(v reflect.Value) int {
	switch {
	case v.CanInt():
		return int(v.Int())
	case v.CanUint():
		return int(v.Uint())
	}
	return 0
}
