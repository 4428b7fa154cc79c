package proof

import (
	"fmt"
	"slices"
)

// Checker evaluates the actions and the rules of the model on single steps, with a few
// acquisitions and requests, which are numbers from 0 on. Acquisition 0 is nobody. It is not
// safe for concurrent use.
type Checker struct {
	model     *model
	sizes     map[string]int // elements of each sort
	values    map[string]int64
	addresses map[string]int // of each variable in a state
	size      int            // of a state
	cells     map[string]*cell
	bound     []int64
	actions   map[string]*action
	rules     map[string]code
	trusted   func(int64) int64

	pre, post State
}

// State is the value of each variable.
type State []int64

// cell is what a parameter of the model has: one value, or one for each element.
type cell []int64

// code is an expression, ready to be evaluated.
type code func() int64

type action struct {
	name    string
	params  []parameter
	args    []int64
	partial []part
}

// part is one condition of an action.
type part struct {
	says string
	code code
}

// NewChecker reads the model for so many acquisitions, nobody included, and so many requests.
func NewChecker(acqs, reqs int) (*Checker, error) {
	m, err := read(variant{})
	if err != nil {
		return nil, err
	}
	c := &Checker{model: m, sizes: map[string]int{"Acq": acqs, "Req": reqs}, values: map[string]int64{"true": 1, "false": 0, "nobody": 0},
		addresses: make(map[string]int), cells: make(map[string]*cell), actions: make(map[string]*action), rules: make(map[string]code)}
	for _, e := range m.sorts {
		if e.head() == "declare-datatypes" {
			for i, constructor := range e.list[2].list[0].list {
				c.values[constructor.head()] = int64(i)
			}
		}
	}
	for _, v := range m.variables() {
		c.addresses[v.name] = c.size
		c.size += c.elements(v.of)
	}
	for _, p := range m.parameters {
		if p.head() == "declare-fun" {
			values := make(cell, c.sizes[p.list[2].list[0].atom])
			c.cells[p.list[1].atom] = &values
		}
	}
	return c, c.compileAll()
}

func (c *Checker) elements(sort string) int {
	if sort == "" {
		return 1
	}
	return c.sizes[sort]
}

// NewState returns a state of which each value is 0.
func (c *Checker) NewState() State { return make(State, c.size) }

// Kind returns the number of a kind, or of a stage.
func (c *Checker) Kind(name string) int64 { return c.values[name] }

// SetKind says of what kind an acquisition is.
func (c *Checker) SetKind(acq int, kind string) { (*c.cells["kind"])[acq] = c.values[kind] }

// At returns a variable of a state: of an acquisition or of a request, or its only value.
func (c *Checker) At(s State, variable string, of int) *int64 {
	address, ok := c.addresses[variable]
	if !ok {
		panic("no variable is named " + variable)
	}
	return &s[address+of]
}

// Flush makes the tables of a state those on its disk.
func (c *Checker) Flush(s State) {
	for _, v := range c.model.tables {
		from, to := c.addresses[v.name], c.addresses["flushed."+v.name]
		copy(s[to:to+c.elements(v.of)], s[from:])
	}
}

// Restore is the opposite of Flush.
func (c *Checker) Restore(s State) {
	for _, v := range c.model.tables {
		from, to := c.addresses["flushed."+v.name], c.addresses[v.name]
		copy(s[to:to+c.elements(v.of)], s[from:])
	}
}

// Actions returns the names of all actions.
func (c *Checker) Actions() (names []string) {
	for _, d := range c.model.in("actions") {
		names = append(names, d.name)
	}
	return names
}

// Sorts returns the sorts of an action's parameters.
func (c *Checker) Sorts(name string) (sorts []string) {
	for _, p := range c.actions[name].params {
		sorts = append(sorts, p.sort)
	}
	return sorts
}

// Refuses returns which condition of an action a step does not satisfy, or "".
func (c *Checker) Refuses(name string, args []int64, before, after State) string {
	a := c.actions[name]
	if a == nil || len(args) != len(a.params) {
		return fmt.Sprintf("no action is named %s and has %d parameters", name, len(args))
	}
	c.pre, c.post = before, after
	copy(a.args, args)
	for _, p := range a.partial {
		if p.code() == 0 {
			return p.says
		}
	}
	return ""
}

// Breaks returns which rule a state does not satisfy, or "".
func (c *Checker) Breaks(s State, but ...string) string {
	c.pre, c.post = s, s
	for _, name := range c.model.rules() {
		if !slices.Contains(but, name) && c.rules[name]() == 0 {
			return name
		}
	}
	return ""
}

// BreaksPromise returns which promise of all steps a step does not satisfy, or "".
func (c *Checker) BreaksPromise(action string, before, after State) string {
	c.pre, c.post = before, after
	for _, name := range c.model.promises(action) {
		if c.rules[name]() == 0 {
			return name
		}
	}
	return ""
}

// Trusted is what a client trusts of a duration, in microseconds.
func (c *Checker) Trusted(d int64) int64 { return c.trusted(d) }
