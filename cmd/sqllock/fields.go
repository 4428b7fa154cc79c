package main

import (
	"encoding/hex"
	"fmt"
	"strings"
	"text/tabwriter"
	"unicode/utf8"
)

// fields is a text for people, a line for each field.
type fields struct {
	text strings.Builder
	w    *tabwriter.Writer
}

func newFields() *fields {
	f := &fields{}
	f.w = tabwriter.NewWriter(&f.text, 0, 0, 2, ' ', 0)
	return f
}

func (f *fields) field(key, value string) { _, _ = fmt.Fprintf(f.w, "%s\t%s\n", key, value) }

// strange writes what others have chosen, if it is not empty.
func (f *fields) strange(key, value string) {
	if value != "" {
		f.field(key, word(value))
	}
}

// value writes what a holder has to say, as digits if it is no text.
func (f *fields) value(b []byte) {
	if value := string(b); utf8.ValidString(value) {
		f.strange("value", value)
	} else {
		f.field("value (hex)", hex.EncodeToString(b))
	}
}

func (f *fields) bytes() []byte {
	_ = f.w.Flush() // to a string
	return []byte(f.text.String())
}

// value is fields.value in JSON.
func (o *object) value(b []byte) {
	if value := string(b); utf8.ValidString(value) {
		o.text("value", value)
	} else {
		o.text("value_hex", hex.EncodeToString(b))
	}
}
