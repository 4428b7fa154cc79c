package lockmysql

import (
	"encoding/hex"
	"strconv"

	"github.com/sqllock/sqllock/driver"
)

// batch is the parameter of a statement over many requests: a JSON array with an
// array per request, whose columns queries.go names. It holds nothing but
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
	if len(b.text) > 1 {
		b.text = append(b.text, ',')
	}
	b.text = append(b.text, '[')
	return b.hex([]byte(name)).id(acq)
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

// empty reports that there is no request.
func (b *batch) empty() bool { return len(b.text) == 1 }

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
func (s *store) fitting(n int, size func(i int) int) int {
	total := statementBytes
	for i := range n {
		total += requestBytes + 2*size(i)
		if i > 0 && s.maxPacket > 0 && total > s.maxPacket {
			return i
		}
	}
	return n
}

// The bytes of a statement without requests, and of a request without its texts,
// at most.
const (
	statementBytes = 8 << 10
	requestBytes   = 200
)

// nameBatch has requests that are nothing but names.
func nameBatch(names []string) *batch {
	b := newBatch(len(names))
	for _, name := range names {
		b.row(name, driver.ID{}).end()
	}
	return b
}
