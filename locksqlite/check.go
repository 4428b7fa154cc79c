package locksqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/sqllock/sqllock/driver"
)

// oldest is the version that brought RETURNING (3.35), STRICT (3.37) and the
// JSON functions as part of every build.
var oldest = [2]int{3, 38}

// check finds what is wrong before any SQL.
func (d *Database) check() error {
	if d == nil || d.db == nil {
		return driver.NilError("*sql.DB")
	}
	if t := fmt.Sprintf("%T", d.db.Driver()); isForeign(t) {
		return fmt.Errorf("%w: %s is not a driver of SQLite", driver.ErrInvalidOption, t)
	}
	return errors.Join(d.problem, driver.CheckIdentifier("table prefix", d.prefix))
}

func isForeign(driverType string) bool {
	return slices.ContainsFunc([]string{"pgx", "stdlib.Driver", "pq.", "postgres", "mysql"}, func(other string) bool {
		return strings.Contains(strings.ToLower(driverType), strings.ToLower(other))
	})
}

// closedHandle says in our words that the handle is closed, which database/sql
// tells only by text.
func closedHandle(err error) error {
	if err.Error() == textClosed {
		return fmt.Errorf("%w: the handle is closed: %w", driver.ErrInvalidOption, err)
	}
	return err
}

// inspect finds out whether the database can be trusted with locks.
func (e *engine) inspect(ctx context.Context, conn *sql.Conn, d *Database) error {
	texts := e.texts
	e.info = driver.Info{MaxConns: d.db.Stats().MaxOpenConnections}
	version, err := serverVersion(ctx, conn, texts)
	if err != nil {
		return err
	}
	e.info.Server = "SQLite " + version
	if err := checkIsolation(ctx, conn, texts); err != nil {
		return err
	}
	f, err := checkShared(ctx, conn, texts, e.info.MaxConns)
	if err != nil {
		return err
	}
	e.file = f
	if e.database, err = checkTables(ctx, conn, texts, d.prefix); err != nil {
		return err
	}
	e.info.Database = e.database
	if err := impatient(ctx, conn, func(ctx context.Context, conn *sql.Conn) error {
		return checkWritable(ctx, conn, texts)
	}); err != nil {
		return err
	}
	if f.path == "" {
		e.info.Warnings = []string{"the database is in memory or temporary: its locks hold within this process and end with its connection"}
		return nil
	}
	if err := f.check(ctx, conn); err != nil {
		return fmt.Errorf("%w: %w", driver.ErrUnsupported, err)
	}
	e.info.Warnings, err = warnings(ctx, conn, texts)
	return err
}

// serverVersion refuses other products and versions that are too old.
func serverVersion(ctx context.Context, conn *sql.Conn, texts map[string]string) (string, error) {
	var version string
	if err := conn.QueryRowContext(ctx, texts["server"]).Scan(&version); err != nil {
		return "", otherProduct(ctx, conn, texts, err)
	}
	var v [2]int
	if _, err := fmt.Sscanf(version, "%d.%d", &v[0], &v[1]); err != nil {
		return "", fmt.Errorf("%w: SQLite version %q", driver.ErrUnsupported, version)
	}
	if v[0] < oldest[0] || v[0] == oldest[0] && v[1] < oldest[1] {
		return "", fmt.Errorf("%w: SQLite %s is older than %d.%d", driver.ErrUnsupported, version, oldest[0], oldest[1])
	}
	return version, nil
}

// otherProduct names the database that a handle reaches if it is not SQLite.
func otherProduct(ctx context.Context, conn *sql.Conn, texts map[string]string, cause error) error {
	var version string
	if conn.QueryRowContext(ctx, texts["product"]).Scan(&version) != nil {
		return cause
	}
	product, use := "MySQL", "lockmysql"
	switch {
	case strings.Contains(version, "PostgreSQL") || strings.Contains(version, "CockroachDB"):
		product, use = "PostgreSQL", "lockpg"
	case strings.Contains(version, "MariaDB"):
		product = "MariaDB"
	}
	return fmt.Errorf("%w: the handle is not of SQLite but of %s %q, which is for %s.DB",
		driver.ErrInvalidOption, product, version, use)
}

