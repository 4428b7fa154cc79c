package proof

import (
	"fmt"
	"strings"
)

// The same model with a few acquisitions and requests, each of which has a name. Then there
// are no quantifiers, so that z3 always knows whether there is an example, and shows it.

// elements are those of each sort.
var elements = map[string][]string{
	"Acq": {"nobody", "key", "acq1", "acq2", "acq3"},
	"Req": {"req1", "req2", "req3"},
}

// without replaces quantifiers over Acq and Req by all their instances.
func without(e expr) expr {
	if e.list == nil {
		return e
	}
	h := e.head()
	if h != "forall" && h != "exists" {
		parts := make([]expr, len(e.list))
		for i, p := range e.list {
			parts[i] = without(p)
		}
		return expr{list: parts}
	}
	bodies := []expr{e.list[2]}
	for _, bound := range e.list[1].list {
		name, sort := bound.list[0].atom, bound.list[1].atom
		if elements[sort] == nil {
			return e // over numbers
		}
		var next []expr
		for _, b := range bodies {
			for _, x := range elements[sort] {
				next = append(next, b.substitute(map[string]expr{name: atom(x)}))
			}
		}
		bodies = next
	}
	for i := range bodies {
		bodies[i] = without(bodies[i])
	}
	if h == "exists" {
		return call("or", bodies...)
	}
	return all(bodies)
}

// example asks for a state, or for a step, that satisfies some expressions.
type example struct {
	name   string
	params []parameter
	given  []expr
}

// script is what z3 reads to find an example. show are terms whose values it prints.
func (m *model) script(e example, show []string) string {
	var b strings.Builder
	line := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	line("(set-option :timeout %d)", timeout.Milliseconds())
	for sort, names := range elements {
		line("(declare-datatypes ((%s 0)) (((%s))))", sort, strings.Join(names, ") ("))
	}
	for _, d := range m.sorts {
		if d.head() == "declare-datatypes" {
			line("%s", d)
		}
	}
	margin := m.in("margin")
	for _, d := range margin {
		if d.sort == "Int" {
			line("%s", d)
		}
	}
	for _, p := range m.parameters {
		switch name := p.list[1].atom; name {
		case "nobody":
		case "least", "trusted":
			line("(define-fun %s ((d Int)) Int (%s-of-code d))", name, name)
		default:
			line("%s", p)
		}
	}
	for _, v := range m.variables() {
		line("%s\n%s", v.declaration(""), v.declaration("!"))
	}
	line("(assert (= (kind key) detached))\n(assert (> now 0))")
	for _, d := range m.in("assumptions") {
		if !strings.Contains(d.body.String(), "trusted") && !strings.Contains(d.body.String(), "least") {
			line("(assert %s)", without(d.body))
		}
	}
	for _, d := range m.written() {
		d.body = without(d.body)
		line("%s", d)
	}
	for _, p := range e.params {
		line("(declare-const %s %s)", p.name, p.sort)
	}
	for _, g := range e.given {
		line("(assert %s)", without(g))
	}
	line("(check-sat)")
	if len(show) > 0 {
		line("(get-value (%s))", strings.Join(show, " "))
	}
	return b.String()
}

// terms are all variables of a state, each function for each element.
func (m *model) terms(suffix string) (terms []string) {
	for _, v := range m.variables() {
		if v.of == "" {
			terms = append(terms, v.name+suffix)
			continue
		}
		for _, x := range elements[v.of] {
			terms = append(terms, fmt.Sprintf("(%s%s %s)", v.name, suffix, x))
		}
	}
	return terms
}

// ofKinds are terms that say what the elements are.
func ofKinds() (terms []string) {
	for _, a := range elements["Acq"] {
		terms = append(terms, "(kind "+a+")")
	}
	for _, r := range elements["Req"] {
		terms = append(terms, "(of "+r+")", "(trusted (worth "+r+"))", "(trusted (worth! "+r+"))")
	}
	return terms
}

// values reads what z3 prints for get-value.
func values(lines []string) (map[string]string, error) {
	parsed, err := parse(strings.Join(lines, "\n"))
	if err != nil || len(parsed) == 0 {
		return nil, fmt.Errorf("z3 printed no values: %v", err)
	}
	of := make(map[string]string)
	for _, pair := range parsed[0].list {
		of[pair.list[0].String()] = number(pair.list[1])
	}
	return of, nil
}

// number writes negative numbers as people do.
func number(e expr) string {
	if e.head() == "-" && len(e.list) == 2 {
		return "-" + e.list[1].atom
	}
	return e.String()
}
