package sqllock

import (
	"context"
	"sync"
	"time"
)

// deadlines lends contexts that end at a time, or a little before it. Calls that come soon
// after each other share one: to make a context for each costs them more than to wait for
// their reply.
type deadlines struct {
	mu   sync.Mutex
	last *sharedDeadline
}

// sharedDeadline is a context that calls share.
type sharedDeadline struct {
	context.Context
	base   context.Context
	cancel context.CancelFunc
	until  time.Time
	users  int // and one while it is the last; guarded by deadlines.mu
}

// borrow returns a context that ends with base, or at most early before until. The caller
// calls giveBack when it is done with it.
func (d *deadlines) borrow(base context.Context, until time.Time, early time.Duration) (s *sharedDeadline) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if s = d.last; s != nil && s.base == base && !s.until.After(until) && until.Sub(s.until) <= early {
		s.users++
		return s
	}
	if s != nil {
		s.leave()
	}
	s = &sharedDeadline{base: base, until: until, users: 2}
	s.Context, s.cancel = context.WithDeadline(base, until)
	d.last = s
	return s
}

// giveBack ends the use of a context by one call.
func (d *deadlines) giveBack(s *sharedDeadline) {
	d.mu.Lock()
	defer d.mu.Unlock()
	s.leave()
}

// leave ends one use; the caller holds mu.
func (s *sharedDeadline) leave() {
	if s.users--; s.users == 0 {
		s.cancel()
	}
}
