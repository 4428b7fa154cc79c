package lockpg_test

import (
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/sqllock/sqllock/driver"
	"github.com/sqllock/sqllock/internal/testdb"
	"github.com/sqllock/sqllock/lockpg"
)

// many are requests for n names.
func many(prefix string, n int) []driver.AcquireRequest {
	reqs := make([]driver.AcquireRequest, n)
	for i := range reqs {
		reqs[i] = ask(fmt.Sprintf("%s%05d", prefix, i))
	}
	return reqs
}

func advisoryDatabase(t *testing.T) *testdb.Database {
	t.Helper()
	d := withTables(t)
	return d
}

// heldKeys counts the locks of sessions in the database, but for those that are the
// sessions' own.
func heldKeys(t *testing.T, c *client) int {
	t.Helper()
	return get[int](t, c.db, `SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'
		AND database = (SELECT oid FROM pg_database WHERE datname = current_database())`)
}

func TestOneStatementAsksForManyNames(t *testing.T) {
	t.Parallel()
	d := advisoryDatabase(t)
	a, b := advisory.client(t, d), advisory.client(t, d)
	s, s2 := a.session(t), b.session(t)
	reqs := many("k", 3000)
	reqs[7].Delay, reqs[8].MinHold, reqs[9].Value, reqs[10].Shared = time.Second, time.Second, []byte("v"), true
	theirs := many("k", 3000)[:5]
	if res, err := s2.Grant(t.Context(), theirs); err != nil || !res[4].Granted {
		t.Fatal(err)
	}
	res, err := s.Grant(t.Context(), reqs)
	if err != nil {
		t.Fatal(err)
	}
	seen := make(map[int64]bool)
	var held []driver.ReleaseRequest
	var renew []driver.RenewRequest
	for i, r := range res {
		if r.Granted != (i >= 5) || r.Granted && seen[r.Version] {
			t.Fatalf("%d: %+v", i, r)
		}
		seen[r.Version] = true
		held, renew = append(held, releaseOf(reqs[i], r)), append(renew, renewalOf(reqs[i], r))
	}
	if n := heldKeys(t, a); n != 3000+2 {
		t.Errorf("%d locks are held", n)
	}
	statuses, err := s.Renew(t.Context(), renew)
	for i, status := range statuses.Status {
		if want := driver.Renewed; err != nil || i >= 5 && status != want || i < 5 && status != driver.Ended {
			t.Fatalf("%d: %v, %v", i, status, err)
		}
	}
	if n := get[int](t, a.db, `SELECT count(*) FROM sqllock_term WHERE mode = 3 AND acq IS NOT NULL`); n != 2994 {
		t.Errorf("%d are noted", n)
	}
	freed, err := s.Release(t.Context(), held)
	for i, was := range freed {
		if err != nil || was != (i >= 5) {
			t.Fatalf("%d: %v, %v", i, was, err)
		}
	}
	if n := heldKeys(t, a); n != 5+2 {
		t.Errorf("after the release %d locks are held", n)
	}
	if n := get[int](t, a.db, `SELECT count(*) FROM sqllock_term WHERE mode = 3 AND acq IS NOT NULL`); n != 0 {
		t.Errorf("after the release %d are noted", n)
	}
}

func TestAGrantWritesNothingUnlessItMust(t *testing.T) {
	t.Parallel()
	d := advisoryDatabase(t)
	c := advisory.client(t, d)
	s := c.session(t)
	for i := range 3 {
		r := ask(fmt.Sprint("k", i))
		res, err := s.Grant(t.Context(), []driver.AcquireRequest{r})
		if err != nil || !res[0].Granted {
			t.Fatal(err)
		}
		letGo(t, s, r, res[0])
	}
	if n := get[int](t, c.db, `SELECT count(*) FROM sqllock_term`); n != 0 {
		t.Errorf("%d rows were written", n)
	}
}

func TestTwoNamesOfOneKeyExcludeEachOtherAndNothingWorse(t *testing.T) {
	t.Parallel()
	d := advisoryDatabase(t)
	same := lockpg.Keys(func(string) int64 { return -42 })
	a, b := advisory.on(t, d.Open(t), sessionTTL, same), advisory.on(t, d.Open(t), sessionTTL, same)
	if a.Key("x") != a.Key("y") {
		t.Fatal("the test expects one key")
	}
	r := noted("x")
	s, res := a.take(t, r)
	if got := b.denied(t, ask("y")); got.Holder.Acq != (driver.ID{}) {
		t.Errorf("who asks for the other name is told %+v", got)
	}
	if got := b.revoke(t, "y"); got.Row.Held() {
		t.Errorf("Revoke of the other: %+v", got)
	}
	if status := ping(t, s, r, res); status != driver.Renewed {
		t.Errorf("who holds is told %v", status)
	}
	letGo(t, s, r, res)
	next := ask("y")
	s2, res2 := b.take(t, next)
	if res2.Version <= res.Version {
		t.Errorf("token %d follows %d", res2.Version, res.Version)
	}
	letGo(t, s2, next, res2)
	for _, name := range []string{"x", "y"} {
		if row := a.look(t, name); row.Held() || row.Session {
			t.Errorf("%+v", row)
		}
	}
}

