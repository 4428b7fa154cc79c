package sqllock

import (
	"context"
	"fmt"
	"time"

	"github.com/sqllock/sqllock/driver"
)

// seat is a session and whose turn it is to use it.
type seat struct {
	session driver.Session
	turn    chan struct{} // holds a token while nobody uses the session
	done    chan struct{} // closed when the seat is given up
	users   int           // grips on it, asked for or held; guarded by sessions.mu

	// base is the context of every statement on the session. To cancel it while one is
	// under way ends the session, and frees all that it holds.
	base   context.Context
	cancel context.CancelFunc
}

// room bounds how many sessions are open at a time, and how many of them wait in
// the database.
type room struct {
	seats  chan struct{}
	parked chan struct{}
}

func newRoom(seats int) *room {
	return &room{make(chan struct{}, seats), make(chan struct{}, max(1, seats/2))}
}

func (r *room) enter(ctx context.Context) error {
	select {
	case r.seats <- struct{}{}:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("%w: all %d sessions of the Locker are in use: %w", driver.ErrNoConnection, cap(r.seats), ctx.Err())
	}
}

func (r *room) leave() { <-r.seats }

// park reports whether one more session may wait in the database.
func (r *room) park() bool {
	select {
	case r.parked <- struct{}{}:
		return true
	default:
		return false
	}
}

func (r *room) unpark() { <-r.parked }

// on runs f when it is the caller's turn on a session. It returns when f has
// returned or when ctx ends; then f goes on. If ctx ends before f began, it calls
// never instead.
func (m *sessions) on(ctx context.Context, st *seat, f func(context.Context) error, never func()) error {
	select {
	case <-st.turn:
	case <-st.done:
		never()
		return errBusySession
	case <-ctx.Done():
		never()
		return fmt.Errorf("%w: %w", errBusySession, ctx.Err())
	}
	answer := make(chan error, 1)
	go func() { // whoever shuts the session takes the turn first
		defer func() { st.turn <- struct{}{} }()
		bounded, cancel := context.WithTimeout(st.base, m.ttl)
		defer cancel()
		answer <- f(bounded)
	}()
	select {
	case err := <-answer:
		return err
	case <-ctx.Done():
		return fmt.Errorf("%w: %w", errUnanswered, ctx.Err())
	}
}

// seatFor returns the session to ask for n more locks.
func (m *sessions) seatFor(ctx context.Context, n int) (*seat, error) {
	if m.room != nil {
		if err := m.room.enter(ctx); err != nil {
			return nil, err
		}
		st, err := m.open(ctx, n)
		if err != nil {
			m.room.leave()
		}
		return st, err
	}
	m.mu.Lock()
	if st := m.carrier; st != nil {
		st.users += n
		m.mu.Unlock()
		return st, nil
	}
	m.mu.Unlock()
	return m.openCarrier(ctx, n)
}

// openCarrier opens the one session, unless somebody else is quicker.
func (m *sessions) openCarrier(ctx context.Context, n int) (*seat, error) {
	select {
	case m.opening <- struct{}{}:
	case <-ctx.Done():
		return nil, fmt.Errorf("%w: %w", driver.ErrNoConnection, ctx.Err())
	}
	defer func() { <-m.opening }()
	m.mu.Lock()
	st := m.carrier
	if st != nil {
		st.users += n
	}
	m.mu.Unlock()
	if st != nil {
		return st, nil
	}
	st, err := m.open(ctx, n)
	if err == nil {
		m.mu.Lock()
		if _, ok := m.seats[st]; ok {
			m.carrier = st
		}
		m.mu.Unlock()
	}
	return st, err
}

