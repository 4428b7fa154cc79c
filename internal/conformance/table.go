package conformance

import (
	"context"
	"database/sql"
	"fmt"
)

// Table reaches into the table of locks past the library, as an operator or an
// accident would.
type Table struct {
	// Row returns what the row of a name says. It returns sql.ErrNoRows if there
	// is none.
	Row func(ctx context.Context, db *sql.DB, name string) (Row, error)
	// Expire makes the lease of a name one that has expired.
	Expire func(ctx context.Context, db *sql.DB, name string) error
	// ExpireTogether makes the leases of those who hold a name together ones that have expired.
	ExpireTogether func(ctx context.Context, db *sql.DB, name string) error
	// Stretch makes the lease of a name one that expires in an hour.
	Stretch func(ctx context.Context, db *sql.DB, name string) error
	// Pin locks the row of a name, or what is nearest to that, in a transaction
	// that Unpin ends. It may change nothing.
	Pin   func(ctx context.Context, conn *sql.Conn, name string) error
	Unpin func(ctx context.Context, conn *sql.Conn) error
	// Succeed begins the next term of a name, with the next token, in the transaction of
	// Pin, and commits it.
	Succeed func(ctx context.Context, conn *sql.Conn, name string) error
	// Waiters is how many claims there are for a name.
	Waiters func(ctx context.Context, db *sql.DB, name string) (int, error)
	// LocksRows says that Pin leaves other rows alone.
	LocksRows bool

	Schema
}

// Schema damages the tables. NewerSchema makes them look like those of a later
// version of the library that this one cannot work with, OlderSchema like those of
// an earlier, and DropTables takes them away.
type Schema struct {
	NewerSchema, OlderSchema, DropTables func(ctx context.Context, db *sql.DB) error
}

// Row is the row of a name.
type Row struct {
	Held         bool // by somebody, expired or not
	Owner, Label string
	Version      int64
	Holds        int
	AcquiredAt   int64 // microseconds since the epoch
	ExpiresAt    int64
}

// LeaseTable is the table of the unique mode as package migrations makes it, with
// the default prefix. parameter is how the driver writes the first parameter of a
// statement, begin what begins a transaction and lockRow what locks a row in it.
func LeaseTable(parameter, begin, lockRow string) *Table {
	return &Table{
		LocksRows: lockRow != "",
		Row: func(ctx context.Context, db *sql.DB, name string) (r Row, err error) {
			err = db.QueryRowContext(ctx, `
				SELECT acq IS NOT NULL, coalesce(owner, ''), coalesce(label, ''), version, holds, since, expires_at
				FROM sqllock_lock WHERE name = `+parameter, name).
				Scan(&r.Held, &r.Owner, &r.Label, &r.Version, &r.Holds, &r.AcquiredAt, &r.ExpiresAt)
			return r, err
		},
		Waiters: func(ctx context.Context, db *sql.DB, name string) (n int, err error) {
			err = db.QueryRowContext(ctx, `SELECT count(*) FROM sqllock_claim WHERE state = 0 AND name = `+parameter, name).Scan(&n)
			return n, err
		},
		Expire: updateRow(`expires_at = 1`, parameter),
		ExpireTogether: func(ctx context.Context, db *sql.DB, name string) error {
			_, err := db.ExecContext(ctx, `UPDATE sqllock_claim SET expires_at = 1 WHERE state = 1 AND name = `+parameter, name)
			return err
		},
		Stretch: updateRow(`expires_at = expires_at + 3600000000`, parameter),
		Pin: func(ctx context.Context, conn *sql.Conn, name string) error {
			if _, err := conn.ExecContext(ctx, begin); err != nil || lockRow == "" {
				return err
			}
			var n int
			return conn.QueryRowContext(ctx, lockRow, name).Scan(&n)
		},
		Unpin: func(ctx context.Context, conn *sql.Conn) error {
			_, err := conn.ExecContext(ctx, `ROLLBACK`)
			return err
		},
		Succeed: func(ctx context.Context, conn *sql.Conn, name string) error {
			if _, err := conn.ExecContext(ctx, `UPDATE sqllock_lock SET version = version + 1 WHERE name = `+parameter, name); err != nil {
				return err
			}
			_, err := conn.ExecContext(ctx, `COMMIT`)
			return err
		},
		Schema: schema(`DROP VIEW sqllock_locks`, `DROP TABLE sqllock_lock`),
	}
}

// updateRow is how to change the row of a name.
func updateRow(set, parameter string) func(context.Context, *sql.DB, string) error {
	return func(ctx context.Context, db *sql.DB, name string) error {
		res, err := db.ExecContext(ctx, `UPDATE sqllock_lock SET `+set+` WHERE name = `+parameter, name)
		if err != nil {
			return err
		}
		if n, err := res.RowsAffected(); err != nil || n != 1 {
			return fmt.Errorf("%d rows of %q, %w", n, name, err)
		}
		return nil
	}
}

// schema is how to damage the tables that package migrations makes.
func schema(drop ...string) Schema {
	exec := func(texts ...string) func(context.Context, *sql.DB) error {
		return func(ctx context.Context, db *sql.DB) error {
			for _, text := range texts {
				if _, err := db.ExecContext(ctx, text); err != nil {
					return err
				}
			}
			return nil
		}
	}
	return Schema{
		NewerSchema: exec(`UPDATE sqllock_meta SET schema_version = 99990101000001, compatible_from = 99990101000001`),
		OlderSchema: exec(`UPDATE sqllock_meta SET schema_version = 1, compatible_from = 1`),
		DropTables:  exec(drop...),
	}
}

// tables is how to damage the tables of the mode.
func (e *env) tables() Schema {
	if e.inSessions() {
		return schema(`DROP TABLE sqllock_term`, `DROP TABLE sqllock_pin`)
	}
	return e.h.Table.Schema
}

// locksFile reports that who writes locks the whole database.
func (e *env) locksFile() bool { return e.h.Table != nil && !e.h.Table.LocksRows }

// row reads the row of a name.
func (e *env) row(name string) Row {
	e.Helper()
	r, err := e.h.Table.Row(e.ctx(), e.handle(), name)
	if err != nil {
		e.Fatalf("row of %q: %v", name, err)
	}
	return r
}

// expire makes the lease of a name one that has expired.
func (e *env) expire(name string) {
	e.Helper()
	if err := e.h.Table.Expire(e.ctx(), e.handle(), name); err != nil {
		e.Fatalf("expire %q: %v", name, err)
	}
}
