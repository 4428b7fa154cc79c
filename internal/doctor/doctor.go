// Package doctor finds what is wrong with a database in which locks are kept, and says what to
// do about it. It changes nothing.
package doctor

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/sqllock/sqllock/driver"
	"github.com/sqllock/sqllock/internal/output"
)

const (
	// clockTolerance is how far two clocks may differ without a warning.
	clockTolerance = 2 * time.Second
	// longTransaction is how old a transaction may be. An older one keeps the database from
	// removing old versions of rows that change every few seconds.
	longTransaction = time.Minute
	// shortTimeout is a time-out that ends good statements of the library: they wait for a
	// locked row for a second.
	shortTimeout = 2 * time.Second
	// shortIdle is how long connections of the library are idle between two renewals, or in
	// the pool.
	shortIdle = time.Minute
)

// Database is what doctor needs of a database.
type Database interface {
	driver.Migratable
	// Conn returns a connection, which doctor closes.
	Conn(ctx context.Context) (*sql.Conn, error)
	// File returns how findings name the file of SQLite, "" for a server.
	File() string
	// Modes are the modes to try: Modes, or the first of them.
	Modes() []string
	// TryMode opens a Locker of the mode unique, forupdate or advisory, and closes it. It
	// returns ErrNotOffered if no database of this kind has the mode.
	TryMode(ctx context.Context, mode string) error
}

// ErrNotOffered is returned by [Database.TryMode].
var ErrNotOffered = errors.New("not with this kind of database")

// Modes are the names of all modes. Doctor calls a database bad if it does not offer the first.
var Modes = []string{unique, forUpdate, advisory}

const (
	unique    = "unique"
	forUpdate = "forupdate"
	advisory  = "advisory"
)

// Grade says how serious a finding is.
type Grade string

// The grades. With a finding that is bad, locks cannot be used, or cannot be trusted.
const (
	OK   Grade = "ok"
	Warn Grade = "warn"
	Bad  Grade = "bad"
)

// Finding is one thing that doctor has found.
type Finding struct {
	Grade  Grade
	About  string // one or two words
	Text   string // can repeat messages of the server, which name accounts
	Advice string // what to do about it, or ""

	// MigrateUp says that something is missing which a migration makes. The advice is to run
	// "sqllock migrate up".
	MigrateUp bool
}

// Check checks a database and reports each finding at once. The error says that the database
// could not be checked to the end.
func Check(ctx context.Context, db Database, report func(Finding)) error {
	m, err := db.Migration()
	if err != nil {
		return err
	}
	defer func() { _ = m.Close() }()
	conn, err := db.Conn(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	c := &checker{report: report, conn: conn, tables: tableNames(m)}
	var checks []check
	switch m.Dialect {
	case "postgres":
		checks = postgresChecks(c)
	case "mysql":
		checks = mysqlChecks(c)
	default:
		checks = sqliteChecks(c, db.File(), m.Retryable)
	}
	if err := c.run(ctx, checks, conn.PingContext); err != nil {
		return err
	}
	_ = conn.Close() // the account may have this one connection only
	c.tryModes(ctx, db)
	return nil
}

// check is one thing to check. An error says that it could not be checked.
type check struct {
	about string
	run   func(ctx context.Context) error
}

// checker checks one database.
type checker struct {
	conn *sql.Conn
	tables
	report func(Finding)

	failed    bool // a finding is bad
	unusable  bool // nothing else is worth a check
	hasTables bool
	outdated  bool // the tables are older than this program

	lackingModes []string // for which the account lacks privileges
}

// run runs the checks one by one. If the server refuses to tell something, that is a warning.
// If the server is not alive any more, run ends.
func (c *checker) run(ctx context.Context, checks []check, alive func(context.Context) error) error {
	for _, k := range checks {
		if c.unusable {
			return nil
		}
		err := k.run(ctx)
		if err == nil {
			continue
		}
		if alive(ctx) != nil {
			return err
		}
		c.warn(k.about, "this could not be looked at: "+err.Error(), "see whether the account may read it")
	}
	return nil
}

// withTables leaves out a check of tables that do not exist.
func (c *checker) withTables(run func(context.Context) error) func(context.Context) error {
	return func(ctx context.Context) error {
		if !c.hasTables {
			return nil
		}
		return run(ctx)
	}
}

func (c *checker) ok(about, text string) { c.report(Finding{Grade: OK, About: about, Text: text}) }

func (c *checker) warn(about, text, advice string) {
	c.report(Finding{Grade: Warn, About: about, Text: text, Advice: advice})
}

func (c *checker) bad(about, text, advice string) {
	c.failed = true
	c.report(Finding{Grade: Bad, About: about, Text: text, Advice: advice})
}

// unmigrated reports what is bad because migrations were not applied. The advice says so, and
// goes on with more.
func (c *checker) unmigrated(about, text, more string) {
	c.failed = true
	c.report(Finding{Grade: Bad, About: about, Text: text, Advice: "run \"sqllock migrate up\"" + more, MigrateUp: true})
}

// one scans the only row of a query.
func (c *checker) one(ctx context.Context, query string, args []any, into ...any) error {
	return c.conn.QueryRowContext(ctx, query, args...).Scan(into...)
}

// each calls scan for each row of a query.
func (c *checker) each(ctx context.Context, query string, args []any, scan func(*sql.Rows) error) error {
	rows, err := c.conn.QueryContext(ctx, query, args...)
	if err != nil {
		return err
	}
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		if err := scan(rows); err != nil {
			return err
		}
	}
	return rows.Err()
}

