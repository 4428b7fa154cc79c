package testdb

import (
	"context"
	"database/sql"
	"errors"
	"sync"
	"testing"
)

// copier is an engine that copies a database, which takes less than to make the tables anew.
type copier interface {
	copy(ctx context.Context, db *sql.DB, from, to string) error
}

// model is a database that is copied.
type model struct {
	once     sync.Once
	database *Database
	err      error // if it could not be made
}

var (
	modelsMu sync.Mutex
	models   = make(map[string]*model) // by the DSN of their server
)

// NewMigrated is [New] with the tables that migrate makes. On Postgres migrate runs once in each
// process, and the others get copies: it must be the same for all tests of a package.
func NewMigrated(t testing.TB, engine string, migrate func(db *sql.DB) error) *Database {
	t.Helper()
	c, ok := engineOf(engine).(copier)
	if !ok {
		d := New(t, engine)
		if err := migrate(d.Open(t)); err != nil {
			t.Fatal(err)
		}
		return d
	}
	e := mustEngine(t, engine)
	return begin(t, e, func(d *Database) error {
		m, err := modelOf(d, e, migrate)
		if err != nil {
			return err
		}
		return d.admin(func(ctx context.Context, db *sql.DB, database string) error {
			return c.copy(ctx, db, m.name, database)
		})
	})
}

// modelOf returns the database of d's server that is copied. Nobody is connected to it.
func modelOf(d *Database, e engine, migrate func(db *sql.DB) error) (*Database, error) {
	modelsMu.Lock()
	m, ok := models[d.base]
	if !ok {
		m = &model{database: &Database{engine: d.engine, dialect: d.dialect, base: d.base, name: uniqueName()}}
		models[d.base] = m
	}
	modelsMu.Unlock()
	m.once.Do(func() { m.err = m.make(e, migrate) })
	return m.database, m.err
}

func (m *model) make(e engine, migrate func(db *sql.DB) error) error {
	if err := m.database.admin(e.create); err != nil {
		return err
	}
	db, err := m.database.open(m.database.DSN())
	if err != nil {
		return err
	}
	defer db.Close()
	return migrate(db)
}

// dropModels drops what [NewMigrated] copied.
func dropModels() error {
	modelsMu.Lock()
	defer modelsMu.Unlock()
	var err error
	for _, m := range models {
		if m.err == nil {
			err = errors.Join(err, m.database.admin(engineOf(m.database.engine).drop))
		}
	}
	return err
}
