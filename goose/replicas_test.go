package gooselock_test

import (
	"fmt"
	"os"
	"testing"

	"github.com/sqllock/sqllock/internal/testdb"
)

// eachReplicated runs a test for the mode unique in both ways, and for the others in
// one.
func eachReplicated(t *testing.T, fn func(t *testing.T, mode, way string, d *testdb.Database)) {
	each(t, func(t *testing.T, mode string, d *testdb.Database) { fn(t, mode, bySession, d) })
	on(t, byLocker, func(t *testing.T, d *testdb.Database) { fn(t, unique, byLocker, d) })
}

func TestOneOfSixProcessesMigratesAnEmptyDatabaseAndAllSucceed(t *testing.T) {
	eachReplicated(t, func(t *testing.T, mode, way string, d *testdb.Database) {
		for _, p := range together(t, d, mode, way, takesLong) {
			if err := p.Wait(); err != nil {
				t.Error(err)
			}
		}
		checkRuns(t, d.Open(t), all...)
		if !t.Failed() {
			testdb.Cover("goose "+mode, d.Engine())
		}
	})
}

func TestTheNextProcessFinishesTheMigrationOfAKilledOne(t *testing.T) {
	eachReplicated(t, func(t *testing.T, mode, way string, d *testdb.Database) {
		db := d.Open(t)
		locks := newLocks(t, mode, d.Engine(), db, shortTTL)
		replicas := together(t, d, mode, way, takesShort)
		eventually(t, "a process is in the middle of a migration", func() bool { return sleeping(t, d.Engine(), db) })
		info, err := locks.Inspect(t.Context(), lockName)
		if err != nil {
			t.Fatal(err)
		}
		killed := 0
		for _, p := range replicas {
			if fmt.Sprint(p.PID()) == info.Label {
				p.Signal(os.Kill)
				killed++
			}
		}
		if killed != 1 {
			t.Fatalf("%q migrates, who is none of ours", info.Label)
		}
		for _, p := range replicas {
			err := p.Wait()
			if own := fmt.Sprint(p.PID()) == info.Label; (err != nil) != own {
				t.Errorf("the one that was killed: %v: %v", own, err)
			}
		}
		checkRuns(t, db, all...)
	})
}
