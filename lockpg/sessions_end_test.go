package lockpg_test

import (
	"database/sql"
	"fmt"
	"testing"
	"time"

	"github.com/sqllock/sqllock/driver"
	"github.com/sqllock/sqllock/internal/testdb"
)

func TestTheDelayOfATermThatCrashedIsWaitedOutOnce(t *testing.T) {
	t.Parallel()
	eachMode(t, func(t *testing.T, d *testdb.Database, m sessionMode) {
		const delay = 1500 * time.Millisecond
		a, b := m.client(t, d), m.client(t, d)
		r := ask("k")
		r.Delay = delay
		s, res := a.take(t, r)
		letGo(t, s, r, res)
		s, res = a.take(t, r) // after a clean end nobody waits
		mustExec(t, d.Open(t), `SELECT pg_terminate_backend($1)`, backendOf(t, a.db, "k"))
		ended := time.Now()
		<-s.Gone()
		var told int
		var got driver.AcquireResult
		next := ask("k")
		eventually(t, "the delay is over", 20*time.Second, func() bool {
			s, r := b.try(t, next)
			defer func() {
				if !r.Granted {
					giveBack(t, s)
				}
			}()
			if r.Crashed.Acq == res.Holder.Acq && r.Crashed.Acq != (driver.ID{}) || r.Crashed.Owner != "" {
				told++
			}
			if !r.Granted && r.Holder.Acq == (driver.ID{}) && r.Holder.Until != 0 {
				if left := time.Duration(r.Holder.Until-r.Now) * time.Microsecond; left <= 0 || left > delay {
					t.Errorf("the gate is open in %v", left)
				}
			}
			got = r
			return r.Granted
		})
		if took := time.Since(ended); took < delay-50*time.Millisecond {
			t.Errorf("the next one had the name after %v, with a delay of %v", took, delay)
		}
		if told != 1 || got.Version <= res.Version {
			t.Errorf("the crash was told %d times; %+v after %+v", told, got, res)
		}
	})
}

func TestAHoldForAMinimumKeepsTheNameAfterAReleaseAndAfterACrash(t *testing.T) {
	t.Parallel()
	eachMode(t, func(t *testing.T, d *testdb.Database, m sessionMode) {
		const least = time.Second
		a, b := m.client(t, d), m.client(t, d)
		for _, crash := range []bool{false, true} {
			name := fmt.Sprint("crash ", crash)
			r := ask(name)
			r.MinHold = least
			granted := time.Now()
			s, res := a.take(t, r)
			if crash {
				mustExec(t, a.db, `SELECT pg_terminate_backend($1)`, backendOf(t, a.db, name))
				<-s.Gone()
			} else {
				letGo(t, s, r, res)
			}
			b.gets(t, ask(name), 20*time.Second)
			if took := time.Since(granted); took < least {
				t.Errorf("%s: kept for %v", name, took)
			}
		}
	})
}

func TestWhatWasLostIsLetGoAsInACrash(t *testing.T) {
	t.Parallel()
	eachMode(t, func(t *testing.T, d *testdb.Database, m sessionMode) {
		a, b := m.client(t, d), m.client(t, d)
		r, beside := noted("k"), noted("beside")
		s, res := a.take(t, r)
		if m.name == advisory.name {
			if all, err := s.Grant(t.Context(), []driver.AcquireRequest{beside}); err != nil || !all[0].Granted {
				t.Fatal(all, err)
			}
		}
		req := releaseOf(r, res)
		req.Lost = true
		if freed, err := s.Release(t.Context(), []driver.ReleaseRequest{req}); err != nil || !freed[0] {
			t.Errorf("Release: %v, %v", freed, err)
		}
		if m.name == advisory.name {
			b.denied(t, ask("beside"))
		}
		eventually(t, "the holder is not shown as one who lives", 20*time.Second, func() bool { row := b.look(t, "k"); return !row.Session })
		if row := b.look(t, "k"); row.Holder.Acq != r.Acq {
			t.Errorf("the row: %+v", row)
		}
		if _, res := b.take(t, ask("k")); res.Crashed.Acq != r.Acq {
			t.Errorf("the next: %+v", res)
		}
	})
}

// A session whose request was denied for another reason than a holder had the lock, for
// a moment.
func TestARequestThatIsDeniedHoldsNothing(t *testing.T) {
	eachMode(t, func(t *testing.T, d *testdb.Database, m sessionMode) {
		a, b, c := m.client(t, d), m.client(t, d), m.client(t, d)
		kept := ask("kept")
		kept.MinHold = time.Hour
		s, res := a.take(t, kept)
		letGo(t, s, kept, res)
		guarded := noted("guarded")
		s, res = a.take(t, guarded)
		tx := begin(t, a.db, sql.LevelDefault)
		a.guard(t, tx, guardOf(s, guarded, res))
		kill(t, a, s, "guarded")
		for _, name := range []string{"kept", "guarded"} {
			for _, r := range []driver.AcquireRequest{ask(name), noted(name), askShared(name)} {
				if _, res := b.try(t, r); res.Granted { // the session stays open
					t.Fatalf("%q is granted: %+v", name, res)
				}
			}
		}
		_ = tx.Rollback()
		mustExec(t, a.db, `UPDATE sqllock_term SET not_before = 0 WHERE name = 'kept'`)
		for _, name := range []string{"kept", "guarded"} {
			c.gets(t, ask(name), 20*time.Second)
		}
	})
}
