package replay

import (
	"cmp"
	"reflect"
	"slices"

	"github.com/sqllock/sqllock/driver"
	"github.com/sqllock/sqllock/faults/internal/history"
	"github.com/sqllock/sqllock/internal/claim"
)

// world is a name as the tables have it. It is never changed.
type world struct {
	row    claim.Row
	claims []claim.Claim // in the order of Seq
}

// worldOf is a world of a snapshot.
func worldOf(r *history.Row) *world {
	w := &world{row: claim.Row{
		Version: r.Version, Party: claim.Party{Acq: id(r.Acq), Locker: id(r.Locker), Owner: r.Owner}, Holds: r.Holds, Since: r.Since,
		Expires: r.Expires, NotBefore: r.Before, Permits: r.Permits, Waiting: r.Waiting, Holding: r.Holding, Seq: r.Seq, Revoked: r.Revoked,
	}}
	for i := range r.Claims {
		c := &r.Claims[i]
		to := claim.Claim{
			Party: claim.Party{Acq: id(c.Acq), Locker: id(c.Locker), Owner: c.Owner}, Limits: claim.Limits{TTL: c.TTL, Handed: c.Handed},
			Seq: c.Seq, Kind: claim.Kind(c.Kind), Slot: c.Slot, Token: c.Token, Holds: c.Holds, Since: c.Since, Expires: c.Expires,
		}
		if c.Holding {
			to.State = claim.Holding
		}
		w.claims = append(w.claims, to)
	}
	return w
}

// rowOf is a row of the table lock, or that of a name without one.
func rowOf(r *history.Record) claim.Row {
	if r == nil {
		return claim.Row{}
	}
	return claim.Row{
		Version: r.Version, Party: claim.Party{Acq: id(r.Acq), Locker: id(r.Locker), Owner: r.Owner}, Holds: r.Holds, Since: r.Since,
		Expires: r.Expires, NotBefore: r.Before, Permits: r.Permits, Waiting: r.Waiting, Holding: r.Holding, Seq: r.Seq, Revoked: r.Revoked,
	}
}

// claimOf is a row of the table claim.
func claimOf(r *history.Record) claim.Claim {
	return claim.Claim{
		Party: claim.Party{Acq: id(r.Acq), Locker: id(r.Locker), Owner: r.Owner}, Limits: claim.Limits{TTL: r.TTL, Handed: r.Handed},
		Seq: r.Seq, Kind: claim.Kind(r.Kind), Slot: r.Slot, State: claim.State(r.State), Token: r.Token, Holds: r.Holds, Since: r.Since,
		Expires: r.Expires,
	}
}

// decisive returns the world without what decides nothing, and what a statement may write otherwise
// than a visit does: when a term was over, and when and for how long claims were entered.
func (w *world) decisive() *world {
	to := &world{row: w.row, claims: slices.Clone(w.claims)}
	if to.row.Acq == (driver.ID{}) {
		to.row.Expires = 0
	}
	to.row.Ended = 0
	for i := range to.claims {
		c := &to.claims[i]
		if c.State == claim.Waiting {
			c.Since = 0
		} else {
			c.TTL, c.Handed = 0, 0
		}
	}
	return to
}

// same reports that two worlds are the same.
func (w *world) same(other *world) bool {
	return w == other || reflect.DeepEqual(&w.row, &other.row) && slices.EqualFunc(w.claims, other.claims, func(a, b claim.Claim) bool {
		return reflect.DeepEqual(&a, &b)
	})
}

// equivalent reports that two worlds are the same in what decides.
func (w *world) equivalent(other *world) bool { return w.decisive().same(other.decisive()) }

func (w *world) find(acq driver.ID) *claim.Claim {
	for i := range w.claims {
		if w.claims[i].Acq == acq {
			return &w.claims[i]
		}
	}
	return nil
}

// has reports that a client's lease is there, and lasts until after a time.
func (w *world) has(l *lease, at int64) bool {
	if !l.Shared && !l.Permit {
		return w.row.Acq != driver.ID{} && w.row.Version == l.Token && (l.Owner == "" || w.row.Owner == l.Owner) && w.row.Expires > at
	}
	return slices.ContainsFunc(w.claims, func(c claim.Claim) bool {
		return c.State == claim.Holding && c.Token == l.Token && (l.Owner == "" || c.Owner == l.Owner) && c.Expires > at &&
			(c.Kind == claim.Shared) == l.Shared && c.Slot == l.Slot
	})
}

// hasTerm reports that an acquisition has a term.
func (w *world) hasTerm(acq driver.ID, token int64) bool {
	if w.row.Acq == acq {
		return w.row.Version == token
	}
	c := w.find(acq)
	return c != nil && c.State == claim.Holding && c.Token == token
}

// doubt is what is not known of the time of a visit.
type doubt struct {
	dead    []driver.ID // Lockers that perhaps count as alive, and do not
	guarded bool        // a guard is at work on the last exclusive term
	locked  []driver.ID // claims that have expired, and are being renewed, or guarded, or had not expired when it was asked which had
}

// visit is what a Locker does to a world at a time, in a call that has begun before, and in a step
// that came after. It returns nothing if do reports that it is not what happened.
func (a *trial) visit(w *world, by driver.ID, now int64, d doubt, do func(*claim.Visit) bool) (to *world, done claim.Changes) {
	v := claim.NewVisit(w.row, slices.Clone(w.claims))
	v.Now, v.By = now, by
	v.Alive = func(locker driver.ID) bool {
		if locker == by {
			return true
		}
		l := a.h.alive(locker, min(a.began, now), a.to)
		return l == alive || l == perhaps && !slices.Contains(d.dead, locker)
	}
	v.Locked = func(acq driver.ID) bool { return !slices.Contains(d.locked, acq) }
	v.Pinned = d.guarded
	if !do(v) {
		return nil, done
	}
	done = v.Changes()
	if done.Err != nil {
		return nil, done
	}
	if !done.Changed {
		return w, done
	}
	to = &world{row: done.Row}
	for i := range w.claims {
		if c := &w.claims[i]; !slices.Contains(done.Delete, c.Acq) {
			to.claims = append(to.claims, *c)
		}
	}
	to.claims = append(to.claims, done.Insert...)
	return to, done
}

// life is whether a Locker is alive.
type life uint8

const (
	dead life = iota
	perhaps
	alive
)

// settled is how long a beat takes at most, as a rule, from its change to its commit.
const settled = 100_000

// alive tells whether the database had heard of a Locker in time, for somebody who looked at some
// time between. What it heard just then may not have been committed.
func (h *gathered) alive(locker driver.ID, from, to int64) life {
	found, until := dead, from
	beats := h.beats[locker]
	i, _ := slices.BinarySearchFunc(beats, to+1, func(b beat, t int64) int { return cmp.Compare(b.at, t) })
	for _, b := range beats[max(0, i-64):i] {
		if b.at+settled <= until {
			until = max(until, b.until)
		}
		if b.until > from {
			found = perhaps
		}
	}
	if until > to && found != dead {
		return alive
	}
	return found
}

// silent returns for how long a Locker has not counted as alive any more.
func (h *gathered) silent(locker driver.ID, now int64) int64 {
	last := int64(0)
	for _, b := range h.beats[locker] {
		if b.at <= now {
			last = max(last, b.until)
		}
	}
	return now - last
}
