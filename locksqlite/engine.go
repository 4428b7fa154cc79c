package locksqlite

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"slices"

	"github.com/sqllock/sqllock/driver"
	"github.com/sqllock/sqllock/internal/rowstore"
	"github.com/sqllock/sqllock/internal/sqlconn"
)

// engine runs the statements of the unique mode.
//
// SQLite has one writer at a time, which locks the whole database. So there is nothing to
// pass over, and nobody to wait for but with the whole database.
type engine struct {
	conns  sqlconn.Source
	texts  map[string]string
	client driver.Client
	file   *file
	writer chan struct{} // has an element while nobody writes; all engines of one Open share it
	freed  *rowstore.FreedNames

	database string // its id
	info     driver.Info
}

var (
	_ rowstore.Sole       = (*engine)(nil)
	_ rowstore.AllGranter = (*engine)(nil)

	_ rowstore.PermitGranter = (*engine)(nil)
)

// Sole implements [rowstore.Sole].
func (e *engine) Sole() {}

// on returns the same engine on another source of connections.
func (e *engine) on(source sqlconn.Source) rowstore.Engine {
	other := *e
	other.conns = source
	return &other
}

// finds are the statements that tell, without the write lock, whether another one would
// change anything.
var finds = map[string]string{"sweep_due": "find_sweep", "purge_waiters": "find_waiters"}

// byLocker are the statements that take the Locker, their first parameter, as it is and not
// as digits.
var byLocker = map[string]bool{"beat": true, "claims_of_locker": true}

// Run implements [rowstore.Engine].
func (e *engine) Run(ctx context.Context, statements ...rowstore.Statement) error {
	return e.call(ctx, func(ctx context.Context, conn *sql.Conn) error {
		for i := range statements {
			if err := e.runOne(ctx, conn, &statements[i]); err != nil {
				return err
			}
		}
		return nil
	})
}

// runOne runs a statement that commits by itself.
func (e *engine) runOne(ctx context.Context, conn *sql.Conn, s *rowstore.Statement) error {
	if s.Scan != nil {
		return e.run(ctx, conn, s)
	}
	if find := finds[s.Name]; find != "" {
		var found bool
		if err := conn.QueryRowContext(ctx, e.text(find), s.Args...).Scan(&found); err != nil || !found {
			return err
		}
	}
	return e.alone(ctx, func() error { return e.run(ctx, conn, s) })
}

// Tx implements [rowstore.Engine]. Of what follows on a commit, the database has nothing.
func (e *engine) Tx(ctx context.Context, read func() []rowstore.Statement, decide func() (rowstore.Writes, error)) error {
	err := e.call(ctx, func(ctx context.Context, conn *sql.Conn) error {
		return e.immediate(ctx, conn, func(ctx context.Context) error {
			if err := e.runAll(ctx, conn, read()); err != nil {
				return err
			}
			writes, err := decide()
			if err == nil && len(writes.Statements) == 0 {
				err = errNothing
			}
			if err != nil {
				return err
			}
			return e.runAll(ctx, conn, writes.Statements)
		})
	})
	if errors.Is(err, errNothing) {
		return nil
	}
	return err
}

// errNothing ends a transaction that has nothing to write.
var errNothing = errors.New("nothing to write")

func (e *engine) runAll(ctx context.Context, conn *sql.Conn, statements []rowstore.Statement) error {
	for i := range statements {
		if err := e.run(ctx, conn, &statements[i]); err != nil {
			return err
		}
	}
	return nil
}

// Grant implements [rowstore.Engine]. It looks without the write lock, but not for names that this
// Locker has just freed.
func (e *engine) Grant(
	ctx context.Context, look func() rowstore.Statement, free func() []driver.AcquireRequest, granted func(i int, g rowstore.Granted),
) error {
	return e.ifFree(ctx, look, free, granted, func(granted func(int, rowstore.Granted)) granter {
		return func(ctx context.Context, conn *sql.Conn, reqs []driver.AcquireRequest) error {
			return e.grantIn(ctx, conn, "grant", reqs, granted)
		}
	})
}

// GrantAll implements [rowstore.AllGranter]. It looks without the write lock.
func (e *engine) GrantAll(
	ctx context.Context, look func() rowstore.Statement, free func() []driver.AcquireRequest, granted func(i int, g rowstore.Granted),
) error {
	return e.lookFirst(ctx, look, free, func(ctx context.Context, conn *sql.Conn, reqs []driver.AcquireRequest) error {
		return e.grantIn(ctx, conn, "grant_all", reqs, granted)
	})
}

// granter grants names that look free.
type granter func(ctx context.Context, conn *sql.Conn, reqs []driver.AcquireRequest) error

