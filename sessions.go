package sqllock

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/sqllock/sqllock/driver"
)

// sessions is the mode of locks that are kept by sessions of the database: one
// session for each lock (for update), or one for all (advisory). A session that
// ends takes its locks with it, and the mode tells so.
//
// A statement on a session is never cut short by its caller, who may go while it
// is under way: to end it would be to end the session, and all that it holds.
type sessions struct {
	store driver.SessionStore
	label string
	ttl   time.Duration
	room  *room // nil if one session holds all locks

	base   context.Context // of every statement on a session
	cancel context.CancelFunc
	wg     sync.WaitGroup

	mu      sync.Mutex
	grips   map[driver.ID]*grip
	uses    map[string]*use // by Key
	seats   map[*seat]struct{}
	carrier *seat         // holds all locks, if one session does
	opening chan struct{} // has a token in it while the carrier is opened
	lost    func(map[driver.ID]struct{})
	closed  bool
}

var _ mode = (*sessions)(nil)

func newSessions(store driver.SessionStore, cfg *config, r *room) *sessions {
	m := &sessions{
		store: store, label: cfg.label, ttl: cfg.ttl, room: r,
		grips: make(map[driver.ID]*grip),
		uses:  make(map[string]*use),
		seats: make(map[*seat]struct{}),
		lost:  func(map[driver.ID]struct{}) {},

		opening: make(chan struct{}, 1),
	}
	m.base, m.cancel = context.WithCancel(context.Background())
	return m
}

var (
	// errUnanswered says that a statement on a session was still under way when the
	// time for it was over.
	errUnanswered = errors.New("sqllock: the database has not answered")
	// errBusySession says that the session was in use by others for too long.
	errBusySession = errors.New("sqllock: the session is in use")
	// errAsking says that an earlier request of the acquisition is under way.
	errAsking = errors.New("sqllock: an earlier request is under way")
)

func (m *sessions) classify(err error) driver.Fault {
	switch {
	case errors.Is(err, errUnanswered):
		return driver.Unclear
	case errors.Is(err, errBusySession), errors.Is(err, errAsking):
		return driver.Again
	case errors.Is(err, driver.ErrTooManyLocks):
		return driver.Refused
	}
	return m.store.Classify(err)
}

func (m *sessions) watch(lost func(map[driver.ID]struct{})) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.lost = lost
}

func (m *sessions) grant(ctx context.Context, reqs []driver.GrantRequest) ([]driver.GrantResult, error) {
	res := make([]driver.GrantResult, len(reqs))
	for i := range reqs {
		var err error
		if res[i], err = m.ask(ctx, &reqs[i]); err != nil {
			return nil, err
		}
	}
	return res, nil
}

// ask sends one request, unless this process knows the answer.
func (m *sessions) ask(ctx context.Context, req *driver.GrantRequest) (driver.GrantResult, error) {
	g, res, err := m.reserve(req)
	if g == nil {
		return res, err
	}
	st, err := m.seatFor(ctx)
	if err != nil {
		m.forget(g)
		return driver.GrantResult{}, err
	}
	asked, parks := *req, false
	if m.room != nil && req.Wait > 0 {
		parks = m.room.park()
	}
	if !parks {
		asked.Wait = 0
	}
	leave := func() {
		if parks {
			m.room.unpark()
		}
	}
	err = m.on(ctx, st, func(ctx context.Context) (err error) {
		defer leave()
		res, err = m.granted(ctx, st, g, &asked)
		return err
	}, func() { // not even begun
		leave()
		m.forget(g)
		m.leave(st)
	})
	if err != nil {
		return driver.GrantResult{}, err // res may still be written to
	}
	return res, nil
}

