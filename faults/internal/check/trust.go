package check

import (
	"slices"

	"github.com/sqllock/sqllock/faults/internal/history"
)

// trusts compares what holders trust with what the database has granted: with its answers, and with
// the rows of the tables. So it also judges leases that were handed over, whose grant nobody asked
// for just then. The LockDelay is for nobody to trust.
func (r *run) trusts(answers map[acquired][]answer) []Failure {
	if !r.rules.certain() {
		return nil
	}
	var found []Failure
	for _, leases := range r.names {
		for _, l := range leases {
			known := answers[r.acquired(l)]
			for i := range l.looks {
				if f, ok := r.trustsAnswers(l, &l.looks[i], known); !ok {
					found = append(found, f)
					break
				}
			}
		}
	}
	return append(found, r.rows()...)
}

// certain reports that nothing but the rules of a name, and the clock of the database, decides about
// a name.
func (r *Rules) certain() bool { return !r.Sessions && !r.Unsteady && !r.Forgets }

// acquired is what has a term: those who share one have the same token, and their owners tell them
// apart.
type acquired struct {
	name   string
	token  int64
	reader string
}

func (r *run) acquired(l *lease) acquired {
	if l.shared {
		return acquired{l.name, l.token, l.owner}
	}
	return acquired{l.name, l.token, ""}
}

// answer is that, from a time on, a process could know that the database keeps a name until another.
type answer struct{ t, expires int64 }

// answers returns what the stores of the clients have answered about terms, in the order of time.
func (r *run) answers() map[acquired][]answer {
	all := make(map[acquired][]answer)
	owners := make(map[string]string) // of readers, by acquisition
	calls := make(map[string]*history.Event)
	note := func(name, acq string, token, t, expires int64) {
		key := acquired{name, token, owners[acq]}
		all[key] = append(all[key], answer{t, expires})
	}
	for i := range r.events {
		e := &r.events[i]
		if e.Op != history.Requested {
			continue
		}
		if !e.Ret {
			calls[e.ID] = e
			for _, q := range e.Requests {
				if e.Reason == history.Acquire && q.Shared {
					owners[q.Acq] = q.Owner
				}
			}
			continue
		}
		call := calls[e.ID]
		delete(calls, e.ID)
		if call == nil || e.Err != "" {
			continue
		}
		for i, a := range e.Requests {
			if i >= len(call.Requests) {
				break
			}
			q := &call.Requests[i]
			switch {
			case a.Granted:
				note(q.Name, q.Acq, a.Got, e.T, a.Expires)
			case a.Status == "renewed":
				note(q.Name, q.Acq, q.Token, e.T, a.Now+q.TTL)
			case a.Holder != "":
				note(q.Name, a.Holder, a.Got, e.T, a.Expires)
			}
			for _, n := range a.Next {
				note(q.Name, n.Acq, n.Token, e.T, n.Expires)
			}
		}
	}
	return all
}

// trustsAnswers judges one look. What the database has answered may not be known: then there is
// nothing to compare with.
func (r *run) trustsAnswers(l *lease, look *history.Event, known []answer) (Failure, bool) {
	wall, ok := r.clock.wall(look.T)
	if !ok || !look.OK {
		return Failure{}, true
	}
	last := int64(0)
	for _, a := range known {
		if a.t <= look.Until {
			last = max(last, a.expires)
		}
	}
	until := wall + look.Left/1000
	if over := until - (last - l.options.Delay/1000); last != 0 && over > apart {
		return fail(Deadline, look.T, "%q: %s is trusted for %.1f ms longer than the database has said that it keeps the name", l.name, l.id, float64(over)/1e3), false
	}
	return Failure{}, true
}

