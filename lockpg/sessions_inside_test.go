package lockpg_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/sqllock/sqllock/driver"
	"github.com/sqllock/sqllock/internal/testdb"
)

func (c *client) revoke(t *testing.T, name string) driver.RevokeResult {
	t.Helper()
	all, err := c.Revoke(t.Context(), []driver.RevokeRequest{{Name: name}})
	if err != nil || len(all) != 1 {
		t.Fatalf("Revoke: %v, %v", all, err)
	}
	return all[0]
}

func TestAHolderIsAskedToGiveUpAndNobodyElse(t *testing.T) {
	t.Parallel()
	eachMode(t, func(t *testing.T, d *testdb.Database, m sessionMode) {
		a, b := m.client(t, d), m.client(t, d)
		if got := a.revoke(t, "unknown"); got.Revoked || got.Row.Name != "unknown" {
			t.Errorf("of an unknown name: %+v", got)
		}
		r, beside := noted("k"), noted("beside")
		s, res := a.take(t, r)
		s2, res2 := a.take(t, beside)
		got := b.revoke(t, "k")
		if !got.Revoked || !got.Row.Session || got.Row.Holder.Acq != r.Acq {
			t.Errorf("of a name that is held: %+v", got)
		}
		b.denied(t, ask("k"))
		for range 2 {
			if status := ping(t, s, r, res); status != driver.Revoked {
				t.Errorf("the holder is told %v", status)
			}
		}
		if status := ping(t, s2, beside, res2); status != driver.Renewed {
			t.Errorf("another is told %v", status)
		}
		letGo(t, s, r, res)
		if row := b.look(t, "k"); row.Held() || row.Ended != driver.EndedRevoked || row.Revoked != res.Version {
			t.Errorf("the row: %+v", row)
		}
		if got := b.revoke(t, "k"); got.Revoked {
			t.Errorf("of a free name: %+v", got)
		}
		next := noted("k")
		s3, res3 := b.take(t, next)
		if status := ping(t, s3, next, res3); status != driver.Renewed {
			t.Errorf("the next holder is told %v", status)
		}
		letGo(t, s3, next, res3)
	})
}

func TestWhatKeepsANameWithoutAHolderIsEndedAtOnce(t *testing.T) {
	t.Parallel()
	eachMode(t, func(t *testing.T, d *testdb.Database, m sessionMode) {
		a, b := m.client(t, d), m.client(t, d)
		r := ask("crashed")
		r.Delay = time.Hour
		s, res := a.take(t, r)
		kill(t, a, s, "crashed")
		if got := b.revoke(t, "crashed"); !got.Revoked || got.Row.Session || got.Row.Holder.Acq != r.Acq {
			t.Errorf("of a holder whose session is gone: %+v", got)
		}
		if _, got := b.take(t, ask("crashed")); got.Version <= res.Version {
			t.Errorf("the next: %+v", got)
		}
		r = ask("kept")
		r.MinHold = time.Hour
		s, res = a.take(t, r)
		letGo(t, s, r, res)
		b.denied(t, ask("kept"))
		if row := b.look(t, "kept"); row.Gate <= row.Now {
			t.Errorf("the gate: %+v", row)
		}
		if got := b.revoke(t, "kept"); !got.Revoked {
			t.Errorf("of a gate: %+v", got)
		}
		b.take(t, ask("kept"))
	})
}

// In the mode advisory a lock may be held of which nothing was written yet, or by some
// who share it.
func TestWhoHasNotWrittenThatItHoldsIsAskedTooInTheModeAdvisory(t *testing.T) {
	t.Parallel()
	d := withTables(t)
	a, b := advisory.client(t, d), advisory.client(t, d)
	for _, shared := range []bool{false, true} {
		name := fmt.Sprint("shared ", shared)
		r := ask(name)
		r.Shared = shared
		s, res := a.take(t, r)
		row := b.look(t, name)
		if !row.Session || shared != (row.Readers == 1) {
			t.Errorf("a look: %+v", row)
		}
		if got := b.revoke(t, name); !got.Revoked || !got.Row.Session {
			t.Errorf("%+v", got)
		}
		if status := ping(t, s, r, res); status != driver.Revoked {
			t.Errorf("the holder is told %v", status)
		}
		letGo(t, s, r, res)
		next := ask(name)
		next.Shared = shared
		s, res = b.take(t, next)
		if status := ping(t, s, next, res); status != driver.Renewed {
			t.Errorf("the next is told %v", status)
		}
		letGo(t, s, next, res)
	}
}

