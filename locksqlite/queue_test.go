package locksqlite_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/sqllock/sqllock/driver"
	"github.com/sqllock/sqllock/internal/queuetest"
	"github.com/sqllock/sqllock/locksqlite"
)

func TestQueueAndSharedTerms(t *testing.T) {
	t.Parallel()
	path := migrated(t)
	// A power failure is not tested: nothing is gained by waiting for the disk.
	settings := []string{"_pragma=busy_timeout(5000)", "_pragma=synchronous(NORMAL)"}
	queuetest.Run(t, queuetest.Fixture{
		DB: open(t, path, settings...),
		Open: func(tb testing.TB, client driver.Client) driver.Store {
			return openClient(tb, open(tb, path, settings...), client)
		},
		Clock:    `(CAST(round((julianday('now') - 2440587.5) * 86400000) AS INTEGER) * 1000)`,
		Classify: new(locksqlite.Database).Classify,
		Short:    testing.Short(),
	})
}

func TestAStoreKeepsAConnectionUntilItIsIdle(t *testing.T) {
	db := open(t, migrated(t))
	queuetest.KeepsAConnection(t, db, func(c driver.Client) driver.Store { return openClient(t, db, c) }, classify)
}

func waiter(name string) driver.AcquireRequest {
	r := ask(name)[0]
	r.Life, r.Handed = time.Minute, 5*time.Second
	return r
}

func line(tb testing.TB, s driver.Store, reqs ...driver.AcquireRequest) []driver.AcquireResult {
	tb.Helper()
	res, err := s.Acquire(tb.Context(), reqs)
	if err != nil || len(res) != len(reqs) {
		tb.Fatal(res, err)
	}
	return res
}

func releaseOf(req driver.AcquireRequest, version int64) driver.ReleaseRequest {
	return driver.ReleaseRequest{Name: req.Name, Acq: req.Acq, Version: version, Shared: req.Shared}
}

func TestAWaiterAndAHolderThatAskAgainNeedNoWriteLock(t *testing.T) {
	path := migrated(t)
	s := openStore(t, open(t, path))
	first, second, reader := waiter("k"), waiter("k"), waiter("shared")
	reader.Shared = true
	reqs := []driver.AcquireRequest{first, second, reader}
	granted := line(t, s, reqs...)
	free := hog(t, open(t, path))
	res := line(t, s, reqs...)
	if !res[0].Found || res[0].Version != granted[0].Version || res[1].Granted || res[1].Holder.Acq != first.Acq || !res[2].Found {
		t.Errorf("%+v", res)
	}
	if res, err := s.Read(t.Context(), driver.ReadRequest{Waiters: true}); err != nil || len(res.Waiters) > 0 {
		t.Error(res.Waiters, err)
	}
	gone := []driver.ReleaseRequest{{Name: "k", Acq: id()}, {Name: "never seen", Acq: id(), Shared: true}, {Name: "shared", Acq: id(), Shared: true}}
	if _, err := s.Release(t.Context(), gone); err != nil {
		t.Error(err)
	}
	newcomer, longer := waiter("k"), second
	longer.Life = time.Hour
	for _, r := range []driver.AcquireRequest{newcomer, longer, waiter("free")} {
		if _, err := s.Acquire(t.Context(), []driver.AcquireRequest{r}); classify(err) != driver.Again {
			t.Errorf("control: a claim was written past the lock: %v", err)
		}
	}
	free()
	if r := line(t, s, newcomer)[0]; r.Granted || r.Ahead != 1 {
		t.Errorf("%+v", r)
	}
}

func TestAReleaseOfWhatNobodyWaitsForIsOneStatement(t *testing.T) {
	path := migrated(t)
	var texts []string
	s := openStore(t, spied(t, path, func(text string) error {
		texts = append(texts, verb(text))
		return nil
	}))
	reqs := ask("a", "b")
	var releases []driver.ReleaseRequest
	for i, r := range grant(t, s, reqs) {
		releases = append(releases, releaseOf(reqs[i], r.Version))
	}
	texts = nil
	if res, err := s.Release(t.Context(), releases); err != nil || !res[0].Freed || !res[1].Freed || strings.Join(texts, " ") != "UPDATE" {
		t.Error(res, err, texts)
	}
	texts = nil
	if _, err := s.Release(t.Context(), []driver.ReleaseRequest{{Name: "a", Acq: reqs[0].Acq}}); err != nil || strings.Join(texts, " ") != "SELECT" {
		t.Error(err, texts)
	}
}

