package testdb

import (
	"context"
	"fmt"
	"os"
	"sync"
	"sync/atomic"

	"github.com/sqllock/sqllock/internal/testdb/warden"
)

// active is set by Main: without it a warden, being this very program, would run
// the tests once more.
var active atomic.Bool

// The warden of this process and the shared servers, each once and when needed.
var (
	wardenMu sync.Mutex
	guardian *warden.Warden

	serversMu sync.Mutex
	servers   = make(map[string]func() (string, error))
)

// theWarden returns the warden of this process.
func theWarden() (*warden.Warden, error) {
	wardenMu.Lock()
	defer wardenMu.Unlock()
	if guardian != nil {
		return guardian, nil
	}
	w, err := warden.Start()
	if err != nil {
		return nil, err
	}
	guardian = w
	return w, nil
}

// stopAll ends all servers.
func stopAll() error {
	wardenMu.Lock()
	defer wardenMu.Unlock()
	if guardian == nil {
		return nil
	}
	err := guardian.Close()
	guardian = nil
	return err
}

// sharedServer returns the DSN of the server that New uses, after having started
// it or looked at the one that the environment names.
func sharedServer(e engine) (string, error) {
	serversMu.Lock()
	get, ok := servers[e.name()]
	if !ok {
		get = sync.OnceValues(func() (string, error) { return prepare(e) })
		servers[e.name()] = get
	}
	serversMu.Unlock()
	return get()
}

func prepare(e engine) (string, error) {
	if reason := absentReason(e); reason != "" {
		return "", fmt.Errorf("no %s: %s", e.name(), reason)
	}
	if dsn := os.Getenv(variable(e.name())); dsn != "" {
		return dsn, inspect(e, dsn)
	}
	i, err := launch(e, e.generous())
	if err != nil {
		return "", err
	}
	return i.dsn(), nil
}

// inspect makes sure that an address is of the engine that it is said to be of:
// the report of what was covered must be true.
func inspect(e engine, dsn string) error {
	name := variable(e.name())
	if e.addr(dsn) == "" {
		return fmt.Errorf("%s is no address of %s", name, e.name())
	}
	db, err := e.open(dsn)
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	defer db.Close()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	var version string
	if err := db.QueryRowContext(ctx, "SELECT version()").Scan(&version); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	if !e.isVersion(version) {
		return fmt.Errorf("%s leads to another database: %s", name, version)
	}
	return nil
}
