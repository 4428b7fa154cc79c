package sqllock_test

import (
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sqllock/sqllock"
	"github.com/sqllock/sqllock/internal/pairs"
	"github.com/sqllock/sqllock/internal/testdb"
	"github.com/sqllock/sqllock/internal/testlog"
	"github.com/sqllock/sqllock/lockmysql"
	"github.com/sqllock/sqllock/migrations"
)

// life is all that can be done with locks but for cleaning up, by a role whose
// rights may not be enough: it returns the first error.
func (r *roles) life(t *testing.T, db *sql.DB, o sqllock.UniqueOptions) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	o.TTL = 6 * time.Second // a machine may be away for three of them
	l, err := sqllock.NewUnique(ctx, r.e.open(db), &o)
	if err != nil {
		return err
	}
	defer closeSoon(l)
	other, err := sqllock.NewUnique(ctx, r.e.open(db), &sqllock.UniqueOptions{Reaper: o.Reaper})
	if err != nil {
		return err
	}
	defer closeSoon(other)
	name := rand.Text()
	for _, inTx := range []bool{false, true} { // a name without a row, and one with a row
		lease, err := l.Lock(ctx, name, sqllock.Value([]byte("value")))
		if err != nil {
			return err
		}
		if err := renewed(lease); err != nil {
			return err
		}
		switch second, err := other.TryLock(ctx, name); {
		case err == nil: // if the first was lost, its Unlock says so
			return errors.Join(errors.New("TryLock has got a name that is held"), second.Unlock(ctx), lease.Unlock(ctx))
		case !errors.Is(err, sqllock.ErrHeld):
			return fmt.Errorf("TryLock of a held name: %w", err)
		}
		if err := lease.InTx(ctx, nil, func(context.Context, *sql.Tx) error { return nil }); err != nil {
			return err
		}
		if inTx {
			if err := lease.UnlockInTx(ctx, nil, func(context.Context, *sql.Tx) error { return nil }); err != nil {
				return err
			}
		}
		if err := lease.Unlock(ctx); err != nil {
			return err
		}
	}
	if err := r.enqueue(ctx, t, l, other, name); err != nil {
		return err
	}
	for _, key := range []string{"plain", "in a transaction"} {
		ran, err := l.Once(ctx, name, key, func(ctx context.Context, run *sqllock.Run) error {
			if key == "plain" {
				return nil
			}
			return run.InTx(ctx, nil, func(context.Context, *sql.Tx) error { return nil })
		})
		if err != nil || !ran {
			return fmt.Errorf("Once = %v, %w", ran, err)
		}
	}
	return r.surroundings(ctx, t, l, other, name)
}

// enqueue has somebody wait until the beat of its Locker has come again, and be handed the
// name.
func (r *roles) enqueue(ctx context.Context, t *testing.T, l, other *sqllock.Locker, name string) error {
	t.Helper()
	lease, err := l.Lock(ctx, name)
	if err != nil {
		return err
	}
	waiting, leave := context.WithCancel(ctx)
	defer leave()
	next := make(chan error, 1)
	go func() {
		lease, err := other.Lock(waiting, name, sqllock.TTL(600*time.Millisecond))
		if err == nil {
			err = lease.Unlock(ctx)
		}
		next <- err
	}()
	beat := `SELECT w.expires_at FROM sqllock_waiter w JOIN sqllock_claim c ON c.locker = w.locker WHERE c.name = '` + name + `'`
	for seen := ""; ; {
		if until := firstColumn(t, r.admin, beat); len(until) == 1 && seen == "" {
			seen = until[0]
		} else if len(until) == 1 && until[0] != seen {
			break
		}
		select {
		case err := <-next:
			return errors.Join(fmt.Errorf("the waiter: %w", err), lease.Unlock(ctx))
		case <-time.After(5 * time.Millisecond):
		}
	}
	if err := lease.Unlock(ctx); err != nil {
		return err
	}
	return <-next
}

// renewed waits until a lease was renewed.
func renewed(lease *sqllock.Lease) error {
	for left := lease.Remaining(); lease.Remaining() <= left; time.Sleep(time.Millisecond) {
		if cause := context.Cause(lease.Context()); cause != nil {
			return cause
		}
		left = lease.Remaining()
	}
	return nil
}

// sharing is all that can be done with a lease that is shared.
func (r *roles) sharing(t *testing.T, db *sql.DB) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	l, err := sqllock.NewUnique(ctx, r.e.open(db), &sqllock.UniqueOptions{TTL: 3 * time.Second, Reaper: &sqllock.ReaperOptions{Off: true}})
	if err != nil {
		return err
	}
	defer closeSoon(l)
	lease, err := l.RLock(ctx, rand.Text())
	if err != nil {
		return err
	}
	if err := renewed(lease); err != nil {
		return err
	}
	return lease.Unlock(ctx)
}

