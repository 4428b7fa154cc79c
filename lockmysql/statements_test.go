package lockmysql_test

import (
	"database/sql"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sqllock/sqllock/driver"
	"github.com/sqllock/sqllock/internal/testdb"
	"github.com/sqllock/sqllock/lockmysql"
)

func TestANameIsKeptUntilItsTime(t *testing.T) {
	t.Parallel()
	eachServer(t, func(t *testing.T, f *fixture) {
		s, db := f.store(t)
		for _, n := range []int{1, 3} {
			reqs := requests(n, fmt.Sprintf("of %d, %%d", n))
			release(t, s, releases(reqs, take(t, s, reqs...))...)
			set := func(at time.Time) {
				exec(t, db, "UPDATE `sqllock_lock` SET not_before = ?", at.UnixMicro())
			}
			until := time.Now().Add(minute)
			set(until)
			for _, r := range grant(t, s, reqs...) {
				if r.Granted || r.Holder != (driver.Holder{Until: until.UnixMicro()}) {
					t.Errorf("not before a minute: %+v", r)
				}
			}
			set(time.Now().Add(-minute))
			take(t, s, reqs...)
		}
	})
}

func TestATokenRisesThoughTheClockWentBack(t *testing.T) {
	t.Parallel()
	eachServer(t, func(t *testing.T, f *fixture) {
		s, db := f.store(t)
		for _, n := range []int{1, 3} {
			reqs := requests(n, fmt.Sprintf("back %d %%d", n))
			release(t, s, releases(reqs, take(t, s, reqs...))...)
			ahead := time.Now().Add(time.Hour).UnixMicro()
			exec(t, db, "UPDATE `sqllock_lock` SET version = ?", ahead)
			for _, r := range take(t, s, reqs...) {
				if r.Version != ahead+1 || r.Now >= ahead {
					t.Errorf("got %+v, want token %d", r, ahead+1)
				}
			}
		}
	})
}

// inBlocks is how many statements an operation takes: MariaDB takes those of a transaction in
// blocks, but what is large is sent by itself. The numbers of MariaDB are counted; those of MySQL
// follow from the code, and nobody has counted them on a server yet.
func (f *fixture) inBlocks(statements, blocks int) int {
	if f.Engine() == testdb.MariaDB {
		return blocks
	}
	return statements
}

func TestStatementsPerOperation(t *testing.T) {
	t.Parallel()
	eachServer(t, func(t *testing.T, f *fixture) {
		s, db := f.store(t, "interpolateParams=true")
		other, _ := f.store(t, "interpolateParams=true")
		inBlocks := func(statements, blocks, large int) int { return f.inBlocks(statements, blocks+large) }
		for _, n := range []int{1, 100} {
			large := min(n-1, 1)
			reqs := requests(n, fmt.Sprintf("count %d %%03d", n))
			rivals := make([]driver.AcquireRequest, n)
			for i := range rivals {
				rivals[i] = request(reqs[i].Name)
			}
			var res []driver.AcquireResult
			expect := func(what string, want int, do func()) {
				t.Helper()
				before := questions(t, db)
				do()
				if got := questions(t, db) - before - 1; got != want {
					t.Errorf("%s of %d: %d statements, want %d", what, n, got, want)
				}
			}
			expect("grant of new names", 2, func() { res = take(t, s, reqs...) })
			losing := 1
			if n > 1 { // which are free, and who has the others
				losing = 2
			}
			expect("losing attempt", losing, func() { grant(t, s, rivals...) })
			expect("renewal", 1, func() { renew(t, s, false, renewals(reqs, res, 2*minute)...) })
			expect("release", 1, func() { release(t, s, releases(reqs, res)...) })
			expect("grant of names that it has freed", f.inBlocks(2, 1), func() { res = take(t, s, reqs...) })
			release(t, s, releases(reqs, res)...)
			taken := take(t, other, rivals...)
			expect("losing attempt on names that it has freed", f.inBlocks(losing, 2), func() { grant(t, s, reqs...) })
			expect("another losing attempt", losing, func() { grant(t, s, reqs...) })
			release(t, other, releases(rivals, taken)...)
			expect("grant of names that another one has freed", 2, func() { res = take(t, s, reqs...) })
			// What was tried, the rows, and the transaction around that. Of one name a hand-over is tried,
			// too, and undone.
			expect("release of others' leases", inBlocks(6, 5-2*large, 0), func() { release(t, s, releases(rivals, res)...) })

			names := make([]string, n)
			for i := range names {
				names[i] = reqs[i].Name
			}
			expect("look", 1, func() { look(t, s, names...) })
			expect("list", inBlocks(2, 1, 0), func() { list(t, s, driver.ListRequest{Limit: n}) })
			// A look, three statements, and the transaction around them.
			expect("revocation", inBlocks(8, 4, large), func() { revoke(t, s, names...) })
			expect("revocation of nothing", 1, func() { revoke(t, s, names...) })
			expect("sweep of nothing", 2, func() { sweep(t, s, time.Hour) })
			take(t, s, rivals...)
			expire(t, f.Open(t), names...)
			// Two looks, four statements, and the transaction around them.
			expect("sweep of crashed holders", inBlocks(10, 5, large), func() { sweep(t, s, time.Hour) })
			exec(t, f.Open(t), "UPDATE `sqllock_lock` SET version = 1")
			expect("sweep of idle rows", 3, func() { sweep(t, s, time.Hour) })
			expect("turn", 2, func() { sweepDue(t, s, time.Nanosecond) })
			expect("turn of nobody", 1, func() { sweepDue(t, s, time.Hour) })
		}
	})
}

