package output

import (
	"bufio"
	"io"
	"slices"
	"strings"
)

const (
	// tableBlock is how many rows are aligned to each other. So a long table begins at once
	// and is never in memory.
	tableBlock = 1000
	// widestColumn bounds what one long name does to all other rows.
	widestColumn = 64
)

// Table writes rows in columns. text/tabwriter does not fit: it counts runes, while names can
// take two columns of a terminal for a rune, and one long name would move all other rows.
type Table struct {
	// Columns is the width to which lines are cut, 0 for no limit.
	Columns int

	w      *bufio.Writer
	block  [][]string
	widths []int
}

// NewTable returns a table with a heading.
func NewTable(w io.Writer, heading ...string) *Table {
	t := &Table{w: bufio.NewWriterSize(w, 1<<16), widths: make([]int, len(heading))}
	t.Add(heading...)
	return t
}

// Add adds a row with as many cells as the heading has.
func (t *Table) Add(row ...string) {
	t.block = append(t.block, row)
	for i := range row {
		t.widths[i] = max(t.widths[i], min(Columns(row[i]), widestColumn))
	}
	if len(t.block) == tableBlock {
		t.writeBlock()
	}
}

func (t *Table) writeBlock() {
	var text strings.Builder
	for _, row := range t.block {
		text.Reset()
		for i, cell := range row {
			text.WriteString(cell)
			if i < len(row)-1 {
				text.WriteString(strings.Repeat(" ", 2+max(0, t.widths[i]-Columns(cell))))
			}
		}
		line := text.String()
		if t.Columns > 0 {
			line = Cut(line, t.Columns)
		}
		_, _ = t.w.WriteString(line) // Flush returns the error
		_ = t.w.WriteByte('\n')
	}
	t.block = slices.Delete(t.block, 0, len(t.block))
}

// Flush writes the rest of the table. It returns the first error of writing it.
func (t *Table) Flush() error {
	t.writeBlock()
	return t.w.Flush()
}
