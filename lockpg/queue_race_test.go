package lockpg_test

import (
	"context"
	"database/sql"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sqllock/sqllock/driver"
	"github.com/sqllock/sqllock/internal/queuetest"
	"github.com/sqllock/sqllock/lockpg"
)

// enterIn has request n enter the queue in a transaction that is not over.
func enterIn(t *testing.T, tx *sql.Tx, name string, n int) {
	t.Helper()
	for _, text := range []string{
		`UPDATE sqllock_lock SET waiting = waiting + 1, seq = seq + 1 WHERE name = '` + name + `'`,
		`INSERT INTO sqllock_waiter SELECT '` + driver.ID{9}.String() + `'::uuid, ` + pgNow + ` + 60000000`,
		`INSERT INTO sqllock_claim SELECT name, 0, seq, '` + acq(n).String() + `', 0, 0, 0, 0, 60000000, 5000000, 0, 1, 0, 0, 0,
			'` + driver.ID{9}.String() + `', 'x', 'test' FROM sqllock_lock WHERE name = '` + name + `'`,
	} {
		if _, err := tx.Exec(text); err != nil {
			t.Fatal(err)
		}
	}
}

// A release that has begun before a claim was committed must see it, whatever form it
// has.
func TestAClaimWrittenWhileAReleaseIsUnderWayIsNotMissed(t *testing.T) {
	t.Parallel()
	for what, how := range map[string]struct{ shared, awaited, guarded bool }{
		"alone": {}, "known": {awaited: true}, "guarded": {guarded: true}, "together": {shared: true}, "together, known": {shared: true, awaited: true},
	} {
		t.Run(what, func(t *testing.T) {
			db := migrated(t)
			store := open(t, db)
			req := request("a", 1, time.Minute)
			req.Shared = how.shared
			v := grant(t, store, req)[0].Version
			tx, err := db.BeginTx(t.Context(), nil)
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = tx.Rollback() }()
			enterIn(t, tx, "a", 2)
			r := releasing("a", 1, v)
			r.Shared, r.Awaited, r.Guarded = how.shared, how.awaited, how.guarded
			done := make(chan driver.ReleaseResult, 1)
			go func() {
				res, err := patiently(func() ([]driver.ReleaseResult, error) {
					return store.Release(context.Background(), []driver.ReleaseRequest{r})
				})
				if err != nil {
					t.Error(err)
					res = make([]driver.ReleaseResult, 1)
				}
				done <- res[0]
			}()
			waitsForLock(t, db)
			if err := tx.Commit(); err != nil {
				t.Fatal(err)
			}
			isNext(t, <-done, 2, v)
		})
	}
}

// handOverRace is one in which somebody changes what a release is about to hand over, in a transaction
// that is not over when the release begins.
type handOverRace struct {
	t       *testing.T
	db      *sql.DB
	store   driver.Store // of the holder, acq 1
	other   driver.Store
	version int64
	batch   bool // the statement is about another name, too
}

// newHandOverRace has acq 1 hold the name a and the others wait for it, of the other store.
func newHandOverRace(t *testing.T, waiters ...int) *handOverRace {
	db := migrated(t)
	h := &handOverRace{t: t, db: db, store: open(t, db), other: openAs(t, lockpg.DB(db), 2)}
	h.version = grant(t, h.store, request("a", 1, time.Minute))[0].Version
	for _, n := range waiters {
		line(t, h.other, waiter("a", n))
	}
	return h
}

// beside releases the name while a transaction runs texts that has locked the row before. It
// returns what the release has answered.
func (h *handOverRace) beside(texts ...string) driver.ReleaseResult {
	h.t.Helper()
	tx := mustBegin(h.t, h.db)
	mustExecIn(h.t, tx, append([]string{`SELECT FROM sqllock_lock FOR UPDATE`}, texts...)...)
	done := make(chan driver.ReleaseResult, 1)
	go func() { done <- h.release() }()
	waitsForLock(h.t, h.db)
	if err := tx.Commit(); err != nil {
		h.t.Fatal(err)
	}
	return <-done
}

