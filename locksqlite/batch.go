package locksqlite

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/sqllock/sqllock/driver"
)

// batch is what a statement over many requests takes, see queries.go.
type batch struct {
	rows  [][]any
	acqs  []byte
	index map[string]int // where the request for a name stands; names are distinct
}

func newBatch(size int) *batch {
	return &batch{
		rows:  make([][]any, 0, size),
		acqs:  make([]byte, 0, size*len(driver.ID{})),
		index: make(map[string]int, size),
	}
}

// add adds the request at index at.
func (b *batch) add(at int, name string, acq driver.ID, values ...any) {
	b.rows = append(b.rows, append([]any{name}, values...))
	b.acqs = append(b.acqs, acq[:]...)
	b.index[name] = at
}

// args returns the parameters of the statement, more being those after the batch.
func (b *batch) args(more ...any) []any {
	return append([]any{toJSON(b.rows), b.acqs}, more...)
}

// toJSON encodes a batch. Strings are valid UTF-8 and there is nothing else
// that could fail.
func toJSON(v any) string {
	text, err := json.Marshal(v)
	if err != nil {
		panic("bug: " + err.Error())
	}
	return string(text)
}

func every(n int) []int {
	all := make([]int, n)
	for i := range all {
		all[i] = i
	}
	return all
}

func micros(n int64) time.Duration { return time.Duration(n) * time.Microsecond }

// bit is a boolean as a parameter: not every driver takes a bool for a number.
func bit(b bool) int64 {
	if b {
		return 1
	}
	return 0
}

// idTarget scans an id, which is zero if the column is NULL.
type idTarget struct{ id *driver.ID }

// Scan implements sql.Scanner.
func (t idTarget) Scan(value any) error {
	*t.id = driver.ID{}
	b, ok := value.([]byte)
	if value != nil && (!ok || len(b) != len(t.id)) {
		return fmt.Errorf("the id in a row is %T of %d bytes", value, len(b))
	}
	copy(t.id[:], b)
	return nil
}
