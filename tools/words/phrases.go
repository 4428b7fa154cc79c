package main

import (
	"bytes"
	"fmt"
	"path"
	"regexp"
)

// text is all that a file says, comments included.
const text kind = "text"

// phrases are not plain English, anywhere in a text.
var phrases = []struct {
	pattern *regexp.Regexp
	write   string
}{
	{regexp.MustCompile(`\bstands in\b`), "is in, or says"},
	{regexp.MustCompile(`\bbe it\b`), "also, or whether"},
	{regexp.MustCompile(`\bits kin\b`), "and others"},
	{regexp.MustCompile(`\bbelongs? into\b`), "belongs in"},
}

// checkPhrases notes the phrases of a file of code or of documentation.
func (c *checker) checkPhrases(name string, source []byte) {
	switch {
	case path.Dir(name) == "tools/words": // which lists them
		return
	case path.Ext(name) != ".go" && path.Ext(name) != ".sql" && path.Ext(name) != ".md":
		return
	}
	for n, line := range bytes.Split(source, []byte("\n")) {
		for _, p := range phrases {
			if found := p.pattern.Find(line); found != nil {
				c.uses = append(c.uses, use{word: string(found), name: string(bytes.TrimSpace(line)), kind: text, position: fmt.Sprintf("%s:%d", name, n+1)})
			}
		}
	}
}
