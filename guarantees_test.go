package sqllock_test

import (
	"database/sql"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sqllock/sqllock"
	"github.com/sqllock/sqllock/internal/testdb"
)

// onEach runs a test on each database that is here, in its ordinary setting, with
// tables.
func onEach(t *testing.T, test func(t *testing.T, e *engine, d *testdb.Database)) {
	onEngines(t, func(string) bool { return true }, test)
}

// onEngines is onEach for some of the databases.
func onEngines(t *testing.T, fits func(name string) bool, test func(t *testing.T, e *engine, d *testdb.Database)) {
	here := testdb.All()
	for i := range engines {
		e := &engines[i]
		if e.setting != "" || !slices.Contains(here, e.name) || !fits(e.name) {
			continue
		}
		t.Run(e.name, func(t *testing.T) {
			d := testdb.New(t, e.name)
			e.migrated(t, d)
			test(t, e, d)
		})
	}
}

// newLocks returns a Locker that does not reap and is closed when the test has
// ended. What it still holds then is left to expire.
func newLocks(t *testing.T, db database, o sqllock.UniqueOptions) *sqllock.Locker {
	t.Helper()
	if o.Reaper == nil {
		o.Reaper = &sqllock.ReaperOptions{Off: true}
	}
	l, err := sqllock.NewUnique(t.Context(), db, &o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = closeAtOnce(l) })
	return l
}

func mustTry(t *testing.T, l *sqllock.Locker, name string, opts ...sqllock.LockOption) *sqllock.Lease {
	t.Helper()
	lease, err := l.TryLock(t.Context(), name, opts...)
	if err != nil {
		t.Fatalf("TryLock: %v", err)
	}
	return lease
}

func mustExec(t *testing.T, db *sql.DB, query string, args ...any) sql.Result {
	t.Helper()
	res, err := db.ExecContext(t.Context(), query, args...)
	if err != nil {
		t.Fatalf("%s: %v", query, err)
	}
	return res
}

// sqlOf returns the only statement of the guarantees that begins so, for the
// database.
func sqlOf(t *testing.T, engine, beginning string) string {
	t.Helper()
	var found []string
	for _, b := range docBlocks(t, guarantees, "sql") {
		if strings.HasPrefix(b.text, beginning) {
			found = append(found, strings.TrimSpace(b.text))
		}
	}
	if len(found) != 1 {
		t.Fatalf("%d statements of %s begin with %q", len(found), guarantees, beginning)
	}
	if engine != testdb.Postgres {
		return found[0]
	}
	n := 0
	return regexp.MustCompile(`\?`).ReplaceAllStringFunc(found[0], func(string) string {
		n++
		return fmt.Sprint("$", n)
	})
}

// TestTheChecksOfTheGuaranteesRefuseAFormerHolder runs the statements that the
// document recommends.
func TestTheChecksOfTheGuaranteesRefuseAFormerHolder(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, e *engine, d *testdb.Database) {
		db := d.Open(t)
		wrote := func(query string, args ...any) bool {
			t.Helper()
			n, err := mustExec(t, db, query, args...).RowsAffected()
			if err != nil {
				t.Fatal(err)
			}
			return n == 1
		}
		l := newLocks(t, e.open(db), sqllock.UniqueOptions{})
		terms := make([]int64, 2)
		for i := range terms {
			lease := mustTry(t, l, "invoice/42")
			terms[i] = lease.Token()
			if err := lease.Unlock(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		former, holder := terms[0], terms[1]

		mustExec(t, db, `CREATE TABLE invoice (id BIGINT PRIMARY KEY, state VARCHAR(20), token BIGINT NOT NULL)`)
		mustExec(t, db, `INSERT INTO invoice VALUES (42, 'new', 0)`)
		update := sqlOf(t, e.name, "UPDATE invoice")
		if !wrote(update, "a", former, 42, former) || !wrote(update, "b", former, 42, former) || !wrote(update, "c", holder, 42, holder) {
			t.Error("a holder's write was refused")
		}
		if wrote(update, "d", former, 42, former) {
			t.Error("a former holder's write was accepted")
		}

		mustExec(t, db, `CREATE TABLE account (id BIGINT PRIMARY KEY, balance BIGINT NOT NULL, token BIGINT NOT NULL)`)
		mustExec(t, db, `INSERT INTO account VALUES (7, 100, 0)`)
		announce, write := sqlOf(t, e.name, "UPDATE account SET token"), sqlOf(t, e.name, "UPDATE account SET balance")
		if !wrote(announce, former, 7, former) || !wrote(announce, holder, 7, holder) {
			t.Error("a holder was refused")
		}
		if wrote(announce, former, 7, former) || wrote(write, 110, 7, former) {
			t.Error("a former holder was not refused once its successor had said who it is")
		}
		var balance int64
		if err := db.QueryRowContext(t.Context(), sqlOf(t, e.name, "SELECT balance"), 7).Scan(&balance); err != nil || balance != 100 {
			t.Errorf("the balance is %d, %v", balance, err)
		}
		if !wrote(write, 120, 7, holder) {
			t.Error("the holder's write was refused")
		}
	})
}

