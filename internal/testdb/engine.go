package testdb

import (
	"context"
	"database/sql"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/sqllock/sqllock/internal/testdb/supervisor"
)

// dialect is how to connect to a database.
type dialect interface {
	driver() string // for sql.Open
	// open returns a handle for this package's own use, which does not log.
	open(dsn string) (*sql.DB, error)
	// dsn replaces the address, unless it is "", and the database of base.
	dsn(base, addr, database string, params []string) string
	// addr returns the server's host:port, "" if it is no DSN.
	addr(dsn string) string
}

// engine is a kind of server.
type engine interface {
	dialect
	name() string
	// find looks for installed programs. The error names the package to install.
	find() (programs, error)
	// account names users that the server may run as, the first that exists.
	account() []string
	// initialise and serve are the commands that make a server's files in dir and
	// run it on them.
	initialise(p programs, dir string) []string
	serve(p programs, dir string, port int) []string
	// generous are arguments for a server that many tests share.
	generous() []string
	// local is the DSN of a server that was started on addr.
	local(addr string) string
	// directory is a query for where the server has its files.
	directory() string
	// isVersion reports that it is a version of this engine, not of a relative.
	isVersion(version string) bool
	create(ctx context.Context, db *sql.DB, database string) error
	drop(ctx context.Context, db *sql.DB, database string) error
	// home is the database that tests with a server of their own use. The server
	// may be read-only.
	home(ctx context.Context, db *sql.DB) (database string, err error)
	// stop asks the server to end in order, without waiting for its clients.
	stop(w *supervisor.Supervisor, pid int) error
}

// engines are all kinds of servers, in the order of their appearance.
var engines = []engine{postgresEngine{}, mysqlEngine{MariaDB}, mysqlEngine{MySQL}}

// none as an address leaves the engine out although it is installed.
const none = "none"

// variable returns the environment variable with an engine's address.
func variable(name string) string { return "SQLLOCK_TEST_" + strings.ToUpper(name) + "_DSN" }

// absentReason returns why an engine is not available and how to change that, or "" if it
// is available.
func absentReason(e engine) string {
	switch os.Getenv(variable(e.name())) {
	case "":
		return unstartableReason(e)
	case none:
		return fmt.Sprintf("left out by %s=%s", variable(e.name()), none)
	}
	return ""
}

// unstartableReason is absentReason for a server of one's own.
func unstartableReason(e engine) string {
	if os.Getenv(variable(e.name())) == none {
		return absentReason(e)
	}
	if _, err := e.find(); err != nil {
		return err.Error()
	}
	return ""
}

func engineOf(name string) engine {
	i := slices.IndexFunc(engines, func(e engine) bool { return e.name() == name })
	if i < 0 {
		return nil
	}
	return engines[i]
}

// mustEngine returns an engine, or fails the test.
func mustEngine(t testing.TB, name string) engine {
	t.Helper()
	e := engineOf(name)
	if e == nil {
		t.Fatalf("testdb: no database is named %q", name)
	}
	if !active.Load() {
		t.Fatal("testdb: the package's TestMain does not call testdb.Main")
	}
	return e
}
