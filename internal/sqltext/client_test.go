package sqltext_test

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/sqllock/sqllock/driver"
	"github.com/sqllock/sqllock/internal/sqltext"
	"github.com/sqllock/sqllock/internal/testdb"
	"github.com/sqllock/sqllock/lockmysql"
	"github.com/sqllock/sqllock/lockpg"
	"github.com/sqllock/sqllock/locksqlite"
	"github.com/sqllock/sqllock/migrations"
)

func TestMain(m *testing.M) { testdb.Main(m) }

// product is a database and its own client.
type product struct {
	database string // of package testdb
	files    []string
	words    []string // what is filled in, but the tables
	quote    string   // of the name of a table
	programs []string // the client, by any of these names
	open     func(db *sql.DB) driver.Migratable
	command  func(d *testdb.Database) []string // of the client, but the program
	script   func(text string, params []string) string
	encode   func(e example) []string
	own      map[string]example // of statements that others do not have, or have with other parameters
}

var products = []product{
	{
		database: testdb.Postgres, files: filesOf("../../lockpg/sql"), quote: `"`, programs: []string{"psql"},
		open: func(db *sql.DB) driver.Migratable { return lockpg.DB(db) },
		command: func(d *testdb.Database) []string {
			return []string{"-X", "-At", "-v", "ON_ERROR_STOP=1", "-d", d.DSN()}
		},
		script: postgresScript, encode: postgresLiterals, own: postgresExamples,
	},
	{
		database: testdb.MariaDB, files: filesOf("../../lockmysql/sql"), quote: "`", programs: []string{"mariadb", "mysql"},
		words:   []string{"{now}", "TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))"},
		open:    func(db *sql.DB) driver.Migratable { return lockmysql.DB(db) },
		command: mysqlCommand, script: mysqlScript, encode: mysqlLiterals, own: mysqlExamples,
	},
	{
		database: testdb.SQLite, files: filesOf("../../locksqlite/sql"), quote: `"`, programs: []string{"sqlite3"},
		open:    func(db *sql.DB) driver.Migratable { return locksqlite.DB(db) },
		command: func(d *testdb.Database) []string { return []string{"-bail", d.Path()} },
		script:  sqliteScript, encode: sqliteLiterals, own: sqliteExamples,
	},
}

// filesOf are the files of unique mode.
func filesOf(dir string) []string {
	return []string{filepath.Join(dir, "unique.sql"), filepath.Join(dir, "once.sql")}
}

// statements are those of the files, by name.
func (p *product) statements(t *testing.T) map[string]string {
	t.Helper()
	var text []byte
	for _, file := range p.files {
		part, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		text = append(text, part...)
	}
	words := p.words
	for _, table := range []string{"lock", "claim", "waiter", "meta", "fence", "done", "term", "pin"} {
		words = append(words, "{"+table+"}", p.quote+driver.DefaultPrefix+table+p.quote)
	}
	return sqltext.Parse(string(text), strings.NewReplacer(words...))
}

// client returns the path of the client, or "".
func (p *product) client() string {
	for _, program := range p.programs {
		if path, err := exec.LookPath(program); err == nil {
			return path
		}
	}
	return ""
}

// kinds are the kinds of .sql files: for the unique mode, and for the others.
var kinds = []struct {
	name       string
	products   []product
	exceptions []exception
	on         string // the databases that have the rest
}{
	{"unique", products, exceptions, "postgres mariadb sqlite"},
	{"for update", sessionProducts("2"), sessionExceptions, "postgres mariadb"},
	{"advisory", sessionProducts("3"), sessionExceptions, "postgres mariadb"},
	{"opening", openProducts(), openExceptions, "postgres mariadb sqlite"},
}

// exception are statements that not every database has.
type exception struct{ names, on, why string }

