package lockpg_test

import (
	"context"
	"database/sql"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sqllock/sqllock/driver"
	"github.com/sqllock/sqllock/lockpg"
)

// permit asks for one of n permits of the name a, and waits for it if waits is set.
func permit(id, n int, waits bool) driver.AcquireRequest {
	r := request("a", id, time.Minute)
	if waits {
		r = waiter("a", id)
	}
	r.Permits = n
	return r
}

// endOf ends the term of a permit of the name a.
func endOf(id int, version int64, awaited bool) driver.ReleaseRequest {
	r := releasing("a", id, version)
	r.Shared, r.Permit, r.Awaited = true, true, awaited
	return r
}

// permitRace is one in which somebody changes the name a, in a transaction that is not over when
// a call about permits begins.
type permitRace struct {
	t       *testing.T
	store   driver.Store // of acqs 1 to 9, which have permits
	other   driver.Store // of those who wait
	version map[int]int64
	db      *sql.DB
}

// newPermitRace has acqs 1 to held hold one of n permits each, and the others wait for one.
func newPermitRace(t *testing.T, n, held int, waiters ...int) *permitRace {
	database := withTables(t)
	admin := database.Open(t)
	mustExec(t, admin, pausingClock)
	db := database.Open(t, "search_path=fake,pg_catalog,public")
	p := &permitRace{t: t, db: admin, store: open(t, db), other: openAs(t, lockpg.DB(db), 2), version: make(map[int]int64)}
	// The first request makes the row and says how many permits there are.
	r := grant(t, p.store, permit(100, n, false))[0]
	let(t, p.store, endOf(100, r.Version, false))
	for id := 1; id <= held; id++ {
		r := grant(t, p.store, permit(id, n, false))[0]
		if !r.Granted || r.Slot != id-1 {
			t.Fatalf("permit %d: %+v", id, r)
		}
		p.version[id] = r.Version
	}
	for _, id := range waiters {
		if r := line(t, p.other, permit(id, n, true))[0]; r.Granted {
			t.Fatalf("%+v", r)
		}
	}
	return p
}

// pausingClock makes the clock of statements one that waits while somebody holds an advisory lock.
const pausingClock = `CREATE SCHEMA fake;
	CREATE FUNCTION fake.clock_timestamp() RETURNS timestamptz LANGUAGE plpgsql VOLATILE AS $$
	BEGIN
		PERFORM pg_advisory_lock_shared(1), pg_advisory_unlock_shared(1);
		RETURN pg_catalog.clock_timestamp();
	END $$`

// What keeps a statement waiting that has begun: for the row, or for the clock before it locks the row.
const (
	lockedRow     = `SELECT FROM sqllock_lock FOR UPDATE`
	stoppingClock = `SELECT pg_advisory_lock(1)`
)

