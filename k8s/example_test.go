package k8slock_test

import (
	"context"
	"database/sql"
	"fmt"
	"log"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/leaderelection"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	metrics "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	k8slock "github.com/sqllock/sqllock/k8s"
	"github.com/sqllock/sqllock/lockpg"
	"github.com/sqllock/sqllock/locksqlite"
	"github.com/sqllock/sqllock/migrations"
)

func readmeElector(ctx context.Context, db *sql.DB, identity string) error {
	lock, err := k8slock.New(ctx, lockpg.DB(db), "invoices/controller", identity, nil)
	if err != nil {
		return err
	}
	elector, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
		Lock:            lock,
		LeaseDuration:   15 * time.Second,
		RenewDeadline:   10 * time.Second,
		RetryPeriod:     2 * time.Second,
		ReleaseOnCancel: true,
		Callbacks: leaderelection.LeaderCallbacks{
			OnStartedLeading: func(ctx context.Context) { work(ctx, db, lock, lock.Token()) },
			OnStoppedLeading: func() { log.Print("it does not lead any more") },
		},
	})
	if err != nil {
		return err
	}
	elector.Run(ctx)
	return nil
}

func readmeManager(ctx context.Context, db *sql.DB, lock *k8slock.Lock) error {
	m, err := manager.New(&rest.Config{Host: "http://127.0.0.1:1"}, manager.Options{
		LeaderElection:                      true,
		LeaderElectionResourceLockInterface: lock,
		LeaderElectionReleaseOnCancel:       true,
		Metrics:                             metrics.Options{BindAddress: "0"},
	})
	if err != nil {
		return err
	}
	if err := m.Add(manager.RunnableFunc(func(ctx context.Context) error {
		return work(ctx, db, lock, lock.Token())
	})); err != nil {
		return err
	}
	return m.Start(ctx)
}

func work(ctx context.Context, db *sql.DB, lock *k8slock.Lock, token int64) error {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback()
	if err := lock.Guard(ctx, tx, token); err != nil {
		return err // sqllock.ErrFenced: another one leads, or led
	}
	if _, err := tx.ExecContext(ctx, `UPDATE invoice SET sent = true WHERE id = 42`); err != nil {
		return err
	}
	return tx.Commit()
}

// Two candidates, one after the other. The first writes as the leader, and then gives up.
func Example() {
	dir, err := os.MkdirTemp("", "k8slock")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	db, err := sql.Open("sqlite", "file:"+filepath.Join(dir, "locks.db")+"?_pragma=journal_mode(wal)&_pragma=busy_timeout(5000)")
	if err != nil {
		log.Fatal(err)
	}
	defer db.Close()
	ctx := context.Background()
	if err := migrations.Up(ctx, locksqlite.DB(db)); err != nil {
		log.Fatal(err)
	}
	if _, err := db.ExecContext(ctx, `CREATE TABLE invoice (id INTEGER, sent INTEGER)`); err != nil {
		log.Fatal(err)
	}
	for _, identity := range []string{"host-1", "host-2"} {
		lock, err := k8slock.New(ctx, locksqlite.DB(db), "invoices/controller", identity, nil)
		if err != nil {
			log.Fatal(err)
		}
		ctx, stop := context.WithCancel(ctx)
		leaderelection.RunOrDie(ctx, leaderelection.LeaderElectionConfig{
			Lock: lock, LeaseDuration: 15 * time.Second, RenewDeadline: 10 * time.Second, RetryPeriod: 2 * time.Second,
			ReleaseOnCancel: true,
			Callbacks: leaderelection.LeaderCallbacks{
				OnStartedLeading: func(ctx context.Context) {
					fmt.Println(identity, "leads and writes:", work(ctx, db, lock, lock.Token()))
					stop()
				},
				OnStoppedLeading: func() { fmt.Println(identity, "does not lead any more") },
			},
		})
	}
	// Output:
	// host-1 leads and writes: <nil>
	// host-1 does not lead any more
	// host-2 leads and writes: <nil>
	// host-2 does not lead any more
}

func TestTheReadmeShowsCodeThatCompiles(t *testing.T) {
	_, _ = readmeElector, readmeManager // compiled here
	source, err := os.ReadFile("example_test.go")
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	blocks := regexp.MustCompile("(?ms)^```go\n(.*?)\n```$").FindAllStringSubmatch(string(text), -1)
	if len(blocks) != 3 {
		t.Errorf("there are %d blocks", len(blocks))
	}
	for _, b := range blocks {
		if indented := "\t" + strings.ReplaceAll(b[1], "\n", "\n\t") + "\n"; !strings.Contains(string(source), indented) {
			t.Errorf("this is not in example_test.go:\n%s", b[1])
		}
	}
}
