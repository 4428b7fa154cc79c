package lockpg_test

import (
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/sqllock/sqllock/driver"
	"github.com/sqllock/sqllock/internal/netproxy"
	"github.com/sqllock/sqllock/lockpg"
)

// renews reports what became of a renewal that may take some time.
func renews(t *testing.T, store driver.Store, version int64, within time.Duration) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), within)
	defer cancel()
	res, err := store.Renew(ctx, []driver.RenewRequest{{Name: "a", Acq: acq(1), Version: version, TTL: time.Minute}}, false)
	if err == nil && res.Status[0] != driver.Renewed {
		t.Errorf("the renewal is %v", res.Status[0])
	}
	return err
}

// twoHosts is a database behind two addresses, of which the first can be frozen.
func twoHosts(t *testing.T) (dsn string, first *netproxy.Proxy) {
	t.Helper()
	d := withTables(t)
	first, second := netproxy.New(t, d.Addr()), netproxy.New(t, d.Addr())
	return d.DSNVia(first.Addr() + "," + second.Addr()), first
}

func TestARenewalFindsTheSecondHostWhileTheFirstIsFrozenAndThePoolIsFull(t *testing.T) {
	t.Parallel()
	const size = 3
	for how, open := range map[string]func(t *testing.T, dsn string) (*lockpg.Database, func(ctx context.Context) error){
		"a handle": func(t *testing.T, dsn string) (*lockpg.Database, func(ctx context.Context) error) {
			db, err := sql.Open("pgx", dsn)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = db.Close() })
			db.SetMaxOpenConns(size)
			return lockpg.DB(db), func(ctx context.Context) error {
				_, err := db.ExecContext(ctx, `SELECT pg_sleep(600)`)
				return err
			}
		},
		"a pool": func(t *testing.T, dsn string) (*lockpg.Database, func(ctx context.Context) error) {
			pool, err := pgxpool.New(t.Context(), dsn+fmt.Sprintf("&pool_max_conns=%d", size))
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(pool.Close)
			return lockpg.Pool(pool), func(ctx context.Context) error {
				_, err := pool.Exec(ctx, `SELECT pg_sleep(600)`)
				return err
			}
		},
	} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			dsn, first := twoHosts(t)
			d, call := open(t, dsn)
			store := openAs(t, d, 1)
			version := grant(t, store, request("a", 1, time.Minute))[0].Version
			ctx, idle := context.WithCancel(context.Background())
			calls := make(chan error, size)
			for range cap(calls) {
				go func() { calls <- call(ctx) }()
			}
			t.Cleanup(func() {
				first.Thaw()
				idle()
				for range cap(calls) {
					<-calls
				}
			})
			first.Freeze()
			if err := renews(t, store, version, time.Second); !errors.Is(err, context.DeadlineExceeded) {
				t.Fatalf("the renewal on the frozen connection: %v", err)
			}
			if err := renews(t, store, version, 20*time.Second); err != nil {
				t.Fatalf("the next renewal: %v", err)
			}
			if err := renews(t, store, version, 20*time.Second); err != nil {
				t.Errorf("the one after it: %v", err)
			}
		})
	}
}

// What the library knows of the application's connections may be out of date.
func TestThePoolOpensTheConnectionIfTheServerDoesNotLetTheLibraryIn(t *testing.T) {
	t.Parallel()
	d := withTables(t)
	admin := d.Open(t)
	roles := [2]string{}
	for i := range roles {
		roles[i] = fmt.Sprintf("sqllock_test_%s_%d", strings.ToLower(rand.Text()[:8]), i)
		mustExec(t, admin, `CREATE ROLE `+roles[i]+` LOGIN SUPERUSER PASSWORD 'word'`)
		t.Cleanup(func() { _, _ = admin.ExecContext(context.Background(), `DROP ROLE `+roles[i]) })
	}
	proxy := netproxy.New(t, d.Addr())
	config, err := pgx.ParseConfig(d.DSNVia(proxy.Addr()))
	if err != nil {
		t.Fatal(err)
	}
	var now atomic.Int64 // which role it is
	db := stdlib.OpenDB(*config, stdlib.OptionBeforeConnect(func(_ context.Context, c *pgx.ConnConfig) error {
		c.User, c.Password = roles[now.Load()], "word"
		return nil
	}))
	t.Cleanup(func() { _ = db.Close() })
	store := openAs(t, lockpg.DB(db), 1)
	version := grant(t, store, request("a", 1, time.Minute))[0].Version
	now.Store(1)
	mustExec(t, admin, `ALTER ROLE `+roles[0]+` NOLOGIN`)
	proxy.Freeze()
	if err := renews(t, store, version, 300*time.Millisecond); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("the renewal on the frozen connection: %v", err)
	}
	proxy.Thaw()
	if err := renews(t, store, version, 20*time.Second); err != nil {
		t.Errorf("the next renewal: %v", err)
	}
}

func TestEachHostOfAConfigurationIsAskedByItself(t *testing.T) {
	config, err := pgx.ParseConfig("postgres://u@a:1,b:2/d?sslmode=prefer&target_session_attrs=read-write")
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, host := range lockpg.HostsOf(config) {
		text := fmt.Sprint(host.Host, ":", host.Port, " ", host.TLSConfig != nil)
		for _, f := range host.Fallbacks {
			text += fmt.Sprint(", ", f.Host, ":", f.Port, " ", f.TLSConfig != nil)
		}
		got = append(got, text)
	}
	if want := "[a:1 true, a:1 false b:2 true, b:2 false]"; fmt.Sprint(got) != want {
		t.Errorf("got %v, want %v", got, want)
	}
	if config.Host != "a" || len(config.Fallbacks) != 3 {
		t.Error("the configuration of the application was changed")
	}
}