// release releases the name, which somebody is known to wait for.
func (h *handOverRace) release() driver.ReleaseResult {
	r := releasing("a", 1, h.version)
	r.Awaited = true
	reqs := []driver.ReleaseRequest{r}
	if h.batch {
		reqs = append(reqs, releasing("b", 9, 1))
		reqs[1].Awaited = true
	}
	res, err := patiently(func() ([]driver.ReleaseResult, error) { return h.store.Release(context.Background(), reqs) })
	if err != nil {
		h.t.Error(err)
		return driver.ReleaseResult{}
	}
	return res[0]
}

// patiently calls again while the database wants to be asked again, as a Locker does: on a busy
// machine those whom a call waits for may be late.
func patiently[R any](call func() (R, error)) (res R, err error) {
	for range 10 {
		if res, err = call(); err == nil || (*lockpg.Database)(nil).Classify(err) != driver.Again {
			break
		}
	}
	return res, err
}

// is checks who holds the name, 0 for nobody, and that as many wait as have a claim.
func (h *handOverRace) is(holder, waiting int) {
	h.t.Helper()
	want := "-"
	if holder != 0 {
		want = acq(holder).String()
	}
	want = fmt.Sprintf("%s %d %d", want, waiting, waiting)
	got := get[string](h.t, h.db, `SELECT coalesce(replace(acq::text, '-', ''), '-') || ' ' || waiting || ' ' || (SELECT count(*) FROM sqllock_claim k WHERE k.name = l.name)
		FROM sqllock_lock l WHERE name = 'a'`)
	if got != want {
		h.t.Errorf("holder, waiting and claims are %s, want %s", got, want)
	}
}

func mustExecIn(t *testing.T, tx *sql.Tx, texts ...string) {
	t.Helper()
	for _, text := range texts {
		if _, err := tx.Exec(text); err != nil {
			t.Fatal(err)
		}
	}
}

// withdrawn are the statements that withdraw a claim of the name a.
func withdrawn(n int) []string {
	return []string{`DELETE FROM sqllock_claim WHERE acq = '` + acq(n).String() + `'`, `UPDATE sqllock_lock SET waiting = waiting - 1`}
}

// What a release reads of the queue may be older than the row that it has waited for.
func TestWhatChangesWhileAReleaseWaitsForTheRowCounts(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		what            string
		waiters         []int
		meanwhile       []string
		freed           bool
		holder, waiting int
	}{
		{"nothing", []int{2, 3}, nil, true, 2, 1},
		{"the only one leaves", []int{2}, withdrawn(2), true, 0, 0},
		{"the first leaves", []int{2, 3}, withdrawn(2), true, 3, 0},
		{"the second leaves", []int{2, 3}, withdrawn(3), true, 2, 0},
		{"all leave", []int{2, 3}, append(withdrawn(2), withdrawn(3)...), true, 0, 0},
		{"the term is revoked", []int{2}, []string{`UPDATE sqllock_lock SET acq = NULL, owner = NULL, locker = NULL, label = NULL, version = version + 1`},
			false, 2, 0},
		{"the name is handed over", []int{2, 3}, append(withdrawn(2), `UPDATE sqllock_lock SET acq = '`+acq(2).String()+`', version = version + 1`), false, 2, 1},
		{"the first enters again", []int{2, 3}, []string{`UPDATE sqllock_lock SET seq = seq + 1`,
			`CREATE TEMP TABLE again ON COMMIT DROP AS SELECT * FROM sqllock_claim WHERE acq = '` + acq(2).String() + `'`,
			`DELETE FROM sqllock_claim WHERE acq IN (SELECT acq FROM again)`, `UPDATE again SET seq = (SELECT seq FROM sqllock_lock)`,
			`INSERT INTO sqllock_claim SELECT * FROM again`}, true, 3, 1},
	} {
		for _, batch := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, batch %t", c.what, batch), func(t *testing.T) {
				t.Parallel()
				h := newHandOverRace(t, c.waiters...)
				h.batch = batch
				if res := h.beside(c.meanwhile...); res.Freed != c.freed || len(res.Next) > 0 {
					t.Errorf("%+v", res)
				}
				h.is(c.holder, c.waiting)
			})
		}
	}
}

