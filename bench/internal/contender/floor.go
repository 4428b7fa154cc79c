package contender

import (
	"context"
	"fmt"
	"sync"

	"github.com/sqllock/sqllock/bench/internal/server"
)

// The floors by name: what a database can do with bare statements.
const (
	FloorSelect = "select1" // one SELECT 1
	FloorUpdate = "update"  // one durable UPDATE of a row
	FloorCycle  = "cycle"   // two of them, as a cycle has; on Postgres the second is not flushed
	FloorNotify = "notify"  // one NOTIFY, of Postgres only
)

// floors returns the bare statements.
func floors() []Contender {
	var all []Contender
	for _, engine := range []string{server.Postgres, server.MariaDB} {
		for _, what := range []string{FloorSelect, FloorUpdate, FloorCycle} {
			all = append(all, floor(engine, what))
		}
	}
	return append(all, floor(server.Postgres, FloorNotify))
}

// exec runs a statement with the name as its only parameter, if it has one.
type exec func(ctx context.Context, query string, args ...any) error

func floor(engine, what string) Contender {
	open := postgresFloor
	if engine == server.MariaDB {
		open = mariadbFloor
	}
	return Contender{
		Name: "floor/" + engine + "/" + what, Server: engine, Floor: true, Durable: what != FloorSelect,
		Prepare: func(ctx context.Context, s Site) error {
			if err := createDatabase(ctx, engine, s); err != nil {
				return err
			}
			c, err := open(ctx, s)
			if err != nil {
				return err
			}
			defer func() { _ = c.close() }()
			return c.exec(ctx, createFloor)
		},
		Open: func(ctx context.Context, s Site) (Client, error) {
			c, err := open(ctx, s)
			if err != nil {
				return nil, err
			}
			c.what = what
			return c, nil
		},
	}
}

// floorClient runs the statements of a cycle.
type floorClient struct {
	exec                exec
	close               func() error
	what                string
	insert, grant, free string
	rows                sync.Map // names that have a row
}

func postgresFloor(ctx context.Context, s Site) (*floorClient, error) {
	pool, err := OpenPostgres(ctx, s)
	if err != nil {
		return nil, err
	}
	run := func(ctx context.Context, query string, args ...any) error {
		_, err := pool.Exec(ctx, query, args...)
		return err
	}
	return &floorClient{
		exec: run, close: closePool(pool),
		insert: insertFloorPostgres, grant: grantFloorPostgres, free: freeFloorPostgres,
	}, nil
}

func mariadbFloor(_ context.Context, s Site) (*floorClient, error) {
	db, err := OpenMariaDB(s)
	if err != nil {
		return nil, err
	}
	run := func(ctx context.Context, query string, args ...any) error {
		_, err := db.ExecContext(ctx, query, args...)
		return err
	}
	return &floorClient{
		exec: run, close: db.Close,
		insert: insertFloorMariaDB, grant: grantFloorMariaDB, free: freeFloorMariaDB,
	}, nil
}

func (c *floorClient) Lock(ctx context.Context, _ int, name string) (Lock, error) {
	switch c.what {
	case FloorSelect:
		return noLock{}, c.exec(ctx, selectOne)
	case FloorNotify:
		return noLock{}, c.exec(ctx, notify)
	}
	if _, there := c.rows.Load(name); !there {
		if err := c.exec(ctx, c.insert, name); err != nil {
			return nil, fmt.Errorf("insert: %w", err)
		}
		c.rows.Store(name, true)
	}
	if err := c.exec(ctx, c.grant, name); err != nil {
		return nil, err
	}
	if c.what == FloorUpdate {
		return noLock{}, nil
	}
	return &floorLock{c, name}, nil
}

func (c *floorClient) Close() error { return c.close() }

type floorLock struct {
	client *floorClient
	name   string
}

func (l *floorLock) Unlock(ctx context.Context) error {
	return l.client.exec(ctx, l.client.free, l.name)
}

type noLock struct{}

func (noLock) Unlock(context.Context) error { return nil }
