package proof

import (
	"fmt"
	"strings"
)

// expr is an expression of SMT-LIB: an atom, or a list.
type expr struct {
	atom string
	list []expr
}

func atom(name string) expr { return expr{atom: name} }

func list(parts ...expr) expr { return expr{list: parts} }

// call is the list of a name and what follows it.
func call(name string, parts ...expr) expr { return list(append([]expr{atom(name)}, parts...)...) }

// all is the conjunction of expressions.
func all(parts []expr) expr {
	switch len(parts) {
	case 0:
		return atom("true")
	case 1:
		return parts[0]
	}
	return call("and", parts...)
}

// head is the first atom of a list, or "".
func (e expr) head() string {
	if len(e.list) == 0 {
		return ""
	}
	return e.list[0].atom
}

func (e expr) String() string {
	if e.list == nil {
		return e.atom
	}
	parts := make([]string, len(e.list))
	for i, p := range e.list {
		parts[i] = p.String()
	}
	return "(" + strings.Join(parts, " ") + ")"
}

// parse reads all expressions of a text. Comments are left out.
func parse(text string) ([]expr, error) {
	stack := [][]expr{nil}
	for i := 0; i < len(text); {
		switch c := text[i]; {
		case c == ';':
			for i < len(text) && text[i] != '\n' {
				i++
			}
		case c == ' ' || c == '\n' || c == '\t' || c == '\r':
			i++
		case c == '(':
			stack, i = append(stack, []expr{}), i+1
		case c == ')':
			n := len(stack) - 1
			if n == 0 {
				return nil, fmt.Errorf("a parenthesis too many at byte %d", i)
			}
			stack[n-1], stack, i = append(stack[n-1], expr{list: stack[n]}), stack[:n], i+1
		default:
			from := i
			for i < len(text) && !strings.ContainsRune(" \n\t\r();", rune(text[i])) {
				i++
			}
			n := len(stack) - 1
			stack[n] = append(stack[n], atom(text[from:i]))
		}
	}
	if len(stack) > 1 {
		return nil, fmt.Errorf("%d parentheses are not closed", len(stack)-1)
	}
	return stack[0], nil
}

// substitute replaces atoms. Names that the expression binds itself hide others.
func (e expr) substitute(by map[string]expr) expr {
	if e.list == nil {
		if to, ok := by[e.atom]; ok {
			return to
		}
		return e
	}
	if h := e.head(); (h == "forall" || h == "exists") && len(e.list) == 3 {
		inner := make(map[string]expr, len(by))
		for name, to := range by {
			inner[name] = to
		}
		for _, bound := range e.list[1].list {
			delete(inner, bound.list[0].atom)
		}
		return list(e.list[0], e.list[1], e.list[2].substitute(inner))
	}
	parts := make([]expr, len(e.list))
	for i, p := range e.list {
		parts[i] = p.substitute(by)
	}
	return expr{list: parts}
}
