package proof

import (
	"fmt"
	"strconv"
	"strings"
)

// scope says where names are while an expression is compiled.
type scope struct {
	*Checker
	defined map[string]definition
	local   map[string]code
	depth   int // of quantifiers
	err     error
}

func (c *Checker) compileAll() error {
	s := &scope{Checker: c, defined: make(map[string]definition)}
	c.bound = make([]int64, 64)
	for _, d := range append(c.model.written(), c.model.in("margin")...) {
		s.defined[d.name] = d
	}
	for _, d := range c.model.in("margin") {
		if d.sort == "Int" {
			d.name = strings.TrimSuffix(d.name, "-of-code")
			s.defined[d.name] = d
		}
	}
	for _, name := range c.model.rules() {
		c.rules[name] = s.compile(atom(name))
	}
	for _, d := range c.model.in("steps") {
		c.rules[d.name] = s.compile(atom(d.name))
	}
	for _, d := range c.model.in("actions") {
		c.actions[d.name] = s.action(d)
	}
	c.trusted = s.function("trusted")
	return s.err
}

// action compiles the conditions of an action one by one.
func (s *scope) action(d definition) *action {
	a := &action{name: d.name, params: d.params, args: make([]int64, len(d.params))}
	s.local = make(map[string]code)
	for i, p := range d.params {
		s.local[p.name] = func() int64 { return a.args[i] }
	}
	for _, e := range conditions(d.body) {
		a.partial = append(a.partial, part{e.String(), s.compile(e)})
	}
	s.local = nil
	return a
}

// function compiles a definition of one number.
func (s *scope) function(name string) func(int64) int64 {
	var arg int64
	s.local = map[string]code{"argument": func() int64 { return arg }}
	f := s.compile(call(name, atom("argument")))
	s.local = nil
	return func(n int64) int64 { arg = n; return f() }
}

// conditions are the parts of a conjunction.
func conditions(e expr) (parts []expr) {
	if e.head() != "and" {
		return []expr{e}
	}
	for _, p := range e.list[1:] {
		parts = append(parts, conditions(p)...)
	}
	return parts
}

func (s *scope) fail(e expr) code {
	if s.err == nil {
		s.err = fmt.Errorf("%s cannot be evaluated", e)
	}
	return func() int64 { return 0 }
}

func (s *scope) compile(e expr) code {
	if e.list == nil {
		return s.compileAtom(e)
	}
	h := e.head()
	switch h {
	case "forall", "exists":
		return s.quantifier(e, h == "forall")
	}
	if d, ok := s.defined[h]; ok {
		return s.apply(d, e)
	}
	var args []code
	for _, p := range e.list[1:] {
		args = append(args, s.compile(p))
	}
	if f := operation(h, args); f != nil {
		return f
	}
	if len(args) != 1 {
		return s.fail(e)
	}
	if values, ok := s.cells[h]; ok {
		return func() int64 { return (*values)[args[0]()] }
	}
	return s.variable(e, h, args[0])
}

func (s *scope) compileAtom(e expr) code {
	if f, ok := s.local[e.atom]; ok {
		return f
	}
	if d, ok := s.defined[e.atom]; ok {
		return s.apply(d, list(e))
	}
	if n, err := strconv.ParseInt(e.atom, 10, 64); err == nil {
		return func() int64 { return n }
	}
	if n, ok := s.values[e.atom]; ok {
		return func() int64 { return n }
	}
	if e.atom == "retention" {
		return func() int64 { return 0 }
	}
	return s.variable(e, e.atom, func() int64 { return 0 })
}

// variable reads one of the state before or after the step.
func (s *scope) variable(e expr, name string, of code) code {
	address, ok := s.addresses[strings.TrimSuffix(name, "!")]
	c := s.Checker
	switch {
	case !ok:
		return s.fail(e)
	case strings.HasSuffix(name, "!"):
		return func() int64 { return c.post[address+int(of())] }
	}
	return func() int64 { return c.pre[address+int(of())] }
}

// apply compiles a definition for its arguments.
func (s *scope) apply(d definition, e expr) code {
	if len(e.list)-1 != len(d.params) {
		return s.fail(e)
	}
	inner := make(map[string]code)
	for i, p := range d.params {
		inner[p.name] = s.compile(e.list[i+1])
	}
	outer := s.local
	s.local = inner
	f := s.compile(d.body)
	s.local = outer
	return f
}

// quantifier tries all elements.
func (s *scope) quantifier(e expr, universal bool) code {
	outer, depth := s.local, s.depth
	s.local = make(map[string]code)
	for name, f := range outer {
		s.local[name] = f
	}
	var sizes []int64
	for i, b := range e.list[1].list {
		at := depth + i
		size, ok := s.sizes[b.list[1].atom]
		if !ok {
			return s.fail(e)
		}
		sizes = append(sizes, int64(size))
		s.local[b.list[0].atom] = func() int64 { return s.bound[at] }
	}
	s.depth += len(sizes)
	body := s.compile(e.list[2])
	s.local, s.depth = outer, depth
	if !universal {
		return func() int64 { return s.try(depth, sizes, body, 1) }
	}
	return func() int64 { return 1 - s.try(depth, sizes, func() int64 { return 1 - body() }, 1) }
}

// try reports whether some elements make a body what is wanted.
func (s *scope) try(at int, sizes []int64, body code, want int64) int64 {
	if len(sizes) == 0 {
		return body()
	}
	for s.bound[at] = 0; s.bound[at] < sizes[0]; s.bound[at]++ {
		if s.try(at+1, sizes[1:], body, want) == want {
			return want
		}
	}
	return 0
}

func truth(b bool) int64 {
	if b {
		return 1
	}
	return 0
}

// operation is one of SMT-LIB, or nil.
func operation(name string, args []code) code {
	switch name {
	case "and", "or":
		return junction(args, name == "or")
	case "not":
		return func() int64 { return 1 - args[0]() }
	case "=>":
		return func() int64 { return truth(args[0]() == 0 || args[1]() == 1) }
	case "=":
		return func() int64 { return truth(args[0]() == args[1]()) }
	case "<":
		return func() int64 { return truth(args[0]() < args[1]()) }
	case "<=":
		return func() int64 { return truth(args[0]() <= args[1]()) }
	case "+":
		return func() int64 { return args[0]() + args[1]() }
	case "-":
		return difference(args)
	case "div": // by a positive number
		return func() int64 { x, y := args[0](), args[1](); return (x - ((x%y)+y)%y) / y }
	case "ite":
		return func() int64 {
			if args[0]() == 1 {
				return args[1]()
			}
			return args[2]()
		}
	}
	return nil
}

// junction is true if all arguments are, or if any is.
func junction(args []code, any bool) code {
	decides := truth(any)
	return func() int64 {
		for _, f := range args {
			if f() == decides {
				return decides
			}
		}
		return 1 - decides
	}
}

func difference(args []code) code {
	return func() int64 {
		n := args[0]()
		for _, f := range args[1:] {
			n -= f()
		}
		return n
	}
}
