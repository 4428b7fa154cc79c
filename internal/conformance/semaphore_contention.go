package conformance

import (
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sqllock/sqllock"
)

// permitCallers have callers acquire permits for a while, and checks what they see of each other.
type permitCallers struct {
	e       *env
	most    atomic.Int64 // how many permits may be held at the same time
	holding atomic.Int64
	granted atomic.Int64

	mu   sync.Mutex
	last map[int]int64 // the last token of each slot
}

// callersOfPermits is how many there are, and how many permits they are granted at least.
const callersOfPermits = 12

// work acquires permits until the time is over, and longer if few were granted.
func (c *permitCallers) work(s *sqllock.Semaphore, until time.Time) {
	for time.Now().Before(until) || c.granted.Load() < callersOfPermits {
		lease, err := s.Acquire(c.e.ctx())
		if errors.Is(err, sqllock.ErrPermits) { // another Semaphore was resized
			continue
		}
		if err != nil {
			c.e.Errorf("Acquire: %v", err)
			return
		}
		if n, most := c.holding.Add(1), c.most.Load(); n > most {
			c.e.Errorf("%d hold permits, of %d", n, most)
		}
		c.mu.Lock()
		if lease.Token() <= c.last[lease.Slot()] {
			c.e.Errorf("token %d of slot %d follows token %d", lease.Token(), lease.Slot(), c.last[lease.Slot()])
		}
		c.last[lease.Slot()] = lease.Token()
		c.mu.Unlock()
		c.granted.Add(1)
		time.Sleep(time.Millisecond)
		c.holding.Add(-1)
		if err := lease.Unlock(c.e.ctx()); err != nil {
			c.e.Errorf("Unlock: %v", err)
			return
		}
	}
}

// contendForPermits has callers of several Lockers acquire permits for a second.
func (e *env) contendForPermits(permits int, beside func(sems []*sqllock.Semaphore, c *permitCallers)) {
	e.Helper()
	c := &permitCallers{e: e, last: make(map[int]int64)}
	c.most.Store(int64(permits))
	name := e.name("k")
	var sems []*sqllock.Semaphore
	for range 3 {
		sems = append(sems, e.semaphore(e.locker(&Options{TTL: long, RetryMax: 20 * time.Millisecond}), name, permits))
	}
	until := time.Now().Add(time.Second)
	var wg sync.WaitGroup
	for i := range callersOfPermits {
		wg.Go(func() { c.work(sems[i%len(sems)], until) })
	}
	beside(sems, c)
	wg.Wait()
	e.gone(e.locker(&Options{TTL: long}), name) // a request that came late may have been granted
}

func testPermitContention(e *env) {
	e.contendForPermits(3, func([]*sqllock.Semaphore, *permitCallers) {})
}

func testOnePermit(e *env) {
	e.contendForPermits(1, func([]*sqllock.Semaphore, *permitCallers) {})
}

// testResizeContention changes the number of permits while callers come and go. More may be held
// than there are now only if there were more.
func testResizeContention(e *env) {
	e.contendForPermits(4, func(sems []*sqllock.Semaphore, c *permitCallers) {
		for i := range 20 {
			n := 1 + i%4
			for _, s := range sems {
				if err := s.Resize(e.ctx(), n); err != nil {
					e.Errorf("Resize: %v", err)
				}
			}
			time.Sleep(20 * time.Millisecond)
		}
	})
}