// rows compares each snapshot of the tables with those who held then, and trusted before. A name
// without a row is one that nobody holds. Names of leases that are kept all the time are in no
// snapshot, and those leases are not among these.
func (r *run) rows() []Failure {
	var found []Failure
	at := make(map[string]*nameLeases)
	for name, leases := range r.names {
		at[name] = &nameLeases{leases: leases, byToken: make(map[acquired]*lease)}
	}
	for i := range r.events {
		e := &r.events[i]
		if e.Op != history.Rows {
			continue
		}
		there := make(map[string]bool)
		for k := range e.Names {
			row := &e.Names[k]
			there[row.Name] = true
			if n := at[row.Name]; n != nil {
				found = append(found, r.compare(n, e, row)...)
			}
		}
		for name, n := range at {
			if !there[name] {
				found = append(found, r.compare(n, e, &history.Row{Name: name})...)
			}
		}
	}
	return found
}

// nameLeases are the leases of a name that may be held at a snapshot.
type nameLeases struct {
	leases  []*lease // that come later, in the order of ret
	open    []trusted
	byToken map[acquired]*lease // that came before
}

type trusted struct {
	*lease
	until int64 // when its holder saw last that it held
}

func (r *run) compare(n *nameLeases, e *history.Event, row *history.Row) (found []Failure) {
	for len(n.leases) > 0 && n.leases[0].ret < e.T {
		l := n.leases[0]
		n.open = append(n.open, trusted{l, l.believed()})
		n.byToken[r.acquired(l)] = l
		n.leases = n.leases[1:]
	}
	found = append(found, r.unreleased(n, e, row)...)
	n.open = slices.DeleteFunc(n.open, func(l trusted) bool { return l.until < e.T })
	for _, l := range n.open {
		if l.until <= e.Until {
			continue
		}
		expires, there := expiry(row, l.lease)
		if !there {
			found = append(found, fail(Rows, e.T, "%q: %s held with token %d (slot %d), and the tables said %+v", l.name, l.id, l.token, l.slot, *row))
			continue
		}
		i, _ := slices.BinarySearchFunc(l.looks, e.T, func(look history.Event, t int64) int {
			if look.Until < t {
				return -1
			}
			return 1
		})
		if i == 0 || !l.looks[i-1].OK {
			continue
		}
		look := &l.looks[i-1]
		wall, ok := r.clock.wall(look.T)
		if over := wall + look.Left/1000 - (expires - l.options.Delay/1000); ok && over > apart {
			found = append(found, fail(Deadline, look.T, "%q: %s was trusted for %.1f ms longer than its row was kept", l.name, l.id, float64(over)/1e3))
		}
	}
	return found
}

// unreleased looks for a lease that is still there although its Unlock had returned nil.
func (r *run) unreleased(n *nameLeases, e *history.Event, row *history.Row) (found []Failure) {
	still := func(token int64, reader string) {
		l := n.byToken[acquired{row.Name, token, reader}]
		if l != nil && l.unlockedWell && l.unlocked < e.T && !l.detached && !r.serverHit(l.unlocked, e.Until) {
			found = append(found, fail(Rows, e.T, "%q: Unlock of %s with token %d had returned nil (at %d), and the tables said %+v", l.name, l.id, l.token, l.unlocked, *row))
		}
	}
	if row.Acq != "" {
		still(row.Version, "")
	}
	for _, c := range row.Claims {
		switch {
		case c.Holding && c.Kind == sharedKind:
			still(c.Token, c.Owner)
		case c.Holding:
			still(c.Token, "")
		}
	}
	return found
}

// sharedKind is what the tables say of the claims of readers.
const sharedKind = 1

// serverHit reports that a fault hit the server, or what it sends, between two times: a release is not
// flushed, so that a crash undoes it.
func (r *run) serverHit(from, to int64) bool {
	return slices.ContainsFunc(r.faults, func(f *fault) bool { return f.proc == "" && f.from < to && f.to > from })
}

// expiry returns until when the tables say that a lease's name is kept for it. If it is not known
// whose claim is the reader's, it returns the latest of them.
func expiry(row *history.Row, l *lease) (expires int64, there bool) {
	if !l.shared && !l.permit {
		return row.Expires, row.Acq != "" && row.Version == l.token
	}
	for i := range row.Claims {
		c := &row.Claims[i]
		if c.Holding && c.Token == l.token && c.Slot == l.slot && (!l.shared || l.owner == "" || c.Owner == l.owner) {
			expires, there = max(expires, c.Expires), true
		}
	}
	return expires, there
}
