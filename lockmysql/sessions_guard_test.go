package lockmysql_test

import (
	"database/sql"
	"errors"
	"testing"
	"time"

	"github.com/sqllock/sqllock/driver"
	"github.com/sqllock/sqllock/internal/testdb"
	"github.com/sqllock/sqllock/lockmysql"
)

func guardRequest(s driver.Session, r driver.AcquireRequest, res driver.AcquireResult) driver.GuardRequest {
	return driver.GuardRequest{Name: r.Name, Acq: r.Acq, Version: res.Version, Session: s.ID()}
}

func TestAGuardedTermHasNoSuccessorBeforeTheTransactionEnds(t *testing.T) {
	t.Parallel()
	eachMode(t, func(t *testing.T, f *fixture, m sessionMode) {
		for _, level := range levels {
			t.Run(level.String(), func(t *testing.T) {
				a, b := m.client(t, f), m.client(t, f)
				name := "guarded " + level.String()
				r := request(name)
				s, res := a.lock(t, r)
				tx := begin(t, f.Open(t), level)
				if status, err := a.Guard(t.Context(), tx, guardRequest(s, r, res)); err != nil || status != driver.Guarded {
					t.Fatalf("Guard: %v, %v", status, err)
				}
				if status := pings(t, s, r, res); status != driver.Renewed {
					t.Errorf("renewal: %v", status)
				}
				began := time.Now()
				release := []driver.ReleaseRequest{{Name: name, Acq: r.Acq, Version: res.Version, Guarded: true}}
				if _, err := s.Release(t.Context(), release); a.Classify(err) != driver.Again || !errors.Is(err, lockmysql.ErrLocked) {
					t.Errorf("Release: %v", err)
				}
				if status := pings(t, s, r, res); status != driver.Renewed {
					t.Errorf("renewal after it: %v", status)
				}
				if _, err := b.Revoke(t.Context(), []driver.RevokeRequest{{Name: name}}); b.Classify(err) != driver.Again {
					t.Errorf("Revoke: %v", err)
				}
				b.wantDenied(t, request(name))
				giveBack(t, s) // and now the holder has crashed
				for range 3 {
					if got := b.wantDenied(t, request(name)); got.Crashed != (driver.Holder{}) || got.Now == 0 {
						t.Errorf("behind a guard: %+v", got)
					}
				}
				if got, err := b.Sweep(t.Context(), driver.SweepRequest{Limit: 10, Retention: time.Hour}); err != nil || len(got.Crashed) > 0 {
					t.Errorf("Sweep: %+v, %v", got, err)
				}
				if took := time.Since(began); took > 15*time.Second { // a lock wait of the server takes 50
					t.Errorf("calls that do not wait took %v", took)
				}
				if err := tx.Commit(); err != nil {
					t.Error(err)
				}
				next := request(name)
				s2, res2 := b.eventuallyGets(t, next, 5*time.Second)
				if res2.Crashed.Acq != r.Acq {
					t.Errorf("when the transaction has ended: %+v", res2)
				}

				// The former holder is told, and its open transaction keeps nobody.
				late := begin(t, f.Open(t), level)
				if status, err := a.Guard(t.Context(), late, guardRequest(s, r, res)); err != nil || status != driver.Fenced {
					t.Errorf("a guard of a former term: %v, %v", status, err)
				}
				unlock(t, s2, next, res2)
			})
		}
	})
}

func TestAGuardInATransactionOfAnotherDatabaseIsRefused(t *testing.T) {
	t.Parallel()
	eachMode(t, func(t *testing.T, f *fixture, m sessionMode) {
		other := &fixture{testdb.New(t, f.Engine())}
		other.migrate(t)
		c := m.client(t, f)
		r := request("k")
		s, res := c.lock(t, r)
		tx := begin(t, other.Open(t), sql.LevelDefault)
		if status, err := c.Guard(t.Context(), tx, guardRequest(s, r, res)); err != nil || status != driver.Foreign {
			t.Errorf("%v, %v", status, err)
		}
		if m.name != forUpdate.name {
			return
		}
		forUpdate.client(t, other)
		if err := c.PrepareTx(t.Context(), driver.TxRequest{Name: "k"}); err != nil {
			t.Fatal(err)
		}
		if status, err := c.TryTx(t.Context(), tx, driver.TxRequest{Name: "k"}); err != nil || status != driver.TxForeign {
			t.Errorf("TryTx: %v, %v", status, err)
		}
	})
}
