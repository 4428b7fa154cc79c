package queuetest

import (
	"context"
	"database/sql"
	"errors"
	"testing"
	"time"

	"github.com/sqllock/sqllock/driver"
)

// KeepsAConnection tests that a store keeps one connection of its pool until it is idle. The
// pool db can open two connections, and open opens a store on it.
func KeepsAConnection(t *testing.T, db *sql.DB, open func(driver.Client) driver.Store, classify func(error) driver.Fault) {
	t.Helper()
	db.SetMaxOpenConns(2)
	store := open(driver.Client{Instance: newID(), Label: "test"})
	first := atOnce(writer("first"))
	res := enqueue(t, store, first)
	application := reserve(t, db)
	defer func() { _ = application.Close() }()
	free(t, store, held{first, res[0]}.release()) // on the reserved connection
	if n := db.Stats().InUse; n != 2 {
		t.Errorf("%d connections are in use", n)
	}
	if !store.CloseIdle() || db.Stats().InUse != 1 {
		t.Errorf("%d connections are in use after CloseIdle", db.Stats().InUse)
	}
	last := reserve(t, db)
	defer func() { _ = last.Close() }()
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	_, err := store.Acquire(ctx, []driver.AcquireRequest{atOnce(writer("late"))})
	if !errors.Is(err, driver.ErrNoConnection) || classify(err) != driver.Unreachable {
		t.Errorf("without a connection: %v", err)
	}
}

func reserve(t *testing.T, db *sql.DB) *sql.Conn {
	t.Helper()
	conn, err := db.Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return conn
}