// ifFree calls grant with the requests that look free, if there are any. It looks at none if this
// Locker has just freed all of them, unless somebody else is writing: then it would wait for a name
// that others may have by now. What was told to be granted is not asked for again: a commit may fail
// after that.
func (e *engine) ifFree(
	ctx context.Context, look func() rowstore.Statement, free func() []driver.AcquireRequest, granted func(i int, g rowstore.Granted),
	grant func(granted func(int, rowstore.Granted)) granter,
) error {
	if reqs := free(); e.freed.Take(reqs) {
		some := false
		blindly := grant(func(i int, g rowstore.Granted) {
			some = true
			granted(i, g)
		})
		err := e.call(ctx, func(ctx context.Context, conn *sql.Conn) error { return blindly(ctx, conn, reqs) })
		if err == nil || some || ctx.Err() != nil || classify(err) != driver.Again {
			return err
		}
	}
	return e.lookFirst(ctx, look, free, grant(granted))
}

// lookFirst looks without the write lock, and then calls grant with the requests that free returns,
// if there are any.
func (e *engine) lookFirst(ctx context.Context, look func() rowstore.Statement, free func() []driver.AcquireRequest, grant granter) error {
	return e.call(ctx, func(ctx context.Context, conn *sql.Conn) error {
		rows := look()
		if err := e.run(ctx, conn, &rows); err != nil {
			return err
		}
		if reqs := free(); len(reqs) > 0 {
			return grant(ctx, conn, reqs)
		}
		return nil
	})
}

// grantIn runs the statement of a name that grants names that are free.
func (e *engine) grantIn(
	ctx context.Context, conn *sql.Conn, name string, reqs []driver.AcquireRequest, granted func(i int, g rowstore.Granted),
) error {
	grant := e.grant(name, reqs, granted)
	return e.alone(ctx, func() error { return e.run(ctx, conn, grant) })
}

// grant is the statement of a name that grants names that are free.
func (e *engine) grant(name string, reqs []driver.AcquireRequest, granted func(i int, g rowstore.Granted)) *rowstore.Statement {
	index := indexes(reqs, func(r *driver.AcquireRequest) string { return r.Name })
	return &rowstore.Statement{
		Name: name,
		Batch: []rowstore.Column{
			column(reqs, func(r *driver.AcquireRequest) string { return r.Name }),
			column(reqs, func(r *driver.AcquireRequest) driver.ID { return r.Acq }),
			column(reqs, func(r *driver.AcquireRequest) string { return r.Owner }),
			column(reqs, func(r *driver.AcquireRequest) int64 { return r.TTL.Microseconds() }),
			column(reqs, func(r *driver.AcquireRequest) []byte { return r.Value }),
			column(reqs, func(r *driver.AcquireRequest) int64 { return r.Floor }),
		},
		Args: []any{e.client.Label, e.client.Instance[:],
			slices.ContainsFunc(reqs, func(r driver.AcquireRequest) bool { return len(r.Value) > 0 }),
			slices.ContainsFunc(reqs, func(r driver.AcquireRequest) bool { return r.Floor > 0 })},
		Scan: func(scan rowstore.Scanner) error {
			var name string
			var g rowstore.Granted
			err := scan(&name, &g.Version, &g.Now, &g.Expires)
			granted(index[name], g)
			return err
		},
	}
}

// Free implements [rowstore.Engine]. A transaction that guards a term has the write lock.
func (e *engine) Free(ctx context.Context, reqs []driver.ReleaseRequest, freed func(i int)) error {
	index := indexes(reqs, func(r *driver.ReleaseRequest) string { return r.Name })
	return e.write(ctx, &rowstore.Statement{
		Name: "free",
		Batch: []rowstore.Column{
			column(reqs, func(r *driver.ReleaseRequest) string { return r.Name }),
			column(reqs, func(r *driver.ReleaseRequest) driver.ID { return r.Acq }),
			column(reqs, func(r *driver.ReleaseRequest) int64 { return r.Version }),
			column(reqs, func(r *driver.ReleaseRequest) int64 { return r.MinHold.Microseconds() }),
		},
		Scan: func(scan rowstore.Scanner) error {
			var name string
			err := scan(&name)
			freed(index[name])
			e.freed.Add(name)
			return err
		},
	})
}

