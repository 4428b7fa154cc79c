package lockpg

import (
	"strconv"
	"strings"

	"github.com/sqllock/sqllock/driver"
)

// Arrays are passed as text in the server's own notation, which every driver of
// database/sql can send.

// array writes an array of n elements, each quoted.
func array(n int, element func(i int) string) string {
	var b strings.Builder
	b.WriteByte('{')
	for i := range n {
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteByte('"')
		writeEscaped(&b, element(i))
		b.WriteByte('"')
	}
	b.WriteByte('}')
	return b.String()
}

func writeEscaped(b *strings.Builder, s string) {
	for i := range len(s) {
		if s[i] == '"' || s[i] == '\\' {
			b.WriteByte('\\')
		}
		b.WriteByte(s[i])
	}
}

// integers writes an array of n integers.
func integers(n int, element func(i int) int64) string {
	b := make([]byte, 0, 2+n*12)
	b = append(b, '{')
	for i := range n {
		if i > 0 {
			b = append(b, ',')
		}
		b = strconv.AppendInt(b, element(i), 10)
	}
	return string(append(b, '}'))
}

// parseID reads an ID as the server writes a uuid, with dashes.
func parseID(s string) (id driver.ID, err error) {
	return id, id.UnmarshalText([]byte(strings.ReplaceAll(s, "-", "")))
}

// booleans writes an array of n booleans.
func booleans(n int, element func(i int) bool) string {
	return array(n, func(i int) string { return strconv.FormatBool(element(i)) })
}
