package lockmysql_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sqllock/sqllock/driver"
	"github.com/sqllock/sqllock/internal/queuetest"
	"github.com/sqllock/sqllock/internal/testdb"
	"github.com/sqllock/sqllock/lockmysql"
)

func TestALockedRowIsPassedOver(t *testing.T) {
	eachServer(t, func(t *testing.T, f *fixture) {
		s, db := f.store(t)
		locker := f.Open(t)
		reqs := requests(100, "name %02d")
		res := take(t, s, reqs...)
		unlock := lockRow(t, locker, reqs[50].Name)

		queuetest.Within(t, 900*time.Millisecond, func() { // one that waits waits for a second
			for i, status := range renew(t, s, false, renewals(reqs, res, 2*minute)...).Status {
				if want := map[bool]driver.RenewStatus{false: driver.Renewed, true: driver.Busy}[i == 50]; status != want {
					t.Errorf("renewal %d: %v, want %v", i, status, want)
				}
			}
		})

		// Patience ends after a second, with nothing done and the connection sound.
		queuetest.Within(t, 2*time.Second, func() {
			began := time.Now()
			_, err := s.Renew(t.Context(), renewals(reqs, res, 2*minute)[49:52], true)
			if took := time.Since(began); !errors.Is(err, lockmysql.ErrLocked) || lockmysql.Classify(err) != driver.Again || took < 900*time.Millisecond {
				t.Errorf("a renewal that waits returned %v after %v", err, took)
			}
		})
		queuetest.Within(t, 5*time.Second, func() {
			began := time.Now()
			if _, err := s.Release(t.Context(), releases(reqs, res)[45:55]); !errors.Is(err, lockmysql.ErrLocked) {
				t.Errorf("Release: %v", err)
			}
			if _, err := s.Release(t.Context(), releases(reqs, res)[50:51]); !errors.Is(err, lockmysql.ErrLocked) {
				t.Errorf("Release of one: %v", err)
			}
			for i, r := range take(t, s, reqs[:50]...) {
				if r.Version != res[i].Version {
					t.Errorf("a Release that failed has freed %d", i)
				}
			}
			if _, err := s.Release(t.Context(), []driver.ReleaseRequest{{Name: reqs[50].Name, Acq: reqs[50].Acq}}); !errors.Is(err, lockmysql.ErrLocked) {
				t.Errorf("Release: %v", err)
			}
			if took := time.Since(began); took < 2700*time.Millisecond {
				t.Errorf("three calls that wait for a second took %v", took)
			}
		})

		time.AfterFunc(300*time.Millisecond, unlock)
		if status := renew(t, s, true, renewals(reqs, res, 2*minute)[50]).Status[0]; status != driver.Renewed {
			t.Errorf("a renewal that waits until the row is free: %v", status)
		}
		if freed := release(t, s, releases(reqs, res)...); slices.Contains(freed, false) {
			t.Errorf("a release when the row is free again: %v", freed)
		}

		// Others are granted all the same, though it is not known then.
		unlock = lockRow(t, locker, reqs[50].Name)
		if _, err := s.Acquire(t.Context(), reqs); lockmysql.Classify(err) != driver.Unclear {
			t.Errorf("grants beside a locked row: %v", err)
		}
		for i, r := range take(t, s, reqs[:50]...) {
			if !r.Found {
				t.Errorf("grant %d: %+v", i, r)
			}
		}
		if _, err := s.Acquire(t.Context(), reqs[50:51]); lockmysql.Classify(err) != driver.Again {
			t.Errorf("grant of one: %v", err)
		}
		unlock()
		take(t, s, reqs[50])
		if db.Stats().OpenConnections != 1 {
			t.Error("a locked row cost a connection")
		}
	})
}

