package lockmysql

import (
	"context"
	"database/sql"
	"time"

	"github.com/sqllock/sqllock/driver"
	"github.com/sqllock/sqllock/internal/rowstore"
	"github.com/sqllock/sqllock/internal/sqlconn"
)

// engine runs statements on connections of the pool or, if it was reserved, always on the
// same one.
type engine struct {
	pool    *sqlconn.Pool
	source  sqlconn.Source // the pool, or a connection reserved from it
	queries *queries
	client  driver.Client

	prepared *prepared // on the connection that was reserved; nil on the pool

	info      driver.Info
	database  string // its id
	maxPacket int    // bytes that the server takes at once
	mariaDB   bool
	isolate   bool // a plain SELECT would read what is not committed

	bound, unbound string // settings of a session around a transaction
}

var _ rowstore.Engine = (*engine)(nil)

// do calls fn with a connection. That a row is locked puts no doubt on the
// connection.
func (e *engine) do(ctx context.Context, fn func(context.Context, session) error) error {
	locked := false
	err := e.source.Do(ctx, func(ctx context.Context, conn *sql.Conn) error {
		err := fn(ctx, session{conn, e.prepared})
		if locked = err == errLocked; locked {
			return nil
		}
		return err
	})
	if err == nil && locked {
		return errLocked
	}
	return err
}

// read is query for a statement that locks nothing. What another has not committed
// may be undone yet: to take it for a grant of ours would be fatal.
func (e *engine) read(ctx context.Context, c session, text string, args []any, scan func(*sql.Rows) error) error {
	if !e.isolate {
		return query(ctx, c, text, args, scan)
	}
	return e.inOwnTx(ctx, c, func() (bool, error) { return false, query(ctx, c, text, args, scan) })
}

// inOwnTx calls fn in a transaction of the library's own, and commits it if fn says so.
// The server ends the session if the client is silent meanwhile: else a client that was
// paused, or has vanished, would keep what it has locked. A session that cannot be
// restored is ended, whatever became of the transaction.
func (e *engine) inOwnTx(ctx context.Context, c session, fn func() (commit bool, err error)) error {
	if _, err := c.ExecContext(ctx, e.bound); err != nil {
		return err
	}
	commit := false
	_, err := c.ExecContext(ctx, queryBegin)
	if err == nil {
		commit, err = fn()
	}
	if err == nil && commit {
		_, err = c.ExecContext(ctx, queryCommit)
	}
	rest, cancel := context.WithTimeout(context.WithoutCancel(ctx), glance)
	defer cancel()
	var failed error
	if err != nil || !commit {
		_, failed = c.ExecContext(rest, queryRollback)
	}
	if failed == nil {
		_, failed = c.ExecContext(rest, e.unbound)
	}
	if failed != nil {
		sqlconn.Destroy(c.Conn, e.pool.End)
	}
	return err
}

// glance bounds what may as well be left out.
const glance = 500 * time.Millisecond

// longWait is for how long a call waits for a row that somebody has locked.
const longWait = time.Second

// patiently calls try with a connection until it is done, for as long as somebody may have
// locked a row for a moment. The error is errLocked then. Nobody waits on the server:
// such a statement cannot be told to stop. Nor does anybody keep a connection meanwhile,
// which renewals may need.
func (e *engine) patiently(ctx context.Context, try func(context.Context, session) (done bool, err error)) error {
	patience := rowstore.NewPatience(longWait)
	for {
		done := false
		err := e.do(ctx, func(ctx context.Context, c session) (err error) {
			done, err = try(ctx, c)
			return err
		})
		if err != nil || done {
			return err
		}
		if err := patience.Wait(ctx); err != nil {
			return err
		}
	}
}

// Run implements [rowstore.Engine].
func (e *engine) Run(ctx context.Context, statements ...rowstore.Statement) error {
	var r run
	return e.do(ctx, func(ctx context.Context, c session) error {
		r.e, r.c, r.read = e, c, e.read
		return r.all(ctx, statements)
	})
}

// Tx implements [rowstore.Engine]. Of what follows on a commit, the database has nothing.
// What decide says puts no doubt on the connection.
func (e *engine) Tx(ctx context.Context, read func() []rowstore.Statement, decide func() (rowstore.Writes, error)) error {
	var verdict error
	err := e.patiently(ctx, func(ctx context.Context, c session) (done bool, err error) {
		err = e.inOwnTx(ctx, c, func() (bool, error) {
			r := run{e: e, c: c, read: plainly}
			if err := r.all(ctx, read()); err != nil {
				return false, err
			}
			var writes rowstore.Writes
			writes, verdict = decide()
			if verdict != nil || len(writes.Statements) == 0 {
				return false, nil
			}
			r.at = 0
			return true, r.all(ctx, writes.Statements)
		})
		if err == errLocked || isHeld(err) || isTooOld(err) {
			return false, nil
		}
		return true, err
	})
	if err != nil {
		return err
	}
	return verdict
}