var exceptions = []exception{
	{"wake wake_holders wake_holders_one wake_permits", "postgres", "the others cannot push"},
	{"queue_quickly_one hand_over_quickly_one", "postgres", "the fast path of waiters: elsewhere a visit finds out more at once"},
	{"queue_quickly hand_over_quickly", "postgres mariadb", "the others visit"},
	{"queue_for_permits hand_over_permits", "postgres", "the fast path of permits: elsewhere a statement cannot change two tables"},
	{"enter_permits enter_permits_one", "mariadb sqlite", "there the fast path of permits is several statements"},
	{"granted_permits", "mariadb", "it has no RETURNING"},
	{"queue_claim queued hand_over_claim handed_over unheld_one", "mariadb", "there a block is several statements"},
	{"plans keep_plans restore visit unflushed", "postgres", "its transactions carry settings of their own; the others have them per session or per statement"},
	{"grant_quickly free_quickly", "postgres mariadb", "the fast path of many names"},
	{"free_guarded renew_wait renew_shared_wait", "postgres", "the statement says how long a lock is waited for, and which"},
	{"grant_one free_one", "postgres mariadb", "the fast path of one name"},
	{"rows_one write_rows_one delete_claims_one insert_claims_one", "mariadb sqlite", "a visit of one name: JSON costs more than the rest"},
	{"claims_one claims_of_one lock_rows_one", "mariadb", "the same; on SQLite they are needless as a rule"},
	{"claims_that_wait_one", "sqlite", "the fast path of one name"},
	{"claims", "postgres mariadb", "on SQLite the next two are in its place"},
	{"claims_that_hold claims_that_wait", "sqlite", "a statement costs less than a UNION, and one of the two is needless as a rule"},
	{"lock_rows lock_free_rows unpinned lock_claims lock_keys", "postgres mariadb", "on SQLite a transaction has locked all rows"},
	{"find_sweep find_waiters", "mariadb sqlite", "the statement that changes something would lock although there is nothing to do"},
	{"count_rows look_many grant_new granted renewed renewed_shared", "mariadb",
		"it has no RETURNING, and cannot grant rows and make them in one statement"},
	{"look_guard look_guard_all lock_term", "mariadb", "a guard locks entries of indexes"},
	{"guard_galera guard_shared_galera", "mariadb", "nodes of a cluster exclude each other by what they change"},
	{"database", "mariadb sqlite", "Postgres compares the database in guard"},
	{"meta", "mariadb", "the others have it among what is asked when a mode is opened"},
	{"fence_token", "mariadb", "how many rows an INSERT has changed cannot be told"},
}

func TestTheSameStatementsStandInEachFile(t *testing.T) {
	for _, k := range kinds {
		on := make(map[string]string) // databases by statement
		for i := range k.products {
			for name := range k.products[i].statements(t) {
				on[name] = strings.TrimSpace(on[name] + " " + k.products[i].database)
			}
		}
		want := make(map[string]string)
		for _, e := range k.exceptions {
			for name := range strings.FieldsSeq(e.names) {
				want[name] = e.on
			}
		}
		for name := range on {
			if want[name] == "" {
				want[name] = k.on
			}
		}
		for name, databases := range want {
			if on[name] != databases {
				t.Errorf("%s: %s is there on %q, want %q", k.name, name, on[name], databases)
			}
		}
	}
}

func TestEachStatementRunsInTheClientOfItsDatabase(t *testing.T) {
	here := testdb.All()
	for _, k := range kinds {
		mode := "statements of " + k.name + " in the client"
		for i := range k.products {
			p := &k.products[i]
			testdb.Expect(mode, p.database)
			if !slices.Contains(here, p.database) {
				continue
			}
			t.Run(k.name+" "+p.database, func(t *testing.T) {
				t.Parallel() // the clients take longer to start than the statements
				p.pasteAll(t, mode)
			})
		}
	}
}

func (p *product) pasteAll(t *testing.T, mode string) {
	client := p.client()
	if client == "" { // which the report of what was covered shows
		t.Logf("none of %q is installed: scripts/setup.sh does that", p.programs)
		return
	}
	d := testdb.New(t, p.database)
	db := d.Open(t)
	if err := migrations.Up(t.Context(), p.open(db)); err != nil {
		t.Fatal(err)
	}
	for _, name := range p.order(t) {
		t.Run(name, func(t *testing.T) { p.paste(t, client, d, name) })
	}
	testdb.Cover(mode, p.database)
}

// first are the statements that make what the others find.
var first = []string{"make_rows", "beat", "insert_claims", "grant_new", "grant", "write_keys"}

