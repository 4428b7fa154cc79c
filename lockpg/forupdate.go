package lockpg

import (
	"context"
	"database/sql"
	"errors"
	"strconv"
	"time"

	"github.com/sqllock/sqllock/driver"
)

// OpenForUpdate implements [driver.ForUpdateDatabase].
func (d *Database) OpenForUpdate(ctx context.Context, client driver.Client, opts driver.SessionOptions) (driver.SessionStore, error) {
	s, err := d.openSessions(ctx, client, opts, modeForUpdate)
	if err != nil {
		return nil, err
	}
	return &forUpdateStore{sessions: s}, nil
}

// forUpdateStore is the mode for update: a lock is a row that an open transaction has
// locked.
type forUpdateStore struct{ *sessions }

var _ driver.SessionStore = (*forUpdateStore)(nil)

// Key implements [driver.SessionStore].
func (s *forUpdateStore) Key(name string) string { return name }

// Session implements [driver.SessionStore].
func (s *forUpdateStore) Session(ctx context.Context) (driver.Session, error) {
	c, err := s.take(ctx, func(c sessionConn) error {
		err := c.exec(ctx, queryBegin)
		if state, _ := stateOf(err); state == "0A000" { // a standby does not begin to write
			err = errors.Join(errNotPrimary, errors.New(err.Error()))
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	return &forUpdateSession{sessionConn: c, store: s, begun: true}, nil
}

// forUpdateSession is a transaction that has one lock.
type forUpdateSession struct {
	sessionConn
	store *forUpdateStore
	begun bool
	held  *driver.AcquireRequest

	version int64
	holds   int // as it was written

	pid, started int64
	server       int64
}

// ID implements [driver.Session]. Guards are on the row of the term.
func (s *forUpdateSession) ID() string { return strconv.FormatInt(s.pid, 10) }

// maxPins is how often a pin is made that is not there when it is to be locked.
const maxPins = 3

// longestWait is how long a statement waits in the database at most: the server waits
// for it in turn when it builds an index concurrently.
const longestWait = time.Second

// Grant implements [driver.Session]. It is one request: a session has one lock.
func (s *forUpdateSession) Grant(ctx context.Context, reqs []driver.AcquireRequest) ([]driver.AcquireResult, error) {
	switch {
	case len(reqs) != 1 || s.held != nil && s.held.Acq != reqs[0].Acq:
		panic("bug: a session of the mode for update has one lock")
	case s.held != nil:
		return []driver.AcquireResult{{Granted: true, Found: true, Version: s.version, Remaining: s.store.ttl}}, nil
	}
	res, err := s.grant(ctx, &reqs[0])
	if err != nil {
		return nil, err
	}
	return []driver.AcquireResult{res}, nil
}

func (s *forUpdateSession) grant(ctx context.Context, req *driver.AcquireRequest) (driver.AcquireResult, error) {
	locked, res, err := s.lock(ctx, req)
	if err != nil {
		if !isAnswer(err) {
			s.End()
		}
		if !isLockTimeout(err) {
			return res, s.undo(ctx, err)
		}
		if err := s.undo(ctx, nil); err != nil {
			return res, err
		}
		return s.loser(ctx, req)
	}
	if !locked {
		return res, s.undo(ctx, nil)
	}
	res, err = s.store.draw(ctx, &drawing{req: req, named: !req.Shared, pid: s.pid, started: s.started, run: s.store.queryKeptAt(s.server)})
	if err == nil && !res.Granted {
		return res, s.undo(ctx, nil)
	}
	// If the session lives now, it had the lock while the token was drawn. Else somebody
	// else may have got it meanwhile, with a lower token.
	if err == nil {
		err = s.exec(ctx, queryRest)
	}
	if err != nil { // it may have been drawn: the term is over when the session is
		s.End()
		return driver.AcquireResult{}, err
	}
	held := *req
	s.held, s.version, s.holds = &held, res.Version, 1
	return res, nil
}

// lock locks the pin of a name, which it makes if there is none. It tells who has it
// if somebody has.
func (s *forUpdateSession) lock(ctx context.Context, req *driver.AcquireRequest) (locked bool, res driver.AcquireResult, err error) {
	if !s.begun {
		if err := s.exec(ctx, queryBegin); err != nil {
			return false, res, err
		}
		s.begun = true
	}
	args := s.pinArgs(ctx, req)
	for range maxPins { // it may be deleted before it is locked
		var known, writable bool
		err = s.query(ctx, s.store.texts["pin"], args, func(rows *sql.Rows) error {
			var h nullHolder
			if err := rows.Scan(h.into(&locked, &known, &s.pid, &s.started, &s.server, &writable, &res.Now)...); err != nil {
				return err
			}
			var err error
			res.Holder, err = h.holder()
			return err
		})
		if err == nil {
			err = s.store.checkServer(ctx, s.server, writable)
		}
		if err != nil || locked || known {
			break
		}
		if err = s.store.newPin(ctx, req.Name); err != nil {
			break
		}
	}
	return locked, res, err
}

// pinArgs are the parameters of the statement that locks the pin.
func (s *forUpdateSession) pinArgs(ctx context.Context, req *driver.AcquireRequest) []any {
	wait := min(req.Wait, longestWait)
	if end, ok := ctx.Deadline(); ok && wait > 0 { // a context that ends during the statement ends the session
		wait = max(0, min(wait, time.Until(end)/2))
	}
	set := silence(s.store.ttl)
	return []any{req.Name, milliseconds(max(wait, time.Millisecond)), milliseconds(s.store.ttl), set.userTimeout, set.idle, set.interval,
		set.count, set.check, req.Shared, wait >= time.Millisecond}
}

// loser tells who holds a name that somebody else has kept until the time to wait for
// it was over.
func (s *forUpdateSession) loser(ctx context.Context, req *driver.AcquireRequest) (res driver.AcquireResult, err error) {
	terms, err := s.store.Terms(ctx, s.store.on(s.query), req.Name)
	if err == nil {
		res = driver.AcquireResult{Now: terms[0].Now, Holder: terms[0].Known()}
	}
	return res, err
}

// undo ends the transaction, and returns err if it can.
func (s *forUpdateSession) undo(ctx context.Context, err error) error {
	s.held = nil
	if s.begun && !s.Over() {
		if end := s.exec(ctx, queryRollback); end != nil {
			s.End()
			if err == nil {
				err = end
			}
		}
	}
	s.begun = false
	return err
}

// isLockTimeout reports that a statement has waited for as long as it may, or as long
// as the role may.
func isLockTimeout(err error) bool {
	state, _ := stateOf(err)
	return state == "55P03" || state == "57014"
}

// Close implements [driver.Session].
func (s *forUpdateSession) Close() error {
	if s.held != nil || s.Over() {
		s.held = nil
		s.End()
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
	defer cancel()
	if s.undo(ctx, nil) != nil {
		return nil // it has ended
	}
	return s.sessionConn.Close()
}

// closeTimeout bounds how long a session may take to be given back.
const closeTimeout = time.Second