// reportTimeouts reports time-outs, by name, that end statements or connections.
func (c *checker) reportTimeouts(timeouts map[string]time.Duration) {
	sound := true
	for _, name := range slices.Sorted(maps.Keys(timeouts)) {
		least := shortTimeout
		if strings.HasPrefix(name, "idle") || name == "wait_timeout" {
			least = shortIdle
		}
		if timeout := timeouts[name]; timeout > 0 && timeout < least {
			sound = false
			c.warn("time-outs", fmt.Sprintf("%s is %v, which ends what is in order", name, timeout),
				fmt.Sprintf("set it to %v at least for this account", least))
		}
	}
	if sound {
		c.ok("time-outs", "none that would end statements or connections of ours")
	}
}

// clock compares the clock of the server with that of this host. The query returns
// microseconds since the epoch.
func (c *checker) clock(ctx context.Context, query string) error {
	const rounds = 3 // one of them will be quick
	var least time.Duration
	for i := range rounds {
		before := time.Now()
		var micros int64
		if err := c.one(ctx, query, nil, &micros); err != nil {
			return err
		}
		if off := clockOffset(time.UnixMicro(micros), before, time.Now()); i == 0 || off.Abs() < least.Abs() {
			least = off
		}
	}
	if least.Abs() <= clockTolerance {
		c.ok("clock", "the server's clock and this host's agree")
		return nil
	}
	direction := "ahead of"
	if least < 0 {
		direction = "behind"
	}
	c.warn("clock", fmt.Sprintf("the server's clock is %v %s this host's", least.Abs().Round(time.Millisecond), direction),
		"locks do not depend on it, but times in logs will not match: let both follow a time server")
	return nil
}

// clockOffset returns by how much a clock is ahead at least, if it was read between two
// moments of ours.
func clockOffset(read, before, after time.Time) time.Duration {
	switch {
	case read.After(after):
		return read.Sub(after)
	case read.Before(before):
		return read.Sub(before)
	}
	return 0
}

// reportOldest reports the age of the oldest transaction. The text unseen says how many
// transactions the account may not see.
func (c *checker) reportOldest(age time.Duration, unseen, harm, advice string) {
	if age < longTransaction {
		c.ok("transactions", "none is older than "+output.Duration(longTransaction)+unseen)
		return
	}
	c.warn("transactions", "one has been open for "+output.Duration(age)+": "+harm, advice)
}

// version compares the version of the tables with that of this program.
func (c *checker) version(ctx context.Context) error {
	var version, compatible int64
	err := c.one(ctx, "SELECT schema_version, compatible_from FROM "+c.meta, nil, &version, &compatible)
	if IsDenied(err) {
		c.bad("migrations", "this account may not read "+c.meta, "see \"privileges\" below")
		return nil
	}
	if err != nil {
		c.unmigrated("migrations", "table "+c.meta+" cannot be read: "+err.Error(), " with an account that may create tables")
		return nil
	}
	switch mine := c.needed; {
	case compatible > mine:
		c.bad("migrations", fmt.Sprintf("the tables are of version %d, which needs a newer sqllock than this one (%d)", version, mine), "update sqllock")
	case version < driver.FirstSchema:
		c.outdated = true
		c.bad("migrations", fmt.Sprintf("the tables are of version %d, older than any that was released", version),
			"run \"sqllock migrate down --force\", which drops them and all locks in them, and \"sqllock migrate up\"")
	case version < mine:
		c.outdated = true
		c.unmigrated("migrations", fmt.Sprintf("the tables are of version %d, older than this program's (%d)", version, mine), "")
	case version > mine:
		c.ok("migrations", fmt.Sprintf("the tables are of version %d, newer than this program (%d), which can work with them", version, mine))
	default:
		c.ok("migrations", fmt.Sprintf("version %d", version))
	}
	return nil
}

// tryModes asks the library itself whether it accepts the database, unless something is bad.
// So doctor never praises a database that "sqllock run" refuses.
func (c *checker) tryModes(ctx context.Context, db Database) {
	if c.failed {
		return
	}
	for _, m := range db.Modes() {
		if slices.Contains(c.lackingModes, m) { // the constructor need not notice that
			c.warn("locks", m+": the account lacks privileges", "see above")
			continue
		}
		switch err := db.TryMode(ctx, m); {
		case err == nil:
			c.ok("locks", m+": sqllock works with this database")
		case errors.Is(err, ErrNotOffered):
			c.ok("locks", m+": "+ErrNotOffered.Error())
		case m == unique:
			c.bad("locks", m+": sqllock refuses this database: "+err.Error(), "see the message")
			return
		default:
			c.warn("locks", m+": sqllock refuses this database: "+err.Error(), "you can use unique mode, which needs no other mode")
		}
	}
}

// IsDenied reports that the account lacks a privilege.
func IsDenied(err error) bool {
	if pg := (*pgconn.PgError)(nil); errors.As(err, &pg) {
		return pg.Code == "42501" // insufficient_privilege
	}
	my := (*mysql.MySQLError)(nil)
	// ER_TABLEACCESS_DENIED_ERROR, ER_COLUMNACCESS_DENIED_ERROR, ER_PROCACCESS_DENIED_ERROR
	return errors.As(err, &my) && (my.Number == 1142 || my.Number == 1143 || my.Number == 1370)
}
