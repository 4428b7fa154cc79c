package lockpg

import (
	"encoding/binary"
	"fmt"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/sqllock/sqllock/driver"
)

// params are the parameters of a statement in the binary notation of the server. Its memory
// is used again.
type params struct {
	values [][]byte
	buf    []byte
}

// maxKept is how much memory is kept for the next statement.
const maxKept = 1 << 18

// set writes arguments as parameters of the given types.
func (p *params) set(args []any, types []uint32) error {
	if len(args) != len(types) {
		return fmt.Errorf("bug: %d arguments for %d parameters", len(args), len(types))
	}
	if p.buf == nil || cap(p.buf) > maxKept {
		p.buf = make([]byte, 0, 256) // not nil, which would make NULL of an empty text
	}
	p.values, p.buf = p.values[:0], p.buf[:0]
	for i, arg := range args {
		from := len(p.buf) // what was written before may stay in an array that was too short
		if err := p.write(arg, types[i]); err != nil {
			return err
		}
		p.values = append(p.values, p.buf[from:])
	}
	return nil
}

func (p *params) write(arg any, of uint32) error {
	switch a := arg.(type) {
	case string:
		if of == pgtype.UUIDOID {
			return p.writeDigits(a)
		}
		p.buf = append(p.buf, a...)
	case []byte:
		p.buf = append(p.buf, a...)
	case driver.ID:
		p.buf = append(p.buf, a[:]...)
	case int64:
		if of != pgtype.Int8OID {
			return fmt.Errorf("bug: an int64 for a parameter of type %d", of)
		}
		p.integer(a)
	case []string:
		writeArray(p, a, pgtype.TextOID, func(s string) { p.element(len(s)).buf = append(p.buf, s...) })
	case [][]byte:
		writeArray(p, a, pgtype.ByteaOID, func(b []byte) { p.element(len(b)).buf = append(p.buf, b...) })
	case []int64:
		writeArray(p, a, pgtype.Int8OID, func(n int64) { p.element(8).integer(n) })
	case []driver.ID:
		writeArray(p, a, pgtype.UUIDOID, func(id driver.ID) {
			if id == (driver.ID{}) {
				p.element(null)
			} else {
				p.element(len(id)).buf = append(p.buf, id[:]...)
			}
		})
	default:
		return fmt.Errorf("bug: an argument is a %T", arg)
	}
	return nil
}

// null is the length of an element that is NULL.
const null = -1

// writeDigits writes an ID that is given as hexadecimal digits.
func (p *params) writeDigits(digits string) error {
	var id driver.ID
	if err := id.UnmarshalText([]byte(digits)); err != nil {
		return err
	}
	p.buf = append(p.buf, id[:]...)
	return nil
}

func (p *params) integer(n int64) { p.buf = binary.BigEndian.AppendUint64(p.buf, uint64(n)) }

// element begins an element of an array.
func (p *params) element(length int) *params {
	p.buf = binary.BigEndian.AppendUint32(p.buf, uint32(int32(length)))
	return p
}

// writeArray writes an array of one dimension whose elements are of a type.
func writeArray[T any](p *params, list []T, of uint32, write func(T)) {
	dimensions := uint32(1)
	if len(list) == 0 {
		dimensions = 0
	}
	const mayHaveNulls, first = 1, 1
	for _, word := range []uint32{dimensions, mayHaveNulls, of} {
		p.buf = binary.BigEndian.AppendUint32(p.buf, word)
	}
	if len(list) == 0 {
		return
	}
	p.buf = binary.BigEndian.AppendUint32(p.buf, uint32(len(list)))
	p.buf = binary.BigEndian.AppendUint32(p.buf, first)
	for _, v := range list {
		write(v)
	}
}
