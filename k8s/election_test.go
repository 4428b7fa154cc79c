package k8slock_test

import (
	"context"
	"database/sql"
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