// A release that somebody waits for gives the name to nobody before its time.
func TestANameThatIsKeptIsNotHandedOver(t *testing.T) {
	t.Parallel()
	for what, c := range map[string]struct {
		minHold time.Duration
		before  string
	}{
		"by MinHold":     {minHold: time.Hour},
		"by an old term": {before: `UPDATE sqllock_lock SET not_before = ` + pgNow + ` + 3600000000`},
		"by a reader, after a change by hand": {before: `WITH l AS (UPDATE sqllock_lock SET holding = 1, seq = seq + 1 RETURNING name, seq)
			INSERT INTO sqllock_claim SELECT name, 1, seq, '` + acq(9).String() + `', 1, 0, 1, 1, 60000000, 5000000, 0, 1, ` + pgNow + ` + 60000000, 0, 0,
				'` + driver.ID{9}.String() + `', 'x', 'test' FROM l`},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			h := newHandOverRace(t, 2)
			if c.before != "" {
				mustExec(t, h.db, c.before)
			}
			r := releasing("a", 1, h.version)
			r.Awaited, r.MinHold = true, c.minHold
			if res := let(t, h.store, r)[0]; !res.Freed || len(res.Next) > 0 {
				t.Errorf("%+v", res)
			}
			if got := get[string](t, h.db, `SELECT (acq IS NULL) || ' ' || waiting FROM sqllock_lock`); got != "true 1" {
				t.Errorf("whether it is free, and how many wait: %s", got)
			}
		})
	}
}

// Those who come while a release waits for the row come behind those who wait.
func TestWhoEntersWhileAReleaseWaitsForTheRowComesLast(t *testing.T) {
	t.Parallel()
	h := newHandOverRace(t, 2)
	tx := mustBegin(t, h.db)
	enterIn(t, tx, "a", 3)
	done := make(chan driver.ReleaseResult, 1)
	go func() { done <- h.release() }()
	waitsForLock(t, h.db)
	if err := tx.Commit(); err != nil {
		t.Fatal(err)
	}
	if res := <-done; !res.Freed {
		t.Errorf("%+v", res)
	}
	h.is(2, 1)
}

// A release that waits for the row sees the beats as they were before. It must not take them
// for missing.
func TestABeatThatComesWhileAReleaseWaitsForTheRowIsNotMissed(t *testing.T) {
	t.Parallel()
	for !t.Failed() && !beatsBesideARelease(t) { // the machine was so slow that the release has begun too late
	}
}

func beatsBesideARelease(t *testing.T) (inTime bool) {
	h := newHandOverRace(t, 2)
	line(t, openAs(t, lockpg.DB(h.db), 3), waiter("a", 3))
	tx := mustBegin(t, h.db)
	mustExecIn(t, tx, `SELECT FROM sqllock_lock FOR UPDATE`)
	const life = 600 * time.Millisecond // less than a release waits for a row
	beat := `UPDATE sqllock_waiter SET expires_at = ` + pgNow + ` + %d WHERE locker = '` + driver.ID{2}.String() + `'`
	mustExec(t, h.db, fmt.Sprintf(beat, life.Microseconds()))
	done := make(chan driver.ReleaseResult, 1)
	go func() { done <- h.release() }()
	waitsForLock(t, h.db)
	inTime = get[bool](t, h.db, `SELECT bool_and(expires_at > `+pgNow+`) FROM sqllock_waiter`)
	mustExec(t, h.db, fmt.Sprintf(beat, time.Minute.Microseconds()))
	time.Sleep(life)
	if err := tx.Commit(); err != nil {
		t.Fatal(err)
	}
	if res := <-done; inTime {
		if !res.Freed {
			t.Errorf("%+v", res)
		}
		h.is(2, 1)
	}
	return inTime
}

// A term is handed over once, however many releases there are.
func TestReleasesOfOneTermHandOverOnce(t *testing.T) {
	t.Parallel()
	for range 5 {
		h := newHandOverRace(t, 2, 3, 4)
		var freed atomic.Int32
		var wg sync.WaitGroup
		for range 4 {
			wg.Go(func() {
				if h.release().Freed {
					freed.Add(1)
				}
			})
		}
		wg.Wait()
		if n := freed.Load(); n != 1 {
			t.Errorf("%d of 4 releases have ended the term", n)
		}
		h.is(2, 2)
	}
}

