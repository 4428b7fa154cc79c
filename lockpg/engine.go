package lockpg

import (
	"context"
	"database/sql"
	sqldriver "database/sql/driver"
	"errors"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/sqllock/sqllock/driver"
	"github.com/sqllock/sqllock/internal/rowstore"
	"github.com/sqllock/sqllock/internal/sqlconn"
)

// engine runs the statements of the unique mode. Through pgx it sends those together that
// need no answer in between; through another driver they go one after the other.
type engine struct {
	conns
	texts    map[string]string
	client   driver.Client
	locker   any       // the ID of the client, as an argument
	label    any       // and its label
	quick    bool      // the driver is pgx, which sends "plans" with each batch
	settings *settings // of the session that it keeps; nil if each call has another one
}

var (
	_ rowstore.Restorer = (*engine)(nil)
	_ rowstore.Quick    = (*engine)(nil)

	_ rowstore.AllGranter = (*engine)(nil)
)

// Quick implements [rowstore.Quick].
func (e *engine) Quick(string, int) bool { return e.quick }

// on returns the same engine on another source of connections.
func (e *engine) on(source sqlconn.Source) rowstore.Engine {
	other := *e
	other.source = source
	if _, kept := source.(*sqlconn.Reserved); kept {
		other.settings = new(settings)
	}
	return &other
}

// step is a statement of the .sql file.
func (e *engine) step(name string, args ...any) step { return step{text: e.texts[name], args: args} }

// steps are statements of rowstore. Some have another form for one row.
func (e *engine) steps(statements []rowstore.Statement) []step {
	steps := make([]step, len(statements))
	for i := range statements {
		s := &statements[i]
		text, arg := e.texts[s.Name], func(c rowstore.Column) any { return c }
		if one, ok := e.texts[s.Name+"_one"]; ok && rowstore.Rows(s.Batch) == 1 {
			text, arg = one, firstOf
		}
		args := make([]any, 0, len(s.Batch)+len(s.Args))
		for _, c := range s.Batch {
			args = append(args, arg(c))
		}
		steps[i] = step{text, append(args, s.Args...), s.Scan, s.Changed, s.Needless}
	}
	return steps
}

// firstOf returns the first element of a column.
func firstOf(c rowstore.Column) any {
	switch c := c.(type) {
	case []string:
		return c[0]
	case []int64:
		return c[0]
	case []driver.ID:
		return c[0]
	case [][]byte:
		return c[0]
	}
	panic(fmt.Sprintf("bug: a column of %T", c))
}

// Run implements [rowstore.Engine]. Statements that have a result only read: they go
// together.
func (e *engine) Run(ctx context.Context, statements ...rowstore.Statement) error {
	for steps := e.steps(statements); len(steps) > 0; {
		n := 1
		for n < len(steps) && steps[n-1].scan != nil && steps[n].scan != nil {
			n++
		}
		if err := e.commit(ctx, steps[:n]...); err != nil {
			return overtaken(err)
		}
		steps = steps[n:]
	}
	return nil
}

// RunThen implements [rowstore.Quick].
func (e *engine) RunThen(ctx context.Context, s, then rowstore.Statement) error {
	steps := e.steps([]rowstore.Statement{s, then})
	return e.do(ctx, func(ctx context.Context, conn *pgx.Conn) error {
		plans, err := e.plans(ctx, conn)
		if err != nil {
			return err
		}
		first, second := append(slices.Clone(plans), steps[0]), append(plans, steps[1])
		if err = inTwo(ctx, conn, first, second); err != nil {
			_ = undo(conn)
		}
		return err
	}, func(ctx context.Context, conn *sql.Conn) error {
		began := false
		run := func(i int) error {
			return e.committed(ctx, conn, func() error { return steps[i].run(ctx, conn, &began) })
		}
		err := run(0)
		switch {
		case err == nil:
			_ = run(1)
		case began:
			err = sqlconn.Unknown(err)
		}
		return err
	})
}

// commit runs one step by itself, or several that only read.
func (e *engine) commit(ctx context.Context, steps ...step) error {
	return e.do(ctx, func(ctx context.Context, conn *pgx.Conn) error {
		all, err := e.plans(ctx, conn)
		if err != nil {
			return err
		}
		if all = append(all, steps...); e.isolate {
			all = append(append([]step{{text: queryBegin}}, all...), step{text: queryCommit})
		}
		if _, err = pipeline(ctx, conn, all); err != nil {
			_ = undo(conn)
		}
		return err
	}, func(ctx context.Context, conn *sql.Conn) error {
		began := false
		for i := range steps {
			err := e.committed(ctx, conn, func() error { return steps[i].run(ctx, conn, &began) })
			switch {
			case err != nil && began:
				return sqlconn.Unknown(err)
			case err != nil:
				return err
			}
		}
		return nil
	})
}

// do calls together with a connection of pgx, or apart with one of another driver.
func (e *engine) do(
	ctx context.Context, together func(context.Context, *pgx.Conn) error, apart func(context.Context, *sql.Conn) error,
) error {
	return e.source.Do(ctx, func(ctx context.Context, conn *sql.Conn) error {
		other := false
		err := conn.Raw(func(c any) error {
			p, ok := c.(*stdlib.Conn)
			switch {
			case !ok:
				other = true
				return nil
			case ctx.Err() != nil:
				return ctx.Err()
			case p.Conn().IsClosed():
				return sqldriver.ErrBadConn
			}
			return unsent(together(ctx, p.Conn()))
		})
		if other {
			err = unsent(apart(ctx, conn))
		}
		return err
	})
}

