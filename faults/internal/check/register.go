package check

import (
	"github.com/sqllock/sqllock/faults/internal/history"
	"github.com/sqllock/sqllock/faults/internal/register"
)

// registers compares the replies to the writers with the final contents of the registers.
func registers(r *run, final register.Final) []Failure {
	found := append(Writes(final, r.last), values(final, r.last)...)
	done := make(map[string]register.Written)
	for _, w := range final.Writes {
		done[w.ID] = w
	}
	for _, e := range r.events {
		if !e.Ret || e.Op != history.Fenced && e.Op != history.Guarded && e.Op != history.Plain {
			continue
		}
		w, ok := done[e.ID]
		refused := e.Err == "" && !e.OK || e.Refuse
		switch {
		case e.OK && !ok:
			found = append(found, fail(Register, e.T, "%q: the %s write %s was accepted, and is not there", e.Name, e.Op, e.ID))
		case refused && ok:
			found = append(found, fail(Register, e.T, "%q: the %s write %s was refused, and is there", e.Name, e.Op, e.ID))
		case ok && (w.Token != e.Token || e.Op != history.Plain && e.OK && w.N != e.N):
			found = append(found, fail(Register, e.T, "%q: the %s write %s is there as %+v", e.Name, e.Op, e.ID, w))
		}
	}
	return found
}

// Writes looks at the protected registers, at any time: each write is one more than the
// one before, and of the same term or a later one.
func Writes(final register.Final, now int64) []Failure {
	var found []Failure
	last := make(map[[2]string]register.Written)
	for _, w := range final.Writes {
		if w.Kind == register.Plain {
			continue
		}
		key := [2]string{w.Kind, w.Name}
		before := last[key]
		if w.N != before.N+1 {
			found = append(found, fail(Register, now, "%q: in the %s register %d (%s) follows %d (%s)", w.Name, w.Kind, w.N, w.ID, before.N, before.ID))
		}
		if w.Token < before.Token {
			found = append(found, fail(Register, now, "%q: the %s register went back from token %d (%s) to %d (%s)", w.Name, w.Kind, before.Token, before.ID, w.Token, w.ID))
		}
		last[key] = w
	}
	return found
}

// values compares the registers with how often they were written.
func values(final register.Final, now int64) []Failure {
	var found []Failure
	writes := make(map[[2]string]int64)
	for _, w := range final.Writes {
		writes[[2]string{w.Kind, w.Name}]++
	}
	for kind, names := range final.N {
		for name, n := range names {
			if written := writes[[2]string{kind, name}]; n != written {
				found = append(found, fail(Register, now, "%q: the %s register says %d, after %d writes", name, kind, n, written))
			}
		}
	}
	return found
}

// Unprotected counts the writes that came, at the register that nothing protects, after
// one of a later term.
func Unprotected(final register.Final) int {
	n := 0
	highest := make(map[string]int64)
	for _, w := range final.Writes {
		if w.Kind != register.Plain {
			continue
		}
		if w.Token < highest[w.Name] {
			n++
		}
		highest[w.Name] = max(highest[w.Name], w.Token)
	}
	return n
}

// refusals looks for writes that were refused although their holder held, as he could
// see afterwards.
func refusals(r *run) []Failure {
	var found []Failure
	for _, e := range r.events {
		l := r.leases[e.Lease]
		if l == nil || !e.Ret || e.OK || l.believed() <= e.T || r.excused(l) {
			continue
		}
		switch {
		case (e.Op == history.Announce || e.Op == history.Fenced) && e.Err == "",
			e.Op == history.Guarded && e.Lost:
			found = append(found, fail(Refused, e.T, "%q: the %s of %s with token %d was refused, %.1f ms before the end of its lease: %s",
				e.Name, e.Op, l.id, l.token, float64(l.believed()-e.T)/1e6, e.Err))
		}
	}
	return found
}
