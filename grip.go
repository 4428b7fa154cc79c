package sqllock

import "github.com/sqllock/sqllock/driver"

// grip is one lock of a session, asked for or held.
type grip struct {
	name    string
	key     string
	acq     driver.ID
	shared  bool
	owner   string
	since   int64
	version int64
	seat    *seat // nil until it is held

	unwanted bool // nobody waits for it any more
}

// use is who has the lock of one key, within this process: the server lets a
// session take a lock of its own again.
type use struct {
	grips  int
	shared bool
	name   string // of the first
	first  *grip  // until it lets go
}

// reserve makes a grip for a request that has to be sent. Otherwise it returns no
// grip but the answer.
func (m *sessions) reserve(req *driver.GrantRequest) (*grip, driver.GrantResult, error) {
	key := m.store.Key(req.Name)
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return nil, driver.GrantResult{}, ErrClosed
	}
	if g := m.grips[req.Acq]; g != nil {
		if g.seat == nil {
			return nil, driver.GrantResult{}, errAsking
		}
		return nil, driver.GrantResult{Granted: true, Found: true, Version: g.version, Remaining: m.ttl}, nil
	}
	u := m.uses[key]
	if u != nil && !(u.shared && req.Shared) {
		return nil, driver.GrantResult{Holder: m.holder(u, req.Name)}, nil
	}
	if limit := m.store.Info().MaxLocks; limit > 0 && len(m.grips) >= limit {
		return nil, driver.GrantResult{}, tooMany(len(m.grips))
	}
	g := &grip{name: req.Name, key: key, acq: req.Acq, shared: req.Shared, owner: req.Owner}
	if u == nil {
		u = &use{shared: req.Shared, name: g.name, first: g}
		m.uses[key] = u
	}
	u.grips++
	m.grips[g.acq] = g
	return g, driver.GrantResult{}, nil
}

// holder tells a loser who in this process holds a name. It is nobody if it is
// another name of the same key. The caller holds mu.
func (m *sessions) holder(u *use, name string) driver.Holder {
	switch {
	case u.name != name:
		return driver.Holder{}
	case u.first == nil || u.first.seat == nil:
		return driver.Holder{Shared: u.shared}
	}
	return driver.Holder{Acq: u.first.acq, Owner: u.first.owner, Label: m.label, Version: u.first.version,
		Since: u.first.since, Shared: u.shared}
}

// forget gives up a grip that the session does not hold. It reports false if that
// was done before.
func (m *sessions) forget(g *grip) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.forgetLocked(g)
}

// forgetLocked is forget; the caller holds mu.
func (m *sessions) forgetLocked(g *grip) bool {
	if m.grips[g.acq] != g {
		return false
	}
	delete(m.grips, g.acq)
	u := m.uses[g.key]
	if u.first == g {
		u.first = nil
	}
	if u.grips--; u.grips == 0 {
		delete(m.uses, g.key)
	}
	return true
}

// settle notes that the session holds the lock. It reports whether it does, or is
// over, and whether anybody wants the lock.
func (m *sessions) settle(st *seat, g *grip, res *driver.GrantResult) (held, wanted bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if _, ok := m.seats[st]; !ok {
		return false, false
	}
	g.version = res.Version
	g.seat = st
	if res.Now > 0 {
		g.since = res.Now
	}
	return true, !g.unwanted && !m.closed // nobody is told of a grant after Close
}

// knows reports that nobody has let go of a grip.
func (m *sessions) knows(g *grip) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.grips[g.acq] == g
}

// held returns the grip of an acquisition that is held, and its session.
func (m *sessions) held(acq driver.ID) (*grip, *seat) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if g := m.grips[acq]; g != nil && g.seat != nil {
		return g, g.seat
	}
	return nil, nil
}

// unwant is held for an acquisition that is to hold nothing in the end. One that is
// asked for now has no session yet, and is given back when the answer comes.
func (m *sessions) unwant(acq driver.ID) (*grip, *seat) {
	m.mu.Lock()
	defer m.mu.Unlock()
	g := m.grips[acq]
	if g == nil {
		return nil, nil
	}
	g.unwanted = true
	return g, g.seat
}
