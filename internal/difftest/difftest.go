// Package difftest compares the store of the unique mode of a database with the state machine
// of package claim. It runs generated steps on the store, fast paths and batches included, and
// on a model that holds everything in memory and does one request at a time. After each
// step the answers and all rows of the tables must be the same.
//
// The clock of the database stands still but for the steps that move it. Nothing runs at the
// same time: what happens then is explored in package claim.
package difftest

import (
	"database/sql"
	"fmt"
	"math/rand/v2"
	"os"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/sqllock/sqllock/driver"
	"github.com/sqllock/sqllock/internal/tables"
)

// Fixture is an empty database with tables, whose clock the test moves.
type Fixture struct {
	DB *sql.DB
	// Open opens the store of a client. Its statements read the clock that SetClock sets.
	Open     func(tb testing.TB, client driver.Client) driver.Store
	SetClock func(tb testing.TB, now int64) // microseconds since the epoch
	// ID is the SQL that turns a column into hexadecimal digits, with %s for the column.
	ID string
	// Text is the SQL that turns a column into a text, with %s for the column.
	Text string
	// Parameter is the placeholder of the first parameter.
	Parameter string
}

// lockers is how many stores there are.
const lockers = 3

// Steps returns how many steps to run: 5,000, a tenth of that with go test -short, or as many
// as SQLLOCK_DIFF_STEPS says.
func Steps() int {
	if n, err := strconv.Atoi(os.Getenv("SQLLOCK_DIFF_STEPS")); err == nil {
		return n
	}
	if testing.Short() {
		return 500
	}
	return 5000
}

// Run runs generated steps and fails at the first that differs.
func Run(t *testing.T, f Fixture, steps int) {
	seed := uint64(1)
	if n, err := strconv.ParseUint(os.Getenv("SQLLOCK_DIFF_SEED"), 10, 64); err == nil {
		seed = n
	}
	r := &run{T: t, Fixture: f, rnd: rand.New(rand.NewPCG(seed, 0)), model: tables.New(), requested: make(map[driver.ID]bool)}
	for i := range lockers {
		client := driver.Client{Instance: driver.ID{0xff, byte(i + 1)}, Label: fmt.Sprintf("label %d", i)}
		r.clients = append(r.clients, client)
		r.stores = append(r.stores, f.Open(t, client))
	}
	r.tick(time.Hour)
	for n := range steps {
		r.step()
		r.compare()
		if t.Failed() {
			t.Fatalf("seed %d, step %d; the last steps:\n%s", seed, n, strings.Join(r.trace, "\n"))
		}
	}
	t.Logf("%d steps, %d requests, seed %d: %v", steps, r.requests, seed, r.kinds)
}

// run is one run.
type run struct {
	*testing.T
	Fixture
	rnd     *rand.Rand
	model   *tables.Tables
	clients []driver.Client
	stores  []driver.Store

	made      []made             // requests so far
	requested map[driver.ID]bool // acqs that were told to wait
	requests  int
	kinds     map[string]int
	trace     []string
	next      uint64 // acq
}

// made is a request that was made.
type made struct {
	driver.AcquireRequest
	locker int
}

func (r *run) note(kind, format string, args ...any) {
	if r.kinds == nil {
		r.kinds = make(map[string]int)
	}
	r.kinds[kind]++
	r.trace = append(r.trace, fmt.Sprintf("at %d: %s "+format, append([]any{r.model.Now % 1e9, kind}, args...)...))
	if len(r.trace) > 60 {
		r.trace = r.trace[1:]
	}
}

// tick moves the clock.
func (r *run) tick(d time.Duration) {
	if r.model.Now == 0 {
		r.model.Now = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC).UnixMicro()
	}
	r.model.Now += d.Microseconds()
	r.SetClock(r.T, r.model.Now)
	r.note("clock", "%v", d)
}

// same fails unless an answer of the store is that of the model.
func same[A any](r *run, what string, got, want A, err error) {
	r.Helper()
	if err != nil || !reflect.DeepEqual(got, want) {
		r.Errorf("%s:\n got %+v, %v\nwant %+v", what, got, err, want)
	}
}

// compare compares the tables with the model.
func (r *run) compare() {
	r.Helper()
	for name, query := range map[string]string{"lock": lockColumns, "claim": claimColumns} {
		got, want := r.dump(query), r.model.Dump(name)
		if !slices.Equal(got, want) {
			r.Errorf("table %s:\n got %s\nwant %s", name, strings.Join(got, "\n     "), strings.Join(want, "\n     "))
		}
	}
}

const (
	lockColumns = `SELECT {text name}, version, {id acq}, {text owner}, {text label}, {id locker}, {id value}, holds, since, expires_at, limit_at, delay,
		not_before, permits, waiting, holding, seq, ended, revoked, asked FROM sqllock_lock ORDER BY name`
	claimColumns = `SELECT {text name}, state, seq, {id acq}, {id locker}, {text owner}, {text label}, {id value}, {id carries}, kind, slot, token, holds,
		ttl, handed, max_hold, since, expires_at, limit_at, delay FROM sqllock_claim ORDER BY name, state, seq`
)

// dump returns the rows of a query, as texts.
func (r *run) dump(query string) (all []string) {
	r.Helper()
	for _, kind := range []struct{ mark, format string }{{"{id ", r.ID}, {"{text ", r.Text}} {
		for {
			before, rest, ok := strings.Cut(query, kind.mark)
			if !ok {
				break
			}
			column, after, _ := strings.Cut(rest, "}")
			query = before + strings.ReplaceAll(kind.format, "%s", column) + after
		}
	}
	rows, err := r.DB.QueryContext(r.Context(), query)
	if err != nil {
		r.Fatalf("%s: %v", query, err)
	}
	defer func() { _ = rows.Close() }()
	columns, err := rows.Columns()
	if err != nil {
		r.Fatal(err)
	}
	for rows.Next() {
		row := make([]sql.NullString, len(columns))
		targets := make([]any, len(columns))
		for i := range row {
			targets[i] = &row[i]
		}
		if err := rows.Scan(targets...); err != nil {
			r.Fatal(err)
		}
		texts := make([]string, len(row))
		for i, c := range row {
			texts[i] = c.String
		}
		all = append(all, strings.Join(texts, " | "))
	}
	if err := rows.Err(); err != nil {
		r.Fatal(err)
	}
	return all
}

// lives reads until when the beats of Lockers last, and tells the model: a store sends them
// by its own clock.
func (r *run) lives() {
	r.Helper()
	clear(r.model.Beats)
	for _, line := range r.dump(`SELECT {id locker}, expires_at FROM sqllock_waiter`) {
		digits, until, _ := strings.Cut(line, " | ")
		var id driver.ID
		if err := id.UnmarshalText([]byte(digits)); err != nil {
			r.Fatal(err)
		}
		n, err := strconv.ParseInt(until, 10, 64)
		if err != nil {
			r.Fatal(err)
		}
		r.model.Beats[id] = n
	}
}
