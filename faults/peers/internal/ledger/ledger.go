// Package ledger is what the locks protect: numbers that are read, and set to one more
// than what was read. They are kept by the process that runs a cell, which is neither
// killed nor paused, and is part of no system that is compared: so none has an advantage.
package ledger

import (
	"slices"
	"sync"
)

// The registers by name.
const (
	Plain  = "plain"  // takes what it gets
	Fenced = "fenced" // compares the token in each request
)

// Term is what a client knows of the lock under which it writes, with times of package
// history.
type Term struct {
	ID              string
	Called, Granted int64 // when Lock was called, and when it had returned
}

// Write sets a number.
type Write struct {
	Register, Name string
	Term           Term
	Token          int64 // of the fenced register
	N              int64 // one more than was read
}

// Accepted is a write that was done.
type Accepted struct {
	Write
	Before int64 // what the register said until then
}

// Registers are the numbers, one for each register and name, from 0 up. It is safe for
// concurrent use.
type Registers struct {
	mu      sync.Mutex
	n       map[key]int64
	tokens  map[string]int64 // that the fenced register was told of last, by name
	writes  []Accepted
	refused int
}

type key struct{ register, name string }

// New returns registers that are all 0.
func New() *Registers {
	return &Registers{n: make(map[key]int64), tokens: make(map[string]int64)}
}

// Read returns what a register says.
func (r *Registers) Read(register, name string) int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.n[key{register, name}]
}

// Announce tells the fenced register of a token, and whether it knows of no higher one:
// then what is read next is final as far as former holders go.
func (r *Registers) Announce(name string, token int64) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if token < r.tokens[name] {
		r.refused++
		return false
	}
	r.tokens[name] = token
	return true
}

// Write does a write, and says whether it was accepted: the fenced register wants the
// token that it was told of last.
func (r *Registers) Write(w Write) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if w.Register == Fenced && w.Token != r.tokens[w.Name] {
		r.refused++
		return false
	}
	k := key{w.Register, w.Name}
	r.writes = append(r.writes, Accepted{w, r.n[k]})
	r.n[k] = w.N
	return true
}

// Writes returns the writes that were done, in their order.
func (r *Registers) Writes() []Accepted {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.writes)
}

// Refused returns how many requests the fenced register has refused.
func (r *Registers) Refused() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.refused
}
