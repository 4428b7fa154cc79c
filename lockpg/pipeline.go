package lockpg

import (
	"context"
	sqldriver "database/sql/driver"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/sqllock/sqllock/internal/rowstore"
)

// step is a statement, with its parameters, and what becomes of its result.
type step struct {
	text     string
	args     []any                        // string, int64, []byte, driver.ID, or a slice of one of them
	scan     func(rowstore.Scanner) error // nil for a statement without a result
	changed  *int64                       // set to how many rows were changed, unless nil
	needless func() bool                  // see [rowstore.Statement]
}

// pipeline sends steps together, and reads what comes back. It returns how many of them were
// done. If none begins a transaction they are one, which is committed in the end.
func pipeline(ctx context.Context, conn *pgx.Conn, steps []step) (done int, err error) {
	if p := preparedOn(conn); p != nil {
		return p.run(ctx, conn.PgConn(), steps)
	}
	var batch pgx.Batch
	for i := range steps {
		batch.Queue(steps[i].text, texts(steps[i].args)...)
	}
	results := conn.SendBatch(ctx, &batch)
	for done < len(steps) && err == nil {
		if err = steps[done].read(results); err == nil {
			done++
		}
	}
	if last := results.Close(); err == nil {
		err = last
	}
	switch {
	case err == nil:
		return done, nil
	case isUnsent(err) && ctx.Err() == nil:
		return 0, sqldriver.ErrBadConn
	}
	return done, err
}

// inTwo sends steps together that are two transactions, none of which begins one. The error
// of the second does not count. The server answers when both are done: an answer to the first would
// have the client run before those whom the second wakes.
func inTwo(ctx context.Context, conn *pgx.Conn, first, second []step) error {
	all := append(append([]step{{text: queryBegin}}, first...), step{text: queryCommit})
	committed := len(all)
	done, err := pipeline(ctx, conn, append(all, second...))
	if done >= committed {
		return nil
	}
	return err
}

// read reads the result of a step.
func (s *step) read(results pgx.BatchResults) error {
	rows, err := results.Query()
	if err != nil {
		return err
	}
	defer rows.Close()
	for s.scan != nil && rows.Next() {
		if err := s.scan(rows.Scan); err != nil {
			return err
		}
	}
	rows.Close()
	if s.changed != nil {
		*s.changed = rows.CommandTag().RowsAffected()
	}
	return rows.Err()
}

// undo ends a transaction that a connection may be in. If that fails it ends the connection.
func undo(conn *pgx.Conn) error {
	if conn.IsClosed() || conn.PgConn().TxStatus() == 'I' {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), undoWait)
	defer cancel()
	_, err := conn.Exec(ctx, queryRollback)
	if err != nil {
		_ = conn.Close(ctx)
	}
	return err
}

// undoWait is how long undo may take: the context of the call may be over.
const undoWait = 250 * time.Millisecond
