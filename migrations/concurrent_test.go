package migrations_test

import (
	"context"
	"fmt"
	"io/fs"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sqllock/sqllock/internal/testdb"
	"github.com/sqllock/sqllock/migrations"
)

// crowd is how many call Up at once.
const crowd = 20

func TestTwentyProcessesAtOnceAllSucceed(t *testing.T) {
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
	each(t, func(t *testing.T, d *testdb.Database) {
		db := d.Open(t)
		m := target(d.Engine(), db, "", "")
		up(t, m)
		together(t, 10, func() *process { return start(t, d, "down", "") })
		if left := objects(t, d.Engine(), db); len(left) > 0 {
			t.Errorf("left %q", left)
		}
		up(t, m)
		checkUsable(t, m)
	})
}

func TestTwentyGoroutinesShareASmallPool(t *testing.T) {
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
			down(t, m)
		}
		up(t, m)
		killed := 0
		for i := range tries {
			do := "up"
			if i%2 == 0 {
				do = "down"
			} else {
				down(t, m)
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

// On MySQL each statement commits by itself, so a process can die between any
// two. The states that this leaves are made one by one, and finished both ways.
func TestEachHalfWayStateOfMySQLIsFinished(t *testing.T) {
	for _, engine := range testdb.Engines() {
		if engine == testdb.Postgres {
			continue
		}
		t.Run(engine, func(t *testing.T) {
			d := testdb.New(t, engine)
			db := d.Open(t)
			m := target(engine, db, "", "")
			ups, downs := statements(t, migrationFile(t, engine))
			run := func(list []string) {
				for _, statement := range list {
					mustExec(t, db, statement)
				}
			}
			finish := func(state string) {
				switch state[:2] {
				case "up":
					up(t, m)
					checkApplied(t, m)
					checkUsable(t, m)
					_ = query(t, db, `SELECT name FROM sqllock_locks`)
				default:
					down(t, m)
					if left := objects(t, engine, db); len(left) > 0 {
						t.Errorf("%s left %q", state, left)
					}
				}
				down(t, m)
			}
			const halfway = `UPDATE sqllock_migration SET is_applied = false WHERE version_id > 0`
			for _, last := range []string{"up", "down"} {
				for n := range len(ups) + 1 { // an Up that died
					up(t, m)
					run(append([]string{halfway}, downs...))
					run(ups[:n])
					finish(fmt.Sprint(last, " after up ", n))
				}
				for n := range len(downs) + 1 { // a Down that died
					up(t, m)
					run(append([]string{halfway}, downs[:n]...))
					finish(fmt.Sprint(last, " after down ", n))
				}
				for _, left := range []string{``, `WHERE version_id > 0`} { // before and after goose's own row
					up(t, m)
					run(append([]string{`DELETE FROM sqllock_migration ` + left}, downs...))
					finish(fmt.Sprint(last, " after ", left))
				}
			}
		})
	}
}

func migrationFile(t *testing.T, engine string) string {
	t.Helper()
	fsys, err := migrations.FS(target(engine, testdb.New(t, engine).Open(t), "", ""))
	if err != nil {
		t.Fatal(err)
	}
	text, err := fs.ReadFile(fsys, "20261121000001_lease.sql")
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// statements takes a file of ours apart, in which no line ends with a semicolon
// but that of a statement.
func statements(t *testing.T, text string) (up, down []string) {
	t.Helper()
	head, tail, found := strings.Cut(text, "-- +goose Down")
	if !found {
		t.Fatal("there is no way down")
	}
	parts := func(s string) (list []string) {
		for part := range strings.SplitSeq(s, ";\n") {
			if part = strings.TrimSpace(part); part != "" {
				list = append(list, part)
			}
		}
		return list
	}
	return parts(head), parts(tail)
}
