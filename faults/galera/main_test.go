//go:build linux && galera

// Package galera tests on a cluster of three nodes what the library promises on Galera. make galera
// runs it.
package galera

import (
	"context"
	"database/sql"
	"fmt"
	"io"
	"os"
	"testing"
	"time"

	"github.com/sqllock/sqllock"
	"github.com/sqllock/sqllock/faults/internal/server"
	"github.com/sqllock/sqllock/internal/testdb/supervisor"
	"github.com/sqllock/sqllock/lockmysql"
	"github.com/sqllock/sqllock/migrations"
)

// cluster is for all tests. They run one at a time.
var cluster *server.Server

func TestMain(m *testing.M) {
	supervisor.Main()
	if do := os.Getenv(envDo); do != "" {
		if err := migrate(do, os.Getenv(envDSN)); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	code, err := run(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

func run(m *testing.M) (code int, err error) {
	w, err := supervisor.Start()
	if err != nil {
		return 0, err
	}
	defer func() {
		if e := w.Close(); err == nil {
			err = e
		}
	}()
	if cluster, err = server.Start(w, server.Galera, false); err != nil {
		return 0, err
	}
	code = m.Run()
	return code, cluster.Remove()
}

// node is a handle of a node, and a Locker on it.
type node struct {
	db    *sql.DB
	locks *sqllock.Locker
}

// dsn is that of a node, whose reads do not wait for what other nodes have committed.
func dsn(number int) string {
	return "root@tcp(" + cluster.Nodes()[number].Addr() + ")/faults?interpolateParams=true"
}

func open(t *testing.T, number int) *sql.DB {
	t.Helper()
	db, err := sql.Open("mysql", dsn(number))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	return db
}

// start makes the tables and returns three nodes.
func start(t *testing.T) (all []*node) {
	t.Helper()
	for i := range cluster.Nodes() {
		n := &node{db: open(t, i)}
		all = append(all, n)
		if i == 0 {
			if err := migrations.Up(t.Context(), lockmysql.DB(n.db)); err != nil {
				t.Fatal(err)
			}
			mustExec(t, n.db, `CREATE TABLE IF NOT EXISTS work (id INT AUTO_INCREMENT PRIMARY KEY, name VARCHAR(64), who VARCHAR(64))`)
			mustExec(t, n.db, `CREATE TABLE IF NOT EXISTS bulk (id INT AUTO_INCREMENT PRIMARY KEY, filler VARCHAR(200))`)
		}
		settle(t, n.db)
		var err error
		n.locks, err = sqllock.NewUnique(t.Context(), lockmysql.DB(n.db), &sqllock.UniqueOptions{
			TTL: 30 * time.Second, Logger: logTo(io.Discard),
		})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
			defer cancel()
			if err := n.locks.Close(ctx); err != nil {
				t.Error(err)
			}
		})
	}
	return all
}

// settle waits until a node has what the cluster had committed.
func settle(t *testing.T, db *sql.DB) {
	t.Helper()
	conn, err := db.Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	for _, text := range []string{`SET SESSION wsrep_sync_wait = 7`, `SELECT 1`, `SET SESSION wsrep_sync_wait = 0`} {
		if _, err := conn.ExecContext(t.Context(), text); err != nil {
			t.Fatal(err)
		}
	}
}

func mustExec(t *testing.T, db *sql.DB, text string, args ...any) {
	t.Helper()
	if _, err := db.ExecContext(t.Context(), text, args...); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
}

// number returns what a query answers.
func number(t *testing.T, db *sql.DB, text string, args ...any) (n int64) {
	t.Helper()
	if err := db.QueryRowContext(t.Context(), text, args...).Scan(&n); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return n
}
