package lockpg

import (
	"database/sql"
	"encoding/binary"
	"fmt"
)

// binaryRow is a row of a result in the binary notation of the server: texts, integers and
// bytes.
type binaryRow struct{ values [][]byte }

// scan copies the columns, as [sql.Rows.Scan] does.
func (r *binaryRow) scan(targets ...any) error {
	if len(targets) != len(r.values) {
		return fmt.Errorf("bug: %d targets for %d columns", len(targets), len(r.values))
	}
	for i, value := range r.values {
		if err := scanValue(value, targets[i]); err != nil {
			return err
		}
	}
	return nil
}

func scanValue(value []byte, target any) (err error) {
	switch t := target.(type) {
	case *[]byte:
		*t = append((*t)[:0], value...)
		return nil
	case sql.Scanner:
		if value == nil {
			return t.Scan(nil)
		}
		return t.Scan(string(value))
	}
	if value == nil {
		return fmt.Errorf("bug: a column for a %T is NULL", target)
	}
	switch t := target.(type) {
	case *string:
		*t = string(value)
	case *int64:
		*t, err = integerOf(value)
	case *int:
		var n int64
		n, err = integerOf(value)
		*t = int(n)
	default:
		return fmt.Errorf("bug: a column is read into a %T", target)
	}
	return err
}

// integerOf reads an integer of any length.
func integerOf(value []byte) (int64, error) {
	switch len(value) {
	case 8:
		return int64(binary.BigEndian.Uint64(value)), nil
	case 4:
		return int64(int32(binary.BigEndian.Uint32(value))), nil
	case 2:
		return int64(int16(binary.BigEndian.Uint16(value))), nil
	}
	return 0, fmt.Errorf("bug: an integer of %d bytes", len(value))
}
