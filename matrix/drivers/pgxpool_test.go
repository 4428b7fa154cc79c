//go:build matrix && pgxpool

package drivers

import (
	"context"
	"database/sql"
	sqldriver "database/sql/driver"
	"errors"
	"io"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/sqllock/sqllock/internal/pairs"
	"github.com/sqllock/sqllock/internal/testdb"
	"github.com/sqllock/sqllock/lockpg"
	"github.com/sqllock/sqllock/sqllocktest"
)

var ways = []through{{
	name: "pgxpool",
	engine: &pairs.Engine{
		Name: testdb.Postgres, Kill: pairs.KillPostgres,
		Harness: throughPool(),
		Open: func(db *sql.DB) pairs.Database {
			if db == nil {
				return lockpg.Pool(nil)
			}
			return lockpg.Pool(db.Driver().(*pooled).open(db.Stats().MaxOpenConnections))
		},
		Source: func(d *testdb.Database) string { return d.DSN() },
	},
	modes:  []func(*pairs.Engine) sqllocktest.Harness{unique, forUpdate, advisory},
	direct: true,
	adapt: func(h *sqllocktest.Harness) {
		h.PastHandle = true
		h.AllStatements, h.NewStatements, h.UnlockStatements, h.GuardStatements = 0, 0, 0, 0
	},
}}

func throughPool() sqllocktest.Harness {
	h := pairs.Postgres
	h.Connect = func(dsn string) (sqldriver.Connector, error) {
		cfg, err := pgxpool.ParseConfig(dsn)
		return &pooled{cfg: cfg}, err
	}
	return h
}

// pooled is a pool of pgx and the handle of database/sql on it, which has the connections that the
// suite uses itself. The pool is made for the first Locker: then the limit of the handle is known,
// which the pool gets. It is its own driver, so that the pool is found from the handle.
type pooled struct {
	cfg *pgxpool.Config

	mu     sync.Mutex
	pool   *pgxpool.Pool // nil until it is needed
	handle sqldriver.Connector
}

var (
	_ sqldriver.Connector = (*pooled)(nil)
	_ io.Closer           = (*pooled)(nil)
)

func (p *pooled) Driver() sqldriver.Driver { return p }

func (p *pooled) Open(string) (sqldriver.Conn, error) {
	return nil, errors.New("bug: the connector is used")
}

func (p *pooled) open(conns int) *pgxpool.Pool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.pool == nil {
		if conns == 0 {
			conns = 100
		}
		p.cfg.MaxConns = int32(conns)
		pool, err := pgxpool.NewWithConfig(context.Background(), p.cfg)
		if err != nil {
			panic("bug: the configuration was parsed: " + err.Error())
		}
		p.pool, p.handle = pool, stdlib.GetPoolConnector(pool)
	}
	return p.pool
}

func (p *pooled) Connect(ctx context.Context) (sqldriver.Conn, error) {
	p.mu.Lock()
	handle := p.handle
	p.mu.Unlock()
	if handle == nil {
		handle = stdlib.GetConnector(*p.cfg.ConnConfig)
	}
	return handle.Connect(ctx)
}

// Close closes the pool, which waits for the connections that a Locker has left to itself.
func (p *pooled) Close() error {
	p.mu.Lock()
	pool := p.pool
	p.mu.Unlock()
	if pool == nil {
		return nil
	}
	closed := make(chan struct{})
	go func() { defer close(closed); pool.Close() }()
	select {
	case <-closed:
		return nil
	case <-time.After(time.Minute):
		return errors.New("a connection of the pool was not given back")
	}
}
