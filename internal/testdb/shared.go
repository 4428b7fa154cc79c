package testdb

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"

	"github.com/sqllock/sqllock/internal/testdb/supervisor"
)

// active is set by Main. Without Main, the supervisor, which is the same program, would
// run the tests again.
var active atomic.Bool

// The supervisor of this process and the shared servers, each once and when needed.
var (
	supervisorMu sync.Mutex
	running      *supervisor.Supervisor

	serversMu sync.Mutex
	servers   = make(map[string]func() (string, error))

	templatesMu sync.Mutex
	templates   = make(map[string]func() (string, error))

	adminsMu sync.Mutex
	admins   = make(map[string]*sql.DB) // by the DSN of their server
)

// adminOf returns the handle that creates and drops databases on d's server.
func adminOf(d *Database) (*sql.DB, error) {
	adminsMu.Lock()
	defer adminsMu.Unlock()
	db, ok := admins[d.base]
	if ok {
		return db, nil
	}
	db, err := d.open(d.base)
	if err == nil {
		admins[d.base] = db
	}
	return db, err
}

// closeAdmins ends the sessions of adminOf.
func closeAdmins() error {
	adminsMu.Lock()
	defer adminsMu.Unlock()
	var err error
	for base, db := range admins {
		err = errors.Join(err, db.Close())
		delete(admins, base)
	}
	return err
}

// template returns a directory with the files of a server that was never started. It is made
// when the first server starts, and is removed with the supervisor.
func template(e engine) (dir string, err error) {
	templatesMu.Lock()
	get, ok := templates[e.name()]
	if !ok {
		get = sync.OnceValues(func() (string, error) { return makeTemplate(e) })
		templates[e.name()] = get
	}
	templatesMu.Unlock()
	return get()
}

func makeTemplate(e engine) (string, error) {
	i, err := newInstance(e, nil)
	if err != nil {
		return "", err
	}
	if err := i.initialise(); err != nil {
		return "", fmt.Errorf("%w\n%s", err, i.logTail())
	}
	return i.dir, nil
}

// theSupervisor returns the supervisor of this process.
func theSupervisor() (*supervisor.Supervisor, error) {
	supervisorMu.Lock()
	defer supervisorMu.Unlock()
	if running != nil {
		return running, nil
	}
	w, err := supervisor.Start()
	if err != nil {
		return nil, err
	}
	running = w
	return w, nil
}

// stopAll ends all servers.
func stopAll() error {
	supervisorMu.Lock()
	defer supervisorMu.Unlock()
	if running == nil {
		return nil
	}
	err := running.Close()
	running = nil
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
	i, err := launch(e, false, e.generous())
	if err != nil {
		return "", err
	}
	return i.dsn(), nil
}

// inspect checks that an address leads to the engine that its variable names. Otherwise
// the coverage report would be wrong.
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
	ctx, cancel := context.WithTimeout(context.Background(), stepTimeout)
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
