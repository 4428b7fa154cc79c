package main

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"os/user"
	"path/filepath"
	"runtime"
	"slices"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/urfave/cli/v3"
	_ "modernc.org/sqlite" // the driver "sqlite"

	"github.com/sqllock/sqllock/driver"
	"github.com/sqllock/sqllock/lockmysql"
	"github.com/sqllock/sqllock/lockpg"
	"github.com/sqllock/sqllock/locksqlite"
)

const (
	// maxConns is how many connections one process opens at most: one for renewals, and one
	// for all other statements.
	maxConns = 2
	// maxSessionConns is the same for the session modes, which keep one more connection
	// for the lock.
	maxSessionConns = 3
)

// locks is what the subcommands need of a database.
type locks interface {
	driver.UniqueDatabase
	driver.Migratable
}

// database is the database that the user named. It is opened when it is used
// first.
type database struct {
	locks
	handle *sql.DB
	modes  []mode // that the command is about, and that this kind of database offers
	file   string // of SQLite, which gets its tables by itself; "" on a server
	shown  string // how messages name the file; "" on a server

	// inMemory says that the default file does not exist. An empty database in memory takes
	// its place.
	inMemory bool

	silentHolders bool // of advisory mode are allowed

	// nodes are the databases of a quorum, which is no database by itself: it has modes, and
	// what follows, but none of the above.
	nodes       []*database
	faulty      int
	nodeTimeout time.Duration
}

// settings are the global flags that say where the tables of a database are, and what is
// allowed of it.
type settings struct {
	dsn, prefix, schema string

	// The library refuses these unless the option of the same name allows them.
	unsafeDurability, sessionPooler, silentHolders bool
}

func (a *app) settings(cmd *cli.Command) settings {
	get := func(flag, env string) string {
		if cmd.IsSet(flag) {
			return cmd.String(flag)
		}
		return a.getenv(env)
	}
	return settings{
		prefix: get("table-prefix", "SQLLOCK_TABLE_PREFIX"),
		schema: get("schema", "SQLLOCK_SCHEMA"),

		unsafeDurability: cmd.Bool("allow-unsafe-durability"),
		sessionPooler:    cmd.Bool("allow-session-pooler"),
		silentHolders:    cmd.Bool("allow-silent-holders"),
	}
}

// database returns the database that the flags and the environment name. It
// reaches for nothing yet, but makes the directory of the file that is the
// default.
func (a *app) database(cmd *cli.Command) (*database, error) {
	return a.openTargets(cmd, func(t target) (*database, error) {
		if t.byDefault {
			if err := makeDirectory(t.path); err != nil {
				return nil, err
			}
		}
		return t.open()
	})
}

// existing is database for who makes nothing. If the file that is the default does
// not exist, nothing was ever locked: then it is an empty one in memory, which needs
// its tables. That another file does not exist is an error; one of a quorum is down
// then. readOnly opens it for an account that may only read, too.
func (a *app) existing(cmd *cli.Command, readOnly bool) (*database, error) {
	return a.openTargets(cmd, func(t target) (*database, error) {
		t.readOnly = readOnly
		return t.openExisting()
	})
}

// openTargets opens what the user named: a database, or several that are a quorum.
func (a *app) openTargets(cmd *cli.Command, open func(target) (*database, error)) (*database, error) {
	targets, err := a.targets(cmd)
	if err != nil {
		return nil, err
	}
	if len(targets) == 1 {
		return open(targets[0])
	}
	d := &database{modes: []mode{quorumMode}, faulty: cmd.Int("faulty-nodes"), nodeTimeout: cmd.Duration("node-timeout")}
	for i, t := range targets {
		node, err := open(t)
		if err != nil {
			d.close(context.Background())
			return nil, ofDatabase(i, err)
		}
		d.nodes = append(d.nodes, node)
	}
	return d, nil
}

func (t target) openExisting() (*database, error) {
	if t.product != "sqlite" {
		return t.open()
	}
	if err := sqliteFile(t.path); err != nil {
		return nil, err
	}
	t.mustExist = true
	_, err := os.Stat(t.path)
	switch {
	case t.ofQuorum:
	case errors.Is(err, fs.ErrNotExist) && t.byDefault:
		return openInMemory(t)
	case err != nil:
		return nil, t.openFailure(err)
	}
	return t.open()
}

// target is the database that the user named, before it is opened.
type target struct {
	settings
	product   string
	path      string // of SQLite's file
	modes     []mode // that the command is about
	byDefault bool   // he named none
	mustExist bool   // the file
	readOnly  bool   // the account may have no right to write
	maybeCut  bool   // the DSN may have been cut by the shell
	ofQuorum  bool   // it is one of several
}

// target is the database of a command that is about one.
func (a *app) target(cmd *cli.Command) (target, error) {
	all, err := a.targets(cmd)
	switch {
	case err != nil:
		return target{}, err
	case len(all) > 1:
		return target{}, fail(exitUsage, "%s is about one database: it takes one --dsn", cmd.Name)
	}
	return all[0], nil
}

