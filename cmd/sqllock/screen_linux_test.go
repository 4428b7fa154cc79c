package main

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/sqllock/sqllock/internal/output"
)

// screen is what a terminal shows. It knows what tcell writes for the terminal xterm, and
// remembers what else it got: that came from elsewhere.
type screen struct {
	rows, columns int
	cells         [][]string // "" behind a wide character
	x, y          int
	odd           []string
	modes         map[string]bool
}

func newScreen(rows, columns int) *screen {
	s := &screen{rows: rows, columns: columns, modes: map[string]bool{"7": true, "25": true}} // lines are wrapped, the cursor is visible
	s.erase(0, rows)
	return s
}

func (s *screen) erase(from, to int) {
	for len(s.cells) < s.rows {
		s.cells = append(s.cells, nil)
	}
	for y := from; y < to; y++ {
		s.cells[y] = strings.Split(strings.Repeat(" ", s.columns), "")
	}
}

var (
	control  = regexp.MustCompile("^\x1b\\[([?><]?)([0-9;:]*)( ?[A-Za-z])")
	harmless = regexp.MustCompile("^\x1b(?:[()][B0]|[=>78]|\\]8;;\x1b\\\\)") // the end of a link, too
	partial  = regexp.MustCompile("^\x1b(?:[()]?|\\[[?><]?[0-9;:]* ?|\\](?:8;?;?\x1b?)?)$")
)

// feed shows what a program has written besides. It returns what is not complete yet.
func (s *screen) feed(text string) (rest string) {
	for text != "" {
		r, size := utf8.DecodeRuneInString(text)
		if r != '\x1b' {
			if !utf8.FullRuneInString(text) {
				return text
			}
			s.write(r, text[:size])
			text = text[size:]
			continue
		}
		switch m := control.FindStringSubmatch(text); {
		case m != nil:
			s.control(m[1], m[2], m[3])
			text = text[len(m[0]):]
		case harmless.MatchString(text):
			text = text[len(harmless.FindString(text)):]
		case partial.MatchString(text):
			return text
		default:
			s.odd = append(s.odd, fmt.Sprintf("%.20q", text))
			text = text[1:]
		}
	}
	return ""
}

func (s *screen) write(r rune, text string) {
	width := output.Columns(text)
	switch {
	case r == '\r':
		s.x = 0
	case r == '\n':
		s.down()
	case r == '\b':
		s.x = max(s.x-1, 0)
	case r == '\x0f': // the usual characters
	case r < ' ' || r == 0x7f || r == utf8.RuneError && len(text) == 1:
		s.odd = append(s.odd, fmt.Sprintf("%q", text))
	case width == 0 && s.x > 0:
		s.cells[s.y][s.x-1] += text
	case s.x+width <= s.columns:
		s.cells[s.y][s.x] = text
		if width == 2 {
			s.cells[s.y][s.x+1] = ""
		}
		s.x += width
	case s.modes["7"]:
		s.x = 0
		s.down()
		s.write(r, text)
	default:
		s.odd = append(s.odd, "more than a line: "+text)
	}
}

func (s *screen) down() {
	if s.y++; s.y == s.rows {
		s.y--
		s.cells = s.cells[1:]
		s.erase(s.y, s.rows)
	}
}

func (s *screen) control(private, parameters, final string) {
	number := func(i, otherwise int) int {
		if parts := strings.Split(parameters, ";"); i < len(parts) && parts[i] != "" {
			n, _ := strconv.Atoi(parts[i])
			return n
		}
		return otherwise
	}
	switch private + final {
	case "H":
		s.y, s.x = min(number(0, 1), s.rows)-1, min(number(1, 1), s.columns)-1
	case "J":
		s.erase(0, s.rows)
	case "K":
		for x := s.x; x < s.columns; x++ {
			s.cells[s.y][x] = " "
		}
	case "?h", "?l":
		for _, mode := range strings.Split(parameters, ";") {
			s.modes[mode] = final == "h"
		}
	case "C":
		s.x = min(s.x+number(0, 1), s.columns-1)
	case ">u", "<u": // the kind of the keyboard is put on a stack and taken from it
		s.modes["keyboard"] = private == ">"
	case "m", " q", ">m", "t": // colours, shape of the cursor, modifiers, title on a stack
	default:
		s.odd = append(s.odd, fmt.Sprintf("CSI %s%s%s", private, parameters, final))
	}
}

// String returns the lines.
func (s *screen) String() string {
	var b strings.Builder
	for _, cells := range s.cells {
		b.WriteString(strings.TrimRight(strings.Join(cells, ""), " ") + "\n")
	}
	return b.String()
}
