package lockmysql

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/sqllock/sqllock/driver"
	"github.com/sqllock/sqllock/internal/rowstore"
	"github.com/sqllock/sqllock/internal/sqlconn"
)

// engine runs statements on connections of a source.
type engine struct {
	pool    *sqlconn.Pool
	source  sqlconn.Source // the pool, or a connection reserved from it
	queries *queries
	client  driver.Client

	prepared *prepared // on the connection that was reserved; nil on the pool
	freed    *rowstore.FreedNames

	locker, label any // of the client, as they travel

	info      driver.Info
	database  string // its id
	maxPacket int    // bytes that the server takes at once
	mariaDB   bool
	isolate   bool // a plain SELECT would read what is not committed
	galera    bool // the server is a node of a Galera cluster
	wsrep     bool // it can say whether it is one

	bound, unbound string // settings of a session around a transaction
}

var (
	_ rowstore.Restorer = (*engine)(nil)
	_ rowstore.Retrier  = (*engine)(nil)
	_ rowstore.Quick    = (*engine)(nil)

	_ rowstore.AllGranter    = (*engine)(nil)
	_ rowstore.PermitGranter = (*engine)(nil)
)

// on returns the same engine on another source of connections.
func (e *engine) on(source sqlconn.Source) rowstore.Engine {
	other := *e
	other.source = source
	if source != e.pool {
		other.prepared = newPrepared()
	}
	return &other
}

// Restore implements [rowstore.Restorer]: it ends the statements that are prepared.
func (e *engine) Restore(*sql.Conn) error {
	e.prepared.close()
	return nil
}

// Retrier implements [rowstore.Retrier].
func (e *engine) Retrier() {}

