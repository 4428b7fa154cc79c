package lockpg_test

import (
	"bytes"
	"database/sql"
	"sync"
	"testing"
	"time"

	"github.com/sqllock/sqllock/driver"
	"github.com/sqllock/sqllock/internal/netproxy"
	"github.com/sqllock/sqllock/internal/testdb"
	"github.com/sqllock/sqllock/lockpg"
)

// A client that is paused, or vanishes, before it commits what a statement has done
// keeps the rows that this has locked, until the server ends its transaction.
func TestAClientThatIsPausedBeforeItsCommitKeepsNothing(t *testing.T) {
	const (
		short   = 2 * time.Second
		isolate = "default_transaction_isolation=repeatable read"
		commit  = "COMMIT\x00"
		decided = "SET version = r.version" // what a visit writes is sent
	)
	pgx := func(t *testing.T, d *testdb.Database, addr string) *sql.DB { return d.OpenVia(t, addr) }
	other := func(t *testing.T, d *testdb.Database, addr string) *sql.DB { return hide(t, d.DSNVia(addr)) }
	isolated := func(t *testing.T, d *testdb.Database, addr string) *sql.DB { return hide(t, d.DSNVia(addr, isolate)) }
	free := func(driver.Store, string) int64 { return 0 }
	held := func(s driver.Store, name string) int64 { return grant(t, s, request(name, 1, short))[0].Version }
	enter := func(s driver.Store, name string, _ int64) error {
		_, err := s.Acquire(t.Context(), []driver.AcquireRequest{waiter(name, 1)})
		return err
	}
	for name, c := range map[string]struct {
		open    func(t *testing.T, d *testdb.Database, addr string) *sql.DB
		until   string // the client is paused when it sends this
		prepare func(s driver.Store, name string) (version int64)
		pause   func(s driver.Store, name string, version int64) error
	}{
		"a visit":                        {pgx, decided, free, enter},
		"a visit through another driver": {other, commit, free, enter},
		"grant": {isolated, commit, free, func(s driver.Store, name string, _ int64) error {
			_, err := s.Acquire(t.Context(), []driver.AcquireRequest{request(name, 1, short)})
			return err
		}},
		"renew": {isolated, commit, held, func(s driver.Store, name string, version int64) error {
			_, err := s.Renew(t.Context(), []driver.RenewRequest{{Name: name, Acq: acq(1), Version: version, TTL: short, Holds: 1}}, false)
			return err
		}},
		"release": {isolated, commit, held, func(s driver.Store, name string, version int64) error {
			_, err := s.Release(t.Context(), []driver.ReleaseRequest{{Name: name, Acq: acq(1), Version: version}})
			return err
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := withTables(t)
			db := d.Open(t)
			proxy := netproxy.New(t, d.Addr())
			defer proxy.Thaw()
			opened := c.open(t, d, proxy.Addr())
			opened.SetMaxOpenConns(1)
			paused, other := open(t, opened), openAs(t, lockpg.DB(db), 1)
			version := c.prepare(other, name)
			frozen := make(chan struct{})
			freeze := sync.OnceFunc(func() { proxy.Freeze(); close(frozen) })
			proxy.OnUp(func(_ int, b []byte) netproxy.Action {
				if bytes.Contains(b, []byte(c.until)) {
					freeze()
				}
				return netproxy.Pass
			})
			done := make(chan error, 1)
			go func() { done <- c.pause(paused, name, version) }()
			select {
			case <-frozen:
			case err := <-done:
				t.Fatalf("the call ended without a commit: %v", err)
			}
			for end := time.Now().Add(30 * time.Second); ; time.Sleep(20 * time.Millisecond) {
				res, err := other.Acquire(t.Context(), []driver.AcquireRequest{request(name, 4, time.Minute)})
				if err == nil && res[0].Granted {
					break
				}
				if time.Now().After(end) {
					t.Fatalf("nobody gets the name: %+v, %v", res, err)
				}
			}
			proxy.Thaw()
			if err := <-done; err == nil {
				t.Error("the paused client was told that its transaction was committed")
			} else if classify(err) != driver.Again { // it can know that its transaction was undone
				t.Errorf("the paused client was told %v", err)
			}
		})
	}
}
