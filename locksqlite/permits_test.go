package locksqlite_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sqllock/sqllock/driver"
)

// permit is a request for one of two permits of a name.
func permit(name string) driver.AcquireRequest {
	r := ask(name)[0]
	r.Permits = 2
	return r
}

// permitRelease is the release of a permit.
func permitRelease(req driver.AcquireRequest, version int64) driver.ReleaseRequest {
	return driver.ReleaseRequest{Name: req.Name, Acq: req.Acq, Version: version, Shared: true, Permit: true}
}

// used lets names have had two permits.
func used(t *testing.T, s driver.Store, names ...string) {
	t.Helper()
	for _, name := range names {
		r := permit(name)
		version := grant(t, s, []driver.AcquireRequest{r})[0].Version
		if res, err := s.Release(t.Context(), []driver.ReleaseRequest{permitRelease(r, version)}); err != nil || !res[0].Freed {
			t.Fatal(res, err)
		}
	}
}

func TestAPermitOfANameThatNobodyHoldsNeedsNoVisit(t *testing.T) {
	path := migrated(t)
	var texts []string
	s := openStore(t, spied(t, path, func(text string) error {
		texts = append(texts, verb(text))
		return nil
	}))
	used(t, s, "a", "b")
	want := func(what, statements string) {
		t.Helper()
		if got := strings.Join(texts, " "); got != statements {
			t.Errorf("%s: %s, want %s", what, got, statements)
		}
		texts = nil
	}
	for _, reqs := range [][]driver.AcquireRequest{{permit("a")}, {permit("a"), permit("b")}} {
		texts = nil
		res := grant(t, s, reqs)
		want(fmt.Sprintf("%d permits", len(reqs)), "BEGIN UPDATE INSERT COMMIT") // the Locker has just freed them
		var releases []driver.ReleaseRequest
		for i := range reqs {
			if !res[i].Granted || res[i].Found || res[i].Slot != 0 || res[i].Remaining != time.Minute {
				t.Errorf("%+v", res[i])
			}
			releases = append(releases, permitRelease(reqs[i], res[i].Version))
		}
		freed, err := s.Release(t.Context(), releases)
		want("their release", "BEGIN UPDATE DELETE COMMIT")
		if err != nil || slices.Contains(freedOf(freed), false) {
			t.Error(freed, err)
		}
	}
	grant(t, s, []driver.AcquireRequest{permit("a")})
	grant(t, s, []driver.AcquireRequest{permit("a")})
	texts = nil
	if r := grant(t, s, []driver.AcquireRequest{permit("a")})[0]; r.Granted {
		t.Errorf("a third one of two: %+v", r)
	}
	want("no permit is free", "SELECT SELECT")
	first, second := permit("c"), permit("c")
	used(t, s, "c")
	grant(t, s, []driver.AcquireRequest{first})
	r := grant(t, s, []driver.AcquireRequest{second})[0]
	if _, err := s.Release(t.Context(), []driver.ReleaseRequest{permitRelease(second, r.Version)}); err != nil {
		t.Error(err)
	}
	texts = nil
	if r := grant(t, s, ask("c"))[0]; r.Granted {
		t.Errorf("beside a permit: %+v", r)
	}
	want("one of two was freed, so that the name is not", "SELECT SELECT")
}

