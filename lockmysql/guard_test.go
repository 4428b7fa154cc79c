package lockmysql_test

import (
	"database/sql"
	"fmt"
	"testing"
	"time"

	"github.com/sqllock/sqllock/driver"
	"github.com/sqllock/sqllock/internal/queuetest"
	"github.com/sqllock/sqllock/lockmysql"
)

// guard guards leases in a transaction of the application that stays open.
func guard(t *testing.T, s driver.Store, db *sql.DB, level sql.IsolationLevel, leases ...driver.RenewRequest) *sql.Tx {
	t.Helper()
	tx, err := db.BeginTx(t.Context(), &sql.TxOptions{Isolation: level})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = tx.Rollback() })
	for _, r := range leases {
		status, err := s.(driver.GuardStore).Guard(t.Context(), tx, driver.GuardRequest{Name: r.Name, Acq: r.Acq, Version: r.Version})
		if err != nil || status != driver.Guarded {
			t.Fatalf("Guard: %v, %v", status, err)
		}
	}
	return tx
}

var levels = []sql.IsolationLevel{sql.LevelReadUncommitted, sql.LevelReadCommitted, sql.LevelRepeatableRead, sql.LevelSerializable}

// The transaction that guards may be long and of any isolation level; it must not
// lock the gaps that the changes of other names need.
func TestAGuardKeepsNoOtherName(t *testing.T) {
	t.Parallel()
	const others = 20
	eachServer(t, func(t *testing.T, f *fixture) {
		for _, level := range levels {
			t.Run(level.String(), func(t *testing.T) {
				s, db := f.store(t)
				reqs := requests(2*others+1, level.String()+" %02d") // anew: what was deleted parts gaps
				res := take(t, s, reqs...)
				last := []driver.AcquireRequest{request(level.String())}
				newest := take(t, s, last...)
				tx := guard(t, s, f.Open(t), level, renewals(reqs, res, minute)[others], renewals(last, newest, minute)[0])

				began := time.Now()
				for i := range reqs {
					if i == others {
						continue
					}
					name := reqs[i].Name
					switch i % 4 {
					case 0:
						release(t, s, releases(reqs, res)[i])
					case 1:
						expire(t, db, name)
					case 2:
						revoke(t, s, name)
					case 3:
						expire(t, db, name)
						if crashed := sweep(t, s, time.Hour).Crashed; len(crashed) == 0 {
							t.Errorf("%q was not swept", name)
						}
					}
					take(t, s, request(name))
					take(t, s, request(name+", a new one"))
				}
				sweep(t, s, time.Nanosecond)
				if took := time.Since(began); took > 20*time.Second { // one that waits for the guard waits for 50 s
					t.Errorf("took %v", took)
				}
				if err := tx.Commit(); err != nil {
					t.Error(err)
				}
			})
		}
	})
}

// Nobody is parked in the server behind a guard, who would keep the row locked
// meanwhile and so its holder from renewing.
func TestNobodyParksBehindAGuard(t *testing.T) {
	t.Parallel()
	eachServer(t, func(t *testing.T, f *fixture) {
		for k, level := range levels {
			t.Run(level.String(), func(t *testing.T) {
				s, db := f.store(t)
				reqs := requests(3, fmt.Sprintf("%d %%d", k))
				res := take(t, s, reqs...)
				held := renewals(reqs, res, minute)
				tx := guard(t, s, f.Open(t), level, held[1])
				queuetest.Within(t, time.Second, func() {
					if status := renew(t, s, false, held...).Status; status[1] != driver.Renewed {
						t.Errorf("renewed: %v", status)
					}
				})
				queuetest.Within(t, 3*time.Second, func() {
					if _, err := s.Revoke(t.Context(), []driver.RevokeRequest{{Name: reqs[0].Name}, {Name: reqs[1].Name}}); lockmysql.Classify(err) != driver.Again {
						t.Errorf("Revoke: %v", err)
					}
				})
				queuetest.Within(t, time.Second, func() {
					guarded := releases(reqs, res)[1:2]
					guarded[0].Guarded = true
					if res, err := s.Release(t.Context(), guarded); err != nil || res[0].Freed {
						t.Errorf("Release: %+v, %v", res, err)
					}
				})
				expire(t, db, reqs[1].Name)
				queuetest.Within(t, time.Second, func() {
					if r := sweep(t, s, time.Hour); len(r.Crashed) > 0 {
						t.Errorf("swept: %+v", r)
					}
				})
				queuetest.Within(t, time.Second, func() {
					if r := grant(t, s, request(reqs[1].Name))[0]; r.Granted {
						t.Errorf("granted: %+v", r)
					}
				})
				if err := tx.Commit(); err != nil {
					t.Error(err)
				}
				if r := take(t, s, request(reqs[1].Name))[0]; r.Crashed.Acq != reqs[1].Acq {
					t.Errorf("when the transaction has ended: %+v", r)
				}
			})
		}
	})
}

// To look for what is not there locks the gap that it would be in, in REPEATABLE READ:
// behind the last name that is all that may come.
func TestAGuardThatIsRefusedKeepsNoName(t *testing.T) {
	eachServer(t, func(t *testing.T, f *fixture) {
		s, db := f.store(t)
		db.SetMaxOpenConns(3)
		for _, how := range []string{"deleted", "taken"} {
			for _, level := range levels {
				t.Run(how+" "+level.String(), func(t *testing.T) {
					reqs := []driver.AcquireRequest{request("m " + how + level.String()), request("a " + how + level.String())}
					res := take(t, s, reqs...)
					exec(t, db, map[string]string{
						"deleted": "DELETE FROM sqllock_lock WHERE name = ?",
						"taken":   "UPDATE sqllock_lock SET acq = NULL, version = version + 1 WHERE name = ?",
					}[how], reqs[0].Name)
					tx := guard(t, s, f.Open(t), level)
					status, err := s.(driver.GuardStore).Guard(t.Context(), tx, driver.GuardRequest{Name: reqs[0].Name, Acq: reqs[0].Acq, Version: res[0].Version})
					if err != nil || status != driver.Fenced {
						t.Fatalf("Guard: %v, %v", status, err)
					}
					free, suffix := releases(reqs[1:], res[1:]), ""
					queuetest.Within(t, 800*time.Millisecond, func() { // a row that is locked costs a second
						suffix += "!" // new names each time
						release(t, s, free...)
						got := take(t, s, reqs[1], request("m "+how+level.String()+suffix), request("z "+how+level.String()+suffix))
						free = releases(reqs[1:], got[:1])
					})
					_ = tx.Rollback()
				})
			}
		}
	})
}