// open opens a session for n locks and sees to it that its end is noticed.
func (m *sessions) open(ctx context.Context, n int) (*seat, error) {
	session, err := m.store.Session(ctx)
	if err != nil {
		return nil, err
	}
	st := &seat{session: session, turn: make(chan struct{}, 1), done: make(chan struct{}), users: n}
	st.base, st.cancel = context.WithCancel(context.Background())
	st.turn <- struct{}{}
	m.mu.Lock()
	if m.closed {
		m.mu.Unlock()
		st.cancel()
		_ = session.Close()
		return nil, ErrClosed
	}
	m.seats[st] = struct{}{}
	m.wg.Go(func() {
		select {
		case <-session.Gone():
			m.bury(st)
		case <-st.done:
		case <-m.base.Done():
		}
	})
	m.mu.Unlock()
	return st, nil
}

// bury tells of all that a session held which has ended.
func (m *sessions) bury(st *seat) {
	m.mu.Lock()
	if !m.drop(st) {
		m.mu.Unlock()
		return
	}
	acqs := make(map[driver.ID]struct{})
	for _, g := range m.grips {
		if g.seat == st {
			acqs[g.acq] = struct{}{}
			m.forgetLocked(g)
		}
	}
	lost := m.lost
	m.mu.Unlock()
	lost(acqs)
	<-st.turn // a statement that is under way fails now
	m.shut(st)
}

// shut closes a session that was dropped. Only then is there room for another: its
// connection is back. The caller has its turn, and keeps it.
func (m *sessions) shut(st *seat) {
	st.cancel()
	_ = st.session.Close()
	if m.room != nil {
		m.room.leave()
	}
}

// drop takes a session out of use, for the caller to shut it. It reports false if
// somebody else did. The caller holds mu.
func (m *sessions) drop(st *seat) bool {
	if _, ok := m.seats[st]; !ok {
		return false
	}
	delete(m.seats, st)
	close(st.done)
	if m.carrier == st {
		m.carrier = nil
	}
	return true
}

// leave notes that a session is used for n locks less, and closes it if it is
// there for one lock only. The caller has its turn or has not begun.
func (m *sessions) leave(st *seat, n int) {
	m.mu.Lock()
	st.users -= n
	over := m.room != nil && st.users == 0 && m.drop(st)
	m.mu.Unlock()
	if over {
		m.shut(st)
	}
}

// rest closes the one session while nothing is held.
func (m *sessions) CloseIdle() bool {
	m.mu.Lock()
	st := m.carrier
	if st == nil {
		m.mu.Unlock()
		return true
	}
	select {
	case <-st.turn:
	default:
		m.mu.Unlock()
		return false
	}
	over := st.users == 0 && m.drop(st)
	m.mu.Unlock()
	if over {
		m.shut(st)
	} else {
		st.turn <- struct{}{}
	}
	return over
}

// close gives back what holds nothing. A session that still holds a lock is left
// to the server, which ends it when it has been silent for the TTL: the holder may
// be running. A statement that is under way on it is not cancelled, because that would
// end the session now. An Unlock that comes later still frees its name.
func (m *sessions) Close() error {
	m.mu.Lock()
	m.closed = true
	holding := make(map[*seat]bool)
	for _, g := range m.grips {
		if g.seat != nil {
			holding[g.seat] = true
		}
	}
	var idle []*seat
	for st := range m.seats {
		if !holding[st] {
			idle = append(idle, st)
			m.drop(st)
		}
	}
	m.mu.Unlock()
	m.cancel()
	for _, st := range idle {
		st.cancel()
	}
	m.wg.Wait()
	for _, st := range idle {
		<-st.turn
		m.shut(st)
	}
	if len(holding) == 0 {
		return m.store.Close()
	}
	time.AfterFunc(m.ttl, func() {
		for st := range holding {
			m.expire(st)
		}
		_ = m.store.Close()
	})
	return nil
}

// expire closes a session whose locks have expired, unless that was done before.
func (m *sessions) expire(st *seat) {
	m.mu.Lock()
	over := m.drop(st)
	m.mu.Unlock()
	if over {
		<-st.turn // of an Unlock that comes late, if one does
		m.shut(st)
	}
}
