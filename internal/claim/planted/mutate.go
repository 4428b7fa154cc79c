package main

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/format"
	"go/parser"
	"go/token"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// mutant is a change of one operand, condition, or statement. All mutants are in one program, and one
// of them is switched on when it starts.
type mutant struct {
	where string // the function
	what  string // what was changed to what
}

func (m mutant) String() string { return m.where + ": " + m.what }

// mutator rewrites a file such that each mutant can be switched on.
type mutator struct {
	fset    *token.FileSet
	where   string
	mutants []mutant
	seen    map[mutant]int
}

// hooks is the file that switches a mutant on.
const hooks = `package claim

import (
	"cmp"
	"os"
	"strconv"
)

var planted, _ = strconv.Atoi(os.Getenv("SQLLOCK_PLANTED"))

func on(n int) bool { return planted == n }

// choose returns v, or something else if a mutant from n on is switched on.
func choose[T cmp.Ordered](n int, v, a, b T) T {
	switch planted {
	case n:
		return a
	case n + 1:
		return b
	}
	return v
}

// another returns v, or a value that is none if a mutant is switched on.
func another[T ~uint8](n int, v T) T {
	if on(n) {
		return v + 100
	}
	return v
}
`

// mutate rewrites files, which may be told apart by their base names.
func mutate(files []string) (texts map[string][]byte, all []mutant, err error) {
	m := &mutator{fset: token.NewFileSet(), seen: make(map[mutant]int)}
	texts = make(map[string][]byte)
	for _, name := range files {
		file, err := parser.ParseFile(m.fset, name, nil, parser.SkipObjectResolution)
		if err != nil {
			return nil, nil, err
		}
		for _, d := range file.Decls {
			if f, ok := d.(*ast.FuncDecl); ok && f.Body != nil {
				m.where = nameOf(f)
				m.block(f.Body)
			}
		}
		var out bytes.Buffer
		if err := format.Node(&out, m.fset, file); err != nil {
			return nil, nil, err
		}
		texts[filepath.Base(name)] = out.Bytes()
	}
	texts["planted_hooks.go"] = []byte(hooks)
	return texts, m.mutants, nil
}

// nameOf is a function's name, behind that of its receiver's type.
func nameOf(f *ast.FuncDecl) string {
	if f.Recv == nil {
		return f.Name.Name
	}
	t := f.Recv.List[0].Type
	if s, ok := t.(*ast.StarExpr); ok {
		t = s.X
	}
	return t.(*ast.Ident).Name + "." + f.Name.Name
}

// add notes a mutant, and returns its number.
func (m *mutator) add(format string, args ...any) int {
	n := mutant{m.where, fmt.Sprintf(format, args...)}
	if m.seen[n]++; m.seen[n] > 1 {
		n.what = fmt.Sprintf("%s (%d)", n.what, m.seen[n])
	}
	m.mutants = append(m.mutants, n)
	return len(m.mutants)
}

// text is an expression or a statement as it is written, on one line.
func (m *mutator) text(n ast.Node) string {
	var out bytes.Buffer
	if err := format.Node(&out, m.fset, n); err != nil {
		return err.Error()
	}
	return strings.Join(strings.Fields(out.String()), " ")
}

// call is a call of a hook, whose first argument is the number of a mutant.
func call(hook string, n int, args ...ast.Expr) ast.Expr {
	return &ast.CallExpr{Fun: ast.NewIdent(hook), Args: append([]ast.Expr{number(n)}, args...)}
}

func number(n int) ast.Expr { return &ast.BasicLit{Kind: token.INT, Value: strconv.Itoa(n)} }

func binary(x ast.Expr, op token.Token, y ast.Expr) ast.Expr {
	return &ast.ParenExpr{X: &ast.BinaryExpr{X: x, Op: op, Y: y}}
}

func not(x ast.Expr) ast.Expr { return &ast.UnaryExpr{Op: token.NOT, X: &ast.ParenExpr{X: x}} }

// block mutates the statements of a block, and lets each that only does something be left out.
func (m *mutator) block(b *ast.BlockStmt) {
	for i, s := range b.List {
		b.List[i] = m.statement(s)
	}
}

func (m *mutator) statement(s ast.Stmt) ast.Stmt {
	was := m.text(s)
	m.parts(s)
	switch s := s.(type) {
	case *ast.ExprStmt, *ast.IncDecStmt:
	case *ast.AssignStmt:
		if s.Tok == token.DEFINE {
			return s
		}
	default:
		return s
	}
	n := m.add("without %s", was)
	return &ast.IfStmt{Cond: not(call("on", n)), Body: &ast.BlockStmt{List: []ast.Stmt{s}}}
}

// parts mutates what a statement consists of.
func (m *mutator) parts(s ast.Stmt) {
	switch s := s.(type) {
	case *ast.BlockStmt:
		m.block(s)
	case *ast.IfStmt:
		if s.Init != nil {
			m.parts(s.Init)
		}
		s.Cond = m.condition(s.Cond)
		m.block(s.Body)
		if s.Else != nil {
			m.parts(s.Else)
		}
	case *ast.ForStmt:
		if s.Cond != nil {
			s.Cond = m.condition(s.Cond)
		}
		m.block(s.Body)
	case *ast.RangeStmt:
		m.block(s.Body)
	case *ast.SwitchStmt:
		m.cases(s)
	case *ast.ReturnStmt:
		m.expressions(s.Results)
	case *ast.AssignStmt:
		m.expressions(s.Rhs)
	case *ast.ExprStmt:
		s.X = m.expression(s.X)
	}
}

