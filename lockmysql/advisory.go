package lockmysql

import (
	"context"
	"database/sql"
	"strconv"

	"github.com/sqllock/sqllock/driver"
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

// Look implements [driver.SessionStore].
func (s *advisoryStore) Look(ctx context.Context, names []string) ([]driver.Row, error) {
	return s.lookRows(ctx, names, s.readers)
}

// List implements [driver.SessionStore].
func (s *advisoryStore) List(ctx context.Context, req driver.ListRequest) (driver.Page, error) {
	return s.listRows(ctx, req, s.readers)
}

// readers tells how many sessions share names.
func (s *advisoryStore) readers(ctx context.Context, c session, names []string) ([]int, error) {
	b := newBatch(len(names))
	for _, name := range names {
		b.row(name, s.hash(name)).end()
	}
	n := make([]int, len(names))
	err := query(ctx, c, s.q.readers, []any{b.String()}, func(rows *sql.Rows) error {
		var i, readers int
		err := rows.Scan(&i, &readers)
		if err == nil {
			n[i] = readers
		}
		return err
	})
	return n, err
}

// Session implements [driver.SessionStore].
func (s *advisoryStore) Session(ctx context.Context) (driver.Session, error) {
	l, err := s.freshLine(ctx)
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

// ID implements [driver.Session].
func (a *advisorySession) ID() string { return strconv.FormatUint(a.line.pid, 10) }

// Gone implements [driver.Session].
func (a *advisorySession) Gone() <-chan struct{} { return a.line.gone }

// Grant implements [driver.Session]. It takes all locks in one statement, which also
// looks at the terms, and then draws the tokens. What cannot be drawn is let go.
func (a *advisorySession) Grant(ctx context.Context, reqs []driver.AcquireRequest) ([]driver.AcquireResult, error) {
	if err := a.s.base.checkValues(reqs); err != nil {
		return nil, err
	}
	g := &grabbing{a: a, reqs: reqs, res: make([]driver.AcquireResult, len(reqs)), terms: make([]term, len(reqs)), locks: make([]string, len(reqs))}
	if err := g.run(ctx); err != nil {
		g.undo(ctx)
		return nil, err
	}
	return g.res, nil
}

// Renew implements [driver.Session].
func (a *advisorySession) Renew(ctx context.Context, reqs []driver.RenewRequest) (driver.RenewResults, error) {
	res := driver.RenewResults{Status: make([]driver.RenewStatus, len(reqs))}
	var asked map[driver.ID]bool
	err := a.line.do(ctx, func(ctx context.Context, c session) (err error) {
		res.Now, asked, err = a.s.asked(ctx, c)
		return err
	})
	if err != nil {
		return res, err
	}
	for i := range reqs {
		switch acq := reqs[i].Acq; {
		case a.leases[acq] == nil:
			res.Status[i] = driver.Ended
		case asked[acq]:
			res.Status[i] = driver.Revoked
		default:
			res.Status[i] = driver.Renewed
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
		err := a.line.do(ctx, func(ctx context.Context, c session) error { return a.s.releaseTerms(ctx, c, over) })
		if err != nil {
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
		a.line.end()
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
	err := a.line.do(ctx, func(ctx context.Context, c session) error {
		return query(ctx, c, a.s.q.unlock, []any{nameBatch(locks).String()}, func(rows *sql.Rows) error {
			var i int
			var freed sql.NullInt64
			err := rows.Scan(&i, &freed)
			if err == nil {
				had[i] = freed.Int64 == 1
			}
			return err
		})
	})
	return had, err
}

// Close implements [driver.Session].
func (a *advisorySession) Close() error {
	return a.line.close(len(a.held) == 0, func(context.Context) error { return nil })
}