// plainly is [engine.read] in a transaction.
func plainly(ctx context.Context, c session, text string, args []any, scan func(*sql.Rows) error) error {
	return query(ctx, c, text, args, scan)
}

// run runs statements, one after the other. It goes on where it has ended if it is called
// once more because the connection was dead.
type run struct {
	e    *engine
	c    session
	read func(ctx context.Context, c session, text string, args []any, scan func(*sql.Rows) error) error
	at   int // the statement that comes next
	row  int // and the row of its batch

	made      bool // rows were made
	valueless bool // rows were locked, none of which has a value
}

func (r *run) all(ctx context.Context, statements []rowstore.Statement) error {
	for ; r.at < len(statements); r.at, r.row = r.at+1, 0 {
		s := &statements[r.at]
		if s.Needless != nil && s.Needless() {
			continue
		}
		var err error
		if s.Name == "lock_rows" {
			err = r.lockRows(ctx, s)
		} else {
			err = r.one(ctx, s)
		}
		if err != nil {
			return err
		}
		r.made = r.made || s.Name == "make_rows"
	}
	return nil
}

// lockRows fails if somebody else has locked one of the rows. A row that was made may have
// been locked, but not deleted.
func (r *run) lockRows(ctx context.Context, s *rowstore.Statement) error {
	locked := 0
	r.valueless = true
	counted := *s
	counted.Scan = func(scan rowstore.Scanner) error {
		locked++
		return s.Scan(func(targets ...any) error {
			err := scan(targets...)
			value, ok := targets[valueColumn].(*[]byte)
			r.valueless = r.valueless && ok && *value == nil
			return err
		})
	}
	if err := r.one(ctx, &counted); err != nil || locked == rowstore.Rows(s.Batch) {
		return err
	}
	r.row = 0
	exist := 0
	count := rowstore.Statement{Name: "count_rows", Batch: s.Batch, Scan: func(scan rowstore.Scanner) error {
		n := 0
		err := scan(&n)
		exist += n
		return err
	}}
	if err := r.one(ctx, &count); err != nil {
		return err
	}
	if r.made || exist > locked {
		return errLocked
	}
	return nil
}

// valueColumn is that of a lock row.
const valueColumn = 7

// one runs a statement. What the server does not take at once is sent in parts.
func (r *run) one(ctx context.Context, s *rowstore.Statement) error {
	text, args := r.e.queries.text(s), arguments(s)
	if s.Name == "write_rows" && !r.valueless {
		text = r.e.queries.texts[s.Name]
	}
	if s.Batch == nil {
		if find := finds[s.Name]; find != "" {
			found := false
			err := r.read(ctx, r.c, r.e.queries.texts[find], args, func(rows *sql.Rows) error { return rows.Scan(&found) })
			if err != nil || !found {
				return err
			}
		}
		return r.send(ctx, s, text, args)
	}
	if name, ok := one(s); ok {
		switch s.Name {
		case "rows":
			return r.send(ctx, s, r.e.queries.texts["rows_one"], []any{name})
		case "claims":
			return r.send(ctx, s, r.e.queries.texts["claims_one"], []any{name, name, args[1], args[0]})
		}
	}
	for r.row < rowstore.Rows(s.Batch) {
		b, next, err := r.e.encode(s.Batch, r.row)
		if err == nil {
			err = r.send(ctx, s, text, append([]any{b.String()}, args...))
		}
		if err != nil {
			return err
		}
		r.row = next
	}
	return nil
}

// one returns the name that a statement is about, in digits, if it is one.
func one(s *rowstore.Statement) (name string, ok bool) {
	names, ok := s.Batch[0].([]string)
	if !ok || len(names) != 1 {
		return "", false
	}
	return digits(names[0]), true
}

func (r *run) send(ctx context.Context, s *rowstore.Statement, text string, args []any) error {
	if s.Scan != nil {
		return r.read(ctx, r.c, text, args, func(rows *sql.Rows) error { return s.Scan(rows.Scan) })
	}
	n, _, err := r.c.exec(ctx, text, args...)
	if s.Changed != nil {
		*s.Changed += n
	}
	return err
}

// finds are the statements that tell whether another one would change anything: one that does
// not leaves a trace all the same.
var finds = map[string]string{"sweep_due": "find_sweep", "purge_waiters": "find_waiters"}

// behind are the statements whose first parameter is a name.
var behind = map[string]bool{"page": true, "page_end": true, "sweep_window": true}

// arguments are the parameters behind the batch. Names travel as digits.
func arguments(s *rowstore.Statement) []any {
	if !behind[s.Name] {
		return s.Args
	}
	return append([]any{digits(s.Args[0].(string))}, s.Args[1:]...)
}
