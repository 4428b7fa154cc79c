package lockmysql

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strconv"

	"github.com/sqllock/sqllock/driver"
	"github.com/sqllock/sqllock/internal/rowstore"
	"github.com/sqllock/sqllock/internal/termstore"
)

// OpenAdvisory implements [driver.AdvisoryDatabase]. The TTL must be two seconds or
// more; the server counts it in whole ones, so that it keeps the names of a host that
// has vanished for up to a second longer if it is not. At most 32 sessions share a
// name at a time, others wait. Locks in transactions ([driver.TxStore]) return
// ErrUnsupported.
func (d *Database) OpenAdvisory(ctx context.Context, client driver.Client, opts driver.SessionOptions) (driver.SessionStore, error) {
	s, err := d.openSessions(ctx, client, opts, modeAdvisory)
	if err != nil {
		return nil, err
	}
	var database driver.ID
	if err := database.UnmarshalText([]byte(s.base.database)); err != nil {
		return nil, errors.Join(fmt.Errorf("%w: the id of the database: %w", driver.ErrSchema, err), s.Close())
	}
	if s.hash = d.hash; s.hash == nil {
		s.hash = func(name string) [16]byte { return hashName(database, name) }
	}
	s.Readers = true
	s.Keys = func(names []string) rowstore.Column {
		keys := make([]driver.ID, len(names))
		for i, name := range names {
			keys[i] = s.hash(name)
		}
		return keys
	}
	return &advisoryStore{s}, nil
}

// advisoryStore is advisory mode: a lock is one of GET_LOCK, see slots.
type advisoryStore struct{ *sessions }

var (
	_ driver.SessionStore = (*advisoryStore)(nil)
	_ driver.Session      = (*advisorySession)(nil)
)

// Key implements [driver.SessionStore].
func (s *advisoryStore) Key(name string) string { return keyText(s.hash(name)) }

// Session implements [driver.SessionStore].
func (s *advisoryStore) Session(ctx context.Context) (driver.Session, error) {
	l, err := s.openLine(ctx)
	if err != nil {
		return nil, err
	}
	return &advisorySession{s: s, line: l, held: make(map[string]*grasp), leases: make(map[driver.ID]*advisoryLease)}, nil
}

// advisorySession has any number of locks.
type advisorySession struct {
	s      *advisoryStore
	line   *line
	held   map[string]*grasp // by key
	leases map[driver.ID]*advisoryLease
}

// grasp is a lock that the session has. Those who share it within the session have
// one slot.
type grasp struct {
	lock   string // for GET_LOCK: the key, or a slot of it
	shared bool
	leases int
}

type advisoryLease struct {
	key string
	res driver.AcquireResult
}

// run runs statements on the session.
func (a *advisorySession) run() runner { return runner{a.s.sessions, a.line.do} }

// ID implements [driver.Session].
func (a *advisorySession) ID() string { return strconv.FormatInt(a.line.pid, 10) }

// Gone implements [driver.Session].
func (a *advisorySession) Gone() <-chan struct{} { return a.line.Gone() }

// Grant implements [driver.Session]. It takes all locks in one statement, which also
// looks at the terms, and then draws the tokens. What cannot be drawn is let go.
func (a *advisorySession) Grant(ctx context.Context, reqs []driver.AcquireRequest) ([]driver.AcquireResult, error) {
	if err := a.s.base.checkValues(reqs); err != nil {
		return nil, err
	}
	g := &grabbing{a: a, reqs: reqs, res: make([]driver.AcquireResult, len(reqs)), terms: make([]termstore.Term, len(reqs)), locks: make([]string, len(reqs))}
	if err := g.run(ctx); err != nil {
		g.undo(ctx)
		return nil, err
	}
	return g.res, nil
}

// Renew implements [driver.Session].
func (a *advisorySession) Renew(ctx context.Context, reqs []driver.RenewRequest) (driver.RenewResults, error) {
	res := driver.RenewResults{Status: make([]driver.RenewStatus, len(reqs))}
	asked, err := a.s.Revocations(ctx, a.run())
	if err != nil {
		return res, err
	}
	res.Now = asked.Now
	for i := range reqs {
		res.Status[i] = driver.Ended
		if a.leases[reqs[i].Acq] != nil {
			res.Status[i] = asked.Status(&reqs[i])
		}
	}
	return res, nil
}

// Release implements [driver.Session]. The terms end before the locks: so whoever has
// a lock and finds a term knows that its holder has not released it.
func (a *advisorySession) Release(ctx context.Context, reqs []driver.ReleaseRequest) ([]bool, error) {
	freed := make([]bool, len(reqs))
	var over []driver.ReleaseRequest
	for i := range reqs {
		if a.leases[reqs[i].Acq] != nil && !reqs[i].Shared && !reqs[i].Lost {
			over = append(over, reqs[i])
		}
	}
	if over != nil {
		if err := a.s.EndTerms(ctx, a.run(), over); err != nil {
			return nil, err
		}
	}
	var locks []string
	var which []int
	for i := range reqs {
		lease := a.leases[reqs[i].Acq]
		if lease == nil {
			continue
		}
		delete(a.leases, reqs[i].Acq)
		freed[i] = true
		g := a.held[lease.key]
		if g.leases--; g.leases == 0 {
			delete(a.held, lease.key)
			locks = append(locks, g.lock)
			which = append(which, i)
		}
	}
	had, err := a.unlock(ctx, locks)
	if err != nil { // what the session holds is not known any more
		a.line.End()
		return nil, err
	}
	for k, i := range which {
		freed[i] = had[k]
	}
	return freed, nil
}

// unlock gives locks back and reports which of them the session had.
func (a *advisorySession) unlock(ctx context.Context, locks []string) ([]bool, error) {
	had := make([]bool, len(locks))
	if len(locks) == 0 {
		return had, nil
	}
	unlock := termstore.Statement{Name: "unlock", Batch: []rowstore.Column{locks}}
	return had, a.run().Read(ctx, unlock, func(scan rowstore.Scanner) error {
		var i int
		var freed sql.NullInt64
		err := scan(&i, &freed)
		if err == nil {
			had[i] = freed.Int64 == 1
		}
		return err
	})
}

// Close implements [driver.Session].
func (a *advisorySession) Close() error {
	return a.line.close(len(a.held) == 0, func(context.Context) error { return nil })
}
