// Package output writes what a command has to tell: words and lines that are harmless on a
// terminal, tables, lists of fields, JSON, and times for people.
//
// Names, labels, owners and values come from everybody who may write to the database. On a
// terminal they must not do anything, nor look like something else.
package output

import (
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// maxMarks is how many combining marks may follow each other. Languages need a few; a pile of
// them covers the lines above and below.
const maxMarks = 4

// Word returns s as one word: as it is, or in quotes with escapes as in Go. It quotes a text
// that looks quoted, and "-", which stands for nothing. Two texts never look the same.
// strconv.Unquote returns the text of a quoted word.
func Word(s string) string {
	if s != "" && s != "-" && !strings.ContainsAny(s, " \"\\") {
		if shown := escape(s); shown == s {
			return s
		}
	}
	s = strings.ReplaceAll(strings.ReplaceAll(s, `\`, `\\`), `"`, `\"`)
	return `"` + escape(s) + `"`
}

// Line returns a message as one harmless line. Unlike Word it does not keep texts apart.
func Line(s string) string { return escape(strings.ReplaceAll(s, "\n", "; ")) }

// Cut returns the beginning of a line that fits into so many columns of a terminal.
func Cut(s string, columns int) string {
	for i, r := range s {
		if columns -= runeColumns(r); columns < 0 {
			return s[:i]
		}
	}
	return s
}

// escape writes what is not visible as Go does in quotes.
func escape(s string) string {
	if isPlainASCII(s) {
		return s
	}
	b := make([]byte, 0, len(s)+16)
	c := newChecker()
	for i := 0; i < len(s); {
		r, size := utf8.DecodeRuneInString(s[i:])
		if plain := c.isPlain(r); r == utf8.RuneError && size == 1 || !plain {
			quoted := strconv.QuoteToASCII(s[i : i+size])
			b = append(b, quoted[1:len(quoted)-1]...)
		} else {
			b = append(b, s[i:i+size]...)
		}
		i += size
	}
	return string(b)
}

// isPlainASCII reports that s has printable ASCII only, as nearly all names.
func isPlainASCII(s string) bool {
	for i := range len(s) {
		if s[i] < ' ' || s[i] > '~' {
			return false
		}
	}
	return true
}

// checker checks a text rune by rune.
type checker struct{ marks int } // that follow each other

// newChecker returns a checker that refuses a mark at the beginning: it would change the
// character before the text.
func newChecker() checker { return checker{marks: maxMarks} }

// isPlain reports that the next rune can be written as it is.
func (c *checker) isPlain(r rune) bool {
	if r >= ' ' && r <= '~' { // as nearly all
		c.marks = 0
		return true
	}
	if c.marks++; !unicode.Is(unicode.M, r) {
		c.marks = 0
	}
	return IsVisible(r) && c.marks <= maxMarks
}

// IsVisible reports that a rune has a shape of its own. Control characters have none, nor have
// marks of direction, unassigned and private runes, runes of zero width, and spaces except the
// ordinary one.
func IsVisible(r rune) bool {
	const brailleBlank = '\u2800'
	return strconv.IsPrint(r) && r != brailleBlank &&
		!unicode.In(r, unicode.Other_Default_Ignorable_Code_Point, unicode.Variation_Selector)
}

// Columns returns how many columns of a terminal an escaped text takes. Terminals differ; it
// is a good guess.
func Columns(s string) int {
	if isPlainASCII(s) {
		return len(s)
	}
	n := 0
	for _, r := range s {
		n += runeColumns(r)
	}
	return n
}

func runeColumns(r rune) int {
	const firstWide, firstPicture, lastPicture = 0x1100, 0x1f300, 0x1faff
	switch {
	case unicode.In(r, unicode.Mn, unicode.Me):
		return 0
	case r >= firstPicture && r <= lastPicture,
		r >= firstWide && unicode.In(r, unicode.Han, unicode.Hangul, unicode.Hiragana, unicode.Katakana):
		return 2
	}
	return 1
}