// beside does a call while a transaction that keeps it waiting runs texts.
func (p *permitRace) beside(wait string, call func(), texts ...string) {
	p.t.Helper()
	conn, err := p.db.Conn(p.t.Context())
	if err != nil {
		p.t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	run := func(text string) {
		if _, err := conn.ExecContext(p.t.Context(), text); err != nil {
			p.t.Fatal(err)
		}
	}
	run(`BEGIN`)
	run(wait)
	var wg sync.WaitGroup
	wg.Go(call)
	waitsForLock(p.t, p.db)
	for _, text := range texts {
		run(text)
	}
	run(`COMMIT`)
	run(`SELECT pg_advisory_unlock_all()`)
	wg.Wait()
}

// acquire asks for a permit, beside another name or not: there are statements for one name and for
// several.
func (p *permitRace) acquire(store driver.Store, id, n int, waits, beside bool) driver.AcquireResult {
	reqs := []driver.AcquireRequest{permit(id, n, waits)}
	if beside {
		other := permit(200, n, waits)
		other.Name = "other"
		reqs = append(reqs, other)
	}
	res, err := patiently(func() ([]driver.AcquireResult, error) { return store.Acquire(context.Background(), reqs) })
	if err != nil {
		p.t.Error(err)
		return driver.AcquireResult{}
	}
	return res[0]
}

// release releases a permit of an acq, beside another name or not.
func (p *permitRace) release(id int, awaited, beside bool) driver.ReleaseResult {
	reqs := []driver.ReleaseRequest{endOf(id, p.version[id], awaited)}
	if beside {
		other := endOf(200, 1, awaited)
		other.Name = "other"
		reqs = append(reqs, other)
	}
	res, err := patiently(func() ([]driver.ReleaseResult, error) { return p.store.Release(context.Background(), reqs) })
	if err != nil {
		p.t.Error(err)
		return driver.ReleaseResult{}
	}
	return res[0]
}

// is checks who holds which slot, and that the row counts the claims.
func (p *permitRace) is(slots string, waiting int) {
	p.t.Helper()
	holding := len(strings.Fields(slots))
	want := fmt.Sprintf("%s, %d %d, %d %d", slots, holding, holding, waiting, waiting)
	got := get[string](p.t, p.db, `SELECT coalesce((SELECT string_agg(get_byte(uuid_send(acq), 2) || ':' || slot, ' ' ORDER BY slot, seq)
			FROM sqllock_claim WHERE state = 1 AND name = 'a'), '') || ', ' || holding || ' ' || (SELECT count(*) FROM sqllock_claim WHERE state = 1 AND name = 'a')
		|| ', ' || waiting || ' ' || (SELECT count(*) FROM sqllock_claim WHERE state = 0 AND name = 'a') FROM sqllock_lock WHERE name = 'a'`)
	if got != want {
		p.t.Errorf("slots, holding, claims that hold, waiting, claims that wait are %s, want %s", got, want)
	}
	if n := get[int](p.t, p.db, `SELECT count(*) - count(DISTINCT token) FROM sqllock_claim WHERE state = 1 AND name = 'a'`); n != 0 {
		p.t.Errorf("%d permits have the token of another one", n)
	}
}

// What others do in SQL to the name a, under the lock of its row.

// takes has an acq get a permit.
func takes(id, slot int) []string { return claims(id, 2, slot) }

// claims has an acq get the name together with others.
func claims(id, kind, slot int) []string {
	return []string{`UPDATE sqllock_lock SET version = version + 1, seq = seq + 1, holding = holding + 1, ended = 0`,
		fmt.Sprintf(`INSERT INTO sqllock_claim SELECT name, 1, seq, '%s', %d, %d, version, 1, 60000000, 5000000, 0, %s, %[4]s + 60000000, 0, 0,
			'%[5]s', 'x', 'test' FROM sqllock_lock`, acq(id), kind, slot, pgNow, driver.ID{9})}
}

// gives has an acq lose its permit.
func gives(id int) []string {
	return []string{fmt.Sprintf(`DELETE FROM sqllock_claim WHERE acq = '%s'`, acq(id)), `UPDATE sqllock_lock SET holding = holding - 1`}
}

// resized changes how many permits there are.
func resized(n int) []string { return []string{fmt.Sprint(`UPDATE sqllock_lock SET permits = `, n)} }

// entersAgain has a claim that waits lose its place.
func entersAgain(id int) []string {
	return []string{`UPDATE sqllock_lock SET seq = seq + 1`,
		`CREATE TEMP TABLE again ON COMMIT DROP AS SELECT * FROM sqllock_claim WHERE acq = '` + acq(id).String() + `'`,
		`DELETE FROM sqllock_claim WHERE acq IN (SELECT acq FROM again)`, `UPDATE again SET seq = (SELECT seq FROM sqllock_lock)`,
		`INSERT INTO sqllock_claim SELECT * FROM again`}
}

// besides says whether a request goes alone, or beside one for another name, in another statement.
func besides() []bool {
	if testing.Short() {
		return []bool{false}
	}
	return []bool{false, true}
}

// A grant of a permit may read claims that are older than the row.
func TestWhatChangesWhileAPermitIsGrantedCounts(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		what      string
		held      int
		meanwhile []string
		granted   bool
		slots     string
	}{
		{"nothing, and no permit is held", 0, nil, true, "50:0"},
		{"nothing", 2, nil, true, "1:0 2:1 50:2"},
		{"the first permit is taken", 0, takes(60, 0), true, "60:0 50:1"},
		{"the next permit is taken", 1, takes(60, 1), true, "1:0 60:1 50:2"},
		{"the last permit is taken", 2, takes(60, 2), false, "1:0 2:1 60:2"},
		{"a permit is given back", 2, gives(1), true, "50:0 2:1"},
		{"one is given back, and another one taken", 2, append(gives(1), takes(60, 2)...), true, "50:0 2:1 60:2"},
		{"all are given back, and the name is shared", 1, append(gives(1), claims(60, 1, 0)...), false, "60:0"},
		{"the name is shared", 0, claims(60, 1, 0), false, "60:0"},
		{"the name is locked", 0, []string{`UPDATE sqllock_lock SET version = version + 1, acq = '` + acq(60).String() + `', owner = '', label = '',
			locker = '` + driver.ID{9}.String() + `', expires_at = ` + pgNow + ` + 60000000`}, false, ""},
		{"there are fewer permits", 1, resized(1), false, "1:0"},
		{"there are more permits", 1, resized(4), false, "1:0"}, // that is another number than asked for
		{"the same request is granted", 1, takes(50, 1), true, "1:0 50:1"},
	} {
		for what, wait := range map[string]string{"before it is locked": stoppingClock, "while it is waited for": lockedRow} {
			for _, beside := range besides() {
				t.Run(fmt.Sprint(c.what, " ", what, ", beside another name: ", beside), func(t *testing.T) {
					t.Parallel()
					p := newPermitRace(t, 3, c.held)
					p.beside(wait, func() {
						if res := p.acquire(p.store, 50, 3, false, beside); res.Granted != c.granted {
							t.Errorf("Acquire = %+v", res)
						}
					}, c.meanwhile...)
					p.is(c.slots, 0)
				})
			}
		}
	}
}

