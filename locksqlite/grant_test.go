package locksqlite_test

import (
	"bytes"
	"database/sql"
	"slices"
	"testing"
	"time"

	"github.com/sqllock/sqllock/driver"
)

const soon = "(unixepoch() + 60) * 1000000"

func look(tb testing.TB, s driver.Store, names ...string) []driver.Row {
	tb.Helper()
	read, err := s.Read(tb.Context(), driver.ReadRequest{Names: names})
	rows := read.Rows
	if err != nil {
		tb.Fatal(err)
	}
	if len(rows) != len(names) {
		tb.Fatalf("%d rows for %d names", len(rows), len(names))
	}
	return rows
}

// expire lets the terms of names be over for a second, of all names if none are given.
func expire(tb testing.TB, db *sql.DB, names ...string) {
	tb.Helper()
	const past = `UPDATE sqllock_lock SET expires_at = (unixepoch() - 1) * 1000000 WHERE acq IS NOT NULL`
	if len(names) == 0 {
		exec(tb, db, past)
	}
	for _, name := range names {
		exec(tb, db, past+" AND name = ?", name)
	}
}

func release(tb testing.TB, s driver.Store, req driver.AcquireRequest, minHold time.Duration) {
	tb.Helper()
	version := look(tb, s, req.Name)[0].Holder.Version
	freed, err := s.Release(tb.Context(), []driver.ReleaseRequest{{Name: req.Name, Acq: req.Acq, Version: version, MinHold: minHold}})
	if err != nil || !freed[0].Freed {
		tb.Fatal(freed, err)
	}
}

// sweep cleans up with a retention of an hour.
func sweep(tb testing.TB, s driver.Store, after string, limit int) driver.SweepResult {
	tb.Helper()
	res, err := s.Sweep(tb.Context(), driver.SweepRequest{After: after, Limit: limit, Retention: time.Hour})
	if err != nil {
		tb.Fatal(err)
	}
	return res
}

func TestAGateKeepsTheNameFromNewcomersAndTellsUntilWhen(t *testing.T) {
	db := open(t, migrated(t))
	s := openStore(t, db)
	reqs := ask("k")
	grant(t, s, reqs)
	release(t, s, reqs[0], 0)
	for _, gate := range []string{
		"not_before = " + soon,
		"not_before = " + soon + ", waiting = 3, holding = 2", // which nobody has recounted
		"not_before = " + soon + ", acq = randomblob(16), owner = 'crashed', expires_at = 7",
	} {
		exec(t, db, "UPDATE sqllock_lock SET acq = NULL, owner = NULL, not_before = 0, waiting = 0, holding = 0")
		exec(t, db, "UPDATE sqllock_lock SET "+gate)
		r := grant(t, s, ask("k"))[0]
		if left := time.Duration(r.Holder.Until-r.Now) * time.Microsecond; r.Granted || left < 50*time.Second || left > time.Minute {
			t.Errorf("%s: %v left, %+v", gate, left, r)
		}
		r.Holder.Until = 0
		if r.Holder != (driver.Holder{}) {
			t.Errorf("%s: more is told than until when: %+v", gate, r)
		}
	}
	exec(t, db, "UPDATE sqllock_lock SET not_before = 1")
	if r := grant(t, s, ask("k"))[0]; !r.Granted {
		t.Error("a gate that is over still keeps the name")
	}
}

func TestAGrantTellsWhoseExpiredTermItEnded(t *testing.T) {
	db := open(t, migrated(t))
	s := openStore(t, db)
	first := ask("expired", "expired too", "held", "its own", "released")
	grant(t, s, first)
	release(t, s, first[4], 0)
	expire(t, db, "expired", "expired too", "its own")

	second := ask("expired", "expired too", "held", "its own", "never seen", "released")
	second[3].Acq = first[3].Acq
	names := make([]string, len(second))
	for i := range second {
		names[i] = second[i].Name
	}
	before := look(t, s, names...)
	for i, r := range grant(t, s, second) {
		var want driver.Holder
		if i < 2 {
			want = before[i].Holder
			if want.Acq != first[i].Acq || want.Label != "test" || want.Since == 0 {
				t.Fatalf("%+v", before[i])
			}
		}
		if r.Granted != (i != 2) || r.Crashed != want {
			t.Errorf("%s: %+v, want %+v to have crashed", names[i], r, want)
		}
		if r.Granted && r.Version <= before[i].Holder.Version {
			t.Errorf("%s: token %d after %d", names[i], r.Version, before[i].Holder.Version)
		}
	}
	for i, r := range grant(t, s, second) {
		if r.Granted != (i != 2) || r.Crashed != (driver.Holder{}) {
			t.Errorf("%s, asked again: %+v", names[i], r)
		}
	}
}

