package lockpg_test

import (
	"slices"
	"testing"
	"time"

	"github.com/sqllock/sqllock/driver"
)

func TestAForcedReleaseHandsOver(t *testing.T) {
	t.Parallel()
	db := migrated(t)
	store := open(t, db)
	v := grant(t, store, request("a", 1, time.Minute), request("b", 2, time.Minute))
	line(t, store, waiter("a", 3))
	revoked, err := store.Revoke(t.Context(), []driver.RevokeRequest{{Name: "a"}, {Name: "b"}})
	if err != nil || !revoked[0].Revoked || !revoked[1].Revoked || revoked[0].Row.Holder.Acq != acq(1) {
		t.Fatalf("Revoke = %+v, %v", revoked, err)
	}
	r := line(t, store, waiter("a", 3))[0]
	if !r.Found || r.Version <= v[0].Version+1 {
		t.Errorf("%+v after %d", r, v[0].Version)
	}
	if a, b := look(t, store, "a"), look(t, store, "b"); a.Revoked != v[0].Version || b.Ended != driver.EndedRevoked || a.Holder.Acq != acq(3) || b.Held() {
		t.Errorf("%+v and %+v", a, b)
	}
}

func TestASweepDeletesTheClaimsOfTheForgottenAndKeepsTheRowsOfThoseThatAreLeft(t *testing.T) {
	t.Parallel()
	db := migrated(t)
	store := open(t, db)
	mustExec(t, db, `INSERT INTO sqllock_lock (name, version, waiting, seq) VALUES ('a', 1, 2, 9), ('b', 1, 2, 9), ('c', 1, 1, 9), ('d', 1, 0, 9)`)
	mustExec(t, db, `INSERT INTO sqllock_claim SELECT n, 0, s, md5(n || s)::uuid, 0, 0, 0, 0, 1, 1, 0, 1, 0, 0, 0, md5(age::text)::uuid, '', ''
		FROM (VALUES ('a', 1, 70), ('a', 2, 50), ('b', 3, 70), ('b', 4, 80), ('c', 5, 70)) v(n, s, age)`)
	mustExec(t, db, `INSERT INTO sqllock_waiter SELECT md5(age::text)::uuid, `+pgNow+` - age * 1000000 FROM (VALUES (50), (70), (90)) v(age)`)
	defer lockRow(t, db, `SELECT FROM sqllock_lock WHERE name = 'c' FOR UPDATE`)()
	for range 2 {
		sweep(t, store, time.Hour)
	}
	if left := get[string](t, db, `SELECT string_agg(name || seq, ' ' ORDER BY seq) FROM sqllock_claim`); left != "a2 c5" {
		t.Errorf("claims: %s", left)
	}
	if left := get[string](t, db, `SELECT string_agg(name, ' ' ORDER BY name) FROM sqllock_lock`); left != "a c" {
		t.Errorf("rows: %s", left)
	}
	if left := get[int](t, db, `SELECT count(*) FROM sqllock_waiter WHERE locker <> md5('90')::uuid`); left != 2 {
		t.Errorf("%d Lockers are left of two that have claims", left)
	}
	if get[int](t, db, `SELECT count(*) FROM sqllock_waiter`) != 2 {
		t.Error("a Locker is left that has no claims")
	}
}

// The row of a name may have gone by hand, and not its claims.
func TestARowThatIsMissingIsMadeBehindWhatIsLeftOfTheQueue(t *testing.T) {
	t.Parallel()
	db := migrated(t)
	store := open(t, db)
	grant(t, store, request("a", 1, time.Minute))
	line(t, store, waiter("a", 2))
	mustExec(t, db, `DELETE FROM sqllock_lock`)
	if r := line(t, store, waiter("a", 3))[0]; r.Granted || r.Holder.Acq != acq(2) {
		t.Errorf("behind another: %+v", r)
	}
	if r := line(t, store, waiter("a", 2))[0]; !r.Granted {
		t.Errorf("the first: %+v", r)
	}
	if r := line(t, store, waiter("b", 4))[0]; !r.Granted || r.Version < r.Now-int64(time.Minute/time.Microsecond) {
		t.Errorf("a name without a row: %+v", r)
	}
}

func TestThoseWhoWaitWithSomethingInHandAreTold(t *testing.T) {
	t.Parallel()
	db := migrated(t)
	store := open(t, db)
	grant(t, store, request("a", 1, time.Minute))
	grant(t, store, reader("b", 2))
	grant(t, store, reader("b", 3))
	grant(t, store, request("c", 4, time.Minute))
	a, b, c, none := waiter("a", 5), waitingReader("b", 6), waiter("c", 7), waiter("a", 8)
	writer := waiter("b", 9)
	a.Carries, b.Carries, c.Carries = []driver.ID{acq(2), acq(4)}, []driver.ID{acq(1)}, []driver.ID{acq(3)}
	line(t, store, a, none, writer, b, c)
	expire(t, db, "c")
	read, err := store.Read(t.Context(), driver.ReadRequest{Waiters: true})
	waits := read.Waiters
	if err != nil || len(waits) != 3 {
		t.Fatalf("Waits = %+v, %v", waits, err)
	}
	slices.SortFunc(waits, func(a, b driver.Waiter) int { return int(a.Name[0]) - int(b.Name[0]) })
	for i, want := range []struct {
		req     driver.AcquireRequest
		holders []driver.ID
	}{{a, []driver.ID{acq(1)}}, {b, []driver.ID{acq(2), acq(3)}}, {c, nil}} {
		w := waits[i]
		slices.SortFunc(w.Holders, func(a, b driver.ID) int { return slices.Compare(a[:], b[:]) })
		if w.Name != want.req.Name || w.Acq != want.req.Acq || w.Label != "test" || (w.Kind == driver.KindShared) != want.req.Shared || w.Seq < w.Since ||
			w.Since <= 0 || !slices.Equal(w.Carries, want.req.Carries) || !slices.Equal(w.Holders, want.holders) {
			t.Errorf("%+v, want %+v", w, want)
		}
	}
}
