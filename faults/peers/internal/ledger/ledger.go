// Package ledger has the registers that the locks protect. A client reads a number and
// writes its successor. The process that runs the cell keeps the registers. It is neither
// killed nor paused, and belongs to none of the compared systems, so that none has an
// advantage.
package ledger

import (
	"slices"
	"sync"
)

// The registers by name.
const (
	Plain  = "plain"  // accepts every write
	Fenced = "fenced" // compares the token in each request
)

// Term is a client's knowledge of the lock under which it writes. Its times are those of
// package history.
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
	Before int64 // the value before the write
}

// Registers are the numbers, one for each register and name, from 0 up. It is safe for
// concurrent use.
type Registers struct {
	mu      sync.Mutex
	n       map[key]int64
	tokens  map[string]int64 // the last announced token of the fenced register, by name
	writes  []Accepted
	refused int
}

type key struct{ register, name string }

// New returns registers that are all 0.
func New() *Registers {
	return &Registers{n: make(map[key]int64), tokens: make(map[string]int64)}
}

// Read returns the value of a register.
func (r *Registers) Read(register, name string) int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.n[key{register, name}]
}

// Announce announces a token to the fenced register. It returns false if the register
// knows a higher token. After a successful Announce, former holders cannot change the
// value.
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

// Write writes a value and reports whether the register accepted it. The fenced register
// accepts only the token that was announced last.
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
