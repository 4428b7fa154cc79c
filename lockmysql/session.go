package lockmysql

import (
	"context"
	"database/sql"
	sqldriver "database/sql/driver"
	"errors"
)

// session is a connection. All statements go through it.
type session struct {
	*sql.Conn
	prepared *prepared // nil if none are kept
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
	id, err = res.LastInsertId()
	return rows, id, err
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
	if numberOf(err) != 0 { // it has as many as it keeps, or it says the same of the text
		p.forget(text)
		return nil, nil
	}
	p.statements[text] = s
	return s, err
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
