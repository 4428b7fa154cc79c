package lockpg_test

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/sqllock/sqllock"
	"github.com/sqllock/sqllock/lockpg"
)

func TestAPoolThatIsClosedBeforeItsLockerIsClosedWhenThatIs(t *testing.T) {
	t.Parallel()
	d := withTables(t)
	const statement = 2 * time.Second
	for mode, open := range map[string]func(*pgxpool.Pool) (*sqllock.Locker, error){
		"unique": func(p *pgxpool.Pool) (*sqllock.Locker, error) {
			return sqllock.NewUnique(t.Context(), lockpg.Pool(p), &sqllock.UniqueOptions{StatementTimeout: statement})
		},
		"for update": func(p *pgxpool.Pool) (*sqllock.Locker, error) {
			return sqllock.NewForUpdate(t.Context(), lockpg.Pool(p), &sqllock.ForUpdateOptions{StatementTimeout: statement})
		},
		"advisory": func(p *pgxpool.Pool) (*sqllock.Locker, error) {
			return sqllock.NewAdvisory(t.Context(), lockpg.Pool(p), &sqllock.AdvisoryOptions{StatementTimeout: statement, AllowSilentHolders: true})
		},
	} {
		t.Run(mode, func(t *testing.T) {
			cfg, err := pgxpool.ParseConfig(d.DSN())
			if err != nil {
				t.Fatal(err)
			}
			cfg.MaxConns = 6
			pool, err := pgxpool.NewWithConfig(t.Context(), cfg)
			if err != nil {
				t.Fatal(err)
			}
			locks, err := open(pool)
			if err != nil {
				t.Fatal(err)
			}
			lease, err := locks.Lock(t.Context(), "held "+mode)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := locks.Lock(t.Context(), lease.Name(), sqllock.Wait(100*time.Millisecond)); err == nil { // it listens
				t.Fatal("two hold it")
			}
			closed := make(chan struct{})
			go func() { pool.Close(); close(closed) }()
			for began := time.Now(); pool.Ping(t.Context()) == nil; time.Sleep(time.Millisecond) {
				if time.Since(began) > time.Minute {
					t.Fatal("the pool is not closed")
				}
			}
			select {
			case <-closed:
				t.Error("the pool was closed while connections were in use")
			default:
			}
			_ = lease.Unlock(t.Context()) // the pool gives no connection for it any more
			ctx, cancel := context.WithTimeout(context.Background(), 40*time.Second)
			defer cancel()
			if err := locks.Close(ctx); ctx.Err() != nil {
				t.Errorf("Close waited for a pool that is closed: %v", err)
			}
			select {
			case <-closed:
			case <-time.After(time.Minute):
				t.Error("the pool waits for a connection of a Locker that is closed")
			}
		})
	}
}
