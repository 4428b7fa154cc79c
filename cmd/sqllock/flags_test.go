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

	"github.com/urfave/cli/v3"
)

// writers are the functions of the tests that write the name of a command themselves.
var writers = map[string]string{"shell": "run", "startElect": "elect", "top": "top", "serve": "web"}

// exitCodeOf returns the exit code that a call of [result.want] names, or "" for any other node.
func exitCodeOf(n ast.Node) string {
	call, ok := n.(*ast.CallExpr)
	if !ok || len(call.Args) < 2 {
		return ""
	}
	if f, ok := call.Fun.(*ast.SelectorExpr); !ok || f.Sel.Name != "want" {
		return ""
	}
	if code, ok := call.Args[1].(*ast.Ident); ok {
		return code.Name
	}
	return "another"
}

// runsNothing reports that no command runs in a function: it is a fuzz test, which replaces
// what commands do, or wants all of its command lines to be refused.
func runsNothing(f *ast.FuncDecl) bool {
	refused, ran := false, false
	ast.Inspect(f, func(n ast.Node) bool {
		code := exitCodeOf(n)
		refused = refused || code == "exitUsage"
		ran = ran || code != "" && code != "exitUsage"
		return true
	})
	return strings.HasPrefix(f.Name.Name, "Fuzz") || refused && !ran
}

// words returns the words of the texts in a function, and the commands that it calls by a
// function. It leaves out command lines that are to be refused.
func words(f *ast.FuncDecl) map[string]bool {
	found := make(map[string]bool)
	ast.Inspect(f, func(n ast.Node) bool {
		if exitCodeOf(n) == "exitUsage" {
			return false
		}
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
			if f, ok := d.(*ast.FuncDecl); ok && !runsNothing(f) {
				all = append(all, words(f))
			}
		}
	}
	return all
}

// A flag is tried if a function of a test has its name beside that of its command, and the
// command is not refused.
func TestEachFlagOfEachCommandIsTriedInATest(t *testing.T) {
	t.Parallel()
	functions := testFunctions(t)
	tried := func(command string, names []string) bool {
		return slices.ContainsFunc(functions, func(words map[string]bool) bool {
			return words[command] && slices.ContainsFunc(names, func(name string) bool { return words[dashes(name)] })
		})
	}
	root := testApp().root()
	commands := []*cli.Command{root}
	for _, c := range root.Commands {
		commands = append(append(commands, c), c.Commands...)
	}
	n := 0
	for _, c := range commands {
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
