package proof

import (
	"fmt"
	"slices"
	"strings"
)

// goal is something that follows, if z3 finds no way for it to be false.
type goal struct {
	name   string
	params []parameter // any values of them
	given  []expr
	shown  expr
}

// goals are all that the proof consists of: the start satisfies the rules, each action keeps
// them, and what is promised follows from them.
func (m *model) goals() (goals []goal) {
	rules := atom("Rules")
	goals = append(goals, goal{name: "the start satisfies the rules", given: []expr{atom("Start")}, shown: rules})
	for _, d := range m.in("theorems") {
		if len(d.params) == 0 {
			goals = append(goals, goal{name: "from the rules follows: " + d.name, given: []expr{rules}, shown: atom(d.name)})
		}
	}
	for _, d := range m.in("actions") {
		given := []expr{rules, d.call()}
		goals = append(goals,
			goal{name: d.name + " keeps the rules", params: d.params, given: given, shown: atom("Rules!")},
			goal{name: d.name + " is a step like all", params: d.params, given: given, shown: all(atoms(m.promises(d.name)))})
	}
	for _, d := range m.in("margin") {
		if d.sort == "Bool" {
			goals = append(goals, goal{name: d.name, shown: atom(d.name)})
		}
	}
	return goals
}

func atoms(names []string) (es []expr) {
	for _, n := range names {
		es = append(es, atom(n))
	}
	return es
}

// call is a definition with its own parameters.
func (d definition) call() expr {
	if len(d.params) == 0 {
		return atom(d.name)
	}
	var args []expr
	for _, p := range d.params {
		args = append(args, atom(p.name))
	}
	return call(d.name, args...)
}

func (d definition) String() string {
	var params []string
	for _, p := range d.params {
		params = append(params, fmt.Sprintf("(%s %s)", p.name, p.sort))
	}
	return fmt.Sprintf("(define-fun %s (%s) %s %s)", d.name, strings.Join(params, " "), d.sort, d.body)
}

func (v variable) declaration(suffix string) string {
	return fmt.Sprintf("(declare-fun %s%s (%s) %s)", v.name, suffix, v.of, v.sort)
}

// wholeProof returns the whole proof, for any number of clients, as z3 reads it.
func (m *model) wholeProof() string {
	return `; This is made from model.smt2, which explains it: go test ./internal/claim/proof -args -write
; z3 proof.smt2 prints the name of each goal, and unsat: nothing can make it false.

` + m.prelude() + m.questions(m.goals())
}

// prelude declares and defines everything.
func (m *model) prelude() string {
	var b strings.Builder
	line := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	line("(set-option :timeout %d)", timeout.Milliseconds())
	for _, e := range slices.Concat(m.sorts, m.parameters) {
		line("%s", e)
	}
	for _, v := range m.variables() {
		line("%s\n%s", v.declaration(""), v.declaration("!"))
	}
	for _, d := range m.in("assumptions") {
		line("%s\n(assert %s)", d, d.name)
	}
	for _, d := range append(m.written(), m.in("margin")...) {
		line("%s", d)
	}
	return b.String()
}

// questions have z3 look for what makes goals false.
func (m *model) questions(goals []goal) string {
	var b strings.Builder
	line := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	for _, g := range goals {
		line("\n(echo %q)\n(push)", g.name)
		for _, p := range g.params {
			line("(declare-const %s %s)", p.name, p.sort)
		}
		for _, e := range g.given {
			line("(assert %s)", e)
		}
		line("(assert (not %s))\n(check-sat)\n(pop)", g.shown)
	}
	return b.String()
}
