//go:build linux

package main

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"strings"
)

// inGo finds mutants of a Go file, in a file of queries also in the SQL.
func (f *finder) inGo() error {
	set := token.NewFileSet()
	file, err := parser.ParseFile(set, f.file, f.source, parser.SkipObjectResolution)
	if err != nil {
		return err
	}
	at := func(p token.Pos) int { return set.Position(p).Offset }
	if strings.HasPrefix(filepath.Base(f.file), "queries") {
		f.inQueries(file, at)
	}
	ast.Inspect(file, func(n ast.Node) bool {
		if _, ok := n.(*ast.ImportSpec); ok {
			return false
		}
		f.inNode(n, at)
		return true
	})
	return nil
}

// inNode finds the mutants of one node of the syntax tree.
func (f *finder) inNode(n ast.Node, at func(token.Pos) int) {
	switch n := n.(type) {
	case *ast.IfStmt:
		f.negate(n.Cond, at)
	case *ast.SwitchStmt:
		f.negateCases(n, at)
	case *ast.BinaryExpr:
		f.operator(n, at)
	case *ast.BlockStmt:
		f.remove(n.List, at)
	case *ast.CaseClause:
		f.remove(n.Body, at)
	case *ast.CommClause:
		f.remove(n.Body, at)
	case *ast.BasicLit:
		if other, ok := map[string]string{"0": "1", "1": "0"}[n.Value]; ok {
			f.add("constant", at(n.Pos()), at(n.End()), other)
		}
	case *ast.Ident:
		if other, ok := map[string]string{"true": "false", "false": "true"}[n.Name]; ok {
			f.add("bool", at(n.Pos()), at(n.End()), other)
		}
	case *ast.CallExpr:
		f.extreme(n, at)
	case *ast.ReturnStmt:
		f.swallow(n, at)
	}
}

// negate turns a condition round. A comparison is left to operator.
func (f *finder) negate(e ast.Expr, at func(token.Pos) int) {
	if b, ok := e.(*ast.BinaryExpr); ok && opposite[b.Op.String()] != "" {
		return
	}
	begin, end := at(e.Pos()), at(e.End())
	f.add("negate", begin, end, "!("+string(f.source[begin:end])+")")
}

func (f *finder) negateCases(s *ast.SwitchStmt, at func(token.Pos) int) {
	if s.Tag != nil {
		return
	}
	for _, clause := range s.Body.List {
		for _, e := range clause.(*ast.CaseClause).List {
			f.negate(e, at)
		}
	}
}

// opposite and boundary are the two ways to get a comparison wrong.
var (
	opposite = map[string]string{"==": "!=", "!=": "==", "<": ">=", ">=": "<", ">": "<=", "<=": ">"}
	boundary = map[string]string{"<": "<=", "<=": "<", ">": ">=", ">=": ">"}
	logic    = map[string]string{"&&": "||", "||": "&&"}
	sums     = map[string]string{"+": "-", "-": "+"}
)

func (f *finder) operator(b *ast.BinaryExpr, at func(token.Pos) int) {
	op := b.Op.String()
	begin := at(b.OpPos)
	for name, other := range map[string]string{"opposite": opposite[op], "boundary": boundary[op], "logic": logic[op]} {
		if other != "" {
			f.add(name, begin, begin+len(op), other)
		}
	}
	if other := sums[op]; other != "" && !isText(b.X) && !isText(b.Y) {
		f.add("arithmetic", begin, begin+len(op), other)
	}
}

// isText reports whether a sum is one of texts, as far as can be seen.
func isText(e ast.Expr) (text bool) {
	ast.Inspect(e, func(n ast.Node) bool {
		l, ok := n.(*ast.BasicLit)
		text = text || ok && l.Kind == token.STRING
		return !text
	})
	return text
}

// remove leaves out one statement of a list at a time.
func (f *finder) remove(list []ast.Stmt, at func(token.Pos) int) {
	for _, s := range list {
		switch s := s.(type) {
		case *ast.ExprStmt:
			if c, ok := s.X.(*ast.CallExpr); ok && isNamed(c.Fun, "panic") {
				continue // it is there for bugs
			}
		case *ast.AssignStmt:
			if s.Tok == token.DEFINE || len(s.Lhs) == 1 && isNamed(s.Lhs[0], "_") && !isCall(s.Rhs[0]) {
				continue
			}
		case *ast.ReturnStmt:
			if len(s.Results) > 0 {
				continue
			}
		case *ast.IncDecStmt, *ast.DeferStmt, *ast.GoStmt, *ast.SendStmt, *ast.BranchStmt:
		default:
			continue
		}
		f.add("remove", at(s.Pos()), at(s.End()), "")
	}
}

func isNamed(e ast.Expr, name string) bool {
	i, ok := e.(*ast.Ident)
	return ok && i.Name == name
}

func isCall(e ast.Expr) bool {
	_, ok := e.(*ast.CallExpr)
	return ok
}

// extreme takes the wrong end.
func (f *finder) extreme(c *ast.CallExpr, at func(token.Pos) int) {
	for name, other := range map[string]string{"min": "max", "max": "min"} {
		if isNamed(c.Fun, name) && len(c.Args) > 1 {
			f.add("extreme", at(c.Fun.Pos()), at(c.Fun.End()), other)
		}
	}
}

// swallow returns no error.
func (f *finder) swallow(r *ast.ReturnStmt, at func(token.Pos) int) {
	for _, e := range r.Results {
		if i, ok := e.(*ast.Ident); ok && (i.Name == "err" || strings.HasPrefix(i.Name, "Err") || strings.HasPrefix(i.Name, "err")) {
			f.add("swallow", at(e.Pos()), at(e.End()), "nil")
		}
	}
}
