package sqllock_test

import (
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/sqllock/sqllock"
	"github.com/sqllock/sqllock/driver"
	"github.com/sqllock/sqllock/internal/testdb"
)

func TestWhereFunctionsAreNotForEverybodyTheGuideNamesThem(t *testing.T) {
	t.Parallel()
	onEngines(t, func(name string) bool { return name == testdb.Postgres }, func(t *testing.T, e *engine, d *testdb.Database) {
		r := newRoles(t, e, d)
		mustExec(t, r.admin, `REVOKE EXECUTE ON ALL FUNCTIONS IN SCHEMA public FROM PUBLIC`)
		if err := r.everything(t, r.with(t, grantsOf(t, e, "everything")...)); err != nil {
			t.Errorf("unique mode, which calls no function: %v", err)
		}
		grants, functions := grantsOf(t, e, "sessions"), grantsOf(t, e, "functions", "sessions")
		if err := r.sessions(t, r.with(t, slices.Concat(grants, functions)...)); err != nil {
			t.Errorf("with all of the grants for sessions: %v", err)
		}
		for what, fewer := range without(t, functions) {
			if err := r.sessions(t, r.with(t, slices.Concat(grants, fewer)...)); !denied(err) {
				t.Errorf("without %s: %v", what, err)
			}
		}
	})
}

func TestARoleOfTheSessionModesNeedsWhatTheGuideGrantsAndNoMore(t *testing.T) {
	t.Parallel()
	onEachServer(t, func(t *testing.T, e *engine, d *testdb.Database) {
		r := newRoles(t, e, d)
		grants := grantsOf(t, e, "sessions")
		if err := r.sessions(t, r.with(t, grants...)); err != nil {
			t.Errorf("with all of the grants: %v", err)
		}
		for what, fewer := range without(t, grants) {
			if err := r.sessions(t, r.with(t, fewer...)); !denied(err) && !errors.Is(err, sqllock.ErrSchema) {
				t.Errorf("without %s: %v", what, err)
			}
		}
	})
}

// sessions is all that can be done in the modes that keep locks in sessions, by a
// role whose rights may not be enough: it returns the first error.
func (r *roles) sessions(t *testing.T, db *sql.DB) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	reaper := &sqllock.ReaperOptions{Off: true, Retention: time.Second}
	forUpdate, err := sqllock.NewForUpdate(ctx, r.e.open(db).(driver.ForUpdateDatabase), &sqllock.ForUpdateOptions{Reaper: reaper})
	if err != nil {
		return err
	}
	defer closeSoon(forUpdate)
	advisory, err := sqllock.NewAdvisory(ctx, r.e.open(db).(driver.AdvisoryDatabase), &sqllock.AdvisoryOptions{Reaper: reaper})
	if err != nil {
		return err
	}
	defer closeSoon(advisory)
	if err := r.inTransaction(ctx, db, forUpdate); err != nil {
		return err
	}
	for _, l := range []*sqllock.Locker{forUpdate, advisory} {
		if err := r.session(ctx, db, l); err != nil {
			return err
		}
	}
	time.Sleep(1100 * time.Millisecond) // longer than the retention
	for _, l := range []*sqllock.Locker{forUpdate, advisory} {
		if report, err := l.Reaper().Reap(ctx); err != nil || report.Purged == 0 {
			return fmt.Errorf("Reap = %+v, %w", report, err)
		}
	}
	return nil
}

func (r *roles) session(ctx context.Context, db *sql.DB, l *sqllock.Locker) error {
	name := rand.Text()
	lease, err := l.Lock(ctx, name, sqllock.Value([]byte("value")))
	if err != nil {
		return err
	}
	if _, err := l.TryLock(ctx, name); !errors.Is(err, sqllock.ErrHeld) {
		return fmt.Errorf("TryLock of a held name: %w", err)
	}
	if err := r.look(ctx, l, name); err != nil {
		return err
	}
	if err := lease.InTx(ctx, nil, func(context.Context, *sql.Tx) error { return nil }); err != nil {
		return err
	}
	if err := lease.Unlock(ctx); err != nil {
		return err
	}
	reader, err := l.RLock(ctx, name)
	if err != nil {
		return err
	}
	if err := renewed(reader); err != nil {
		return err
	}
	return reader.Unlock(ctx)
}

func (r *roles) inTransaction(ctx context.Context, db *sql.DB, l *sqllock.Locker) error {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }()
	if _, err := l.LockTx(ctx, tx, rand.Text()); err != nil {
		return err
	}
	return tx.Commit()
}
