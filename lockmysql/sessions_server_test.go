package lockmysql_test

import (
	"bytes"
	"context"
	"database/sql"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sqllock/sqllock/driver"
	"github.com/sqllock/sqllock/internal/netproxy"
	"github.com/sqllock/sqllock/internal/queuetest"
	"github.com/sqllock/sqllock/internal/testdb"
	"github.com/sqllock/sqllock/lockmysql"
)

// eachOwnServer runs a test for both modes on servers of their own, with arguments.
func eachOwnServer(t *testing.T, args []string, test func(t *testing.T, f *fixture, m sessionMode)) {
	for _, engine := range testdb.Startable() {
		if engine == testdb.Postgres {
			continue
		}
		for _, m := range sessionModes {
			t.Run(engine+" "+m.name, func(t *testing.T) {
				f := &fixture{testdb.StartServer(t, engine, args...).Database}
				f.migrate(t)
				test(t, f, m)
			})
		}
	}
}

// A server that logs statements takes no writes in READ COMMITTED.
func TestSessionsWorkOnAServerThatLogsStatements(t *testing.T) {
	t.Parallel()
	eachOwnServer(t, []string{"--log-bin", "--sync-binlog=1", "--binlog-format=STATEMENT"}, func(t *testing.T, f *fixture, m sessionMode) {
		c := m.client(t, f)
		r, dead := request("k"), request("dead")
		r.Value, dead.Delay = []byte("v"), time.Minute
		s, res := c.lock(t, r)
		c.wantDenied(t, sharedRequest("k"))
		if got := revokeOne(t, c, "k"); !got.Revoked || pings(t, s, r, res) != driver.Revoked {
			t.Errorf("%+v", got)
		}
		unlock(t, s, r, res)
		c.dies(t, dead)
		if mine, err := c.SweepDue(t.Context(), time.Minute); err != nil || !mine {
			t.Errorf("SweepDue: %v, %v", mine, err)
		}
		age(t, f.Open(t))
		if got, err := c.Sweep(t.Context(), driver.SweepRequest{Limit: 10, Retention: time.Hour}); err != nil || got.Purged != 1 || len(got.Crashed) != 1 {
			t.Errorf("Sweep: %+v, %v", got, err)
		}
		if m.name == forUpdate.name {
			if status := c.tryTx(t, begin(t, f.Open(t), sql.LevelDefault), "tx", false); status != driver.TxTaken {
				t.Errorf("TryTx: %v", status)
			}
		}
	})
}

// With this setting MariaDB undoes a transaction of which a statement has waited for
// a row in vain, or would have.
func TestATransactionSurvivesAHeldLockAlsoWhereATimeOutUndoesIt(t *testing.T) {
	t.Parallel()
	eachOwnServer(t, []string{"--innodb-rollback-on-timeout=1"}, func(t *testing.T, f *fixture, m sessionMode) {
		c, db := m.client(t, f), f.Open(t)
		r, waits := request("k"), request("k")
		waits.Wait = time.Second
		s, res := c.lock(t, r)
		second := c.session(t)
		for _, q := range []driver.AcquireRequest{request("k"), waits, sharedRequest("k")} {
			if got, err := second.Grant(t.Context(), []driver.AcquireRequest{q}); err != nil || got[0].Granted {
				t.Errorf("%+v, %v", got, err)
			}
		}
		if m.name == forUpdate.name {
			exec(t, db, "CREATE TABLE work (v INT)")
			tx := begin(t, db, sql.LevelRepeatableRead)
			exec(t, tx, "INSERT INTO work VALUES (1)")
			for _, shared := range []bool{false, true} {
				if status := c.tryTx(t, tx, "k", shared); status != driver.TxHeld {
					t.Errorf("%v", status)
				}
			}
			if err := tx.Commit(); err != nil {
				t.Error(err)
			}
			var n int
			if err := db.QueryRow("SELECT COUNT(*) FROM work").Scan(&n); err != nil || n != 1 {
				t.Errorf("%d rows, %v: the transaction was undone", n, err)
			}
		}
		unlock(t, s, r, res)
		if got, err := second.Grant(t.Context(), []driver.AcquireRequest{request("k")}); err != nil || !got[0].Granted {
			t.Errorf("when it is free: %+v, %v", got, err)
		}
	})
}

// A statement of which only a part has arrived is silence too.
func TestTheServerEndsASessionInTheMiddleOfAPacket(t *testing.T) {
	t.Parallel()
	const ttl = 5 * time.Second
	eachServer(t, func(t *testing.T, f *fixture) {
		proxy := netproxy.New(t, f.Addr())
		a := advisory.on(t, f.OpenVia(t, proxy.Addr()), ttl)
		b := advisory.client(t, f)
		s, _ := a.lock(t, request("k"))
		frozen := make(chan time.Time, 1)
		proxy.OnUp(func(_ int, data []byte) netproxy.Action {
			if len(data) > 8<<10 {
				go func() { // not this piece, but those that follow
					proxy.Freeze()
					select {
					case frozen <- time.Now():
					default:
					}
				}()
			}
			return netproxy.Pass
		})
		defer proxy.Thaw()
		large := request("large")
		large.Value = make([]byte, 4<<20)
		ctx, cancel := context.WithCancel(t.Context())
		granting := make(chan error, 1)
		go func() {
			_, err := s.Grant(ctx, []driver.AcquireRequest{large})
			granting <- err
		}()
		var silent time.Time
		select {
		case silent = <-frozen:
		case err := <-granting:
			cancel()
			t.Fatalf("Grant before the network is frozen: %v", err)
		}
		b.eventuallyGets(t, request("k"), ttl+15*time.Second)
		t.Logf("freed after %v", time.Since(silent))
		cancel()
		<-granting
	})
}

// A session for update is all that its lock needs: that nobody answers who was asked
// beside it, of revocations, takes no time from its renewals on a slow network.
func TestARenewalHasTimeWhateverIsAskedBesideIt(t *testing.T) {
	t.Parallel()
	eachServer(t, func(t *testing.T, f *fixture) {
		const timeout = time.Second
		proxy := netproxy.New(t, f.Addr())
		db := f.OpenVia(t, proxy.Addr())
		store, err := lockmysql.DB(db).OpenForUpdate(t.Context(), driver.Client{Instance: newID(), Label: "l"},
			driver.SessionOptions{TTL: sessionTTL, Timeout: timeout})
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = store.Close() }()
		c := &client{SessionStore: store, db: db}
		r := request("k")
		s, res := c.lock(t, r)

		silent, silenced := make(chan struct{}), atomic.Bool{}
		defer close(silent)
		proxy.OnUp(func(_ int, data []byte) netproxy.Action {
			if bytes.Contains(data, []byte("revoke_for")) {
				silenced.Store(true)
				<-silent
			}
			return netproxy.Pass
		})
		proxy.Latency(timeout * 15 / 100) // each way
		defer proxy.Latency(0)
		for range 2 {
			queuetest.Within(t, timeout, func() {
				got, err := s.Renew(t.Context(), []driver.RenewRequest{{Name: "k", Acq: r.Acq, Version: res.Version, TTL: sessionTTL, Holds: 1}})
				if err != nil || got.Status[0] != driver.Renewed {
					t.Fatalf("Renew: %+v, %v", got, err)
				}
			})
		}
		if !silenced.Load() {
			t.Error("nothing was asked")
		}
	})
}
