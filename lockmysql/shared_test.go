package lockmysql_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/sqllock/sqllock/driver"
	"github.com/sqllock/sqllock/lockmysql"
)

func readers(n int, name string) []driver.GrantRequest {
	reqs := make([]driver.GrantRequest, n)
	for i := range reqs {
		reqs[i] = request(name)
		reqs[i].Shared = true
	}
	return reqs
}

func renewalOf(r driver.GrantRequest, version int64) driver.RenewRequest {
	return driver.RenewRequest{Name: r.Name, Acq: r.Acq, Version: version, TTL: 2 * minute, Holds: 1, Shared: true}
}

func releaseOf(r driver.GrantRequest, version int64) driver.ReleaseRequest {
	return driver.ReleaseRequest{Name: r.Name, Acq: r.Acq, Version: version, Shared: true}
}

func TestALockedRowKeepsReadersWaitingForAMoment(t *testing.T) {
	eachServer(t, func(t *testing.T, f *fixture) {
		s, _ := f.store(t)
		locker := f.Open(t)
		reqs := append(readers(1, "a"), append(readers(2, "b"), readers(1, "c")...)...)
		var renew []driver.RenewRequest
		var leave []driver.ReleaseRequest
		for _, r := range reqs {
			res := take(t, s, r)[0]
			renew = append(renew, renewalOf(r, res.Version))
			leave = append(leave, releaseOf(r, res.Version))
		}
		unlock := lockRow(t, locker, "b")
		began := time.Now()
		res, err := s.Renew(t.Context(), renew, false)
		if want := []driver.RenewStatus{driver.Renewed, driver.Busy, driver.Busy, driver.Renewed}; err != nil || !slices.Equal(res.Status, want) {
			t.Errorf("Renew = %+v, %v; want %v", res, err, want)
		}
		if r := grant(t, s, readers(1, "b")[0])[0]; r.Granted || r.Now == 0 {
			t.Errorf("%+v", r)
		}
		if _, err := s.Release(t.Context(), leave); !errors.Is(err, lockmysql.ErrLocked) {
			t.Errorf("Release: %v", err)
		}
		// What is wrong with a locked row is not waited for, but lost to.
		exec(t, f.Open(t), "UPDATE `sqllock_holder` SET expires_at = 1 WHERE name = 'c'")
		unlockC := lockRow(t, f.Open(t), "c")
		if r := grant(t, s, request("c"))[0]; r.Granted || !r.Holder.Shared {
			t.Errorf("%+v", r)
		}
		if took := time.Since(began); took > 900*time.Millisecond {
			t.Errorf("calls that do not wait took %v", took)
		}
		unlockC()
		if _, err := s.Renew(t.Context(), renew[1:3], true); !errors.Is(err, lockmysql.ErrLocked) {
			t.Errorf("Renew that waits: %v", err)
		}
		unlock()
		if freed := release(t, s, leave[:3]...); slices.Contains(freed, false) {
			t.Errorf("released: %v", freed)
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
						res, err := s.Grant(context.Background(), req)
						if err == nil && res[0].Granted {
							return
						}
						if err != nil && s.Classify(err) != driver.Again {
							t.Errorf("Grant = %v, %v", res, err)
							return
						}
					}
				})
			}
			wg.Wait()
		}
		var counted, are int
		err := db.QueryRow("SELECT others, (SELECT COUNT(*) FROM `sqllock_holder`) FROM `sqllock_lock`").Scan(&counted, &are)
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
		if asked != 9 {
			t.Errorf("%d statements, want a look, a new row, five of a transaction, and its settings", asked)
		}
		before = questions(t, db)
		grant(t, s, loser)
		if asked := questions(t, db) - before - 1; asked != 1 {
			t.Errorf("a losing attempt took %d statements", asked)
		}
		var wg sync.WaitGroup
		for range 8 {
			s := open(t, f.Open(t))
			wg.Go(func() {
				for range 10 {
					for {
						res, err := s.Grant(context.Background(), readers(1, "a"))
						if err != nil && s.Classify(err) != driver.Again {
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