func TestAListNamesWhatIsHeldForLongerThanARenewalAndWhatIsKept(t *testing.T) {
	t.Parallel()
	eachMode(t, func(t *testing.T, d *testdb.Database, m sessionMode) {
		a, b := m.client(t, d), m.client(t, d)
		var want []string
		for i := range 7 {
			r := ask(fmt.Sprint("k", i))
			s, res := a.take(t, r)
			ping(t, s, r, res)
			if i%2 == 1 {
				letGo(t, s, r, res)
				continue
			}
			want = append(want, r.Name)
		}
		r := askShared("shared")
		s, res := a.take(t, r)
		ping(t, s, r, res)
		if m.name == advisory.name { // the mode for update does not know of those who share
			want = append(want, "shared")
		}
		if mine, err := b.SweepDue(t.Context(), time.Hour); err != nil || !mine {
			t.Errorf("SweepDue: %v, %v", mine, err)
		}
		for _, free := range []bool{false, true} {
			var got []string
			req := driver.ListRequest{Limit: 3, Free: free}
			for more := true; more; {
				page, err := b.List(t.Context(), req)
				if err != nil {
					t.Fatal(err)
				}
				for _, row := range page.Rows {
					if free {
						continue
					}
					if got = append(got, row.Name); !row.Session || !row.Held() {
						t.Errorf("%+v", row)
					}
				}
				req.After, more = page.Last, page.More
				if free {
					for _, row := range page.Rows {
						got = append(got, row.Name)
					}
				}
			}
			if !free && fmt.Sprint(got) != fmt.Sprint(want) {
				t.Errorf("%q, want %q", got, want)
			}
			if n := len(got); free && (n < len(want) || got[0] == "") {
				t.Errorf("with those that are free: %q", got)
			}
		}
	})
}

func TestASweepEndsTermsWhoseSessionIsGoneAndDeletesWhatIsIdle(t *testing.T) {
	t.Parallel()
	eachMode(t, func(t *testing.T, d *testdb.Database, m sessionMode) {
		a, b := m.client(t, d), m.client(t, d)
		sweep := func(retention time.Duration) driver.SweepResult {
			t.Helper()
			res, err := b.Sweep(t.Context(), driver.SweepRequest{Limit: 100, Retention: retention})
			if err != nil {
				t.Fatal(err)
			}
			return res
		}
		live, dead, delayed, free := noted("live"), noted("dead"), noted("delayed"), noted("free")
		delayed.Delay = time.Hour
		s, res := a.take(t, live)
		s1, res1 := a.take(t, dead)
		s2, _ := a.take(t, delayed)
		s3, res3 := a.take(t, free)
		letGo(t, s3, free, res3)
		if got := sweep(time.Hour); len(got.Crashed) != 0 || got.Purged != 0 || got.Seen != 4 || got.Last != "live" {
			t.Errorf("of holders who live: %+v", got)
		}
		kill(t, a, s1, "dead")
		kill(t, a, s2, "delayed")
		got := sweep(time.Hour)
		if len(got.Crashed) != 2 || got.Crashed[0].Name != "dead" || got.Crashed[0].Holder.Acq != dead.Acq || got.Crashed[0].Holder.Version != res1.Version {
			t.Errorf("of holders whose sessions are gone: %+v", got)
		}
		if got := sweep(time.Hour); len(got.Crashed) != 0 {
			t.Errorf("once more: %+v", got)
		}
		if row := b.look(t, "dead"); row.Held() || row.Ended != driver.EndedExpired {
			t.Errorf("%+v", row)
		}
		b.denied(t, ask("delayed"))        // a sweep keeps the delay
		time.Sleep(500 * time.Millisecond) // each session has lifted the tokens, perhaps above the clock
		if got := sweep(0); got.Purged != 2 {
			t.Errorf("of what is idle: %+v", got)
		}
		if status := ping(t, s, live, res); status != driver.Renewed {
			t.Errorf("who lives: %v", status)
		}
		for name, had := range map[string]driver.AcquireResult{"dead": res1, "free": res3} {
			if row := b.look(t, name); row.Holder.Version != 0 {
				t.Errorf("%q is still there: %+v", name, row)
			}
			if _, res := b.take(t, ask(name)); res.Version <= had.Version {
				t.Errorf("token %d follows %d", res.Version, had.Version)
			}
		}
	})
}

func TestAPinThatSomebodyHasLockedIsNotDeleted(t *testing.T) {
	t.Parallel()
	d := withTables(t)
	c := forUpdate.client(t, d)
	r := askShared("k") // of whom the row of the name does not tell
	s, res := c.take(t, r)
	if got, err := c.Sweep(t.Context(), driver.SweepRequest{Limit: 10}); err != nil || got.Purged != 0 {
		t.Errorf("%+v, %v", got, err)
	}
	c.denied(t, ask("k"))
	letGo(t, s, r, res)
	if got, err := c.Sweep(t.Context(), driver.SweepRequest{Limit: 10}); err != nil || got.Purged != 1 {
		t.Errorf("%+v, %v", got, err)
	}
	if n := get[int](t, c.db, `SELECT count(*) FROM sqllock_pin`); n != 0 {
		t.Errorf("%d pins are left", n)
	}
}

func TestOfManyOneTakesTheTurnToCleanUp(t *testing.T) {
	t.Parallel()
	eachMode(t, func(t *testing.T, d *testdb.Database, m sessionMode) {
		a, b := m.client(t, d), m.client(t, d)
		for i, want := range []bool{true, false, false} {
			mine, err := []*client{a, b, a}[i].SweepDue(t.Context(), time.Hour)
			if err != nil || mine != want {
				t.Errorf("%d: %v, %v", i, mine, err)
			}
		}
		if mine, err := b.SweepDue(t.Context(), 0); err != nil || !mine {
			t.Errorf("%v, %v", mine, err)
		}
	})
}
