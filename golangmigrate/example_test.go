package migratelock_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"log"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/golang-migrate/migrate/v4"
	"github.com/golang-migrate/migrate/v4/database/pgx/v5"
	"github.com/golang-migrate/migrate/v4/database/sqlite"
	"github.com/golang-migrate/migrate/v4/source/iofs"

	"github.com/sqllock/sqllock"
	migratelock "github.com/sqllock/sqllock/golangmigrate"
	"github.com/sqllock/sqllock/locksqlite"
	"github.com/sqllock/sqllock/migrations"
)

func readme(db *sql.DB, locks *sqllock.Locker, files fs.FS) (*migrate.Migrate, error) {
	inner, err := pgx.WithInstance(db, &pgx.Config{}) // or any other driver
	if err != nil {
		return nil, err
	}
	driver, err := migratelock.New(inner, locks, "deploy", sqllock.Wait(9*time.Minute))
	if err != nil {
		return nil, err
	}
	source, err := iofs.New(files, "migrations")
	if err != nil {
		return nil, err
	}
	m, err := migrate.NewWithInstance("iofs", source, "pgx5", driver)
	if err != nil {
		return nil, err
	}
	m.LockTimeout = 10 * time.Minute // more than Wait
	if err := m.Up(); err != nil && !errors.Is(err, migrate.ErrNoChange) {
		return nil, err
	}
	return m, nil
}

// A program that migrates an SQLite file, for which golang-migrate has no lock between processes.
func Example() {
	dir, err := os.MkdirTemp("", "migrate")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	ctx := context.Background()
	db, err := sql.Open("sqlite", "file:"+filepath.Join(dir, "locks.db")+"?_pragma=journal_mode(wal)")
	if err != nil {
		log.Fatal(err)
	}
	defer db.Close()
	if err := migrations.Up(ctx, locksqlite.DB(db)); err != nil { // the tables of the lock
		log.Fatal(err)
	}
	locks, err := sqllock.NewUnique(ctx, locksqlite.DB(db), nil)
	if err != nil {
		log.Fatal(err)
	}
	defer locks.Close(ctx)

	inner, err := new(sqlite.Sqlite).Open("sqlite://" + filepath.Join(dir, "app.db"))
	if err != nil {
		log.Fatal(err)
	}
	driver, err := migratelock.New(inner, locks, "deploy")
	if err != nil {
		log.Fatal(err)
	}
	source, err := iofs.New(fstest.MapFS{
		"1_invoice.up.sql": {Data: []byte(`CREATE TABLE invoice (id INTEGER)`)},
	}, ".")
	if err != nil {
		log.Fatal(err)
	}
	m, err := migrate.NewWithInstance("iofs", source, "sqlite", driver)
	if err != nil {
		log.Fatal(err)
	}
	defer m.Close()
	if err := m.Up(); err != nil {
		log.Fatal(err)
	}
	version, dirty, err := m.Version()
	fmt.Println(version, dirty, err)
	// Output:
	// 1 false <nil>
}

func TestTheReadmeShowsCodeThatCompiles(t *testing.T) {
	_ = readme // compiled here
	source, err := os.ReadFile("example_test.go")
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	blocks := regexp.MustCompile("(?ms)^```go\n(.*?)\n```$").FindAllStringSubmatch(string(text), -1)
	if len(blocks) != 1 {
		t.Errorf("there are %d blocks", len(blocks))
	}
	for _, b := range blocks {
		if indented := "\t" + strings.ReplaceAll(b[1], "\n", "\n\t") + "\n"; !strings.Contains(string(source), indented) {
			t.Errorf("this is not in example_test.go:\n%s", b[1])
		}
	}
}
