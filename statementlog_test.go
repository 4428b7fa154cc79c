package sqllock_test

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/base64"
	"encoding/csv"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sqllock/sqllock"
	"github.com/sqllock/sqllock/driver"
	"github.com/sqllock/sqllock/internal/testdb"
	"github.com/sqllock/sqllock/lockmysql"
	"github.com/sqllock/sqllock/lockpg"
)

// marker begins everything that a round hands to the library: what must not become
// part of a statement.
const marker = `m4rk3r'"\;--%`

// input is a text that no other call has returned.
func (r *round) input(what string) string {
	r.inputs++
	return fmt.Sprintf("%s{lock}$1?%s/%d/%d", marker, what, r.number, r.inputs)
}

// round does all that can be done with locks, with inputs of its own.
type round struct {
	*testing.T
	e              *engine
	db             *sql.DB
	number, inputs int
}

func (r *round) check(what string, err error, expected ...error) {
	r.Helper()
	for _, e := range expected {
		if errors.Is(err, e) {
			return
		}
	}
	if err != nil {
		r.Errorf("%s: %v", what, err)
	}
}

func (r *round) run() {
	r.Helper()
	ctx := sqllock.WithOwner(r.Context(), r.input("owner"))
	label := func() string { return r.input("label") }
	reaper := &sqllock.ReaperOptions{Off: true}
	const ttl = 8 * time.Second
	a := newLocks(r.T, r.e.open(r.db), sqllock.UniqueOptions{TTL: ttl, Label: label()})
	b := newLocks(r.T, r.e.open(r.db), sqllock.UniqueOptions{TTL: ttl + 100*time.Millisecond, Label: label()})
	r.mode(ctx, a, b, ttl/3+200*time.Millisecond)
	updating, err := sqllock.NewForUpdate(ctx, r.e.open(r.db).(driver.ForUpdateDatabase), &sqllock.ForUpdateOptions{TTL: 20 * time.Second, Label: label(), Reaper: reaper})
	r.check("NewForUpdate", err)
	advising, err := sqllock.NewAdvisory(ctx, r.e.open(r.db).(driver.AdvisoryDatabase), &sqllock.AdvisoryOptions{TTL: 20 * time.Second, Label: label(), Reaper: reaper})
	r.check("NewAdvisory", err)
	r.transaction(ctx, updating)
	for _, l := range []*sqllock.Locker{updating, advising} {
		r.mode(ctx, l, l, 1200*time.Millisecond)
		r.check("Close", l.Close(ctx))
	}
}

// transaction locks and fences in a transaction of the caller's.
func (r *round) transaction(ctx context.Context, l *sqllock.Locker) {
	r.Helper()
	tx, err := r.db.BeginTx(ctx, nil)
	r.check("BeginTx", err)
	defer func() { _ = tx.Rollback() }()
	token, err := l.LockTx(ctx, tx, r.input("name"))
	r.check("LockTx", err)
	if r.e.name == testdb.Postgres {
		r.check("Fence", lockpg.FenceSQL(ctx, tx, r.input("resource"), token))
	} else {
		r.check("Fence", lockmysql.Fence(ctx, tx, r.input("resource"), token))
	}
	r.check("Commit", tx.Commit())
}

