package main

import (
	"cmp"
	"errors"
	"iter"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/sqllock/sqllock"
)

func TestForUpdateMayBeWrittenWithADash(t *testing.T) {
	t.Parallel()
	for word, want := range map[string]mode{"unique": unique, "forupdate": forUpdate, "for-update": forUpdate, "advisory": advisory, "for_update": "", "": "", "u": ""} {
		if got, err := parseMode(word); got != want || (err != nil) != (want == "") {
			t.Errorf("%q is %q, %v", word, got, err)
		}
	}
}

func TestAModeThatTheDatabaseDoesNotOfferIsAUsageErrorAndMakesNothing(t *testing.T) {
	t.Parallel()
	u := newPerson(t)
	file := "sqlite:" + filepath.Join(u.home, "locks.db")
	for _, m := range []string{"forupdate", "for-update", "advisory"} {
		for _, args := range [][]string{
			{"run", "--mode", m, "n", "--", "echo", "ran"}, {"run", "n", "--shared", "--mode=" + m, "--", "echo", "ran"}, {"ls", "--mode", m},
			{"inspect", "--mode", m, "n"}, {"unlock", "--mode", m, "n", "--force"}, {"wait", "--mode", m, "n"}, {"ls", "--watch", "--mode", m},
		} {
			for _, dsn := range []string{"", file} {
				r := person{home: u.home, dsn: dsn}.run(t, args...)
				r.want(t, exitUsage, "", "SQLite does not offer the mode "+strings.ReplaceAll(m, "-", "")+", but unique")
				if r.out != "" || strings.Count(r.err, "\n") != 1 {
					t.Errorf("%q: %+v", args, r)
				}
			}
		}
	}
	if left, err := os.ReadDir(u.home); err != nil || len(left) > 0 {
		t.Errorf("it has left %v, %v", left, err)
	}
	u.run(t, "run", "--mode", "unique", "n", "--", "echo", "ran").want(t, 0, "ran", "")
}

func TestWhatDoesNotApplyToALockThatIsSharedIsRefusedWithoutTheDatabase(t *testing.T) {
	t.Parallel()
	u := person{home: t.TempDir(), dsn: "postgres://u@127.0.0.1:1/d"}
	for _, flag := range [][]string{{"--min-hold", "1s"}, {"--value", "v"}, {"--value", ""}} {
		for _, m := range modes {
			args := append([]string{"run", "--shared", "--mode", string(m)}, append(flag, "n", "--", "echo", "ran")...)
			u.run(t, args...).want(t, exitUsage, "", "--min-hold and --value do not apply")
		}
	}
}

// listing yields names, and then an error if there is one.
func listing(m mode, err error, stopped *int, names ...string) iter.Seq2[lockInfo, error] {
	return func(yield func(lockInfo, error) bool) {
		defer func() { *stopped++ }()
		for _, name := range names {
			if !yield(lockInfo{m, sqllock.Info{Name: name}}, nil) {
				return
			}
		}
		if err != nil {
			yield(lockInfo{mode: m}, err)
		}
	}
}

func TestListsAreMergedByNameAndThenByMode(t *testing.T) {
	t.Parallel()
	stopped := 0
	var got []string
	for i, err := range merged([]iter.Seq2[lockInfo, error]{
		listing(unique, nil, &stopped, "a", "c", "c\x00", "ä"), listing(forUpdate, nil, &stopped), listing(advisory, nil, &stopped, "B", "a", "c", "z", "ä"),
	}) {
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, i.Name+" "+string(i.mode))
	}
	want := []string{"B advisory", "a unique", "a advisory", "c unique", "c advisory", "c\x00 unique", "z advisory", "ä unique", "ä advisory"}
	if !slices.Equal(got, want) || stopped != 3 {
		t.Errorf("got %q, and %d of 3 were ended", got, stopped)
	}
}

