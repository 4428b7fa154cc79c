package k8slock_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/sqllock/sqllock"
	"github.com/sqllock/sqllock/driver"
	"github.com/sqllock/sqllock/internal/testdb"
	k8slock "github.com/sqllock/sqllock/k8s"
	"github.com/sqllock/sqllock/lockmysql"
	"github.com/sqllock/sqllock/lockpg"
	"github.com/sqllock/sqllock/locksqlite"
	"github.com/sqllock/sqllock/migrations"
)

func TestErrorsAreThoseOfAnAPIServer(t *testing.T) {
	onEach(t, testdb.All(), func(t *testing.T, d *testdb.Database, db *sql.DB) {
		a, b := newLock(t, d, db, "a"), newLock(t, d, db, "b")
		if _, _, err := a.Get(t.Context()); !apierrors.IsNotFound(err) {
			t.Errorf("Get of a missing record: %v", err)
		}
		if err := a.Update(t.Context(), record("a")); err == nil {
			t.Error("Update worked before Get")
		}
		if err := a.Create(t.Context(), record("a")); err != nil {
			t.Fatal(err)
		}
		if err := b.Create(t.Context(), record("b")); !apierrors.IsAlreadyExists(err) {
			t.Errorf("Create of an existing record: %v", err)
		}
		if holder, _ := mustGet(t, b); holder != "a" {
			t.Errorf("%q leads", holder)
		}
		mustUpdate(t, a, "a") // which b has not seen
		if err := b.Update(t.Context(), record("b")); !apierrors.IsConflict(err) {
			t.Errorf("Update of a record that has changed: %v", err)
		}
		if holder, _ := mustGet(t, b); holder != "a" {
			t.Errorf("%q leads", holder)
		}
		mustExec(t, db, `DELETE FROM sqllock_record`)
		if err := a.Update(t.Context(), record("a")); !apierrors.IsNotFound(err) {
			t.Errorf("Update of a record that was deleted: %v", err)
		}
	})
}

func TestARecordIsKeptWhole(t *testing.T) {
	onEach(t, testdb.All(), func(t *testing.T, d *testdb.Database, db *sql.DB) {
		name, identity := "名/\"'\\`", "host é \\ 💡 <&>"
		l, err := k8slock.New(t.Context(), target(d.Engine(), db), name, identity, nil)
		if err != nil {
			t.Fatal(err)
		}
		want := record(identity)
		want.LeaderTransitions, want.Strategy, want.PreferredHolder = 7, "s", "p"
		want.RenewTime.Time = time.Unix(1700000000, 0)
		if err := l.Create(t.Context(), want); err != nil {
			t.Fatal(err)
		}
		got, _, err := l.Get(t.Context())
		if err != nil || !got.RenewTime.Equal(&want.RenewTime) {
			t.Fatalf("%v, %v", got, err)
		}
		got.RenewTime = want.RenewTime // the zones differ
		if *got != want {
			t.Errorf("%v", got)
		}
		if l.Describe() != name || l.Identity() != identity {
			t.Errorf("%q, %q", l.Describe(), l.Identity())
		}
	})
}

func TestEachUpdateChangesTheBytes(t *testing.T) {
	onEach(t, testdb.All(), func(t *testing.T, d *testdb.Database, db *sql.DB) {
		a, b := newLock(t, d, db, "a"), newLock(t, d, db, "b")
		if err := a.Create(t.Context(), record("a")); err != nil {
			t.Fatal(err)
		}
		_, first := mustGet(t, b)
		mustUpdate(t, a, "a") // the same record
		_, second := mustGet(t, b)
		_, third := mustGet(t, b)
		if string(first) == string(second) || string(second) != string(third) {
			t.Errorf("%s, %s, %s", first, second, third)
		}
	})
}

