package check

import (
	"math"

	"github.com/anishathalye/porcupine"

	"github.com/sqllock/sqllock/faults/internal/history"
	"github.com/sqllock/sqllock/faults/internal/register"
)

// operations makes the calls of a line into operations of the model. If the outcome of a
// call is unknown: - a Lock is left out: if it took the name, its token is unknown, and
// it can only have excluded others; - a write counts if the register has it, and happened
// before the next one; - an announcement is left out, and explains refusals of lower
// tokens.
func (r *run) operations(line string, final register.Final) []porcupine.Operation {
	b := &builder{run: r, line: line, calls: make(map[string]int64), done: make(map[string]register.Written), entered: make(map[string]bool)}
	b.resolve(final)
	for _, e := range r.events {
		switch {
		case e.Line() != line:
		case e.ID != "" && !e.Ret:
			b.calls[e.ID] = e.T
		default:
			b.add(e)
		}
	}
	for _, l := range r.lines[line] {
		if !r.revived(l) {
			b.lease(l)
		}
	}
	b.lateWrites()
	return b.ops
}

type builder struct {
	*run
	line      string
	calls     map[string]int64 // of calls that have begun
	done      map[string]register.Written
	order     []register.Written // of the fenced register
	known     map[string]bool    // writes of which the return was seen
	entered   map[string]bool    // leases that were
	uncertain int64              // the highest token of an announcement of unknown outcome
	ops       []porcupine.Operation
}

// resolve adds what other calls reveal.
func (b *builder) resolve(final register.Final) {
	b.known = make(map[string]bool)
	for _, w := range final.Writes {
		if w.Name == b.line && w.Kind == register.Fenced {
			b.done[w.ID] = w
			b.order = append(b.order, w)
		}
	}
	announced := make(map[string]int64)
	for _, e := range b.events {
		if e.Line() == b.line && e.Op == history.Announce {
			if !e.Ret {
				announced[e.ID] = e.Token
			} else if e.Err == "" {
				delete(announced, e.ID)
			}
		}
	}
	for _, token := range announced {
		b.uncertain = max(b.uncertain, token)
	}
}

func (b *builder) put(from, to int64, c call) {
	b.ops = append(b.ops, porcupine.Operation{Input: c, Call: from, Return: to})
}

// add adds a call that has returned.
func (b *builder) add(e history.Event) {
	from := b.calls[e.ID]
	c := call{op: e.Op, token: e.Token, owner: e.Owner, start: e.Start, n: e.N, ok: e.OK, maybe: e.Token < b.uncertain}
	l := b.leases[e.Lease]
	switch e.Op {
	case history.Read, history.Announce:
		if e.Err == "" {
			b.put(from, e.T, c)
		}
	case history.Fenced:
		if e.Err == "" {
			b.known[e.ID] = true
			b.put(from, e.T, c)
		}
	case history.Enter, history.Leave:
		// If a lease was lost later, it is unknown whether it was lost before.
		if e.Err == "" && l != nil && !b.excused(l) && e.T <= l.believed() && (e.Op == history.Enter || b.entered[l.id]) {
			b.entered[l.id] = true
			c.token, c.owner = l.token, l.owner
			b.put(from, e.T, c)
		}
	case history.Inspect:
		// A result about another holder does not help: the lease is lost, and the time of
		// its end is unknown.
		if e.Err == "" && l != nil && e.Owner == l.owner && !b.excused(l) {
			b.put(from, e.T, c)
		}
	}
}

// lease adds the grant of a lease and its end.
func (b *builder) lease(l *lease) {
	b.put(l.call, l.ret, call{op: history.Lock, shared: l.shared, token: l.token, owner: l.owner})
	from, to := l.believed(), b.succeeded(l)
	switch {
	case b.excused(l), !l.seen():
		from = l.call
	case l.unlockedWell:
		from = l.unlock
	}
	if l.unlockedWell {
		to = min(to, l.unlocked)
	}
	b.put(from, max(to, from), call{op: history.Unlock, shared: l.shared, token: l.token, owner: l.owner})
}

// succeeded returns when at the latest a lease was over, because another one that it
// excludes had been granted by then.
func (b *builder) succeeded(l *lease) int64 {
	to := int64(math.MaxInt64)
	for _, other := range b.lines[b.line] {
		if excludes(l, other) && other.token > l.token {
			to = min(to, other.ret)
		}
	}
	return to
}

// lateWrites adds the writes that were done without a reply.
func (b *builder) lateWrites() {
	for i, w := range b.order {
		if b.known[w.ID] {
			continue
		}
		to := int64(math.MaxInt64)
		if i+1 < len(b.order) {
			to = b.returned(b.order[i+1].ID)
		}
		b.put(b.calls[w.ID], to, call{op: history.Fenced, token: w.Token, n: w.N, ok: true})
	}
}

// returned returns when a write had returned for sure.
func (b *builder) returned(id string) int64 {
	for _, e := range b.events {
		if e.ID == id && e.Ret && e.Err == "" {
			return e.T
		}
	}
	return math.MaxInt64
}
