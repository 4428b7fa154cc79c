package k8slock_test

import (
	"context"
	"database/sql"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/klog/v2"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/sqllock/sqllock/internal/testdb"
	k8slock "github.com/sqllock/sqllock/k8s"
	"github.com/sqllock/sqllock/lockmysql"
	"github.com/sqllock/sqllock/lockpg"
	"github.com/sqllock/sqllock/locksqlite"
	"github.com/sqllock/sqllock/migrations"
)

func TestMain(m *testing.M) {
	klog.SetLogger(logr.Discard()) // client-go logs there
	ctrllog.SetLogger(logr.Discard())
	if os.Getenv(envEngine) != "" {
		if err := candidate(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	testdb.Main(m)
}

// testTimeout is more than anything takes.
const testTimeout = time.Minute

// Times of elections. client-go counts leases in whole seconds.
const (
	leaseDuration = 4 * time.Second
	renewDeadline = 3 * time.Second
	retryPeriod   = 100 * time.Millisecond
)

func target(engine string, db *sql.DB) k8slock.Database {
	switch engine {
	case testdb.Postgres:
		return lockpg.DB(db)
	case testdb.SQLite:
		return locksqlite.DB(db)
	}
	return lockmysql.DB(db)
}

// onEach runs a test on each database, with the tables made.
func onEach(t *testing.T, engines []string, test func(t *testing.T, d *testdb.Database, db *sql.DB)) {
	t.Parallel()
	for _, engine := range engines {
		t.Run(engine, func(t *testing.T) {
			t.Parallel()
			d := testdb.New(t, engine)
			db := d.Open(t)
			if err := migrations.Up(t.Context(), target(engine, db)); err != nil {
				t.Fatal(err)
			}
			test(t, d, db)
		})
	}
}

func newLock(t *testing.T, d *testdb.Database, db *sql.DB, identity string) *k8slock.Lock {
	t.Helper()
	l, err := k8slock.New(t.Context(), target(d.Engine(), db), "controller", identity, nil)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func mustExec(t *testing.T, db *sql.DB, text string, args ...any) {
	t.Helper()
	if _, err := db.ExecContext(t.Context(), text, args...); err != nil {
		t.Fatal(err)
	}
}

// record is one of a leader.
func record(holder string) resourcelock.LeaderElectionRecord {
	return resourcelock.LeaderElectionRecord{HolderIdentity: holder, LeaseDurationSeconds: int(leaseDuration / time.Second)}
}

func mustGet(t *testing.T, l *k8slock.Lock) (holder string, raw []byte) {
	t.Helper()
	r, raw, err := l.Get(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return r.HolderIdentity, raw
}

func mustUpdate(t *testing.T, l *k8slock.Lock, holder string) {
	t.Helper()
	if err := l.Update(t.Context(), record(holder)); err != nil {
		t.Fatal(err)
	}
}

// lead makes l the leader, as a candidate does that finds the lease expired.
func lead(t *testing.T, l *k8slock.Lock) (token int64) {
	t.Helper()
	mustGet(t, l)
	mustUpdate(t, l, l.Identity())
	return l.Token()
}

// elector is a run of client-go's leader election.
type elector struct {
	*leaderelection.LeaderElector
	leads chan int64    // its token, each time it leads
	done  chan struct{} // it has ended
	stop  context.CancelFunc
}

func elect(t *testing.T, l *k8slock.Lock, retry time.Duration) *elector {
	t.Helper()
	return electFor(t, l, leaseDuration, retry)
}

// electFor is elect with another LeaseDuration.
func electFor(t *testing.T, l *k8slock.Lock, lease, retry time.Duration) *elector {
	t.Helper()
	ctx, stop := context.WithCancel(context.Background())
	e := &elector{leads: make(chan int64, 1), done: make(chan struct{}), stop: stop}
	var err error
	e.LeaderElector, err = leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
		Lock: l, LeaseDuration: lease, RenewDeadline: renewDeadline, RetryPeriod: retry, ReleaseOnCancel: true,
		Callbacks: leaderelection.LeaderCallbacks{
			OnStartedLeading: func(context.Context) { e.leads <- l.Token() },
			OnStoppedLeading: func() {},
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(e.done)
		e.Run(ctx)
	}()
	t.Cleanup(func() {
		stop()
		<-e.done
	})
	return e
}

// token waits until it leads.
func (e *elector) token(t *testing.T) int64 {
	t.Helper()
	select {
	case token := <-e.leads:
		return token
	case <-time.After(testTimeout):
		t.Fatal("it does not lead")
		return 0
	}
}