// A release of a permit for which nobody waits, too.
func TestWhatChangesWhileAPermitIsFreedCounts(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		what      string
		meanwhile []string
		freed     bool
		slots     string
	}{
		{"nothing", nil, true, "2:1"},
		{"another permit is given back", gives(2), true, ""},
		{"another permit is taken", takes(60, 2), true, "2:1 60:2"},
		{"one is given back, and one taken", append(gives(2), takes(60, 1)...), true, "60:1"},
		{"it is over", gives(1), false, "2:1"},
		{"it is over, and its slot is taken", append(gives(1), takes(60, 0)...), false, "60:0 2:1"},
	} {
		for _, beside := range besides() {
			t.Run(fmt.Sprint(c.what, ", beside another name: ", beside), func(t *testing.T) {
				t.Parallel()
				p := newPermitRace(t, 3, 2)
				p.beside(lockedRow, func() {
					if res := p.release(1, false, beside); res.Freed != c.freed {
						t.Errorf("Release = %+v", res)
					}
				}, c.meanwhile...)
				p.is(c.slots, 0)
			})
		}
	}
}

// A permit that somebody waits for is handed over to whoever is next when the row is locked.
func TestWhatChangesWhileAPermitIsHandedOverCounts(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		what      string
		meanwhile []string
		freed     bool
		slots     string
		waiting   int
	}{
		{"nothing", nil, true, "11:0 2:1", 1},
		{"the first leaves", withdrawn(11), true, "12:0 2:1", 0},
		{"all leave", append(withdrawn(11), withdrawn(12)...), true, "2:1", 0},
		{"the first enters again", entersAgain(11), true, "12:0 2:1", 1},
		{"another permit is given back", gives(2), true, "11:0 12:1", 0},
		{"another permit has another holder", append(gives(2), takes(60, 1)...), true, "11:0 60:1", 1},
		{"it is over", gives(1), false, "11:0 2:1", 1},
		{"it is over, and its slot is taken", append(gives(1), takes(60, 0)...), false, "60:0 2:1", 2},
		{"there are fewer permits", resized(1), true, "2:1", 2},
		{"there are more permits", resized(3), true, "11:0 2:1 12:2", 0},
		{"it was handed over", append(withdrawn(11), append(gives(1), takes(11, 0)...)...), false, "11:0 2:1", 1},
	} {
		for _, awaited := range []bool{true, false} {
			t.Run(fmt.Sprint(c.what, ", known: ", awaited), func(t *testing.T) {
				t.Parallel()
				p := newPermitRace(t, 2, 2, 11, 12)
				p.beside(lockedRow, func() {
					if res := p.release(1, awaited, false); res.Freed != c.freed {
						t.Errorf("Release = %+v", res)
					}
				}, c.meanwhile...)
				p.is(c.slots, c.waiting)
			})
		}
	}
}

// Whoever enters the queue while permits come and go is not overlooked.
func TestWhatChangesWhileAWaiterForAPermitEntersCounts(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		what      string
		meanwhile []string
		granted   bool
		slots     string
		waiting   int
	}{
		{"nothing", nil, false, "1:0 2:1", 1},
		{"a permit is given back", gives(1), true, "50:0 2:1", 0},
		{"a permit has another holder", append(gives(1), takes(60, 0)...), false, "60:0 2:1", 1},
		{"both have other holders", append(append(gives(1), gives(2)...), append(takes(60, 0), takes(61, 1)...)...), false, "60:0 61:1", 1},
		{"there are more permits", resized(3), false, "1:0 2:1", 0}, // that is another number than asked for
	} {
		t.Run(c.what, func(t *testing.T) {
			t.Parallel()
			p := newPermitRace(t, 2, 2)
			p.beside(lockedRow, func() {
				if res := p.acquire(p.other, 50, 2, true, false); res.Granted != c.granted {
					t.Errorf("Acquire = %+v", res)
				}
			}, c.meanwhile...)
			p.is(c.slots, c.waiting)
		})
	}
}

