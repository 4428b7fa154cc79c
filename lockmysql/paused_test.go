package lockmysql_test

import (
	"bytes"
	"context"
	"database/sql"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sqllock/sqllock"
	"github.com/sqllock/sqllock/internal/netproxy"
	"github.com/sqllock/sqllock/internal/testdb"
	"github.com/sqllock/sqllock/lockmysql"
)

// A client that is paused, or vanishes, in the transaction that hands a name over keeps
// the row of the name, until the server ends its session.
func TestAClientThatIsPausedBeforeItsCommitKeepsNothing(t *testing.T) {
	eachServer(t, func(t *testing.T, f *fixture) {
		proxy := netproxy.New(t, f.Addr())
		defer proxy.Thaw()
		opts := &sqllock.UniqueOptions{TTL: 5 * time.Second, Reaper: &sqllock.ReaperOptions{Off: true}}
		locker := func(db *sql.DB) *sqllock.Locker {
			locks, err := sqllock.NewUnique(t.Context(), lockmysql.DB(db), opts)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = locks.Close(context.Background()) })
			return locks
		}
		db := f.Open(t)
		paused, other := locker(f.OpenVia(t, proxy.Addr())), locker(db)
		lease, err := paused.Lock(t.Context(), "k")
		if err != nil {
			t.Fatal(err)
		}
		frozen := make(chan struct{})
		freeze := sync.OnceFunc(func() { proxy.Freeze(); close(frozen) })
		proxy.OnUp(func(_ int, b []byte) netproxy.Action {
			if bytes.Contains(b, []byte("COMMIT")) {
				freeze()
			}
			return netproxy.Pass
		})
		got := make(chan error, 1)
		go func() {
			next, err := other.Lock(t.Context(), "k", sqllock.Wait(30*time.Second))
			if err == nil {
				err = next.Unlock(t.Context())
			}
			got <- err
		}()
		for waits := 0; waits == 0; time.Sleep(time.Millisecond) {
			if err := db.QueryRow(`SELECT COUNT(*) FROM sqllock_claim WHERE state = 0`).Scan(&waits); err != nil {
				t.Fatal(err)
			}
		}
		unlocked := make(chan struct{})
		go func() { defer close(unlocked); _ = lease.Unlock(t.Context()) }()
		<-frozen
		if err := <-got; err != nil {
			t.Errorf("who waits for the name: %v", err)
		}
		proxy.Thaw()
		<-unlocked
	})
}

func TestASessionComesBackAsItWasFromATransactionOfTheLibrary(t *testing.T) {
	eachServer(t, func(t *testing.T, f *fixture) {
		params := []string{"wait_timeout=1234"}
		if f.Engine() == testdb.MariaDB {
			params = append(params, "idle_transaction_timeout=77", "idle_write_transaction_timeout=66")
		}
		s, db := f.store(t, params...)
		now := func() string {
			conn, err := db.Conn(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = conn.Close() }()
			return settings(t, conn)
		}
		before := now()
		shared := request("k")
		shared.Shared = true
		take(t, s, shared)
		if after := now(); after != before {
			t.Errorf("the settings were\n%s\nand are\n%s", before, after)
		}
		if res := take(t, s, shared)[0]; !res.Found {
			t.Errorf("%+v", res)
		}
	})
}

// What the library does in a transaction is done again if its connection breaks before the
// transaction could commit.
func TestAConnectionThatBreaksBeforeTheCommitIsNoError(t *testing.T) {
	eachServer(t, func(t *testing.T, f *fixture) {
		proxy := netproxy.New(t, f.Addr())
		opts := &sqllock.UniqueOptions{Reaper: &sqllock.ReaperOptions{Off: true}}
		locks, err := sqllock.NewUnique(t.Context(), lockmysql.DB(f.OpenVia(t, proxy.Addr())), opts)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = locks.Close(context.Background()) })
		lease, err := locks.Lock(t.Context(), "k")
		if err != nil {
			t.Fatal(err)
		}
		var broken atomic.Int64
		proxy.OnUp(func(_ int, b []byte) netproxy.Action {
			if bytes.Contains(b, []byte("FOR UPDATE")) && !bytes.Contains(b, []byte("COMMIT")) && broken.Add(1) == 1 {
				return netproxy.CutAfterReply
			}
			return netproxy.Pass
		})
		if info, err := locks.ForceUnlock(t.Context(), "k"); err != nil || info.Token != lease.Token() {
			t.Fatalf("ForceUnlock: %+v, %v", info, err)
		}
		if broken.Load() == 0 {
			t.Fatal("no statement locks rows before the one that commits")
		}
		<-lease.Context().Done()
	})
}
