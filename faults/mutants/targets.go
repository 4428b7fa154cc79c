//go:build linux

package main

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// target is a part of the library. A sample has as many mutants of each.
type target struct {
	name  string
	files []string // patterns
	tests string   // the directory of its own tests, "" if those of the root are
}

var targets = []target{
	{"engine", []string{"internal/batch/*.go", "internal/reserved/*.go", "acquisition.go", "sqllock.go"}, ""},
	{"keeper", []string{"keeper.go", "lease.go", "term.go", "internal/clock/*.go"}, ""},
	{"queue", []string{"waiter.go", "claim.go", "wakeup.go", "inspect.go", "deadlock.go", "internal/deadlock/*.go"}, ""},
	{"cleanup", []string{"cleanup.go", "unlock.go", "unique.go"}, ""},
	{"rules", []string{"internal/claim/*.go"}, "internal/claim"},
	{"rowstore", []string{"internal/rowstore/*.go"}, ""},
	{"calls", []string{"semaphore.go", "lockall.go", "once.go", "detach.go", "unlocktx.go"}, ""},
	{"elections", []string{"election*.go"}, ""},
	{"quorum", []string{"quorum*.go"}, "internal/quorumtest"},
	{"sessions", []string{"internal/session/*.go", "internal/termstore/*.go"}, ""},
	{"locksqlite", []string{"locksqlite/*.go", "locksqlite/sql/*.sql"}, "locksqlite"},
	{"lockpg", []string{"lockpg/*.go", "lockpg/sql/*.sql"}, "lockpg"},
	{"lockmysql", []string{"lockmysql/*.go", "lockmysql/sql/*.sql"}, "lockmysql"},
}

// elsewhere matches files of other systems.
var elsewhere = regexp.MustCompile(`_(test|other|darwin|windows)\.go$`)

// mutants returns all mutants of a target.
func (t *target) mutants(root string) (all []mutant, err error) {
	for _, pattern := range t.files {
		found, err := filepath.Glob(filepath.Join(root, pattern))
		if err != nil {
			return nil, err
		}
		found = slices.DeleteFunc(found, elsewhere.MatchString)
		if len(found) == 0 {
			return nil, fmt.Errorf("there is no %s", pattern)
		}
		for _, path := range found {
			file, err := filepath.Rel(root, path)
			if err != nil {
				return nil, err
			}
			source, err := os.ReadFile(path)
			if err != nil {
				return nil, err
			}
			f := &finder{group: t.name, file: file, source: source}
			if strings.HasSuffix(file, ".sql") {
				f.inStatements()
			} else if err := f.inGo(); err != nil {
				return nil, err
			}
			all = append(all, f.sorted()...)
		}
	}
	return all, nil
}

// sample returns the mutants of each target in the order of judging. The order depends on
// the seed and the source.
func sample(root string, seed uint64, pattern *regexp.Regexp) (lists [][]mutant, err error) {
	for _, t := range targets {
		if !pattern.MatchString(t.name) {
			continue
		}
		all, err := t.mutants(root)
		if err != nil {
			return nil, err
		}
		lists = append(lists, shuffled(all, seed, t.name))
	}
	if len(lists) == 0 {
		return nil, fmt.Errorf("no target matches %q: there are %s", pattern, targetNames())
	}
	return lists, nil
}

func targetNames() string {
	var names []string
	for _, t := range targets {
		names = append(names, t.name)
	}
	return strings.Join(names, ", ")
}