func TestReadersOfOneNameAreAllGrantedWhoeverAsksAtTheSameTime(t *testing.T) {
	t.Parallel()
	d := advisoryDatabase(t)
	for _, m := range sessionModes {
		var wg sync.WaitGroup
		for range 8 {
			c := m.client(t, d)
			wg.Go(func() {
				for range 20 {
					s, err := c.Session(t.Context())
					if err != nil {
						t.Error(err)
						return
					}
					r := askShared("k")
					res, err := s.Grant(t.Context(), []driver.AcquireRequest{r})
					if err != nil || !res[0].Granted {
						t.Errorf("%s: %+v, %v", m.name, res, err)
					} else if _, err := s.Release(t.Context(), []driver.ReleaseRequest{releaseOf(r, res[0])}); err != nil {
						t.Error(err)
					}
					_ = s.Close()
				}
			})
		}
		wg.Wait()
	}
}

func TestATokenRisesHoweverManyDrawAndLiftTheSequence(t *testing.T) {
	t.Parallel()
	d := advisoryDatabase(t)
	var wg sync.WaitGroup
	var mu sync.Mutex
	seen := make(map[int64]bool)
	for w := range 8 {
		c := advisory.client(t, d)
		wg.Go(func() {
			var last int64
			for i := range 30 {
				s, err := c.Session(t.Context()) // which lifts
				if err != nil {
					t.Error(err)
					return
				}
				for k := range 3 {
					r := ask(fmt.Sprint("k", w, i, k))
					res, err := s.Grant(t.Context(), []driver.AcquireRequest{r})
					if err != nil || !res[0].Granted {
						t.Errorf("%+v, %v", res, err)
						continue
					}
					mu.Lock()
					if v := res[0].Version; v <= last || seen[v] {
						t.Errorf("token %d follows %d, handed out before: %v", v, last, seen[v])
					}
					last = res[0].Version
					seen[last] = true
					mu.Unlock()
				}
				_ = s.Close()
			}
		})
	}
	wg.Wait()
}

// The clock of the server may have been wrong once; the sequence does not go back.
func TestASequenceAheadOfTheClockIsNotLoweredByALift(t *testing.T) {
	t.Parallel()
	d := advisoryDatabase(t)
	c := advisory.client(t, d)
	ahead := time.Now().Add(24 * time.Hour).UnixMicro()
	mustExec(t, c.db, `SELECT setval('sqllock_token', $1)`, ahead)
	for range 3 {
		_, res := c.take(t, ask(fmt.Sprint("k", ahead)))
		if res.Version <= ahead {
			t.Errorf("token %d, of a sequence that was at %d", res.Version, ahead)
		}
		ahead = res.Version
	}
}

func TestAFullTableOfLocksIsToldAndCostsNothingThatIsHeldOnAServerOfItsOwn(t *testing.T) {
	t.Parallel()
	server := dedicated(t, "-c", "max_locks_per_transaction=10", "-c", "max_connections=20")
	db := server.Open(t)
	migrate(t, db)
	c := advisory.on(t, db, sessionTTL)
	if want := 10 * 20 * 3 / 4; c.Info().MaxLocks != want {
		t.Errorf("MaxLocks is %d, want %d", c.Info().MaxLocks, want)
	}
	s := c.session(t)
	first := many("a", 20)
	res, err := s.Grant(t.Context(), first)
	if err != nil {
		t.Fatal(err)
	}
	_, err = s.Grant(t.Context(), many("b", 20000))
	if !errors.Is(err, driver.ErrTooManyLocks) || c.Classify(err) != driver.Refused {
		t.Fatalf("Grant of more than the server has room for: %v", err)
	}
	if n := heldKeys(t, c); n != 20+1 {
		t.Errorf("%d locks are held after that", n)
	}
	for i := range first {
		letGo(t, s, first[i], res[i])
	}
	if n := heldKeys(t, c); n != 1 {
		t.Errorf("%d locks are held in the end", n)
	}
	giveBack(t, s)
}

func TestTheKeyOfANameIsWhatTheDocumentationSays(t *testing.T) {
	t.Parallel()
	d := advisoryDatabase(t)
	c := advisory.client(t, d)
	const name = "invoice/42 ü"
	var id driver.ID
	if err := id.UnmarshalText([]byte(get[string](t, c.db, `SELECT replace(id::text, '-', '') FROM sqllock_meta`))); err != nil {
		t.Fatal(err)
	}
	key := lockpg.AdvisoryKey(id, name)
	sql := get[int64](t, c.db, `SELECT ('x' || left(encode(sha256('sqllock advisory'::bytea || '\x00'::bytea || uuid_send(id) || '\x00'::bytea ||
		convert_to($1, 'UTF8')), 'hex'), 16))::bit(64)::bigint
		FROM sqllock_meta`, name)
	if key != sql || c.Key(name) != fmt.Sprint(key) {
		t.Errorf("%d, in SQL %d, as a key %s", key, sql, c.Key(name))
	}
	c.take(t, ask(name))
	n := get[int](t, c.db, `SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND objsubid = 1
		AND (classid::bigint << 32) | objid::bigint = $1 AND mode = 'ExclusiveLock'`, key)
	if n != 1 {
		t.Errorf("pg_locks has %d of it", n)
	}
}
