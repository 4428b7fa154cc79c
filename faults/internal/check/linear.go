package check

import (
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/sqllock/sqllock/faults/internal/history"
	"github.com/sqllock/sqllock/faults/internal/register"
)

// linearize looks for an order of all calls in which each returned the right result. It
// checks each name, and each slot of a semaphore, separately, and gives up on one after the timeout.
func linearize(r *run, final register.Final, timeout time.Duration) (found []Failure, unordered []string) {
	model := nameModel()
	for name := range r.lines {
		ops := r.operations(name, final)
		switch porcupine.CheckOperationsTimeout(model, ops, timeout) {
		case porcupine.Illegal:
			found = append(found, fail(Linear, r.last, "%q: no order of its %d calls explains what they returned", name, len(ops)))
		case porcupine.Unknown:
			unordered = append(unordered, name)
		}
	}
	return found, unordered
}

// state is a name and the fenced register that it protects.
type state struct {
	holders   int    // how many
	owner     string // of a writer
	exclusive bool   // the last term was a writer's
	count     int    // how often a writer holds it
	token     int64  // of the last term
	start     int64  // of a writer's term, if a client has inspected it

	announced, n int64 // of the register
}

// A call is the input of an operation. It includes the result of the call.
type call struct {
	op     string // of package history; Unlock for any end of a lease
	shared bool
	owner  string
	token  int64
	start  int64
	n      int64
	ok     bool
	maybe  bool // a refusal that an announcement of unknown outcome explains
}

// nameModel applies calls to a state.
func nameModel() porcupine.Model {
	return porcupine.Model{
		Init:  func() any { return state{} },
		Equal: func(a, b any) bool { return a == b },
		Step: func(s, input, _ any) (bool, any) {
			next, ok := input.(call).apply(s.(state))
			return ok, next
		},
	}
}

func (c call) apply(s state) (state, bool) {
	switch c.op {
	case history.Lock:
		return c.grant(s)
	case history.Unlock:
		return c.end(s)
	case history.Enter:
		ok := s.holders == 1 && s.exclusive && s.owner == c.owner && s.token == c.token
		s.count++
		return s, ok
	case history.Leave:
		ok := s.count > 1
		s.count--
		return s, ok
	case history.Inspect:
		ok := s.holders == 1 && s.exclusive && s.owner == c.owner && s.token == c.token && (s.start == 0 || s.start == c.start)
		s.start = c.start
		return s, ok
	}
	return c.touch(s)
}

// grant makes the caller a holder.
func (c call) grant(s state) (state, bool) {
	if !c.shared {
		return state{
			holders: 1, owner: c.owner, exclusive: true, count: 1, token: c.token, announced: s.announced, n: s.n,
		}, s.holders == 0 && c.token > s.token
	}
	if s.exclusive && (s.holders > 0 || c.token <= s.token) || c.token < s.token {
		return s, false
	}
	s.holders, s.owner, s.exclusive, s.start, s.token = s.holders+1, "", false, 0, c.token
	return s, true
}

// end ends a lease, however often it is held.
func (c call) end(s state) (state, bool) {
	if s.holders == 0 || s.exclusive == c.shared || !c.shared && s.token != c.token {
		return s, false
	}
	s.holders, s.owner, s.count, s.start = s.holders-1, "", 0, 0
	return s, true
}

// touch applies a call to the register.
func (c call) touch(s state) (state, bool) {
	switch c.op {
	case history.Announce:
		if !c.ok {
			return s, c.token < s.announced || c.maybe
		}
		ok := c.token >= s.announced
		s.announced = c.token
		return s, ok
	case history.Read:
		return s, c.n == s.n
	case history.Fenced:
		if !c.ok {
			return s, c.token != s.announced || c.maybe
		}
		s.n = c.n
		return s, c.token == s.announced
	}
	panic("bug: no operation is named " + c.op)
}
