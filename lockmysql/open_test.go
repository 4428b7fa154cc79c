package lockmysql_test

import (
	"database/sql"
	"errors"
	"maps"
	"strings"
	"testing"

	"github.com/go-sql-driver/mysql"

	"github.com/sqllock/sqllock/driver"
	"github.com/sqllock/sqllock/internal/testdb"
	"github.com/sqllock/sqllock/lockmysql"
)

func openErr(t *testing.T, d *lockmysql.Database) error {
	t.Helper()
	s, err := d.OpenUnique(t.Context(), driver.Client{Instance: newID(), Label: "test"})
	if (s == nil) == (err == nil) {
		t.Errorf("store %v, error %v", s, err)
	}
	return err
}

// wants checks that err wraps kind and says all of the words.
func wants(t *testing.T, err, kind error, words ...string) {
	t.Helper()
	if !errors.Is(err, kind) {
		t.Fatalf("got %v, want %v", err, kind)
	}
	for _, word := range words {
		if !strings.Contains(err.Error(), word) {
			t.Errorf("%q does not say %q", err, word)
		}
	}
}

func TestBadOptionsAreToldBeforeAnySQL(t *testing.T) {
	t.Parallel()
	handle := func(name string) *sql.DB {
		db, err := sql.Open(name, "")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = db.Close() })
		return db
	}
	unreachable, err := sql.Open("mysql", "root@tcp(127.0.0.1:1)/x")
	if err != nil {
		t.Fatal(err)
	}
	for want, d := range map[string]*lockmysql.Database{
		"nil":           lockmysql.DB(nil),
		"stdlib.Driver": lockmysql.DB(handle("pgx")),
		"sqlite.Driver": lockmysql.DB(handle("sqlite")),
		`"a-b"`:         lockmysql.DB(unreachable, lockmysql.TablePrefix("a-b")),
		`""`:            lockmysql.DB(unreachable, lockmysql.TablePrefix("")),
		`"x` + "`":      lockmysql.DB(unreachable, lockmysql.TablePrefix("x`y")),
	} {
		wants(t, openErr(t, d), driver.ErrInvalidOption, want)
		_, err := d.Migration()
		wants(t, err, driver.ErrInvalidOption, want)
	}
	_ = unreachable.Close()
	wants(t, openErr(t, lockmysql.DB(unreachable)), driver.ErrInvalidOption, "closed")
}