func TestATokenIsThatOfOneTerm(t *testing.T) {
	onEach(t, testdb.All(), func(t *testing.T, d *testdb.Database, db *sql.DB) {
		a, b := newLock(t, d, db, "a"), newLock(t, d, db, "b")
		if token := a.Token(); token != 0 {
			t.Errorf("token %d before the first term", token)
		}
		if err := a.Create(t.Context(), record("a")); err != nil {
			t.Fatal(err)
		}
		first := a.Token()
		for range 3 {
			mustUpdate(t, a, "a")
		}
		if token := lead(t, a); token != first || token <= 0 {
			t.Errorf("token %d after renewals, %d before", token, first)
		}
		last := first
		rises := func(what string, token int64) {
			t.Helper()
			if token <= last {
				t.Errorf("%s: token %d after %d", what, token, last)
			}
			last = token
		}
		rises("another", lead(t, b))
		rises("back", lead(t, a))
		mustUpdate(t, a, "") // a release
		rises("after a release", lead(t, a))
		rises("a new process", lead(t, newLock(t, d, db, "a")))
		mustExec(t, db, `DELETE FROM sqllock_record`)
		for _, former := range []*k8slock.Lock{a, b} { // which have seen a leader
			if err := former.Create(t.Context(), record("b")); !apierrors.IsConflict(err) {
				t.Errorf("Create while the leader may believe that it leads: %v", err)
			}
		}
		c := newLock(t, d, db, "c")
		if err := c.Create(t.Context(), record("c")); err != nil {
			t.Fatal(err)
		}
		rises("created anew", c.Token())
		mustGet(t, b)
		mustGet(t, c)
		mustUpdate(t, c, "")
		mustGet(t, b)
		mustExec(t, db, `DELETE FROM sqllock_record`)
		if err := b.Create(t.Context(), record("b")); err != nil {
			t.Errorf("Create after a release: %v", err)
		}
		rises("created anew after a release", b.Token())
	})
}

// aheadBy is by how much the clock of the server is ahead of those of the candidates.
const aheadBy = time.Hour

// The clocks of candidates may differ: a new term has the clock of the database.
func TestATokenIsTheClockOfTheDatabaseAtLeast(t *testing.T) {
	// The clock of Postgres cannot be set.
	engines := slices.DeleteFunc(slices.Clone(testdb.Engines()), func(e string) bool { return e == testdb.Postgres })
	onEach(t, engines, func(t *testing.T, d *testdb.Database, _ *sql.DB) {
		clock := time.Now().Add(aheadBy).Unix()
		db := d.Open(t, fmt.Sprintf("timestamp=%d", clock))
		a, b := newLock(t, d, db, "a"), newLock(t, d, db, "b")
		if err := a.Create(t.Context(), record("a")); err != nil {
			t.Fatal(err)
		}
		first := a.Token()
		second := lead(t, b)
		if first < clock*1e6 || second <= first {
			t.Errorf("tokens %d and %d, when the clock of the database says %d seconds", first, second, clock)
		}
	})
}

// A record was written with a higher version than the clock of the database says by now.
func TestATokenIsHigherThanAllVersionsThatTheLockHasSeen(t *testing.T) {
	onEach(t, testdb.All(), func(t *testing.T, d *testdb.Database, db *sql.DB) {
		a, b := newLock(t, d, db, "a"), newLock(t, d, db, "b")
		if err := a.Create(t.Context(), record("a")); err != nil {
			t.Fatal(err)
		}
		mustExec(t, db, fmt.Sprintf(`UPDATE sqllock_record SET version = version + %d`, aheadBy.Microseconds()))
		last := lead(t, b)
		mustUpdate(t, b, "")
		mustGet(t, a)
		mustGet(t, b)
		mustExec(t, db, `DELETE FROM sqllock_record`)
		for _, l := range []*k8slock.Lock{a, b} { // which forget the record, and not its version
			if _, _, err := l.Get(t.Context()); !apierrors.IsNotFound(err) {
				t.Errorf("Get of a record that was deleted: %v", err)
			}
		}
		if err := a.Create(t.Context(), record("a")); err != nil {
			t.Fatal(err)
		}
		if token := a.Token(); token <= last {
			t.Errorf("token %d follows token %d", token, last)
		}
	})
}

func TestOneOfThoseWhoSawTheSameUpdates(t *testing.T) {
	onEach(t, testdb.All(), func(t *testing.T, d *testdb.Database, db *sql.DB) {
		candidates := []*k8slock.Lock{}
		for _, identity := range []string{"a", "b", "c", "d"} {
			candidates = append(candidates, newLock(t, d, db, identity))
		}
		if err := candidates[0].Create(t.Context(), record("a")); err != nil {
			t.Fatal(err)
		}
		for range 5 {
			var won atomic.Int32
			var all sync.WaitGroup
			for _, l := range candidates {
				mustGet(t, l)
			}
			for _, l := range candidates {
				all.Go(func() {
					switch err := l.Update(t.Context(), record(l.Identity())); {
					case err == nil:
						won.Add(1)
					case !apierrors.IsConflict(err):
						t.Error(err)
					}
				})
			}
			all.Wait()
			if n := won.Load(); n != 1 && (d.Engine() != testdb.SQLite || n > 1) { // it may be busy
				t.Errorf("%d of them updated the record", n)
			}
		}
	})
}