// Those who want to enter a queue try to lock the row, again and again. A renewal that waits comes
// before them.
func TestARenewalIsNotCrowdedOut(t *testing.T) {
	t.Parallel()
	eachServer(t, func(t *testing.T, f *fixture) {
		if f.Engine() != testdb.MariaDB {
			return // nothing bounds a wait there, so a renewal tries as the others do
		}
		s, _ := f.store(t)
		held := request("k")
		res := take(t, s, held)
		db := f.Open(t)
		ctx, cancel := context.WithCancel(t.Context())
		var crowd sync.WaitGroup
		defer crowd.Wait()
		defer cancel()
		var locked atomic.Int64
		for range 16 {
			crowd.Go(func() {
				for ctx.Err() == nil {
					tx, err := db.BeginTx(ctx, nil)
					if err != nil {
						continue
					}
					var name string
					if tx.QueryRowContext(ctx, "SELECT name FROM `sqllock_lock` WHERE name = 'k' FOR UPDATE NOWAIT").Scan(&name) == nil {
						locked.Add(1)
						time.Sleep(20 * time.Millisecond)
					}
					_ = tx.Rollback()
				}
			})
		}
		for locked.Load() < 5 {
			time.Sleep(time.Millisecond)
		}
		// A machine may be too slow for one renewal, or not run whoever has the row for a while. So one
		// round of six is enough in which none waits in vain.
		const many = 20
		inRow := 0
		for round := 0; round < 6 && inRow < many; round++ {
			inRow = 0
			for err := error(nil); err == nil && inRow < many; {
				var renewed driver.RenewResults
				renewed, err = s.Renew(t.Context(), renewals([]driver.AcquireRequest{held}, res, minute), true)
				switch {
				case err == nil && renewed.Status[0] == driver.Renewed:
					inRow++
				case !errors.Is(err, lockmysql.ErrLocked):
					t.Fatalf("renewal: %v, %v", renewed.Status, err)
				}
			}
		}
		if inRow < many {
			t.Errorf("in each of six rounds a renewal has waited in vain, in the last one after %d others", inRow)
		}
	})
}

func TestWhatIsNotCommittedIsNotBelieved(t *testing.T) {
	t.Parallel()
	eachServer(t, func(t *testing.T, f *fixture) {
		s, _ := f.store(t, f.isolation(t, "READ-UNCOMMITTED"))
		mine := requests(2, "%d")
		release(t, s, releases(mine, take(t, s, mine...))...)
		tx, err := f.Open(t).Begin()
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range mine {
			exec(t, tx, "UPDATE `sqllock_lock` SET acq = ?, expires_at = ? WHERE name = ?", r.Acq[:], time.Now().Add(minute).UnixMicro(), r.Name)
		}
		for _, reqs := range [][]driver.AcquireRequest{mine, mine[:1]} {
			if res, err := s.Acquire(t.Context(), reqs); lockmysql.Classify(err) != driver.Again {
				t.Errorf("before a rollback: %+v, %v", res, err)
			}
		}
		if rows := look(t, s, mine[0].Name, mine[1].Name); rows[0].Held() || rows[1].Held() {
			t.Errorf("a look before a rollback: %+v", rows)
		}
		if page := list(t, s, driver.ListRequest{Limit: 10}); len(page.Rows) > 0 {
			t.Errorf("a list before a rollback: %+v", page)
		}
		_ = tx.Rollback()
		take(t, s, mine...)
	})
}

func TestALockedTableIsWaitedForASecond(t *testing.T) {
	t.Parallel()
	eachServer(t, func(t *testing.T, f *fixture) {
		s, _ := f.store(t)
		known := request("known")
		res := take(t, s, known)
		conn, err := f.Open(t).Conn(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = conn.Close() }()
		exec(t, conn, "LOCK TABLES `sqllock_lock` WRITE")
		calls := map[string]func(context.Context) error{
			"Grant":  func(ctx context.Context) error { _, err := s.Acquire(ctx, requests(1, "%d")); return err },
			"Grants": func(ctx context.Context) error { _, err := s.Acquire(ctx, requests(2, "%d")); return err },
			"Renew": func(ctx context.Context) error {
				_, err := s.Renew(ctx, renewals([]driver.AcquireRequest{known}, res, minute), false)
				return err
			},
			"Release": func(ctx context.Context) error {
				_, err := s.Release(ctx, releases([]driver.AcquireRequest{known}, res))
				return err
			},
		}
		for name, call := range calls {
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
			if err := call(ctx); lockmysql.Classify(err) != driver.Again {
				t.Errorf("%s: %v", name, err)
			}
			cancel()
		}
		exec(t, conn, "UNLOCK TABLES")
		if !release(t, s, releases([]driver.AcquireRequest{known}, res)...)[0] {
			t.Error("not released after all")
		}
	})
}
