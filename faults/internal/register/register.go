// Package register has the registers that the locks of a fault run protect. A client
// reads a number and writes its successor. Each accepted write adds a line to a log in
// the same transaction. So it is known afterwards which writes were done, and in which
// order.
//
//   - The fenced register compares the token in each statement.
//   - The guarded one is written in a transaction that guards the lease.
//   - The plain one accepts every write. It shows that the faults do harm.
package register

import (
	"context"
	"database/sql"
	"strconv"
	"strings"
)

// The registers by name.
const (
	Fenced  = "fenced"
	Guarded = "guarded"
	Plain   = "plain"
)

// tables are made one statement at a time.
var tables = []string{
	`CREATE TABLE fault_register (kind VARCHAR(16) NOT NULL, name VARCHAR(64) NOT NULL, token BIGINT NOT NULL, n BIGINT NOT NULL, PRIMARY KEY (kind, name))`,
	`CREATE TABLE fault_write (id VARCHAR(64) NOT NULL PRIMARY KEY, kind VARCHAR(16) NOT NULL, name VARCHAR(64) NOT NULL, token BIGINT NOT NULL, n BIGINT NOT NULL)`,
}

const (
	insert   = `INSERT INTO fault_register (kind, name, token, n) VALUES (?, ?, 0, 0)`
	announce = `UPDATE fault_register SET token = ? WHERE kind = ? AND name = ? AND token <= ?`
	read     = `SELECT n FROM fault_register WHERE kind = ? AND name = ?`
	fenced   = `UPDATE fault_register SET n = ? WHERE kind = ? AND name = ? AND token = ?`
	guarded  = `UPDATE fault_register SET n = ?, token = ? WHERE kind = ? AND name = ?`
	plain    = `UPDATE fault_register SET n = n + 1, token = ? WHERE kind = ? AND name = ?`
	note     = `INSERT INTO fault_write (id, kind, name, token, n) VALUES (?, ?, ?, ?, ?)`
	writes   = `SELECT id, kind, name, token, n FROM fault_write ORDER BY kind, name, n, id`
	final    = `SELECT kind, name, n FROM fault_register`
)

// Registers are the registers on a database. It is safe for concurrent use.
type Registers struct {
	db     *sql.DB
	dollar bool
}

// On returns the registers on a handle of the named driver.
func On(db *sql.DB, driver string) *Registers {
	return &Registers{db: db, dollar: driver == "pgx" || driver == "postgres"}
}

// q writes the parameters of a statement as the driver wants them.
func (r *Registers) q(statement string) string {
	if !r.dollar {
		return statement
	}
	parts := strings.Split(statement, "?")
	var b strings.Builder
	for i, part := range parts[:len(parts)-1] {
		b.WriteString(part + "$" + strconv.Itoa(i+1))
	}
	return b.String() + parts[len(parts)-1]
}

// Create makes the tables, and the registers for each name.
func (r *Registers) Create(ctx context.Context, names ...string) error {
	for _, statement := range tables {
		if _, err := r.db.ExecContext(ctx, statement); err != nil {
			return err
		}
	}
	for _, name := range names {
		for _, kind := range []string{Fenced, Guarded, Plain} {
			if _, err := r.db.ExecContext(ctx, r.q(insert), kind, name); err != nil {
				return err
			}
		}
	}
	return nil
}

// Announce announces a token to the fenced register. It reports whether the register
// knows no higher token.
func (r *Registers) Announce(ctx context.Context, name string, token int64) (bool, error) {
	res, err := r.db.ExecContext(ctx, r.q(announce), token, Fenced, name, token)
	return one(res, err)
}

// Read returns the value of the fenced register.
func (r *Registers) Read(ctx context.Context, name string) (n int64, err error) {
	err = r.db.QueryRowContext(ctx, r.q(read), Fenced, name).Scan(&n)
	return n, err
}

// Write sets the fenced register to n, if token is the one that was announced last.
func (r *Registers) Write(ctx context.Context, id, name string, token, n int64) (accepted bool, err error) {
	err = r.inTx(ctx, func(tx *sql.Tx) error {
		res, err := tx.ExecContext(ctx, r.q(fenced), n, Fenced, name, token)
		if accepted, err = one(res, err); err != nil || !accepted {
			return err
		}
		_, err = tx.ExecContext(ctx, r.q(note), id, Fenced, name, token, n)
		return err
	})
	return accepted && err == nil, err
}

// Add adds one to the guarded register, without any check of its own: it reads, calls
// between, and writes the successor.
func (r *Registers) Add(ctx context.Context, tx *sql.Tx, id, name string, token int64, between func()) (n int64, err error) {
	if err := tx.QueryRowContext(ctx, r.q(read), Guarded, name).Scan(&n); err != nil {
		return 0, err
	}
	between()
	n++
	if _, err := tx.ExecContext(ctx, r.q(guarded), n, token, Guarded, name); err != nil {
		return 0, err
	}
	_, err = tx.ExecContext(ctx, r.q(note), id, Guarded, name, token, n)
	return n, err
}

// Plain adds one to the register that nothing protects.
func (r *Registers) Plain(ctx context.Context, id, name string, token int64) error {
	return r.inTx(ctx, func(tx *sql.Tx) error {
		if _, err := tx.ExecContext(ctx, r.q(plain), token, Plain, name); err != nil {
			return err
		}
		var n int64
		if err := tx.QueryRowContext(ctx, r.q(read), Plain, name).Scan(&n); err != nil {
			return err
		}
		_, err := tx.ExecContext(ctx, r.q(note), id, Plain, name, token, n)
		return err
	})
}

func (r *Registers) inTx(ctx context.Context, fn func(tx *sql.Tx) error) error {
	tx, err := r.db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }()
	if err := fn(tx); err != nil {
		return err
	}
	return tx.Commit()
}

// one reports that a statement has changed its row.
func one(res sql.Result, err error) (bool, error) {
	if err != nil {
		return false, err
	}
	n, err := res.RowsAffected()
	return n == 1, err
}

// Written is a write that was done.
type Written struct {
	ID, Kind, Name string
	Token, N       int64
}

// Final is the final content of the registers.
type Final struct {
	Writes []Written                   // of each register in the order of N
	N      map[string]map[string]int64 // by kind and name
}

// Final reads everything.
func (r *Registers) Final(ctx context.Context) (f Final, err error) {
	if f.Writes, err = r.Writes(ctx); err != nil {
		return f, err
	}
	f.N, err = r.values(ctx)
	return f, err
}

// Writes reads the writes that were done so far, as [Final] has them.
func (r *Registers) Writes(ctx context.Context) ([]Written, error) {
	rows, err := r.db.QueryContext(ctx, writes)
	if err != nil {
		return nil, err
	}
	defer func() { _ = rows.Close() }()
	var all []Written
	for rows.Next() {
		var w Written
		if err := rows.Scan(&w.ID, &w.Kind, &w.Name, &w.Token, &w.N); err != nil {
			return nil, err
		}
		all = append(all, w)
	}
	return all, rows.Err()
}

func (r *Registers) values(ctx context.Context) (map[string]map[string]int64, error) {
	rows, err := r.db.QueryContext(ctx, final)
	if err != nil {
		return nil, err
	}
	defer func() { _ = rows.Close() }()
	values := make(map[string]map[string]int64)
	for rows.Next() {
		var kind, name string
		var n int64
		if err := rows.Scan(&kind, &name, &n); err != nil {
			return nil, err
		}
		if values[kind] == nil {
			values[kind] = make(map[string]int64)
		}
		values[kind][name] = n
	}
	return values, rows.Err()
}
