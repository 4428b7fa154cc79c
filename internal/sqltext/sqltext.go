// Package sqltext reads .sql files whose statements have names.
package sqltext

import (
	"fmt"
	"strings"
)

// mark begins the line before a statement that gives its name.
const mark = "-- name: "

// Parse returns the statements of a .sql file by their names. A statement begins behind a line
// "-- name: NAME" and ends before the next such line. Its comments, which are lines that begin
// with "--", are left out, and so are the semicolon and the white space at its end. replace
// takes the place of words in it, such as {lock}. Parse panics if a name is given twice: the
// file is part of the program.
func Parse(file string, replace *strings.Replacer) map[string]string {
	statements := make(map[string]string)
	for _, part := range strings.Split("\n"+file, "\n"+mark)[1:] {
		name, text, _ := strings.Cut(part, "\n")
		name = strings.TrimSpace(name)
		if _, ok := statements[name]; ok || name == "" {
			panic(fmt.Sprintf("bug: statement %q is in the file twice", name))
		}
		var lines []string
		for line := range strings.Lines(text) {
			if !strings.HasPrefix(strings.TrimSpace(line), "--") {
				lines = append(lines, line)
			}
		}
		text = strings.TrimSuffix(strings.TrimSpace(strings.Join(lines, "")), ";")
		statements[name] = replace.Replace(text)
	}
	return statements
}