// targets are the databases that the user named, or the default.
func (a *app) targets(cmd *cli.Command) (all []target, err error) {
	dsns := a.dsns(cmd)
	if cmd.IsSet("dsn") && slices.Contains(dsns, "") { // most likely from a variable that is not set
		return nil, fail(exitUsage, "--dsn is empty: the DSN must look like %s", dsnForms)
	}
	if err := a.checkQuorum(cmd, dsns); err != nil {
		return nil, err
	}
	for i, dsn := range dsns {
		t, err := a.targetOf(cmd, dsn, len(dsns) > 1)
		if err != nil && len(dsns) > 1 {
			err = ofDatabase(i, err)
		}
		if err != nil {
			return nil, err
		}
		all = append(all, t)
	}
	return all, nil
}

func (a *app) targetOf(cmd *cli.Command, dsn string, ofQuorum bool) (t target, err error) {
	t.settings, t.ofQuorum = a.settings(cmd), ofQuorum
	if t.dsn = dsn; dsn == "" {
		t.product, t.byDefault = "sqlite", true
		t.path, err = a.embeddedFile()
	} else {
		t.product, t.path, err = product(dsn)
		t.maybeCut = cmd.IsSet("dsn") && a.maybeCut()
	}
	switch {
	case err != nil:
	case t.schema != "" && t.product != "postgres":
		err = fail(exitUsage, "a schema is for Postgres only; use a table prefix")
	case ofQuorum:
		t.prefix, t.modes = cmp.Or(t.prefix, quorumPrefix), []mode{quorumMode}
	default:
		t.modes, err = modesFor(cmd, t.product)
	}
	if err == nil {
		err = t.checkAllowed(cmd, ofQuorum)
	}
	return t, err
}

// checkAllowed refuses a flag --allow-… that means nothing to this database or this command.
func (t *target) checkAllowed(cmd *cli.Command, ofQuorum bool) error {
	migrates := slices.ContainsFunc(cmd.Lineage(), func(c *cli.Command) bool { return c.Name == "migrate" })
	switch {
	case migrates && (t.unsafeDurability || t.sessionPooler || t.silentHolders):
		return fail(exitUsage, "migrate takes none of --allow-unsafe-durability, --allow-session-pooler and --allow-silent-holders: it refuses none of that")
	case t.unsafeDurability && t.product == "sqlite" && !ofQuorum: // others of a quorum may need it
		return fail(exitUsage, "--allow-unsafe-durability is for Postgres, MySQL and MariaDB only")
	case t.unsafeDurability && cmd.Name == "doctor":
		return fail(exitUsage, "--allow-unsafe-durability is not for doctor, which says whether the server is safe")
	case t.unsafeDurability && cmd.Name == "init":
		return fail(exitUsage, "--allow-unsafe-durability is not for init, which refuses such a server: make the tables with \"sqllock migrate up\"")
	case (t.sessionPooler || t.silentHolders) && t.product != "postgres":
		return fail(exitUsage, "--allow-session-pooler and --allow-silent-holders are for Postgres only")
	case t.sessionPooler && !slices.ContainsFunc(t.modes, mode.sessions):
		return fail(exitUsage, "--allow-session-pooler is for the modes forupdate and advisory only; see --mode")
	case t.silentHolders && !slices.Contains(t.modes, advisory):
		return fail(exitUsage, "--allow-silent-holders is for the mode advisory only; see --mode")
	}
	return nil
}

func (t target) open() (*database, error) {
	db, err := openers[t.product](t)
	if err != nil {
		return nil, err
	}
	db.modes, db.silentHolders = t.modes, t.silentHolders
	conns := maxConns
	if slices.ContainsFunc(t.modes, mode.sessions) {
		conns = maxSessionConns
	}
	db.handle.SetMaxOpenConns(conns)
	db.handle.SetMaxIdleConns(conns)
	return db, nil
}

var openers = map[string]func(target) (*database, error){
	"postgres": openPostgres,
	"mysql":    openMySQL,
	"sqlite":   openSQLite,
}

func openPostgres(s target) (*database, error) {
	cfg, err := postgresConfig(s.dsn)
	if err != nil {
		return nil, err
	}
	opts := optional(nil, s.prefix, lockpg.TablePrefix)
	opts = optional(opts, s.schema, lockpg.Schema)
	if s.unsafeDurability {
		opts = append(opts, lockpg.AllowUnsafeDurability())
	}
	if s.sessionPooler {
		opts = append(opts, lockpg.AllowSessionPooler())
	}
	handle := sql.OpenDB(connector{stdlib.GetConnector(*cfg), s.shown(postgresServers(cfg))})
	return &database{locks: lockpg.DB(handle, opts...), handle: handle}, nil
}

