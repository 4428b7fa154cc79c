package sqllock_test

import (
	"context"
	"database/sql"
	"errors"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/sqllock/sqllock"
	"github.com/sqllock/sqllock/internal/testdb"
	"github.com/sqllock/sqllock/locksqlite"
	"github.com/sqllock/sqllock/migrations"
)

// fuzzed is an SQLite database for a fuzz test.
func fuzzed(f *testing.F) *sql.DB {
	f.Helper()
	db := testdb.New(f, testdb.SQLite).Open(f, "_pragma=synchronous(OFF)")
	if err := migrations.Up(context.Background(), locksqlite.DB(db)); err != nil {
		f.Fatal(err)
	}
	return db
}

// fuzzedLocks is a Locker for a fuzz test.
func fuzzedLocks(t testing.TB, db *sql.DB, o sqllock.UniqueOptions) *sqllock.Locker {
	t.Helper()
	o.Reaper = &sqllock.ReaperOptions{Off: true}
	l, err := sqllock.NewUnique(context.Background(), locksqlite.DB(db), &o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := l.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return l
}

func FuzzANameComesBackAsItWasGiven(f *testing.F) {
	db := fuzzed(f)
	a, b := fuzzedLocks(f, db, sqllock.UniqueOptions{}), fuzzedLocks(f, db, sqllock.UniqueOptions{})
	for _, name := range []string{
		"k", "k ", "K", `'`, `"`, `\`, "`", "%", "_", "{lock}", "$1", "?1", ":name", "\n", "\x01", "\x7f", "é", "e\u0301", "\u202ek", "🔒", "\ufffd",
		`'; DROP TABLE sqllock_lock; --`, `["a"]`, `\u0000`, "\u2028", "\ufeff", strings.Repeat("x", 255), strings.Repeat("🔒", 63), "", "a\x00", "\xff",
	} {
		f.Add(name, name, []byte(name))
	}
	f.Fuzz(func(t *testing.T, name, owner string, value []byte) {
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		lease, err := a.TryLock(sqllock.WithOwner(ctx, owner), name, sqllock.Value(value))
		if errors.Is(err, sqllock.ErrInvalidName) || errors.Is(err, sqllock.ErrInvalidOwner) || errors.Is(err, sqllock.ErrInvalidOption) {
			return
		}
		if err != nil {
			t.Fatalf("TryLock(%q) by %q: %v", name, owner, err)
		}
		var held *sqllock.HeldError
		if _, err := b.TryLock(ctx, name); !errors.As(err, &held) || held.Name != name || held.Owner != owner {
			t.Errorf("TryLock of %q, which %q holds: %+v", name, owner, err)
		}
		if info, err := b.Inspect(ctx, name); err != nil || info.Name != name || info.Owner != owner || string(info.Value) != string(value) {
			t.Errorf("Inspect(%q) = %+v, %v", name, info, err)
		}
		listed := 0
		for info, err := range b.List(ctx) {
			if err != nil || info.Name != name || info.Owner != owner {
				t.Errorf("List yields %+v, %v", info, err)
			}
			listed++
		}
		if listed != 1 {
			t.Errorf("List yields %d names", listed)
		}
		if _, err := b.ForceUnlock(ctx, name); err != nil {
			t.Errorf("ForceUnlock(%q): %v", name, err)
		}
		if err := lease.Unlock(ctx); !errors.Is(err, sqllock.ErrLost) {
			t.Errorf("Unlock(%q): %v", name, err)
		}
		if _, err := db.ExecContext(ctx, `DELETE FROM sqllock_lock`); err != nil {
			t.Error(err)
		}
	})
}

// hastiest is a TTL below which a slow machine may lose a lease before it is unlocked.
const earliest = 5 * time.Second

// extremes are numbers at which options change their meaning, or overflow.
var extremes = []int64{0, 1, -1, int64(sqllock.MinTTL) - 1, int64(sqllock.MinTTL), int64(earliest), int64(sqllock.MaxTTL), int64(sqllock.MaxTTL) + 1,
	math.MaxInt64 / 2, math.MaxInt64 - 1, math.MaxInt64, math.MinInt64}

func FuzzLockOptionsAreRefusedBeforeAnySQLOrWork(f *testing.F) {
	db := fuzzed(f)
	l := fuzzedLocks(f, db, sqllock.UniqueOptions{})
	gone := fuzzed(f)
	unused := fuzzedLocks(f, gone, sqllock.UniqueOptions{})
	_ = gone.Close()
	for _, n := range extremes {
		for at := range 6 {
			args := [6]int64{int64(time.Minute), 0, int64(time.Hour), 0, int64(time.Minute), 3}
			args[at] = n
			f.Add(args[0], args[1], args[2], args[3], args[4], int(args[5]), at, false)
		}
	}
	f.Add(int64(time.Minute), int64(0), int64(time.Hour), int64(0), int64(time.Minute), 1, 64<<10+1, true)
	f.Fuzz(func(t *testing.T, ttl, minHold, maxHold, lockDelay, wait int64, tries, size int, shared bool) {
		opts := []sqllock.LockOption{sqllock.TTL(time.Duration(ttl)), sqllock.MinHold(time.Duration(minHold)), sqllock.MaxHold(time.Duration(maxHold)),
			sqllock.LockDelay(time.Duration(lockDelay)), sqllock.Wait(time.Duration(wait)), sqllock.Tries(tries),
			sqllock.Value(make([]byte, min(max(size, 0), 70_000)))}
		lock := func(l *sqllock.Locker) (*sqllock.Lease, error) {
			if shared {
				return l.RLock(t.Context(), "k", opts...)
			}
			return l.Lock(t.Context(), "k", opts...)
		}
		lease, err := lock(l)
		if errors.Is(err, sqllock.ErrInvalidOption) {
			if _, err := lock(unused); !errors.Is(err, sqllock.ErrInvalidOption) {
				t.Errorf("refused after a statement: %v", err)
			}
			return
		}
		early := min(ttl, maxHold) < int64(earliest) || wait < int64(earliest)
		if err == nil && lease.Remaining() > min(time.Duration(ttl), time.Duration(maxHold)) {
			t.Errorf("%v remain of a TTL of %v and a MaxHold of %v", lease.Remaining(), time.Duration(ttl), time.Duration(maxHold))
		}
		if err == nil {
			err = lease.Unlock(t.Context())
		}
		if err != nil && !early {
			t.Errorf("TTL %d, MinHold %d, MaxHold %d, LockDelay %d, Wait %d, Tries %d: %v", ttl, minHold, maxHold, lockDelay, wait, tries, err)
		}
		if _, err := db.ExecContext(t.Context(), `DELETE FROM sqllock_lock`); err != nil {
			t.Error(err)
		}
	})
}

func FuzzOptionsOfALockerAreRefusedOrWork(f *testing.F) {
	db := fuzzed(f)
	for _, n := range extremes {
		for at := range 8 {
			args := [8]int64{int64(time.Minute), 1e6, 1e9, int64(time.Minute), 512, 4, int64(time.Hour), int64(time.Hour)}
			args[at] = n
			f.Add("label", args[0], args[1], args[2], args[3], int(args[4]), int(args[5]), args[6], args[7])
		}
	}
	for _, label := range []string{"", "'", "\x00", "\xff", strings.Repeat("x", 256), "\u202e"} {
		f.Add(label, int64(0), int64(0), int64(0), int64(0), 0, 0, int64(0), int64(0))
	}
	f.Fuzz(func(t *testing.T, label string, ttl, retryMin, retryMax, statement int64, batch, inFlight int, interval, retention int64) {
		o := &sqllock.UniqueOptions{
			Label: label, TTL: time.Duration(ttl), RetryMin: time.Duration(retryMin), RetryMax: time.Duration(retryMax),
			StatementTimeout: time.Duration(statement), MaxBatch: batch, MaxInFlight: inFlight,
			Reaper: &sqllock.ReaperOptions{Interval: time.Duration(interval), Retention: time.Duration(retention)},
		}
		l, err := sqllock.NewUnique(t.Context(), locksqlite.DB(db), o)
		if errors.Is(err, sqllock.ErrInvalidOption) && l == nil {
			return
		}
		if err != nil {
			t.Fatalf("%+v: %v", o, err)
		}
		early := ttl != 0 && ttl < int64(earliest) || statement != 0 && statement < int64(earliest)
		lease, err := l.TryLock(t.Context(), "k")
		if err == nil {
			// Who waits meets the pauses.
			_, _ = l.Lock(t.Context(), "k", sqllock.Wait(time.Millisecond), sqllock.Tries(2))
			err = lease.Unlock(t.Context())
		}
		if err = errors.Join(err, l.Close(t.Context())); err != nil && !early {
			t.Errorf("%+v: %v", o, err)
		}
		if _, err := db.ExecContext(t.Context(), `DELETE FROM sqllock_lock`); err != nil {
			t.Error(err)
		}
	})
}
