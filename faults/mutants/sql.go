//go:build linux

package main

import (
	"bytes"
	"go/ast"
	"go/token"
	"regexp"
	"slices"
	"strings"
)

func isSQL(operator string) bool { return strings.HasPrefix(operator, "sql ") }

// inQueries finds mutants in the SQL of a Go file: in raw string literals, and the sums
// that begin and end with them.
func (f *finder) inQueries(file *ast.File, at func(token.Pos) int) {
	ast.Inspect(file, func(n ast.Node) bool {
		e, ok := n.(ast.Expr)
		if !ok {
			return true
		}
		b, sum := e.(*ast.BinaryExpr)
		l, literal := e.(*ast.BasicLit)
		if sum && b.Op != token.ADD || !sum && !literal || literal && l.Kind != token.STRING {
			return true
		}
		f.inSQL(at(e.Pos()), at(e.End()), true)
		return false
	})
}

// nameLine is the line before a statement that gives its name.
var nameLine = regexp.MustCompile(`(?m)^-- name: .*\n`)

// inStatements finds mutants in the statements of a .sql file.
func (f *finder) inStatements() {
	lines := nameLine.FindAllIndex(f.source, -1)
	for i, line := range lines {
		end := len(f.source)
		if i+1 < len(lines) {
			end = lines[i+1][0]
		}
		f.inSQL(line[1], end, false)
	}
}

// A region is a piece of SQL. Everything in it that is not SQL is blanked out.
type region struct {
	*finder
	base int
	text string // as long as the source
	goes bool   // there is Go between its parts
}

var (
	betweenRaw = regexp.MustCompile("^[^`]*`|`[^`]*(?:`|$)")
	noSQLText  = regexp.MustCompile(`'[^']*'|--[^\n]*`) // in quotes, or a remark, whichever begins first
	unordered  = regexp.MustCompile(`<=>|->>?|=>|:=|\|\|`)
)

func blot(letter string) func(string) string {
	return func(s string) string { return strings.Repeat(letter, len(s)) }
}

// blotText blots out what is in quotes, or a remark.
func blotText(s string) string {
	if strings.HasPrefix(s, "'") {
		return blot("x")(s)
	}
	return blot(" ")(s)
}

// blotGo leaves a blank where a literal begins or ends: words end there.
func blotGo(s string) string {
	return strings.Map(func(c rune) rune {
		if c == '`' {
			return ' '
		}
		return 'x'
	}, s)
}

func (f *finder) inSQL(begin, end int, goes bool) {
	r := &region{finder: f, base: begin, text: string(f.source[begin:end]), goes: goes}
	if goes {
		if !strings.Contains(r.text, "`") {
			return
		}
		r.text = betweenRaw.ReplaceAllStringFunc(r.text, blotGo)
	}
	r.text = noSQLText.ReplaceAllStringFunc(r.text, blotText)
	r.text = unordered.ReplaceAllStringFunc(r.text, blot("x"))
	if strings.Contains(r.text, "PRAGMA") {
		return
	}
	r.words()
	r.comparisons()
	r.conditions()
	r.columns()
}

// replace replaces the text from i to j of the region. The rest must remain a complete
// literal of Go.
func (r *region) replace(operator string, i, j int, text string) {
	if r.goes && strings.Count(string(r.source[r.base+i:r.base+j]), "`")%2 == 1 {
		text += "`"
	}
	r.add("sql "+operator, r.base+i, r.base+j, text)
}

// wordings are changes of single words. The first group is the text to replace.
var wordings = []struct {
	operator string
	pattern  *regexp.Regexp
	text     string
}{
	{"constant", regexp.MustCompile(`[+-] (1)\b`), "0"},
	{"null", regexp.MustCompile(`\b(IS NULL)\b`), "IS NOT NULL"},
	{"null", regexp.MustCompile(`\b(IS NOT NULL)\b`), "IS NULL"},
	{"extreme", regexp.MustCompile(`\b(greatest)\(`), "least"},
	{"extreme", regexp.MustCompile(`\b(GREATEST)\(`), "LEAST"},
	{"extreme", regexp.MustCompile(`\b(least)\(`), "greatest"},
	{"extreme", regexp.MustCompile(`\b(LEAST)\(`), "GREATEST"},
	{"extreme", regexp.MustCompile(`\b(max)\([^()]*,`), "min"},
	{"extreme", regexp.MustCompile(`\b(min)\([^()]*,`), "max"},
	{"exists", regexp.MustCompile(`\b(NOT EXISTS)\b`), "EXISTS"},
	{"exists", regexp.MustCompile(`(?:AND|OR|WHERE|WHEN|IF) (EXISTS)\b`), "NOT EXISTS"},
	{"bool", regexp.MustCompile(`\b(true)\b`), "false"},
	{"bool", regexp.MustCompile(`\b(false)\b`), "true"},
	{"lock", regexp.MustCompile(`(FOR (?:NO KEY |KEY )?(?:UPDATE|SHARE)(?: OF \w+)?(?: SKIP LOCKED)?)\b`), ""},
	{"lock", regexp.MustCompile(`( SKIP LOCKED)\b`), ""},
	{"lock", regexp.MustCompile(`(LOCK IN SHARE MODE)\b`), ""},
	{"logic", regexp.MustCompile(`\b(OR)\b`), "AND"},
}

