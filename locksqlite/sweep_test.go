package locksqlite_test

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sqllock/sqllock/driver"
)

func TestASweepEndsTheTermsOfThoseWhoHaveExpired(t *testing.T) {
	db := open(t, migrated(t))
	s := openStore(t, db)
	names := []string{"<é\"\\\x01>", "crashed", "held", "released"}
	reqs := ask(names...)
	for i := range reqs {
		reqs[i].Value = []byte("v")
	}
	grant(t, s, reqs)
	release(t, s, reqs[3], 0)
	expire(t, db, names[0], names[1])
	before := look(t, s, names...)

	res := sweep(t, s, "", 9)
	want := []driver.Crash{{Name: names[0], Holder: before[0].Holder}, {Name: names[1], Holder: before[1].Holder}}
	if !slices.Equal(res.Crashed, want) || res.Seen != 4 || res.Purged != 0 || res.Last != "released" || res.More {
		t.Errorf("%+v, want %+v to have crashed", res, want)
	}
	for i, r := range look(t, s, names...) {
		was := before[i]
		was.Now = r.Now
		if i < 2 {
			was.Holder.Acq, was.Holder.Owner, was.Holder.Label, was.Holds = driver.ID{}, "", "", 0
			was.Ended, was.Value = driver.EndedExpired, nil
		}
		if fmt.Sprint(r) != fmt.Sprint(was) {
			t.Errorf("%s is %+v, want %+v", names[i], r, was)
		}
	}
	if res := sweep(t, s, "", 9); len(res.Crashed) != 0 || res.Seen != 4 {
		t.Errorf("once more: %+v", res)
	}
	if r := grant(t, s, ask(names...)); r[0].Crashed != (driver.Holder{}) || !r[0].Granted || !r[1].Granted || r[2].Granted {
		t.Errorf("%+v", r)
	}
}

func TestASweepDeletesOnlyWhatHasBeenIdleForTheRetention(t *testing.T) {
	db := open(t, migrated(t))
	s := openStore(t, db)
	const hour, old = "(unixepoch() - 3600) * 1000000", "(unixepoch() - 7200) * 1000000"
	changes := map[string]string{ // of a row that is idle otherwise
		"idle":              "ended = 1",
		"held":              "acq = randomblob(16), expires_at = " + soon,
		"held, and expired": "acq = randomblob(16)",
		"young":             "expires_at = " + hour + " + 30000000",
		"young version":     "version = " + hour + " + 30000000",
		"future version":    "version = 1 << 52",
		"not before":        "not_before = " + soon,
		"waiting":           "waiting = 1",
		"holding":           "holding = 1",
	}
	var names []string
	for name := range changes {
		names = append(names, name)
	}
	grant(t, s, ask(names...))
	exec(t, db, "UPDATE sqllock_lock SET acq = NULL, version = "+old+", expires_at = "+old)
	for name, change := range changes {
		exec(t, db, "UPDATE sqllock_lock SET "+change+" WHERE name = ?", name)
	}
	res := sweep(t, s, "", 99)
	if res.Purged != 1 || len(res.Crashed) != 1 || res.Seen != len(names) {
		t.Errorf("%+v", res)
	}
	for _, r := range look(t, s, names...) {
		gone := r.Holder.Version == 0
		if want := r.Name == "idle"; gone != want {
			t.Errorf("%s: deleted %v", r.Name, gone)
		}
	}
}