func TestAMergeThatIsLeftEndsAllThatItReads(t *testing.T) {
	t.Parallel()
	gone := errors.New("gone")
	stopped, read := 0, 0
	for _, err := range merged([]iter.Seq2[lockInfo, error]{
		listing(unique, nil, &stopped, "a", "b", "c"), listing(forUpdate, nil, &stopped, "a"), listing(advisory, gone, &stopped, "a"),
	}) {
		if read++; errors.Is(err, gone) {
			break
		}
	}
	if stopped != 3 || read != 4 {
		t.Errorf("%d of 3 were ended, after %d items", stopped, read)
	}
}

// What is read ahead is one name of each mode, however many there are.
func TestAMergeKeepsOneNameOfEachMode(t *testing.T) {
	t.Parallel()
	const many = 10_000
	made, most := 0, 0
	count := func(m mode) iter.Seq2[lockInfo, error] {
		return func(yield func(lockInfo, error) bool) {
			for i := range many {
				made++
				if !yield(lockInfo{m, sqllock.Info{Name: strconv.Itoa(many + i)}}, nil) {
					return
				}
			}
		}
	}
	taken, last := 0, lockInfo{}
	for i := range merged([]iter.Seq2[lockInfo, error]{count(unique), count(forUpdate), count(advisory)}) {
		most = max(most, made-taken)
		if taken++; cmp.Or(cmp.Compare(last.Name, i.Name), cmp.Compare(slices.Index(modes, last.mode), slices.Index(modes, i.mode))) >= 0 {
			t.Fatalf("%s %s after %s %s", i.Name, i.mode, last.Name, last.mode)
		}
		last = i
	}
	if taken != 3*many || most > 3 {
		t.Errorf("%d names, up to %d were read ahead", taken, most)
	}
}

func TestWhoSharesAndWhatASessionKeepsIsShown(t *testing.T) {
	t.Parallel()
	now := time.UnixMicro(1_700_000_000_000_000)
	info := sqllock.Info{Name: "n", State: sqllock.StateHeld, Token: 7, Since: now.Add(-time.Minute), Now: now}
	with := func(change func(*sqllock.Info)) *lockInfo {
		i := info
		change(&i)
		return &lockInfo{advisory, i}
	}
	for want, i := range map[string]*lockInfo{
		"n advisory held 7 1m0s ago session -":              with(func(*sqllock.Info) {}),
		`n advisory held 7 1m0s ago session "3 readers"`:    with(func(i *sqllock.Info) { i.Label = "3 readers" }),
		"n advisory held 7 1m0s ago session 1 reader":       with(func(i *sqllock.Info) { i.Readers = 1 }),
		"n advisory held 7 1m0s ago in 1m0s 3 readers":      with(func(i *sqllock.Info) { i.Readers, i.Until = 3, now.Add(time.Minute) }),
		"n advisory released 7 - 5.0s ago -":                with(func(i *sqllock.Info) { i.State, i.Until = sqllock.StateReleased, now.Add(-5*time.Second) }),
		"n advisory held 7 1m0s ago session host/program/1": with(func(i *sqllock.Info) { i.Label, i.KeptUntil = "host/program/1", now.Add(time.Hour) }),
	} {
		r := i.row()
		if got := strings.Join(r, " "); got != want {
			t.Errorf("got  %s\nwant %s", got, want)
		}
	}
	shared := with(func(i *sqllock.Info) { i.Readers = 3 })
	if text := strings.Join(strings.Fields(string(shared.fields())), " "); !strings.HasPrefix(text, "name n mode advisory state held readers 3 token 7 ") ||
		!strings.HasSuffix(text, "until its session ends") {
		t.Errorf("in detail: %s", text)
	}
	if text := string(shared.json()); !strings.Contains(text, `"mode":"advisory"`) || !strings.Contains(text, `"readers":3`) || strings.Contains(text, "until") {
		t.Errorf("as JSON: %s", text)
	}
	if text := sentence(&shared.Info); text != "held by 3 readers (token 7) since 1m0s ago" {
		t.Errorf("in a sentence: %s", text)
	}
}