// cases mutates the cases of a switch: those of one without a tag are conditions, those of one
// with a tag are values.
func (m *mutator) cases(s *ast.SwitchStmt) {
	if s.Init != nil {
		m.parts(s.Init)
	}
	for _, c := range s.Body.List {
		c := c.(*ast.CaseClause)
		for i, x := range c.List {
			if s.Tag == nil {
				c.List[i] = m.condition(x)
			} else {
				c.List[i] = call("another", m.add("without case %s", m.text(x)), x)
			}
		}
		for i, inner := range c.Body {
			c.Body[i] = m.statement(inner)
		}
	}
}

func (m *mutator) expressions(list []ast.Expr) {
	for i := range list {
		list[i] = m.expression(list[i])
	}
}

// condition mutates an expression that decides something.
func (m *mutator) condition(x ast.Expr) ast.Expr {
	was := m.text(x)
	if isLogical(x) {
		y := m.expression(x)
		return binary(y, token.NEQ, call("on", m.add("!(%s)", was)))
	}
	y := m.expression(x)
	if !isComparison(x) { // that was negated
		y = binary(y, token.NEQ, call("on", m.add("!(%s)", was)))
	}
	y = binary(y, token.LOR, call("on", m.add("true instead of %s", was)))
	return binary(y, token.LAND, not(call("on", m.add("false instead of %s", was))))
}

func isLogical(x ast.Expr) bool {
	b, ok := x.(*ast.BinaryExpr)
	return ok && (b.Op == token.LAND || b.Op == token.LOR)
}

var opposite = map[token.Token]token.Token{
	token.EQL: token.NEQ, token.NEQ: token.EQL, token.LSS: token.GEQ, token.GEQ: token.LSS, token.GTR: token.LEQ, token.LEQ: token.GTR,
}

func isComparison(x ast.Expr) bool {
	b, ok := x.(*ast.BinaryExpr)
	return ok && opposite[b.Op] != token.ILLEGAL
}

// expression mutates what is inside an expression.
func (m *mutator) expression(x ast.Expr) ast.Expr {
	switch e := x.(type) {
	case *ast.ParenExpr:
		e.X = m.expression(e.X)
	case *ast.UnaryExpr:
		e.X = m.expression(e.X)
	case *ast.FuncLit:
		m.block(e.Body)
	case *ast.BinaryExpr:
		switch {
		case isLogical(e):
			m.operands(e, e.Op, m.text(e))
		case isComparison(e):
			return m.comparison(e)
		default:
			e.X, e.Y = m.expression(e.X), m.expression(e.Y)
		}
	case *ast.CallExpr:
		return m.callExpression(e)
	case *ast.CompositeLit:
		for i := range e.Elts {
			if kv, ok := e.Elts[i].(*ast.KeyValueExpr); ok {
				kv.Value = m.expression(kv.Value)
			} else {
				e.Elts[i] = m.expression(e.Elts[i])
			}
		}
	}
	return x
}

// operands mutates the operands of one && or ||, or of several in a row: each is left out.
func (m *mutator) operands(e *ast.BinaryExpr, op token.Token, whole string) {
	for _, x := range [...]*ast.Expr{&e.X, &e.Y} {
		if inner, ok := (*x).(*ast.BinaryExpr); ok && inner.Op == op {
			m.operands(inner, op, whole)
			continue
		}
		n := m.add("without %s in %s", m.text(*x), whole)
		y := m.expression(*x)
		if op == token.LAND {
			*x = binary(y, token.LOR, call("on", n))
		} else {
			*x = binary(y, token.LAND, not(call("on", n)))
		}
	}
}

// comparison mutates a comparison: it is negated, and its bound is moved.
func (m *mutator) comparison(e *ast.BinaryExpr) ast.Expr {
	was := m.text(e)
	n := m.add("%s %v %s", m.text(e.X), opposite[e.Op], m.text(e.Y))
	equal := &ast.BinaryExpr{X: e.X, Op: token.EQL, Y: e.Y}
	var y ast.Expr = e
	switch e.Op {
	case token.LSS, token.GTR:
		y = binary(y, token.LOR, binary(call("on", m.add("%s, or equal", was)), token.LAND, equal))
	case token.LEQ, token.GEQ:
		y = binary(y, token.LAND, not(binary(call("on", m.add("%s, and not equal", was)), token.LAND, equal)))
	}
	return binary(y, token.NEQ, call("on", n))
}

// callExpression mutates calls of min and max.
func (m *mutator) callExpression(e *ast.CallExpr) ast.Expr {
	f, ok := e.Fun.(*ast.Ident)
	if ok && (f.Name == "min" || f.Name == "max") && len(e.Args) == 2 {
		n := m.add("%s instead of %s", m.text(e.Args[0]), m.text(e))
		m.add("%s instead of %s", m.text(e.Args[1]), m.text(e))
		return call("choose", n, slices.Concat([]ast.Expr{e}, e.Args)...)
	}
	m.expressions(e.Args)
	return e
}
