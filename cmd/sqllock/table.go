package main

import (
	"bufio"
	"io"
	"strconv"
	"strings"

	"github.com/sqllock/sqllock"
)

// tableColumns are the columns of ls. The holder's label stands last: nothing on its
// line follows what may be written from right to left.
var tableColumns = row{"NAME", "MODE", "STATE", "TOKEN", "SINCE", "UNTIL", "HOLDER"}

type row [7]string

const (
	// tableBlock is how many rows are aligned to each other, so that a long table
	// begins at once and is never in memory.
	tableBlock = 1000
	// widestColumn bounds what one long name does to all the others.
	widestColumn = 64
)

// table writes rows in columns.
type table struct {
	w      *bufio.Writer
	block  []row
	widths [len(row{})]int
	clip   int // to so many columns of the terminal; 0 is not at all
}

// newTable returns a table that has its heading.
func newTable(w io.Writer) *table {
	t := &table{w: bufio.NewWriterSize(w, 1<<16)}
	t.add(tableColumns)
	return t
}

func (t *table) add(r row) {
	t.block = append(t.block, r)
	for i := range r {
		t.widths[i] = max(t.widths[i], min(columns(r[i]), widestColumn))
	}
	if len(t.block) == tableBlock {
		t.writeBlock()
	}
}

func (t *table) writeBlock() {
	var text strings.Builder
	for _, r := range t.block {
		text.Reset()
		for i, cell := range r {
			text.WriteString(cell)
			if i < len(r)-1 {
				for range 2 + max(0, t.widths[i]-columns(cell)) {
					text.WriteByte(' ')
				}
			}
		}
		s := text.String()
		if t.clip > 0 {
			s = cut(s, t.clip)
		}
		_, _ = t.w.WriteString(s) // Flush tells
		_ = t.w.WriteByte('\n')
	}
	t.block = t.block[:0]
}

func (t *table) flush() error {
	t.writeBlock()
	return t.w.Flush()
}

// newRow is how a name stands in the table.
func newRow(i *item) row {
	return row{word(i.Name), string(i.mode), state(&i.Info), strconv.FormatInt(i.Token, 10), since(&i.Info), until(&i.Info), holder(&i.Info)}
}

// until tells when a name becomes free if nothing happens.
func until(i *sqllock.Info) string {
	switch {
	case bySession(i):
		return "session"
	case i.Until.Before(i.KeptUntil):
		return relative(i.KeptUntil, i.Now)
	}
	return relative(i.Until, i.Now)
}

// bySession reports that a session of the database keeps the name for as long as it
// lasts.
func bySession(i *sqllock.Info) bool { return i.State == sqllock.StateHeld && i.Until.IsZero() }

// holder tells in a word or two who holds a name. A label of two words is quoted.
func holder(i *sqllock.Info) string {
	switch {
	case i.Readers == 1:
		return "1 reader"
	case i.Readers > 1:
		return strconv.Itoa(i.Readers) + " readers"
	case i.Label != "":
		return word(i.Label)
	}
	return "-"
}

// since tells for how long a name has been held. Of a name that is free that says
// nothing.
func since(i *sqllock.Info) string {
	if i.State != sqllock.StateHeld {
		return "-"
	}
	return relative(i.Since, i.Now)
}