// do calls fn with a connection. That a row is locked puts no doubt on the
// connection.
func (e *engine) do(ctx context.Context, fn func(context.Context, session) error) error {
	locked := false
	err := e.source.Do(ctx, func(ctx context.Context, conn *sql.Conn) error {
		err := fn(ctx, session{conn, e.prepared, e.blocks()})
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

// blocks reports that the server takes several statements in a block. On Galera, MariaDB does not
// answer if another node undoes the transaction between two statements of a block: seen with
// 10.11.19, where the client waited until its time was over.
func (e *engine) blocks() bool { return e.mariaDB && !e.galera }

// read is query for a statement that locks nothing. What another has not committed
// may be undone yet: to take it for a grant of ours would be fatal.
func (e *engine) read(ctx context.Context, c session, text string, args []any, scan func(*sql.Rows) error) error {
	if !e.isolate {
		return query(ctx, c, text, args, scan)
	}
	return e.inOwnTx(ctx, c, func(begin []step) ([]step, bool, error) {
		return nil, false, c.send(ctx, append(begin, step{text, args, scan})...)
	})
}

// commitNothing has no statement around a transaction of the library commit by itself, see inOwnTx.
func (e *engine) commitNothing() {
	e.bound += ", @@SESSION.autocommit = 0"
	e.unbound += ", @@SESSION.autocommit = 1"
}

// inOwnTx calls fn, which runs statements in a transaction of the library's own: those that
// begin it come first. If fn says so, it runs what else fn returns, and commits. The server ends
// the session if the client is silent meanwhile: else a client that was paused, or has vanished,
// would keep what it has locked. A session that cannot be restored is ended, whatever became of
// the transaction. If the connection breaks before anything was sent that commits, the error is a
// [rowstore.ErrRolledBack].
//
// On Galera another node can undo the transaction between any two statements, and MariaDB has been
// seen to go on as if nothing had been. So nothing commits by itself there, and a savepoint that the
// transaction begins with must still be there at its end.
func (e *engine) inOwnTx(ctx context.Context, c session, fn func(begin []step) (last []step, commit bool, err error)) error {
	unbound := step{text: e.unbound}
	begin := []step{{text: e.bound}, {text: queryBegin}}
	if e.galera {
		begin = append(begin, step{text: querySavepoint})
	}
	last, commit, err := fn(begin)
	ending := []step{{text: queryRollback}, unbound}
	if errors.Is(err, mysql.ErrInvalidConn) && ctx.Err() == nil {
		err = fmt.Errorf("%w: %w", rowstore.ErrRolledBack, err)
	}
	if err == nil && commit && e.galera {
		if err = c.send(ctx, append(last, step{text: queryRelease})...); numberOf(err) == 1305 { // ER_SP_DOES_NOT_EXIST
			err = fmt.Errorf("%w: %w", rowstore.ErrRolledBack, err)
		}
		last = nil
	}
	if err == nil && commit {
		last = append(last, step{text: queryCommit})
		if c.blocks {
			last = append(last, unbound)
		}
		if err = c.send(ctx, last...); err == nil {
			ending = ending[1:]
		}
		if err == nil && c.blocks {
			return nil
		}
	}
	rest, cancel := context.WithTimeout(context.WithoutCancel(ctx), glance)
	defer cancel()
	if c.send(rest, ending...) != nil {
		sqlconn.Destroy(c.Conn, e.pool.End)
	}
	return err
}

// glance bounds what may as well be left out.
const glance = 500 * time.Millisecond

// longWait is for how long a call waits for a row that somebody has locked.
const longWait = time.Second

// waitsOnServer reports that a call waits on the server for a row that somebody else has locked.
// There nobody passes it. If everybody asked again and again, a hundred who enter the queue of a
// name would keep its row locked for so long that its holder could neither renew nor release it.
// Only MariaDB can bound the wait. It cannot be told to stop, so the call must have time for it.
func (e *engine) waitsOnServer(ctx context.Context) bool {
	until, ok := ctx.Deadline()
	return e.mariaDB && (!ok || time.Until(until) > longWait+glance)
}

// patiently calls try with a connection until it is done, for as long as somebody may have
// locked a row for a moment. The error is errLocked then. Whoever does not wait on the server
// keeps no connection meanwhile, which renewals may need.
func (e *engine) patiently(ctx context.Context, try func(context.Context, session) (done bool, err error)) error {
	wait := rowstore.NewLockWait(longWait)
	for {
		done := false
		err := e.do(ctx, func(ctx context.Context, c session) (err error) {
			done, err = try(ctx, c)
			return err
		})
		if err != nil || done {
			return err
		}
		if err := wait.Pause(ctx); err != nil {
			return err
		}
	}
}

// Run implements [rowstore.Engine].
func (e *engine) Run(ctx context.Context, statements ...rowstore.Statement) error {
	if len(statements) == 1 && e.Quick(statements[0].Name, rowstore.Rows(statements[0].Batch)) {
		return e.quickly(ctx, &statements[0])
	}
	r := run{e: e}
	return e.do(ctx, func(ctx context.Context, c session) error {
		r.c = c
		return r.all(ctx, statements)
	})
}

// Tx implements [rowstore.Engine]. Of what follows on a commit, the database has nothing.
// What decide says puts no doubt on the connection.
func (e *engine) Tx(ctx context.Context, read func() []rowstore.Statement, decide func() (rowstore.Writes, error)) error {
	var verdict error
	err := e.patiently(ctx, func(ctx context.Context, c session) (done bool, err error) {
		err = e.inOwnTx(ctx, c, func(begin []step) (last []step, commit bool, err error) {
			r := run{e: e, c: c, tx: true, waits: e.waitsOnServer(ctx), begin: begin}
			if err := r.all(ctx, read()); err != nil {
				return nil, false, err
			}
			var writes rowstore.Writes
			writes, verdict = decide()
			if verdict != nil || len(writes.Statements) == 0 {
				return nil, false, nil
			}
			last, err = r.writes(ctx, writes.Statements)
			return last, true, err
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
