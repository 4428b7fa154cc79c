package output

import (
	"fmt"
	"strings"
	"text/tabwriter"
)

// Fields is a list of fields for people, one on a line. The zero value is not usable.
type Fields struct {
	text strings.Builder
	w    *tabwriter.Writer
}

// NewFields returns an empty list.
func NewFields() *Fields {
	f := &Fields{}
	f.w = tabwriter.NewWriter(&f.text, 0, 0, 2, ' ', 0)
	return f
}

// Add adds a field. The value is written as it is.
func (f *Fields) Add(key, value string) { _, _ = fmt.Fprintf(f.w, "%s\t%s\n", key, value) }

// AddWord adds a field that somebody else has chosen, as a [Word], unless it is empty.
func (f *Fields) AddWord(key, value string) {
	if value != "" {
		f.Add(key, Word(value))
	}
}

// AddValue adds the value of a lease: as a word, or as hexadecimal digits if it is no UTF-8.
func (f *Fields) AddValue(b []byte) {
	v := NewValue(b)
	f.AddWord("value", v.Text)
	f.AddWord("value (hex)", v.Hex)
}

// Bytes returns the list.
func (f *Fields) Bytes() []byte {
	_ = f.w.Flush() // a string takes everything
	return []byte(f.text.String())
}