func openMySQL(s target) (*database, error) {
	cfg, err := mysqlConfig(s.dsn)
	if err != nil {
		return nil, err
	}
	c, err := mysql.NewConnector(cfg)
	if err != nil {
		return nil, malformed("its driver refuses it")
	}
	handle := sql.OpenDB(connector{c, s.shown(mysqlServer(cfg))})
	opts := optional(nil, s.prefix, lockmysql.TablePrefix)
	if s.readOnly {
		opts = append(opts, lockmysql.ReadOnly())
	}
	if s.unsafeDurability {
		opts = append(opts, lockmysql.AllowUnsafeDurability())
	}
	return &database{locks: lockmysql.DB(handle, opts...), handle: handle}, nil
}

func openSQLite(s target) (*database, error) {
	if err := sqliteFile(s.path); err != nil {
		return nil, err
	}
	uri, err := sqliteURI(s.path, s.mustExist)
	if err != nil {
		return nil, err
	}
	return openSQLiteURI(uri, s)
}

func openSQLiteURI(uri string, s target) (*database, error) {
	handle, err := sql.Open("sqlite", uri)
	if err != nil {
		return nil, s.openFailure(err)
	}
	return &database{locks: locksqlite.DB(handle, optional(nil, s.prefix, locksqlite.TablePrefix)...), handle: handle, file: s.path, shown: s.shown(s.path)}, nil
}

func openInMemory(s target) (*database, error) {
	db, err := openSQLiteURI(":memory:", s)
	if err != nil {
		return nil, err
	}
	db.modes, db.inMemory = s.modes, true
	db.handle.SetMaxOpenConns(1) // each connection would have a database of its own
	return db, nil
}

// optional adds an option unless its value is empty.
func optional[O any](opts []O, value string, option func(string) O) []O {
	if value == "" {
		return opts
	}
	return append(opts, option(value))
}

// prepare switches an SQLite file to write-ahead logging, where it stays. SQLite
// does not wait for others who do the same at the same time, whatever the
// busy_timeout.
func (d *database) prepare(ctx context.Context) error {
	if d.file == "" {
		return nil
	}
	for {
		var mode string
		err := d.handle.QueryRowContext(ctx, "PRAGMA journal_mode = wal").Scan(&mode)
		switch {
		case err == nil:
			return nil
		case !d.busy(err) || pause(ctx) != nil:
			return err
		}
	}
}

// busy reports that others are using the database and that this passes.
func (d *database) busy(err error) bool {
	m, problem := d.Migration()
	if problem != nil {
		return false
	}
	defer func() { _ = m.Close() }()
	return m.Retryable(err)
}

// pause waits a little, at random, unless ctx ends.
func pause(ctx context.Context) error {
	return sleep(ctx, 10*time.Millisecond+rand.N(40*time.Millisecond))
}

// sleep waits unless ctx ends.
func sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// close ends the connections, but waits no longer than ctx for a server that
// does not hear: the end of the process ends them too.
func (d *database) close(ctx context.Context) {
	within(ctx, func() {
		for _, node := range d.nodes {
			_ = node.handle.Close()
		}
		if d.handle != nil {
			_ = d.handle.Close()
		}
	})
}

// within calls fn and waits for it no longer than ctx allows.
func within(ctx context.Context, fn func()) (done bool) {
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		fn()
	}()
	select {
	case <-ended:
		return true
	case <-ctx.Done():
		return false
	}
}

// embeddedFile returns the path of the SQLite file that serves without a DSN.
func (a *app) embeddedFile() (string, error) {
	dir, err := a.stateDir()
	if err != nil {
		return "", noDatabase(err)
	}
	return filepath.Join(dir, "sqllock", "locks.db"), nil
}

// makeDirectory makes the directory of that file, which nobody else may read: names
// of locks and labels are nobody else's business, and whoever may write there can
// take locks.
func makeDirectory(file string) error {
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		return noDatabase(err)
	}
	return nil
}

func noDatabase(err error) error {
	return fail(exitUnavailable, "no place for the SQLite file: %w; name a database with --dsn or SQLLOCK_DSN", err)
}

// stateDir returns where programs of this user keep what must survive a restart.
func (a *app) stateDir() (string, error) {
	switch runtime.GOOS {
	case "windows":
		if dir := a.getenv("LocalAppData"); dir != "" {
			return dir, nil
		}
		return a.underHome("AppData", "Local")
	case "darwin", "ios":
		return a.underHome("Library", "Application Support")
	}
	// The specification says to ignore relative paths.
	if dir := a.getenv("XDG_STATE_HOME"); filepath.IsAbs(dir) {
		return dir, nil
	}
	return a.underHome(".local", "state")
}

func (a *app) underHome(elem ...string) (string, error) {
	home := a.getenv("HOME")
	if home == "" { // cron and service managers may start us without
		u, err := user.Current()
		if err != nil {
			return "", fmt.Errorf("no home directory: %w", err)
		}
		home = u.HomeDir
	}
	if !filepath.IsAbs(home) {
		return "", fmt.Errorf("the home directory %q is not an absolute path", home)
	}
	return filepath.Join(append([]string{home}, elem...)...), nil
}