func TestAConflictIsOneWithStricterIsolationToo(t *testing.T) {
	onEach(t, testdb.Engines(), func(t *testing.T, d *testdb.Database, db *sql.DB) {
		setting := "default_transaction_isolation=serializable"
		switch d.Engine() {
		case testdb.MariaDB:
			setting = "tx_isolation='SERIALIZABLE'"
		case testdb.MySQL:
			setting = "transaction_isolation='SERIALIZABLE'"
		}
		strict := d.Open(t, setting)
		a, b := newLock(t, d, strict, "a"), newLock(t, d, strict, "b")
		if err := a.Create(t.Context(), record("a")); err != nil {
			t.Fatal(err)
		}
		mustGet(t, b)
		tx, err := db.BeginTx(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := tx.ExecContext(t.Context(), `UPDATE sqllock_record SET version = version + 1`); err != nil {
			t.Fatal(err)
		}
		result := make(chan error, 1)
		go func() { result <- b.Update(t.Context(), record("b")) }()
		time.Sleep(50 * time.Millisecond) // so that it waits, as a rule
		if err := tx.Commit(); err != nil {
			t.Fatal(err)
		}
		if err := <-result; !apierrors.IsConflict(err) {
			t.Errorf("Update: %v", err)
		}
	})
}

func TestOnlyTheLeaderReleases(t *testing.T) {
	onEach(t, testdb.All(), func(t *testing.T, d *testdb.Database, db *sql.DB) {
		a, b := newLock(t, d, db, "a"), newLock(t, d, db, "b")
		if err := a.Create(t.Context(), record("a")); err != nil {
			t.Fatal(err)
		}
		lead(t, b)
		mustGet(t, a) // so does client-go, and does not look
		if err := a.Update(t.Context(), record("")); !apierrors.IsConflict(err) {
			t.Errorf("the release of a former leader: %v", err)
		}
		mustUpdate(t, b, "")
		if holder, _ := mustGet(t, a); holder != "" {
			t.Errorf("%q leads", holder)
		}
	})
}

func TestAGuardRefusesAFormerLeader(t *testing.T) {
	onEach(t, testdb.All(), func(t *testing.T, d *testdb.Database, db *sql.DB) {
		a, b := newLock(t, d, db, "a"), newLock(t, d, db, "b")
		guard := func(l *k8slock.Lock, token int64) error {
			tx, err := db.BeginTx(t.Context(), nil)
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = tx.Rollback() }()
			return l.Guard(t.Context(), tx, token)
		}
		if err := a.Create(t.Context(), record("a")); err != nil {
			t.Fatal(err)
		}
		first := a.Token()
		if err := guard(a, first); err != nil {
			t.Error(err)
		}
		mustUpdate(t, a, "a")
		if err := guard(a, first); err != nil {
			t.Errorf("after a renewal: %v", err)
		}
		second := lead(t, b)
		if err := guard(a, first); !errors.Is(err, sqllock.ErrFenced) {
			t.Errorf("the former leader: %v", err)
		}
		if err := guard(b, second); err != nil {
			t.Error(err)
		}
		mustUpdate(t, b, "")
		if err := guard(b, second); !errors.Is(err, sqllock.ErrFenced) {
			t.Errorf("after a release: %v", err)
		}
		for _, token := range []int64{0, -1} {
			if err := guard(a, token); !errors.Is(err, sqllock.ErrInvalidOption) {
				t.Errorf("token %d: %v", token, err)
			}
		}
		if err := a.Guard(t.Context(), nil, first); !errors.Is(err, sqllock.ErrInvalidOption) {
			t.Errorf("no transaction: %v", err)
		}
	})
}

func TestAGuardKeepsOthersFromLeadingAndLetsTheLeaderRenew(t *testing.T) {
	onEach(t, testdb.Engines(), func(t *testing.T, d *testdb.Database, db *sql.DB) {
		a, b := newLock(t, d, db, "a"), newLock(t, d, db, "b")
		other, err := k8slock.New(t.Context(), target(d.Engine(), db), "another controller", "a", nil)
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(other.Create(t.Context(), record("a")), a.Create(t.Context(), record("a"))); err != nil {
			t.Fatal(err)
		}
		tx, err := db.BeginTx(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = tx.Rollback() }()
		if err := a.Guard(t.Context(), tx, a.Token()); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), testTimeout)
		defer cancel()
		for range 3 {
			if err := a.Update(ctx, record("a")); err != nil {
				t.Fatalf("a renewal: %v", err)
			}
		}
		mustUpdate(t, other, "")
		lead(t, other) // elections do not mind each other
		mustGet(t, b)
		result := make(chan error, 1)
		go func() { result <- b.Update(ctx, record("b")) }()
		select {
		case err := <-result:
			t.Fatalf("another leads while the term is guarded: %v", err)
		case <-time.After(200 * time.Millisecond):
		}
		if err := tx.Commit(); err != nil {
			t.Fatal(err)
		}
		if err := <-result; err != nil {
			t.Error(err)
		}
	})
}