// Renew implements [rowstore.Engine].
func (e *engine) Renew(ctx context.Context, shared bool, reqs []driver.RenewRequest, _ bool, renewed func(i int, now int64)) error {
	type member struct{ name, acq string }
	index := make(map[member]int, len(reqs))
	for i := range reqs {
		index[member{reqs[i].Name, reqs[i].Acq.String()}] = i
	}
	name := "renew"
	if shared {
		name = "renew_shared"
	}
	return e.write(ctx, &rowstore.Statement{
		Name: name,
		Batch: []rowstore.Column{
			column(reqs, func(r *driver.RenewRequest) string { return r.Name }),
			column(reqs, func(r *driver.RenewRequest) driver.ID { return r.Acq }),
			column(reqs, func(r *driver.RenewRequest) int64 { return r.Version }),
			column(reqs, func(r *driver.RenewRequest) int64 { return r.TTL.Microseconds() }),
			column(reqs, func(r *driver.RenewRequest) int64 { return int64(r.Holds) }),
		},
		Scan: func(scan rowstore.Scanner) error {
			var m member
			var now int64
			err := scan(&m.name, &m.acq, &now)
			renewed(index[m], now)
			return err
		},
	})
}

// write runs a statement that writes although it has a result.
func (e *engine) write(ctx context.Context, s *rowstore.Statement) error {
	return e.call(ctx, func(ctx context.Context, conn *sql.Conn) error {
		return e.alone(ctx, func() error { return e.run(ctx, conn, s) })
	})
}

// run runs a statement, unless it is needless.
func (e *engine) run(ctx context.Context, conn *sql.Conn, s *rowstore.Statement) error {
	if s.Needless != nil && s.Needless() {
		return nil
	}
	text, args := e.prepare(s)
	if s.Scan != nil {
		return query(ctx, conn, text, args, func(scan func(...any) error) error { return s.Scan(scan) })
	}
	res, err := conn.ExecContext(ctx, text, args...)
	if err == nil && s.Changed != nil {
		*s.Changed, err = res.RowsAffected()
	}
	return err
}

// prepare returns the text of a statement and what it is run with, see unique.sql.
func (e *engine) prepare(s *rowstore.Statement) (text string, args []any) {
	if byLocker[s.Name] {
		return e.text(s.Name), append([]any{e.client.Instance[:]}, s.Args[1:]...)
	}
	if s.Batch == nil {
		return e.text(s.Name), s.Args
	}
	if text, ok := e.texts[s.Name+"_one"]; ok && rowstore.Rows(s.Batch) == 1 {
		for _, c := range s.Batch {
			args = append(args, first(c))
		}
		return text, append(args, s.Args...)
	}
	var b batch
	b.rows = make([][]any, rowstore.Rows(s.Batch))
	for _, c := range s.Batch {
		b.add(c)
	}
	args = []any{b.json()}
	if b.binary {
		args = append(args, b.bytes)
	}
	return e.text(s.Name), append(args, s.Args...)
}

// text returns the text of a statement.
func (e *engine) text(name string) string {
	text, ok := e.texts[name]
	if !ok {
		panic("bug: no statement is named " + name)
	}
	return text
}

// batch is a batch as parameters.
type batch struct {
	rows   [][]any
	bytes  []byte // ids and values, one behind the other
	binary bool   // there are columns of such
}

// add adds a column.
func (b *batch) add(c rowstore.Column) {
	for i := range b.rows {
		var cell any
		switch c := c.(type) {
		case []string:
			cell = c[i]
		case []int64:
			cell = c[i]
		case []driver.ID:
			if b.binary = true; c[i] != (driver.ID{}) {
				cell = len(b.bytes) + 1
				b.bytes = append(b.bytes, c[i][:]...)
			}
		case [][]byte:
			if b.binary = true; len(c[i]) > 0 {
				cell = [2]int{len(b.bytes) + 1, len(c[i])}
				b.bytes = append(b.bytes, c[i]...)
			}
		}
		b.rows[i] = append(b.rows[i], cell)
	}
}

// first returns the first element of a column as a parameter.
func first(c rowstore.Column) any {
	switch c := c.(type) {
	case []string:
		return c[0]
	case []int64:
		return c[0]
	case []driver.ID:
		if c[0] != (driver.ID{}) {
			return c[0][:]
		}
	case [][]byte:
		if len(c[0]) > 0 {
			return c[0]
		}
	}
	return nil
}

// json encodes the rows. Strings are valid UTF-8 and there is nothing else that could fail.
func (b *batch) json() string {
	text, err := json.Marshal(b.rows)
	if err != nil {
		panic("bug: " + err.Error())
	}
	return string(text)
}

// indexes returns the index of each request by its name.
func indexes[R any](reqs []R, name func(r *R) string) map[string]int {
	index := make(map[string]int, len(reqs))
	for i := range reqs {
		index[name(&reqs[i])] = i
	}
	return index
}

// column makes a column of requests.
func column[R, T any](reqs []R, of func(r *R) T) []T {
	c := make([]T, len(reqs))
	for i := range reqs {
		c[i] = of(&reqs[i])
	}
	return c
}