// run runs a step by itself. It notes that a row of its result was read.
func (s *step) run(ctx context.Context, conn *sql.Conn, began *bool) error {
	if s.needless != nil && s.needless() {
		return nil
	}
	if s.scan != nil {
		return queryOn(ctx, conn, s.text, texts(s.args), func(rows *sql.Rows) error {
			*began = true
			return s.scan(rows.Scan)
		})
	}
	res, err := conn.ExecContext(ctx, s.text, texts(s.args)...)
	if err == nil && s.changed != nil {
		*s.changed, err = res.RowsAffected()
	}
	return err
}

// Tx implements [rowstore.Engine].
func (e *engine) Tx(ctx context.Context, read func() []rowstore.Statement, decide func() (rowstore.Writes, error)) error {
	return e.do(ctx,
		func(ctx context.Context, conn *pgx.Conn) error { return e.visitTogether(ctx, conn, read, decide) },
		func(ctx context.Context, conn *sql.Conn) error { return e.visitApart(ctx, conn, read, decide) })
}

// visitTogether is Tx in two round trips: one until the decision, and one after it.
func (e *engine) visitTogether(
	ctx context.Context, conn *pgx.Conn, read func() []rowstore.Statement, decide func() (rowstore.Writes, error),
) error {
	plans, err := e.plans(ctx, conn)
	if err != nil {
		return err
	}
	before := append(append([]step{{text: queryBegin}}, plans...), e.step("visit", silenceIn(ctx)))
	if _, err := pipeline(ctx, conn, append(before, e.steps(read())...)); err != nil {
		_ = undo(conn)
		if conn.IsClosed() && ctx.Err() == nil { // so it was not committed
			return sqlconn.Repeatable(err)
		}
		return err
	}
	writes, err := decide()
	if err != nil || len(writes.Statements) == 0 {
		_ = undo(conn)
		return err
	}
	var then []step
	if !writes.Flush {
		then = append(then, e.step("unflushed"))
	}
	then = append(append(then, e.steps(writes.Statements)...), step{text: queryCommit})
	committed := len(then)
	done, err := pipeline(ctx, conn, append(then, e.steps(writes.After)...))
	if done >= committed {
		return nil
	}
	_ = undo(conn)
	return err
}

// visitApart is Tx with a round trip for each statement.
func (e *engine) visitApart(
	ctx context.Context, conn *sql.Conn, read func() []rowstore.Statement, decide func() (rowstore.Writes, error),
) error {
	var writes rowstore.Writes
	err := inOwnTx(ctx, conn, e.texts["visit"], func() (err error) {
		runAll := func(steps []step) error {
			began := false
			for i := range steps {
				if err := steps[i].run(ctx, conn, &began); err != nil {
					return err
				}
			}
			return nil
		}
		if err := runAll(e.steps(read())); err != nil {
			return err
		}
		if writes, err = decide(); err == nil && len(writes.Statements) == 0 {
			err = errNothing
		}
		if err == nil && !writes.Flush {
			err = runAll([]step{e.step("unflushed")})
		}
		if err != nil {
			return err
		}
		return runAll(e.steps(writes.Statements))
	})
	switch {
	case errors.Is(err, errNothing):
		return nil
	case err != nil:
		return err
	}
	began := false
	for _, s := range e.steps(writes.After) {
		_ = s.run(ctx, conn, &began)
	}
	return nil
}

// errNothing ends a transaction that has nothing to write.
var errNothing = errors.New("nothing to write")

// Renew implements [rowstore.Engine].
func (e *engine) Renew(ctx context.Context, shared bool, reqs []driver.RenewRequest, wait bool, renewed func(i int, now int64)) error {
	n, name := len(reqs), "renew"
	key := func(i int) string { return reqs[i].Name }
	if shared {
		name = "renew_shared"
		key = func(i int) string { return reqs[i].Acq.String() }
	}
	if wait {
		name += "_wait"
	}
	s := e.step(name,
		column(n, func(i int) string { return reqs[i].Name }),
		column(n, func(i int) driver.ID { return reqs[i].Acq }),
		column(n, func(i int) int64 { return reqs[i].Version }),
		column(n, func(i int) int64 { return reqs[i].TTL.Microseconds() }),
		column(n, func(i int) int64 { return int64(reqs[i].Holds) }))
	find := finder(n, key)
	var row []byte
	var now int64
	targets := []any{&row, &now}
	s.scan = func(scan rowstore.Scanner) error {
		err := scan(targets...)
		if err == nil {
			renewed(find(row), now)
		}
		return err
	}
	return e.commit(ctx, s)
}

// column makes a column of n rows.
func column[T any](n int, at func(i int) T) []T {
	all := make([]T, n)
	for i := range all {
		all[i] = at(i)
	}
	return all
}

// finder returns a function that finds the request with a key among n.
func finder(n int, key func(i int) string) func([]byte) int {
	if n == 1 {
		return func([]byte) int { return 0 }
	}
	index := make(map[string]int, n)
	for i := range n {
		index[key(i)] = i
	}
	return func(key []byte) int { return index[string(key)] }
}