func TestWhatTheServerSaysIsJudged(t *testing.T) {
	t.Parallel()
	good := map[string]string{"autocommit": "ON", "innodb_flush_log_at_trx_commit": "1", "read_only": "OFF",
		"innodb_read_only": "OFF", "log_bin": "OFF", "sync_binlog": "0", "wsrep_on": "OFF"}
	const maria, my = "10.11.19-MariaDB-0+deb12u1", "8.0.36"
	for _, c := range []struct {
		version, set string
		noRedo       bool
		unsafe       bool
		err          error
		words        string
		warning      string
	}{
		{version: maria},
		{version: my},
		{version: "9.7.4-2", set: "super_read_only=OFF transaction_read_only=OFF"},
		{version: "5.5.5-10.6.18-MariaDB-log"},
		{version: "8.0.36-28.1", set: "wsrep_on=ON", warning: "Galera"},
		{version: maria, set: "log_bin=ON", warning: "sync_binlog is 0"},
		{version: maria, set: "log_bin=ON sync_binlog=1"},
		{version: my, set: "log_bin=ON sync_binlog=1 binlog_format=STATEMENT", warning: "STATEMENT"},
		{version: my, set: "group_replication_single_primary_mode=ON"},
		{version: my, set: "group_replication_single_primary_mode=OFF", err: driver.ErrUnsupported, words: "one primary"},
		{version: "5.7.44", err: driver.ErrUnsupported, words: "MySQL 5.7.44 is older than MySQL 8.0"},
		{version: "10.5.9-MariaDB", err: driver.ErrUnsupported, words: "older than MariaDB 10.6"},
		{version: "PostgreSQL 15.3 on x86_64", err: driver.ErrInvalidOption, words: "PostgreSQL 15.3"},
		{version: "CockroachDB CCL v23.1.0", err: driver.ErrInvalidOption, words: "CockroachDB"},
		{version: "8.0.11-TiDB-v7.5.0", err: driver.ErrInvalidOption, words: "TiDB"},
		{version: "8.0.23-vitess", err: driver.ErrInvalidOption, words: "vitess"},
		{version: my, set: "autocommit=OFF", err: driver.ErrUnsupported, words: "autocommit"},
		{version: my, set: "completion_type=CHAIN", err: driver.ErrUnsupported, words: "completion_type"},
		{version: maria, set: "completion_type=RELEASE", err: driver.ErrUnsupported, words: "completion_type"},
		{version: my, set: "read_only=ON", err: driver.ErrUnsupported, words: "read-only"},
		{version: my, set: "super_read_only=1", err: driver.ErrUnsupported, words: "read-only"},
		{version: maria, set: "read_only=NO_LOCK", err: driver.ErrUnsupported, words: "read-only"},
		{version: my, set: "innodb_read_only=ON", err: driver.ErrUnsupported, words: "read-only"},
		{version: maria, set: "tx_read_only=ON", err: driver.ErrUnsupported, words: "transaction_read_only"},
		{version: my, set: "innodb_flush_log_at_trx_commit=2", err: driver.ErrUnsupported, words: "AllowUnsafeDurability"},
		{version: my, set: "innodb_flush_log_at_trx_commit=2", unsafe: true, warning: "is 2"},
		{version: my, noRedo: true, err: driver.ErrUnsupported, words: "redo log"},
		{version: my, noRedo: true, unsafe: true, warning: "redo log"},
	} {
		t.Run(c.version+" "+c.set, func(t *testing.T) {
			vars := maps.Clone(good)
			for _, set := range strings.Fields(c.set) {
				name, value, _ := strings.Cut(set, "=")
				vars[name] = value
			}
			var opts []lockmysql.Option
			if c.unsafe {
				opts = append(opts, lockmysql.AllowUnsafeDurability())
			}
			warnings, err := lockmysql.Judge(lockmysql.DB(nil, opts...), c.version, vars, c.noRedo)
			if c.err != nil {
				wants(t, err, c.err, c.words)
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if got := strings.Join(warnings, "; "); (got != "") != (c.warning != "") || !strings.Contains(got, c.warning) {
				t.Errorf("warnings %q, want %q", got, c.warning)
			}
		})
	}
}

func TestSessionsAndTablesThatDoNotFitAreRefused(t *testing.T) {
	t.Parallel()
	eachServer(t, func(t *testing.T, f *fixture) {
		wants(t, openErr(t, lockmysql.DB(f.Open(t, "autocommit=0"))), driver.ErrUnsupported, "autocommit")
		wants(t, openErr(t, lockmysql.DB(f.Open(t, f.variable(t, "read_only")+"=1"))), driver.ErrUnsupported, "read-only")

		empty := testdb.New(t, f.Engine()).Open(t)
		wants(t, openErr(t, lockmysql.DB(empty)), driver.ErrSchema, "`sqllock_lock`", "migrations.Up", "sqllock migrate up")
		wants(t, openErr(t, lockmysql.DB(f.Open(t), lockmysql.TablePrefix("other_"))), driver.ErrSchema, "`other_lock`")
		wants(t, openErr(t, lockmysql.DB(nowhere(t, f))), driver.ErrInvalidOption, "no database")

		db := f.Open(t)
		for set, word := range map[string]string{
			"schema_version = schema_version - 1":                                   "older",
			"schema_version = schema_version + 9, compatible_from = schema_version": "upgrade",
		} {
			exec(t, db, "UPDATE sqllock_meta SET "+set)
			wants(t, openErr(t, lockmysql.DB(db)), driver.ErrSchema, word)
			exec(t, db, "UPDATE sqllock_meta SET schema_version = ?, compatible_from = ?", lockmysql.SchemaVersion, lockmysql.SchemaVersion)
		}
		exec(t, db, "UPDATE sqllock_meta SET schema_version = schema_version + 9")
		if err := openErr(t, lockmysql.DB(db)); err != nil {
			t.Errorf("newer tables that work with this library: %v", err)
		}
		exec(t, db, "RENAME TABLE sqllock_meta TO elsewhere")
		wants(t, openErr(t, lockmysql.DB(db)), driver.ErrSchema, "sqllock_meta", "migrations.Up")
		exec(t, db, "RENAME TABLE elsewhere TO sqllock_meta")
		exec(t, db, "ALTER TABLE sqllock_lock ENGINE = MyISAM ROW_FORMAT = DEFAULT")
		wants(t, openErr(t, lockmysql.DB(db)), driver.ErrUnsupported, "MyISAM")
	})
}

// nowhere is a handle whose DSN names no database.
func nowhere(t *testing.T, f *fixture) *sql.DB {
	t.Helper()
	cfg, err := mysql.ParseDSN(f.DSN())
	if err != nil {
		t.Fatal(err)
	}
	cfg.DBName = ""
	db, err := sql.Open("mysql", cfg.FormatDSN())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	return db
}

func TestAServerThatForgetsOrOnlyReadsIsRefused(t *testing.T) {
	t.Parallel()
	for _, engine := range testdb.Startable() {
		if engine == testdb.Postgres {
			continue
		}
		t.Run(engine, func(t *testing.T) {
			server := testdb.StartServer(t, engine, "--innodb-flush-log-at-trx-commit=2", "--log-bin", "--sync-binlog=0")
			f := &fixture{server.Database}
			f.migrate(t)
			db := f.Open(t)
			db.SetMaxOpenConns(1) // so that none is reserved
			wants(t, openErr(t, lockmysql.DB(db)), driver.ErrUnsupported, "innodb_flush_log_at_trx_commit is 2", "AllowUnsafeDurability")
			s, err := lockmysql.DB(db, lockmysql.AllowUnsafeDurability()).OpenUnique(t.Context(), driver.Client{})
			if err != nil {
				t.Fatal(err)
			}
			if w := s.Info().Warnings; len(w) != 2 || !strings.Contains(w[0], "is 2") || !strings.Contains(w[1], "sync_binlog") {
				t.Errorf("warnings %q", w)
			}
			exec(t, db, "SET GLOBAL innodb_flush_log_at_trx_commit = 1")
			reqs := requests(2, "%d")
			res := take(t, s, reqs...)
			server.Kill()
			server.Restart()
			exec(t, db, "SET GLOBAL innodb_flush_log_at_trx_commit = 1")
			if again := take(t, s, reqs...); again[0].Version != res[0].Version {
				t.Errorf("after a crash: %+v, was %+v", again, res)
			}
			// A server that logs statements is warned of, and works.
			exec(t, db, "SET GLOBAL binlog_format = STATEMENT")
			logged, _ := f.store(t)
			life(t, logged, requests(2, "logged %d"))
			cleanUp(t, logged, f.Open(t), "logged")
			exec(t, db, "SET GLOBAL read_only = 1")
			wants(t, openErr(t, lockmysql.DB(db)), driver.ErrUnsupported, "read-only")
		})
	}
}

func TestInfoTellsServerAndPool(t *testing.T) {
	t.Parallel()
	eachServer(t, func(t *testing.T, f *fixture) {
		db := f.Open(t)
		db.SetMaxOpenConns(7)
		s := open(t, db)
		info := s.Info()
		if version := serverVersion(t, db); !strings.HasSuffix(info.Server, "B "+version) && info.Server != "MySQL "+version || info.MaxConns != 7 {
			t.Errorf("%+v", info)
		}
	})
}