func TestAPermitIsGrantedByWhatIsTrueWhenItIsWritten(t *testing.T) {
	path := migrated(t)
	db := open(t, path)
	other := openStore(t, db)
	take := func(r driver.AcquireRequest) driver.AcquireResult {
		return grant(t, other, []driver.AcquireRequest{r})[0]
	}
	first := permit("k")
	for what, c := range map[string]struct {
		meanwhile func()
		want      driver.AcquireResult // but for its times
	}{
		"nothing happens":   {func() {}, driver.AcquireResult{Granted: true}},
		"one is taken":      {func() { take(permit("k")) }, driver.AcquireResult{Granted: true, Slot: 1}},
		"both are taken":    {func() { take(permit("k")); take(permit("k")) }, driver.AcquireResult{}},
		"it is locked":      {func() { take(ask("k")[0]) }, driver.AcquireResult{}},
		"it is shared":      {func() { r := ask("k")[0]; r.Shared = true; take(r) }, driver.AcquireResult{}},
		"it is taken by it": {func() { take(first) }, driver.AcquireResult{Granted: true, Found: true}},
		"a writer waits":    {func() { take(permit("k")); line(t, other, waiter("k")) }, driver.AcquireResult{}},
		"a writer waits whom nobody has served yet": {func() {
			take(permit("k"))
			line(t, other, waiter("k"))
			exec(t, db, "DELETE FROM sqllock_claim WHERE state = 1")
			exec(t, db, "UPDATE sqllock_lock SET holding = 0")
		}, driver.AcquireResult{}},
		"it is resized": {func() {
			if err := other.(driver.PermitStore).Resize(t.Context(), "k", 3); err != nil {
				t.Error(err)
			}
		}, driver.AcquireResult{Permits: 3}},
		"it is kept":    {func() { exec(t, db, "UPDATE sqllock_lock SET not_before = "+soon) }, driver.AcquireResult{}},
		"it is deleted": {func() { exec(t, db, "DELETE FROM sqllock_lock") }, driver.AcquireResult{Granted: true}},
		"one has expired": {func() {
			take(permit("k"))
			exec(t, db, "UPDATE sqllock_claim SET expires_at = 1")
		}, driver.AcquireResult{Granted: true}},
	} {
		t.Run(what, func(t *testing.T) {
			exec(t, db, "DELETE FROM sqllock_claim")
			exec(t, db, "DELETE FROM sqllock_lock")
			used(t, other, "k")
			before := look(t, other, "k")[0].Holder.Version
			hook := once{verb: "BEGIN", do: c.meanwhile}
			got := grant(t, openStore(t, spied(t, path, hook.before)), []driver.AcquireRequest{first})[0]
			if hook.do != nil {
				t.Fatal("nothing happened in between")
			}
			if got.Granted != c.want.Granted || got.Found != c.want.Found || got.Slot != c.want.Slot || got.Permits != c.want.Permits {
				t.Errorf("%+v, want %+v", got, c.want)
			}
			if got.Granted && got.Version <= before {
				t.Errorf("token %d after %d", got.Version, before)
			}
		})
	}
}

func TestAPermitThatSomebodyWaitsForIsHandedOver(t *testing.T) {
	path := migrated(t)
	var hook once
	s := openStore(t, spied(t, path, func(text string) error { return hook.before(text) }))
	other := openStore(t, open(t, path))
	used(t, s, "a", "b")
	for _, reqs := range [][]driver.AcquireRequest{{permit("a")}, {permit("a"), permit("b")}} {
		var releases []driver.ReleaseRequest
		for i, r := range grant(t, s, reqs) {
			releases = append(releases, permitRelease(reqs[i], r.Version))
		}
		next := waiter("a")
		hook = once{verb: "BEGIN", do: func() { line(t, other, next) }} // the holder does not know of it
		if res, err := s.Release(t.Context(), releases); err != nil || slices.Contains(freedOf(res), false) || hook.do != nil {
			t.Error(res, err)
		}
		r := line(t, other, next)[0]
		if !r.Found || r.Version <= releases[0].Version {
			t.Errorf("%d permits: %+v", len(reqs), r)
		}
		release(t, other, next, 0)
	}
}

func TestOnlyTheTermOfAPermitEndsThatAReleaseTells(t *testing.T) {
	db := open(t, migrated(t))
	s := openStore(t, db)
	used(t, s, "a", "b")
	first, second := permit("a"), permit("b")
	res := grant(t, s, []driver.AcquireRequest{first, second})
	swapped := permitRelease(first, res[0].Version)
	swapped.Name = "b"
	for what, reqs := range map[string][]driver.ReleaseRequest{
		"a token that it does not have":  {permitRelease(first, res[0].Version-1)},
		"a name that it is not of":       {swapped},
		"such tokens of several permits": {permitRelease(first, res[0].Version-1), permitRelease(second, res[1].Version-1)},
	} {
		freed, err := s.Release(t.Context(), reqs)
		if err != nil || slices.Contains(freedOf(freed), true) {
			t.Errorf("%s: %v, %v", what, freed, err)
		}
	}
	for _, r := range look(t, s, "a", "b") {
		if r.PermitsHeld != 1 {
			t.Errorf("%+v", r)
		}
	}
}

func TestAPermitOfWhichTheReplyIsLostIsFoundWhenAskedAgain(t *testing.T) {
	path := migrated(t)
	db := open(t, path)
	var hook once
	s := openStore(t, spied(t, path, func(text string) error { return hook.before(text) }))
	used(t, s, "k")
	lost := errors.New("lost")
	req := permit("k")
	hook = once{verb: "COMMIT", lose: lost}
	if res, err := s.Acquire(t.Context(), []driver.AcquireRequest{req}); !errors.Is(err, lost) || classify(err) != driver.Unclear {
		t.Fatal(res, err)
	}
	r := grant(t, s, []driver.AcquireRequest{req})[0]
	if !r.Granted || !r.Found || r.Slot != 0 || tables(t, db) != "1 1" {
		t.Errorf("%+v, %s", r, tables(t, db))
	}
	release := []driver.ReleaseRequest{permitRelease(req, r.Version)}
	hook = once{verb: "COMMIT", lose: lost}
	if res, err := s.Release(t.Context(), release); classify(err) != driver.Unclear {
		t.Fatal(res, err)
	}
	if res, err := s.Release(t.Context(), release); err != nil || res[0].Freed || tables(t, db) != "0 0" {
		t.Error(res, err, tables(t, db))
	}
}