func TestAClaimThatIsWrittenWhileANameIsReleasedIsNotMissed(t *testing.T) {
	for _, before := range []string{"UPDATE", "BEGIN"} {
		t.Run("before "+before, func(t *testing.T) {
			path := migrated(t)
			var hook once
			s := openStore(t, spied(t, path, func(text string) error { return hook.before(text) }))
			other := openStore(t, open(t, path))
			first, second, third := ask("k")[0], waiter("k"), waiter("k")
			version := grant(t, s, []driver.AcquireRequest{first})[0].Version
			if before == "BEGIN" { // so that it comes to that
				line(t, other, second)
			}
			hook = once{verb: before, do: func() {
				if before == "BEGIN" {
					if _, err := other.Release(t.Context(), []driver.ReleaseRequest{{Name: "k", Acq: second.Acq}}); err != nil {
						t.Error(err)
					}
				}
				line(t, other, third)
			}}
			res, err := s.Release(t.Context(), []driver.ReleaseRequest{releaseOf(first, version)})
			if err != nil || !res[0].Freed || len(res[0].Next) > 0 || hook.do != nil {
				t.Fatal(res, err)
			}
			if r := line(t, other, third)[0]; !r.Found || r.Version <= version || r.Remaining > third.Handed {
				t.Errorf("%+v", r)
			}
		})
	}
}

func TestAWaiterThatComesWhileANameIsReleasedFindsItFree(t *testing.T) {
	path := migrated(t)
	first, second := ask("k")[0], waiter("k")
	var hook once
	s := openStore(t, spied(t, path, func(text string) error { return hook.before(text) }))
	other := openStore(t, open(t, path))
	version := grant(t, other, []driver.AcquireRequest{first})[0].Version
	hook = once{verb: "BEGIN", do: func() {
		if res, err := other.Release(t.Context(), []driver.ReleaseRequest{releaseOf(first, version)}); err != nil || !res[0].Freed {
			t.Error(res, err)
		}
	}}
	if r := line(t, s, second)[0]; !r.Granted || r.Found || r.Version <= version || hook.do != nil {
		t.Errorf("%+v", r)
	}
}

func TestWhatAVisitHasSeenNobodyChangesBeforeItWrites(t *testing.T) {
	path := migrated(t)
	first, second := ask("k")[0], waiter("k")
	var hook, inside once
	s := openStore(t, spied(t, path, func(text string) error { return errors.Join(hook.before(text), inside.before(text)) }))
	other := openStore(t, open(t, path, "_pragma=busy_timeout(0)"))
	db := open(t, path)
	grant(t, other, []driver.AcquireRequest{first})
	line(t, s, second)
	expire(t, db, "k")
	hook = once{verb: "BEGIN", do: func() {
		inside = once{verb: "UPDATE", do: func() {
			if res, err := other.Acquire(t.Context(), []driver.AcquireRequest{first}); err == nil && res[0].Granted {
				t.Errorf("somebody else was granted: %+v", res)
			}
			if _, err := other.Sweep(t.Context(), driver.SweepRequest{Limit: 9}); classify(err) != driver.Again {
				t.Errorf("somebody else could write: %v", err)
			}
		}}
	}}
	if r := line(t, s, second)[0]; !r.Granted || r.Crashed.Acq != first.Acq || hook.do != nil || inside.do != nil {
		t.Errorf("%+v", r)
	}
}

func TestAnAnswerThatIsLostIsFoundWhenAskedAgain(t *testing.T) {
	path := migrated(t)
	db := open(t, path)
	var hook once
	s := openStore(t, spied(t, path, func(text string) error { return hook.before(text) }))
	first, second := waiter("k"), waiter("k")
	lost := errors.New("lost")
	for _, req := range []driver.AcquireRequest{first, second} {
		hook = once{verb: "COMMIT", lose: lost}
		if res, err := s.Acquire(t.Context(), []driver.AcquireRequest{req}); !errors.Is(err, lost) || classify(err) != driver.Unclear {
			t.Fatal(res, err)
		}
	}
	one := line(t, s, first)[0]
	if r := line(t, s, second)[0]; !one.Found || r.Granted || r.Ahead != 0 {
		t.Errorf("%+v and %+v", one, r)
	}
	var claims int
	if err := db.QueryRow(`SELECT count(*) FROM sqllock_claim`).Scan(&claims); err != nil || claims != 1 {
		t.Errorf("%d claims, %v", claims, err)
	}
	hook = once{verb: "COMMIT", lose: lost}
	if res, err := s.Release(t.Context(), []driver.ReleaseRequest{releaseOf(first, one.Version)}); classify(err) != driver.Unclear {
		t.Fatal(res, err)
	}
	if r := line(t, s, second)[0]; !r.Found || r.Version <= one.Version {
		t.Errorf("%+v", r)
	}
}

