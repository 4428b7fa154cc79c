package main

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// writers are the functions of the tests that write the name of a command themselves.
var writers = map[string]string{"shell": "run", "startElect": "elect", "top": "top"}

// words returns the words of all texts in a function, and the commands that it calls by a function.
func words(f *ast.FuncDecl) map[string]bool {
	found := make(map[string]bool)
	ast.Inspect(f, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.BasicLit:
			text, err := strconv.Unquote(n.Value)
			if n.Kind != token.STRING || err != nil {
				return true
			}
			for word := range strings.FieldsSeq(text) {
				word, _, _ = strings.Cut(word, "=")
				found[word] = true
			}
		case *ast.SelectorExpr:
			found[writers[n.Sel.Name]] = true
		}
		return true
	})
	return found
}

// testFunctions are the words of each function of the tests of this package.
func testFunctions(t *testing.T) (all []map[string]bool) {
	t.Helper()
	files, err := os.ReadDir(".")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		if !strings.HasSuffix(f.Name(), "_test.go") {
			continue
		}
		parsed, err := parser.ParseFile(token.NewFileSet(), f.Name(), nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range parsed.Decls {
			if f, ok := d.(*ast.FuncDecl); ok {
				all = append(all, words(f))
			}
		}
	}
	return all
}

// A flag is tried if a function of a test has its name beside that of its command.
func TestEachFlagOfEachCommandIsTriedInATest(t *testing.T) {
	t.Parallel()
	functions := testFunctions(t)
	tried := func(command string, names []string) bool {
		return slices.ContainsFunc(functions, func(words map[string]bool) bool {
			return words[command] && slices.ContainsFunc(names, func(name string) bool { return words[dashes(name)] })
		})
	}
	root := testApp().root()
	n := 0
	for _, c := range append(root.Commands, root) {
		for _, f := range c.Flags {
			n++
			if names := f.Names(); !tried(c.Name, names) && !(c == root && tried("ls", names)) {
				t.Errorf("no test tries %s of %s", dashes(names[0]), c.Name)
			}
		}
	}
	if n < 40 {
		t.Errorf("there are only %d flags", n)
	}
}
