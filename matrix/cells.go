//go:build unix

package main

import "path/filepath"

// cell is one way to one version of an engine.
type cell struct {
	name    string // as in the table
	family  string // engines that share their SQL
	engine  engine // that is to be there
	version string // what the version begins with that the database tells
	suites  []suite
	today   bool // the tests of the root module have it in each run of CI
}

// suite is what runs the tests of one package.
type suite struct {
	dir      string // in the repository
	tags     string // of the build
	modfile  string // instead of go.mod
	run      string // names of tests, "" for all
	skip     string // names of tests
	database string // of package testdb that is to be there, "" for none
	driver   string // path of the module that reaches the database
	isTest   bool   // of the driver, not of what all promise: left out in brief
}

const (
	postgres, mariadb, mysql, sqlite = "postgres", "mariadb", "mysql", "sqlite"

	pgx, goMySQL = "github.com/jackc/pgx/v5", "github.com/go-sql-driver/mysql"
)

// cells are all, in the order of the table.
var cells = []cell{
	ofPostgres("12"), ofPostgres("13"), ofPostgres("14"), ofPostgres("15"), ofPostgres("16"), ofPostgres("17"), ofPostgres("18"),
	throughPostgres("pgxpool", "pgxpool", "", pgx, postgresOf("18")),
	throughPostgres("lib/pq", "libpq", "", "github.com/lib/pq", postgresOf("18"), suite{dir: "lockpg/libpqtest", database: postgres, isTest: true}),
	throughPostgres("pgbouncer, transaction", "pgbouncer", "transaction", pgx, both{postgresOf("18"), pgbouncer}),
	throughPostgres("pgbouncer, session", "pgbouncer", "session", pgx, both{postgresOf("18"), pgbouncer}),

	ofMySQL("MariaDB 10.11", mariadb, "10.11.", mariadbOf("bookworm")),
	ofMySQL("MariaDB 11.8", mariadb, "11.8.", mariadbOf("trixie")),
	ofMySQL("MySQL 9", mysql, "9.", mysqlOf("sid")),

	{name: "SQLite, modernc", family: sqlite, engine: linked{}, version: "3.", today: true, suites: []suite{
		{dir: ".", run: "^TestConformance$/^(unique|quorum)_on_sqlite", driver: "modernc.org/sqlite"},
		{dir: "locksqlite", isTest: true},
	}},
	throughSQLite("SQLite, mattn", "mattn", "3.", "", "github.com/mattn/go-sqlite3"),
	throughSQLite("SQLite 3.38.0, mattn", "mattn", "3.38.0", "sqlite338.mod", "github.com/mattn/go-sqlite3"),
	throughSQLite("SQLite, ncruces", "ncruces", "3.", "", "github.com/ncruces/go-sqlite3"),
}

// ofPostgres is a version of Postgres, in all modes and settings, through the stdlib package of pgx.
func ofPostgres(major string) cell {
	return cell{name: "PostgreSQL " + major, family: postgres, engine: postgresOf(major), version: major + ".", today: major == "15",
		suites: []suite{
			{dir: ".", run: "^TestConformance$/_on_postgres", database: postgres, driver: pgx},
			{dir: "lockpg", database: postgres, isTest: true},
		}}
}

// ofMySQL is a version of MariaDB or MySQL, in all modes and settings.
func ofMySQL(name, database, version string, e engine) cell {
	return cell{name: name, family: mysql, engine: e, version: version, today: name == "MariaDB 10.11",
		suites: []suite{
			{dir: ".", run: "^TestConformance$/_on_" + database, database: database, driver: goMySQL},
			{dir: "lockmysql", database: database, isTest: true},
		}}
}

// throughPostgres is Postgres through something else, which is a tag of package drivers.
func throughPostgres(name, tag, test, driver string, e engine, more ...suite) cell {
	return cell{name: "PostgreSQL 18, " + name, family: postgres, engine: e, version: "18.",
		suites: append([]suite{{dir: filepath.Join("matrix", "drivers"), tags: "matrix," + tag, run: "^TestConformance$/" + test, database: postgres, driver: driver}}, more...)}
}

// throughSQLite is SQLite through another driver, which is a tag of package drivers.
func throughSQLite(name, tag, version, modfile, driver string) cell {
	return cell{name: name, family: sqlite, engine: linked{}, version: version,
		suites: []suite{{dir: filepath.Join("matrix", "drivers"), tags: "matrix," + tag, modfile: modfile, driver: driver}}}
}

// rotation returns a cell that is not in each run of CI anyway, and of each family one in turn: three
// would take too long.
func rotation(n int) *cell {
	families := []string{postgres, mysql, sqlite}
	var all []*cell
	for i := range cells {
		if c := &cells[i]; c.family == families[n%len(families)] && !c.today {
			all = append(all, c)
		}
	}
	return all[n/len(families)%len(all)]
}
