package lockmysql_test

import (
	"context"
	"database/sql"
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/sqllock/sqllock/driver"
	"github.com/sqllock/sqllock/internal/queuetest"
	"github.com/sqllock/sqllock/lockmysql"
)

func readers(n int, name string) []driver.AcquireRequest {
	reqs := make([]driver.AcquireRequest, n)
	for i := range reqs {
		reqs[i] = request(name)
		reqs[i].Shared = true
	}
	return reqs
}

func renewalOf(r driver.AcquireRequest, version int64) driver.RenewRequest {
	return driver.RenewRequest{Name: r.Name, Acq: r.Acq, Version: version, TTL: 2 * minute, Holds: 1, Shared: true}
}

func releaseOf(r driver.AcquireRequest, version int64) driver.ReleaseRequest {
	return driver.ReleaseRequest{Name: r.Name, Acq: r.Acq, Version: version, Shared: true}
}

// The row of a name may be locked by others who come and go.
func TestALockedRowKeepsNoReaderFromRenewing(t *testing.T) {
	eachServer(t, func(t *testing.T, f *fixture) {
		s, _ := f.store(t)
		reqs := append(readers(1, "a"), append(readers(2, "b"), readers(1, "c")...)...)
		var renew []driver.RenewRequest
		var leave []driver.ReleaseRequest
		for _, r := range reqs {
			res := take(t, s, r)[0]
			renew = append(renew, renewalOf(r, res.Version))
			leave = append(leave, releaseOf(r, res.Version))
		}
		unlock := lockRow(t, f.Open(t), "b")
		queuetest.Within(t, 900*time.Millisecond, func() { // one that waits waits for a second
			res, err := s.Renew(t.Context(), renew, false)
			if err != nil || slices.ContainsFunc(res.Status, func(s driver.RenewStatus) bool { return s != driver.Renewed }) {
				t.Errorf("Renew = %+v, %v", res, err)
			}
		})
		if _, err := s.Acquire(t.Context(), readers(1, "b")); lockmysql.Classify(err) != driver.Again {
			t.Errorf("Grant: %v", err)
		}
		_, err := s.Release(t.Context(), leave)
		if !errors.Is(err, lockmysql.ErrLocked) {
			t.Errorf("Release: %v", err)
		}
		unlock()
		freed := release(t, s, leave...)
		if lockmysql.Classify(err) == driver.Unclear { // a and c have been released before
			freed = freed[1:3]
		}
		if slices.Contains(freed, false) {
			t.Errorf("released: %v", freed)
		}
	})
}

func TestALockedClaimIsPassedOver(t *testing.T) {
	eachServer(t, func(t *testing.T, f *fixture) {
		s, _ := f.store(t)
		var renew []driver.RenewRequest
		for _, r := range readers(3, "b") {
			renew = append(renew, renewalOf(r, take(t, s, r)[0].Version))
		}
		tx, err := f.Open(t).BeginTx(t.Context(), &sql.TxOptions{Isolation: sql.LevelReadCommitted})
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = tx.Rollback() }()
		exec(t, tx, "UPDATE `sqllock_claim` SET holds = 7 WHERE acq = ?", renew[1].Acq[:])
		res, err := s.Renew(t.Context(), renew, false)
		if want := []driver.RenewStatus{driver.Renewed, driver.Busy, driver.Renewed}; err != nil || !slices.Equal(res.Status, want) {
			t.Errorf("Renew = %+v, %v; want %v", res, err, want)
		}
		if _, err := s.Renew(t.Context(), renew, true); !errors.Is(err, lockmysql.ErrLocked) {
			t.Errorf("Renew that waits: %v", err)
		}
		// Who has expired and cannot be locked is alive.
		exec(t, tx, "UPDATE `sqllock_claim` SET expires_at = 1 WHERE acq = ?", renew[1].Acq[:])
		for _, r := range []driver.RenewRequest{renew[0], renew[2]} {
			release(t, s, driver.ReleaseRequest{Name: r.Name, Acq: r.Acq, Version: r.Version, Shared: true})
		}
		if r := grant(t, s, request("b"))[0]; r.Granted {
			t.Errorf("%+v", r)
		}
		_ = tx.Rollback()
		if res, err := s.Renew(t.Context(), renew[1:2], true); err != nil || res.Status[0] != driver.Renewed {
			t.Errorf("Renew = %+v, %v", res, err)
		}
	})
}

// A request whose reply was lost is repeated while it may still run.
func TestOneRequestThatRunsTwiceAtATimeIsCountedOnce(t *testing.T) {
	t.Parallel()
	eachServer(t, func(t *testing.T, f *fixture) {
		db := f.Open(t)
		s := open(t, db)
		take(t, s, readers(1, "a")...)
		for range 30 {
			req := readers(1, "a")
			var wg sync.WaitGroup
			for range 4 {
				wg.Go(func() {
					for {
						res, err := s.Acquire(context.Background(), req)
						if err == nil && res[0].Granted {
							return
						}
						if err != nil && lockmysql.Classify(err) != driver.Again {
							t.Errorf("Grant = %v, %v", res, err)
							return
						}
					}
				})
			}
			wg.Wait()
		}
		var counted, are int
		err := db.QueryRow("SELECT holding, (SELECT COUNT(*) FROM `sqllock_claim`) FROM `sqllock_lock`").Scan(&counted, &are)
		if err != nil || counted != 31 || are != 31 {
			t.Errorf("readers are counted as %d and are %d, want 31, %v", counted, are, err)
		}
	})
}

func TestManyWhoShareTogetherAllGetIt(t *testing.T) {
	t.Parallel()
	eachServer(t, func(t *testing.T, f *fixture) {
		s, db := f.store(t, "interpolateParams=true")
		before := questions(t, db)
		loser := request("a")
		first := take(t, s, readers(1, "a")...)[0]
		asked := questions(t, db) - before - 1
		if asked != f.inBlocks(10, 4) {
			t.Errorf("%d statements, want a look, six, and the transaction around them", asked)
		}
		before = questions(t, db)
		grant(t, s, loser)
		if asked := questions(t, db) - before - 1; asked != 2 {
			t.Errorf("a losing attempt took %d statements", asked)
		}
		var wg sync.WaitGroup
		for range 8 {
			s := open(t, f.Open(t))
			wg.Go(func() {
				for range 10 {
					for {
						res, err := s.Acquire(context.Background(), readers(1, "a"))
						if err != nil && lockmysql.Classify(err) != driver.Again {
							t.Error(err)
							return
						}
						if err == nil && res[0].Granted {
							if res[0].Version != first.Version {
								t.Errorf("version %d, want %d", res[0].Version, first.Version)
							}
							break
						}
					}
				}
			})
		}
		wg.Wait()
		if r := look(t, s, "a")[0]; r.Readers != 81 {
			t.Errorf("%+v", r)
		}
	})
}
