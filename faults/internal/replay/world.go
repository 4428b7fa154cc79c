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
	w.normalize()
	return w
}

// normalize forgets what decides nothing: when a term was over, and what entered claims.
func (w *world) normalize() {
	if w.row.Acq == (driver.ID{}) {
		w.row.Expires = 0
	}
	w.row.Ended = 0
	for i := range w.claims {
		c := &w.claims[i]
		if c.State == claim.Waiting {
			c.Since = 0
		} else {
			c.TTL, c.Handed = 0, 0
		}
	}
}

// shows reports that a snapshot may be one of the world. The highest place of any claim ever is not
// compared: that claim may be gone before somebody sees it. The places of claims are.
func (w *world) shows(snapshot *world) bool {
	row := w.row
	row.Seq = snapshot.row.Seq
	return (&world{row, w.claims}).same(snapshot)
}

// same reports that two worlds are the same.
func (w *world) same(other *world) bool {
	return w == other || reflect.DeepEqual(&w.row, &other.row) && slices.EqualFunc(w.claims, other.claims, func(a, b claim.Claim) bool {
		return reflect.DeepEqual(&a, &b)
	})
}

func (w *world) find(acq driver.ID) *claim.Claim {
	for i := range w.claims {
		if w.claims[i].Acq == acq {
			return &w.claims[i]
		}
	}
	return nil
}

// hasTerm reports that an acquisition has a term.
func (w *world) hasTerm(g *grant) bool {
	if g.acq == (driver.ID{}) {
		return w.row.Version == g.token
	}
	if !g.shared && w.row.Acq == g.acq {
		return w.row.Version == g.token
	}
	c := w.find(g.acq)
	return c != nil && c.State == claim.Holding && c.Token == g.token && c.Slot == g.slot && (c.Kind == claim.Shared) == g.shared
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

// doubt is what is not known of the time of a visit.
type doubt struct {
	revived bool // Lockers whose beat may have come just then live
	guarded bool // what may be guarded, or is being renewed, is
}

// visit is what a Locker does to a world at a time. It returns nothing if do reports that it is not
// what happened.
func (s *searcher) visit(w *world, by driver.ID, now int64, d doubt, do func(*claim.Visit) bool) (to *world, done claim.Changes) {
	v := claim.NewVisit(w.row, w.claims)
	v.Now, v.By = now, by
	v.Alive = func(locker driver.ID) bool { return locker == by || s.alive(locker, now, d.revived) }
	v.Locked = func(driver.ID) bool { return !d.guarded }
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
	to.normalize()
	return to, done
}

// alive reports that the database has heard of a Locker in time. If the table was not seen at the
// right moment, it may have or not.
func (s *searcher) alive(locker driver.ID, now int64, maybe bool) bool {
	beats := s.h.beats[locker]
	i, _ := slices.BinarySearchFunc(beats, now, func(b beat, t int64) int { return cmp.Compare(b.at, t) })
	if i > 0 && beats[i-1].until > now {
		return true
	}
	return maybe && (i == len(beats) || beats[i].until > now)
}
