package main

import (
	"bufio"
	"bytes"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"strings"
	"unicode"
)

// A use is a private word in a name.
type use struct {
	word     string
	name     string
	kind     kind
	position string
}

// A checker collects uses. It is not safe for concurrent use.
type checker struct {
	root        string
	implemented map[string]bool // the names that package driver declares
	uses        []use
}

// driverNames returns the exported names that the Go files in dir declare.
func driverNames(dir string) (map[string]bool, error) {
	names := map[string]bool{}
	files, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil {
		return nil, err
	}
	for _, name := range files {
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.SkipObjectResolution)
		if err != nil {
			return nil, err
		}
		declarations(file, func(id *ast.Ident, _ kind) {
			if id.IsExported() {
				names[id.Name] = true
			}
		})
	}
	return names, nil
}

// checkFile checks a file: its text only, if its names are exempt.
func (c *checker) checkFile(name string, exempt bool) error {
	source, err := os.ReadFile(filepath.Join(c.root, filepath.FromSlash(name)))
	if err != nil {
		return err
	}
	c.checkPhrases(name, source)
	if exempt {
		return nil
	}
	base := strings.TrimSuffix(path.Base(name), path.Ext(name))
	switch path.Ext(name) {
	case ".go", ".sql", ".sh", ".md":
		c.check(name, fileName, base, name)
	}
	switch path.Ext(name) {
	case ".go":
		return c.checkGo(name, source)
	case ".md":
		return c.checkHeadings(name, source)
	}
	return nil
}

func (c *checker) checkGo(name string, source []byte) error {
	fset := token.NewFileSet()
	file, err := parser.ParseFile(fset, name, source, parser.SkipObjectResolution)
	if err != nil {
		return err
	}
	at := func(n ast.Node) string { return fset.Position(n.Pos()).String() }
	isTest := strings.HasSuffix(name, "_test.go")
	c.check(name, packageName, file.Name.Name, at(file.Name))
	declarations(file, func(id *ast.Ident, k kind) {
		if k == funcName && isTest && isTestName(id.Name) {
			k = sentence
		}
		if (k == methodName || k == fieldName) && c.implemented[id.Name] {
			return // the name follows package driver
		}
		c.check(name, k, id.Name, at(id))
	})
	ast.Inspect(file, func(n ast.Node) bool {
		if lit := subtestName(n); lit != nil {
			if s, err := strconv.Unquote(lit.Value); err == nil {
				c.check(name, sentence, s, at(lit))
			}
		}
		return true
	})
	return nil
}

func isTestName(name string) bool {
	for _, prefix := range []string{"Test", "Benchmark", "Fuzz", "Example"} {
		if strings.HasPrefix(name, prefix) {
			return true
		}
	}
	return false
}

// subtestName returns the literal that names a subtest if n is a call of Run.
func subtestName(n ast.Node) *ast.BasicLit {
	call, ok := n.(*ast.CallExpr)
	if !ok || len(call.Args) != 2 {
		return nil
	}
	if sel, ok := call.Fun.(*ast.SelectorExpr); !ok || sel.Sel.Name != "Run" {
		return nil
	}
	lit, _ := call.Args[0].(*ast.BasicLit)
	if lit == nil || lit.Kind != token.STRING {
		return nil
	}
	return lit
}

func (c *checker) checkHeadings(name string, source []byte) error {
	fenced := false
	lines := bufio.NewScanner(bytes.NewReader(source))
	for n := 1; lines.Scan(); n++ {
		text := lines.Text()
		if strings.HasPrefix(strings.TrimSpace(text), "```") {
			fenced = !fenced
		}
		if !fenced && strings.HasPrefix(text, "#") {
			c.check(name, sentence, strings.TrimLeft(text, "# "), fmt.Sprintf("%s:%d", name, n))
		}
	}
	return lines.Err()
}

// check notes the private words of a name in the file at path.
func (c *checker) check(path string, k kind, name, position string) {
	words := split(name)
	for i, word := range words {
		last := i == len(words)-1
		if k == typeName && last && strings.HasSuffix(word, "ing") && !ingNouns[word] {
			c.uses = append(c.uses, use{word: "-ing type", name: name, kind: k, position: position})
			continue
		}
		if r, ok := private[word]; ok && r.applies(path, k, len(words)) && !isAllowed(word, path, name) {
			c.uses = append(c.uses, use{word: word, name: name, kind: k, position: position})
		}
	}
}

// split returns the words of an identifier or a sentence in lower case:
// "openTTLPool" is open, ttl, pool.
func split(name string) []string {
	var words []string
	var word []rune
	flush := func() {
		if len(word) > 0 {
			words = append(words, strings.ToLower(string(word)))
			word = nil
		}
	}
	runes := []rune(name)
	for i, r := range runes {
		switch {
		case !unicode.IsLetter(r):
			flush()
			continue
		case unicode.IsUpper(r):
			after := i > 0 && unicode.IsLower(runes[i-1])
			before := i > 0 && i+1 < len(runes) && unicode.IsUpper(runes[i-1]) && unicode.IsLower(runes[i+1])
			if after || before {
				flush()
			}
		}
		word = append(word, r)
	}
	flush()
	return words
}
