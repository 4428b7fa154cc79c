package sqllock_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// A client's wall clock may be stepped at any time. A Locker that never reads it is
// immune. This test fails when any file reads it.
func TestTheLockerNeverReadsTheWallClock(t *testing.T) {
	var files []string
	for _, pattern := range []string{"*.go", "internal/clock/*.go", "internal/batch/*.go", "internal/session/*.go", "internal/rowstore/store.go", "internal/reserved/*.go"} {
		found, err := filepath.Glob(pattern)
		if err != nil || len(found) == 0 {
			t.Fatalf("%s: %d files, %v", pattern, len(found), err)
		}
		files = append(files, found...)
	}
	banned := map[string]bool{"Now": true, "Since": true, "Until": true}
	// These bound statements by deadlines of contexts, which know no other clock. No lease is
	// trusted by them.
	deadlines := []string{"unlock.go", "internal/batch/statement.go", "internal/reserved/conns.go"}
	const stopwatch = "stopwatch.go" // which measures with the monotonic part
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") || slices.Contains(deadlines, file) || file == stopwatch || filepath.Base(file) == "clock_other.go" { // where only the monotonic part is used
			continue
		}
		fset := token.NewFileSet()
		parsed, err := parser.ParseFile(fset, file, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(parsed, func(n ast.Node) bool {
			if sel, ok := n.(*ast.SelectorExpr); ok {
				if pkg, ok := sel.X.(*ast.Ident); ok && pkg.Name == "time" && banned[sel.Sel.Name] {
					t.Errorf("%s: time.%s", fset.Position(sel.Pos()), sel.Sel.Name)
				}
			}
			return true
		})
	}
}
