package lockpg

import (
	"context"
	"strconv"
	"time"

	"github.com/sqllock/sqllock/driver"
	"github.com/sqllock/sqllock/internal/rowstore"
	"github.com/sqllock/sqllock/internal/sqlconn"
)

// Keys replaces the hash of the mode advisory.
func Keys(hash func(name string) int64) Option { return func(d *Database) { d.hash = hash } }

// Version replaces what the server says of itself.
func Version(version string) Option {
	return func(d *Database) { d.version = func(string) string { return version } }
}

// HostsOf are configurations for each host of one by itself.
var HostsOf = hostsOf

// GuardKey is what a transaction locks that guards a lease in the mode advisory.
func GuardKey(database driver.ID, name string) int64 { return guardKey(database, name) }

// Silence is how the server finds out that a host has vanished.
func Silence(ttl time.Duration) (unconfirmed, idle, interval time.Duration, count int) {
	set := silence(ttl)
	number := func(s string) int {
		n, _ := strconv.Atoi(s)
		return n
	}
	return time.Duration(number(set.userTimeout)) * time.Millisecond, time.Duration(number(set.idle)) * time.Second,
		time.Duration(number(set.interval)) * time.Second, number(set.count)
}

// Draw draws a token as a session of the mode for update does after it has locked the
// pin of the name, whatever has become of its lock meanwhile.
func Draw(ctx context.Context, store driver.SessionStore, r driver.AcquireRequest) (driver.AcquireResult, error) {
	s := store.(*forUpdateStore)
	return s.draw(ctx, &drawing{req: &r, named: !r.Shared, pid: 1, started: 1, run: s.queryKept})
}

// Reserve is a store whose statements run on a connection of the pool of another, as on one
// that was reserved. Close gives it back.
func Reserve(ctx context.Context, st driver.Store) (driver.Store, error) {
	s := *st.(*store)
	conn, err := s.pool.Reserve(ctx)
	if err != nil {
		return nil, err
	}
	e := s.engine.on(conn).(*engine)
	s.engine, s.Store = e, rowstore.New(rowstore.Options{
		Client: e.client, Info: driver.Info{MaxConns: 1}, Pool: s.pool, Classify: classify,
		Engine: func(sqlconn.Source) rowstore.Engine { return e },
		Close:  func() error { return conn.CloseAfter(e.Restore) },
	})
	return &s, nil
}

// Changed returns the settings that a store that is reserved has changed.
func Changed(s driver.Store) []string { return s.(*store).engine.settings.names }

// Texts returns the statements of a store of the unique mode, by name.
func Texts(s driver.Store) map[string]string { return s.(*store).engine.texts }
