package lockmysql_test

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sqllock/sqllock/driver"
	"github.com/sqllock/sqllock/internal/queuetest"
	"github.com/sqllock/sqllock/lockmysql"
)

func TestAWaiterInTheDatabaseGetsTheLockWhenItIsFree(t *testing.T) {
	for _, wait := range []time.Duration{800 * time.Millisecond, time.Second} {
		eachServer(t, func(t *testing.T, f *fixture) {
			a, b := forUpdate.client(t, f), forUpdate.client(t, f)
			r, next := request("k"), request("k")
			next.Wait = wait
			s, res := a.lock(t, r)
			queuetest.Within(t, 2500*time.Millisecond, func() {
				began := time.Now()
				if got := b.wantDenied(t, next); got.Holder.Acq != r.Acq {
					t.Errorf("told %+v", got)
				}
				if took := time.Since(began); took < wait-50*time.Millisecond {
					t.Errorf("waited %v for %v", took, wait)
				}
			})
			unlock(t, s, r, res)
			var s2 driver.Session
			var res2 driver.AcquireResult
			// If the machine is so slow that the wait is over before the lock is released, it gets
			// nothing.
			queuetest.Within(t, wait, func() {
				r := request("k")
				s, res := a.lock(t, r)
				released := make(chan struct{})
				go func() {
					defer close(released)
					time.Sleep(wait / 4)
					unlock(t, s, r, res)
				}()
				s2, res2 = b.ask(t, next)
				<-released
				if !res2.Granted {
					return
				}
				if res2.Version <= res.Version || res2.Crashed != (driver.Holder{}) {
					t.Errorf("%+v after %+v", res2, res)
				}
				unlock(t, s2, next, res2)
			})
			if !res2.Granted {
				t.Fatalf("%+v", res2)
			}
			if status, err := s2.Grant(t.Context(), []driver.AcquireRequest{r}); err != nil || !status[0].Granted {
				t.Errorf("a session can be used again: %+v, %v", status, err)
			}
		})
	}
}

func TestAnAttemptThatDoesNotWaitDoesNotWait(t *testing.T) {
	eachMode(t, func(t *testing.T, f *fixture, m sessionMode) {
		a, b := m.client(t, f), m.client(t, f)
		a.lock(t, request("k"))
		s := b.session(t)
		began := time.Now()
		for range 10 {
			if res, err := s.Grant(t.Context(), []driver.AcquireRequest{request("k")}); err != nil || res[0].Granted {
				t.Errorf("%+v, %v", res, err)
			}
		}
		if took := time.Since(began); took > 5*time.Second { // ten that wait take ten
			t.Errorf("ten attempts took %v", took)
		}
	})
}

// Names that nobody has ever locked have no rows yet.
func TestOneOfManyGetsANewName(t *testing.T) {
	t.Parallel()
	const clients, names = 6, 15
	eachMode(t, func(t *testing.T, f *fixture, m sessionMode) {
		var all []*client
		for range clients {
			all = append(all, m.client(t, f))
		}
		for i := range names {
			var granted atomic.Int64
			var wg sync.WaitGroup
			for _, c := range all {
				s := c.session(t)
				wg.Go(func() {
					for range 3 {
						res, err := s.Grant(t.Context(), []driver.AcquireRequest{request(fmt.Sprint("new ", i))})
						if err != nil && c.Classify(err) != driver.Again {
							t.Errorf("Grant: %v", err)
						}
						if err == nil && res[0].Granted {
							granted.Add(1)
							return
						}
					}
				})
			}
			wg.Wait()
			if granted.Load() != 1 {
				t.Errorf("name %d was granted to %d", i, granted.Load())
			}
		}
	})
}

// TestNoStatementOfSessionsScansTheirTables is TestNoStatementScansTheTable for the
// table of terms.
func TestNoStatementOfSessionsScansTheirTables(t *testing.T) {
	t.Parallel()
	eachServer(t, func(t *testing.T, f *fixture) {
		db := f.Open(t)
		for _, rows := range []int{0, 1, 3000} {
			for i := range rows {
				if i == 0 {
					exec(t, db, "INSERT INTO `sqllock_term` (mode, name) SELECT 2, CONCAT('n', seq) FROM "+numbers(rows)+" ON DUPLICATE KEY UPDATE version = 1")
					exec(t, db, "INSERT IGNORE INTO `sqllock_pin` (name) SELECT CONCAT('n', seq) FROM "+numbers(rows))
					exec(t, db, "ANALYZE TABLE `sqllock_term`, `sqllock_pin`")
				}
			}
			for name, text := range lockmysql.SessionStatements("sqllock_", "2") {
				for _, batch := range []string{"[]", `[["31","00",1,"00","00","00",1,1]]`, `[["31","00",1,1,"00"],["3939","00",1,1,"00"]]`} {
					explain(t, db, name, text, batch)
				}
			}
		}
	})
}

// numbers is a table with the numbers from 1 on, for both products.
func numbers(n int) string {
	return fmt.Sprintf("(WITH RECURSIVE s (seq) AS (SELECT 1 UNION ALL SELECT seq + 1 FROM s WHERE seq < %d) SELECT seq FROM s) s", min(n, 999))
}
