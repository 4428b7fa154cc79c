package recipes

import (
	"context"
	"database/sql"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	_ "github.com/jackc/pgx/v5/stdlib"
	"github.com/jmoiron/sqlx"
	"github.com/uptrace/bun"
	"github.com/uptrace/bun/dialect/pgdialect"
	"gorm.io/driver/postgres"
	"gorm.io/gorm"

	"github.com/sqllock/sqllock"
	"github.com/sqllock/sqllock/internal/testdb"
	"github.com/sqllock/sqllock/lockpg"
	"github.com/sqllock/sqllock/migrations"
	"github.com/sqllock/sqllock/recipes/sqlc"
)

func TestMain(m *testing.M) { testdb.Main(m) }

// recipe writes an invoice under a lease.
type recipe func(ctx context.Context, lease *sqllock.Lease) error

// recipesOn returns all recipes on a database: three for each framework, in the order guard, in a
// transaction, unlock in a transaction.
func recipesOn(t *testing.T, db *sql.DB) map[string][3]recipe {
	t.Helper()
	g, err := gorm.Open(postgres.New(postgres.Config{Conn: db}), &gorm.Config{})
	if err != nil {
		t.Fatal(err)
	}
	b, x, q := bun.NewDB(db, pgdialect.New()), sqlx.NewDb(db, "pgx"), sqlc.New(db)
	return map[string][3]recipe{
		"gorm": {
			func(ctx context.Context, l *sqllock.Lease) error { return gormGuard(ctx, g, l) },
			func(ctx context.Context, l *sqllock.Lease) error { return gormInTx(ctx, g, l) },
			func(ctx context.Context, l *sqllock.Lease) error { return gormUnlockInTx(ctx, g, l) },
		},
		"bun": {
			func(ctx context.Context, l *sqllock.Lease) error { return bunGuard(ctx, b, l) },
			func(ctx context.Context, l *sqllock.Lease) error { return bunInTx(ctx, b, l) },
			func(ctx context.Context, l *sqllock.Lease) error { return bunUnlockInTx(ctx, b, l) },
		},
		"sqlx": {
			func(ctx context.Context, l *sqllock.Lease) error { return sqlxGuard(ctx, x, l) },
			func(ctx context.Context, l *sqllock.Lease) error { return sqlxInTx(ctx, x, l) },
			func(ctx context.Context, l *sqllock.Lease) error { return sqlxUnlockInTx(ctx, x, l) },
		},
		"sqlc": {
			func(ctx context.Context, l *sqllock.Lease) error { return sqlcGuard(ctx, db, q, l) },
			func(ctx context.Context, l *sqllock.Lease) error { return sqlcInTx(ctx, q, l) },
			func(ctx context.Context, l *sqllock.Lease) error { return sqlcUnlockInTx(ctx, q, l) },
		},
		"ent": {
			func(ctx context.Context, l *sqllock.Lease) error { return entGuard(ctx, db, l) },
			entInTx,
			entUnlockInTx,
		},
	}
}

func state(t *testing.T, db *sql.DB) (state string) {
	t.Helper()
	if err := db.QueryRowContext(t.Context(), `SELECT state FROM invoice WHERE id = 42`).Scan(&state); err != nil {
		t.Fatal(err)
	}
	return state
}

func TestEachRecipeWritesUnderItsLeaseOnly(t *testing.T) {
	for _, engine := range testdb.Engines() {
		if engine != testdb.Postgres {
			continue
		}
		db := testdb.New(t, engine).Open(t)
		if err := migrations.Up(t.Context(), lockpg.DB(db)); err != nil {
			t.Fatal(err)
		}
		locks, err := sqllock.NewUnique(t.Context(), lockpg.DB(db), &sqllock.UniqueOptions{TTL: time.Minute, Logger: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = locks.Close(context.Background()) }()
		if _, err := db.ExecContext(t.Context(), `CREATE TABLE invoice (id BIGINT PRIMARY KEY, state TEXT NOT NULL)`); err != nil {
			t.Fatal(err)
		}
		for framework, three := range recipesOn(t, db) {
			for i, what := range []string{"guard", "in a transaction", "unlock in a transaction"} {
				t.Run(framework+"/"+what, func(t *testing.T) { try(t, db, locks, three[i], i == 2) })
			}
		}
	}
}

// try runs a recipe as a holder, and as a former holder.
func try(t *testing.T, db *sql.DB, locks *sqllock.Locker, run recipe, unlocks bool) {
	name := "invoice/" + t.Name()
	for _, lost := range []bool{false, true} {
		if _, err := db.ExecContext(t.Context(), `DELETE FROM invoice`); err != nil {
			t.Fatal(err)
		}
		if _, err := db.ExecContext(t.Context(), `INSERT INTO invoice VALUES (42, 'new')`); err != nil {
			t.Fatal(err)
		}
		lease, err := locks.Lock(t.Context(), name)
		if err != nil {
			t.Fatal(err)
		}
		if lost { // behind the back of the Locker
			if _, err := db.ExecContext(t.Context(), `UPDATE sqllock_lock SET version = version + 1 WHERE name = $1`, name); err != nil {
				t.Fatal(err)
			}
		}
		err = run(t.Context(), lease)
		switch {
		case !lost && (err != nil || state(t, db) != "sent"):
			t.Errorf("as the holder: %v, %s", err, state(t, db))
		case lost && (!errors.Is(err, sqllock.ErrFenced) || state(t, db) != "new"):
			t.Errorf("as a former holder: %v, %s", err, state(t, db))
		case !lost && unlocks:
			next, err := locks.TryLock(t.Context(), name)
			if err != nil {
				t.Fatalf("the name is not free: %v", err)
			}
			_ = next.Unlock(t.Context())
			continue
		}
		_ = lease.Unlock(t.Context()) // it may be lost
	}
}

// A gorm.DB with PrepareStmt leaves a goroutine behind, so none is made here.
func TestATransactionOfGormIsFoundBelowPreparedStatements(t *testing.T) {
	for what, c := range map[string]struct {
		pool gorm.ConnPool
		want bool
	}{
		"plain":          {&sql.Tx{}, true},
		"prepared":       {&gorm.PreparedStmtTX{Tx: &sql.Tx{}}, true},
		"no transaction": {&sql.DB{}, false},
	} {
		got := gormTx(&gorm.DB{Statement: &gorm.Statement{ConnPool: c.pool}})
		if (got != nil) != c.want {
			t.Errorf("%s: %v", what, got)
		}
	}
}

func TestTheDocumentShowsTheRecipes(t *testing.T) {
	var source strings.Builder
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		source.Write(text)
	}
	text, err := os.ReadFile("../docs/recipes.md")
	if err != nil {
		t.Fatal(err)
	}
	blocks := regexp.MustCompile("(?ms)^```go\n(.*?)^```$").FindAllStringSubmatch(string(text), -1)
	if len(blocks) != 5 {
		t.Errorf("there are %d blocks", len(blocks))
	}
	for _, b := range blocks {
		for part := range strings.SplitSeq(strings.TrimSpace(b[1]), "\n\n") {
			if !strings.Contains(source.String(), part+"\n") {
				t.Errorf("this is not in the recipes:\n%s", part)
			}
		}
	}
}
