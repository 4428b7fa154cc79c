package demo

import (
	"context"
	"database/sql"
	"fmt"
	"strings"
)

// DB is a *sql.DB that takes "?" for a value whatever the database, so that the
// statements of an example are the same on all.
type DB struct {
	*sql.DB
	text func(string) string
}

// Tx is a transaction of a DB.
type Tx struct {
	*sql.Tx
	text func(string) string
}

// OnSQLite returns a DB on a handle of SQLite, for the tests of an example.
func OnSQLite(db *sql.DB) *DB { return &DB{db, asIs} }

// Make runs the statements that make the tables of an example.
func (db *DB) Make(ctx context.Context, tables []string) error {
	for _, text := range tables {
		if _, err := db.ExecContext(ctx, text); err != nil {
			return fmt.Errorf("%s: %w", text, err)
		}
	}
	return nil
}

// handle opens a new handle.
func (h *home) handle() (*DB, error) {
	db, err := h.open()
	if err != nil {
		return nil, err
	}
	db.SetMaxOpenConns(conns)
	db.SetMaxIdleConns(conns)
	return &DB{db, h.text}, nil
}

// ExecContext is that of [sql.DB].
func (d *DB) ExecContext(ctx context.Context, text string, args ...any) (sql.Result, error) {
	return d.DB.ExecContext(ctx, d.text(text), args...)
}

// QueryContext is that of [sql.DB].
func (d *DB) QueryContext(ctx context.Context, text string, args ...any) (*sql.Rows, error) {
	return d.DB.QueryContext(ctx, d.text(text), args...)
}

// QueryRowContext is that of [sql.DB].
func (d *DB) QueryRowContext(ctx context.Context, text string, args ...any) *sql.Row {
	return d.DB.QueryRowContext(ctx, d.text(text), args...)
}

// InTx runs fn in a transaction, which is rolled back if fn returns an error.
func (d *DB) InTx(ctx context.Context, fn func(tx *Tx) error) error {
	tx, err := d.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }()
	if err := fn(&Tx{tx, d.text}); err != nil {
		return err
	}
	return tx.Commit()
}

// ExecContext is that of [sql.Tx].
func (t *Tx) ExecContext(ctx context.Context, text string, args ...any) (sql.Result, error) {
	return t.Tx.ExecContext(ctx, t.text(text), args...)
}

// asIs leaves a statement as it is.
func asIs(text string) string { return text }

// numbered writes $1, $2 and so on. No text of an example has a question mark in
// a string.
func numbered(text string) string {
	var b strings.Builder
	for i, part := range strings.Split(text, "?") {
		if i > 0 {
			fmt.Fprintf(&b, "$%d", i)
		}
		b.WriteString(part)
	}
	return b.String()
}