// checkIsolation refuses connections that read what others have not committed, as SQLite lets those
// do that share a cache. A grant that is undone after all would be believed.
func checkIsolation(ctx context.Context, conn *sql.Conn, texts map[string]string) error {
	var uncommitted int
	if err := conn.QueryRowContext(ctx, texts["isolation"]).Scan(&uncommitted); err != nil {
		return err
	}
	if uncommitted != 0 {
		return fmt.Errorf("%w: read_uncommitted is on: a connection that shares its cache would read grants that may be undone yet; "+
			"remove PRAGMA read_uncommitted from the DSN, or from what opens connections", driver.ErrUnsupported)
	}
	return nil
}

// checkShared refuses a database that each connection, or each process, has for itself:
// two could hold one name. It returns the file of the database.
func checkShared(ctx context.Context, conn *sql.Conn, texts map[string]string, maxConns int) (*file, error) {
	var path string
	if err := conn.QueryRowContext(ctx, texts["file"]).Scan(&path); err != nil {
		return nil, err
	}
	if path == "" && maxConns != 1 {
		return nil, fmt.Errorf("%w: the database is in memory or temporary, so that each connection may have one of its own: "+
			"use a file, or call SetMaxOpenConns(1) on the handle", driver.ErrUnsupported)
	}
	return openFile(path)
}

// checkWritable takes the write lock for a moment. That somebody else has it
// says that the database can be written.
func checkWritable(ctx context.Context, conn *sql.Conn, texts map[string]string) error {
	_, err := conn.ExecContext(ctx, texts["writable"])
	switch {
	case err == nil || classify(err) == driver.Again:
		return nil
	case resultCode(err) == codeReadOnly || strings.Contains(err.Error(), "readonly"):
		return fmt.Errorf("%w: the database is read-only: %w", driver.ErrUnsupported, err)
	}
	return err
}

// checkTables refuses tables that are missing or made for another version of the
// library. It returns the id of the database.
func checkTables(ctx context.Context, conn *sql.Conn, texts map[string]string, prefix string) (string, error) {
	var found int
	if err := conn.QueryRowContext(ctx, texts["tables"], prefix+"lock", prefix+"meta").Scan(&found); err != nil {
		return "", err
	}
	if found < 2 {
		return "", fmt.Errorf("%w: table %q does not exist; create it with migrations.Up or \"sqllock migrate up\"",
			driver.ErrSchema, prefix+"lock")
	}
	var version, compatibleFrom int64
	var id []byte
	if err := conn.QueryRowContext(ctx, texts["meta"]).Scan(&version, &compatibleFrom, &id); errors.Is(err, sql.ErrNoRows) {
		return "", fmt.Errorf("%w: table %q is empty", driver.ErrSchema, prefix+"meta")
	} else if err != nil {
		return "", err
	}
	return string(id), driver.CheckSchema(version, compatibleFrom, SchemaVersion)
}

// warnings tells what makes the locks slow or the file fragile.
func warnings(ctx context.Context, conn *sql.Conn, texts map[string]string) ([]string, error) {
	var journal string
	if err := conn.QueryRowContext(ctx, queryJournal).Scan(&journal); err != nil {
		return nil, err
	}
	var synchronous int
	if err := conn.QueryRowContext(ctx, texts["synchronous"]).Scan(&synchronous); err != nil {
		return nil, err
	}
	var w []string
	switch strings.ToLower(journal) {
	case "wal":
	case "off", "memory":
		w = append(w, "journal_mode is "+journal+": a process that is killed can leave the database file damaged; use wal")
	default:
		w = append(w, "journal_mode is "+journal+": readers and writers keep each other waiting; use wal")
	}
	if synchronous == 0 {
		w = append(w, "synchronous is off: a power failure can leave the database file damaged; use normal or full")
	}
	return w, nil
}

// whileBusy calls fn until it does anything but find the database busy, for a
// few seconds at most: opening the first connection can collide with one that
// switches the journal mode.
func whileBusy(ctx context.Context, fn func() error) error {
	const patience = 5 * time.Second
	for start := time.Now(); ; {
		err := fn()
		if err == nil || classify(err) != driver.Again || time.Since(start) > patience {
			return err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%w: %w", context.Cause(ctx), err)
		case <-time.After(5*time.Millisecond + rand.N(20*time.Millisecond)):
		}
	}
}
