// Package proof states the rules of a name for any number of clients, in SMT-LIB, and has z3
// prove them. It can also evaluate the same text on single steps: the tests of package claim
// do so with the steps that they explore.
package proof

import (
	_ "embed"
	"fmt"
	"slices"
	"strings"
)

//go:embed model.smt2
var text string

// variable is one of the tables, or of the rest of the state.
type variable struct {
	name string
	of   string // the sort that it is a function of, or ""
	sort string
}

// parameter is one of a definition.
type parameter struct{ name, sort string }

// definition is one of the text. What the text writes short is written out.
type definition struct {
	name    string
	params  []parameter
	sort    string
	body    expr
	section string
}

// model is the text, as it was read.
type model struct {
	sorts       []expr
	parameters  []expr // declarations
	tables      []variable
	state       []variable
	definitions []definition
}

// variant is a model with one change of its text.
type variant struct{ name, old, new string }

// read reads the text, after the change of a variant.
func read(v variant) (*model, error) {
	source := text
	if v.old != "" {
		if n := strings.Count(source, v.old); n != 1 {
			return nil, fmt.Errorf("%s: %q is in the text %d times", v.name, v.old, n)
		}
		source = strings.Replace(source, v.old, v.new, 1)
	}
	exprs, err := parse(source)
	if err != nil {
		return nil, err
	}
	m, section := new(model), ""
	for _, e := range exprs {
		switch h := e.head(); {
		case h == "set-info":
			section = e.list[2].atom
		case section == "sorts":
			m.sorts = append(m.sorts, e)
		case section == "parameters":
			m.parameters = append(m.parameters, e)
		case h == "define-fun":
			m.definitions = append(m.definitions, newDefinition(e, section))
		case section == "tables":
			m.tables = append(m.tables, newVariable(e))
		case section == "state":
			m.state = append(m.state, newVariable(e))
		default:
			return nil, fmt.Errorf("%s does not belong to section %q", e, section)
		}
	}
	for i := range m.definitions {
		m.definitions[i].body = m.writeOut(m.definitions[i].body)
	}
	return m, nil
}

func newVariable(e expr) variable {
	if e.head() == "declare-const" {
		return variable{name: e.list[1].atom, sort: e.list[2].atom}
	}
	return variable{name: e.list[1].atom, of: e.list[2].list[0].atom, sort: e.list[3].atom}
}

func newDefinition(e expr, section string) definition {
	d := definition{name: e.list[1].atom, sort: e.list[3].atom, body: e.list[4], section: section}
	for _, p := range e.list[2].list {
		d.params = append(d.params, parameter{p.list[0].atom, p.list[1].atom})
	}
	return d
}

// in returns the definitions of a section.
func (m *model) in(section string) (these []definition) {
	for _, d := range m.definitions {
		if d.section == section {
			these = append(these, d)
		}
	}
	return these
}

// rules are the names of all that make the invariant, flushed tables included.
func (m *model) rules() (names []string) {
	for _, d := range m.in("rules-of-tables") {
		names = append(names, d.name, "flushed."+d.name)
	}
	for _, d := range m.in("rules") {
		if len(d.params) == 0 {
			names = append(names, d.name)
		}
	}
	return names
}

// promises are what each step keeps to. A crash brings terms back, with their tokens and
// permits: of clients that had ended them.
func (m *model) promises(action string) (names []string) {
	for _, d := range m.in("steps") {
		if action != "Crash" || strings.HasPrefix(d.name, "nothing-") {
			names = append(names, d.name)
		}
	}
	return names
}

// flushed are the tables on the disk.
func (m *model) flushed() (these []variable) {
	for _, v := range m.tables {
		these = append(these, variable{"flushed." + v.name, v.of, v.sort})
	}
	return these
}

// variables are all.
func (m *model) variables() []variable {
	return slices.Concat(m.tables, m.flushed(), m.state)
}

// writeOut replaces what the text writes short.
func (m *model) writeOut(e expr) expr {
	switch {
	case e.list == nil && e.atom == "restored":
		return all(append(m.each("restored.", m.tables, nil), m.each("same.flushed.", m.tables, nil)...))
	case e.list == nil:
		return e
	case e.head() == "only":
		return all(append(m.unchanged(e.list[1:]), m.each("same.flushed.", m.tables, nil)...))
	case e.head() == "durably":
		return all(append(m.unchanged(e.list[1:]), m.each("flush.", m.tables, nil)...))
	case e.head() == "but-tables":
		return all(m.each("same.", m.state, e.list[1:]))
	}
	parts := make([]expr, len(e.list))
	for i, p := range e.list {
		parts[i] = m.writeOut(p)
	}
	return expr{list: parts}
}

// unchanged says that the tables and the state are as they were, but for some.
func (m *model) unchanged(but []expr) []expr {
	return append(m.each("same.", m.tables, but), m.each("same.", m.state, but)...)
}

// each is what a prefix says of all variables but some.
func (m *model) each(prefix string, these []variable, but []expr) (parts []expr) {
	for _, v := range these {
		if !slices.ContainsFunc(but, func(b expr) bool { return b.atom == v.name }) {
			parts = append(parts, atom(prefix+v.name))
		}
	}
	return parts
}

// frames define what writeOut writes.
func (m *model) frames() (these []definition) {
	add := func(prefix string, v variable, left, right string) {
		these = append(these, definition{name: prefix + v.name, sort: "Bool", body: v.equal(left, right)})
	}
	for _, v := range append(slices.Clone(m.tables), m.state...) {
		add("same.", v, v.name+"!", v.name)
	}
	for _, v := range m.tables {
		add("same.flushed.", v, "flushed."+v.name+"!", "flushed."+v.name)
		add("flush.", v, "flushed."+v.name+"!", v.name+"!")
		add("restored.", v, v.name+"!", "flushed."+v.name)
	}
	return these
}

// equal says that two variables like v are equal.
func (v variable) equal(left, right string) expr {
	if v.of == "" {
		return call("=", atom(left), atom(right))
	}
	x := atom("x")
	return call("forall", list(list(x, atom(v.of))), call("=", call(left, x), call(right, x)))
}

// renamed are the definitions of a section about other variables: those of which rename
// gives another name. References between them are renamed, too.
func renamed(these []definition, rename map[string]expr, name func(string) string) (others []definition) {
	by := make(map[string]expr)
	for from, to := range rename {
		by[from] = to
	}
	for _, d := range these {
		by[d.name] = atom(name(d.name))
	}
	for _, d := range these {
		d.name, d.body = name(d.name), d.body.substitute(by)
		others = append(others, d)
	}
	return others
}

// written are all definitions, in an order in which each uses earlier ones only.
func (m *model) written() (these []definition) {
	toDisk, toNext := make(map[string]expr), make(map[string]expr)
	for _, v := range m.tables {
		toDisk[v.name] = atom("flushed." + v.name)
	}
	for _, v := range m.variables() {
		toNext[v.name] = atom(v.name + "!")
	}
	ofTables := m.in("rules-of-tables")
	rules := slices.Concat(ofTables, renamed(ofTables, toDisk, func(n string) string { return "flushed." + n }), m.in("rules"))
	var names []expr
	for _, n := range m.rules() {
		names = append(names, atom(n))
	}
	rules = append(rules, definition{name: "Rules", sort: "Bool", body: all(names)})
	rules = append(rules, m.in("theorems")...)
	next := renamed(rules, toNext, func(n string) string { return n + "!" })
	return slices.Concat(rules, next, m.in("start"), m.frames(), m.in("helpers"), m.in("steps"), m.in("actions"))
}