// What a part of a statement has written is undone with it.
func TestAPermitThatCannotBeWrittenLeavesNoTrace(t *testing.T) {
	db := open(t, migrated(t))
	s := openStore(t, db)
	used(t, s, "k")
	exec(t, db, `CREATE TRIGGER stubborn BEFORE INSERT ON sqllock_claim BEGIN SELECT RAISE(ABORT, 'stubborn'); END`)
	if res, err := s.Acquire(t.Context(), []driver.AcquireRequest{permit("k")}); err == nil || !strings.Contains(err.Error(), "stubborn") {
		t.Error(res, err)
	}
	if got := tables(t, db); got != "0 0" {
		t.Errorf("claims and their count: %s", got)
	}
}

// room is who has a name, as those who have it say. They are noted after they were granted it, and
// no longer when they give it back.
type room struct {
	mu       sync.Mutex
	alone    int
	readers  int
	slots    map[int]bool
	last     map[int]int64 // the highest token of each slot
	wrong    []string
	together int // the most permits that were held at the same time
}

func (m *room) change(r driver.AcquireRequest, res driver.AcquireResult, by int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	switch {
	case r.Shared:
		m.readers += by
	case r.Permits == 0:
		m.alone += by
	case by < 0:
		delete(m.slots, res.Slot)
	case m.slots[res.Slot] || m.last[res.Slot] >= res.Version:
		m.wrong = append(m.wrong, fmt.Sprintf("slot %d is taken, or had token %d: %+v", res.Slot, m.last[res.Slot], res))
	default:
		m.slots[res.Slot], m.last[res.Slot] = true, res.Version
		m.together = max(m.together, len(m.slots))
	}
	if m.alone > 1 || len(m.slots) > 3 || m.alone > 0 && m.readers+len(m.slots) > 0 || m.readers > 0 && len(m.slots) > 0 {
		m.wrong = append(m.wrong, fmt.Sprintf("%d alone, %d readers, %d permits", m.alone, m.readers, len(m.slots)))
	}
}

func TestPermitsExcludeWhatTheyShouldBesideLocksReadersAndResizes(t *testing.T) {
	t.Parallel()
	path := migrated(t)
	m := &room{slots: make(map[int]bool), last: make(map[int]int64)}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var wg sync.WaitGroup
	for worker := range 4 {
		s := openStore(t, open(t, path, "_pragma=busy_timeout(100)"))
		wg.Go(func() {
			for i := range 24 {
				r := ask("k")[0]
				switch {
				case worker == 0 && i%2 == 0:
					retry(ctx, t, func() error { return s.(driver.PermitStore).Resize(ctx, "k", 1+i%4/2*2) }) // 1 or 3
				case worker == 1 && i%3 == 0:
				case worker == 1:
					r.Shared = true
				default:
					r.Permits = 1
				}
				m.visit(ctx, t, s, r)
			}
		})
	}
	wg.Wait()
	if len(m.wrong) > 0 {
		t.Error(m.wrong)
	}
	t.Logf("at most %d permits were held together", m.together)
}

// visit takes the name and gives it back.
func (m *room) visit(ctx context.Context, t *testing.T, s driver.Store, r driver.AcquireRequest) {
	var res []driver.AcquireResult
	for ctx.Err() == nil {
		retry(ctx, t, func() (err error) {
			res, err = s.Acquire(ctx, []driver.AcquireRequest{r})
			return err
		})
		if len(res) == 0 || res[0].Granted {
			break
		}
		if r.Permits != 0 && res[0].Permits != 0 {
			r.Permits = res[0].Permits
		}
		time.Sleep(time.Millisecond)
	}
	if len(res) == 0 || !res[0].Granted {
		t.Error("not granted")
		return
	}
	m.change(r, res[0], 1)
	time.Sleep(3 * time.Millisecond)
	m.change(r, res[0], -1)
	release := driver.ReleaseRequest{Name: r.Name, Acq: r.Acq, Version: res[0].Version, Shared: r.Together(), Permit: r.Permits != 0}
	retry(ctx, t, func() error {
		freed, err := s.Release(ctx, []driver.ReleaseRequest{release})
		if err == nil && !freed[0].Freed {
			t.Errorf("%+v was not held any more", release)
		}
		return err
	})
}

// retry does something until the database is not busy.
func retry(ctx context.Context, t *testing.T, do func() error) {
	for ctx.Err() == nil {
		err := do()
		if err == nil {
			return
		}
		if classify(err) != driver.Again {
			t.Error(err)
			return
		}
		time.Sleep(time.Millisecond)
	}
	t.Error(ctx.Err())
}