func (r *region) words() {
	for _, w := range wordings {
		for _, m := range w.pattern.FindAllStringSubmatchIndex(r.text, -1) {
			r.replace(w.operator, m[2], m[3], w.text)
		}
	}
}

var (
	compared = regexp.MustCompile(`<=|>=|<>|<|>|=`)
	clause   = regexp.MustCompile(`\b(SET|WHERE|ON|AND|OR|WHEN|HAVING|NOT|IF|FILTER|SELECT|RETURNING|THEN|ELSE|FROM|END|WITH)\b`)
)

// comparisons skips the equals signs that assign.
func (r *region) comparisons() {
	differs := map[string]string{"=": "<>", "<>": "="}
	for _, m := range compared.FindAllStringIndex(r.text, -1) {
		op := r.text[m[0]:m[1]]
		if op == "=" {
			words := clause.FindAllString(r.text[:m[0]], -1)
			if len(words) == 0 || slices.Contains([]string{"SET", "THEN", "ELSE", "END", "WITH"}, words[len(words)-1]) {
				continue
			}
		}
		if other := boundary[op]; other != "" {
			r.replace("boundary", m[0], m[1], other)
			r.replace("opposite", m[0], m[1], opposite[op])
			continue
		}
		r.replace("opposite", m[0], m[1], differs[op])
	}
}

var (
	and       = regexp.MustCompile(`\bAND\b`)
	where     = regexp.MustCompile(`\bWHERE\b`)
	condition = regexp.MustCompile(`^(AND|OR|ORDER|GROUP|RETURNING|FOR|LIMIT|UNION|THEN|WHEN|ELSE|END|HAVING|WINDOW|LOOP|INTO|ON|FROM|LEFT|JOIN|CROSS)\b`)
	item      = regexp.MustCompile(`^(WHERE|FROM|RETURNING|ORDER|LIMIT)\b`)
	set       = regexp.MustCompile(`\bSET\b`)
)

// until returns where an expression ends that begins at i: at one of the words, or the
// signs, outside of brackets.
func (r *region) until(i int, words *regexp.Regexp, signs string) int {
	depth := 0
	for j := i; j < len(r.text); j++ {
		switch c := r.text[j]; {
		case c == '(':
			depth++
		case c == ')' && depth == 0, depth == 0 && strings.IndexByte(signs, c) >= 0:
			return j
		case c == ')':
			depth--
		case depth == 0 && (j == 0 || !isWord(r.text[j-1])) && words.MatchString(r.text[j:]):
			return j
		}
	}
	return len(r.text)
}

func isWord(c byte) bool {
	return c == '_' || c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z'
}

// conditions leaves out one condition of several, or takes one for all.
func (r *region) conditions() {
	for _, m := range and.FindAllStringIndex(r.text, -1) {
		if strings.Contains(r.text[max(0, m[0]-60):m[0]], "BETWEEN") {
			continue
		}
		r.replace("logic", m[0], m[1], "OR")
		if end := r.trimmed(m[1], r.until(m[1], condition, ";,")); end > m[1] {
			r.replace("without", m[0], end, "")
		}
	}
	for _, m := range where.FindAllStringIndex(r.text, -1) {
		if end := r.until(m[1], condition, ";,"); strings.HasPrefix(r.text[end:], "AND") {
			r.replace("without", m[1], end+len("AND"), "")
		}
	}
}

// trimmed leaves the blanks before j.
func (r *region) trimmed(i, j int) int {
	return i + len(bytes.TrimRight(r.source[r.base+i:r.base+j], " \t\n"))
}

// columns leaves out one column of several that are set.
func (r *region) columns() {
	var lists []int
	if strings.Contains(r.text, " = ") && !clause.MatchString(r.text[:strings.Index(r.text, " = ")]) {
		lists = append(lists, bytes.IndexByte(r.source[r.base:], '`')+1)
	}
	for _, m := range set.FindAllStringIndex(r.text, -1) {
		lists = append(lists, m[1])
	}
	for _, at := range lists {
		for first := true; ; first = false {
			end := r.until(at, item, ",;")
			more := end < len(r.text) && r.text[end] == ','
			switch {
			case !first: // with the comma before it
				r.replace("column", at-1, r.trimmed(at, end), "")
			case more:
				r.replace("column", at, end+1, "")
			}
			if !more {
				break
			}
			at = end + 1
		}
	}
}
