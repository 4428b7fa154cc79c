package sqllock_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/sqllock/sqllock/driver"
)

// fakeSessions is a database that keeps locks in sessions, under testing/synctest.
type fakeSessions struct {
	mu        sync.Mutex
	locks     map[string]map[*fakeSession]int // by key: how often a session holds it
	exclusive map[string]bool
	version   int64
	sessions  map[*fakeSession]struct{}
	opened    int
	most      int // sessions open at a time
	maxLocks  int
	keys      func(name string) string

	// slow is how long statements take, by kind; a statement that outlives its
	// context ends its session.
	slow map[string]time.Duration
	// frozen are the sessions, in the order in which they were opened, that answer nothing.
	frozen map[int]bool
	// failing are the errors of statements, by kind.
	failing map[string]error
	// revoked are acquisitions that somebody wants back.
	revoked map[driver.ID]bool
	// seen are the acquisitions that were granted.
	seen map[driver.ID]struct{}
	// rows are what is written of names.
	rows      map[string]driver.Row
	requested map[string][]int64 // the terms that were to be ended
	// dropped are the names that were released because their lease was lost.
	dropped map[string]bool
	// waits makes grants that may wait do so, for as long as they may. waiting is how many
	// do.
	waits                bool
	waiting, mostWaiting int
}

type fakeSession struct {
	f     *fakeSessions
	id    int
	gone  chan struct{}
	over  bool
	known bool // gone is closed
	busy  int  // calls under way
}

var (
	_ driver.SessionStore = (*fakeSessions)(nil)
	_ driver.Session      = (*fakeSession)(nil)

	errBroken = errors.New("fake: the connection is broken")
)

func newFakeSessions() *fakeSessions {
	return &fakeSessions{
		locks: make(map[string]map[*fakeSession]int), exclusive: make(map[string]bool),
		sessions: make(map[*fakeSession]struct{}), keys: func(name string) string { return name },
		slow: make(map[string]time.Duration), frozen: make(map[int]bool), failing: make(map[string]error), revoked: make(map[driver.ID]bool),
		seen: make(map[driver.ID]struct{}), requested: make(map[string][]int64), dropped: make(map[string]bool),
	}
}

func (f *fakeSessions) set(change func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change()
}

func (f *fakeSessions) Session(context.Context) (driver.Session, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.failing["session"]; err != nil {
		return nil, err
	}
	f.opened++
	s := &fakeSession{f: f, id: f.opened, gone: make(chan struct{})}
	f.sessions[s] = struct{}{}
	f.most = max(f.most, len(f.sessions))
	return s, nil
}

// kill ends all sessions, as the server may.
func (f *fakeSessions) kill() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for s := range f.sessions {
		s.end()
	}
}

// held is how many locks are held.
func (f *fakeSessions) held() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.locks)
}

func (f *fakeSessions) open() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.sessions)
}

// end lets go of everything, and says so; the caller holds mu.
func (s *fakeSession) end() {
	if !s.over {
		s.letGo()
	}
	if !s.known {
		s.known = true
		close(s.gone)
	}
}

// killUnnoticed ends all sessions, as the server may, so that the next statement finds out.
func (f *fakeSessions) killUnnoticed() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for s := range f.sessions {
		s.letGo()
	}
}

// letGo lets go of everything; the caller holds mu.
func (s *fakeSession) letGo() {
	s.over = true
	delete(s.f.sessions, s)
	for key, holders := range s.f.locks {
		if delete(holders, s); len(holders) == 0 {
			delete(s.f.locks, key)
			delete(s.f.exclusive, key)
		}
	}
}

// call is one statement.
func (s *fakeSession) call(ctx context.Context, kind string, run func() error) error {
	s.f.mu.Lock()
	pause, err := s.f.slow[kind], s.f.failing[kind]
	if s.f.frozen[s.id] {
		pause = time.Hour
	}
	if s.busy++; s.busy > 1 {
		panic("bug: two calls at a time on one session")
	}
	s.f.mu.Unlock()
	defer s.f.set(func() { s.busy-- })
	if pause > 0 {
		select {
		case <-time.After(pause):
		case <-s.gone:
			return errBroken
		case <-ctx.Done():
			s.f.set(s.end)
			return fmt.Errorf("%w: %w", errBroken, ctx.Err())
		}
	}
	if err != nil {
		return err
	}
	s.f.mu.Lock()
	defer s.f.mu.Unlock()
	if s.over {
		s.end() // if it had ended unnoticed
		return errBroken
	}
	return run()
}

