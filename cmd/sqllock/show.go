package main

import (
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// Names, labels, owners and values come from whoever may write to the database. On
// a terminal they must not do anything, nor look like something else.

// maxMarks is how many combining marks may follow each other: languages need a
// few, a heap of them covers the lines around it.
const maxMarks = 4

// word shows a text as one word: as it is if that is unmistakable, else in quotes,
// with escapes as in Go. A text that could be taken for a quoted one, or for the
// dash that stands for none, is quoted too. strconv.Unquote gets the text back.
func word(s string) string {
	if s != "" && s != "-" && !strings.ContainsAny(s, " \"\\") {
		if shown := escape(s); shown == s {
			return s
		}
	}
	s = strings.ReplaceAll(strings.ReplaceAll(s, `\`, `\\`), `"`, `\"`)
	return `"` + escape(s) + `"`
}

// line shows a text of several words as one line, for messages: it need not be
// unmistakable, but it must be harmless.
func line(s string) string { return escape(strings.ReplaceAll(s, "\n", "; ")) }

// escape replaces what is not plainly seen.
func escape(s string) string {
	if isASCII(s) {
		return s
	}
	b := make([]byte, 0, len(s)+16)
	e := newEye()
	for i := 0; i < len(s); {
		r, size := utf8.DecodeRuneInString(s[i:])
		if plain := e.sees(r); r == utf8.RuneError && size == 1 || !plain {
			quoted := strconv.QuoteToASCII(s[i : i+size])
			b = append(b, quoted[1:len(quoted)-1]...)
		} else {
			b = append(b, s[i:i+size]...)
		}
		i += size
	}
	return string(b)
}

// isASCII reports that s has nothing but printable ASCII, as nearly all names.
func isASCII(s string) bool {
	for i := range len(s) {
		if s[i] < ' ' || s[i] > '~' {
			return false
		}
	}
	return true
}

// eye reads a text rune by rune.
type eye struct{ marks int } // that follow each other

// newEye returns one to which a first mark is one too many: it would sit on what
// stands before the text.
func newEye() eye { return eye{marks: maxMarks} }

// sees reports that the next rune can stand as it is.
func (e *eye) sees(r rune) bool {
	if r >= ' ' && r <= '~' { // as nearly all
		e.marks = 0
		return true
	}
	if e.marks++; !unicode.Is(unicode.M, r) {
		e.marks = 0
	}
	return seen(r) && e.marks <= maxMarks
}

// seen reports that a rune has a shape of its own. What has none: controls, marks
// of direction, unassigned and private runes, spaces but the ordinary one, and
// those of zero width.
func seen(r rune) bool {
	const brailleBlank = '\u2800'
	return strconv.IsPrint(r) && r != brailleBlank &&
		!unicode.In(r, unicode.Other_Default_Ignorable_Code_Point, unicode.Variation_Selector)
}

// columns is how many columns of a terminal a text takes that was escaped; about
// as many, where terminals differ.
func columns(s string) int {
	if isASCII(s) {
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

// cut shortens a text to so many columns.
func cut(s string, width int) string {
	for i, r := range s {
		if width -= runeColumns(r); width < 0 {
			return s[:i]
		}
	}
	return s
}

// span writes a duration with two units at most.
func span(d time.Duration) string {
	const day = 24 * time.Hour
	d = max(d, 0)
	switch {
	case d < 10*time.Second:
		return strconv.FormatFloat(d.Truncate(100*time.Millisecond).Seconds(), 'f', 1, 64) + "s"
	case d < time.Hour:
		return d.Truncate(time.Second).String()
	case d < 2*day:
		return fmt.Sprintf("%dh%dm", d/time.Hour, d%time.Hour/time.Minute)
	}
	return fmt.Sprintf("%dd%dh", d/day, d%day/time.Hour)
}

// relative tells when t is, seen from now.
func relative(t, now time.Time) string {
	switch d := t.Sub(now); {
	case t.IsZero():
		return "-"
	case d > 0:
		return "in " + span(d)
	default:
		return span(-d) + " ago"
	}
}
