package lockpg_test

import (
	"bytes"
	"sync"
	"testing"
	"time"

	"github.com/sqllock/sqllock/driver"
	"github.com/sqllock/sqllock/internal/netproxy"
)

// A client that is paused, or vanishes, before it commits what a statement has done
// keeps the rows that this has locked, until the server ends its transaction.
func TestAClientThatIsPausedBeforeItsCommitKeepsNothing(t *testing.T) {
	const (
		short   = 500 * time.Millisecond
		healthy = 3 * time.Second
		isolate = "default_transaction_isolation=repeatable read"
	)
	release := func(s driver.LeaseStore, name string, n int, version int64) error {
		_, err := s.Release(t.Context(), []driver.ReleaseRequest{{Name: name, Acq: acq(n), Version: version}})
		return err
	}
	renewal := func(name string, n int, version int64, ttl time.Duration) []driver.RenewRequest {
		return []driver.RenewRequest{{Name: name, Acq: acq(n), Version: version, TTL: ttl, Holds: 1, Shared: name == "mend"}}
	}
	for name, c := range map[string]struct {
		params  []string
		prepare func(paused, other driver.LeaseStore) (version int64)
		pause   func(paused driver.LeaseStore, version int64) error // up to its commit
	}{
		"grant": {
			params:  []string{isolate},
			prepare: func(_, _ driver.LeaseStore) int64 { return 0 },
			pause: func(paused driver.LeaseStore, _ int64) error {
				_, err := paused.Grant(t.Context(), []driver.GrantRequest{request("grant", 1, short)})
				return err
			},
		},
		"renew": {
			params: []string{isolate},
			prepare: func(paused, _ driver.LeaseStore) int64 {
				return grant(t, paused, request("renew", 1, short))[0].Version
			},
			pause: func(paused driver.LeaseStore, version int64) error {
				_, err := paused.Renew(t.Context(), renewal("renew", 1, version, short), false)
				return err
			},
		},
		"release": {
			params: []string{isolate},
			prepare: func(paused, _ driver.LeaseStore) int64 {
				return grant(t, paused, request("release", 1, short))[0].Version
			},
			pause: func(paused driver.LeaseStore, version int64) error { return release(paused, "release", 1, version) },
		},
		"mend": { // one reader has crashed, the other is well, and a third party only tries
			prepare: func(_, other driver.LeaseStore) int64 {
				crashed, well := reader("mend", 2), reader("mend", 3)
				crashed.TTL, well.TTL = time.Millisecond, healthy
				version := grant(t, other, well)[0].Version
				grant(t, other, crashed)
				time.Sleep(10 * time.Millisecond)
				return version
			},
			pause: func(paused driver.LeaseStore, _ int64) error {
				_, err := paused.Grant(t.Context(), []driver.GrantRequest{request("mend", 1, short)})
				return err
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := shared(t)
			db := d.Open(t)
			migrate(t, db)
			proxy := netproxy.New(t, d.Addr())
			defer proxy.Thaw()
			paused, other := open(t, d.OpenVia(t, proxy.Addr(), c.params...)), open(t, db)
			version := c.prepare(paused, other)
			frozen := make(chan struct{})
			freeze := sync.OnceFunc(func() { proxy.Freeze(); close(frozen) })
			proxy.OnUp(func(_ int, b []byte) netproxy.Action {
				if bytes.Contains(b, []byte("commit\x00")) {
					freeze()
				}
				return netproxy.Pass
			})
			done := make(chan error, 1)
			go func() { done <- c.pause(paused, version) }()
			select {
			case <-frozen:
			case err := <-done:
				t.Fatalf("the call ended without a commit: %v", err)
			}
			if name == "mend" {
				for end := time.Now().Add(healthy - short); ; {
					res, err := other.Renew(t.Context(), renewal(name, 3, version, healthy), true)
					if err == nil && res.Status[0] == driver.Renewed {
						break
					}
					if time.Now().After(end) {
						t.Fatalf("a healthy reader is not renewed: %v, %v", res.Status, err)
					}
				}
				return
			}
			for end := time.Now().Add(5 * time.Second); ; time.Sleep(20 * time.Millisecond) {
				res, err := other.Grant(t.Context(), []driver.GrantRequest{request(name, 4, time.Minute)})
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
			} else if paused.Classify(err) != driver.Unclear {
				t.Errorf("the paused client was told %v", err)
			}
		})
	}
}