func TestABatchOfReleasesOfWhichAPartWasDoneIsUnclear(t *testing.T) {
	path := migrated(t)
	var hook once
	s := openStore(t, spied(t, path, func(text string) error { return hook.before(text) }))
	other := openStore(t, open(t, path))
	reqs := ask("awaited", "plain")
	var releases []driver.ReleaseRequest
	for i, r := range grant(t, s, reqs) {
		releases = append(releases, releaseOf(reqs[i], r.Version))
	}
	second := waiter("awaited")
	line(t, other, second)
	for _, c := range []struct {
		reqs []driver.ReleaseRequest
		want driver.Fault
	}{
		{releases[:1], driver.Again}, // nothing was done
		{releases, driver.Unclear},
	} {
		var free func()
		hook = once{verb: "BEGIN", do: func() { free = hog(t, open(t, path)) }}
		res, err := s.Release(t.Context(), c.reqs)
		if err == nil || classify(err) != c.want {
			t.Errorf("%+v, %v is %d", res, err, classify(err))
		}
		free()
		if r := line(t, other, second)[0]; r.Granted {
			t.Errorf("%+v", r)
		}
	}
	if rows := look(t, s, "awaited", "plain"); !rows[0].Held() || rows[1].Held() {
		t.Errorf("%+v", rows)
	}
	if res, err := s.Release(t.Context(), releases); err != nil || !res[0].Freed || res[1].Freed {
		t.Error(res, err)
	}
	if r := line(t, other, second)[0]; !r.Found {
		t.Errorf("%+v", r)
	}
}

func TestNobodyIsGrantedANamePastAGuard(t *testing.T) {
	path := migrated(t)
	db := open(t, path)
	s, other := openStore(t, db), openStore(t, open(t, path, "_pragma=busy_timeout(0)"))
	first, second := ask("k")[0], waiter("k")
	version := grant(t, s, []driver.AcquireRequest{first})[0].Version
	line(t, other, second)
	guard := func() (end func() error) {
		tx, err := s.Begin(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		req := driver.GuardRequest{Name: "k", Acq: first.Acq, Version: version}
		if status, err := s.Guard(t.Context(), tx, req); status != driver.Guarded {
			t.Fatal(status, err)
		}
		return tx.Rollback
	}
	guarded := releaseOf(first, version)
	guarded.Guarded = true
	end := guard()
	for i, call := range []func(context.Context) error{
		func(ctx context.Context) error {
			_, err := other.Release(ctx, []driver.ReleaseRequest{guarded})
			return err
		},
		func(ctx context.Context) error {
			_, err := other.Revoke(ctx, []driver.RevokeRequest{{Name: "k"}})
			return err
		},
		func(ctx context.Context) error {
			_, err := other.Release(ctx, []driver.ReleaseRequest{{Name: "k", Acq: first.Acq, Guarded: true}})
			return err
		},
	} {
		if err := call(t.Context()); classify(err) != driver.Again {
			t.Errorf("call %d: %v", i, err)
		}
	}
	if err := end(); err != nil {
		t.Fatal(err)
	}
	expire(t, db, "k")
	tx, err := s.Begin(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	exec(t, tx, `UPDATE sqllock_lock SET version = version`) // what a guard does
	if res, err := other.Acquire(t.Context(), []driver.AcquireRequest{second}); classify(err) != driver.Again {
		t.Errorf("the name of an expired holder that is guarded was granted: %+v, %v", res, err)
	}
	if err := tx.Rollback(); err != nil {
		t.Fatal(err)
	}
	if r := line(t, other, second)[0]; !r.Granted || r.Crashed.Acq != first.Acq {
		t.Errorf("%+v", r)
	}
}