// mode holds, shares, waits, looks and ends, alone and many at a time. In the pause that it makes,
// what is held is renewed.
func (r *round) mode(ctx context.Context, a, b *sqllock.Locker, pause time.Duration) {
	r.Helper()
	value := func() sqllock.LockOption { return sqllock.Value([]byte(r.input("value"))) }
	name := r.input("name")
	lease, err := a.Lock(ctx, name, value(), sqllock.LockDelay(time.Millisecond))
	r.check("Lock", err)
	next := make(chan error, 1)
	waits := value()
	go func() {
		lease, err := b.Lock(sqllock.WithoutOwner(ctx), name, waits)
		if err == nil {
			err = lease.Unlock(ctx)
		}
		next <- err
	}()
	r.check("InTx", lease.InTx(ctx, nil, func(context.Context, *sql.Tx) error { return nil }))
	time.Sleep(pause)
	_, err = a.Inspect(ctx, name)
	r.check("Inspect", err)
	for _, err := range a.List(ctx, sqllock.IncludeFree()) {
		r.check("List", err)
	}
	_, err = a.CheckSequencer(ctx, lease.Sequencer())
	r.check("CheckSequencer", err)
	r.check("Unlock", lease.Unlock(ctx))
	r.check("the waiter", <-next)
	ending, err := a.Lock(ctx, r.input("name"), value())
	r.check("Lock", err)
	if err := ending.UnlockInTx(ctx, nil, func(context.Context, *sql.Tx) error { return nil }); !errors.Is(err, sqllock.ErrUnsupported) {
		r.check("UnlockInTx", err)
	}
	r.check("Unlock", ending.Unlock(ctx))
	given, err := a.Lock(ctx, r.input("name"), value())
	r.check("Lock", err)
	if handover, err := given.Detach(ctx); !errors.Is(err, sqllock.ErrUnsupported) {
		r.check("Detach", err)
		adopted, err := b.Adopt(ctx, handover, value())
		r.check("Adopt", err)
		r.check("Unlock", adopted.Unlock(ctx))
	}
	r.check("Unlock", given.Unlock(ctx))
	reader, err := a.RLock(ctx, r.input("name"))
	r.check("RLock", err)
	r.check("Unlock", reader.Unlock(ctx))
	var many []*sqllock.Lease
	for range 5 {
		lease, err := a.TryLock(ctx, r.input("name"), value(), sqllock.MinHold(time.Millisecond))
		r.check("TryLock", err)
		many = append(many, lease)
	}
	_, err = b.ForceUnlock(ctx, many[0].Name())
	r.check("ForceUnlock", err)
	_, err = a.Reaper().Reap(ctx)
	r.check("Reap", err)
	for i, lease := range many {
		if i > 0 {
			r.check("Unlock", lease.Unlock(ctx))
		}
	}
	_ = many[0].Unlock(ctx)
}

// statements returns the texts that a server has logged since the last call, without
// those of the session that asks.
type statements func(t *testing.T) map[string]bool

// variable is what differs between Lockers and connections and is no input: ids and
// names of their own, and pauses.
var variable = regexp.MustCompile(`[0-9a-f]{32}|[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}|\b[0-9]+(\.[0-9]+)?\b|'[^']*'`)

func newTexts(logged []string) map[string]bool {
	texts := make(map[string]bool)
	for _, text := range logged {
		texts[text] = true
	}
	return texts
}

// converge runs rounds until one has sent no statement that an earlier one had not,
// and checks that no text has anything of an input in it.
func converge(t *testing.T, e *engine, db *sql.DB, logged statements) {
	t.Helper()
	logged(t)
	seen := make(map[string]bool)
	const most = 8
	for n := range most {
		r := &round{T: t, e: e, db: db, number: n}
		r.run()
		before := len(seen)
		for text := range logged(t) {
			for how, input := range map[string]string{"as it is": "m4rk3r", "in hexadecimal": hex.EncodeToString([]byte("m4rk3r")),
				"in base64": base64.StdEncoding.EncodeToString([]byte("m4rk3r"))} {
				if strings.Contains(strings.ToLower(text), strings.ToLower(input)) {
					t.Fatalf("an input stands, %s, in: %s", how, text)
				}
			}
			seen[variable.ReplaceAllString(text, "#")] = true
		}
		t.Logf("round %d: %d texts", n, len(seen))
		if n > 0 && len(seen) == before {
			if before < 40 {
				t.Errorf("only %d texts were logged: %q", before, slices.Sorted(maps.Keys(seen)))
			}
			return
		}
	}
	t.Errorf("%d rounds sent other texts each: %q", most, slices.Sorted(maps.Keys(seen)))
}

