//go:build linux

package main

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
)

// mutant is one small change of one source file.
type mutant struct {
	group    string
	file     string // from the root of the library
	line     int
	column   int
	operator string

	begin, end int    // the bytes of the file that are replaced
	old, text  string // the text before and after
}

// id names a mutant as long as the file does not change.
func (m *mutant) id() string {
	return fmt.Sprintf("%s:%d:%d %s", m.file, m.line, m.column, m.operator)
}

// change describes the change in one line.
func (m *mutant) change() string {
	if m.text == "" {
		return "without " + shorten(m.old)
	}
	return shorten(m.old) + " → " + shorten(m.text)
}

// apply returns the changed file.
func (m *mutant) apply(source []byte) []byte {
	return slices.Concat(source[:m.begin], []byte(m.text), source[m.end:])
}

// finder collects the mutants of one file.
type finder struct {
	group, file string
	source      []byte
	found       []mutant
}

// add notes a replacement, unless it changes nothing.
func (f *finder) add(operator string, begin, end int, text string) {
	if string(f.source[begin:end]) == text {
		return
	}
	m := mutant{group: f.group, file: f.file, operator: operator, begin: begin, end: end, old: string(f.source[begin:end]), text: text}
	m.line, m.column = 1, 1
	for _, c := range f.source[:begin] {
		m.column++
		if c == '\n' {
			m.line, m.column = m.line+1, 1
		}
	}
	f.found = append(f.found, m)
}

// sorted returns the mutants in the order of the file, each id once.
func (f *finder) sorted() []mutant {
	slices.SortStableFunc(f.found, func(a, b mutant) int {
		return cmp.Or(cmp.Compare(a.begin, b.begin), cmp.Compare(a.operator, b.operator))
	})
	return slices.CompactFunc(f.found, func(a, b mutant) bool { return a.id() == b.id() })
}

// shuffled returns mutants in an order that depends only on the seed and on the name of
// the group. Mutants of Go and of SQL alternate while there are both, because SQL is the
// main part of a driver and has fewer lines.
func shuffled(all []mutant, seed uint64, group string) []mutant {
	random := rand.New(rand.NewPCG(seed, uint64(len(group))))
	random.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	var of [2][]mutant
	for _, m := range all {
		i := 0
		if isSQL(m.operator) {
			i = 1
		}
		of[i] = append(of[i], m)
	}
	var order []mutant
	for i := range max(len(of[0]), len(of[1])) {
		for _, list := range of {
			if i < len(list) {
				order = append(order, list[i])
			}
		}
	}
	return order
}
