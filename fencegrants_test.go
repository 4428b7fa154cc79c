package sqllock_test

import (
	"database/sql"
	"testing"

	"github.com/sqllock/sqllock/internal/testdb"
	"github.com/sqllock/sqllock/lockmysql"
	"github.com/sqllock/sqllock/lockpg"
)

func TestARoleThatFencesNeedsTheTableOfFencesOnly(t *testing.T) {
	t.Parallel()
	onEachServer(t, func(t *testing.T, e *engine, d *testdb.Database) {
		r := newRoles(t, e, d)
		grants := grantsOf(t, e, "fence")
		if err := fenceOnce(t, e, r.with(t, grants...)); err != nil {
			t.Error(err)
		}
		for what, fewer := range without(t, grants) {
			if err := fenceOnce(t, e, r.with(t, fewer...)); err == nil {
				t.Errorf("without %s Fence succeeds", what)
			}
		}
	})
}

// fenceOnce lets a token pass twice.
func fenceOnce(t *testing.T, e *engine, db *sql.DB) error {
	t.Helper()
	for range 2 {
		tx, err := db.BeginTx(t.Context(), nil)
		if err != nil {
			return err
		}
		defer func() { _ = tx.Rollback() }()
		if e.name == testdb.Postgres {
			err = lockpg.FenceSQL(t.Context(), tx, "resource", 1)
		} else {
			err = lockmysql.Fence(t.Context(), tx, "resource", 1)
		}
		if err != nil {
			return err
		}
		if err := tx.Commit(); err != nil {
			return err
		}
	}
	return nil
}
