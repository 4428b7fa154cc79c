package conformance

import (
	"context"
	"database/sql"
	"slices"
	"sync"
	"time"

	"github.com/sqllock/sqllock"
)

const (
	// starving is a pace at which the renewals of the shortest leases may come too late.
	starving = 50 * time.Millisecond
	// fewest is how many promises are tested at a time however slow the machine is.
	fewest = 3
)

// together has an element for each promise that is tested now, of all pairs.
var together = make(chan struct{}, 16)

// pacer finds out how slow the machine is with a pair, so that TTLs leave it enough time, and holds
// promises back while so many are tested that they starve each other.
type pacer struct {
	e      *env
	db     *sql.DB
	locker *sqllock.Locker

	mu sync.Mutex // one is admitted at a time, so that the next one sees what it costs
}

func newPacer(e *env) *pacer {
	db, _ := e.open(e.source(), poolSize)
	p := &pacer{e: e, db: db, locker: e.lockerOn(db, &Options{TTL: long, StatementTimeout: long / 3})}
	e.unlock(e.lock(p.locker, e.name("k"))) // what is done once is done
	return p
}

// close ends what the pacer has opened, which otherwise lives until the test ends.
func (p *pacer) close() {
	if err := p.locker.Close(p.e.ctx()); err != nil {
		p.e.Errorf("Close: %v", err)
	}
	_ = p.db.Close()
}

// measure returns the median of what many Locks with their Unlocks take: one that a machine let
// wait says nothing of the others.
func (p *pacer) measure() time.Duration {
	took := p.cycles(21)
	pace := took[len(took)/2]
	p.e.Logf("Lock and Unlock take %v here, from %v to %v", pace, took[0], took[len(took)-1])
	return pace
}

// cycles returns what so many Locks with their Unlocks take each, the shortest first. One that
// fails counts as a second.
func (p *pacer) cycles(n int) []time.Duration {
	took := make([]time.Duration, n)
	for i := range took {
		start := time.Now()
		if err := p.cycle(); err != nil {
			took[i] = time.Second
			continue
		}
		took[i] = time.Since(start)
	}
	slices.Sort(took)
	return took
}

func (p *pacer) cycle() error {
	ctx, cancel := context.WithTimeout(context.Background(), timeLimit)
	defer cancel()
	lease, err := p.locker.Lock(ctx, p.e.name("k"))
	if err != nil {
		return err
	}
	return lease.Unlock(ctx)
}

// admit waits until the machine is quick enough for one more promise, or few are tested. It returns
// the pace. The test of the promise ends with leave.
func (p *pacer) admit() time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	for {
		together <- struct{}{}
		if pace := p.cycles(3)[1]; pace <= starving || len(together) <= fewest {
			return pace
		}
		p.leave()
		time.Sleep(500 * time.Millisecond)
	}
}

func (p *pacer) leave() { <-together }
