package gooselock_test

import (
	"context"
	"database/sql"
	"errors"
	"testing"
	"time"

	"github.com/pressly/goose/v3"

	"github.com/sqllock/sqllock"
	"github.com/sqllock/sqllock/internal/testdb"
)

// upAndLose migrates, takes the lease away in the middle of the slow migration, and
// returns what goose says, or Do around it.
func upAndLose(t *testing.T, mode, way string, d *testdb.Database, db *sql.DB, within bool) error {
	t.Helper()
	l, other := newLocker(t, newLocks(t, mode, d.Engine(), db, shortTTL)), newLocks(t, mode, d.Engine(), db, shortTTL)
	p := mustProvider(t, d.Engine(), db, way, l, takesLong)
	done := make(chan error, 1)
	go func() {
		if within {
			done <- l.Do(t.Context(), up(p))
		} else {
			done <- up(p)(t.Context())
		}
	}()
	eventually(t, "the slow migration runs", func() bool { return sleeping(t, d.Engine(), db) })
	if _, err := other.ForceUnlock(t.Context(), lockName); err != nil {
		t.Error(err)
	}
	return <-done
}

func TestALossEndsTheMigrationsWithinDo(t *testing.T) {
	each(t, func(t *testing.T, mode string, d *testdb.Database) {
		db := d.Open(t)
		err := upAndLose(t, mode, byLocker, d, db, true)
		if !errors.Is(err, sqllock.ErrLost) {
			t.Errorf("Do says %v", err)
		}
		if partial := new(goose.PartialError); !errors.As(err, &partial) || partial.Failed.Source.Version != slow {
			t.Errorf("not the slow migration failed: %v", err)
		}
		eventually(t, "the server has ended the migration", func() bool { return !sleeping(t, d.Engine(), db) })
		checkRuns(t, db, 1, 2)
	})
}

func TestAfterALossTheNextMigrationWaitsForTheServerToFinish(t *testing.T) {
	onEach(t, func(t *testing.T, d *testdb.Database) {
		db := d.Open(t)
		next, conn := newLocker(t, newLocks(t, unique, d.Engine(), db, shortTTL)), newConn(t, db)
		if err := upAndLose(t, unique, bySession, d, db, true); !errors.Is(err, sqllock.ErrLost) {
			t.Errorf("Do says %v", err)
		}
		if err := next.SessionLock(t.Context(), conn); err != nil {
			t.Fatal(err)
		}
		if sleeping(t, d.Engine(), db) {
			t.Error("the server goes on with a migration while the next one may begin")
		}
		if err := next.SessionUnlock(t.Context(), conn); err != nil {
			t.Error(err)
		}
		checkRuns(t, db, 1, 2)
	})
}

func TestALossOutsideDoIsReportedByGoose(t *testing.T) {
	onEach(t, func(t *testing.T, d *testdb.Database) {
		db := d.Open(t)
		if err := upAndLose(t, unique, bySession, d, db, false); !errors.Is(err, sqllock.ErrLost) {
			t.Errorf("goose says %v", err)
		}
		checkRuns(t, db, all...)
	})
}

func TestNoMigrationRunsBesideTheSessionOfAFormerHolder(t *testing.T) {
	each(t, func(t *testing.T, mode string, d *testdb.Database) {
		db := d.Open(t)
		locks := newLocks(t, mode, d.Engine(), db, shortTTL)
		first, second := newLocker(t, locks), newLocker(t, locks)
		one, two := newConn(t, db), newConn(t, db)
		if err := first.SessionLock(t.Context(), one); err != nil {
			t.Fatal(err)
		}
		if _, err := locks.ForceUnlock(t.Context(), lockName); err != nil {
			t.Fatal(err)
		}
		short, cancel := context.WithTimeout(t.Context(), 1500*time.Millisecond)
		defer cancel()
		if err := second.SessionLock(short, two); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("beside the session of the first one: %v", err)
		}
		if err := first.SessionUnlock(t.Context(), one); !errors.Is(err, sqllock.ErrLost) {
			t.Errorf("the first one is told %v", err)
		}
		three := newConn(t, db)
		if err := second.SessionLock(t.Context(), three); err != nil {
			t.Error(err)
		} else if err := second.SessionUnlock(t.Context(), three); err != nil {
			t.Error(err)
		}
	})
}

func TestAMigrationInGoThatGuardsTheLeaseWritesNothingAfterALoss(t *testing.T) {
	onEach(t, func(t *testing.T, d *testdb.Database) {
		db := d.Open(t)
		l, other := newLocker(t, newLocks(t, unique, d.Engine(), db, shortTTL)), newLocks(t, unique, d.Engine(), db, shortTTL)
		loses := true
		step := goose.NewGoMigration(5, &goose.GoFunc{RunTx: func(ctx context.Context, tx *sql.Tx) error {
			if loses {
				if _, err := other.ForceUnlock(ctx, lockName); err != nil {
					return err
				}
			}
			if _, err := tx.ExecContext(ctx, `INSERT INTO runs (version) VALUES (5)`); err != nil {
				return err
			}
			return l.Lease().Guard(ctx, tx)
		}}, nil)
		p := mustProvider(t, d.Engine(), db, bySession, l, 0, goose.WithGoMigrations(step), goose.WithExcludeVersions([]int64{slow}))
		_, err := p.Up(t.Context())
		if !errors.Is(err, sqllock.ErrLost) {
			t.Errorf("goose says %v", err)
		}
		checkRuns(t, db, 1, 2, 4)
		loses = false
		if _, err := p.Up(t.Context()); err != nil {
			t.Error(err)
		}
		checkRuns(t, db, 1, 2, 4, 5)
		if l.Lease() != nil {
			t.Error("there is a lease while nothing migrates")
		}
	})
}