func TestAGrantTellsOfTheTermThatItEndedNotOfTheOneThatItSaw(t *testing.T) {
	path := migrated(t)
	db := open(t, path)
	other := openStore(t, db)
	const expired, released, unknown = "expired", "released", "unknown"
	const swept, taken, takenAndExpired = "swept", "taken", "taken, and expired"
	for _, c := range []struct {
		saw, then string // what the grant sees, and what happens before it writes
		granted   bool
		crashed   int // the first or the second holder
	}{
		{expired, "", true, 1},
		{expired, swept, true, 0},
		{expired, taken, false, 0},
		{expired, takenAndExpired, true, 2},
		{released, taken, false, 0},
		{released, takenAndExpired, true, 2},
		{unknown, taken, false, 0},
		{unknown, takenAndExpired, true, 2},
	} {
		t.Run(c.saw+" "+c.then, func(t *testing.T) {
			exec(t, db, "DELETE FROM sqllock_lock")
			var holders [3]driver.Holder
			hook := once{verb: "INSERT"}
			first := ask("k")
			switch c.saw {
			case expired:
				hook.verb = "BEGIN"
				grant(t, other, first)
				expire(t, db)
				holders[1] = look(t, other, "k")[0].Holder
			case released:
				grant(t, other, first)
				release(t, other, first[0], 0)
			}
			hook.do = func() {
				switch c.then {
				case swept:
					if res := sweep(t, other, "", 9); len(res.Crashed) != 1 {
						t.Error(res)
					}
				case taken, takenAndExpired:
					grant(t, other, ask("k"))
				}
				if c.then == takenAndExpired {
					expire(t, db)
				}
				holders[2] = look(t, other, "k")[0].Holder
			}
			r := grant(t, openStore(t, spied(t, path, hook.before)), ask("k"))[0]
			if hook.do != nil {
				t.Fatal("nothing happened in between")
			}
			if r.Granted != c.granted || r.Crashed != holders[c.crashed] {
				t.Errorf("%+v after %+v", r, holders)
			}
			if c.then == taken && r.Holder != holders[2] {
				t.Errorf("%+v has the name, not %+v", holders[2], r.Holder)
			}
		})
	}
}

func TestAGrantLooksFirstUnlessTheLockerHasJustFreedTheName(t *testing.T) {
	path := migrated(t)
	var texts []string
	s := openStore(t, spied(t, path, func(text string) error {
		texts = append(texts, verb(text))
		return nil
	}))
	want := func(what string, req driver.AcquireRequest, granted bool, statements ...string) driver.AcquireResult {
		t.Helper()
		texts = nil
		r := grant(t, s, []driver.AcquireRequest{req})[0]
		if r.Granted != granted || !slices.Equal(texts, statements) {
			t.Errorf("%s: %+v by %v", what, r, texts)
		}
		return r
	}
	req, rival := ask("new")[0], ask("new")[0]
	want("new", req, true, "SELECT", "INSERT")
	release(t, s, req, 0)
	want("freed", req, true, "INSERT")
	want("held", rival, false, "SELECT")
	release(t, s, req, 0)
	theirs := ask("new")
	grant(t, openStore(t, open(t, path)), theirs)
	for _, statements := range [][]string{{"INSERT", "SELECT"}, {"SELECT"}} {
		if r := want("taken by somebody else", rival, false, statements...); r.Holder.Acq != theirs[0].Acq {
			t.Errorf("%+v has the name", r.Holder)
		}
	}
}

func TestAValueIsKeptWhileTheNameIsHeld(t *testing.T) {
	db := open(t, migrated(t))
	s := openStore(t, db)
	every := make([]byte, 64<<10)
	for i := range every {
		every[i] = byte(i)
	}
	values := map[string][]byte{"a": []byte("first"), "b": nil, "c": every, "d": {}, "e": {0}, "f": []byte(`"x'`), "g": every[1:]}
	reqs := ask("a", "b", "c", "d", "e", "f", "g")
	for i := range reqs {
		reqs[i].Value = values[reqs[i].Name]
	}
	grant(t, s, reqs)
	for _, r := range look(t, s, "g", "f", "e", "d", "c", "b", "a") {
		if !bytes.Equal(r.Value, values[r.Name]) {
			t.Errorf("%s has %d bytes, not %d", r.Name, len(r.Value), len(values[r.Name]))
		}
	}
	if n := withValue(t, db); n != "a,c,e,f,g" {
		t.Errorf("%s have a value: an empty one is none", n)
	}
	release(t, s, reqs[0], 0)
	if _, err := s.Release(t.Context(), []driver.ReleaseRequest{{Name: "c", Acq: reqs[2].Acq}}); err != nil {
		t.Error(err)
	}
	expire(t, db, "e")
	if !grant(t, s, ask("e"))[0].Granted {
		t.Error("not granted")
	}
	if n := withValue(t, db); n != "f,g" {
		t.Errorf("%s have a value", n)
	}
}

func withValue(tb testing.TB, db *sql.DB) (names string) {
	tb.Helper()
	const which = `SELECT group_concat(name) FROM (SELECT name FROM sqllock_lock WHERE value IS NOT NULL ORDER BY name)`
	if err := db.QueryRowContext(tb.Context(), which).Scan(&names); err != nil {
		tb.Fatal(err)
	}
	return names
}
