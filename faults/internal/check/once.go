package check

import (
	"github.com/sqllock/sqllock/faults/internal/history"
	"github.com/sqllock/sqllock/faults/internal/register"
)

// A key is one of a name.
type key struct{ name, key string }

// completions is what became of a key.
type completions struct {
	begun     int             // runs
	succeeded []history.Event // calls that have run it, and know that it is complete
	committed []string        // guarded writes in transactions that completed it
	done      *history.Event  // a call that was told that it is complete already
}

// once looks for keys that were completed twice, or never.
func once(r *run, final register.Final) []Failure {
	keys := make(map[key]*completions)
	of := func(e *history.Event) *completions {
		k := key{e.Name, e.Key}
		if keys[k] == nil {
			keys[k] = new(completions)
		}
		return keys[k]
	}
	written := make(map[string]bool)
	for _, w := range final.Writes {
		written[w.ID] = true
	}
	for i := range r.events {
		e := &r.events[i]
		switch {
		case e.Key == "" || !e.Ret && e.Op != history.Guarded:
		case e.Op == history.Lock && e.Err == "":
			of(e).begun++
		case e.Op == history.OnceEnds && e.Err == "" && e.OK:
			of(e).succeeded = append(of(e).succeeded, *e)
		case e.Op == history.OnceEnds && e.Err == "":
			of(e).done = e
		case e.Op == history.Guarded && !e.Ret && written[e.ID]:
			of(e).committed = append(of(e).committed, e.Lease)
		}
	}
	var found []Failure
	for k, c := range keys {
		switch {
		case len(c.succeeded) > 1:
			found = append(found, fail(Once, c.succeeded[1].T, "%q of %q was completed by %s and by %s", k.key, k.name, c.succeeded[0].Lease, c.succeeded[1].Lease))
		case len(c.committed) > 1:
			found = append(found, fail(Once, r.last, "%q of %q was completed in transactions of %s and of %s", k.key, k.name, c.committed[0], c.committed[1]))
		case len(c.committed) == 1 && len(c.succeeded) == 1 && c.committed[0] != c.succeeded[0].Lease:
			found = append(found, fail(Once, c.succeeded[0].T, "%q of %q was completed in a transaction of %s and by %s", k.key, k.name, c.committed[0], c.succeeded[0].Lease))
		case c.done != nil && c.begun == 0:
			found = append(found, fail(Once, c.done.T, "%q of %q is said to be complete, and nobody has run it", k.key, k.name))
		}
	}
	return found
}
