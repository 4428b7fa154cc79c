package lockmysql

import (
	"cmp"
	"context"
	"database/sql"
	sqldriver "database/sql/driver"
	"errors"
	"strings"
)

// session is a connection. All statements go through it.
type session struct {
	*sql.Conn
	prepared *prepared // nil if none are kept
	blocks   bool      // the server takes several statements in a block
}

// step is a statement as it is sent.
type step struct {
	text string
	args []any
	scan func(*sql.Rows) error // nil if there is no result
}

// send runs steps, one after the other, or as a block in one round trip.
func (c session) send(ctx context.Context, steps ...step) error {
	if c.blocks && len(steps) > 1 {
		return c.sendBlock(ctx, steps)
	}
	for i := range steps {
		if err := c.sendOne(ctx, &steps[i]); err != nil {
			return err
		}
	}
	return nil
}

func (c session) sendOne(ctx context.Context, s *step) error {
	if s.scan != nil {
		return query(ctx, c, s.text, s.args, s.scan)
	}
	_, err := c.ExecContext(ctx, s.text, s.args...)
	return err
}

// sendBlock runs steps as a block. Each of them is a statement by itself: it sees what is
// committed when it begins, and has a clock of its own. One that fails ends the block.
func (c session) sendBlock(ctx context.Context, steps []step) error {
	text, args := block(steps)
	rows, err := c.QueryContext(ctx, text, args...)
	if err != nil {
		return err
	}
	defer func() { _ = rows.Close() }()
	first := true
	for i := range steps {
		if steps[i].scan == nil {
			continue
		}
		if !first && !rows.NextResultSet() {
			return cmp.Or(rows.Err(), errNoResult)
		}
		first = false
		for rows.Next() {
			if err := steps[i].scan(rows); err != nil {
				return err
			}
		}
		if err := rows.Err(); err != nil {
			return err
		}
	}
	for rows.NextResultSet() { // a statement behind the last result may have failed
	}
	return rows.Err()
}

// errNoResult says that a connection does not hand on all results of a block.
var errNoResult = errors.New("lockmysql: the result of a statement is missing")

// block puts steps into a block. It depends on nothing but which statements they are.
func block(steps []step) (text string, args []any) {
	var b strings.Builder
	b.WriteString(bounded + "BEGIN NOT ATOMIC ")
	for i := range steps {
		b.WriteString(strings.TrimPrefix(steps[i].text, bounded))
		b.WriteString("; ")
		args = append(args, steps[i].args...)
	}
	b.WriteString("END")
	return b.String(), args
}

// ExecContext takes the place of the method of the connection.
func (c session) ExecContext(ctx context.Context, text string, args ...any) (res sql.Result, err error) {
	err = c.prepared.use(ctx, c.Conn, text, len(args), func(s *sql.Stmt) (err error) {
		if s == nil {
			res, err = c.Conn.ExecContext(ctx, text, args...)
		} else {
			res, err = s.ExecContext(ctx, args...)
		}
		return err
	})
	return res, err
}

// QueryContext takes the place of the method of the connection.
func (c session) QueryContext(ctx context.Context, text string, args ...any) (rows *sql.Rows, err error) {
	err = c.prepared.use(ctx, c.Conn, text, len(args), func(s *sql.Stmt) (err error) {
		if s == nil {
			rows, err = c.Conn.QueryContext(ctx, text, args...)
		} else {
			rows, err = s.QueryContext(ctx, args...)
		}
		return err
	})
	return rows, err
}

// exec runs a statement and returns how many rows it changed, or found, as the
// connection counts, and what it gave to LAST_INSERT_ID.
func (c session) exec(ctx context.Context, query string, args ...any) (rows, id int64, err error) {
	res, err := c.ExecContext(ctx, query, args...)
	if err != nil {
		return 0, 0, err
	}
	if rows, err = res.RowsAffected(); err != nil {
		return 0, 0, err
	}
	if id, err = res.LastInsertId(); id != 0 || err != nil || rows == 0 || !strings.Contains(query, "LAST_INSERT_ID(") {
		return rows, id, err
	}
	// After a trigger of the application MariaDB leaves it out of the reply, but knows it still.
	if err = c.QueryRowContext(ctx, "SELECT LAST_INSERT_ID()").Scan(&id); err != nil {
		return 0, 0, partly(true, err)
	}
	return rows, id, nil
}

// querier is a connection or a transaction on it.
type querier interface {
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
}

// query runs a statement and calls scan for each row of its result.
func query(ctx context.Context, q querier, query string, args []any, scan func(*sql.Rows) error) error {
	rows, err := q.QueryContext(ctx, query, args...)
	if err != nil {
		return err
	}
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		if err := scan(rows); err != nil {
			return err
		}
	}
	return rows.Err()
}

// prepared are the statements that are kept prepared on a connection, so that the server
// reads the text of each only once. A statement is prepared when it is run for the second
// time: who locks once pays for nothing. Calls take turns.
type prepared struct {
	statements map[string]*sql.Stmt // by their texts; nil after the first run
	never      map[string]bool      // texts that the server does not prepare
}

func newPrepared() *prepared {
	return &prepared{statements: make(map[string]*sql.Stmt), never: make(map[string]bool)}
}

// use calls run with a prepared statement, or with nil if the text is to be sent. A statement
// of the server that a proxy has lost was not run.
func (p *prepared) use(ctx context.Context, conn *sql.Conn, text string, args int, run func(*sql.Stmt) error) error {
	if p == nil || args == 0 {
		return run(nil)
	}
	s, err := p.get(ctx, conn, text)
	if err != nil {
		return err
	}
	err = run(s)
	switch {
	case s == nil:
	case numberOf(err) == 1243: // ER_UNKNOWN_STMT_HANDLER
		p.forget(text)
		return run(nil)
	case errors.Is(err, sql.ErrConnDone): // so says database/sql after driver.ErrBadConn
		return sqldriver.ErrBadConn
	}
	return err
}

// get returns a prepared statement, or nil.
func (p *prepared) get(ctx context.Context, conn *sql.Conn, text string) (*sql.Stmt, error) {
	s, known := p.statements[text]
	if s != nil || p.never[text] {
		return s, nil
	}
	if !known {
		p.statements[text] = nil
		return nil, nil
	}
	s, err := conn.PrepareContext(ctx, text)
	if isUnprepared(err) {
		p.forget(text)
		return nil, nil
	}
	if err != nil { // the answer may be that the transaction is undone
		return nil, err
	}
	p.statements[text] = s
	return s, nil
}

// forget ends a statement, whose text is sent from now on.
func (p *prepared) forget(text string) {
	if s := p.statements[text]; s != nil {
		_ = s.Close()
	}
	p.statements[text], p.never[text] = nil, true
}

// close ends all statements before the connection goes back.
func (p *prepared) close() {
	for _, s := range p.statements {
		if s != nil {
			_ = s.Close()
		}
	}
	clear(p.statements)
}
