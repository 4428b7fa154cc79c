package lockpg_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/sqllock/sqllock/driver"
	"github.com/sqllock/sqllock/internal/queuetest"
	"github.com/sqllock/sqllock/internal/testdb"
)

// parking asks again and again for a name, and waits in the database, until it is
// granted or ctx ends.
func (c *client) parking(ctx context.Context, name string) error {
	for ctx.Err() == nil {
		s, err := c.Session(ctx)
		if err != nil {
			return err
		}
		r := ask(name)
		r.Wait = time.Minute // which a statement does not
		began := time.Now()
		res, err := s.Grant(ctx, []driver.AcquireRequest{r})
		if took := time.Since(began); took > 20*time.Second {
			return fmt.Errorf("a statement was parked for %v", took)
		}
		_ = s.Close()
		if err != nil || res[0].Granted {
			return err
		}
		if res[0].Holder.Owner == "" {
			return fmt.Errorf("the loser is told %+v", res[0])
		}
	}
	return nil
}

// A caller may want to wait for longer than one statement does.
func TestAStatementWaitsInTheDatabaseForASecond(t *testing.T) {
	t.Parallel()
	c := forUpdate.client(t, withTables(t))
	r := ask("k")
	s, res := c.take(t, r)
	for _, shared := range []bool{false, true} {
		queuetest.Within(t, 2500*time.Millisecond, func() {
			w := ask("k")
			w.Shared, w.Wait = shared, time.Minute
			began := time.Now()
			c.denied(t, w)
			if took := time.Since(began); took < 900*time.Millisecond {
				t.Errorf("shared %v: it took %v", shared, took)
			}
		})
	}
	letGo(t, s, r, res)
	giveBack(t, s)
}

func TestAnIndexIsBuiltConcurrentlyWhileManyWaitAndOneHolds(t *testing.T) {
	t.Parallel()
	d := withTables(t)
	handles := map[string]*sql.DB{"another driver": hide(t, d.DSN())}
	for name, params := range settings {
		handles[name] = d.Open(t, params...)
	}
	for name, handle := range handles {
		t.Run(name, func(t *testing.T) {
			c := forUpdate.on(t, handle, sessionTTL)
			key := "k " + name // those who wait in vain may hold it for a moment after their end
			r := ask(key)
			s, res := c.take(t, r)
			ctx, cancel := context.WithCancel(t.Context())
			var wg sync.WaitGroup
			for range 10 {
				wg.Go(func() {
					if err := c.parking(ctx, key); err != nil && ctx.Err() == nil {
						t.Error(err)
					}
				})
			}
			db := d.Open(t)
			mustExec(t, db, `CREATE TABLE IF NOT EXISTS big (id integer)`)
			for i := range 2 {
				done := make(chan error, 1)
				go func() {
					_, err := db.ExecContext(ctx, fmt.Sprintf(`CREATE INDEX CONCURRENTLY "i%d %s" ON big (id)`, i, name))
					done <- err
				}()
				select {
				case err := <-done:
					if err != nil {
						t.Error(err)
					}
				case <-time.After(time.Minute):
					t.Fatal("the index is not built")
				}
				ping(t, s, r, res)
			}
			if x := get[int](t, db, `SELECT count(*) FROM pg_stat_activity WHERE pid = $1 AND backend_xmin IS NOT NULL`, backendOf(t, db, key)); x != 0 {
				t.Error("the holder's transaction has a snapshot")
			}
			cancel()
			wg.Wait()
			letGo(t, s, r, res)
			giveBack(t, s)
		})
	}
}

func TestWhoWaitsInTheDatabaseIsServedWhenTheLockIsLetGo(t *testing.T) {
	t.Parallel()
	d := withTables(t)
	c := forUpdate.client(t, d)
	for _, shared := range []bool{false, true} {
		var got driver.AcquireResult
		// If the machine is so slow that the statement has waited for its second before the lock is
		// let go, it gets nothing.
		queuetest.BestWithin(t, 500*time.Millisecond, func() time.Duration {
			r := ask("k")
			s, res := c.take(t, r)
			waiting := make(chan driver.AcquireResult, 1)
			w := c.session(t)
			next := ask("k")
			next.Shared, next.Wait = shared, time.Second
			go func() {
				res, err := w.Grant(context.Background(), []driver.AcquireRequest{next})
				if err != nil {
					t.Error(err)
					res = make([]driver.AcquireResult, 1)
				}
				waiting <- res[0]
			}()
			time.Sleep(200 * time.Millisecond)
			began := time.Now()
			letGo(t, s, r, res)
			got = <-waiting
			took := time.Since(began)
			if !got.Granted {
				return time.Hour
			}
			if got.Version <= res.Version {
				t.Errorf("%+v after %+v", got, res)
			}
			letGo(t, w, next, got)
			return took
		})
		if !got.Granted {
			t.Errorf("shared %v: %+v", shared, got)
		}
	}
}

// The machine may take away a part of the times that the role has. Then the server ends a statement
// or a session, and all is done anew.
func TestARoleWithShortTimeoutsIsServedToo(t *testing.T) {
	t.Parallel()
	eachMode(t, func(t *testing.T, d *testdb.Database, m sessionMode) {
		c := m.client(t, d, supported(t, d, "statement_timeout=700ms", "lock_timeout=300ms", "idle_in_transaction_session_timeout=1500ms", "idle_session_timeout=1s")...)
		var err error
		for try := range 5 {
			if err = c.lives(t.Context(), fmt.Sprint("k", try), m.name == forUpdate.name); err == nil {
				return
			}
			t.Logf("try %d: %v", try, err)
		}
		t.Error(err)
	})
}

// lives takes a lock, has another session ask for it, which waits in the database if it can, renews
// the lock when it was silent for a while, and lets it go. Then it takes another one.
func (c *client) lives(ctx context.Context, name string, waits bool) (err error) {
	granted := func(r driver.AcquireRequest) (driver.Session, driver.AcquireResult, error) {
		s, err := c.Session(ctx)
		if err != nil {
			return nil, driver.AcquireResult{}, err
		}
		res, err := s.Grant(ctx, []driver.AcquireRequest{r})
		if err != nil {
			return nil, driver.AcquireResult{}, errors.Join(err, s.Close())
		}
		return s, res[0], nil
	}
	r := ask(name)
	s, res, err := granted(r)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	if !res.Granted {
		return fmt.Errorf("%+v", res)
	}
	w := ask(name)
	if waits {
		w.Wait = time.Second
	}
	other, res2, err := granted(w)
	if err != nil {
		return err
	}
	if err := other.Close(); err != nil || res2.Granted {
		return fmt.Errorf("beside the holder: %+v, %w", res2, err)
	}
	time.Sleep(2 * time.Second)
	if all, err := s.Renew(ctx, []driver.RenewRequest{renewalOf(r, res)}); err != nil || all.Status[0] != driver.Renewed {
		return fmt.Errorf("renewal: %v, %w", all.Status, err)
	}
	if freed, err := s.Release(ctx, []driver.ReleaseRequest{releaseOf(r, res)}); err != nil || !freed[0] {
		return fmt.Errorf("release: %v, %w", freed, err)
	}
	next, res3, err := granted(ask("other " + name))
	if err != nil {
		return err
	}
	if err := next.Close(); err != nil || !res3.Granted {
		return fmt.Errorf("another name: %+v, %w", res3, err)
	}
	return nil
}