func TestASweepLeavesWhatHasChangedSinceItLooked(t *testing.T) {
	path := migrated(t)
	db := open(t, path)
	other := openStore(t, db)
	reqs := ask("a crashed", "b idle", "c released", "d taken over", "e renewed", "f granted")
	granted := grant(t, other, reqs)
	for _, i := range []int{1, 5} {
		release(t, other, reqs[i], 0)
		exec(t, db, "UPDATE sqllock_lock SET version = 1, expires_at = 1 WHERE name = ?", reqs[i].Name)
	}
	expire(t, db)
	crashed := look(t, other, "a crashed")[0].Holder
	hook := once{verb: "BEGIN", do: func() {
		release(t, other, reqs[2], 0)
		grant(t, other, ask("d taken over"))
		exec(t, db, "UPDATE sqllock_lock SET expires_at = "+soon+" WHERE name = 'e renewed'")
		grant(t, other, ask("f granted"))
	}}
	res := sweep(t, openStore(t, spied(t, path, hook.before)), "", 9)
	if hook.do != nil {
		t.Fatal("nothing happened in between")
	}
	if want := []driver.Crash{{Name: "a crashed", Holder: crashed}}; !slices.Equal(res.Crashed, want) || res.Purged != 1 {
		t.Errorf("%+v", res)
	}
	rows := look(t, other, "b idle", "c released", "d taken over", "e renewed", "f granted")
	if rows[0].Holder.Version != 0 {
		t.Errorf("not deleted: %+v", rows[0])
	}
	for _, r := range rows[2:] {
		if !r.Held() {
			t.Errorf("%+v", r)
		}
	}
	if rows[1].Ended != driver.EndedReleased || rows[3].Holder.Version != granted[4].Version {
		t.Errorf("%+v, %+v", rows[1], rows[3])
	}
}

func TestASweepWithNothingToDoNeedsNoWriteLock(t *testing.T) {
	path := migrated(t)
	db := open(t, path)
	s := openStore(t, db)
	reqs := ask("held", "released")
	grant(t, s, reqs)
	release(t, s, reqs[1], 0)
	free := hog(t, open(t, path))
	if res := sweep(t, s, "", 9); res.Seen != 2 {
		t.Errorf("%+v", res)
	}
	free()
	expire(t, db)
	defer hog(t, open(t, path))()
	if _, err := s.Sweep(t.Context(), driver.SweepRequest{Limit: 9, Retention: time.Hour}); err == nil || classify(err) != driver.Again {
		t.Errorf("control: a sweep with something to do got by the lock, %v", err)
	}
}

func TestASweepGoesOnWhereTheLastOneEnded(t *testing.T) {
	db := open(t, migrated(t))
	s := openStore(t, db)
	var names []string
	for i := range 25 {
		names = append(names, fmt.Sprintf("name-%02d", i))
	}
	grant(t, s, ask(names...))
	for _, limit := range []int{1, 5, 24, 25, 26} {
		exec(t, db, "UPDATE sqllock_lock SET acq = randomblob(16), locker = randomblob(16)")
		expire(t, db)
		var crashed []string
		seen, after := 0, ""
		for windows := 1; ; windows++ {
			res := sweep(t, s, after, limit)
			for _, c := range res.Crashed {
				crashed = append(crashed, c.Name)
			}
			if res.Last <= after && res.More {
				t.Fatalf("%q does not come after %q", res.Last, after)
			}
			seen, after = seen+res.Seen, res.Last
			if !res.More {
				if want := len(names)/limit + 1; windows != want {
					t.Errorf("limit %d: %d windows, want %d", limit, windows, want)
				}
				break
			}
		}
		if seen != len(names) || !slices.Equal(crashed, names) {
			t.Errorf("limit %d: %d seen, %v have crashed", limit, seen, crashed)
		}
	}
}

// What a pass costs is to read the rows: it reads each once, by the primary key, and looks
// claims up by theirs.
func TestASweepReadsEachRowOnce(t *testing.T) {
	path := migrated(t)
	windows := plans(t, path, "AS visit", []any{"a", 9, 1, 1}, func(s driver.Store) { sweep(t, s, "", 9) })
	want := [][]string{{"SEARCH c USING PRIMARY KEY (name=?)", "SEARCH c USING PRIMARY KEY (name=?)", "SEARCH l USING PRIMARY KEY (name>?)",
		"SEARCH w USING PRIMARY KEY (locker=?)"}}
	if fmt.Sprint(windows) != fmt.Sprint(want) {
		t.Errorf("it reads %q, want %q", windows, want)
	}
}

// A page of a list reads its rows alone, wherever it begins, however large the table is.
func TestAPageOfAListReadsItsRowsAlone(t *testing.T) {
	path := migrated(t)
	list := driver.ReadRequest{List: driver.ListRequest{After: "a", Limit: 9, Free: true, Count: true}}
	pages := plans(t, path, "LIMIT ?2", []any{"a", 9, 1}, func(s driver.Store) {
		if _, err := s.Read(t.Context(), list); err != nil {
			t.Fatal(err)
		}
	})
	const rows, first = "SEARCH l USING PRIMARY KEY (name=?)", "SEARCH sqllock_lock USING PRIMARY KEY (name>?)"
	if want := [][]string{{rows, first}, {first}}; fmt.Sprint(pages) != fmt.Sprint(want) {
		t.Errorf("it reads %q, want %q", pages, want)
	}
}