func TestACallEndsWithItsTimeout(t *testing.T) {
	onEach(t, testdb.Engines(), func(t *testing.T, d *testdb.Database, db *sql.DB) {
		a := newLock(t, d, db, "a")
		b, err := k8slock.New(t.Context(), target(d.Engine(), db), "controller", "b", &k8slock.Options{Timeout: 100 * time.Millisecond})
		if err != nil {
			t.Fatal(err)
		}
		if err := a.Create(t.Context(), record("a")); err != nil {
			t.Fatal(err)
		}
		tx, err := db.BeginTx(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = tx.Rollback() }()
		if err := a.Guard(t.Context(), tx, a.Token()); err != nil {
			t.Fatal(err)
		}
		mustGet(t, b)
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second) // more than its own
		defer cancel()
		if err := b.Update(ctx, record("b")); !errors.Is(err, context.DeadlineExceeded) || ctx.Err() != nil {
			t.Errorf("Update: %v, %v", err, ctx.Err())
		}
	})
}

func TestEventsAreLogged(t *testing.T) {
	t.Parallel()
	d := testdb.New(t, testdb.SQLite)
	db := d.Open(t)
	if err := migrations.Up(t.Context(), locksqlite.DB(db)); err != nil {
		t.Fatal(err)
	}
	var log strings.Builder
	l, err := k8slock.New(t.Context(), locksqlite.DB(db), "controller", "a", &k8slock.Options{Logger: slog.New(slog.NewTextHandler(&log, nil))})
	if err != nil {
		t.Fatal(err)
	}
	l.RecordEvent("became leader")
	if text := log.String(); !strings.Contains(text, "became leader") || !strings.Contains(text, "name=controller identity=a") {
		t.Errorf("%q", text)
	}
	newLock(t, d, db, "b").RecordEvent("became leader") // goes nowhere
}

func TestInvalidArgumentsAreRefused(t *testing.T) {
	t.Parallel()
	db := testdb.New(t, testdb.SQLite).Open(t)
	for what, c := range map[string]struct {
		db             k8slock.Database
		name, identity string
		opts           *k8slock.Options
		want           error
	}{
		"no tables":           {locksqlite.DB(db), "n", "i", nil, driver.ErrSchema},
		"no database":         {nil, "n", "i", nil, driver.ErrInvalidOption},
		"a nil database":      {(*lockpg.Database)(nil), "n", "i", nil, driver.ErrInvalidOption},
		"no handle":           {lockmysql.DB(nil), "n", "i", nil, driver.ErrInvalidOption},
		"no name":             {locksqlite.DB(db), "", "i", nil, driver.ErrInvalidName},
		"no identity":         {locksqlite.DB(db), "n", "", nil, driver.ErrInvalidName},
		"bytes as identity":   {locksqlite.DB(db), "n", "\xff", nil, driver.ErrInvalidName},
		"a negative timeout":  {locksqlite.DB(db), "n", "i", &k8slock.Options{Timeout: -1}, driver.ErrInvalidOption},
		"a bad prefix":        {locksqlite.DB(db, locksqlite.TablePrefix("-")), "n", "i", nil, driver.ErrInvalidOption},
		"a handle of another": {lockpg.DB(db), "n", "i", nil, driver.ErrInvalidOption},
	} {
		if l, err := k8slock.New(t.Context(), c.db, c.name, c.identity, c.opts); l != nil || !errors.Is(err, c.want) {
			t.Errorf("%s: %v", what, err)
		}
	}
	var none context.Context
	if _, err := k8slock.New(none, locksqlite.DB(db), "n", "i", nil); !errors.Is(err, driver.ErrInvalidOption) {
		t.Errorf("no context: %v", err)
	}
}

func TestTablesMayHaveAnotherSchemaAndPrefix(t *testing.T) {
	t.Parallel()
	for _, engine := range testdb.All() {
		db := testdb.New(t, engine).Open(t)
		var target k8slock.Database
		switch engine {
		case testdb.Postgres:
			target = lockpg.DB(db, lockpg.Schema("S"), lockpg.TablePrefix("P_"))
		case testdb.SQLite:
			target = locksqlite.DB(db, locksqlite.TablePrefix("p_"))
		default:
			target = lockmysql.DB(db, lockmysql.TablePrefix("p_"))
		}
		if err := migrations.Up(t.Context(), target); err != nil {
			t.Fatal(err)
		}
		l, err := k8slock.New(t.Context(), target, "controller", "a", nil)
		if err != nil {
			t.Fatal(err)
		}
		if err := l.Create(t.Context(), record("a")); err != nil {
			t.Errorf("%s: %v", engine, err)
		}
		if token := lead(t, l); token == 0 {
			t.Errorf("%s: no token", engine)
		}
	}
}
