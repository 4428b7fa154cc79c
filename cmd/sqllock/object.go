package main

import (
	"strconv"
	"time"
	"unicode/utf16"
	"unicode/utf8"
)

// object is a JSON object in the making, on one line. Fields that say nothing are
// left out. Whoever sees it on a terminal shall not be harmed either: encoding/json
// leaves marks of direction, and half of the control characters, as they are.
type object struct{ b []byte }

func (o *object) key(key string) {
	separator := byte(',')
	if len(o.b) == 0 {
		separator = '{'
	}
	o.b = append(append(o.b, separator, '"'), key...)
	o.b = append(o.b, '"', ':')
}

func (o *object) text(key, value string) {
	if value != "" {
		o.key(key)
		o.b = appendJSON(o.b, value)
	}
}

func (o *object) number(key string, value int64) {
	o.key(key)
	o.b = strconv.AppendInt(o.b, value, 10)
}

func (o *object) time(key string, t time.Time) {
	if !t.IsZero() {
		o.key(key)
		o.b = append(t.UTC().AppendFormat(append(o.b, '"'), time.RFC3339Nano), '"')
	}
}

// list adds an array of objects.
func (o *object) list(key string, objects []object) {
	o.key(key)
	o.b = append(o.b, '[')
	for i := range objects {
		if i > 0 {
			o.b = append(o.b, ',')
		}
		o.b = append(append(o.b, objects[i].b...), '}')
	}
	o.b = append(o.b, ']')
}

// line ends the object.
func (o *object) line() []byte { return append(o.b, '}', '\n') }

// appendJSON appends a JSON string. What is no UTF-8 becomes U+FFFD: JSON has no
// other way.
func appendJSON(b []byte, s string) []byte {
	b = append(b, '"')
	e := newEye()
	for _, r := range s {
		switch plain := e.sees(r); {
		case r == '"' || r == '\\':
			b = append(b, '\\', byte(r))
		case plain:
			b = utf8.AppendRune(b, r)
		case r > 0xffff:
			high, low := utf16.EncodeRune(r)
			b = appendHex(appendHex(b, high), low)
		default:
			b = appendHex(b, r)
		}
	}
	return append(b, '"')
}

func appendHex(b []byte, r rune) []byte {
	const digits = "0123456789abcdef"
	return append(b, '\\', 'u', digits[r>>12&15], digits[r>>8&15], digits[r>>4&15], digits[r&15])
}