// A claim that has waited for the row goes by what the row says then, by itself or in a batch.
func TestWhatChangesWhileAClaimWaitsForTheRowCounts(t *testing.T) {
	t.Parallel()
	free := `UPDATE sqllock_lock SET acq = NULL, owner = NULL, locker = NULL, label = NULL, ended = 1, expires_at = ` + pgNow
	for _, c := range []struct {
		what            string
		waiter          int // that enters first, or 0
		meanwhile       []string
		granted, found  bool
		holder, waiting int
	}{
		{"nothing", 0, nil, false, false, 1, 1},
		{"the name is freed", 0, []string{free}, true, false, 2, 0},
		{"it is freed and kept", 0, []string{free, `UPDATE sqllock_lock SET not_before = 60000000 + ` + pgNow}, false, false, 0, 1},
		{"it is freed and somebody waits", 3, []string{free}, false, false, 3, 1},
		{"another takes it", 0, []string{`UPDATE sqllock_lock SET acq = '` + acq(3).String() + `', version = version + 1`}, false, false, 3, 1},
		{"the same request takes it", 0, []string{`UPDATE sqllock_lock SET acq = '` + acq(2).String() + `', version = version + 1`}, true, true, 2, 0},
		{"it expires", 0, []string{`UPDATE sqllock_lock SET expires_at = ` + pgNow}, true, false, 2, 0},
	} {
		for n := 1; n <= 2; n++ {
			t.Run(fmt.Sprintf("%s, %d names", c.what, n), func(t *testing.T) {
				t.Parallel()
				var h *handOverRace
				r := inTime(t, func() (driver.AcquireResult, error) {
					h = newHandOverRace(t)
					tx := mustBegin(t, h.db)
					mustExecIn(t, tx, `SELECT FROM sqllock_lock FOR UPDATE`)
					if c.waiter != 0 {
						enterIn(t, tx, "a", c.waiter)
					}
					mustExecIn(t, tx, c.meanwhile...)
					return h.enterBeside(tx, []driver.AcquireRequest{waiter("a", 2), waiter("b", 4)}[:n])
				})
				if r.Granted != c.granted || r.Found != c.found || r.Granted && r.Version <= h.version {
					t.Errorf("%+v, want granted %t, found %t", r, c.granted, c.found)
				}
				h.is(c.holder, c.waiting)
			})
		}
	}
}

// inTime does something that fails if the machine is too slow for it: then it does it again, for a
// minute.
func inTime(t *testing.T, do func() (driver.AcquireResult, error)) driver.AcquireResult {
	t.Helper()
	for began := time.Now(); ; {
		r, err := do()
		if err == nil {
			return r
		}
		if time.Since(began) > time.Minute {
			t.Fatal(err)
		}
	}
}

// enterBeside asks for names while tx has locked the row of the first, and commits tx. It returns
// what was answered about that name, or the error of a statement that has waited for too long.
func (h *handOverRace) enterBeside(tx *sql.Tx, reqs []driver.AcquireRequest) (r driver.AcquireResult, err error) {
	h.t.Helper()
	answered := make(chan struct{})
	go func() {
		defer close(answered)
		var res []driver.AcquireResult
		if res, err = h.other.Acquire(context.Background(), reqs); err == nil {
			r = res[0]
		}
	}()
	for !areLocksWaitedFor(h.t, h.db) {
		select {
		case <-answered:
			_ = tx.Rollback()
			if err == nil {
				h.t.Fatalf("the claim has not waited for the row: %+v", r)
			}
			return r, err
		case <-time.After(time.Millisecond):
		}
	}
	if err := tx.Commit(); err != nil {
		h.t.Fatal(err)
	}
	<-answered
	return r, err
}

// One that is repeated while it may still run makes no second claim.
func TestARequestThatRunsTwiceAtATimeHasOneClaim(t *testing.T) {
	t.Parallel()
	db := migrated(t)
	store := open(t, db)
	grant(t, store, request("a", 1, time.Minute))
	for i := range 20 {
		var wg sync.WaitGroup
		for range 4 {
			wg.Go(func() {
				if _, err := patiently(func() ([]driver.AcquireResult, error) {
					return store.Acquire(context.Background(), []driver.AcquireRequest{waiter("a", 2+i)})
				}); err != nil {
					t.Errorf("Acquire = %v", err)
				}
			})
		}
		wg.Wait()
	}
	if n := get[int](t, db, `SELECT count(*) FROM sqllock_claim`); n != 20 {
		t.Errorf("%d claims of 20", n)
	}
}

