package k8slock_test

import (
	"context"
	"database/sql"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	metrics "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/sqllock/sqllock/internal/testdb"
	k8slock "github.com/sqllock/sqllock/k8s"
)

func TestClientGoElectsTheNextWhenTheLeaderStops(t *testing.T) {
	onEach(t, testdb.All(), func(t *testing.T, d *testdb.Database, db *sql.DB) {
		first := elect(t, newLock(t, d, db, "a"), retryPeriod)
		token := first.token(t)
		second := elect(t, newLock(t, d, db, "b"), retryPeriod)
		select {
		case <-second.leads:
			t.Fatal("two lead")
		case <-time.After(5 * retryPeriod):
		}
		first.stop()
		<-first.done
		if next := second.token(t); next <= token {
			t.Errorf("token %d after %d", next, token)
		}
	})
}

// The cases are those of client-go's own tests. That a leader which renews goes on to lead is
// tested above.
func TestWhatTheRecordSaysDecidesWhenClientGoLeads(t *testing.T) {
	for name, former := range map[string]func(t *testing.T, l *k8slock.Lock){
		"there is no record": func(*testing.T, *k8slock.Lock) {},
		"nobody leads": func(t *testing.T, l *k8slock.Lock) {
			lead(t, l)
			mustUpdate(t, l, "")
		},
		"another leads, and is silent": func(t *testing.T, l *k8slock.Lock) { lead(t, l) },
		"the same identity leads":      func(t *testing.T, l *k8slock.Lock) { mustGet(t, l); mustUpdate(t, l, "candidate") },
	} {
		t.Run(name, func(t *testing.T) {
			onEach(t, []string{testdb.SQLite}, func(t *testing.T, d *testdb.Database, db *sql.DB) {
				other := newLock(t, d, db, "former")
				if name != "there is no record" {
					if err := other.Create(t.Context(), record("")); err != nil {
						t.Fatal(err)
					}
				}
				former(t, other)
				began := time.Now()
				e := elect(t, newLock(t, d, db, "candidate"), retryPeriod)
				token := e.token(t)
				waited := time.Since(began) >= leaseDuration
				if silent := strings.Contains(name, "silent"); silent && (!waited || token <= other.Token()) {
					t.Errorf("it led before the other's lease had expired, or with token %d after %d", token, other.Token())
				}
				e.stop()
				<-e.done
				if holder, _ := mustGet(t, other); holder != "" {
					t.Errorf("%q leads after the end", holder)
				}
			})
		})
	}
}

func TestClientGoReleasesNobodyElse(t *testing.T) {
	onEach(t, []string{testdb.SQLite}, func(t *testing.T, d *testdb.Database, db *sql.DB) {
		former := elect(t, newLock(t, d, db, "a"), renewDeadline/2) // which notices nothing for so long
		former.token(t)
		b := newLock(t, d, db, "b")
		lead(t, b)
		former.stop()
		<-former.done
		if holder, _ := mustGet(t, b); holder != "b" {
			t.Errorf("%q leads", holder)
		}
	})
}

// newManager returns a manager without an API server. Its one Runnable says that it leads.
func newManager(l *k8slock.Lock, leads func(ctx context.Context)) (manager.Manager, error) {
	lease, renew, retry, grace := leaseDuration, renewDeadline, retryPeriod, time.Second
	m, err := manager.New(&rest.Config{Host: "http://127.0.0.1:1"}, manager.Options{
		LeaderElection: true, LeaderElectionResourceLockInterface: l, LeaderElectionReleaseOnCancel: true,
		LeaseDuration: &lease, RenewDeadline: &renew, RetryPeriod: &retry, GracefulShutdownTimeout: &grace,
		Metrics: metrics.Options{BindAddress: "0"}, Logger: logr.Discard(),
	})
	if err != nil {
		return nil, err
	}
	return m, m.Add(manager.RunnableFunc(func(ctx context.Context) error {
		leads(ctx)
		<-ctx.Done()
		return nil
	}))
}

func TestManagersOfControllerRuntimeLeadOneAfterTheOther(t *testing.T) {
	onEach(t, testdb.All(), func(t *testing.T, d *testdb.Database, db *sql.DB) {
		leads := make(chan string, 2)
		run := func(identity string) (l *k8slock.Lock, stop func()) {
			l = newLock(t, d, db, identity)
			m, err := newManager(l, func(context.Context) { leads <- identity })
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithCancel(context.Background())
			done := make(chan error, 1)
			go func() { done <- m.Start(ctx) }()
			var stopped bool
			stop = func() {
				if stopped {
					return
				}
				stopped = true
				cancel()
				if err := <-done; err != nil {
					t.Errorf("the manager of %s: %v", identity, err)
				}
			}
			t.Cleanup(stop)
			return l, stop
		}
		expect := func(want string) {
			t.Helper()
			select {
			case got := <-leads:
				if got != want {
					t.Fatalf("%s leads, not %s", got, want)
				}
			case <-time.After(testTimeout):
				t.Fatalf("%s does not lead", want)
			}
		}
		a, stop := run("a")
		expect("a")
		b, _ := run("b")
		time.Sleep(3 * retryPeriod)
		if len(leads) > 0 {
			t.Fatal("two lead")
		}
		stop()
		expect("b")
		if a.Token() >= b.Token() {
			t.Errorf("token %d after %d", b.Token(), a.Token())
		}
	})
}