// surroundings are a take-over, looking inside, and ForceUnlock.
func (r *roles) surroundings(ctx context.Context, t *testing.T, l, other *sqllock.Locker, name string) error {
	t.Helper()
	lease, err := other.Lock(ctx, name, sqllock.TTL(time.Hour))
	if err != nil {
		return err
	}
	mustExec(t, r.admin, `UPDATE sqllock_lock SET expires_at = 1 WHERE acq IS NOT NULL`)
	next, err := l.TryLock(ctx, name, sqllock.TTL(time.Hour))
	if err != nil {
		return fmt.Errorf("TryLock of an expired name: %w", err)
	}
	if err := r.look(ctx, l, name); err != nil {
		return err
	}
	if _, err := other.ForceUnlock(ctx, name); err != nil {
		return err
	}
	for _, lost := range []*sqllock.Lease{lease, next} {
		if err := lost.Unlock(ctx); !errors.Is(err, sqllock.ErrLost) {
			return fmt.Errorf("Unlock of a lease that was lost: %w", err)
		}
	}
	return nil
}

// look looks at a name that is held.
func (r *roles) look(ctx context.Context, l *sqllock.Locker, name string) error {
	if info, err := l.Inspect(ctx, name); err != nil || info.State != sqllock.StateHeld {
		return fmt.Errorf("Inspect = %+v, %w", info, err)
	}
	listed := 0
	for _, err := range l.List(ctx) {
		if err != nil {
			return err
		}
		listed++
	}
	if listed == 0 {
		return errors.New("List yields nothing")
	}
	for _, err := range l.Watch(ctx, name) {
		return err // the first state
	}
	return errors.New("Watch yields nothing")
}

// reap purges an idle row and ends a term that has expired.
func (r *roles) reap(t *testing.T, db *sql.DB) error {
	t.Helper()
	mustExec(t, r.admin, `DELETE FROM sqllock_lock`)
	mustExec(t, r.admin, `INSERT INTO sqllock_lock (name, version) VALUES ('idle', 1)`)
	mustTry(t, newLocks(t, r.e.open(r.admin), sqllock.UniqueOptions{TTL: time.Hour}), "crashed")
	mustExec(t, r.admin, `UPDATE sqllock_lock SET expires_at = 1`)
	mustExec(t, r.admin, `INSERT INTO sqllock_waiter (locker, expires_at) SELECT acq, 1 FROM sqllock_lock WHERE acq IS NOT NULL`) // of a dead Locker
	mustExec(t, r.admin, `DELETE FROM sqllock_done`)
	mustExec(t, r.admin, `INSERT INTO sqllock_done VALUES ('k', 'old', 1, 1, 1), ('k', '`+sqllock.TimeKey(time.Now())+`', 1, 1, 1)`)
	l, err := sqllock.NewUnique(t.Context(), r.e.open(db), &sqllock.UniqueOptions{Reaper: &sqllock.ReaperOptions{Off: true}})
	if err != nil {
		return err
	}
	defer func() { _ = l.Close(t.Context()) }()
	report, err := l.Reaper().Reap(t.Context())
	if err == nil && (report.Purged != 1 || report.PurgedKeys != 1 || len(report.Crashed) != 1) {
		err = fmt.Errorf("Reap = %+v", report)
	}
	return err
}

// background lets a Locker reap by itself until a pass was made, and returns what
// it complains of.
func (r *roles) background(t *testing.T, db *sql.DB) error {
	t.Helper()
	mustExec(t, r.admin, `UPDATE sqllock_meta SET swept_at = 0`)
	var log testlog.Text
	l, err := sqllock.NewUnique(t.Context(), r.e.open(db), &sqllock.UniqueOptions{
		Logger: slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelWarn})),
		Reaper: &sqllock.ReaperOptions{Interval: 20 * time.Millisecond},
	})
	if err != nil {
		return err
	}
	for end := time.Now().Add(20 * time.Second); time.Now().Before(end) && log.String() == ""; time.Sleep(10 * time.Millisecond) {
		if firstColumn(t, r.admin, `SELECT swept_at FROM sqllock_meta`)[0] != "0" {
			break
		}
	}
	if err := l.Close(t.Context()); err != nil {
		return err
	}
	if text := log.String(); text != "" || firstColumn(t, r.admin, `SELECT swept_at FROM sqllock_meta`)[0] == "0" {
		return fmt.Errorf("the reaper in the background: %s", text)
	}
	return nil
}

