package main

import (
	"go/ast"
	"go/token"
)

// A kind says what a name stands for.
type kind string

const (
	fileName    kind = "file"
	packageName kind = "package"
	typeName    kind = "type"
	funcName    kind = "func"
	methodName  kind = "method"
	fieldName   kind = "field"
	globalName  kind = "variable"
	localName   kind = "local"
	sentence    kind = "sentence" // the name of a test or a heading
)

// declarations calls found for every identifier that the file declares.
func declarations(file *ast.File, found func(*ast.Ident, kind)) {
	for _, decl := range file.Decls {
		switch decl := decl.(type) {
		case *ast.FuncDecl:
			k := funcName
			if decl.Recv != nil {
				k = methodName
				fields(decl.Recv, localName, found)
			}
			found(decl.Name, k)
			nested(decl.Type, found)
			if decl.Body != nil {
				nested(decl.Body, found)
			}
		case *ast.GenDecl:
			for _, spec := range decl.Specs {
				if values, ok := spec.(*ast.ValueSpec); ok {
					idents(values.Names, globalName, found)
					for _, v := range values.Values {
						nested(v, found)
					}
					continue
				}
				nested(spec, found)
			}
		}
	}
}

// nested calls found for what a node below the level of the file declares.
func nested(node ast.Node, found func(*ast.Ident, kind)) {
	ast.Inspect(node, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.TypeSpec:
			found(n.Name, typeName)
		case *ast.StructType:
			fields(n.Fields, fieldName, found)
		case *ast.InterfaceType:
			fields(n.Methods, methodName, found)
		case *ast.FuncType:
			fields(n.Params, localName, found)
			fields(n.Results, localName, found)
		case *ast.ValueSpec:
			idents(n.Names, localName, found)
		case *ast.AssignStmt:
			if n.Tok == token.DEFINE {
				exprs(n.Lhs, found)
			}
		case *ast.RangeStmt:
			if n.Tok == token.DEFINE {
				exprs([]ast.Expr{n.Key, n.Value}, found)
			}
		}
		return true
	})
}

func fields(list *ast.FieldList, k kind, found func(*ast.Ident, kind)) {
	if list == nil {
		return
	}
	for _, f := range list.List {
		idents(f.Names, k, found)
	}
}

func idents(ids []*ast.Ident, k kind, found func(*ast.Ident, kind)) {
	for _, id := range ids {
		found(id, k)
	}
}

func exprs(list []ast.Expr, found func(*ast.Ident, kind)) {
	for _, x := range list {
		if id, ok := x.(*ast.Ident); ok {
			found(id, localName)
		}
	}
}
