// Package tables holds the tables of unique mode in memory, and runs package claim on them as the
// drivers do, one request at a time. Package difftest compares it with each database; package
// schedule lets Lockers work on it.
package tables

import (
	"cmp"
	"encoding/hex"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/sqllock/sqllock/driver"
	"github.com/sqllock/sqllock/internal/claim"
)

// Tables are the tables of a database. They are not safe for concurrent use.
type Tables struct {
	Now   int64 // the clock, microseconds since the epoch
	Names map[string]*Name
	Beats map[driver.ID]int64 // until when each Locker counts as alive, as the table waiter says
	Last  claim.Changes       // what the last call has changed, unless it was Grant

	// Crashed are the terms that calls have ended because they had expired, until somebody
	// empties the list.
	Crashed []claim.Term
}

// Name is what the tables say of a name.
type Name struct {
	claim.Row
	Claims []claim.Claim
	Asked  int64 // the version of the last term whose holder was asked to end it
}

// New returns empty tables.
func New() *Tables {
	return &Tables{Names: make(map[string]*Name), Beats: make(map[driver.ID]int64)}
}

// Visit visits a name for a client, and keeps what it changes. It returns the changes.
func (m *Tables) Visit(client driver.Client, name string, do func(*claim.Visit)) claim.Changes {
	s := m.Names[name]
	if s == nil {
		s = new(Name)
		s.Expires = m.Now // the row was made for this visit
	}
	v := claim.NewVisit(s.Row, s.Claims)
	v.Now, v.By = m.Now, client.Instance
	v.Locked = func(driver.ID) bool { return true }
	v.Alive = func(locker driver.ID) bool { return locker == client.Instance || m.Beats[locker] > m.Now }
	do(v)
	done := v.Changes()
	m.Crashed = append(m.Crashed, done.Crashed...)
	if m.Last = done; !done.Changed {
		return done
	}
	m.Names[name] = s
	s.Row = done.Row
	s.Claims = slices.DeleteFunc(s.Claims, func(c claim.Claim) bool { return slices.Contains(done.Delete, c.Acq) })
	s.Claims = append(s.Claims, done.Insert...)
	return done
}

// Request is what a client asks for.
func Request(client driver.Client, r *driver.AcquireRequest, waits bool) claim.Request {
	q := claim.Request{
		Party:  claim.Party{Acq: r.Acq, Locker: client.Instance, Owner: r.Owner, Label: client.Label, Value: r.Value},
		Limits: claim.Limits{TTL: r.TTL.Microseconds(), Handed: r.TTL.Microseconds()},
		Floor:  r.Floor,
	}
	if waits {
		q.Waits, q.Handed, q.Carries = true, r.Handed.Microseconds(), r.Carries
	}
	switch {
	case r.Shared:
		q.Kind = claim.Shared
	case r.Permits != 0:
		q.Kind, q.Permits = claim.Permit, r.Permits
	}
	return q
}

// Grant grants a name by its row alone, if that is possible.
func (m *Tables) Grant(client driver.Client, r *driver.AcquireRequest) (driver.AcquireResult, bool) {
	s := m.Names[r.Name]
	if s == nil {
		s = new(Name)
	}
	q := Request(client, r, false)
	if r.Together() || !s.Grant(&q, m.Now) {
		return driver.AcquireResult{}, false
	}
	m.Names[r.Name] = s
	return driver.AcquireResult{Granted: true, Version: s.Version, Remaining: r.TTL, Now: m.Now}, true
}

// Acquire visits a name for a request.
func (m *Tables) Acquire(client driver.Client, r *driver.AcquireRequest, waits bool) (res driver.AcquireResult) {
	var a claim.Answer
	done := m.Visit(client, r.Name, func(v *claim.Visit) { a = v.Acquire(Request(client, r, waits)) })
	res.Now = m.Now
	if n := len(done.Crashed); n > 0 {
		t := &done.Crashed[n-1]
		res.Crashed = driver.Holder{Acq: t.Acq, Owner: t.Owner, Label: t.Label, Version: t.Token, Since: t.Since, Until: t.Expires,
			Shared: t.Kind != claim.Exclusive, Permit: t.Kind == claim.Permit}
	}
	switch a.Outcome {
	case claim.Granted:
		res.Granted, res.Found, res.Version, res.Slot = true, a.Found, a.Token, a.Slot
		res.Remaining = time.Duration(a.Expires-m.Now) * time.Microsecond
	case claim.Queued:
		if !a.First {
			res.Ahead = 1
		}
	case claim.Mismatch:
		res.Permits = a.Permits
	}
	return res
}

// AcquireAll acquires names, all of them or none.
func (m *Tables) AcquireAll(client driver.Client, reqs []driver.AcquireRequest) []driver.AcquireResult {
	before, crashed := m.clone(), len(m.Crashed)
	res := make([]driver.AcquireResult, len(reqs))
	all := true
	for i := range reqs {
		res[i] = m.Acquire(client, &reqs[i], false)
		all = all && res[i].Granted
	}
	if all {
		return res
	}
	m.Names, m.Crashed = before, m.Crashed[:crashed]
	for i := range res {
		res[i] = driver.AcquireResult{Now: m.Now, Refused: !res[i].Granted}
	}
	return res
}