func TestTenThousandLeasesAreRenewedByOneStatement(t *testing.T) {
	t.Parallel()
	const n = 10_000
	eachServer(t, func(t *testing.T, f *fixture) {
		s, db := f.store(t, "interpolateParams=true")
		reqs := requests(n, "some/longer/name/%05d")
		res := take(t, s, reqs...)
		for _, status := range []string{"first", "second"} {
			ask := renewals(reqs, res, 2*minute)
			before, began := questions(t, db), time.Now()
			got := renew(t, s, false, ask...)
			took := time.Since(began)
			if asked := questions(t, db) - before - 1; asked != 1 {
				t.Errorf("%d statements", asked)
			}
			if i := slices.IndexFunc(got.Status, func(s driver.RenewStatus) bool { return s != driver.Renewed }); i >= 0 {
				t.Errorf("renewal %d: %v", i, got.Status[i])
			}
			t.Logf("the %s took %v", status, took)
		}
		// Two are gone and one is locked: a look at those, and another why they are gone.
		release(t, s, releases(reqs[10:12], res[10:12])...)
		lockRow(t, f.Open(t), reqs[4000].Name)
		before := questions(t, db)
		got := renew(t, s, false, renewals(reqs, res, 3*minute)...)
		if asked := questions(t, db) - before - 1; asked != 3 {
			t.Errorf("%d statements, want 3", asked)
		}
		count := map[driver.RenewStatus]int{}
		for _, status := range got.Status {
			count[status]++
		}
		if count[driver.Gone] != 2 || count[driver.Busy] != 1 || got.Status[11] != driver.Gone || got.Status[4000] != driver.Busy {
			t.Errorf("got %v", count)
		}
	})
}

// TestNoStatementScansTheTable explains every statement over a table of hardly any
// rows, where an optimizer likes scans best, and over a larger one.
func TestNoStatementScansTheTable(t *testing.T) {
	t.Parallel()
	eachServer(t, func(t *testing.T, f *fixture) {
		s, db := f.store(t)
		for _, rows := range []int{0, 1, 5000} {
			if rows > 0 {
				take(t, s, requests(rows, fmt.Sprintf("%d rows, %%d", rows))...)
				for state := range 2 {
					exec(t, db, "INSERT IGNORE INTO `sqllock_claim` SELECT name, ?, 1, UNHEX(LEFT(SHA2(CONCAT(name, ?), 256), 32)),"+
						" 1, 0, 1, 1, 1, 1, 0, 1, 1, 0, 0, UNHEX(LEFT(SHA2(name, 256), 32)), '', '', NULL, NULL FROM `sqllock_lock`", state, state)
				}
				exec(t, db, "INSERT IGNORE INTO `sqllock_waiter` SELECT locker, 1 FROM `sqllock_claim`")
				exec(t, db, "ANALYZE TABLE `sqllock_lock`, `sqllock_claim`, `sqllock_waiter`")
			}
			for name, text := range lockmysql.Statements("sqllock_") {
				for _, batch := range []string{"[]", `[["31","00",1,1,"00"]]`, `[["31","00",1,1,"00"],["32","00",1,1,"00"],["3939","00",1,1,"00"]]`} {
					explain(t, db, name, text, batch)
				}
			}
		}
	})
}

func explain(t *testing.T, db *sql.DB, name, text, batch string) {
	t.Helper()
	for { // EXPLAIN does not go before it
		before, after, _ := strings.Cut(text, " FOR")
		if !strings.Contains(before, "SET STATEMENT") {
			break
		}
		text = strings.TrimLeft(after, " */\n")
	}
	parts := strings.Split(text, "?")
	args := make([]any, len(parts)-1)
	for i := range args {
		args[i] = "31"
		if strings.HasSuffix(parts[i], "LIMIT ") {
			args[i] = 31
		}
	}
	if at := strings.Index(text, "JSON_TABLE(?"); at >= 0 {
		args[strings.Count(text[:at], "?")] = batch
	}
	format := "" // MySQL 9 defaults to a tree
	if !strings.Contains(serverVersion(t, db), "MariaDB") {
		format = "FORMAT=TRADITIONAL "
	}
	rows, err := db.Query("EXPLAIN "+format+text, args...)
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	defer func() { _ = rows.Close() }()
	columns, _ := rows.Columns()
	values := make([]sql.NullString, len(columns))
	scan := make([]any, len(columns))
	for i := range values {
		scan[i] = &values[i]
	}
	for rows.Next() {
		if err := rows.Scan(scan...); err != nil {
			t.Fatal(err)
		}
		table, access := values[slices.Index(columns, "table")].String, values[slices.Index(columns, "type")].String
		rows := values[slices.Index(columns, "rows")].String
		switch {
		case slices.Contains(scans[name], table), !slices.Contains(aliases, table):
		case slices.Contains([]string{"const", "eq_ref", "unique_subquery", "system", ""}, access):
		case access == "range" && (table == "k" || rows == "1"): // an UPDATE of one row calls it so
		case access == "index" && table == "k" && strings.Contains(text, "ORDER BY k.name LIMIT"): // in order, up to the limit
		case access == "ref" && (table == "c" || table == "q" || name == "revocations"):
		default:
			t.Errorf("%s of %s reads %s by %s, %s rows", name, batch, table, access, rows)
		}
	}
}