// A request that is repeated while it may still run has one permit, or one place.
func TestARequestForAPermitThatRunsTwiceAtATimeHasOne(t *testing.T) {
	t.Parallel()
	for _, waits := range []bool{false, true} {
		p := newPermitRace(t, 20, 0)
		for id := 1; id <= 25; id++ {
			var wg sync.WaitGroup
			for range 4 {
				wg.Go(func() {
					if _, err := p.store.Acquire(context.Background(), []driver.AcquireRequest{permit(id, 20, waits)}); err != nil {
						t.Errorf("Acquire = %v", err)
					}
				})
			}
			wg.Wait()
		}
		waiting := 0
		if waits {
			waiting = 5
		}
		const query = `SELECT concat_ws(' ', holding, waiting, count(*) FILTER (WHERE state = 1), count(*) FILTER (WHERE state = 0), count(DISTINCT slot))
			FROM sqllock_lock, sqllock_claim GROUP BY holding, waiting`
		if got, want := get[string](t, p.db, query), fmt.Sprintf("20 %[1]d 20 %[1]d 20", waiting); got != want {
			t.Errorf("waits %v: holding, waiting, claims of both, slots are %s, want %s", waits, got, want)
		}
	}
}

// A guard keeps its permit, and no other one.
func TestAGuardedPermitIsNeitherFreedNorHandedOver(t *testing.T) {
	t.Parallel()
	for _, waiters := range [][]int{nil, {11}} {
		p := newPermitRace(t, 2, 2, waiters...)
		tx, err := p.store.Begin(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = tx.Rollback() }()
		req := driver.GuardRequest{Name: "a", Acq: acq(1), Version: p.version[1], Shared: true}
		if status, err := p.store.Guard(t.Context(), tx, req); status != driver.Guarded {
			t.Fatal(status, err)
		}
		for _, awaited := range []bool{false, true} {
			r := endOf(1, p.version[1], awaited)
			r.Guarded = true
			if res := let(t, p.store, r)[0]; res.Freed {
				t.Errorf("released past the guard: %+v", res)
			}
		}
		mustExec(t, p.db, `UPDATE sqllock_claim SET expires_at = `+pgNow+` - 1 WHERE acq = '`+acq(1).String()+`'`)
		if r := grant(t, p.store, permit(50, 2, false))[0]; r.Granted {
			t.Errorf("granted past the guard: %+v", r)
		}
		if res := p.release(2, true, false); !res.Freed || res.HandedOver != len(waiters) {
			t.Errorf("%+v", res)
		}
		p.is([]string{"1:0", "1:0 11:1"}[len(waiters)], 0)
	}
}

// Expired permits are ended by whoever needs them, and told of.
func TestAnExpiredPermitIsNotOverlooked(t *testing.T) {
	t.Parallel()
	p := newPermitRace(t, 3, 2)
	mustExec(t, p.db, `UPDATE sqllock_claim SET expires_at = `+pgNow+` - 1 WHERE acq = '`+acq(1).String()+`'`)
	if r := grant(t, p.store, permit(50, 3, false))[0]; !r.Granted || r.Slot != 0 || r.Crashed.Acq != acq(1) {
		t.Errorf("%+v", r)
	}
	grant(t, p.store, permit(51, 3, false))
	p.is("50:0 2:1 51:2", 0)
	mustExec(t, p.db, `UPDATE sqllock_claim SET expires_at = `+pgNow+` - 1 WHERE acq = '`+acq(2).String()+`'`)
	if r := line(t, p.other, permit(60, 3, true))[0]; !r.Granted || r.Slot != 1 || r.Crashed.Acq != acq(2) {
		t.Errorf("%+v", r)
	}
	p.is("50:0 60:1 51:2", 0)
}

// The Locker to whose waiter a permit was handed over is told, and nobody else.
func TestThoseOfOthersAreToldWhenAPermitIsHandedOver(t *testing.T) {
	t.Parallel()
	p := newPermitRace(t, 2, 2)
	other, third := listen(t, p.other), listen(t, openAs(t, lockpg.DB(p.db), 3))
	line(t, other, permit(11, 2, true))
	line(t, third, permit(12, 2, true))
	if res := p.release(2, true, false); !res.Freed || res.HandedOver != 1 || len(res.Next) != 0 {
		t.Errorf("%+v", res)
	}
	other.hears(t, acq(11))
	other.hearsNothing(t, p.db, 2)
	third.hearsNothing(t, p.db, 3)
	if r := line(t, other, permit(11, 2, true))[0]; !r.Granted || !r.Found || r.Slot != 1 {
		t.Errorf("%+v", r)
	}
	p.is("1:0 11:1", 1)
}
