//go:build unix

package gocronlock_test

import (
	"testing"
	"time"

	"github.com/sqllock/sqllock/internal/testdb"
)

func TestOneOfThreeSchedulersWithDifferentClocksRunsEachTick(t *testing.T) {
	each(t, func(t *testing.T, p pair, d *testdb.Database) {
		if (p.mode == unique) == (p.engine == testdb.Postgres) { // each mode, and each database, is in one pair at least
			return
		}
		const every, skew = 5 * time.Second, 150 * time.Millisecond
		f := newFleet(t, p, d, replicaConfig{Every: every, TTL: long, MinHold: every / 2})
		for _, s := range []time.Duration{-skew, 0, skew} {
			f.start(s)
		}
		const ticks = 3
		f.await("ticks are run", func() bool {
			n := 0
			for _, p := range f.all {
				n += p.ticks
			}
			return n >= ticks
		})
		f.stop()
		db := d.Open(t)
		f.checkTicks(db, ticks)
		var first, last, n int
		if err := db.QueryRowContext(t.Context(), `SELECT min(tick), max(tick), count(*) FROM ticks`).Scan(&first, &last, &n); err != nil {
			t.Fatal(err)
		}
		if last-first+1 != n {
			t.Errorf("%d ticks from %d to %d were run", n, first, last)
		}
	})
}
