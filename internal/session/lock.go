package session

import (
	"fmt"

	"github.com/sqllock/sqllock/driver"
)

// sessionLock is one lock of a session, requested or held.
type sessionLock struct {
	name   string
	key    string
	acq    driver.ID
	shared bool
	owner  string
	since  int64
	token  int64
	conn   *sessionConn // nil until the lock is held

	abandoned bool // nobody waits for it any more
}

// keyLocks counts the locks that this process has of one key. The Backend excludes them
// from each other, because the server grants a session its own lock again.
type keyLocks struct {
	count  int
	shared bool
	name   string       // of the first
	first  *sessionLock // nil when it was released
}

// reserve makes the sessionLock for a request that has to be sent. It returns nil and the
// result if the request need not be sent.
func (b *Backend) reserve(req *driver.AcquireRequest) (*sessionLock, driver.AcquireResult, error) {
	key := b.store.Key(req.Name)
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return nil, driver.AcquireResult{}, b.opts.ErrClosed
	}
	if l := b.locks[req.Acq]; l != nil {
		if l.conn == nil {
			return nil, driver.AcquireResult{}, errRequesting
		}
		return nil, driver.AcquireResult{Granted: true, Found: true, Version: l.token, Remaining: b.opts.TTL}, nil
	}
	k := b.keys[key]
	if k != nil && !(k.shared && req.Shared) {
		return nil, driver.AcquireResult{Holder: b.holder(k, req.Name)}, nil
	}
	if limit := b.store.Info().MaxLocks; limit > 0 && len(b.locks) >= limit {
		return nil, driver.AcquireResult{}, tooMany(len(b.locks))
	}
	l := &sessionLock{name: req.Name, key: key, acq: req.Acq, shared: req.Shared, owner: req.Owner}
	if k == nil {
		k = &keyLocks{shared: req.Shared, name: l.name, first: l}
		b.keys[key] = k
	}
	k.count++
	b.locks[l.acq] = l
	return l, driver.AcquireResult{}, nil
}

// tooMany is the error for a request that would take more of the server's table of locks
// than one client should.
func tooMany(n int) error {
	return fmt.Errorf("%w: this Locker holds %d, and the server has to have room for others", driver.ErrTooManyLocks, n)
}

// holder returns who in this process holds a name. It is nobody if the key belongs to
// another name. The caller holds mu.
func (b *Backend) holder(k *keyLocks, name string) driver.Holder {
	switch {
	case k.name != name:
		return driver.Holder{}
	case k.first == nil || k.first.conn == nil:
		return driver.Holder{Shared: k.shared}
	}
	return driver.Holder{Acq: k.first.acq, Owner: k.first.owner, Label: b.opts.Label, Version: k.first.token,
		Since: k.first.since, Shared: k.shared}
}

// forget removes a lock that the session does not hold. It reports false if that was done
// before.
func (b *Backend) forget(l *sessionLock) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.forgetLocked(l)
}

// forgetLocked is forget; the caller holds mu.
func (b *Backend) forgetLocked(l *sessionLock) bool {
	if b.locks[l.acq] != l {
		return false
	}
	delete(b.locks, l.acq)
	k := b.keys[l.key]
	if k.first == l {
		k.first = nil
	}
	if k.count--; k.count == 0 {
		delete(b.keys, l.key)
	}
	return true
}

// setHeld notes that the session holds a lock. held is false if the session has ended,
// needed is false if nobody wants the lock any more.
func (b *Backend) setHeld(c *sessionConn, l *sessionLock, res *driver.AcquireResult) (held, needed bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if _, ok := b.conns[c]; !ok {
		return false, false
	}
	l.token = res.Version
	l.conn = c
	if res.Now > 0 {
		l.since = res.Now
	}
	return true, !l.abandoned && !b.closed // nobody is told of a grant after Close
}

// has reports that a lock was neither released nor lost.
func (b *Backend) has(l *sessionLock) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.locks[l.acq] == l
}

// held returns the lock of an acquisition and its session, or nil if it is not held.
func (b *Backend) held(acq driver.ID) (*sessionLock, *sessionConn) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if l := b.locks[acq]; l != nil && l.conn != nil {
		return l, l.conn
	}
	return nil, nil
}

// abandon notes that nobody wants the lock of an acquisition. It returns the lock, if there
// is one, and its session. A lock that is being requested has no session yet: it is
// released when the reply comes.
func (b *Backend) abandon(acq driver.ID) (*sessionLock, *sessionConn) {
	b.mu.Lock()
	defer b.mu.Unlock()
	l := b.locks[acq]
	if l == nil {
		return nil, nil
	}
	l.abandoned = true
	return l, l.conn
}