func TestTheLastGuardsOfTheGuaranteesFindWhatWasDoneTwice(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, e *engine, d *testdb.Database) {
		db := d.Open(t)
		mustExec(t, db, sqlOf(t, e.name, "CREATE TABLE mail_sent"))
		insert := sqlOf(t, e.name, "INSERT INTO mail_sent")
		mustExec(t, db, insert, 42, 1)
		if _, err := db.ExecContext(t.Context(), insert, 42, 2); err == nil {
			t.Error("the mail was noted twice")
		}
		mustExec(t, db, `CREATE TABLE payment (invoice BIGINT NOT NULL, token BIGINT NOT NULL)`)
		mustExec(t, db, `INSERT INTO payment VALUES (1, 5), (2, 5), (2, 5), (3, 5), (3, 6)`)
		if got := firstColumn(t, db, sqlOf(t, e.name, "SELECT invoice")); !slices.Equal(got, []string{"3"}) {
			t.Errorf("paid by two terms: %q, want 3", got)
		}
	})
}

// shiftTimes moves all times in the table, which is what a step of the database's clock
// in the other direction looks like to it. The tokens of those who hold cannot be
// moved in their hands, and stay.
func shiftTimes(t *testing.T, db *sql.DB, by time.Duration) {
	t.Helper()
	mustExec(t, db, fmt.Sprintf(`UPDATE sqllock_lock SET since = since + %d, expires_at = expires_at + %[1]d,
		not_before = CASE WHEN not_before = 0 THEN 0 ELSE not_before + %[1]d END,
		version = CASE WHEN acq IS NULL THEN version + %[1]d ELSE version END`, by.Microseconds()))
}

const clockStep = time.Hour

func TestAStepForwardOfTheDatabasesClockIsToldAtTheNextRenewal(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, e *engine, d *testdb.Database) {
		db := d.Open(t)
		const ttl = 12 * time.Second
		former := mustTry(t, newLocks(t, e.open(db), sqllock.UniqueOptions{TTL: ttl}), "k")
		other := newLocks(t, e.open(d.Open(t)), sqllock.UniqueOptions{})
		shiftTimes(t, db, -clockStep)
		next := mustTry(t, other, "k")
		if next.Token() <= former.Token() {
			t.Errorf("token %d follows token %d", next.Token(), former.Token())
		}
		known := time.Now()
		<-former.Context().Done()
		if took := time.Since(known); took > ttl*3/4 {
			t.Errorf("it was told after %v, which is not the next renewal of a TTL of %v", took, ttl)
		}
		if err := next.Unlock(t.Context()); err != nil {
			t.Errorf("the next one's Unlock: %v", err)
		}
	})
}

func TestAStepBackOfTheDatabasesClockKeepsNamesForLonger(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, e *engine, d *testdb.Database) {
		db := d.Open(t)
		const ttl = 12 * time.Second
		l := newLocks(t, e.open(db), sqllock.UniqueOptions{TTL: ttl})
		other := newLocks(t, e.open(d.Open(t)), sqllock.UniqueOptions{})
		lease, kept := mustTry(t, l, "held"), mustTry(t, l, "kept", sqllock.MinHold(time.Minute))
		if err := kept.Unlock(t.Context()); err != nil {
			t.Fatal(err)
		}
		free := mustTry(t, l, "free")
		if err := free.Unlock(t.Context()); err != nil {
			t.Fatal(err)
		}
		shiftTimes(t, db, clockStep)
		time.Sleep(ttl/3 + time.Second) // a renewal, which must not shorten what the row says
		for _, name := range []string{"held", "kept"} {
			var held *sqllock.HeldError
			if _, err := other.TryLock(t.Context(), name); !errors.As(err, &held) || time.Until(held.Until) < clockStep/2 {
				t.Errorf("%s: want a HeldError that says until when, got %v", name, err)
			}
		}
		if err := lease.Unlock(t.Context()); err != nil {
			t.Errorf("Unlock: %v", err)
		}
		for name, before := range map[string]int64{"held": lease.Token(), "free": free.Token() + clockStep.Microseconds()} {
			if next := mustTry(t, other, name); next.Token() <= before {
				t.Errorf("%s: token %d follows token %d", name, next.Token(), before)
			}
		}
	})
}

func TestACallThatFailedKeepsNothingWhateverItsOptions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := newFake()
		db.after = once("grant", errNoReply)
		b := newBench(t, db, &sqllock.UniqueOptions{TTL: ttl})
		defer b.close()
		lease, err := b.TryLock(t.Context(), "a", sqllock.MinHold(time.Hour), sqllock.LockDelay(time.Hour), sqllock.Value([]byte("v")))
		if lease != nil || err == nil {
			t.Fatalf("TryLock = %v, %v; want the error of a reply that was lost", lease, err)
		}
		time.Sleep(time.Second) // what is done in the background is done
		if row := db.row("a"); db.held("a") || row.notBefore > time.Now().UnixMicro() {
			t.Errorf("the name is kept: %+v", row)
		}
	})
}
