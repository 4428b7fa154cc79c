package output

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"unicode/utf16"
	"unicode/utf8"
)

// JSON returns v as JSON on one line, with a newline at its end. Characters that are not
// visible are escaped, because encoding/json leaves marks of direction and some control
// characters as they are. It panics if v cannot be written as JSON.
func JSON(v any) []byte {
	var text bytes.Buffer
	e := json.NewEncoder(&text)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		panic(fmt.Sprintf("bug: %T is no JSON: %v", v, err))
	}
	return escapeJSON(text.Bytes())
}

// escapeJSON escapes what is not visible. Only strings have such characters.
func escapeJSON(text []byte) []byte {
	if line := text[:len(text)-1]; isPlainASCII(string(line)) {
		return text
	}
	b := make([]byte, 0, len(text)+16)
	c := newChecker()
	for _, r := range string(text) {
		switch {
		case r == '"': // a string begins or ends; a mark must not change the quote
			c = newChecker()
			b = append(b, '"')
		case r == '\n' || c.isPlain(r):
			b = utf8.AppendRune(b, r)
		case r > 0xffff:
			high, low := utf16.EncodeRune(r)
			b = fmt.Appendf(b, `\u%04x\u%04x`, high, low)
		default:
			b = fmt.Appendf(b, `\u%04x`, r)
		}
	}
	return b
}

// Value is the value of a lease in JSON: a text, or hexadecimal digits if it is no UTF-8.
type Value struct {
	Text string `json:"value,omitempty"`
	Hex  string `json:"value_hex,omitempty"`
}

// NewValue returns the value of a lease.
func NewValue(b []byte) Value {
	if utf8.Valid(b) {
		return Value{Text: string(b)}
	}
	return Value{Hex: hex.EncodeToString(b)}
}
