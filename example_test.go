package sqllock_test

import (
	"context"
	"database/sql"
	"errors"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/sqllock/sqllock"
	"github.com/sqllock/sqllock/lockmysql"
	"github.com/sqllock/sqllock/lockpg"
)

func readmeDo(ctx context.Context, db *sql.DB) error {
	locks, err := sqllock.NewUnique(ctx, lockmysql.DB(db), nil)
	if err != nil {
		return err
	}
	defer locks.Close(ctx)

	return locks.Do(ctx, "invoice/42", func(ctx context.Context, lease *sqllock.Lease) error {
		return lease.InTx(ctx, nil, func(ctx context.Context, tx *sql.Tx) error {
			_, err := tx.ExecContext(ctx, `UPDATE invoice SET sent = 1 WHERE id = 42`)
			return err
		})
	})
}

func readmeTryLock(ctx context.Context, pool *pgxpool.Pool, report func(context.Context) error) error {
	locks, err := sqllock.NewUnique(ctx, lockpg.Pool(pool), nil)
	if err != nil {
		return err
	}
	defer locks.Close(ctx)

	lease, err := locks.TryLock(ctx, "report/daily", sqllock.TTL(10*time.Second))
	if errors.Is(err, sqllock.ErrHeld) {
		return nil // somebody else does it
	}
	if err != nil {
		return err
	}
	defer lease.Unlock(ctx) // also when report panics, or ctx has ended

	work, cancel := lease.Bind(ctx) // ends with ctx or with the lease
	defer cancel()
	if err := report(work); err != nil {
		return err
	}
	return lease.Unlock(ctx) // says whether the lease was held until now
}

func readmeLockTx(ctx context.Context, db *sql.DB) error {
	locks, err := sqllock.NewForUpdate(ctx, lockmysql.DB(db), nil)
	if err != nil {
		return err
	}
	defer locks.Close(ctx)

	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback()
	if _, err := locks.LockTx(ctx, tx, "account/7"); err != nil {
		return err
	}
	if _, err := tx.ExecContext(ctx, `UPDATE account SET balance = balance - 10 WHERE id = 7`); err != nil {
		return err
	}
	return tx.Commit()
}

// The functions above are what the README shows, and must compile.
var _, _, _ = readmeDo, readmeTryLock, readmeLockTx

func TestTheSnippetsOfTheReadmeAreTheOnesThatCompile(t *testing.T) {
	readme, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	source, err := os.ReadFile("example_test.go")
	if err != nil {
		t.Fatal(err)
	}
	blocks := regexp.MustCompile("(?s)```go\n(.*?)```").FindAllStringSubmatch(string(readme), -1)
	if len(blocks) != 3 {
		t.Errorf("README has %d snippets of Go, 3 are known", len(blocks))
	}
	for _, block := range blocks {
		var code strings.Builder
		for line := range strings.Lines(block[1]) {
			if strings.TrimSpace(line) != "" {
				line = "\t" + line
			}
			code.WriteString(line)
		}
		if !strings.Contains(string(source), code.String()) {
			t.Errorf("this snippet of README is not in example_test.go:\n%s", block[1])
		}
	}
}