// Who writes a claim has locked the row for a moment. That is not a guard.
func TestAGuardedLeaseIsReleasedAlthoughTheRowIsInUse(t *testing.T) {
	t.Parallel()
	db := migrated(t)
	store := open(t, db)
	for _, awaited := range []bool{false, true} {
		name := fmt.Sprint(awaited)
		v := grant(t, store, request(name, 1, time.Minute))[0].Version
		unlock := lockRow(t, db, `SELECT FROM sqllock_lock WHERE name = '`+name+`' FOR NO KEY UPDATE`)
		time.AfterFunc(200*time.Millisecond, unlock)
		r := releasing(name, 1, v)
		r.Guarded, r.Awaited = true, awaited
		if res := let(t, store, r); !res[0].Freed {
			t.Errorf("awaited %v: %+v", awaited, res)
		}
	}
}

func TestNobodyIsHandedTheNamePastAGuard(t *testing.T) {
	t.Parallel()
	db := migrated(t)
	store := open(t, db)
	v := grant(t, store, request("a", 1, time.Minute))[0].Version
	guard := func(version int64) (end func()) {
		tx, err := store.Begin(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		if status, err := store.Guard(t.Context(), tx, driver.GuardRequest{Name: "a", Acq: acq(1), Version: version}); status != driver.Guarded {
			t.Fatal(status, err)
		}
		return func() { _ = tx.Rollback() }
	}
	end := guard(v)
	defer end()
	line(t, store, waiter("a", 2)) // passes
	for _, awaited := range []bool{false, true} {
		r := releasing("a", 1, v)
		r.Guarded, r.Awaited = true, awaited
		if res := let(t, store, r); res[0].Freed || len(res[0].Next) > 0 {
			t.Errorf("released past the guard: %+v", res)
		}
	}
	_, err := store.Release(t.Context(), []driver.ReleaseRequest{{Name: "a", Acq: acq(1), Guarded: true}})
	if err == nil || classify(err) != driver.Again {
		t.Errorf("Release = %v", err)
	}
	expire(t, db, "a")
	queuetest.Within(t, 900*time.Millisecond, func() { // a wait for the guard would take a second
		if r := line(t, store, waiter("a", 2))[0]; r.Granted || r.Holder.Acq != acq(1) {
			t.Errorf("%+v", r)
		}
	})
	end()
	if r := line(t, store, waiter("a", 2))[0]; !r.Granted || r.Found || r.Version <= v || r.Crashed.Acq != acq(1) || r.Crashed.Version != v {
		t.Errorf("%+v", r)
	}
}

// What a waiter changes in the row of the name is not what a guard locks.
func TestThoseWhoComeAndGoTurnNoGuardWithAnOldSnapshotAway(t *testing.T) {
	t.Parallel()
	for _, level := range []sql.IsolationLevel{sql.LevelRepeatableRead, sql.LevelSerializable} {
		db := migrated(t)
		store, other := open(t, db), openAs(t, lockpg.DB(db), 1)
		v := grant(t, store, request("a", 1, time.Minute))[0].Version
		tx, err := store.Begin(t.Context(), &sql.TxOptions{Isolation: level})
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = tx.Rollback() }()
		if _, err := tx.Exec(`SELECT count(*) FROM sqllock_meta`); err != nil { // the snapshot
			t.Fatal(err)
		}
		line(t, other, waiter("a", 2), waitingReader("a", 3))
		if _, err := other.Release(t.Context(), []driver.ReleaseRequest{{Name: "a", Acq: acq(2)}}); err != nil {
			t.Fatal(err)
		}
		status, err := store.Guard(t.Context(), tx, driver.GuardRequest{Name: "a", Acq: acq(1), Version: v})
		if status != driver.Guarded {
			t.Errorf("%v: Guard = %v, %v", level, status, err)
		}
		// It is a guard none the less.
		line(t, other, waiter("a", 4))
		r := releasing("a", 1, v)
		r.Guarded = true
		if res := let(t, store, r); res[0].Freed {
			t.Errorf("%v: released past the guard: %+v", level, res)
		}
	}
}

