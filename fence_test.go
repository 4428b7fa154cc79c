package sqllock_test

import (
	"context"
	"database/sql"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/sqllock/sqllock"
	"github.com/sqllock/sqllock/internal/testdb"
	"github.com/sqllock/sqllock/lockmysql"
	"github.com/sqllock/sqllock/lockpg"
	"github.com/sqllock/sqllock/locksqlite"
	"github.com/sqllock/sqllock/migrations"
)

// fenceIn calls the Fence of an engine, with a table prefix.
func fenceIn(ctx context.Context, engine string, tx *sql.Tx, resource string, token int64) error {
	switch engine {
	case testdb.Postgres:
		return lockpg.FenceSQL(ctx, tx, resource, token, lockpg.TablePrefix("t_"))
	case testdb.SQLite:
		return locksqlite.Fence(ctx, tx, resource, token, locksqlite.TablePrefix("t_"))
	}
	return lockmysql.Fence(ctx, tx, resource, token, lockmysql.TablePrefix("t_"))
}

// fencing opens a database and returns a function that fences in a transaction.
func fencing(t *testing.T, engine string) (db *sql.DB, try func(resource string, token int64, commit bool) error) {
	t.Helper()
	db = testdb.New(t, engine).Open(t)
	if err := migrations.Up(t.Context(), withPrefix(engine, db, "t_")); err != nil {
		t.Fatal(err)
	}
	return db, func(resource string, token int64, commit bool) error {
		tx, err := db.BeginTx(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = tx.Rollback() }()
		if err := fenceIn(t.Context(), engine, tx, resource, token); err != nil || !commit {
			return err
		}
		return tx.Commit()
	}
}

func TestAFenceRefusesATokenThatIsLowerThanOneItHasSeen(t *testing.T) {
	for _, engine := range testdb.All() {
		t.Run(engine, func(t *testing.T) {
			_, try := fencing(t, engine)
			for _, step := range []struct {
				resource string
				token    int64
				commit   bool
				fenced   bool
			}{
				{"a", 5, true, false},
				{"a", 5, true, false}, // of the same term
				{"a", 4, true, true},
				{"A", 1, true, false}, // another resource
				{"a ", 1, true, false},
				{"a", 9, false, false}, // is rolled back
				{"a", 6, true, false},
				{"a", 5, true, true},
				{"a", 1 << 52, true, false},
				{"a", 6, true, true},
			} {
				err := try(step.resource, step.token, step.commit)
				if errors.Is(err, sqllock.ErrFenced) != step.fenced || err != nil && !step.fenced {
					t.Errorf("Fence(%q, %d) = %v, want fenced: %v", step.resource, step.token, err, step.fenced)
				}
			}
		})
	}
}

func TestAFenceRefusesWhatIsNoResourceOrNoToken(t *testing.T) {
	for _, engine := range testdb.All() {
		t.Run(engine, func(t *testing.T) {
			_, try := fencing(t, engine)
			for _, resource := range []string{"", "a\x00b", "\xff", strings.Repeat("x", 256)} {
				if err := try(resource, 1, true); !errors.Is(err, sqllock.ErrInvalidName) {
					t.Errorf("Fence(%q) = %v", resource, err)
				}
			}
			for _, token := range []int64{0, -1} {
				if err := try("a", token, true); !errors.Is(err, sqllock.ErrInvalidOption) {
					t.Errorf("Fence with token %d = %v", token, err)
				}
			}
		})
	}
}

// A late writer waits for the one who is writing, and is refused then.
func TestALateWriterWaitsForTheFenceAndIsRefused(t *testing.T) {
	for _, engine := range testdb.Engines() { // SQLite has one writer anyway
		t.Run(engine, func(t *testing.T) {
			db, try := fencing(t, engine)
			if err := try("a", 1, true); err != nil {
				t.Fatal(err)
			}
			tx, err := db.BeginTx(t.Context(), nil)
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = tx.Rollback() }()
			if err := fenceIn(t.Context(), engine, tx, "a", 7); err != nil {
				t.Fatal(err)
			}
			late := make(chan error, 1)
			go func() { late <- try("a", 6, true) }()
			select {
			case err := <-late:
				t.Fatalf("the late writer did not wait: %v", err)
			case <-time.After(200 * time.Millisecond):
			}
			if err := tx.Commit(); err != nil {
				t.Fatal(err)
			}
			if err := <-late; !errors.Is(err, sqllock.ErrFenced) {
				t.Errorf("the late writer got %v, want ErrFenced", err)
			}
		})
	}
}

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