// logging starts a server that logs all statements, with tables.
func logging(t *testing.T, e *engine) *testdb.Server {
	t.Helper()
	var args []string
	if e.name == testdb.Postgres {
		args = []string{"-c", "log_statement=all", "-c", "logging_collector=on", "-c", "log_destination=csvlog", "-c", "log_rotation_size=0"}
	}
	s := testdb.StartServer(t, e.name, args...)
	e.migrated(t, s.Database)
	return s
}

func engineNamed(t *testing.T, name string) *engine {
	t.Helper()
	i := slices.IndexFunc(engines, func(e engine) bool { return e.name == name && e.setting == "" })
	return &engines[i]
}

func TestNothingThatIsGivenIsPartOfAStatementInTheLogOfPostgres(t *testing.T) {
	if !slices.Contains(testdb.Startable(), testdb.Postgres) {
		return // which Startable has noted
	}
	t.Parallel()
	e := engineNamed(t, testdb.Postgres)
	s := logging(t, e)
	admin := s.Open(t)
	offset := 0
	converge(t, e, s.Open(t), func(t *testing.T) map[string]bool {
		t.Helper()
		time.Sleep(300 * time.Millisecond) // the collector writes when it gets to it
		var log string
		err := admin.QueryRowContext(t.Context(), `SELECT pg_read_file(pg_current_logfile('csvlog'))`).Scan(&log)
		if err != nil {
			t.Fatal(err)
		}
		whole := strings.LastIndexByte(log, '\n') + 1
		records, err := csv.NewReader(strings.NewReader(log[offset:whole])).ReadAll()
		if err != nil {
			t.Fatal(err)
		}
		offset = whole
		const message = 13
		var texts []string
		for _, r := range records {
			_, text, ok := strings.Cut(r[message], ": ")
			if ok && (strings.HasPrefix(r[message], "execute ") || strings.HasPrefix(r[message], "statement: ")) {
				texts = append(texts, text)
			}
		}
		return newTexts(texts)
	})
}

func TestNothingThatIsGivenIsPartOfAStatementInTheLogOfMariaDB(t *testing.T) {
	if !slices.Contains(testdb.Startable(), testdb.MariaDB) {
		return
	}
	t.Parallel()
	e := engineNamed(t, testdb.MariaDB)
	s := logging(t, e)
	admin := s.Open(t)
	admin.SetMaxOpenConns(1)
	for _, text := range []string{`SET GLOBAL log_output = 'TABLE'`, `SET GLOBAL general_log = ON`} {
		mustExec(t, admin, text)
	}
	// With Execute the server writes the text with the parameters put in, for people.
	converge(t, e, s.Open(t), func(t *testing.T) map[string]bool {
		return newTexts(generalLog(t, admin, "'Prepare', 'Query'"))
	})
	// Where the driver puts the parameters in, because the DSN says so, they are
	// numbers, ids and hexadecimal digits.
	r := &round{T: t, e: e, db: s.Open(t, "interpolateParams=true"), number: 99}
	r.run()
	found := false
	for _, text := range generalLog(t, admin, "'Query'") {
		if strings.Contains(text, "m4rk3r") {
			t.Errorf("an input is in: %s", text)
		}
		found = found || strings.Contains(text, hex.EncodeToString([]byte("m4rk3r")))
	}
	if !found {
		t.Error("no statement with an input was logged")
	}
}

// generalLog empties the log and returns what it had of some kinds.
func generalLog(t *testing.T, admin *sql.DB, kinds string) (texts []string) {
	t.Helper()
	rows, err := admin.QueryContext(t.Context(), `SELECT argument FROM mysql.general_log WHERE thread_id <> connection_id() AND command_type IN (`+kinds+`)`)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		var text []byte
		if err := rows.Scan(&text); err != nil {
			t.Fatal(err)
		}
		texts = append(texts, string(bytes.TrimSpace(text)))
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	_ = rows.Close()
	_, err = admin.ExecContext(context.WithoutCancel(t.Context()), `TRUNCATE TABLE mysql.general_log`)
	if err != nil {
		t.Fatal(err)
	}
	return texts
}
