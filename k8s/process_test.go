package k8slock_test

import (
	"bufio"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"testing"

	_ "github.com/go-sql-driver/mysql"
	_ "github.com/jackc/pgx/v5/stdlib"
	"k8s.io/client-go/tools/leaderelection"
	_ "modernc.org/sqlite"

	"github.com/sqllock/sqllock"
	"github.com/sqllock/sqllock/internal/process"
	"github.com/sqllock/sqllock/internal/testdb"
	k8slock "github.com/sqllock/sqllock/k8s"
)

// The environment of the processes that tests start.
const (
	envEngine   = "K8SLOCK_TEST_ENGINE" // else it is no such process
	envDSN      = "K8SLOCK_TEST_DSN"
	envIdentity = "K8SLOCK_TEST_IDENTITY"
	envKind     = "K8SLOCK_TEST_KIND"

	asElector = "elector" // of client-go
	asManager = "manager" // of controller-runtime
)

// candidate is a process that wants to lead. It says when it leads and when it does not any more,
// which ends it. It writes for each line of its input.
func candidate() (err error) {
	engine, name := os.Getenv(envEngine), "mysql"
	switch engine {
	case testdb.Postgres:
		name = "pgx"
	case testdb.SQLite:
		name = "sqlite"
	}
	ctx, cancel := context.WithTimeout(context.Background(), testTimeout)
	defer cancel()
	db, err := sql.Open(name, os.Getenv(envDSN))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	l, err := k8slock.New(ctx, target(engine, db), "controller", os.Getenv(envIdentity), nil)
	if err != nil {
		return err
	}
	leads := func(context.Context) {
		token := l.Token()
		fmt.Println("leads", token)
		go answer(ctx, db, l, token)
	}
	if os.Getenv(envKind) == asManager {
		m, err := newManager(l, leads)
		if err != nil {
			return err
		}
		_ = m.Start(ctx) // "leader election lost"
		fmt.Println("stopped")
		return nil
	}
	leaderelection.RunOrDie(ctx, leaderelection.LeaderElectionConfig{
		Lock: l, LeaseDuration: leaseDuration, RenewDeadline: renewDeadline, RetryPeriod: retryPeriod,
		Callbacks: leaderelection.LeaderCallbacks{OnStartedLeading: leads, OnStoppedLeading: func() { fmt.Println("stopped") }},
	})
	return nil
}

// answer writes for each line of the input, as long as the term with the token is the current one.
func answer(ctx context.Context, db *sql.DB, l *k8slock.Lock, token int64) {
	for in := bufio.NewScanner(os.Stdin); in.Scan(); {
		switch err := write(ctx, db, l, token); {
		case err == nil:
			fmt.Println("wrote")
		case errors.Is(err, sqllock.ErrFenced):
			fmt.Println("fenced")
		default:
			fmt.Println(err)
		}
	}
}

func write(ctx context.Context, db *sql.DB, l *k8slock.Lock, token int64) error {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }()
	if err := l.Guard(ctx, tx, token); err != nil {
		return err
	}
	text := fmt.Sprintf(`INSERT INTO journal (id, token) SELECT COALESCE(MAX(id), 0) + 1, %d FROM journal`, token)
	if _, err := tx.ExecContext(ctx, text); err != nil {
		return err
	}
	return tx.Commit()
}

// start starts a candidate.
func start(t *testing.T, d *testdb.Database, identity, kind string) *process.Process {
	t.Helper()
	return process.Start(t, envEngine+"="+d.Engine(), envDSN+"="+d.DSN(), envIdentity+"="+identity, envKind+"="+kind)
}