// order returns the names of the statements in the order in which they run.
func (p *product) order(t *testing.T) []string {
	var names, rest []string
	statements := p.statements(t)
	for _, name := range first {
		if statements[name] != "" {
			names = append(names, name)
		}
	}
	for name := range statements {
		if !slices.Contains(first, name) {
			rest = append(rest, name)
		}
	}
	slices.SortFunc(rest, func(a, b string) int { // what reads comes first
		return strings.Compare(statements[a][:4]+a, statements[b][:4]+b)
	})
	return append(names, rest...)
}

// paste runs a statement as a person would.
func (p *product) paste(t *testing.T, client string, d *testdb.Database, name string) {
	e, ok := p.own[name]
	if !ok {
		e, ok = examples[name]
	}
	if !ok {
		t.Fatal("there are no example parameters")
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	script := p.script(p.statements(t)[name], p.encode(e))
	cmd := exec.CommandContext(ctx, client, p.command(d)...)
	cmd.Stdin = strings.NewReader(script)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	err := cmd.Run()
	if e.refused != "" && err != nil && strings.Contains(out.String(), e.refused) {
		return
	}
	if err != nil || e.refused != "" {
		t.Fatalf("%v: %s\n%s", err, &out, script)
	}
	if (name == "rows" || name == "keys") && !strings.Contains(out.String(), exampleName) {
		t.Errorf("it does not find %q: %s", exampleName, &out)
	}
}

// example is what a statement is run with: a row of a batch, and further parameters.
type example struct {
	batch   []any  // string, int, driver.ID or []byte
	args    []any  // string, int or driver.ID
	refused string // what the server says of parameters like these; "" if it takes them
}

func batch(cells ...any) example { return example{batch: cells} }

func (e example) and(args ...any) example {
	e.args = args
	return e
}

const (
	exampleName = "an example"
	second      = 1_000_000
)

var (
	acq    = driver.ID{1}
	other  = driver.ID{2}
	locker = driver.ID{3}
	value  = []byte{0, 0xff}
)

// examples are the parameters that package rowstore describes.
var examples = map[string]example{
	"clock":            {},
	"rows":             batch(exampleName),
	"claims":           batch(exampleName).and(4, locker),
	"claims_of":        batch(exampleName, acq),
	"all_claims":       batch(exampleName).and(60 * second),
	"page":             example{}.and("", 10, 1),
	"page_end":         example{}.and("", 10),
	"readers":          batch(exampleName),
	"together":         batch(exampleName).and(10),
	"queues":           batch(exampleName).and(10),
	"waits":            example{}.and(locker),
	"holders":          batch(exampleName),
	"make_rows":        batch(exampleName),
	"lock_rows":        batch(exampleName),
	"lock_free_rows":   batch(exampleName),
	"unpinned":         batch(exampleName).and(1),
	"lock_claims":      batch(exampleName).and(1),
	"write_rows":       batch(exampleName, 1, acq, "owner", "label", locker, value, 1, 2, 3, 0, 0, 0, 0, 1, 0, 4, 0, 0),
	"delete_claims":    batch(exampleName, other),
	"insert_claims":    batch(exampleName, other, 0, 1, 0, 4, 0, 0, 5, 6, 0, 7, 0, 0, 0, locker, "owner", "label", value, acq[:]),
	"beat":             example{}.and(locker, 60*second),
	"claims_of_locker": example{}.and(locker, 60*second),
	"asked":            batch(exampleName),
	"ask_to_resign":    batch(exampleName, 1),
	"raise":            batch(exampleName, acq, 1),
	"set_value":        batch(exampleName, acq, 1, value, 1),
	"sweep_window":     example{}.and("", 10, 60*second, 60*second),
	"purge":            batch(exampleName).and(60 * second),
	"purge_waiters":    example{}.and(60 * second),
	"find_waiters":     example{}.and(60 * second),
	"sweep_due":        example{}.and(60 * second),
	"sweep_pause":      example{}.and(60 * second),
	"find_sweep":       example{}.and(60 * second),
	"free":             batch(exampleName, acq, 1, 0),
	"renew":            batch(exampleName, acq, 1, 60*second, 1),
	"renew_shared":     batch(exampleName, acq, 1, 60*second, 1),
	"fence":            example{}.and("a resource", 1),
	"database":         {},
	"keys":             batch(exampleName, "a key"),
	"floors":           batch(exampleName),
	"lock_keys":        batch(exampleName, "a key"),
	"write_keys":       batch(exampleName, "a key", 1, 4_000_000_000*second, 4_000_000_000*second), // in the year 2096
	"last_keys":        batch(exampleName),
	"old_keys":         example{}.and(60*second, 10),
	"raise_floors":     batch(exampleName, "a key"),
	"purge_keys":       batch(exampleName, "a key").and(60 * second),
	"complete":         example{}.and(exampleName, "a key"),
	"completed":        example{}.and(exampleName, "a key"),
}

func quoted(text string) string { return "'" + strings.ReplaceAll(text, "'", "''") + "'" }

// postgresExamples are those of Postgres alone.
var postgresExamples = map[string]example{
	"end_term":              example{}.and(exampleName, acq, 1, 0, other),
	"plans":                 {},
	"keep_plans":            example{}.and(1),
	"restore":               batch("jit", "off"),
	"visit":                 example{}.and(1000),
	"unflushed":             {},
	"wake":                  batch(locker, acq),
	"grant":                 batch(exampleName, acq, "owner", 60*second, value).and(locker, "label", "{1}"),
	"queue_quickly":         batch(exampleName, driver.ID{9}, 0, 5, 6, "owner", value, acq[:]).and(locker, "label"),
	"hand_over_quickly":     batch(exampleName, acq, 1, 0).and(locker),
	"wake_holders":          batch(exampleName).and(other),
	"wake_holders_one":      example{}.and(exampleName, other),
	"queue_quickly_one":     example{}.and(exampleName, driver.ID{9}, 0, 5, 6, "owner", `\x00ff`, `\x00ff`, locker, "label"),
	"hand_over_quickly_one": example{}.and(exampleName, acq, 1, 0, locker),
	"queue_for_permits":     batch(exampleName, driver.ID{9}, 2, 5, 6, "owner", value, acq[:]).and(locker, "label"),
	"grant_permits":         batch(exampleName, driver.ID{9}, "owner", 60*second, value, 2).and(locker, "label"),
	"grant_permits_one":     example{}.and(exampleName, driver.ID{9}, "owner", 60*second, `\x00ff`, 2, locker, "label"),
	"free_claims":           batch(exampleName, acq, 1, 0),
	"free_claims_one":       example{}.and(exampleName, acq, 1, 0),
	"hand_over_permits":     batch(exampleName, acq, 1, 0).and(locker),
	"wake_permits":          batch(exampleName).and(other),
	"grant_quickly":         batch(exampleName, acq, "owner", 60*second, value).and(locker, "label", "{1}"),
	"grant_all":             batch(exampleName, acq, "owner", 60*second, value).and(locker, "label", "{1}"),
	"free_quickly":          batch(exampleName, acq, 1, 0),
	"grant_one":             example{}.and(exampleName, acq, "owner", 60*second, `\x00ff`, locker, "label", 1),
	"free_one":              example{}.and(exampleName, acq, 1, 0),
	"free_guarded":          batch(exampleName, acq, 1, 0),
	"renew_wait":            batch(exampleName, acq, 1, 60*second, 1),
	"renew_shared_wait":     batch(exampleName, acq, 1, 60*second, 1),
	"guard":                 example{}.and(exampleName, acq, 1, other),
	"guard_all":             batch(exampleName, acq, 1).and(other),
	"guard_shared":          example{}.and(exampleName, acq, 1, other),
}

// postgresLiterals writes an array for each column.
func postgresLiterals(e example) (params []string) {
	for _, cell := range e.batch {
		text := fmt.Sprint(cell)
		if b, ok := cell.([]byte); ok {
			text = `\\x` + hex.EncodeToString(b)
		}
		params = append(params, quoted(`{"`+text+`"}`))
	}
	for _, arg := range e.args {
		params = append(params, quoted(fmt.Sprint(arg)))
	}
	return params
}

func postgresScript(text string, params []string) string {
	if len(params) == 0 {
		return text + ";"
	}
	return "PREPARE s AS " + text + ";\nEXECUTE s (" + strings.Join(params, ", ") + ");"
}

// mysqlExamples are those of MariaDB and MySQL alone.
var mysqlExamples = map[string]example{
	"sweep_window":      example{}.and(60*second, 60*second, "", 10, "", 10),
	"lock_term":         example{}.and(exampleName, acq, 1),
	"end_term":          example{}.and(0, 0, 0, exampleName, acq, 1),
	"rows_one":          example{}.and(exampleName),
	"claims":            batch(exampleName).and(4, locker),
	"claims_one":        example{}.and(exampleName, exampleName, locker, 4),
	"claims_of_one":     example{}.and(other, exampleName),
	"lock_rows_one":     example{}.and(exampleName),
	"write_rows_one":    example{}.and(1, acq, "owner", "label", locker, string(value), 1, 2, 3, 0, 0, 0, 0, 1, 0, 4, 0, 0, exampleName),
	"delete_claims_one": example{}.and(other, exampleName),
	"insert_claims_one": example{}.and(exampleName, driver.ID{4}, 0, 1, 0, 5, 0, 0, 5, 6, 0, 7, 0, 0, 0, locker, "owner", "label", "value",
		string(acq[:])),
	"count_rows":    batch(exampleName),
	"look_many":     batch(exampleName),
	"grant_new":     batch("another example", acq, "owner", value, 60*second, 1).and(locker, "label"),
	"grant_one":     example{}.and(acq, "owner", locker, "label", "", 1, 60*second, exampleName, 1),
	"grant_quickly": batch(exampleName, acq, "owner", value, 60*second, 1).and(locker, "label"),
	"grant_all":     {batch: []any{exampleName, acq, "owner", value, 60 * second, 1}, args: []any{locker, "label"}, refused: "out of range"}, // the name is held
	"grant":         batch(exampleName, acq, "owner", value, 60*second, 1).and(locker, "label"),
	"granted":       batch(exampleName, acq),
	"free_one":      example{}.and(exampleName, acq, 1),

	"grant_permits":     batch(exampleName, driver.ID{9}, "owner", 60*second, 2),
	"grant_permits_one": example{}.and(exampleName, 2),
	"enter_permits":     batch("another example", driver.ID{9}, "owner", 60*second, 2).and(locker, "label"),
	"enter_permits_one": example{}.and(exampleName, driver.ID{8}, locker, "owner", "label", 60*second),
	"granted_permits":   {},
	"unheld_one":        example{}.and(exampleName),
	"hand_over_quickly": example{}.and(exampleName, locker, locker, exampleName, acq, 1, 0),
	"hand_over_claim":   example{}.and(exampleName),
	"handed_over":       example{}.and(exampleName),
	"queue_quickly":     example{}.and(exampleName, driver.ID{8}),
	"queue_claim":       example{}.and(driver.ID{77}, 0, 60*second, 60*second, locker, "owner", "label", "", exampleName),
	"queued":            example{}.and(locker, exampleName),
	"free_claims":       batch(exampleName, acq, 1),
	"free_claims_one":   example{}.and(acq, exampleName, 1),

	"free_quickly":   {batch: []any{exampleName, acq, 1}, refused: "out of range"}, // there is no such term
	"free":           batch(exampleName, acq, 1, 0).and(1),
	"renewed":        batch(exampleName, acq, 1),
	"renew_shared":   batch(exampleName, acq, 1, 60*second, 1, 4),
	"renewed_shared": batch(exampleName, acq, 1),
	"meta":           {},
	"look_guard":     example{}.and(exampleName, acq, 1),
	"look_guard_all": batch(exampleName, acq, 1),
	"guard_all":      batch(exampleName, acq, 1),
	"guard":          example{}.and(exampleName, 1),
	"guard_shared":   example{}.and(acq, exampleName),

	"guard_galera":        example{}.and(exampleName, acq, 1),
	"guard_shared_galera": example{}.and(acq, exampleName, 1),
	"fence_token":         example{}.and("a resource"),
}

// mysqlLiterals writes texts as hexadecimal digits.
func mysqlLiterals(e example) (params []string) {
	digits := func(cell any) any {
		switch c := cell.(type) {
		case string:
			return hex.EncodeToString([]byte(c))
		case []byte:
			return hex.EncodeToString(c)
		case driver.ID:
			return c.String()
		}
		return cell
	}
	if e.batch != nil {
		row := make([]any, len(e.batch))
		for i, cell := range e.batch {
			row[i] = digits(cell)
		}
		params = append(params, quoted(jsonOf([][]any{row})))
	}
	for _, arg := range e.args {
		if n, ok := arg.(int); ok {
			params = append(params, fmt.Sprint(n))
			continue
		}
		params = append(params, quoted(fmt.Sprint(digits(arg))))
	}
	return params
}

func mysqlScript(text string, params []string) string {
	script := `PREPARE s FROM "` + text + "\";\n"
	if len(params) == 0 {
		return script + "EXECUTE s;"
	}
	variables := make([]string, len(params))
	for i, param := range params {
		variables[i] = fmt.Sprintf("@p%d", i+1)
		script += "SET " + variables[i] + " = " + param + ";\n"
	}
	return script + "EXECUTE s USING " + strings.Join(variables, ", ") + ";"
}

func mysqlCommand(d *testdb.Database) []string {
	cfg, err := mysql.ParseDSN(d.DSN())
	if err != nil {
		panic(err)
	}
	host, port, err := net.SplitHostPort(cfg.Addr)
	if err != nil {
		panic(err)
	}
	return []string{"--no-defaults", "--protocol=tcp", "--host=" + host, "--port=" + port, "--user=" + cfg.User,
		"--password=" + cfg.Passwd, "--database=" + cfg.DBName, "--batch"}
}

// sqliteExamples are those of SQLite alone.
var sqliteExamples = map[string]example{
	"end_term":             example{}.and(exampleName, acq, 1, 0),
	"claims_that_hold":     batch(exampleName),
	"claims_that_wait":     batch(exampleName).and(4, locker.String()),
	"claims_that_wait_one": example{}.and(exampleName, 4, locker.String()),
	"waits":                example{}.and(locker.String()),
	"grant":                batch(exampleName, acq, "owner", 60*second, value, 1).and("label", locker, 1, 1),
	"grant_all":            batch(exampleName, acq, "owner", 60*second, value, 1).and("label", locker, 1, 1),
	"guard_all":            batch(exampleName, acq, 1),
	"guard":                example{}.and(exampleName, acq, 1),
	"guard_shared":         example{}.and(exampleName, acq, 1),
	"rows_one":             example{}.and(exampleName),
	"write_rows_one":       example{}.and(exampleName, 1, acq, "owner", "label", locker, value, 1, 2, 3, 0, 0, 0, 0, 1, 0, 4, 0, 0),
	"delete_claims_one":    example{}.and(exampleName, other),
	"insert_claims_one": example{}.and(exampleName, driver.ID{4}, 0, 1, 0, 5, 0, 0, 5, 6, 0, 7, 0, 0, 0, locker, "owner", "label", value,
		acq[:]),
	"grant_permits":     batch(exampleName, 2),
	"grant_permits_one": example{}.and(exampleName, 2),
	"enter_permits":     batch(exampleName, driver.ID{9}, "owner", 60*second, value, 1, 6, 7).and(locker, "label"),
	"enter_permits_one": example{}.and(exampleName, driver.ID{8}, "owner", 60*second, value, 1, 7, 7, locker, "label"),
	"free_claims":       batch(exampleName, acq, 1),
	"free_claims_one":   example{}.and(exampleName, acq, 1),
}

// sqliteLiterals writes ids and values one behind the other, and in JSON where they are.
func sqliteLiterals(e example) (params []string) {
	var row []any
	var all []byte
	binary := false
	for _, cell := range e.batch {
		switch c := cell.(type) {
		case driver.ID:
			cell, all, binary = len(all)+1, append(all, c[:]...), true
		case []byte:
			cell, all, binary = []int{len(all) + 1, len(c)}, append(all, c...), true
		}
		row = append(row, cell)
	}
	if row != nil {
		params = append(params, quoted(jsonOf([][]any{row})))
	}
	if binary {
		params = append(params, "x'"+hex.EncodeToString(all)+"'")
	}
	for _, arg := range e.args {
		switch a := arg.(type) {
		case driver.ID:
			params = append(params, "x'"+a.String()+"'")
		case []byte:
			params = append(params, "x'"+hex.EncodeToString(a)+"'")
		case string:
			params = append(params, quoted(a))
		default:
			params = append(params, fmt.Sprint(a))
		}
	}
	return params
}

func sqliteScript(text string, params []string) string {
	script := ".parameter init\n"
	for i, param := range params {
		script += fmt.Sprintf("INSERT INTO temp.sqlite_parameters VALUES ('?%d', %s);\n", i+1, param)
	}
	return script + text + ";\n"
}

func jsonOf(v any) string {
	text, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return string(text)
}