// everything is all that the mode unique does.
func (r *roles) everything(t *testing.T, db *sql.DB) error {
	t.Helper()
	return retryLost(func() error { return r.once(t, db) })
}

// retryLost calls f again if a lease was lost. That says nothing of privileges, unless it was lost for
// want of one: the machine was busy.
func retryLost(f func() error) (err error) {
	for range 3 {
		if err = f(); !errors.Is(err, sqllock.ErrLost) || denied(err) {
			break
		}
	}
	return err
}

func (r *roles) once(t *testing.T, db *sql.DB) error {
	t.Helper()
	if err := r.life(t, db, sqllock.UniqueOptions{}); err != nil {
		return err
	}
	if err := r.sharing(t, db); err != nil {
		return err
	}
	if err := r.reap(t, db); err != nil {
		return err
	}
	return r.background(t, db)
}

func TestARoleNeedsWhatTheGuideGrantsAndNoMore(t *testing.T) {
	t.Parallel()
	onEachServer(t, func(t *testing.T, e *engine, d *testdb.Database) {
		r := newRoles(t, e, d)
		grants := grantsOf(t, e, "everything")
		db := r.with(t, grants...)
		if err := r.everything(t, db); err != nil {
			t.Errorf("with all of the grants: %v", err)
		}
		if err := migrations.Up(t.Context(), e.open(db)); err != nil {
			t.Errorf("Up of tables that are there: %v", err)
		}
		if _, err := db.ExecContext(t.Context(), `CREATE TABLE other (x int)`); !denied(err) {
			t.Errorf("CREATE TABLE: %v", err)
		}
		for what, fewer := range without(t, grants) {
			// Of what is in a schema that may not be used, nothing is there.
			if err := r.everything(t, r.with(t, fewer...)); !denied(err) && !errors.Is(err, sqllock.ErrSchema) {
				t.Errorf("without %s: %v", what, err)
			}
		}
	})
}

func TestARoleThatMayNotDeleteRowsOfNamesDoesAllButPurge(t *testing.T) {
	t.Parallel()
	onEachServer(t, func(t *testing.T, e *engine, d *testdb.Database) {
		r := newRoles(t, e, d)
		db := r.with(t, grantsOf(t, e, "no", "purge")...)
		err := retryLost(func() error {
			return errors.Join(r.life(t, db, sqllock.UniqueOptions{Reaper: &sqllock.ReaperOptions{Off: true}}), r.sharing(t, db))
		})
		if err != nil {
			t.Error(err)
		}
		if err := r.reap(t, db); !denied(err) {
			t.Errorf("Reap: %v", err)
		}
	})
}

func TestARoleThatMayOnlyLookLooks(t *testing.T) {
	t.Parallel()
	onEachServer(t, func(t *testing.T, e *engine, d *testdb.Database) {
		r := newRoles(t, e, d)
		db := r.with(t, grantsOf(t, e, "look")...)
		mustTry(t, newLocks(t, e.open(r.admin), sqllock.UniqueOptions{TTL: time.Hour}), "k")
		if got := firstColumn(t, db, `SELECT name FROM sqllock_locks`); !slices.Equal(got, []string{"k"}) {
			t.Errorf("the view shows %q", got)
		}
		l, err := sqllock.NewUnique(t.Context(), e.open(db), &sqllock.UniqueOptions{Reaper: &sqllock.ReaperOptions{Off: true}})
		if e.name != testdb.Postgres {
			if !denied(err) {
				t.Errorf("the constructor: %v, %v", l, err)
			}
			l, err = sqllock.NewUnique(t.Context(), lockmysql.DB(db, lockmysql.ReadOnly()), &sqllock.UniqueOptions{Reaper: &sqllock.ReaperOptions{Off: true}})
		}
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = l.Close(context.Background()) }()
		if err := r.look(t.Context(), l, "k"); err != nil {
			t.Error(err)
		}
		if lease, err := l.TryLock(t.Context(), "other"); lease != nil || !denied(err) {
			t.Errorf("TryLock = %v, %v", lease, err)
		}
	})
}

// onEachServer is onEach for databases that have roles.
func onEachServer(t *testing.T, test func(t *testing.T, e *engine, d *testdb.Database)) {
	onEngines(t, func(name string) bool { return name != testdb.SQLite }, test)
}

// grantsOf returns the statements of the operations guide that give a role what
// is said in words.
func grantsOf(t *testing.T, e *engine, what ...string) (grants []string) {
	t.Helper()
	for _, b := range docBlocks(t, operations, "sql") {
		if slices.Equal(b.words, append([]string{e.dialect(), "grants"}, what...)) {
			for s := range strings.SplitSeq(b.text, ";\n") {
				if s != "" {
					grants = append(grants, s)
				}
			}
		}
	}
	if len(grants) == 0 {
		t.Fatalf("%s does not say what to grant to a role of %s for %q", operations, e.dialect(), what)
	}
	return grants
}

