package main

import (
	"cmp"
	"errors"
	"iter"
	"slices"
	"strconv"
	"testing"

	"github.com/sqllock/sqllock"
)

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
	for i, err := range mergeByName([]iter.Seq2[lockInfo, error]{
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
	for _, err := range mergeByName([]iter.Seq2[lockInfo, error]{
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
	for i := range mergeByName([]iter.Seq2[lockInfo, error]{count(unique), count(forUpdate), count(advisory)}) {
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
