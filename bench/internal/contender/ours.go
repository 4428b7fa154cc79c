package contender

import (
	"context"
	"database/sql"
	"errors"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/sqllock/sqllock"
	"github.com/sqllock/sqllock/bench/internal/server"
	"github.com/sqllock/sqllock/driver"
	"github.com/sqllock/sqllock/lockmysql"
	"github.com/sqllock/sqllock/lockpg"
	"github.com/sqllock/sqllock/locksqlite"
	"github.com/sqllock/sqllock/migrations"
)

// ours returns this project's modes. A lock of a session, for update or advisory,
// does not outlive its server, by design.
func ours() []Contender {
	return []Contender{
		our(server.Postgres, "unique", true, openPostgres),
		our(server.Postgres, "advisory", false, openPostgres),
		our(server.Postgres, "forupdate", false, openPostgres),
		our(server.MariaDB, "unique", true, openMariaDB),
		our(server.MariaDB, "advisory", false, openMariaDB),
		our(server.SQLite, "unique", true, openSQLite),
	}
}

// Handle is a database with the function that closes it.
type Handle struct {
	DB interface {
		driver.UniqueDatabase
		driver.Migratable
	}
	Close func() error
}

func our(engine, mode string, durable bool, open func(context.Context, Site) (Handle, error)) Contender {
	return Contender{
		Name: "sqllock/" + engine + "/" + mode, Server: engine, Durable: durable, Waits: true,
		Prepare: func(ctx context.Context, s Site) error {
			if engine != server.SQLite {
				if err := createDatabase(ctx, engine, s); err != nil {
					return err
				}
			}
			h, err := open(ctx, s)
			if err != nil {
				return err
			}
			return errors.Join(migrations.Up(ctx, h.DB), h.Close())
		},
		Open: func(ctx context.Context, s Site) (Client, error) {
			h, err := open(ctx, s)
			if err != nil {
				return nil, err
			}
			locks, err := newLocker(ctx, mode, h, s)
			if err != nil {
				return nil, errors.Join(err, h.Close())
			}
			return &ourClient{locks, h.Close}, nil
		},
		OpenMany: func(ctx context.Context, s Site, n int) ([]Client, error) {
			h, err := open(ctx, s)
			if err != nil {
				return nil, err
			}
			return newLockers(ctx, mode, h, s, n)
		},
	}
}

// newLockers returns Lockers with one handle. The last to be closed closes it.
func newLockers(ctx context.Context, mode string, h Handle, s Site, n int) ([]Client, error) {
	var left atomic.Int64
	closeLast := func() error {
		if left.Add(-1) > 0 {
			return nil
		}
		return h.Close()
	}
	var list []Client
	for range n {
		locks, err := newLocker(ctx, mode, h, s)
		if err != nil {
			return list, err
		}
		left.Add(1)
		list = append(list, &ourClient{locks, closeLast})
	}
	return list, nil
}

func newLocker(ctx context.Context, mode string, h Handle, s Site) (*sqllock.Locker, error) {
	switch mode {
	case "advisory":
		return sqllock.NewAdvisory(ctx, h.DB.(driver.AdvisoryDatabase), advisoryOptions())
	case "forupdate":
		return sqllock.NewForUpdate(ctx, h.DB.(driver.ForUpdateDatabase), forUpdateOptions())
	}
	return sqllock.NewUnique(ctx, h.DB, uniqueOptions(s))
}

func openPostgres(ctx context.Context, s Site) (Handle, error) {
	pool, err := OpenPostgres(ctx, s)
	if err != nil {
		return Handle{}, err
	}
	var opts []lockpg.Option
	if s.Prefix != "" {
		opts = append(opts, lockpg.TablePrefix(s.Prefix))
	}
	return Handle{lockpg.Pool(pool, opts...), closePool(pool)}, nil
}

func closePool(pool *pgxpool.Pool) func() error {
	return func() error {
		pool.Close()
		return nil
	}
}

func openMariaDB(_ context.Context, s Site) (Handle, error) {
	db, err := OpenMariaDB(s)
	if err != nil {
		return Handle{}, err
	}
	var opts []lockmysql.Option
	if s.Prefix != "" {
		opts = append(opts, lockmysql.TablePrefix(s.Prefix))
	}
	return Handle{lockmysql.DB(db, opts...), db.Close}, nil
}

func openSQLite(_ context.Context, s Site) (Handle, error) {
	db, err := OpenSQLite(s)
	if err != nil {
		return Handle{}, err
	}
	var opts []locksqlite.Option
	if s.Prefix != "" {
		opts = append(opts, locksqlite.TablePrefix(s.Prefix))
	}
	return Handle{locksqlite.DB(db, opts...), db.Close}, nil
}

var _ driver.UniqueDatabase = (*locksqlite.Database)(nil)

// ourClient is a Locker with its handle.
type ourClient struct {
	locks *sqllock.Locker
	close func() error
}

func (c *ourClient) Lock(ctx context.Context, _ int, name string) (Lock, error) {
	lease, err := c.locks.Lock(ctx, name)
	if err != nil {
		return nil, err // not a nil *Lease in an interface
	}
	return lease, nil
}

func (c *ourClient) Close() error {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	return errors.Join(c.locks.Close(ctx), c.close())
}

// SQL opens a contender's database for statements of the workload itself.
func SQL(ctx context.Context, engine string, s Site) (*sql.DB, error) {
	switch engine {
	case server.Postgres:
		return sql.Open("pgx", server.PostgresDSN(s.Addrs[engine], s.Database))
	case server.MariaDB:
		return OpenMariaDB(s)
	}
	return OpenSQLite(s)
}