// roles of a test.
type roles struct {
	e     *engine
	d     *testdb.Database
	admin *sql.DB
}

// newRoles takes from everybody what the server may give to everybody.
func newRoles(t *testing.T, e *engine, d *testdb.Database) *roles {
	t.Helper()
	r := &roles{e, d, d.Open(t)}
	if e.name == testdb.Postgres {
		mustExec(t, r.admin, r.named(`REVOKE ALL ON DATABASE app FROM PUBLIC`, ""))
		mustExec(t, r.admin, `REVOKE ALL ON SCHEMA public FROM PUBLIC`)
	}
	return r
}

var databaseOf = regexp.MustCompile(`/([a-z0-9_]+)(?:\?|$)`)

// named is a statement of the guide with the names of this test.
func (r *roles) named(statement, role string) string {
	database := databaseOf.FindStringSubmatch(r.d.DSN())[1]
	statement = regexp.MustCompile(`\bapp\b`).ReplaceAllLiteralString(statement, database)
	return regexp.MustCompile(`\blocker\b`).ReplaceAllLiteralString(statement, role)
}

// with makes a role that has been granted this and nothing else, and returns its
// handle.
func (r *roles) with(t *testing.T, grants ...string) *sql.DB {
	t.Helper()
	role := "sqllock_test_" + strings.ToLower(rand.Text()[:12])
	const password = "Pass-word-7"
	if r.e.name == testdb.Postgres {
		mustExec(t, r.admin, `CREATE ROLE `+role+` LOGIN PASSWORD '`+password+`'`)
		t.Cleanup(func() {
			r.clean(t, `DROP OWNED BY `+role)
			r.clean(t, `DROP ROLE `+role)
		})
	} else {
		mustExec(t, r.admin, `CREATE USER `+role+` IDENTIFIED BY '`+password+`'`)
		t.Cleanup(func() { r.clean(t, `DROP USER `+role) })
	}
	for _, g := range grants {
		mustExec(t, r.admin, r.named(g, role))
	}
	db, err := sql.Open(r.e.harness.Driver, r.dsn(t, role, password))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	return db
}

func (r *roles) dsn(t *testing.T, role, password string) string {
	t.Helper()
	if r.e.name != testdb.Postgres {
		cfg := pairs.Parsed(r.d.DSN())
		cfg.User, cfg.Passwd = role, password
		return cfg.FormatDSN()
	}
	u, err := url.Parse(r.d.DSN())
	if err != nil {
		t.Fatal(err)
	}
	u.User = url.UserPassword(role, password)
	return u.String()
}

// clean runs a statement when the test has ended.
func (r *roles) clean(t *testing.T, statement string) {
	if _, err := r.admin.ExecContext(context.Background(), statement); err != nil {
		t.Errorf("%s: %v", statement, err)
	}
}

// closeSoon closes a Locker that may hold what its role may not give back.
func closeSoon(l *sqllock.Locker) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	_ = l.Close(ctx)
}

func denied(err error) bool { return err != nil && strings.Contains(err.Error(), "denied") }

var granted = regexp.MustCompile(`^GRANT ([A-Z, ]+) ON ((?:[A-Z]+ )?)(.*) TO (\w+)$`)

// without returns the grants less one privilege on one object, for each of them.
func without(t *testing.T, grants []string) map[string][]string {
	t.Helper()
	fewer := make(map[string][]string)
	for i, g := range grants {
		m := granted.FindStringSubmatch(g)
		if m == nil {
			t.Fatalf("this is no GRANT: %q", g)
		}
		privileges, kind, objects := strings.Split(m[1], ", "), m[2], strings.Split(m[3], ", ")
		grant := func(privileges, objects []string) []string {
			if len(privileges) == 0 || len(objects) == 0 {
				return nil
			}
			return []string{"GRANT " + strings.Join(privileges, ", ") + " ON " + kind + strings.Join(objects, ", ") + " TO " + m[4]}
		}
		others := slices.Delete(slices.Clone(grants), i, i+1)
		for k, privilege := range privileges {
			for n, object := range objects {
				fewer[privilege+" ON "+kind+object] = slices.Concat(others,
					grant(privileges, slices.Delete(slices.Clone(objects), n, n+1)),
					grant(slices.Delete(slices.Clone(privileges), k, k+1), []string{object}))
			}
		}
	}
	return fewer
}
