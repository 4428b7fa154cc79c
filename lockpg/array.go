package lockpg

import (
	"database/sql"
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"

	"github.com/sqllock/sqllock/driver"
)

// Arrays are passed as text in the server's own notation, which every driver of
// database/sql can send.

// texts returns the arguments of a step as every driver can send them.
func texts(args []any) []any {
	all := make([]any, len(args))
	for i, arg := range args {
		all[i] = textOf(arg)
	}
	return all
}

// textOf writes an ID or a column of a batch as a text. It returns all else as it is.
func textOf(arg any) any {
	switch a := arg.(type) {
	case driver.ID:
		return a.String()
	case []string:
		return array(len(a), func(i int) string { return a[i] })
	case []int64:
		return integers(len(a), func(i int) int64 { return a[i] })
	case []driver.ID:
		return ids(len(a), func(i int) driver.ID { return a[i] })
	case [][]byte:
		return array(len(a), func(i int) string { return bytea(a[i]) })
	}
	return arg
}

// array writes an array of n elements, each quoted.
func array(n int, element func(i int) string) string {
	var b strings.Builder
	for i := range n {
		s := element(i)
		if i == 0 {
			b.Grow(2 + n*(len(s)+3)) // most are of one length
		}
		b.WriteByte(before(i))
		b.WriteByte('"')
		writeEscaped(&b, s)
		b.WriteByte('"')
	}
	return end(&b)
}

// before is what stands before an element.
func before(i int) byte {
	if i == 0 {
		return '{'
	}
	return ','
}

func end(b *strings.Builder) string {
	if b.Len() == 0 {
		return "{}"
	}
	b.WriteByte('}')
	return b.String()
}

func writeEscaped(b *strings.Builder, s string) {
	if !strings.ContainsAny(s, `"\`) {
		b.WriteString(s)
		return
	}
	for i := range len(s) {
		if s[i] == '"' || s[i] == '\\' {
			b.WriteByte('\\')
		}
		b.WriteByte(s[i])
	}
}

// bytea writes bytes as the server reads them.
func bytea(b []byte) string {
	if len(b) == 0 {
		return ""
	}
	return `\x` + hex.EncodeToString(b)
}

// ids writes an array of n IDs. The zero ID is NULL.
func ids(n int, element func(i int) driver.ID) string {
	var b strings.Builder
	b.Grow(2 + n*(1+hex.EncodedLen(len(driver.ID{}))))
	var digits [2 * len(driver.ID{})]byte
	for i := range n {
		id := element(i)
		b.WriteByte(before(i))
		if id == (driver.ID{}) {
			b.WriteString("NULL")
			continue
		}
		hex.Encode(digits[:], id[:])
		b.Write(digits[:])
	}
	return end(&b)
}

// integers writes an array of n integers.
func integers(n int, element func(i int) int64) string {
	b := make([]byte, 0, 2+n*17) // a version has 16 digits
	b = append(b, '{')
	for i := range n {
		if i > 0 {
			b = append(b, ',')
		}
		b = strconv.AppendInt(b, element(i), 10)
	}
	return string(append(b, '}'))
}

// booleans writes an array of n booleans.
func booleans(n int, element func(i int) bool) string {
	b := make([]byte, 0, 2+2*n)
	b = append(b, '{')
	for i := range n {
		if i > 0 {
			b = append(b, ',')
		}
		if element(i) {
			b = append(b, 't')
		} else {
			b = append(b, 'f')
		}
	}
	return string(append(b, '}'))
}

// list is an array of integers in a result, as integers writes it; nil if that is null.
type list []int64

var _ sql.Scanner = (*list)(nil)

// Scan implements [sql.Scanner].
func (l *list) Scan(src any) error {
	*l = nil
	var text string
	switch src := src.(type) {
	case nil:
		return nil
	case string:
		text = src
	case []byte:
		text = string(src)
	default:
		return fmt.Errorf("sqllock: an array is read as %T", src)
	}
	text = strings.TrimSuffix(strings.TrimPrefix(text, "{"), "}")
	*l = make(list, 0, 1+strings.Count(text, ","))
	for text != "" {
		var part string
		part, text, _ = strings.Cut(text, ",")
		n, err := strconv.ParseInt(part, 10, 64)
		if err != nil {
			return err
		}
		*l = append(*l, n)
	}
	return nil
}

// parseID reads an ID as the server writes a uuid, with dashes.
func parseID(s string) (id driver.ID, err error) {
	return id, id.UnmarshalText([]byte(strings.ReplaceAll(s, "-", "")))
}