// clone copies all names.
func (m *Tables) clone() map[string]*Name {
	c := make(map[string]*Name, len(m.Names))
	for name, s := range m.Names {
		c[name] = &Name{Row: s.Row, Claims: slices.Clone(s.Claims), Asked: s.Asked}
	}
	return c
}

// Free releases a lease, and returns to whom of the same client the name goes.
func (m *Tables) Free(client driver.Client, r *driver.ReleaseRequest) (res driver.ReleaseResult) {
	if s := m.Names[r.Name]; s != nil && !r.Shared && s.Free(r.Acq, r.Version, r.MinHold.Microseconds(), m.Now) {
		res.Freed, m.Last = true, claim.Changes{}
		return res
	}
	done := m.Visit(client, r.Name, func(v *claim.Visit) {
		res.Freed, _ = v.Release(r.Acq, r.Version, r.MinHold.Microseconds(), r.Guarded)
		res.HandedOver = v.HandedOver()
	})
	for _, t := range done.HandOvers {
		res.Next = append(res.Next, driver.HandOver{Acq: t.Acq, Version: t.Token, Slot: t.Slot, Now: m.Now,
			Remaining: time.Duration(t.Expires-m.Now) * time.Microsecond})
	}
	return res
}

// Renew renews a lease.
func (m *Tables) Renew(r *driver.RenewRequest) driver.RenewStatus {
	s := m.Names[r.Name]
	if s == nil {
		return driver.Gone
	}
	renewed := false
	if r.Shared {
		i := slices.IndexFunc(s.Claims, func(c claim.Claim) bool { return c.Acq == r.Acq })
		renewed = i >= 0 && s.Claims[i].Renew(r.Version, r.TTL.Microseconds(), r.Holds, m.Now)
	} else {
		renewed = s.Row.Renew(r.Acq, r.Version, r.TTL.Microseconds(), r.Holds, m.Now)
	}
	switch {
	case renewed:
		return driver.Renewed
	case s.Revoked == r.Version, r.Shared && s.Revoked > r.Version:
		return driver.Revoked
	}
	return driver.Gone
}

// Sweep sweeps all names. It returns how many rows it has deleted, and whose terms it has
// ended.
func (m *Tables) Sweep(client driver.Client, retention time.Duration) (purged int, crashed []driver.ID) {
	gone := func(locker driver.ID) bool { return m.Beats[locker] <= m.Now-time.Minute.Microseconds() }
	var idle []string
	for _, name := range slices.Sorted(maps.Keys(m.Names)) {
		s := m.Names[name]
		expired := s.Acq != driver.ID{} && s.Expires <= m.Now
		for i := range s.Claims {
			c := &s.Claims[i]
			expired = expired || c.State == claim.Holding && c.Expires <= m.Now || c.State == claim.Waiting && gone(c.Locker)
		}
		before := m.Now - retention.Microseconds()
		if s.Acq == (driver.ID{}) && s.Waiting == 0 && s.Holding == 0 && s.NotBefore <= m.Now && s.Expires < before && s.Version < before {
			idle = append(idle, name)
		}
		if expired {
			done := m.Visit(client, name, func(v *claim.Visit) { v.Sweep(gone) })
			for _, t := range done.Crashed {
				crashed = append(crashed, t.Acq)
			}
		}
	}
	for _, name := range idle {
		delete(m.Names, name)
	}
	return len(idle), crashed
}

// Dump is what a table should say, in the order and the columns of the queries.
func (m *Tables) Dump(table string) (all []string) {
	for _, name := range slices.Sorted(maps.Keys(m.Names)) {
		s := m.Names[name]
		if table == "lock" {
			r := &s.Row
			all = append(all, line(name, r.Version, id(r.Acq), r.Owner, r.Label, id(r.Locker), hex.EncodeToString(r.Value), r.Holds, r.Since,
				r.Expires, r.Limit, r.Delay, r.NotBefore, r.Permits, r.Waiting, r.Holding, r.Seq, int(r.Ended), r.Revoked, s.Asked))
			continue
		}
		slices.SortFunc(s.Claims, func(a, b claim.Claim) int {
			return cmp.Or(cmp.Compare(a.State, b.State), cmp.Compare(a.Seq, b.Seq))
		})
		for i := range s.Claims {
			c := &s.Claims[i]
			carries := ""
			for _, acq := range c.Carries {
				carries += acq.String()
			}
			all = append(all, line(name, int(c.State), c.Seq, id(c.Acq), id(c.Locker), c.Owner, c.Label, hex.EncodeToString(c.Value), carries,
				int(c.Kind), c.Slot, c.Token, c.Holds, c.TTL, c.Handed, c.MaxHold, c.Since, c.Expires, c.Limit, c.Delay))
		}
	}
	return all
}

func id(id driver.ID) string {
	if id == (driver.ID{}) {
		return ""
	}
	return id.String()
}

func line(columns ...any) string {
	texts := make([]string, len(columns))
	for i, c := range columns {
		texts[i] = fmt.Sprint(c)
	}
	return strings.Join(texts, " | ")
}
