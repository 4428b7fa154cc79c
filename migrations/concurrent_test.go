package migrations_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/sqllock/sqllock/internal/testdb"
	"github.com/sqllock/sqllock/migrations"
)

// crowd is how many call Up at once.
const crowd = 20

func TestTwentyProcessesAtOnceAllSucceed(t *testing.T) {
	beNext(t)
	rounds := 3
	if testing.Short() {
		rounds = 1
	}
	for _, engine := range testdb.All() {
		t.Run(engine, func(t *testing.T) {
			for round := range rounds {
				t.Run(fmt.Sprint(round), func(t *testing.T) {
					d := testdb.New(t, engine)
					schema := map[bool]string{true: "locks"}[engine == testdb.Postgres && round%2 == 1]
					together(t, crowd, func() *process { return start(t, d, "up", schema) })
					m := target(engine, d.Open(t), "", schema)
					checkApplied(t, m)
					checkUsable(t, m)
				})
			}
		})
	}
}

func TestTenProcessesThatMigrateDownAtOnceAllSucceed(t *testing.T) {
	beNext(t)
	each(t, func(t *testing.T, d *testdb.Database) {
		db := d.Open(t)
		m := target(d.Engine(), db, "", "")
		up(t, m)
		together(t, 10, func() *process { return start(t, d, "down", "") })
		downAll(t, m) // who were at it together may have undone the same migration
		if left := objects(t, d.Engine(), db); len(left) > 0 {
			t.Errorf("left %q", left)
		}
		up(t, m)
		checkUsable(t, m)
	})
}

func TestTwentyGoroutinesShareASmallPool(t *testing.T) {
	beNext(t)
	for _, engine := range testdb.All() {
		for _, size := range []int{1, 2, 0} {
			t.Run(fmt.Sprintf("%s/%d", engine, size), func(t *testing.T) {
				d := testdb.New(t, engine)
				db := d.Open(t)
				db.SetMaxOpenConns(size)
				m := target(engine, db, "", "")
				ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
				defer cancel()
				var wg sync.WaitGroup
				for range crowd {
					wg.Go(func() {
						if err := migrations.Up(ctx, m); err != nil {
							t.Error(err)
						}
					})
				}
				wg.Wait()
				if n := db.Stats().InUse; n != 0 {
					t.Errorf("%d connections are still in use", n)
				}
				checkApplied(t, m)
				checkUsable(t, m)
				down(t, m)
			})
		}
	}
}

func TestWhatAKilledProcessLeftIsFinished(t *testing.T) {
	beNext(t)
	tries := 16
	if testing.Short() {
		tries = 4
	}
	each(t, func(t *testing.T, d *testdb.Database) {
		m := target(d.Engine(), d.Open(t), "", "")
		whole := time.Minute
		for range 3 {
			p := start(t, d, "up", "")
			p.tell()
			took, err := p.wait()
			if err != nil {
				t.Fatal(err)
			}
			whole = min(whole, took)
			downAll(t, m)
		}
		up(t, m)
		killed := 0
		for i := range tries {
			do := "up"
			if i%2 == 0 {
				do = "down"
			} else {
				downAll(t, m)
			}
			p := start(t, d, do, "")
			p.tell()
			time.Sleep(whole * time.Duration(i) / time.Duration(tries))
			_ = p.cmd.Process.Kill()
			if _, err := p.wait(); err != nil {
				killed++
			}
			if i%4 > 1 {
				down(t, m)
			}
			up(t, m)
			checkUsable(t, m)
			checkApplied(t, m)
		}
		if killed == 0 {
			t.Errorf("none of %d was killed on the way, within %v", tries, whole)
		}
	})
}