func TestAStormEndsWithEveryNameFree(t *testing.T) {
	t.Parallel()
	db := migrated(t)
	s := storm{t: t, names: []string{"a", "b", "c"}, writers: make(map[string]int), readers: make(map[string]int), last: make(map[string]int64)}
	var wg sync.WaitGroup
	for i := range 8 {
		store := openAs(t, lockpg.DB(db), byte(1+i%2))
		wg.Go(func() { s.run(store, i, time.Now().Add(6*time.Second)) })
	}
	wg.Wait()
	if s.terms < 20 {
		t.Errorf("only %d terms", s.terms)
	}
	t.Logf("%d terms, %d of them handed over", s.terms, s.handed)
	if got := get[string](t, db, `SELECT count(*) FILTER (WHERE acq IS NOT NULL OR holding > 0 OR waiting > 0) || ' ' || (SELECT count(*) FROM sqllock_claim)
		FROM sqllock_lock`); got != "0 0" {
		t.Errorf("names that are kept, and claims that are left: %s", got)
	}
}

// storm knows who holds.
type storm struct {
	t     *testing.T
	names []string

	mu               sync.Mutex
	writers, readers map[string]int
	last             map[string]int64
	terms, handed    int
}

func (s *storm) count(name string, shared bool, n int, version int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if shared {
		s.readers[name] += n
	} else {
		s.writers[name] += n
	}
	if w, r := s.writers[name], s.readers[name]; w > 1 || w == 1 && r > 0 {
		s.t.Errorf("%q is held by %d writers and %d readers", name, w, r)
	}
	if n > 0 {
		s.terms++
		if version < s.last[name] || !shared && version == s.last[name] {
			s.t.Errorf("%q: version %d after %d", name, version, s.last[name])
		}
		s.last[name] = version
	}
}

// again repeats what is to be tried again.
func (s *storm) again(store driver.Store, f func(context.Context) error) {
	for range 100 {
		err := f(context.Background())
		if err == nil {
			return
		}
		if classify(err) != driver.Again {
			s.t.Error(err)
			return
		}
	}
	s.t.Error("tried again for too often")
}

// run waits for names and holds them. Who has waited for long goes away.
func (s *storm) run(store driver.Store, client int, end time.Time) {
	rnd := rand.New(rand.NewPCG(uint64(client), 1))
	for n := 1 + client<<12; time.Now().Before(end); n++ {
		req := waiter(s.names[rnd.IntN(len(s.names))], n)
		req.Shared = rnd.IntN(3) == 0
		var got driver.AcquireResult
		if rnd.IntN(2) == 0 {
			s.again(store, func(ctx context.Context) error {
				res, err := store.Acquire(ctx, []driver.AcquireRequest{req})
				if err == nil {
					got = res[0]
				}
				return err
			})
		}
		for try := 0; !got.Granted && try < 1+rnd.IntN(40); try++ {
			s.again(store, func(ctx context.Context) error {
				res, err := store.Acquire(ctx, []driver.AcquireRequest{req})
				if err == nil {
					got = res[0]
				}
				return err
			})
		}
		if got.Granted {
			s.hold(store, rnd, req, got)
			continue
		}
		s.again(store, func(ctx context.Context) error {
			_, err := store.Release(ctx, []driver.ReleaseRequest{{Name: req.Name, Acq: req.Acq, Shared: req.Shared}})
			return err
		})
	}
}

func (s *storm) hold(store driver.Store, rnd *rand.Rand, req driver.AcquireRequest, got driver.AcquireResult) {
	s.count(req.Name, req.Shared, 1, got.Version)
	if got.Found {
		s.mu.Lock()
		s.handed++
		s.mu.Unlock()
	}
	time.Sleep(time.Duration(rnd.Int64N(int64(2 * time.Millisecond))))
	s.count(req.Name, req.Shared, -1, 0)
	s.again(store, func(ctx context.Context) error {
		res, err := store.Release(ctx, []driver.ReleaseRequest{{Name: req.Name, Acq: req.Acq, Version: got.Version, Shared: req.Shared,
			Awaited: rnd.IntN(2) == 0, Guarded: !req.Shared && rnd.IntN(4) == 0}})
		if err == nil && !res[0].Freed {
			s.t.Errorf("%q was not held any more", req.Name)
		}
		return err
	})
}
