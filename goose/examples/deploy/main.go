// Command deploy is a service that migrates its database when it starts. Start as many
// as you like at once: one migrates, the others wait for it, and all begin to serve.
//
//	GOWORK=off go run ./examples/deploy -dsn postgres://user@localhost/app
//	GOWORK=off go run ./examples/deploy -dsn 'user@tcp(localhost:3306)/app'
package main

import (
	"context"
	"database/sql"
	"embed"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"os/signal"
	"strings"
	"time"

	_ "github.com/go-sql-driver/mysql"
	_ "github.com/jackc/pgx/v5/stdlib"
	"github.com/pressly/goose/v3"

	"github.com/sqllock/sqllock"
	"github.com/sqllock/sqllock/driver"
	gooselock "github.com/sqllock/sqllock/goose"
	"github.com/sqllock/sqllock/lockmysql"
	"github.com/sqllock/sqllock/lockpg"
	"github.com/sqllock/sqllock/migrations"
)

//go:embed migrations
var embedded embed.FS

func main() {
	dsn := flag.String("dsn", "", "a URL of Postgres, or a DSN of MySQL or MariaDB")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx, *dsn)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "deploy:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, dsn string) (err error) {
	name, dialect := "mysql", goose.DialectMySQL
	if strings.HasPrefix(dsn, "postgres") {
		name, dialect = "pgx", goose.DialectPostgres
	}
	db, err := sql.Open(name, dsn)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	applied, err := migrate(ctx, dialect, db)
	if err != nil {
		return fmt.Errorf("migrate: %w", err)
	}
	fmt.Printf("replica %d: applied %d migrations, serving\n", os.Getpid(), applied)
	return nil // here it would serve
}

// migrate brings the database up to date and returns how many migrations it has applied
// for that: 0 if somebody else has.
func migrate(ctx context.Context, dialect goose.Dialect, db *sql.DB) (applied int, err error) {
	database := target(dialect, db)
	if err := migrations.Up(ctx, database); err != nil { // the tables of the lock
		return 0, err
	}
	locks, err := sqllock.NewUnique(ctx, database, nil)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, closeLocks(locks)) }()
	locker, err := gooselock.New(locks, "deploy")
	if err != nil {
		return 0, err
	}
	files, err := fs.Sub(embedded, "migrations")
	if err != nil {
		return 0, err
	}
	provider, err := goose.NewProvider(dialect, db, files, goose.WithSessionLocker(locker))
	if err != nil {
		return 0, err
	}
	// If the lease is lost, this ctx ends, and goose with it.
	err = locker.Do(ctx, func(ctx context.Context) error {
		results, err := provider.Up(ctx)
		applied = len(results)
		return err
	})
	return applied, err
}

// closeLocks does not look at the context of the migrations, which may have ended.
func closeLocks(locks *sqllock.Locker) error {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	return locks.Close(ctx)
}

func target(dialect goose.Dialect, db *sql.DB) interface {
	driver.UniqueDatabase
	driver.Migratable
} {
	if dialect == goose.DialectPostgres {
		return lockpg.DB(db)
	}
	return lockmysql.DB(db)
}
