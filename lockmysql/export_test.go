package lockmysql

import (
	"context"
	"database/sql"
	"maps"
	"sync"
	"testing"

	"github.com/sqllock/sqllock/driver"
	"github.com/sqllock/sqllock/internal/rowstore"
	"github.com/sqllock/sqllock/internal/sqlconn"
	"github.com/sqllock/sqllock/internal/sqltext"
	"github.com/sqllock/sqllock/internal/termstore"
)

// Classify is what the stores' Classify does.
func Classify(err error) driver.Fault { return classify(err) }

// IsAnswer reports that the server has answered a statement with an error and goes on to serve the
// connection.
func IsAnswer(err error) bool { return isAnswer(err) }

// IsUnprepared reports that a statement that the server has not prepared is sent as a text.
func IsUnprepared(err error) bool { return isUnprepared(err) }

// Undo runs a statement in a transaction as on Galera, which is undone before without anybody being
// told.
func Undo(ctx context.Context, st driver.Store, text string) error {
	e := *st.(*store).engine
	e.galera, e.mariaDB = true, false
	e.commitNothing()
	return e.do(ctx, func(ctx context.Context, c session) error {
		return e.inOwnTx(ctx, c, func(begin []step) ([]step, bool, error) {
			return []step{{text: text}}, true, c.send(ctx, append(begin, step{text: queryRollback})...)
		})
	})
}

// ErrLocked is what a call returns that has waited for a row in vain.
var ErrLocked = errLocked

// Statements returns the texts of the unique mode, by name.
func Statements(prefix string) map[string]string {
	q := newQueries(prefix)
	texts := maps.Clone(q.texts)
	for name, text := range q.short {
		texts["short "+name] = text
	}
	return texts
}

// File returns the statements of the .sql file as they stand there.
func File(prefix string) map[string]string {
	return sqltext.Parse(uniqueFile+onceFile, newWords(prefix, ""))
}

// OnConn is a store whose statements run on a connection, as on one that was reserved.
func OnConn(st driver.Store, conn *sql.Conn) driver.Store {
	return onSource(st, onConn{conn}, func(*engine) error { return nil })
}

// Reserve is OnConn for a connection of the pool, which Close gives back.
func Reserve(ctx context.Context, st driver.Store) (driver.Store, error) {
	conn, err := st.(*store).engine.pool.Reserve(ctx)
	if err != nil {
		return nil, err
	}
	return onSource(st, conn, func(e *engine) error { return conn.CloseAfter(e.Restore) }), nil
}

func onSource(st driver.Store, source sqlconn.Source, end func(*engine) error) driver.Store {
	e := st.(*store).engine.on(source).(*engine)
	e.info.MaxConns = 1 // none is reserved
	return newStore(e, func(sqlconn.Source) rowstore.Engine { return e }, func() error { return end(e) })
}

func newStore(e *engine, on func(sqlconn.Source) rowstore.Engine, end func() error) driver.Store {
	return &store{engine: e, Store: rowstore.New(rowstore.Options{
		Client: e.client, Info: e.info, Pool: e.pool, Engine: on, Classify: classify, Close: end,
	})}
}

type onConn struct{ conn *sql.Conn }

func (c onConn) Do(ctx context.Context, fn func(context.Context, *sql.Conn) error) error {
	return fn(ctx, c.conn)
}

func (c onConn) Close() error { return nil }

// With is a store whose next call is interrupted when it has looked.
func With(tb testing.TB, st driver.Store, happens func()) driver.Store {
	e, happens := st.(*store).engine, sync.OnceFunc(happens)
	s := newStore(e, func(source sqlconn.Source) rowstore.Engine {
		return &interrupted{engine: e.on(source).(*engine), happens: happens}
	}, nil)
	tb.Cleanup(func() { _ = s.Close() })
	return s
}

type interrupted struct {
	*engine
	happens func()
}

func (e *interrupted) Run(ctx context.Context, statements ...rowstore.Statement) error {
	err := e.engine.Run(ctx, statements...)
	e.happens()
	return err
}

func (e *interrupted) Grant(
	ctx context.Context, look func() rowstore.Statement, free func() []driver.AcquireRequest, granted func(i int, g rowstore.Granted),
) error {
	return e.engine.Grant(ctx, look, func() []driver.AcquireRequest {
		e.happens()
		return free()
	}, granted)
}

// Judge tells what is thought of a server that says this of itself.
func Judge(d *Database, version string, variables map[string]string, noRedo bool) (warnings []string, err error) {
	s, err := parse(version)
	if err != nil {
		return nil, err
	}
	s.variables, s.noRedo = variables, noRedo
	var info driver.Info
	err = d.refuse(s, &info)
	return info.Warnings, err
}

// Keys replaces the hash of the mode advisory.
func Keys(hash func(name string) [16]byte) Option { return func(d *Database) { d.hash = hash } }

// JudgeNodes tells what the modes that keep locks in sessions think of a server.
func JudgeNodes(variables map[string]string) error {
	return (&server{variables: variables}).refuseNodes()
}

// SessionStatements returns the texts of a session mode, by name.
func SessionStatements(prefix, mode string) map[string]string { return sessionTexts(prefix, mode) }

// SessionsFile returns the statements of the other .sql file as they stand there.
func SessionsFile(prefix, mode string) map[string]string {
	return sqltext.Parse(sessionsFile, newWords(prefix, mode))
}

// SweepWith is a store whose sweep is interrupted when it has looked.
func SweepWith(st driver.SessionStore, happens func()) *termstore.Store {
	var s *sessions
	switch st := st.(type) {
	case *forUpdateStore:
		s = st.sessions
	case *advisoryStore:
		s = st.sessions
	}
	store := s.Store
	store.Pool = interruptedSweep{s.Store.Pool, happens}
	return &store
}

type interruptedSweep struct {
	termstore.Runner
	happens func()
}

func (r interruptedSweep) Read(ctx context.Context, s termstore.Statement, scan func(rowstore.Scanner) error) error {
	err := r.Runner.Read(ctx, s, scan)
	if s.Name == "page" {
		r.happens()
	}
	return err
}