// granted asks the session; the caller has its turn.
func (m *sessions) granted(ctx context.Context, st *seat, g *grip, req *driver.GrantRequest) (driver.GrantResult, error) {
	all, err := st.session.Grant(ctx, []driver.GrantRequest{*req})
	if err != nil || !all[0].Granted {
		m.forget(g)
		m.leave(st)
		if err != nil {
			return driver.GrantResult{}, err
		}
		return all[0], nil
	}
	held, wanted := m.settle(st, g, &all[0])
	if !held {
		m.forget(g)
		return driver.GrantResult{}, errUnanswered
	}
	if !wanted { // who gave it up asks again if this fails
		_, _ = m.release1(ctx, st, g, driver.ReleaseRequest{})
	}
	return all[0], nil
}

func (m *sessions) release(ctx context.Context, reqs []driver.ReleaseRequest) ([]bool, error) {
	res := make([]bool, len(reqs))
	for i := range reqs {
		g, st := m.held(reqs[i].Acq)
		if g == nil || g.version != reqs[i].Version {
			continue
		}
		freed := false
		err := m.on(ctx, st, func(ctx context.Context) (err error) {
			freed, err = m.release1(ctx, st, g, reqs[i])
			return err
		}, func() {})
		if err != nil {
			return nil, err
		}
		res[i] = freed
	}
	return res, nil
}

// release1 gives one lock back; the caller has the turn of its session. If the
// session cannot do it, it is closed, which does it too.
func (m *sessions) release1(ctx context.Context, st *seat, g *grip, req driver.ReleaseRequest) (freed bool, err error) {
	req.Name, req.Acq, req.Version, req.Shared = g.name, g.acq, g.version, g.shared
	res, err := st.session.Release(ctx, []driver.ReleaseRequest{req})
	if err != nil {
		return false, err
	}
	m.forget(g)
	m.leave(st)
	return res[0], nil
}

func (m *sessions) abandon(ctx context.Context, reqs []driver.AbandonRequest) error {
	var errs error
	for _, r := range reqs {
		g, st := m.unwant(r.Acq)
		if g == nil {
			continue
		}
		errs = errors.Join(errs, m.on(ctx, st, func(ctx context.Context) error {
			_, err := m.release1(ctx, st, g, driver.ReleaseRequest{Guarded: r.Guarded, Lost: r.Lost})
			return err
		}, func() {}))
	}
	return errs
}

// lives reports whether the lock is still held, as far as this process knows.
func (m *sessions) lives(acq driver.ID) bool {
	g, _ := m.held(acq)
	return g != nil
}

func (m *sessions) guard(ctx context.Context, f driver.GuardFunc, req driver.GuardRequest) (driver.GuardStatus, error) {
	g, st := m.held(req.Acq)
	if g == nil {
		return driver.Fenced, nil
	}
	req.Session = st.session.ID()
	return f(ctx, m.store, req)
}

func (m *sessions) begin(ctx context.Context, opts *sql.TxOptions) (*sql.Tx, error) {
	return m.store.Begin(ctx, opts)
}

func (m *sessions) txs() driver.TxStore { return m.store }

func (m *sessions) look(ctx context.Context, names []string) ([]driver.Row, error) {
	return m.store.Look(ctx, names)
}

func (m *sessions) list(ctx context.Context, req driver.ListRequest) (driver.Page, error) {
	return m.store.List(ctx, req)
}

func (m *sessions) revoke(ctx context.Context, names []string) ([]driver.RevokeResult, error) {
	return m.store.Revoke(ctx, names)
}

func (m *sessions) sweep(ctx context.Context, req driver.SweepRequest) (driver.SweepResult, error) {
	return m.store.Sweep(ctx, req)
}

func (m *sessions) turn(ctx context.Context, every time.Duration) (bool, error) {
	return m.store.Turn(ctx, every)
}

// tooMany is the error of a request beyond what the server's table of locks should
// take from one client.
func tooMany(n int) error {
	return fmt.Errorf("%w: this Locker holds %d, and the server has to have room for others", driver.ErrTooManyLocks, n)
}
