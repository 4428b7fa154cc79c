package sqllock_test

import (
	"context"
	"database/sql"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/sqllock/sqllock"
	"github.com/sqllock/sqllock/internal/testdb"
)

// The functions below are what the guarantees show.

var errLate = errors.New("somebody else has the lock by now")

func guaranteesGuard(ctx context.Context, locks *sqllock.Locker) error {
	err := locks.Do(ctx, "invoice/42", func(ctx context.Context, lease *sqllock.Lease) error {
		return lease.InTx(ctx, nil, func(ctx context.Context, tx *sql.Tx) error {
			_, err := tx.ExecContext(ctx, `UPDATE invoice SET state = 'sent' WHERE id = 42`)
			return err
		})
	})
	return err
}

func guaranteesCheck(ctx context.Context, locks *sqllock.Locker, elsewhere *sql.DB, update string) error {
	err := locks.Do(ctx, "invoice/42", func(ctx context.Context, lease *sqllock.Lease) error {
		res, err := elsewhere.ExecContext(ctx, update, "sent", lease.Token(), 42, lease.Token())
		if err != nil {
			return err
		}
		if n, err := res.RowsAffected(); err != nil || n == 1 {
			return err
		}
		return errLate // the row has a higher token: this is a former holder
	})
	return err
}

func TestTheSnippetsOfTheGuaranteesWork(t *testing.T) {
	source := readDoc(t, "snippets_test.go")
	for _, b := range docBlocks(t, guarantees, "go") {
		if indented := "\t" + strings.ReplaceAll(strings.TrimSuffix(b.text, "\n"), "\n", "\n\t") + "\n"; !strings.Contains(source, indented) {
			t.Errorf("this snippet is not in snippets_test.go:\n%s", b.text)
		}
	}
	onEach(t, func(t *testing.T, e *engine, d *testdb.Database) {
		db := d.Open(t)
		mustExec(t, db, `CREATE TABLE invoice (id BIGINT PRIMARY KEY, state VARCHAR(20), token BIGINT NOT NULL)`)
		mustExec(t, db, `INSERT INTO invoice VALUES (42, 'new', 0)`)
		l := newLocks(t, e.open(db), sqllock.UniqueOptions{})
		if err := guaranteesGuard(t.Context(), l); err != nil {
			t.Error(err)
		}
		if got := firstColumn(t, db, `SELECT state FROM invoice`); !slices.Equal(got, []string{"sent"}) {
			t.Errorf("the state is %q", got)
		}
		update := sqlOf(t, e.name, "UPDATE invoice")
		if err := guaranteesCheck(t.Context(), l, db, update); err != nil {
			t.Error(err)
		}
		mustExec(t, db, `UPDATE invoice SET token = 9000000000000000`)
		if err := guaranteesCheck(t.Context(), l, db, update); !errors.Is(err, errLate) {
			t.Errorf("with a token that is too low: %v", err)
		}
	})
}