// aliases are how statements call tables that may be long, and scans those that are read as
// a whole: who waits while he holds something, and Lockers.
var (
	aliases = []string{"l", "g", "k", "c", "q", "w", "v"}
	scans   = map[string][]string{"waits": {"c"}, "find_waiters": {"v", "c"}, "purge_waiters": {"v", "c"}}
)

func serverVersion(t *testing.T, db *sql.DB) (version string) {
	t.Helper()
	if err := db.QueryRow(`SELECT VERSION()`).Scan(&version); err != nil {
		t.Fatal(err)
	}
	return version
}

func TestEachStatementCanBePastedIntoAClient(t *testing.T) {
	t.Parallel()
	eachServer(t, func(t *testing.T, f *fixture) {
		db := f.Open(t)
		db.SetMaxOpenConns(1)
		exec(t, db, "SET @digits = '31', @number = 31, @batch = '[]'")
		mariaDB := strings.Contains(serverVersion(t, db), "MariaDB")
		texts := lockmysql.File("sqllock_")
		for _, mode := range []string{"2", "3"} {
			for name, text := range lockmysql.SessionsFile("sqllock_", mode) {
				texts["mode "+mode+": "+name] = text
			}
		}
		for name, text := range texts {
			if strings.HasPrefix(text, "SET STATEMENT") && !mariaDB {
				continue
			}
			exec(t, db, "SET @text = ?", text)
			exec(t, db, "PREPARE pasted FROM @text")
			var using []string
			parts := strings.Split(text, "?")
			for _, before := range parts[:len(parts)-1] {
				switch {
				case strings.HasSuffix(before, "JSON_TABLE("):
					using = append(using, "@batch")
				case strings.HasSuffix(before, "UNHEX("), strings.HasSuffix(before, "NULLIF("), strings.HasSuffix(before, "_LOCK("):
					using = append(using, "@digits")
				default:
					using = append(using, "@number")
				}
			}
			exec(t, db, "DELETE FROM sqllock_claim") // of the statement before
			run := "EXECUTE pasted"
			if len(using) > 0 {
				run += " USING " + strings.Join(using, ", ")
			}
			rows, err := db.Query(run)
			if err != nil {
				t.Errorf("%s: %v", name, err)
				continue
			}
			for rows.Next() {
			}
			if err := rows.Close(); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
	})
}

func TestRenewalsFitIntoWhatTheServerTakesAtOnce(t *testing.T) {
	t.Parallel()
	const n, perGrant = 2000, 50
	for _, engine := range testdb.Startable() {
		if engine == testdb.Postgres {
			continue
		}
		t.Run(engine, func(t *testing.T) {
			f := &fixture{testdb.StartServer(t, engine, "--max-allowed-packet=65536").Database}
			f.migrate(t)
			for _, params := range []string{"interpolateParams=false", "interpolateParams=true"} {
				s, db := f.store(t, params)
				reqs := requests(n, params+" and a name of some length, number %05d")
				var res []driver.AcquireResult
				for chunk := range slices.Chunk(reqs, perGrant) {
					res = append(res, take(t, s, chunk...)...)
				}
				before := questions(t, db)
				got := renew(t, s, false, renewals(reqs, res, 2*minute)...)
				if len(got.Status) != n || slices.ContainsFunc(got.Status, func(s driver.RenewStatus) bool { return s != driver.Renewed }) {
					t.Errorf("got %v", got.Status)
				}
				t.Logf("%d statements", questions(t, db)-before-1)
			}
		})
	}
}

func TestASelectLimitOfTheSessionCutsNothingShort(t *testing.T) {
	t.Parallel()
	eachServer(t, func(t *testing.T, f *fixture) {
		wants(t, openErr(t, lockmysql.DB(f.Open(t, "sql_select_limit=2"))), driver.ErrUnsupported, "sql_select_limit")

		s, db := f.store(t)
		exec(t, db, "SET sql_select_limit = 1")
		life(t, s, requests(3, "%d"))
	})
}