func (s *fakeSession) Grant(ctx context.Context, reqs []driver.AcquireRequest) (res []driver.AcquireResult, err error) {
	err = s.call(ctx, "grant", func() error {
		s.wait(reqs[0].Wait)
		for _, r := range reqs {
			res = append(res, s.grant(r))
		}
		return nil
	})
	return res, err
}

// wait waits in the database; the caller holds mu.
func (s *fakeSession) wait(wait time.Duration) {
	if !s.f.waits || wait == 0 {
		return
	}
	s.f.waiting++
	s.f.mostWaiting = max(s.f.mostWaiting, s.f.waiting)
	s.f.mu.Unlock()
	time.Sleep(wait)
	s.f.mu.Lock()
	s.f.waiting--
}

func (s *fakeSession) grant(r driver.AcquireRequest) driver.AcquireResult {
	key, now := s.f.keys(r.Name), time.Now().UnixMicro()
	holders := s.f.locks[key]
	mine := holders[s] > 0
	if mine && (s.f.exclusive[key] || !r.Shared) {
		panic("bug: a session asks for a key that it holds")
	}
	if len(holders) > 0 && (s.f.exclusive[key] || !r.Shared) {
		return driver.AcquireResult{Now: now}
	}
	if holders == nil {
		holders = make(map[*fakeSession]int)
		s.f.locks[key] = holders
	}
	holders[s]++
	s.f.seen[r.Acq] = struct{}{}
	s.f.exclusive[key] = !r.Shared
	s.f.version++
	return driver.AcquireResult{Granted: true, Version: s.f.version, Remaining: ttl, Now: now}
}

func (s *fakeSession) Renew(ctx context.Context, reqs []driver.RenewRequest) (res driver.RenewResults, err error) {
	err = s.call(ctx, "renew", func() error {
		res.Now = time.Now().UnixMicro()
		for _, r := range reqs {
			status := driver.Renewed
			if s.f.revoked[r.Acq] {
				status = driver.Revoked
			}
			res.Status = append(res.Status, status)
		}
		return nil
	})
	return res, err
}

func (s *fakeSession) Release(ctx context.Context, reqs []driver.ReleaseRequest) (res []bool, err error) {
	err = s.call(ctx, "release", func() error {
		for _, r := range reqs {
			key := s.f.keys(r.Name)
			holders := s.f.locks[key]
			s.f.dropped[r.Name] = r.Lost
			res = append(res, holders[s] > 0)
			if holders[s]--; holders[s] <= 0 {
				delete(holders, s)
			}
			if len(holders) == 0 {
				delete(s.f.locks, key)
				delete(s.f.exclusive, key)
			}
		}
		return nil
	})
	return res, err
}

func (s *fakeSession) ID() string            { return fmt.Sprint(s.id) }
func (s *fakeSession) Gone() <-chan struct{} { return s.gone }

func (s *fakeSession) Close() error {
	s.f.mu.Lock()
	defer s.f.mu.Unlock()
	s.end()
	return nil
}

func (f *fakeSessions) Key(name string) string { return f.keys(name) }
func (f *fakeSessions) Info() driver.Info      { return driver.Info{MaxLocks: f.maxLocks} }
func (f *fakeSessions) Close() error           { return nil }

func (f *fakeSessions) Classify(err error) driver.Fault {
	if errors.Is(err, errDeadlock) {
		return driver.Again
	}
	return driver.Unclear
}

// What the tests of this kind do not use.

func (f *fakeSessions) List(context.Context, driver.ListRequest) (driver.Page, error) {
	return driver.Page{}, nil
}

func (f *fakeSessions) Sweep(context.Context, driver.SweepRequest) (driver.SweepResult, error) {
	return driver.SweepResult{}, nil
}

func (f *fakeSessions) SweepDue(context.Context, time.Duration) (bool, error) { return false, nil }

func (f *fakeSessions) SweepPause(context.Context, time.Duration) error { return nil }

func (f *fakeSessions) Guard(context.Context, *sql.Tx, driver.GuardRequest) (driver.GuardStatus, error) {
	return driver.Fenced, nil
}

func (f *fakeSessions) Begin(context.Context, *sql.TxOptions) (*sql.Tx, error) { return nil, errDenied }

func (f *fakeSessions) PrepareTx(context.Context, driver.TxRequest) error { return nil }

func (f *fakeSessions) TryTx(context.Context, *sql.Tx, driver.TxRequest) (driver.TxStatus, error) {
	return driver.TxHeld, nil
}

func (f *fakeSessions) Draw(context.Context, driver.AcquireRequest) (driver.AcquireResult, error) {
	return driver.AcquireResult{}, nil
}
