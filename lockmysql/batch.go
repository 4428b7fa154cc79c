package lockmysql

import (
	"encoding/hex"
	"fmt"
	"strconv"

	"github.com/sqllock/sqllock/driver"
	"github.com/sqllock/sqllock/internal/rowstore"
)

// batch is the parameter of a statement over many requests: a JSON array with an
// array per request, whose columns the statement names. It holds nothing but
// digits, so it needs no escaping, and a text of 255 bytes is 510 characters.
type batch struct {
	text []byte
}

// newBatch returns a batch with room for so many requests of ordinary names.
func newBatch(requests int) *batch {
	b := &batch{text: make([]byte, 0, 2+requests*160)}
	b.text = append(b.text, '[')
	return b
}

// row begins the next request.
func (b *batch) row(name string, acq driver.ID) *batch {
	return b.begin().hex([]byte(name)).id(acq)
}

// add writes a row of columns.
func (b *batch) add(columns []rowstore.Column, i int) {
	b.begin()
	for _, c := range columns {
		b.cell(c, i)
	}
	b.end()
}

func (b *batch) begin() *batch {
	if len(b.text) > 1 {
		b.text = append(b.text, ',')
	}
	b.text = append(b.text, '[')
	return b
}

// id writes nothing for the zero ID, which names nothing.
func (b *batch) id(id driver.ID) *batch {
	if id == (driver.ID{}) {
		return b.hex(nil)
	}
	return b.hex(id[:])
}

func (b *batch) hex(value []byte) *batch {
	b.text = append(b.text, '"')
	b.text = hex.AppendEncode(b.text, value)
	b.text = append(b.text, '"', ',')
	return b
}

func (b *batch) int(value int64) *batch {
	b.text = strconv.AppendInt(b.text, value, 10)
	b.text = append(b.text, ',')
	return b
}

// end ends the request.
func (b *batch) end() { b.text[len(b.text)-1] = ']' }

// String returns the whole.
func (b *batch) String() string { return string(b.text) + "]" }

// every is the indices of n requests.
func every(n int) []int {
	all := make([]int, n)
	for i := range all {
		all[i] = i
	}
	return all
}

// digits is a text as it travels.
func digits(text string) string { return hex.EncodeToString([]byte(text)) }

// idDigits is an ID as it travels, where the zero ID stands for NULL.
func idDigits(id driver.ID) string {
	if id == (driver.ID{}) {
		return ""
	}
	return id.String()
}

// fitting returns how many of n requests go into one statement: all, unless the
// server takes little at once. size is the length of the texts of a request.
func (e *engine) fitting(n int, size func(i int) int) int {
	total := statementBytes
	for i := range n {
		total += requestBytes + 2*size(i)
		if i > 0 && e.maxPacket > 0 && total > e.maxPacket {
			return i
		}
	}
	return n
}

// checkValues refuses values that the server would not take even one at a time.
func (e *engine) checkValues(reqs []driver.AcquireRequest) error {
	for i := range reqs {
		size := statementBytes + requestBytes + 2*textSize(&reqs[i])
		if len(reqs[i].Value) > 0 && e.maxPacket > 0 && size > e.maxPacket {
			return e.tooLarge(len(reqs[i].Value))
		}
	}
	return nil
}

func textSize(r *driver.AcquireRequest) int { return len(r.Name) + len(r.Owner) + len(r.Value) }

func (e *engine) tooLarge(size int) error {
	return fmt.Errorf("%w: %d bytes, and max_allowed_packet is %d", errTooLarge, size, e.maxPacket)
}

// encode returns the rows of a batch from one on, as many as the server takes at once, and
// which row is the next.
func (e *engine) encode(columns []rowstore.Column, from int) (b *batch, next int, err error) {
	n := rowstore.Rows(columns)
	b = newBatch(n - from)
	for next = from; next < n; next++ {
		before := len(b.text)
		b.add(columns, next)
		// Where the driver writes the parameters into the text, each quote takes two bytes.
		size := statementBytes + len(b.text) + 2*len(columns)*(next+1-from)
		if e.maxPacket == 0 || size <= e.maxPacket {
			continue
		}
		if next == from {
			return nil, 0, e.tooLarge(len(b.text) / 2)
		}
		b.text = b.text[:before]
		break
	}
	return b, next, nil
}

func (b *batch) cell(column rowstore.Column, i int) {
	switch c := column.(type) {
	case []string:
		b.hex([]byte(c[i]))
	case []int64:
		b.int(c[i])
	case []driver.ID:
		b.id(c[i])
	case [][]byte:
		b.hex(c[i])
	default:
		panic(fmt.Sprintf("bug: a column of %T", column))
	}
}

// The bytes of a statement without requests, and of a request without its texts,
// at most.
const (
	statementBytes = 8 << 10
	requestBytes   = 200
)