// plans returns how the statements with a text that do runs read the tables, in the order of
// the words.
func plans(t *testing.T, path, text string, args []any, do func(driver.Store)) (all [][]string) {
	t.Helper()
	var queries []string
	do(openStore(t, spied(t, path, func(query string) error {
		if strings.Contains(query, text) {
			queries = append(queries, query)
		}
		return nil
	})))
	for _, query := range queries {
		rows, err := open(t, path).Query("EXPLAIN QUERY PLAN "+query, args[:min(len(args), strings.Count(query, "?"))]...)
		if err != nil {
			t.Fatal(err)
		}
		var plan []string
		for rows.Next() {
			var id, parent, unused int
			var detail string
			if err := rows.Scan(&id, &parent, &unused, &detail); err != nil {
				t.Fatal(err)
			}
			if regexp.MustCompile(`^(SCAN|SEARCH) (l|c|w|sqllock_\w+)\b`).MatchString(detail) {
				plan = append(plan, detail)
			}
		}
		_ = rows.Close()
		slices.Sort(plan)
		all = append(all, plan)
	}
	return all
}

func TestOfAllWhoAskOneHasItsTurn(t *testing.T) {
	path := migrated(t)
	db := open(t, path)
	var turns atomic.Int32
	round := func() int32 {
		turns.Store(0)
		var wg sync.WaitGroup
		for range 8 {
			s := openStore(t, open(t, path, "_pragma=busy_timeout(100)"))
			wg.Go(func() {
				for {
					mine, err := sweepDue(t.Context(), s, time.Minute)
					if mine && err == nil {
						turns.Add(1)
					}
					if err == nil {
						return
					}
					if classify(err) != driver.Again {
						t.Error(err)
						return
					}
				}
			})
		}
		wg.Wait()
		return turns.Load()
	}
	for _, state := range []struct {
		sweptAt string
		want    int32
	}{
		{"0", 1},
		{"swept_at", 0},
		{"swept_at - 61000000", 1},
		{soon, 1}, // the clock was set back
		{"(unixepoch() - 30) * 1000000", 0},
	} {
		exec(t, db, "UPDATE sqllock_meta SET swept_at = "+state.sweptAt)
		if n := round(); n != state.want {
			t.Errorf("swept at %s: %d had their turn, want %d", state.sweptAt, n, state.want)
		}
	}
}

func TestWhoComesTooEarlyForATurnNeedsNoWriteLock(t *testing.T) {
	path := migrated(t)
	s := openStore(t, open(t, path))
	if mine, err := sweepDue(t.Context(), s, time.Minute); !mine || err != nil {
		t.Fatal(mine, err)
	}
	defer hog(t, open(t, path))()
	if mine, err := sweepDue(t.Context(), s, time.Minute); mine || err != nil {
		t.Error(mine, err)
	}
	if mine, err := sweepDue(t.Context(), s, time.Nanosecond); mine || classify(err) != driver.Again {
		t.Errorf("control: a turn that is due got by the lock, %v", err)
	}
}

func TestATurnThatSomebodyTookMeanwhileIsNotOurs(t *testing.T) {
	path := migrated(t)
	other := openStore(t, open(t, path))
	hook := once{verb: "UPDATE"}
	s := openStore(t, spied(t, path, hook.before))
	hook.do = func() {
		if mine, err := sweepDue(context.Background(), other, time.Minute); !mine || err != nil {
			t.Error(mine, err)
		}
	}
	if mine, err := sweepDue(t.Context(), s, time.Minute); mine || err != nil || hook.do != nil {
		t.Error(mine, err)
	}
}

// sweepDue asks whether a pass is due.
func sweepDue(ctx context.Context, s driver.Store, every time.Duration) (bool, error) {
	res, err := s.Sweep(ctx, driver.SweepRequest{Every: every})
	return res.Due, err
}
