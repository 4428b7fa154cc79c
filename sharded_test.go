package sqllock_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/sqllock/sqllock"
	"github.com/sqllock/sqllock/internal/testdb"
	"github.com/sqllock/sqllock/locksqlite"
	"github.com/sqllock/sqllock/migrations"
)

// shards are Lockers of n shards, that of each its own.
func shards(t *testing.T, n int) map[string]*sqllock.Locker {
	t.Helper()
	all := make(map[string]*sqllock.Locker)
	for i := range n {
		b := newBench(t, newFake(), &sqllock.UniqueOptions{Reaper: &sqllock.ReaperOptions{Off: true}})
		t.Cleanup(b.close)
		all[fmt.Sprint("db-", i+1)] = b.Locker
	}
	return all
}

// owners says by which shard each of n keys is owned.
func owners(t *testing.T, lockers map[string]*sqllock.Locker, n int) []string {
	t.Helper()
	s, err := sqllock.NewSharded(lockers)
	if err != nil {
		t.Fatal(err)
	}
	names := make(map[*sqllock.Locker]string)
	for name, l := range lockers {
		names[l] = name
	}
	all := make([]string, n)
	for i := range all {
		all[i] = names[s.For(fmt.Sprint("customer/", i))]
	}
	return all
}

func TestEachShardOwnsItsPartOfTheNames(t *testing.T) {
	const keys, n = 50_000, 5
	count := make(map[string]int)
	for _, owner := range owners(t, shards(t, n), keys) {
		count[owner]++
	}
	for name, got := range count {
		if want := keys / n; got < want*19/20 || got > want*21/20 {
			t.Errorf("%s owns %d of %d names, want %d", name, got, keys, want)
		}
	}
	if len(count) != n {
		t.Errorf("%d of %d shards own names", len(count), n)
	}
}

func TestOnlyTheNamesOfAShardThatComesOrGoesMove(t *testing.T) {
	const keys, n, last = 50_000, 5, "db-5"
	all := shards(t, n)
	with := owners(t, all, keys)
	delete(all, last)
	without := owners(t, all, keys)
	moved := 0
	for i := range keys {
		if with[i] == without[i] {
			continue
		}
		if moved++; with[i] != last {
			t.Fatalf("name %d moves from %s to %s", i, without[i], with[i])
		}
	}
	if want := keys / n; moved < want*19/20 || moved > want*21/20 {
		t.Errorf("%d of %d names move, want %d", moved, keys, want)
	}
}

// The owners were computed by another program. If one differs, two versions of the library hold
// a name at the same time.
func TestTheOwnerOfANameIsTheSameInEachVersion(t *testing.T) {
	all := shards(t, 3)
	s, err := sqllock.NewSharded(all)
	if err != nil {
		t.Fatal(err)
	}
	for key, want := range map[string]string{
		"": "db-3", "a": "db-3", "orders/1": "db-3", "orders/2": "db-2", "orders/3": "db-3", "orders/4": "db-3",
		"größe": "db-1", "customer-7": "db-1", "billing/2026-11": "db-2", strings.Repeat("x", 255): "db-1",
	} {
		if s.For(key) != all[want] {
			t.Errorf("%q is not owned by %s", key, want)
		}
	}
}

func TestShardsThatMakeNoSenseAreRefused(t *testing.T) {
	l := shards(t, 1)["db-1"]
	for what, c := range map[string]struct {
		lockers map[string]*sqllock.Locker
		says    string
	}{
		"nil":                  {nil, "at least one shard"},
		"none":                 {map[string]*sqllock.Locker{}, "at least one shard"},
		"a nil Locker":         {map[string]*sqllock.Locker{"a": l, "b": nil}, `shard "b": the Locker must not be nil`},
		"the same Locker":      {map[string]*sqllock.Locker{"a": l, "b": l}, `shards "a" and "b"`},
		"no name":              {map[string]*sqllock.Locker{"": l}, `shard "": `},
		"a name with a NUL":    {map[string]*sqllock.Locker{"a\x00": l}, "NUL"},
		"a name of no UTF-8":   {map[string]*sqllock.Locker{"\xff": l}, "UTF-8"},
		"a name of many bytes": {map[string]*sqllock.Locker{strings.Repeat("x", 256): l}, "256 bytes"},
	} {
		s, err := sqllock.NewSharded(c.lockers)
		if s != nil || !errors.Is(err, sqllock.ErrInvalidOption) || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v, %v", what, s, err)
		}
	}
}

// process returns the Lockers of another process on the same databases.
func process(t *testing.T, dbs map[string]*testdb.Database) map[string]*sqllock.Locker {
	t.Helper()
	all := make(map[string]*sqllock.Locker)
	for name, db := range dbs {
		all[name] = newLocks(t, locksqlite.DB(db.Open(t)), sqllock.UniqueOptions{})
	}
	return all
}

func TestProcessesWithTheSameShardsExcludeEachOther(t *testing.T) {
	dbs := make(map[string]*testdb.Database)
	for _, name := range []string{"db-1", "db-2"} {
		dbs[name] = testdb.New(t, testdb.SQLite)
		if err := migrations.Up(t.Context(), locksqlite.DB(dbs[name].Open(t))); err != nil {
			t.Fatal(err)
		}
	}
	mine, theirs := process(t, dbs), process(t, dbs)
	a, errA := sqllock.NewSharded(mine)
	b, errB := sqllock.NewSharded(theirs)
	less, errLess := sqllock.NewSharded(map[string]*sqllock.Locker{"db-1": theirs["db-1"]})
	if err := errors.Join(errA, errB, errLess); err != nil {
		t.Fatal(err)
	}
	twice := 0
	for i := range 20 {
		name := fmt.Sprint("name ", i)
		lease := mustTry(t, a.For(name), name)
		if _, err := b.For(name).TryLock(t.Context(), name); !errors.Is(err, sqllock.ErrHeld) {
			t.Errorf("another process gets %s: %v", name, err)
		}
		// What NewSharded warns of: a process with another set of shards asks another database.
		if other, err := less.For(name).TryLock(t.Context(), name); err == nil {
			twice++
			_ = other.Unlock(t.Context())
		}
		if err := lease.Unlock(t.Context()); err != nil {
			t.Error(err)
		}
	}
	if twice == 0 || twice == 20 {
		t.Errorf("%d of 20 names are held twice by processes with different shards, want about half", twice)
	}
}
