package conformance

import (
	"context"
	"database/sql"
	sqldriver "database/sql/driver"
	"io"
	"sync/atomic"
	"time"
)

// recorder counts the statements of a handle, and can delay their results.
type recorder struct {
	statements atomic.Int64 // that were run; also BEGIN
	delay      atomic.Int64
}

// slow has the last row of every result come late, when the statement was carried
// out long ago.
func (t *recorder) slow(d time.Duration) { t.delay.Store(int64(d)) }

// openRecorded is [Harness.OpenDB] with a recorder in between. The handle's Driver is the real
// one: a Locker may look at it.
func openRecorded(h *Harness, dsn string) (*sql.DB, *recorder, error) {
	c := &connector{dsn: dsn, recorder: new(recorder)}
	var err error
	if h.Connect != nil {
		if c.inner, err = h.Connect(dsn); err != nil {
			return nil, nil, err
		}
		c.driver = c.inner.Driver()
		return sql.OpenDB(c), c.recorder, nil
	}
	plain, err := sql.Open(h.Driver, dsn)
	if err != nil {
		return nil, nil, err
	}
	c.driver = plain.Driver()
	_ = plain.Close()
	if d, ok := c.driver.(sqldriver.DriverContext); ok {
		if c.inner, err = d.OpenConnector(dsn); err != nil {
			return nil, nil, err
		}
	}
	return sql.OpenDB(c), c.recorder, nil
}

type connector struct {
	driver   sqldriver.Driver
	inner    sqldriver.Connector // nil if the driver makes none
	dsn      string
	recorder *recorder
}

func (c *connector) Driver() sqldriver.Driver { return c.driver }

// Close implements io.Closer, for sql.DB.Close.
func (c *connector) Close() error {
	if closer, ok := c.inner.(io.Closer); ok {
		return closer.Close()
	}
	return nil
}

func (c *connector) Connect(ctx context.Context) (sqldriver.Conn, error) {
	var conn sqldriver.Conn
	var err error
	if c.inner != nil {
		conn, err = c.inner.Connect(ctx)
	} else {
		conn, err = c.driver.Open(c.dsn)
	}
	if err != nil {
		return nil, err
	}
	return &recordedConn{Conn: conn, recorder: c.recorder}, nil
}

// recordedConn is a connection. What the real one does not implement it declines in
// the way that package database/sql provides for.
type recordedConn struct {
	sqldriver.Conn
	recorder *recorder
}

var (
	_ sqldriver.ConnBeginTx        = (*recordedConn)(nil)
	_ sqldriver.ConnPrepareContext = (*recordedConn)(nil)
	_ sqldriver.ExecerContext      = (*recordedConn)(nil)
	_ sqldriver.QueryerContext     = (*recordedConn)(nil)
	_ sqldriver.Pinger             = (*recordedConn)(nil)
	_ sqldriver.SessionResetter    = (*recordedConn)(nil)
	_ sqldriver.Validator          = (*recordedConn)(nil)
	_ sqldriver.NamedValueChecker  = (*recordedConn)(nil)
)

func (c *recordedConn) ExecContext(ctx context.Context, query string, args []sqldriver.NamedValue) (sqldriver.Result, error) {
	x, ok := c.Conn.(sqldriver.ExecerContext)
	if !ok {
		return nil, sqldriver.ErrSkip
	}
	res, err := x.ExecContext(ctx, query, args)
	c.recorder.count(err)
	return res, err
}

func (c *recordedConn) QueryContext(ctx context.Context, query string, args []sqldriver.NamedValue) (sqldriver.Rows, error) {
	x, ok := c.Conn.(sqldriver.QueryerContext)
	if !ok {
		return nil, sqldriver.ErrSkip
	}
	rows, err := x.QueryContext(ctx, query, args)
	c.recorder.count(err)
	return c.recorder.slowed(rows, err)
}

// count counts a statement that was run, unless it has to be prepared first.
func (r *recorder) count(err error) {
	if err != sqldriver.ErrSkip {
		r.statements.Add(1)
	}
}

func (r *recorder) slowed(rows sqldriver.Rows, err error) (sqldriver.Rows, error) {
	if d := r.delay.Load(); d > 0 && err == nil {
		rows = &slowRows{rows, time.Duration(d)}
	}
	return rows, err
}

// recordedStmt is a statement that is prepared. Each of its runs counts.
type recordedStmt struct {
	sqldriver.Stmt
	recorder *recorder
}

func (s *recordedStmt) ExecContext(ctx context.Context, args []sqldriver.NamedValue) (sqldriver.Result, error) {
	s.recorder.statements.Add(1)
	return s.Stmt.(sqldriver.StmtExecContext).ExecContext(ctx, args)
}

func (s *recordedStmt) QueryContext(ctx context.Context, args []sqldriver.NamedValue) (sqldriver.Rows, error) {
	s.recorder.statements.Add(1)
	return s.recorder.slowed(s.Stmt.(sqldriver.StmtQueryContext).QueryContext(ctx, args))
}

type slowRows struct {
	sqldriver.Rows
	delay time.Duration
}

func (r *slowRows) Next(dest []sqldriver.Value) error {
	err := r.Rows.Next(dest)
	if err == io.EOF {
		time.Sleep(r.delay)
	}
	return err
}

func (c *recordedConn) PrepareContext(ctx context.Context, query string) (sqldriver.Stmt, error) {
	x, ok := c.Conn.(sqldriver.ConnPrepareContext)
	if !ok {
		return c.Conn.Prepare(query)
	}
	s, err := x.PrepareContext(ctx, query)
	if err != nil {
		return nil, err
	}
	return &recordedStmt{s, c.recorder}, nil
}

func (c *recordedConn) BeginTx(ctx context.Context, o sqldriver.TxOptions) (sqldriver.Tx, error) {
	c.recorder.statements.Add(1)
	if x, ok := c.Conn.(sqldriver.ConnBeginTx); ok {
		return x.BeginTx(ctx, o)
	}
	//lint:ignore SA1019 database/sql does the same with a driver that has no more
	return c.Conn.Begin()
}

func (c *recordedConn) Ping(ctx context.Context) error {
	if x, ok := c.Conn.(sqldriver.Pinger); ok {
		return x.Ping(ctx)
	}
	return nil
}

func (c *recordedConn) ResetSession(ctx context.Context) error {
	if x, ok := c.Conn.(sqldriver.SessionResetter); ok {
		return x.ResetSession(ctx)
	}
	return nil
}

func (c *recordedConn) IsValid() bool {
	if x, ok := c.Conn.(sqldriver.Validator); ok {
		return x.IsValid()
	}
	return true
}

func (c *recordedConn) CheckNamedValue(v *sqldriver.NamedValue) error {
	if x, ok := c.Conn.(sqldriver.NamedValueChecker); ok {
		return x.CheckNamedValue(v)
	}
	return sqldriver.ErrSkip
}
