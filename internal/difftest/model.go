package difftest

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

// model is what the tables should say.
type model struct {
	now   int64
	names map[string]*state
	beats map[driver.ID]int64 // as the table waiter says
}

// state is a name.
type state struct {
	claim.Row
	claims    []claim.Claim
	requested int64
}

func newModel() *model {
	return &model{names: make(map[string]*state), beats: make(map[driver.ID]int64)}
}

// visit visits a name for a client, and keeps what it changes. It returns the changes.
func (m *model) visit(client driver.Client, name string, do func(*claim.Visit)) claim.Changes {
	s := m.names[name]
	if s == nil {
		s = new(state)
	}
	v := claim.NewVisit(s.Row, s.claims)
	v.Now, v.By = m.now, client.Instance
	v.Locked = func(driver.ID) bool { return true }
	v.Alive = func(locker driver.ID) bool { return locker == client.Instance || m.beats[locker] > m.now }
	do(v)
	done := v.Changes()
	if !done.Changed {
		return done
	}
	m.names[name] = s
	s.Row = done.Row
	s.claims = slices.DeleteFunc(s.claims, func(c claim.Claim) bool { return slices.Contains(done.Delete, c.Acq) })
	s.claims = append(s.claims, done.Insert...)
	return done
}

// request is what a client asks for.
func request(client driver.Client, r *driver.AcquireRequest, waits bool) claim.Request {
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

// grant grants a name by its row alone, if that is possible.
func (m *model) grant(client driver.Client, r *driver.AcquireRequest) (driver.AcquireResult, bool) {
	s := m.names[r.Name]
	if s == nil {
		s = new(state)
	}
	q := request(client, r, false)
	if r.Together() || !s.Grant(&q, m.now) {
		return driver.AcquireResult{}, false
	}
	m.names[r.Name] = s
	return driver.AcquireResult{Granted: true, Version: s.Version, Remaining: r.TTL, Now: m.now}, true
}

// acquire visits a name for a request.
func (m *model) acquire(client driver.Client, r *driver.AcquireRequest, waits bool) (res driver.AcquireResult) {
	var a claim.Answer
	done := m.visit(client, r.Name, func(v *claim.Visit) { a = v.Acquire(request(client, r, waits)) })
	res.Now = m.now
	if n := len(done.Crashed); n > 0 {
		t := &done.Crashed[n-1]
		res.Crashed = driver.Holder{Acq: t.Acq, Owner: t.Owner, Label: t.Label, Version: t.Token, Since: t.Since, Until: t.Expires,
			Shared: t.Kind != claim.Exclusive, Permit: t.Kind == claim.Permit}
	}
	switch a.Outcome {
	case claim.Granted:
		res.Granted, res.Found, res.Version, res.Slot = true, a.Found, a.Token, a.Slot
		res.Remaining = time.Duration(a.Expires-m.now) * time.Microsecond
	case claim.Queued:
		if !a.First {
			res.Ahead = 1
		}
	case claim.Mismatch:
		res.Permits = a.Permits
	}
	return res
}

// acquireAll acquires names, all of them or none.
func (m *model) acquireAll(client driver.Client, reqs []driver.AcquireRequest) []driver.AcquireResult {
	before := m.clone()
	res := make([]driver.AcquireResult, len(reqs))
	all := true
	for i := range reqs {
		res[i] = m.acquire(client, &reqs[i], false)
		all = all && res[i].Granted
	}
	if all {
		return res
	}
	m.names = before
	for i := range res {
		res[i] = driver.AcquireResult{Now: m.now, Refused: !res[i].Granted}
	}
	return res
}

// clone copies all names.
func (m *model) clone() map[string]*state {
	c := make(map[string]*state, len(m.names))
	for name, s := range m.names {
		c[name] = &state{Row: s.Row, claims: slices.Clone(s.claims), requested: s.requested}
	}
	return c
}

// free releases a lease, and returns to whom of the same client the name goes.
func (m *model) free(client driver.Client, r *driver.ReleaseRequest) (res driver.ReleaseResult) {
	if s := m.names[r.Name]; s != nil && !r.Shared && s.Free(r.Acq, r.Version, r.MinHold.Microseconds(), m.now) {
		res.Freed = true
		return res
	}
	done := m.visit(client, r.Name, func(v *claim.Visit) {
		res.Freed, _ = v.Release(r.Acq, r.Version, r.MinHold.Microseconds(), r.Guarded)
		res.HandedOver = v.HandedOver()
	})
	for _, t := range done.HandOvers {
		res.Next = append(res.Next, driver.HandOver{Acq: t.Acq, Version: t.Token, Slot: t.Slot, Now: m.now,
			Remaining: time.Duration(t.Expires-m.now) * time.Microsecond})
	}
	return res
}

// renew renews a lease.
func (m *model) renew(r *driver.RenewRequest) driver.RenewStatus {
	s := m.names[r.Name]
	if s == nil {
		return driver.Gone
	}
	renewed := false
	if r.Shared {
		i := slices.IndexFunc(s.claims, func(c claim.Claim) bool { return c.Acq == r.Acq })
		renewed = i >= 0 && s.claims[i].Renew(r.Version, r.TTL.Microseconds(), r.Holds, m.now)
	} else {
		renewed = s.Row.Renew(r.Acq, r.Version, r.TTL.Microseconds(), r.Holds, m.now)
	}
	switch {
	case renewed:
		return driver.Renewed
	case s.Revoked == r.Version, r.Shared && s.Revoked > r.Version:
		return driver.Revoked
	}
	return driver.Gone
}

// sweep sweeps all names. It returns how many rows it has deleted, and whose terms it has
// ended.
func (m *model) sweep(client driver.Client, retention time.Duration) (purged int, crashed []driver.ID) {
	gone := func(locker driver.ID) bool { return m.beats[locker] <= m.now-time.Minute.Microseconds() }
	var idle []string
	for _, name := range slices.Sorted(maps.Keys(m.names)) {
		s := m.names[name]
		expired := s.Acq != driver.ID{} && s.Expires <= m.now
		for i := range s.claims {
			c := &s.claims[i]
			expired = expired || c.State == claim.Holding && c.Expires <= m.now || c.State == claim.Waiting && gone(c.Locker)
		}
		before := m.now - retention.Microseconds()
		if s.Acq == (driver.ID{}) && s.Waiting == 0 && s.Holding == 0 && s.NotBefore <= m.now && s.Expires < before && s.Version < before {
			idle = append(idle, name)
		}
		if expired {
			done := m.visit(client, name, func(v *claim.Visit) { v.Sweep(gone) })
			for _, t := range done.Crashed {
				crashed = append(crashed, t.Acq)
			}
		}
	}
	for _, name := range idle {
		delete(m.names, name)
	}
	return len(idle), crashed
}

// dump is what a table should say, in the order and the columns of the queries.
func (m *model) dump(table string) (all []string) {
	for _, name := range slices.Sorted(maps.Keys(m.names)) {
		s := m.names[name]
		if table == "lock" {
			r := &s.Row
			all = append(all, line(name, r.Version, id(r.Acq), r.Owner, r.Label, id(r.Locker), hex.EncodeToString(r.Value), r.Holds, r.Since,
				r.Expires, r.Limit, r.Delay, r.NotBefore, r.Permits, r.Waiting, r.Holding, r.Seq, int(r.Ended), r.Revoked, s.requested))
			continue
		}
		slices.SortFunc(s.claims, func(a, b claim.Claim) int {
			return cmp.Or(cmp.Compare(a.State, b.State), cmp.Compare(a.Seq, b.Seq))
		})
		for i := range s.claims {
			c := &s.claims[i]
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
