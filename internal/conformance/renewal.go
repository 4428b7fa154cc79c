package conformance

import (
	"context"
	"database/sql"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sqllock/sqllock"
)

var manyPromises = []promise{
	{sentence: "a thousand leases need one statement per third of the TTL, one connection and no goroutine each", test: testThousand, needs: needLeases | needOneDatabase, quiet: true},
}

// testThousand asks what a database makes of many leases. That ten thousand cost no more
// is shown on the fake driver, by TestTenThousandLeasesCostOneStatementPerThirdOfTheTTL.
func testThousand(e *env) {
	const n = 1_000
	ttl := e.ttl(6 * time.Second)
	db, recorder := e.open(e.source(), poolSize)
	l := e.looseLocker(db, &Options{TTL: ttl})
	before := runtime.NumGoroutine()
	leases := e.lockMany(l, n)

	// What was granted at different times is renewed together after a while.
	time.Sleep(ttl / 3)
	e.eventually(timeLimit, "there is no more than a handful of goroutines", func() bool {
		return runtime.NumGoroutine() <= before+20 // connections have some too
	})
	const thirds = 2
	was, most := recorder.statements.Load(), 0
	for end := time.Now().Add(thirds * ttl / 3); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		most = max(most, db.Stats().InUse)
	}
	// A round may take more than one statement of SQL, where the database needs
	// it to be prepared, or some settings. It must not depend on n.
	if sent := recorder.statements.Load() - was; sent > 10*(thirds+1) {
		e.Errorf("%d statements in %d thirds of the TTL", sent, thirds)
	} else {
		e.Logf("%d statements in %d thirds of the TTL, %d connections", sent, thirds, most)
	}
	if most > 1 {
		e.Errorf("%d connections were in use", most)
	}
	for _, lease := range leases {
		e.live(lease)
	}
	e.leaveMany(db, l, leases)
}

func (e *env) lockMany(l *sqllock.Locker, n int) (leases []*sqllock.Lease) {
	e.Helper()
	prefix := e.name("")
	ctx, start := e.ctx(), time.Now()
	var next atomic.Int64
	var mu sync.Mutex
	var wg sync.WaitGroup
	for range poolSize {
		wg.Go(func() {
			for i := next.Add(1); i <= int64(n); i = next.Add(1) {
				lease, err := l.Lock(ctx, prefix+strconv.FormatInt(i, 10))
				if err != nil {
					e.Errorf("Lock: %v", err)
					return
				}
				mu.Lock()
				leases = append(leases, lease)
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	if e.Failed() {
		e.FailNow()
	}
	e.Logf("%d leases after %v", len(leases), time.Since(start))
	return leases
}

// leaveMany unlocks a few and leaves the rest to expire: it is not the Unlocks
// that are tested, and there are many.
func (e *env) leaveMany(db *sql.DB, l *sqllock.Locker, leases []*sqllock.Lease) {
	e.Helper()
	for _, lease := range leases[:len(leases)/100] {
		e.unlock(lease)
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Millisecond)
	defer cancel()
	if err := l.Close(ctx); err == nil {
		e.Error("Close returned nil though leases were held")
	}
	if n := db.Stats().InUse; n != 0 {
		e.Errorf("%d connections are in use after Close", n)
	}
}
