package lockmysql_test

import (
	"database/sql"
	"testing"
	"time"

	"github.com/sqllock/sqllock/driver"
	"github.com/sqllock/sqllock/internal/queuetest"
	"github.com/sqllock/sqllock/lockmysql"
)

func TestAGuardKeepsANameFromTheLine(t *testing.T) {
	eachServer(t, func(t *testing.T, f *fixture) {
		for _, level := range levels {
			t.Run(level.String(), func(t *testing.T) {
				s, db := f.store(t)
				guarded := func(r driver.AcquireRequest, version int64) *sql.Tx {
					return guard(t, s, f.Open(t), level, driver.RenewRequest{Name: r.Name, Acq: r.Acq, Version: version})
				}
				// Of a holder who lets go.
				first, a := request("a"), waiter("a")
				r := lease(first, take(t, s, first)[0].Version)
				r.Guarded, r.Awaited = true, true
				line(t, s, a)
				tx := guarded(first, r.Version)
				if res, err := s.Release(t.Context(), []driver.ReleaseRequest{r}); err != nil || res[0].Freed {
					t.Errorf("Release: %+v, %v", res, err)
				}
				if _, err := s.Release(t.Context(), []driver.ReleaseRequest{{Name: "a", Acq: first.Acq, Guarded: true}}); lockmysql.Classify(err) != driver.Again {
					t.Errorf("Release: %v", err)
				}
				if _, err := s.Revoke(t.Context(), []driver.RevokeRequest{{Name: "a"}}); lockmysql.Classify(err) != driver.Again {
					t.Errorf("Revoke: %v", err)
				}
				if r := line(t, s, a)[0]; r.Granted || r.Holder.Acq != first.Acq {
					t.Errorf("%+v", r)
				}
				// Of one who has expired.
				expire(t, db, "a")
				queuetest.Within(t, 900*time.Millisecond, func() { // one that waits waits for a second
					if r := line(t, s, a)[0]; r.Granted {
						t.Errorf("past a guard: %+v", r)
					}
				})
				_ = tx.Rollback()
				if r := line(t, s, a)[0]; !r.Granted || r.Crashed.Acq != first.Acq {
					t.Errorf("%+v", r)
				}

				// Of one of those who share, who has expired when the last leaves.
				x, y, w := sharing("b"), sharing("b"), waiter("b")
				version := line(t, s, x, y)[0].Version
				line(t, s, w)
				tx = guarded(x, version)
				exec(t, db, "UPDATE `sqllock_claim` FORCE INDEX (PRIMARY) SET expires_at = 1 WHERE name = 'b' AND state = 1 AND acq = ?", x.Acq[:])
				if got := next(t, s, lease(y, version)); len(got) > 0 {
					t.Errorf("next are %v", got)
				}
				if r := line(t, s, w)[0]; r.Granted {
					t.Errorf("past a guard: %+v", r)
				}
				_ = tx.Rollback()
				if r := line(t, s, w)[0]; !r.Granted || r.Version <= version {
					t.Errorf("%+v", r)
				}
				revoke(t, s, "a", "b")
			})
		}
	})
}
