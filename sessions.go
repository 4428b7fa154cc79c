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

	base   context.Context // ends when the mode is closed
	cancel context.CancelFunc
	wg     sync.WaitGroup // those who watch sessions

	mu      sync.Mutex
	grips   map[driver.ID]*grip
	uses    map[string]*use // by Key
	seats   map[*seat]struct{}
	carrier *seat         // holds all locks, if one session does
	opening chan struct{} // has a token in it while the carrier is opened
	lost    func(map[driver.ID]struct{})
	closed  bool
}

var (
	_ backend      = (*sessions)(nil)
	_ sessionLocks = (*sessions)(nil)
)

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

func (m *sessions) Classify(err error) driver.Fault {
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

func (m *sessions) OnEnd(lost func(map[driver.ID]struct{})) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.lost = lost
}

func (m *sessions) Grant(ctx context.Context, reqs []driver.GrantRequest) ([]driver.GrantResult, error) {
	w := &wanted{m: m, reqs: reqs, res: make([]driver.GrantResult, len(reqs))}
	if err := w.reserve(); err != nil {
		return nil, err
	}
	if len(w.grips) == 0 {
		return w.res, nil
	}
	st, err := m.seatFor(ctx, len(w.grips))
	if err != nil {
		w.forget()
		return nil, err
	}
	leave := w.park()
	err = m.on(ctx, st, func(ctx context.Context) error {
		defer leave()
		return w.ask(ctx, st)
	}, func() { // not even begun
		leave()
		w.forget()
		m.leave(st, len(w.grips))
	})
	if err != nil {
		return nil, err // the results may still be written to
	}
	return w.res, nil
}

func (m *sessions) Release(ctx context.Context, reqs []driver.ReleaseRequest) ([]driver.ReleaseResult, error) {
	res := make([]driver.ReleaseResult, len(reqs))
	which := make(map[*seat][]int)
	grips := make([]*grip, len(reqs))
	for i := range reqs {
		g, st := m.held(reqs[i].Acq)
		if g != nil && g.version == reqs[i].Version {
			which[st], grips[i] = append(which[st], i), g
		}
	}
	for st, at := range which {
		freed := make([]bool, len(at))
		err := m.on(ctx, st, func(ctx context.Context) (err error) {
			freed, err = m.letGo(ctx, st, reqs, grips, at)
			return err
		}, func() {})
		if err != nil {
			return nil, err
		}
		for k, i := range at {
			res[i].Freed = freed[k]
		}
	}
	return res, nil
}

// letGo gives locks of one session back; the caller has the turn of the session. If
// the session cannot do it, it is closed, which does it too.
func (m *sessions) letGo(ctx context.Context, st *seat, reqs []driver.ReleaseRequest, grips []*grip, at []int) ([]bool, error) {
	freed := make([]bool, len(at))
	var asked []driver.ReleaseRequest
	var still []int // the indexes in at of what is asked for
	for k, i := range at {
		g := grips[i]
		if !m.knows(g) {
			// An earlier request has let go of it. The session may have the lock again by
			// now, for somebody else.
			freed[k] = true
			continue
		}
		r := reqs[i]
		r.Name, r.Acq, r.Version, r.Shared = g.name, g.acq, g.version, g.shared
		asked, still = append(asked, r), append(still, k)
	}
	if len(asked) == 0 {
		return freed, nil
	}
	done, err := st.session.Release(ctx, asked)
	if err != nil {
		return nil, err
	}
	n := 0
	for j, k := range still {
		freed[k] = done[j]
		if m.forget(grips[at[k]]) {
			n++
		}
	}
	m.leave(st, n)
	return freed, nil
}

// letGo1 is letGo for one lock.
func (m *sessions) letGo1(ctx context.Context, st *seat, g *grip, req driver.ReleaseRequest) error {
	_, err := m.letGo(ctx, st, []driver.ReleaseRequest{req}, []*grip{g}, []int{0})
	return err
}

func (m *sessions) Abandon(ctx context.Context, reqs []driver.AbandonRequest) error {
	var errs error
	for _, r := range reqs {
		g, st := m.unwant(r.Acq)
		switch {
		case g == nil:
			continue
		case st == nil: // it is given back when the answer comes, if that works
			errs = errors.Join(errs, errAsking)
			continue
		}
		errs = errors.Join(errs, m.on(ctx, st, func(ctx context.Context) error {
			return m.letGo1(ctx, st, g, driver.ReleaseRequest{MinHold: r.MinHold, Guarded: r.Guarded, Lost: r.Lost})
		}, func() {}))
	}
	return errs
}

// Holds reports whether the lock is still held, as far as this process knows.
func (m *sessions) Holds(acq driver.ID) bool {
	g, _ := m.held(acq)
	return g != nil
}

func (m *sessions) Guard(ctx context.Context, f driver.GuardFunc, req driver.GuardRequest) (driver.GuardStatus, error) {
	g, st := m.held(req.Acq)
	if g == nil {
		return driver.Fenced, nil
	}
	req.Session = st.session.ID()
	return f(ctx, m.store, req)
}

func (m *sessions) Begin(ctx context.Context, opts *sql.TxOptions) (*sql.Tx, error) {
	return m.store.Begin(ctx, opts)
}

func (m *sessions) Look(ctx context.Context, names []string) ([]driver.Row, error) {
	return m.store.Look(ctx, names)
}

func (m *sessions) List(ctx context.Context, req driver.ListRequest) (driver.Page, error) {
	return m.store.List(ctx, req)
}

func (m *sessions) Revoke(ctx context.Context, names []string) ([]driver.RevokeResult, error) {
	return m.store.Revoke(ctx, names)
}

// resume asks the holder to let go: who has a session's lock next the server decides.
func (m *sessions) Resume(ctx context.Context, req driver.ResumeRequest) (driver.GrantResult, error) {
	_, err := m.store.Revoke(ctx, []string{req.Name})
	return driver.GrantResult{}, err
}

func (m *sessions) Proclaim(ctx context.Context, req driver.ProclaimRequest) (bool, error) {
	return m.store.Proclaim(ctx, req)
}

func (m *sessions) Sweep(ctx context.Context, req driver.SweepRequest) (driver.SweepResult, error) {
	return m.store.Sweep(ctx, req)
}

func (m *sessions) SweepDue(ctx context.Context, every time.Duration) (bool, error) {
	return m.store.Turn(ctx, every)
}

// tooMany is the error of a request beyond what the server's table of locks should
// take from one client.
func tooMany(n int) error {
	return fmt.Errorf("%w: this Locker holds %d, and the server has to have room for others", driver.ErrTooManyLocks, n)
}
