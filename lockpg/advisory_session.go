package lockpg

import (
	"context"
	"database/sql"
	"fmt"
	"math/rand/v2"

	"github.com/sqllock/sqllock/driver"
	"github.com/sqllock/sqllock/internal/rowstore"
)

// advisorySession is a connection that has any number of locks, and one that is its
// own, by which others see that it lives.
type advisorySession struct {
	sessionConn
	store *advisoryStore
	key   int64 // of its own lock

	pid, started int64
	server       int64
	was          []setting
	lifted       bool // the sequence of tokens was

	locks map[driver.ID]*sessionLock
	keys  map[int64]int // how many locks have a key: the server knows of one
}

// sessionLock is one lock of a session.
type sessionLock struct {
	req     driver.AcquireRequest
	key     int64
	version int64
	since   int64
	noted   bool // the table of terms knows of it
	holds   int  // as it was written
}

// setting is what a setting of the session was before.
type setting struct {
	name, value string
	chosen      bool // by the session
}

// Session implements [driver.SessionStore].
func (s *advisoryStore) Session(ctx context.Context) (driver.Session, error) {
	a := &advisorySession{store: s, locks: make(map[driver.ID]*sessionLock), keys: make(map[int64]int)}
	c, err := s.take(ctx, func(c sessionConn) error { return a.prepare(ctx, c) })
	if err != nil {
		return nil, tooMany(err)
	}
	a.sessionConn = c
	return a, nil
}

// prepare changes the settings of a connection and takes the session's own lock, with a key that no
// other connection has: a former one, which had to be ended, may still have its lock.
func (s *advisorySession) prepare(ctx context.Context, c sessionConn) error {
	s.key = rand.Int64()
	set := silence(s.store.ttl)
	names := []string{
		"idle_session_timeout", milliseconds(s.store.ttl), "tcp_user_timeout", set.userTimeout, "tcp_keepalives_idle", set.idle,
		"tcp_keepalives_interval", set.interval, "tcp_keepalives_count", set.count, "client_connection_check_interval", set.check,
		"default_transaction_isolation", "read committed",
	}
	args := []any{
		array(len(names)/2, func(i int) string { return names[2*i] }),
		array(len(names)/2, func(i int) string { return names[2*i+1] }), s.key,
	}
	s.was = nil
	locked, writable := false, false
	err := c.query(ctx, s.store.texts["session"], args, func(rows *sql.Rows) error {
		var name, value sql.NullString
		var chosen sql.NullBool
		if err := rows.Scan(&locked, &s.pid, &s.started, &s.server, &writable, &name, &value, &chosen); err != nil {
			return err
		}
		s.was = append(s.was, setting{name.String, value.String, chosen.Bool})
		return nil
	})
	if err == nil && !locked {
		err = fmt.Errorf("%w: pg_try_advisory_lock does not lock here", driver.ErrUnsupported)
	}
	if err == nil {
		err = s.store.checkServer(ctx, s.server, writable)
	}
	return err
}

// restore puts the settings back, and lets go of the session's own lock. What was not
// chosen by the session before is not now: it goes on to follow the server's
// configuration.
func (s *advisorySession) restore(ctx context.Context) error {
	for _, was := range s.was {
		if was.chosen {
			if err := s.query(ctx, s.store.texts["restore"], []any{was.name, was.value}, ignore); err != nil {
				return err
			}
		} else if err := s.exec(ctx, "RESET "+was.name); err != nil { // one of those in prepare
			return err
		}
	}
	missing, err := s.letGo(ctx, []int64{s.key}, []bool{false})
	if err == nil && len(missing) > 0 {
		err = sql.ErrConnDone
	}
	return err
}

// ID implements [driver.Session].
func (s *advisorySession) ID() string { return fmt.Sprintf("%d of %d", s.key, s.pid) }

// Renew implements [driver.Session].
func (s *advisorySession) Renew(ctx context.Context, reqs []driver.RenewRequest) (driver.RenewResults, error) {
	asked, err := s.store.revocations(ctx, s.query, s.server)
	if err != nil {
		if !isAnswer(err) {
			s.End()
		}
		return driver.RenewResults{}, err
	}
	res := driver.RenewResults{Now: asked.Now, Status: make([]driver.RenewStatus, len(reqs))}
	for i := range reqs {
		res.Status[i] = driver.Ended
		if l := s.locks[reqs[i].Acq]; l != nil {
			res.Status[i] = asked.Status(&reqs[i])
		}
	}
	if err := s.note(ctx, reqs); err != nil && (s.Over() || !isAnswer(err)) {
		return driver.RenewResults{}, err
	}
	return res, nil
}

// Release implements [driver.Session].
func (s *advisorySession) Release(ctx context.Context, reqs []driver.ReleaseRequest) ([]bool, error) {
	var guarded []string
	var asked []driver.AcquireRequest
	for i := range reqs {
		if reqs[i].Guarded && s.locks[reqs[i].Acq] != nil {
			guarded, asked = append(guarded, reqs[i].Name), append(asked, driver.AcquireRequest{Name: reqs[i].Name})
		}
	}
	if len(guarded) > 0 {
		free, err := s.store.checkGuards(ctx, s.query, guarded)
		if err != nil {
			return nil, s.reconcile(ctx, asked, err)
		}
		if !free {
			return nil, rowstore.ErrLocked
		}
	}
	if err := s.forget(ctx, reqs); err != nil {
		return nil, err
	}
	return s.release(ctx, reqs)
}

// release lets go of locks, whose terms are over.
func (s *advisorySession) release(ctx context.Context, reqs []driver.ReleaseRequest) ([]bool, error) {
	res := make([]bool, len(reqs))
	var keys []int64
	var shared []bool
	for i := range reqs {
		l := s.locks[reqs[i].Acq]
		if l == nil {
			continue
		}
		res[i] = true
		delete(s.locks, reqs[i].Acq)
		if s.keys[l.key]--; s.keys[l.key] == 0 {
			delete(s.keys, l.key)
			keys, shared = append(keys, l.key), append(shared, l.req.Shared)
		}
	}
	missing, err := s.letGo(ctx, keys, shared)
	if err == nil && len(missing) > 0 {
		err = fmt.Errorf("sqllock: the server does not know of the advisory lock %d of the session, which is ended", keys[missing[0]-1])
	}
	if err != nil {
		s.End() // which lets go
		return nil, err
	}
	return res, nil
}

// letGo unlocks keys, and tells which of them, counted from 1, the session did not have.
func (s *advisorySession) letGo(ctx context.Context, keys []int64, shared []bool) (missing list, err error) {
	if len(keys) == 0 {
		return nil, nil
	}
	args := []any{
		integers(len(keys), func(i int) int64 { return keys[i] }),
		booleans(len(keys), func(i int) bool { return shared[i] }),
	}
	err = s.query(ctx, s.store.texts["unlock"], args, func(rows *sql.Rows) error { return rows.Scan(&missing) })
	return missing, err
}

// Close implements [driver.Session].
func (s *advisorySession) Close() error {
	ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
	defer cancel()
	if len(s.locks) > 0 || s.Over() || s.restore(ctx) != nil {
		s.End()
		return nil
	}
	return s.sessionConn.Close()
}
