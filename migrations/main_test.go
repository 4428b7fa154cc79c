package migrations_test

import (
	"bufio"
	"bytes"
	"context"
	"database/sql"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/sqllock/sqllock/driver"
	"github.com/sqllock/sqllock/internal/testdb"
	"github.com/sqllock/sqllock/lockmysql"
	"github.com/sqllock/sqllock/lockpg"
	"github.com/sqllock/sqllock/locksqlite"
	"github.com/sqllock/sqllock/migrations"
)

// The environment of the processes that tests start.
const (
	envDo     = "MIGRATIONS_TEST_DO" // up or down; else it is no such process
	envEngine = "MIGRATIONS_TEST_ENGINE"
	envDSN    = "MIGRATIONS_TEST_DSN"
	envSchema = "MIGRATIONS_TEST_SCHEMA"
	envNext   = "MIGRATIONS_TEST_NEXT" // the directory with the migrations of the next version
)

// beNext makes this the next version of the library until the test ends, in the processes
// that it starts too.
func beNext(t *testing.T) {
	t.Helper()
	t.Setenv(envNext, "testdata/next")
	t.Cleanup(migrations.Add("testdata/next"))
}

func TestMain(m *testing.M) {
	if do := os.Getenv(envDo); do != "" {
		if err := migrate(do); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	testdb.Main(m)
}

// migrate is what a process does that a test has started.
func migrate(do string) error {
	if dir := os.Getenv(envNext); dir != "" {
		migrations.Add(dir)
	}
	engine := os.Getenv(envEngine)
	name := map[string]string{testdb.SQLite: "sqlite", testdb.Postgres: "pgx"}[engine]
	if name == "" {
		name = "mysql"
	}
	db, err := sql.Open(name, os.Getenv(envDSN))
	if err != nil {
		return err
	}
	defer func() { _ = db.Close() }()
	fmt.Println("ready")
	if _, err := io.Copy(io.Discard, os.Stdin); err != nil {
		return err
	}
	start := time.Now()
	defer func() { fmt.Println(time.Since(start)) }()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if do == "down" {
		return migrations.Down(ctx, target(engine, db, "", os.Getenv(envSchema)))
	}
	return migrations.Up(ctx, target(engine, db, "", os.Getenv(envSchema)))
}

// process is a process that migrates once it is told to.
type process struct {
	cmd    *exec.Cmd
	input  io.Closer
	output *bufio.Reader
	errors bytes.Buffer
}

// start starts a process and returns when it is ready.
func start(t *testing.T, d *testdb.Database, do, schema string) *process {
	t.Helper()
	p := &process{cmd: exec.Command(os.Args[0])}
	p.cmd.Env = append(os.Environ(), envDo+"="+do, envEngine+"="+d.Engine(), envDSN+"="+d.DSN(), envSchema+"="+schema)
	p.cmd.Stderr = &p.errors
	var err error
	if p.input, err = p.cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	output, err := p.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	p.output = bufio.NewReader(output)
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if line, err := p.output.ReadString('\n'); err != nil || line != "ready\n" {
		t.Fatalf("%q, %v: %s", line, err, &p.errors)
	}
	return p
}

// tell tells the process to begin.
func (p *process) tell() { _ = p.input.Close() }

// wait returns how long the process has worked.
func (p *process) wait() (time.Duration, error) {
	line, _ := p.output.ReadString('\n')
	if err := p.cmd.Wait(); err != nil {
		return 0, fmt.Errorf("%w: %s", err, &p.errors)
	}
	return time.ParseDuration(strings.TrimSpace(line))
}

// together runs n processes that begin at one time and must succeed.
func together(t *testing.T, n int, start func() *process) {
	t.Helper()
	all := make([]*process, n)
	for i := range all {
		all[i] = start()
	}
	for _, p := range all {
		p.tell()
	}
	for _, p := range all {
		if _, err := p.wait(); err != nil {
			t.Error(err)
		}
	}
}

// database is both of what a database can be here.
type database interface {
	driver.Migratable
	driver.UniqueDatabase
}

// target is the database that db reaches, with defaults for "".
func target(engine string, db *sql.DB, prefix, schema string) database {
	if prefix == "" {
		prefix = driver.DefaultPrefix
	}
	switch {
	case engine == testdb.SQLite:
		return locksqlite.DB(db, locksqlite.TablePrefix(prefix))
	case engine != testdb.Postgres:
		return lockmysql.DB(db, lockmysql.TablePrefix(prefix))
	case schema == "":
		return lockpg.DB(db, lockpg.TablePrefix(prefix))
	}
	return lockpg.DB(db, lockpg.TablePrefix(prefix), lockpg.Schema(schema))
}

// each runs a test for every database that is there.
func each(t *testing.T, fn func(t *testing.T, d *testdb.Database)) {
	for _, engine := range testdb.All() {
		t.Run(engine, func(t *testing.T) { fn(t, testdb.New(t, engine)) })
	}
}

func up(t *testing.T, m driver.Migratable) {
	t.Helper()
	if err := migrations.Up(t.Context(), m); err != nil {
		t.Fatal(err)
	}
}

func down(t *testing.T, m driver.Migratable) {
	t.Helper()
	if err := migrations.Down(t.Context(), m); err != nil {
		t.Fatal(err)
	}
}

// downTo undoes every migration after version.
func downTo(t *testing.T, m driver.Migratable, version int64) {
	t.Helper()
	list, err := migrations.Status(t.Context(), m)
	if err != nil {
		t.Fatal(err)
	}
	for _, known := range list {
		if known.Version > version && known.Applied {
			down(t, m)
		}
	}
}

// downAll undoes every migration.
func downAll(t *testing.T, m driver.Migratable) {
	t.Helper()
	list, err := migrations.Status(t.Context(), m)
	if err != nil {
		t.Fatal(err)
	}
	for range list {
		down(t, m)
	}
}

// checkUsable takes a name, which needs the tables as they should be.
func checkUsable(t *testing.T, d database) {
	t.Helper()
	s, err := d.OpenUnique(t.Context(), driver.Client{})
	if err != nil {
		t.Error(err)
		return
	}
	defer func() { _ = s.Close() }()
	take(t, s)
}

// take takes a name and gives it back.
func take(t *testing.T, s driver.Store) {
	t.Helper()
	r, err := s.Acquire(t.Context(), []driver.AcquireRequest{{Name: "k", Acq: driver.ID{1}, Owner: "o", TTL: time.Minute}})
	if err != nil || !r[0].Granted {
		t.Errorf("%+v, %v", r, err)
	}
	if _, err := s.Release(t.Context(), []driver.ReleaseRequest{{Name: "k", Acq: driver.ID{1}}}); err != nil {
		t.Error(err)
	}
}

// checkApplied checks that every migration is applied, and once.
func checkApplied(t *testing.T, m driver.Migratable) {
	t.Helper()
	list, err := migrations.Status(t.Context(), m)
	if err != nil || len(list) == 0 {
		t.Errorf("%v, %v", list, err)
	}
	for _, step := range list {
		if !step.Applied || step.Name == "" || time.Since(step.AppliedAt).Abs() > time.Hour {
			t.Errorf("%+v", step)
		}
	}
}

// query returns one column of what a query finds.
func query(t *testing.T, db *sql.DB, text string, args ...any) (found []string) {
	t.Helper()
	rows, err := db.QueryContext(t.Context(), text, args...)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		var s string
		if err := rows.Scan(&s); err != nil {
			t.Fatal(err)
		}
		found = append(found, s)
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	return found
}

// objects returns the tables and views of a database.
func objects(t *testing.T, engine string, db *sql.DB) []string {
	t.Helper()
	switch engine {
	case testdb.SQLite:
		return query(t, db, `SELECT name FROM sqlite_schema WHERE type IN ('table', 'view') ORDER BY name`)
	case testdb.Postgres:
		return query(t, db, `SELECT c.oid::regclass::text FROM pg_class c JOIN pg_namespace n ON n.oid = relnamespace
			WHERE relkind IN ('r', 'v', 'S') AND nspname NOT LIKE 'pg\_%' AND nspname <> 'information_schema' ORDER BY 1`)
	}
	return query(t, db, `SELECT table_name FROM information_schema.tables WHERE table_schema = database() ORDER BY 1`)
}

func mustExec(t *testing.T, db *sql.DB, text string) {
	t.Helper()
	if _, err := db.ExecContext(t.Context(), text); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
}

// functions returns the functions of a Postgres database that are ours.
func functions(t *testing.T, engine string, db *sql.DB) []string {
	t.Helper()
	if engine != testdb.Postgres {
		return nil
	}
	return query(t, db, `SELECT oid::regprocedure::text FROM pg_proc WHERE proname LIKE 'sqllock%' ORDER BY 1`)
}

// mysqlReader returns a handle of a user who may only read.
func mysqlReader(t *testing.T, d *testdb.Database) *sql.DB {
	t.Helper()
	return mysqlAccount(t, d, "SELECT")
}

// mysqlAccount returns a handle of a new user who has these privileges on the database. A
// test can have one user at a time.
func mysqlAccount(t *testing.T, d *testdb.Database, privileges string) *sql.DB {
	t.Helper()
	cfg, err := mysql.ParseDSN(d.DSN())
	if err != nil {
		t.Fatal(err)
	}
	admin := d.Open(t)
	user := "reader_" + cfg.DBName[len(cfg.DBName)-12:]
	mustExec(t, admin, "CREATE USER "+user+" IDENTIFIED BY 'secret-7'")
	t.Cleanup(func() {
		if _, err := admin.ExecContext(context.Background(), "DROP USER "+user); err != nil {
			t.Error(err)
		}
	})
	mustExec(t, admin, "GRANT "+privileges+" ON "+cfg.DBName+".* TO "+user)
	cfg.User, cfg.Passwd = user, "secret-7"
	connector, err := mysql.NewConnector(cfg)
	if err != nil {
		t.Fatal(err)
	}
	db := sql.OpenDB(connector)
	t.Cleanup(func() { _ = db.Close() })
	return db
}
