package lockpg

import (
	"context"
	"database/sql"
	sqldriver "database/sql/driver"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/sqllock/sqllock/internal/sqlconn"
)

// A pool opens connections in a way that a fail-over can make useless for renewals. It tries the
// hosts of its configuration one after the other, and one that is frozen takes all of the time of a
// statement. And it has no room for a connection while the application waits for answers on all of
// those that it may open. So when the connection for renewals is lost, the library opens the next
// one by itself.

// beside returns a pool that opens connections as the application's pool does, but beside it, and
// to the primary. conn is a connection of the application's. beside returns nil if its driver is
// not pgx.
func (d *Database) beside(conn *sql.Conn) *sqlconn.Pool {
	p := &primary{}
	if d.pool != nil {
		p.follow(d.pool.Config())
	} else {
		_ = conn.Raw(func(c any) error { // if it fails, there is none
			if c, ok := c.(*stdlib.Conn); ok {
				p.config = c.Conn().Config()
			}
			return nil
		})
	}
	if p.config == nil {
		return nil
	}
	db := sql.OpenDB(p)
	db.SetMaxIdleConns(0)
	return &sqlconn.Pool{DB: db}
}

// primary is a connector that asks all hosts of a configuration for the one that takes writes. It
// asks them at the same time, and those that refuse again and again.
type primary struct {
	config *pgx.ConnConfig
	opts   []stdlib.OptionOpenDB
}

var _ sqldriver.Connector = (*primary)(nil)

// follow connects as a pool does.
func (p *primary) follow(config *pgxpool.Config) {
	p.config = config.ConnConfig
	if config.BeforeConnect != nil {
		p.opts = append(p.opts, stdlib.OptionBeforeConnect(config.BeforeConnect))
	}
	if after := config.AfterConnect; after != nil {
		p.opts = append(p.opts, stdlib.OptionAfterConnect(func(ctx context.Context, conn *pgx.Conn) error {
			err := after(ctx, conn)
			if err != nil {
				_ = conn.Close(ctx) // pgx leaves that to whoever returns the error
			}
			return err
		}))
	}
}

// Driver implements [sqldriver.Connector].
func (p *primary) Driver() sqldriver.Driver { return stdlib.GetDefaultDriver() }

// Connect implements [sqldriver.Connector]. It returns when a host takes writes, when the hosts
// refuse the client, or when ctx ends.
func (p *primary) Connect(ctx context.Context) (sqldriver.Conn, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	type answer struct {
		conn sqldriver.Conn
		err  error
	}
	hosts := hostsOf(p.config)
	answers := make(chan answer, len(hosts))
	for _, host := range hosts {
		go func() {
			conn, err := p.connectTo(ctx, host)
			answers <- answer{conn, err}
		}()
	}
	var first sqldriver.Conn
	var errs []error
	for range hosts {
		a := <-answers
		switch {
		case a.err != nil:
			errs = append(errs, a.err)
		case first != nil:
			_ = a.conn.Close()
		default:
			first = a.conn
		}
		if first != nil || isDenied(a.err) {
			cancel()
		}
	}
	if first != nil {
		return first, nil
	}
	return nil, errors.Join(errs...)
}

// The pauses before a host that has refused is asked again. Many clients may ask one that is about
// to be promoted.
const (
	minRetryPause = 100 * time.Millisecond
	maxRetryPause = time.Second
)

// connectTo connects to a host as soon as it takes writes.
func (p *primary) connectTo(ctx context.Context, host *pgx.ConnConfig) (sqldriver.Conn, error) {
	connector := stdlib.GetConnector(*host, p.opts...)
	for pause := minRetryPause; ; pause = min(2*pause, maxRetryPause) {
		conn, err := connector.Connect(ctx)
		if err == nil || ctx.Err() != nil || isDenied(err) {
			return conn, err
		}
		select {
		case <-time.After(pause/2 + rand.N(pause/2)):
		case <-ctx.Done():
			return nil, err
		}
	}
}

// hostsOf returns a configuration for each host of config, that accepts the host only if it takes
// writes.
func hostsOf(config *pgx.ConnConfig) (hosts []*pgx.ConnConfig) {
	config = config.Copy()
	all := append([]*pgconn.FallbackConfig{{Host: config.Host, Port: config.Port, TLSConfig: config.TLSConfig}}, config.Fallbacks...)
	for _, f := range all {
		if n := len(hosts); n > 0 && hosts[n-1].Host == f.Host && hosts[n-1].Port == f.Port { // with TLS and without
			hosts[n-1].Fallbacks = append(hosts[n-1].Fallbacks, f)
			continue
		}
		host := config.Copy()
		host.Host, host.Port, host.TLSConfig, host.Fallbacks = f.Host, f.Port, f.TLSConfig, nil
		host.ValidateConnect = takesWrites(config.ValidateConnect)
		hosts = append(hosts, host)
	}
	return hosts
}

// takesWrites accepts a connection that also accepts, unless that is nil, if its server takes
// writes.
func takesWrites(also pgconn.ValidateConnectFunc) pgconn.ValidateConnectFunc {
	return func(ctx context.Context, conn *pgconn.PgConn) error {
		if also != nil {
			if err := also(ctx, conn); err != nil {
				return err
			}
		}
		return pgconn.ValidateConnectTargetSessionAttrsReadWrite(ctx, conn)
	}
}

// isDenied reports that a server has answered, and does not let this client in.
func isDenied(err error) bool {
	if err == nil {
		return false
	}
	state, _ := stateOf(err)
	switch state[:min(2, len(state))] {
	case "28", "3D", "42": // the password, the database, a privilege
		return true
	}
	return false
}
